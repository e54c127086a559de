// Operands of normalisations whose squares overflow or vanish in fp32.
#pragma once

#include "tessera/families/family.h"
#include "tessera/spec/numeric.h"

namespace tessera::testing_support {

// Multiplies the rows of `in` and of the residual by powers from large to small: of a third of the
// rows all columns, of another those from `at` on, of another those before.
inline void scale_rows(const NormProblem& p, const Operands& operands, std::int64_t at) {
  constexpr double kPowers[] = {1e25,  1e18, 3e37,  1,    1e-18, 1e-25,
                                1e-36, 2e19, 1e-10, 1e10, 3e19,  0};
  const auto& o = std::get<NormOperands>(operands);
  for (const void* data : {o.in, o.residual}) {
    if (data == nullptr) continue;
    for (std::int64_t row = 0; row < p.rows; ++row) {
      const double power = kPowers[row % std::ssize(kPowers)];
      const auto part = row / std::ssize(kPowers) % 3;
      for (std::int64_t c = 0; c < p.columns; ++c) {
        if ((part == 1 && c < at) || (part == 2 && c >= at)) continue;
        const std::int64_t i = row * p.columns + c;
        store_element(p.in, const_cast<void*>(data), i, load_element(p.in, data, i) * power);
      }
    }
  }
}

}  // namespace tessera::testing_support
