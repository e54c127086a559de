// Which problems that append and then attend are valid.
#include "tessera/families/fmha/extend.h"
#include "tessera/families/fmha/validate_internal.h"

namespace tessera::fmha {

std::string extend_signature_reason(const FmhaSignature& s) {
  if (s.lengths != FmhaLengths::packed || s.pages != FmhaPages::none) return {};
  return "pages must be table or list with kind=extend and lengths=packed, because keys that lie "
         "one "
         "behind the other leave no room for new tokens, got none";
}

void check_extended(const FmhaProblem& given, const FmhaProblem& p) {
  if (p.seqlen_k < p.seqlen_q) {
    refuse(
        "seqlen_k must be at least {} (seqlen_q) with kind=extend, because it counts the new "
        "tokens, got {}",
        p.seqlen_q, p.seqlen_k);
  }
  if (!p.rotate_q) check_left_out({"q_turned", given.q_turned_strides}, "rotate_q=0");
  if (p.lengths == FmhaLengths::packed) {
    check_batch_stride("q_turned", given.q_turned_strides[0]);
  }
  check_rotary(given, p);
  check_new_tokens(given, p);
  if (p.rotary == FmhaRotary::none || p.rotary_positions >= p.seqlen_k) return;
  refuse("rotary_positions must be at least {} (seqlen_k) with kind=extend, got {}", p.seqlen_k,
         p.rotary_positions);
}

}  // namespace tessera::fmha
