// What the steps of a launch do, and the lengths that kernels are tuned for.
#include <algorithm>
#include <array>
#include <utility>

#include "tessera/families/fmha/backward.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/families/tile/usual.h"

namespace tessera::fmha {
namespace {

using Words = std::pair<std::string_view, std::string_view>;

// The verbs of kinds, and what entries do whose suffix does not say it.
constexpr std::array kVerbs = {Words{"forward", "attend"}, Words{"append", "append"}};
constexpr std::array kEntryWords = {Words{"_check", "check pages"}};

template <class Table>
std::string_view word_in(const Table& table, std::string_view key, std::string_view otherwise) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const Words& words) { return words.first == key; });
  return found == table.end() ? otherwise : found->second;
}

}  // namespace

bool packs_heads(const KernelSpec& spec) {
  const Pipeline pipeline = spec.algorithm.pipeline;
  return (pipeline == Pipeline::flash || pipeline == Pipeline::splitkv) &&
         std::get<FmhaSignature>(spec.signature).kind != FmhaKind::backward;
}

// A CPU's kernel that extends a cache appends in the step that attends. The entry of gradients
// without a suffix makes all that no other one does: dk and dv with direct, elsewhere all of them.
std::string stage(const KernelSpec& spec, std::string_view entry) {
  const std::string_view said = word_in(kEntryWords, entry, "");
  if (!said.empty()) return std::string(said);
  if (extends(spec) && entry.empty()) {
    return spec.algorithm.pipeline == Pipeline::flash ? "append and attend" : "attend";
  }
  if (goes_back(spec) && entry.empty()) {
    if (spec.algorithm.pipeline == Pipeline::direct) return "dk dv";
    const bool has_dbias = std::get<FmhaSignature>(spec.signature).dbias;
    return spec.algorithm.pipeline == Pipeline::flash && has_dbias ? "dq dk dv dbias" : "dq dk dv";
  }
  const std::string_view kind = to_string(std::get<FmhaSignature>(spec.signature).kind);
  return tile::stage_of(word_in(kVerbs, kind, kind), entry);
}

std::optional<TunedLength> tuned_length(const KernelSpec& spec, const Problem& problem) {
  const FmhaProblem p = with_strides(fmha_of(problem));
  if (p.kind != FmhaKind::forward && !extends(p)) return std::nullopt;
  const std::int64_t heads = packs_heads(spec) ? p.heads / p.heads_kv : 1;
  return TunedLength{spec.algorithm.tile.m, p.seqlen_q * heads};
}

}  // namespace tessera::fmha
