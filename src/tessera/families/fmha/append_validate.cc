// Which problems that append are valid.
#include <array>

#include "tessera/families/fmha/extend.h"
#include "tessera/families/fmha/validate_internal.h"
#include "tessera/spec/fields_internal.h"

namespace tessera::fmha {
void check_left_out(const Strides& strides, std::string_view with) {
  for (std::size_t i = 0; i < strides.values.size(); ++i) {
    if (strides.values[i] == kPacked) continue;
    refuse("{}_stride_{} must be left out with {}, got {}", strides.name, strides.ends[i], with,
           strides.values[i]);
  }
}

namespace {

struct Standard {
  std::string_view name;
  std::int64_t value, standard;
};
void check_standard(std::span<const Standard> fields, std::string_view with) {
  for (const auto& [name, value, standard] : fields) {
    if (value != standard) refuse("{} must be {} with {}, got {}", name, standard, with, value);
  }
}

// What only attention itself has.
void refuse_forward_fields(const FmhaProblem& given) {
  constexpr FmhaProblem kDefault;
  constexpr std::string_view kWith = "kind=append";
  if (given.mask != FmhaMask::none) {
    refuse("mask must be none with {}, got {}", kWith, to_string(given.mask));
  }
  check_standard(
      std::array<Standard, 7>{{{"v_in_k", given.v_in_k ? 1 : 0, 0},
                               {"window_left", given.window_left, kDefault.window_left},
                               {"window_right", given.window_right, kDefault.window_right},
                               {"sink", given.sink, 0},
                               {"slope_stride", given.slope_stride, 0},
                               {"skip_q", given.skip_q, 0},
                               {"num_splits", given.num_splits, 0}}},
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
    check_standard(std::array<Standard, 1>{{{"rotary_dim", given.rotary_dim, 0}}}, "rotary=none");
    if (given.rotary_positions == kPacked) return;
    refuse("rotary_positions must be left out with rotary=none, got {}", given.rotary_positions);
  }
  check_counts(std::array<Count, 2>{{{"rotary_dim", p.rotary_dim, 0, kMostHdim},
                                     {"rotary_positions", p.rotary_positions, 0, kMostCount}}});
  if (p.rotary_dim > p.hdim) {
    refuse("rotary_dim must be at most {} (hdim), got {}", p.hdim, p.rotary_dim);
  }
  if (p.rotary_dim % 2 == 0) return;
  refuse("rotary_dim must be even, because pairs are turned, got {}{}", p.rotary_dim,
         given.rotary_dim == 0 ? " (hdim)" : "");
}

void check_new_tokens(const FmhaProblem& given, const FmhaProblem& p) {
  const bool is_packed = p.lengths == FmhaLengths::packed;
  const std::int64_t batch = is_packed ? 1 : p.batch;
  const std::int64_t tokens = is_packed ? p.tokens_q : p.seqlen_q;
  check_product("bytes of k_new, batch x tokens x heads_kv x hdim x 4,",
                {batch, tokens, p.heads_kv, p.hdim, 4});
  check_product("bytes of v_new, batch x tokens x heads_kv x hdim_v x 4,",
                {batch, tokens, p.heads_kv, p.hdim_v, 4});
  check_product("heads of new tokens, 3 x batch x seqlen_q x heads,",
                {3, p.batch, p.seqlen_q, p.heads});
  if (!is_packed) return;
  check_batch_stride("k_new", given.k_new_strides[0]);
  check_batch_stride("v_new", given.v_new_strides[0]);
}

namespace {

void check_memory(const FmhaProblem& given, const FmhaProblem& p) {
  const bool is_packed = p.lengths == FmhaLengths::packed;
  const std::int64_t batch = is_packed ? 1 : p.batch;
  const std::int64_t tokens = is_packed ? p.tokens_q : p.seqlen_q;
  const bool is_paged = p.pages != FmhaPages::none;
  const std::int64_t parts = is_paged ? p.num_pages : p.batch;
  const std::int64_t room = is_paged ? p.page_size : p.seqlen_k;
  const std::string_view of_parts = is_paged ? "num_pages x page_size" : "batch x seqlen_k";
  check_product(fmt::format("bytes of k, {} x heads_kv x hdim x 4,", of_parts),
                {parts, room, p.heads_kv, p.hdim, 4});
  check_product(fmt::format("bytes of v, {} x heads_kv x hdim_v x 4,", of_parts),
                {parts, room, p.heads_kv, p.hdim_v, 4});
  check_product("bytes of q, batch x tokens x heads x hdim x 4,",
                {batch, tokens, p.heads, p.hdim, 4});
  check_new_tokens(given, p);
  if (!is_packed) return;
  check_batch_stride("q", given.q_strides[0]);
  check_batch_stride("out", given.out_strides[0]);
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
  check_standard(std::array<Standard, 1>{{{"rotary_dim", given.rotary_dim, 0}}}, with);
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
    check_counts(std::array<Count, 1>{{{"tokens_q", p.tokens_q, 0, kMostCount}}});
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

}  // namespace tessera::fmha
