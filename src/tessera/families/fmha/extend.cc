// Appending to a cache and attending to it in one launch.
#include "tessera/families/fmha/extend.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tessera/families/fmha/ways.h"

namespace tessera::fmha {
namespace {

constexpr int kMostAppendWarps = 4;

// A block of the step that appends is no larger than one that attends, for which the kernel has
// registers, and has a power of two of warps.
int append_warps(int threads) {
  int warps = 1;
  while (2 * warps <= std::min(threads / 32, kMostAppendWarps)) warps *= 2;
  return warps;
}

}  // namespace

// All but what only attention has.
FmhaProblem append_part(const FmhaProblem& p) {
  FmhaProblem part = p;
  constexpr FmhaProblem kDefault;
  part.kind = FmhaKind::append;
  part.out = part.dtype_bias = p.in;
  part.mask = FmhaMask::none, part.bias = FmhaBias::none;
  part.window_left = kDefault.window_left, part.window_right = kDefault.window_right;
  part.sink = part.slope_stride = part.skip_q = part.num_splits = 0;
  part.scale = part.soft_cap = part.p_drop = 0;
  part.lse = part.random = false;
  part.bias_strides = kPackedTokens;
  part.q_strides = p.rotate_q ? p.q_strides : kPackedTokens;
  part.out_strides = p.rotate_q ? p.q_turned_strides : kPackedTokens;
  part.q_turned_strides = kPackedTokens;
  part.tokens_k = part.qscale_block_q = part.qscale_block_k = kPacked;
  return part;
}

FmhaProblem attention_part(const FmhaProblem& p) {
  FmhaProblem part = p;
  part.kind = FmhaKind::forward;
  part.q_strides = query_strides(p);
  part.rotary = FmhaRotary::none;
  part.rotate_q = false;
  part.rotary_dim = 0;
  part.rotary_positions = kPacked;
  part.k_new_strides = part.v_new_strides = part.q_turned_strides = kPackedTokens;
  return part;
}

const void* queries_of(const FmhaProblem& p, const FmhaOperands& o) {
  return extends(p) && p.rotate_q ? o.q_turned : o.q;
}

const void* values_of(const FmhaProblem& p, const FmhaOperands& o) { return p.v_in_k ? o.k : o.v; }

const FmhaStrides& query_strides(const FmhaProblem& p) {
  return extends(p) && p.rotate_q ? p.q_turned_strides : p.q_strides;
}

std::string extended_config(const KernelSpec& spec, int warps) {
  return fmt::format("  struct Append {{\n{}  }};\n", append_config(spec, warps));
}

Source attention_on_gpu(const KernelSpec& spec, tile::Template attention, int threads) {
  std::vector<tile::GpuEntry> entries = {{"", "run"}};
  if (is_paged(spec)) entries.push_back({"_check", "check"});
  const std::string name = fmt::format("ExtendFmha<{}>::Of", attention.name);
  const std::string arguments = fmt::format("FmhaExtendArguments<{}>", attention.arguments);
  if (extends(spec)) {
    entries.push_back({"_append", "append"});
    attention.config += extended_config(spec, append_warps(threads));
    attention.before = "#include \"tessera/device/cuda/fmha/extend_fmha.h\"\n\n" + attention.before;
    attention.name = name, attention.arguments = arguments;
  }
  return tile::cuda_source(spec, kAbi, attention, threads, entries);
}

void add_first_steps(const KernelSpec& spec, const FmhaProblem& p, int threads, Launch& launch) {
  add_check_step(p, threads, launch);
  if (!extends(spec) || !has_tokens(p)) return;
  Step step = append_step(p, append_arguments(p, {}), append_warps(threads));
  step.entry = is_paged(spec) ? 2 : 1;
  launch.steps.push(step);
}

}  // namespace tessera::fmha
