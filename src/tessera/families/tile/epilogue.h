// Epilogues: the text of a chain of steps in a kernel, the chain's value in double, and the largest
// error of a correct kernel.
#pragma once

#include <array>
#include <string>

#include "tessera/spec/dtype.h"
#include "tessera/spec/epilogue.h"

namespace tessera::tile {

// "Step::bias, Step::gelu"
std::string epilogue_text(const Epilogue& epilogue);
// The lines of a Config about the chain.
std::string epilogue_fields(const Epilogue& epilogue);

// Whether a step is an elementary function, which costs more than arithmetic.
constexpr bool is_function(EpilogueOp op) {
  using enum EpilogueOp;
  return op == gelu || op == gelu_tanh || op == silu || op == sigmoid || op == tanh;
}

// A value and the largest error that a correct kernel may have made in it.
struct Bounded {
  double value = 0;
  double error = 0;
};

// The D elements of one output element.
using DValues = std::array<double, kMaxD>;

// A chain and the bounds of its clamp.
struct EpilogueSteps {
  const Epilogue& epilogue;
  double clamp_lo, clamp_hi;
};

// The chain of steps applied in double, with the error carried along.
Bounded apply_epilogue(const EpilogueSteps& steps, const DValues& d, Bounded x);

// How far a correct element of the output may be from x.value.
double tolerance_of(DType out, const Bounded& x);

// Whether `got` is a correct element for x. NaN must meet NaN. An infinity must meet the same
// infinity, or a value that may have overflowed. int32 must be exact.
bool within_tolerance(DType out, double got, const Bounded& x);

}  // namespace tessera::tile
