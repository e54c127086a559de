// Which problems that append, alone or before attention, are valid.
#include <array>

#include "tessera/families/fmha/validate_internal.h"
#include "tessera/spec/fields_internal.h"

namespace tessera::fmha {
namespace {

// What only attention itself has.
void refuse_forward_fields(const FmhaProblem& given) {
  constexpr std::string_view kWith = "kind=append";
  if (given.mask != FmhaMask::none) {
    refuse("mask must be none with {}, got {}", kWith, to_string(given.mask));
  }
  check_standard({{"v_in_k", given.v_in_k ? 1 : 0, 0}}, kWith);
  check_no_window(given, kWith);
  check_standard({{"slope_stride", given.slope_stride, 0},
                  {"skip_q", given.skip_q, 0},
                  {"num_splits", given.num_splits, 0}},
                 kWith);
  if (given.scale != 0) refuse("scale must be left out with {}, got {}", kWith, given.scale);
  if (given.soft_cap != 0) refuse("soft_cap must be 0 with {}, got {}", kWith, given.soft_cap);
  if (given.p_drop != 0) refuse("p_drop must be 0 with {}, got {}", kWith, given.p_drop);
  check_left_out({"bias", given.bias_strides, kOfScores}, kWith);
  for (const auto& [name, value] : {std::pair{"qscale_block_q", given.qscale_block_q},
                                    {"qscale_block_k", given.qscale_block_k}}) {
    if (value != kPacked) refuse("{} must be left out with {}, got {}", name, kWith, value);
  }
}

}  // namespace

void check_rotary(const FmhaProblem& given, const FmhaProblem& p) {
  if (given.rotary == FmhaRotary::none) {
    check_standard({{"rotary_dim", given.rotary_dim, 0}}, "rotary=none");
    if (given.rotary_positions == kPacked) return;
    refuse("rotary_positions must be left out with rotary=none, got {}", given.rotary_positions);
  }
  check_counts({{"rotary_dim", p.rotary_dim, 0, kMostHdim},
                {"rotary_positions", p.rotary_positions, 0, kMostCount}});
  if (p.rotary_dim > p.hdim) {
    refuse("rotary_dim must be at most {} (hdim), got {}", p.hdim, p.rotary_dim);
  }
  if (p.rotary_dim % 2 == 0) return;
  refuse("rotary_dim must be even, because pairs are turned, got {}{}", p.rotary_dim,
         given.rotary_dim == 0 ? " (hdim)" : "");
}

void check_new_tokens(const FmhaProblem& given, const FmhaProblem& p) {
  const auto [batch, tokens, parts, keys, part] = token_counts(p);
  check_product("bytes of k_new, batch x tokens x heads_kv x hdim x 4,",
                {batch, tokens, p.heads_kv, p.hdim, 4});
  check_product("bytes of v_new, batch x tokens x heads_kv x hdim_v x 4,",
                {batch, tokens, p.heads_kv, p.hdim_v, 4});
  check_product("heads of new tokens, 3 x batch x seqlen_q x heads,",
                {3, p.batch, p.seqlen_q, p.heads});
  if (!is_packed(p)) return;
  check_batch_stride("k_new", given.k_new_strides[0]);
  check_batch_stride("v_new", given.v_new_strides[0]);
}

namespace {

void check_memory(const FmhaProblem& given, const FmhaProblem& p) {
  const TokenCounts n = token_counts(p);
  const std::int64_t parts = is_paged(p) ? p.num_pages : p.batch;
  const std::int64_t room = is_paged(p) ? p.page_size : p.seqlen_k;
  const std::string_view of_parts = is_paged(p) ? "num_pages x page_size" : "batch x seqlen_k";
  check_product(fmt::format("bytes of k, {} x heads_kv x hdim x 4,", of_parts),
                {parts, room, p.heads_kv, p.hdim, 4});
  check_product(fmt::format("bytes of v, {} x heads_kv x hdim_v x 4,", of_parts),
                {parts, room, p.heads_kv, p.hdim_v, 4});
  check_product("bytes of q, batch x tokens x heads x hdim x 4,",
                {n.sequences, n.queries, p.heads, p.hdim, 4});
  check_new_tokens(given, p);
  if (!is_packed(p)) return;
  check_batch_stride("q", given.q_strides[0]);
  check_batch_stride("out", given.out_strides[0]);
}

std::string extend_signature_reason(const FmhaSignature& s) {
  if (s.lengths != FmhaLengths::packed || s.pages != FmhaPages::none) return {};
  return "pages must be table or list with kind=extend and lengths=packed, because keys that lie "
         "one "
         "behind the other leave no room for new tokens, got none";
}

}  // namespace

std::string append_signature_reason(const FmhaSignature& s) {
  if (s.kind == FmhaKind::forward || s.kind == FmhaKind::backward) {
    if (s.rotary != FmhaRotary::none) {
      return fmt::format("rotary must be none with kind={}, got {}", to_string(s.kind),
                         to_string(s.rotary));
    }
    return s.rotate_q ? fmt::format("rotate_q must be 0 with kind={}, got 1", to_string(s.kind))
                      : "";
  }
  if (s.rotate_q && s.rotary == FmhaRotary::none) {
    return "rotate_q must be 0 with rotary=none, got 1";
  }
  if (s.kind == FmhaKind::extend) return extend_signature_reason(s);
  if (s.out != s.in) {
    return fmt::format("out must be {} like in with kind=append, got {}", to_string(s.in),
                       to_string(s.out));
  }
  if (s.bias != FmhaBias::none) {
    return fmt::format("bias must be none with kind=append, got {}", to_string(s.bias));
  }
  for (const auto& [name, value] :
       {std::pair{"masked", s.masked}, std::pair{"lse", s.lse}, std::pair{"soft_cap", s.soft_cap},
        std::pair{"dropout", s.dropout}, std::pair{"random", s.random}}) {
    if (value) return fmt::format("{} must be 0 with kind=append, got 1", name);
  }
  return {};
}

void refuse_append_fields(const FmhaProblem& given) {
  const std::string with = fmt::format("kind={}", to_string(given.kind));
  check_left_out({"k_new", given.k_new_strides}, with);
  check_left_out({"v_new", given.v_new_strides}, with);
  check_left_out({"q_turned", given.q_turned_strides}, with);
  check_standard({{"rotary_dim", given.rotary_dim, 0}}, with);
  if (given.rotary_positions == kPacked) return;
  refuse("rotary_positions must be left out with {}, got {}", with, given.rotary_positions);
}

void validate_append(const FmhaProblem& given) {
  refuse_forward_fields(given);
  const std::string reason = signature_reason(std::get<FmhaSignature>(signature_of(given)));
  if (!reason.empty()) refuse("{}", reason);
  const FmhaProblem p = with_strides(given);
  check_sizes(p);
  check_pages(given, p);
  check_key_count(given, p);
  if (p.lengths == FmhaLengths::packed) {
    check_counts({{"tokens_q", p.tokens_q, 0, kMostCount}});
  } else {
    check_token_count("q", given.tokens_q, p.seqlen_q, p);
  }
  check_rotary(given, p);
  check_memory(given, p);
  check_left_out({"q_turned", given.q_turned_strides}, "kind=append");
  if (!given.rotate_q) {
    check_left_out({"q", given.q_strides}, "rotate_q=0");
    check_left_out({"out", given.out_strides}, "rotate_q=0");
  }
  check_tensors(given);
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
