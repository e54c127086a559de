// What ways by matrix instructions of AMD GPUs ask of the tokens that they move.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/families/fmha/hip.h"

namespace tessera::fmha {
namespace {

constexpr std::int64_t kMostMovedTokens = std::int64_t{1} << 28;  // of which a kernel adds up a few
constexpr std::int64_t kMostSpan = (std::int64_t{1} << 31) - (1 << 20);  // bytes of a tile

bool multiplies(const Target& target, DType type) {
  return std::any_of(target.instructions.begin(), target.instructions.end(),
                     [&](const Instruction& i) { return i.name == "mfma" && i.a == type; });
}

}  // namespace

bool has_mfma(const Case& c) {
  return multiplies(c.target, c.signature.in) && multiplies(c.target, kv_type(c.signature));
}
std::string no_mfma_sentence(const Case& c) {
  const bool has_in = multiplies(c.target, c.signature.in);
  return fmt::format("{} has no mfma for {}", c.target.name,
                     to_string(has_in ? kv_type(c.signature) : c.signature.in));
}

std::string stride_reason(const MovedTokens& t, std::string_view pipeline) {
  if (t.hdim > 1 && t.strides[device::kTokenElement] != 1) {
    return fmt::format("{} reads elements of {} that are neighbours, got a stride of {}", pipeline,
                       t.name, t.strides[device::kTokenElement]);
  }
  const std::pair<std::int64_t, std::int64_t> sides[] = {
      {t.sequences, t.strides[device::kTokenBatch]},
      {t.heads, t.strides[device::kTokenHead]},
      {t.tokens, t.strides[device::kToken]}};
  const int piece = piece_elements(t.size);
  for (const auto& [size, stride] : sides) {
    if (size <= 1 || stride % piece == 0) continue;
    return fmt::format("the strides of {} must be multiples of {} elements with {}, got {}", t.name,
                       piece, pipeline, stride);
  }
  if (t.tokens <= 1) return {};
  const std::int64_t stride = t.strides[device::kToken], most = kMostSpan / t.size / t.rows;
  if (stride > most) {
    return fmt::format("tokens of {} must be at most {} elements apart with {}, got {}", t.name,
                       most, pipeline, stride);
  }
  if (t.may_repeat || stride >= t.hdim) return {};
  return fmt::format("tokens of {} must not overlap with {}, got a stride of {} for heads of {}",
                     t.name, pipeline, stride, t.hdim);
}

std::string moved_size_reason(const FmhaProblem& p, std::string_view pipeline, int size) {
  const int piece = piece_elements(size);
  for (const auto& [name, value] : {std::pair{"hdim", p.hdim}, {"hdim_v", p.hdim_v}}) {
    if (value % piece == 0) continue;
    return fmt::format("{} must be a multiple of {} with {}, got {}", name, piece, pipeline, value);
  }
  const std::pair<std::string_view, std::int64_t> sizes[] = {
      {"seqlen_q", p.seqlen_q},
      {"seqlen_k", p.seqlen_k},
      {"tokens_q", is_packed(p) ? p.tokens_q : 0},
      {"tokens_k", is_packed(p) && !is_paged(p) ? p.tokens_k : 0},
      {"page_size", p.page_size}};
  for (const auto& [name, value] : sizes) {
    if (value <= kMostMovedTokens) continue;
    return fmt::format("{} must be at most {} with {}, got {}", name, kMostMovedTokens, pipeline,
                       value);
  }
  return {};
}

void refuse_pieces(std::string_view name, const void* base, Pipeline pipeline) {
  const auto excess = reinterpret_cast<std::uintptr_t>(base) % kPieceBytes;
  if (excess == 0) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("fmha: {} must be aligned to {} bytes for {}, got an address {} past a "
                          "multiple of that; use a direct kernel",
                          name, kPieceBytes, to_string(pipeline), excess));
}

}  // namespace tessera::fmha
