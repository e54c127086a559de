// Which problems that ask for gradients are valid.
#include <array>

#include "tessera/families/fmha/backward.h"
#include "tessera/families/fmha/validate_internal.h"
#include "tessera/spec/fields_internal.h"

namespace tessera::fmha {
namespace {

struct GradientStrides {
  std::string_view name;
  const FmhaStrides& values;
};
std::array<GradientStrides, 4> strides_of(const FmhaProblem& p) {
  return {
      {{"dout", p.dout_strides}, {"dq", p.dq_strides}, {"dk", p.dk_strides}, {"dv", p.dv_strides}}};
}

}  // namespace

std::string backward_signature_reason(const FmhaSignature& s) {
  if (s.kind != FmhaKind::backward) {
    return s.dbias ? fmt::format("dbias must be 0 with kind={}, got 1", to_string(s.kind)) : "";
  }
  if (s.out != s.in) {
    return fmt::format("out must be {} like in with kind=backward, got {}", to_string(s.in),
                       to_string(s.out));
  }
  if (s.pages != FmhaPages::none) {
    return fmt::format("pages must be none with kind=backward, got {}", to_string(s.pages));
  }
  for (const auto& [name, value] : {std::pair{"lse", s.lse}, std::pair{"random", s.random}}) {
    if (value) return fmt::format("{} must be 0 with kind=backward, got 1", name);
  }
  if (!s.dbias || s.bias == FmhaBias::elementwise) return {};
  return fmt::format("dbias must be 0 with bias={}, got 1", to_string(s.bias));
}

void refuse_backward_fields(const FmhaProblem& given) {
  for (const auto& [name, strides] : strides_of(given)) {
    for (std::size_t i = 0; i < strides.size(); ++i) {
      if (strides[i] == kPacked) continue;
      refuse("{}_stride_{} must be left out with kind={}, got {}", name, kOfTokens[i],
             to_string(given.kind), strides[i]);
    }
  }
}

void check_backward(const FmhaProblem& given, const FmhaProblem& p) {
  if (given.num_splits != 0) {
    refuse("num_splits must be 0 with kind=backward, got {}", given.num_splits);
  }
  check_product("operations, 2 x batch x heads x seqlen_q x seqlen_k x (3 hdim + 2 hdim_v),",
                {2, p.batch, p.heads, p.seqlen_q, p.seqlen_k, 3 * p.hdim + 2 * p.hdim_v});
  if (p.lengths == FmhaLengths::packed) {
    for (const auto& [name, strides] : strides_of(given)) check_batch_stride(name, strides[0]);
  }
  if (!p.dbias) return;
  check_product("bytes of dbias, batch x heads x seqlen_q x seqlen_k x 4,",
                {p.batch, p.heads, p.seqlen_q, p.seqlen_k, 4});
}

}  // namespace tessera::fmha
