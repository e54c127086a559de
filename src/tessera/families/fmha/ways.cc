// The list of ways, and what they share.
#include "tessera/families/fmha/ways.h"

#include <fmt/format.h>

#include <array>

#include "tessera/base/text.h"
#include "tessera/spec/words_internal.h"

namespace tessera::fmha {
namespace {

bool makes(const Way& way, FmhaKind kind) {
  return way.kind == (kind == FmhaKind::extend ? FmhaKind::forward : kind);
}

}  // namespace

std::span<const Way* const> ways() {
  static constexpr std::array kAll = {&kFlashCpu,          &kDirectGpu, &kFlashGpu,
                                      &kBackwardFlashGpu,  &kSplitGpu,  &kBackwardCpu,
                                      &kBackwardDirectGpu, &kAppendCpu, &kAppendGpu};
  return kAll;
}

const Way* find_way(std::string_view backend, FmhaKind kind, Pipeline pipeline) {
  for (const Way* way : ways()) {
    if (way->pipeline == pipeline && makes(*way, kind) && way->backend == backend) return way;
  }
  return nullptr;
}

const Way* find_way(const Case& c) {
  return find_way(c.target.backend, c.signature.kind, c.algorithm.pipeline);
}

std::string no_way(const Case& c) {
  std::vector<std::string> pipelines;
  for (const Way* way : ways()) {
    if (way->backend != c.target.backend || !makes(*way, c.signature.kind)) continue;
    pipelines.emplace_back(to_string(way->pipeline));
  }
  if (pipelines.empty()) {
    return fmt::format("this build emits attention for cpu and cuda targets, {} is a {} target",
                       c.target.name, c.target.backend);
  }
  const bool is_everywhere = c.signature.kind == FmhaKind::append;
  return fmt::format("the pipeline must be {} with kind={}{}, got {}", join(pipelines, " or "),
                     to_string(c.signature.kind),
                     is_everywhere      ? ""
                     : is_gpu(c.target) ? " on a GPU"
                                        : " on a CPU",
                     to_string(c.algorithm.pipeline));
}

bool fits_shared_memory(const Case& c) {
  return find_way(c)->shared_bytes(c.signature, c.algorithm) <= c.target.shared_memory_bytes;
}

std::string shared_memory_sentence(const Case& c) {
  return fmt::format("needs {} bytes of shared memory, {} has {}",
                     find_way(c)->shared_bytes(c.signature, c.algorithm), c.target.name,
                     c.target.shared_memory_bytes);
}

Verdict serves_heads(const KernelSpec& spec, const FmhaProblem& p, const Target&) {
  const Shape3& tile = spec.algorithm.tile;
  const int most_v = most_hdim_v(tile.k);
  if (p.hdim > tile.k) {
    return {fmt::format("tile {} serves heads of {} elements, got {} (hdim)", to_string(tile),
                        tile.k, p.hdim)};
  }
  if (p.hdim_v <= most_v) return {};
  return {fmt::format("tile {} serves values of {} elements, got {} (hdim_v)", to_string(tile),
                      most_v, p.hdim_v)};
}

double product_rate(const Target& target, DType in) {
  const Instruction* one = find_instruction(target, in, in, DType::fp32);
  const double products = one == nullptr ? 1 : double(one->shape.m) * one->shape.n * one->shape.k;
  return products * (one == nullptr ? 1 : one->per_cycle) * target.clock_ghz * 1e9;
}

double rate_or_fp32(const Target& target, DType in) {
  const bool has_own = find_instruction(target, in, in, DType::fp32) != nullptr;
  return product_rate(target, has_own ? in : DType::fp32);
}

double cpu_launch_seconds(const Target& target, double threads) {
  return threads > 1 ? target.launch_us * 1e-6 : 1e-7;
}

}  // namespace tessera::fmha
