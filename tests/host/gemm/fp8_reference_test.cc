// The reference of 8-bit floats in the encoding of the machine that multiplies them.
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/families/gemm/gemm.h"
#include "tessera/spec/numeric.h"

namespace tessera::gemm {
namespace {

// Every code of both types as the one element of A: with FNUZ nearly all stand for half as much.
TEST(GemmReferenceOfFp8, FollowsTheEncoding) {
  for (const DType dtype : {DType::fp8, DType::bf8}) {
    GemmProblem p = gemm_problem(dtype, GemmLayout::rcr, 1, 1, 1);
    p.out = p.d = DType::fp32;
    for (const Fp8Encoding encoding : {Fp8Encoding::ocp, Fp8Encoding::fnuz}) {
      for (int code = 0; code < 256; ++code) {
        const auto a = static_cast<std::uint8_t>(code);
        std::uint8_t b = 0;
        store_element(dtype, &b, 0, 2, encoding);
        auto out = static_cast<float>(2 * load_element(dtype, &a, 0, encoding));
        const GemmOperands operands{.a = &a, .b = &b, .out = &out};
        const Reference wanted = reference(p, operands, {.fp8 = encoding});
        EXPECT_EQ(compare(p, operands, wanted).message, "") << code;
        out = std::isfinite(out) ? out + std::abs(out) + 1 : 0;
        EXPECT_FALSE(compare(p, operands, wanted).ok) << code;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::gemm
