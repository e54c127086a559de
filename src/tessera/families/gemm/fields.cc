// The fields that wishes may name although no struct has them.
#include <array>

#include "tessera/families/gemm/gemm.h"
#include "tessera/spec/words_internal.h"

namespace tessera::gemm {
namespace {

std::string_view dtype_of(const Signature& signature) {
  return to_string(std::get<GemmSignature>(signature).a);
}

std::vector<std::string> variants() { return {"standard", "preshuffle", "multi_d"}; }

std::string_view variant_of(const Signature& signature) {
  const auto& gemm = std::get<GemmSignature>(signature);
  if (gemm.preshuffled_b) return "preshuffle";
  return num_ops(gemm.epilogue) > 0 ? "multi_d" : "standard";
}

constexpr std::array kDerived = {DerivedField{"dtype", known_words<DType>, dtype_of},
                                 DerivedField{"variant", variants, variant_of}};

}  // namespace

std::span<const DerivedField> derived() { return kDerived; }

}  // namespace tessera::gemm
