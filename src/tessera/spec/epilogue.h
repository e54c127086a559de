// The epilogue: a short chain of steps that is applied to alpha * A x B + beta * C before it is
// stored.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)
namespace tessera {

// x is the running value of one output element; D0, D1, ... are further input tensors, taken in
// the order in which steps ask for them.
enum class EpilogueOp : std::uint8_t {
  pass_through,      // x
  bias,              // x + D[n]: the next D is a vector along N
  add,               // x + D[m, n]
  multiply,          // x * D[m, n]
  multi_d_add,       // x + D[m, n] + ... over all remaining D
  multi_d_multiply,  // x * D[m, n] * ... over all remaining D
  relu,              // max(x, 0)
  gelu,              // x / 2 * (1 + erf(x / sqrt(2)))
  gelu_tanh,         // x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
  silu,              // x / (1 + exp(-x))
  sigmoid,           // 1 / (1 + exp(-x))
  tanh,              // tanh(x)
  clamp,             // min(max(x, lo), hi)
  row_scale,         // x * D[m]: the next D is a vector along M
  col_scale,         // x * D[n]: the next D is a vector along N
};

inline constexpr int kMaxEpilogueOps = 6;
inline constexpr int kMaxD = 4;

// Trailing pass_through entries mean "nothing more": the default chain is empty.
struct Epilogue {
  std::array<EpilogueOp, kMaxEpilogueOps> ops{};
  std::uint8_t num_d = 0;  // how many D tensors the whole chain takes
  friend bool operator==(const Epilogue&, const Epilogue&) = default;
};

std::string_view to_string(EpilogueOp op);

// The number of steps before the trailing pass_through entries.
int num_ops(const Epilogue& epilogue);

// Empty when num_d is the number of D tensors that the steps take; otherwise a sentence. Every
// bias, add, multiply, row_scale and col_scale takes one D tensor. A multi_d step takes all that
// remain, at least one.
std::string invalid_reason(const Epilogue& epilogue);

// "bias+gelu", "multi_d_add2", "none". Lossless. A chain whose num_d does not fit its steps becomes
// "relu(num_d=3)", which parse_epilogue refuses.
std::string to_string(const Epilogue& epilogue);

// Reads "bias+gelu", "add+relu", "multi_d_add3" (the number of D tensors follows a multi_d step; 2
// if left out), "none". Throws Error{parse_error} naming the nearest op, or saying that there are
// more than 6 steps or 4 D tensors.
Epilogue parse_epilogue(std::string_view text);

// M x N, or one element for each column (along N) or row (along M) of the output.
enum class DShape : std::uint8_t { matrix, along_n, along_m };

// One D tensor as a step uses it.
struct DUse {
  EpilogueOp op;
  DShape shape;
  bool is_vector() const { return shape != DShape::matrix; }
};

// The use of each of the num_d tensors, in order.
std::array<DUse, kMaxD> d_uses(const Epilogue& epilogue);

}  // namespace tessera
#pragma GCC visibility pop
