// What the bits of a row follow besides its own operands, and which problems stand for any number
// of rows. docs/decisions/choosing_and_commands.md says how kernels are chosen by that.
#include <fmt/format.h>

#include "tessera/families/gemm/gemm_internal.h"
#include "tessera/families/gemm/groups.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/families/gemm/small.h"

namespace tessera::gemm {
namespace {

// Whether each group has a k of its own.
bool cut_along_k(const GemmProblem& p) { return p.grouping == GemmGrouping::along_k; }

// ---- orders of sums ----

// A sum grows word by word along k, in blocks of tile_k whose sums are added in their order. Which
// operands are packed, and how many rows and columns a register block has, does not matter.
std::string order_on_cpu(const KernelSpec& spec, const GemmProblem& p, const Target& target) {
  const Algorithm& a = spec.algorithm;
  const bool in_blocks = p.k > a.tile.k || cut_along_k(p);
  switch (a.pipeline) {
    case Pipeline::packab:
    case Pipeline::packa:
    case Pipeline::packb:
    case Pipeline::direct:
      return fmt::format("words of {} in blocks of {}", a.warp_tile.k, in_blocks ? a.tile.k : 0);
    case Pipeline::small:
      if (small_kind(a, target) != SmallKind::blocks) return name_of(spec);
      return fmt::format("words of {} in blocks of 0", a.warp_tile.k);
    case Pipeline::amx:
      return fmt::format("tiles in blocks of {}", in_blocks ? a.tile.k : 0);
    default:
      return name_of(spec);
  }
}

// A sum grows by one wgmma after the other along k. PTX does not say in which order an instruction
// adds up, so that those of other widths, or with the operands swapped, are taken for other orders.
// Consumers, stages, clusters and the way to memory do not matter; the length of a step matters
// where parts of K are cut at steps.
std::string order_of_tmaws(const Algorithm& a) {
  const bool is_cut = a.splits != 1 || a.slices != 1;
  return fmt::format("wgmma of {}{}, {} splits, {} slices of steps of {}", to_string(a.warp_tile),
                     a.swap_ab ? " swapped" : "", a.splits, a.slices, is_cut ? a.tile.k : 0);
}

// ---- any number of rows ----

struct Batch {
  std::int64_t m, batch;
};
// What servers have: from a few sequences that decode to a long prefill.
constexpr Batch kUsualBatches[] = {{64, 1}, {8, 1}, {512, 1}, {4096, 1}};
// Fewer rows than a tile and more, no multiples of 8, and more than anybody has.
constexpr Batch kUnusualBatches[] = {{1, 1}, {3, 2}, {515, 3}, {std::int64_t{1} << 20, 1}};

// A stride that follows from the sizes does so with others, too.
void follow(std::int64_t& stride, std::int64_t without_gaps) {
  if (stride == without_gaps) stride = kPacked;
}

// Strides of rows are left where they do not follow from the sizes. Those of a single batch are not
// used.
void settle_rows(const GemmProblem& dense, GemmProblem& p) {
  follow(p.ld_a, dense.ld_a);
  follow(p.ld_b, dense.ld_b);
  follow(p.ld_c, dense.ld_c);
  follow(p.ld_out, dense.ld_out);
  follow(p.stride_scale_a_m, dense.stride_scale_a_m);
  follow(p.stride_scale_b_n, dense.stride_scale_b_n);
  for (std::size_t i = 0; i < kMaxD; ++i) follow(p.ld_d[i], dense.ld_d[i]);
}
void settle_batches(const GemmProblem& dense, GemmProblem& p) {
  const bool is_single = !has_groups(p) && (p.batch <= 1 || p.pointer_arrays);
  const auto settle = [is_single](std::int64_t& stride, std::int64_t without_gaps) {
    if (is_single) stride = kPacked;
    follow(stride, without_gaps);
  };
  settle(p.batch_stride_a, dense.batch_stride_a);
  settle(p.batch_stride_b, dense.batch_stride_b);
  settle(p.batch_stride_c, dense.batch_stride_c);
  settle(p.batch_stride_scale_a, dense.batch_stride_scale_a);
  settle(p.batch_stride_scale_b, dense.batch_stride_scale_b);
  settle(p.batch_stride_out, dense.batch_stride_out);
  for (std::size_t i = 0; i < kMaxD; ++i) settle(p.batch_stride_d[i], dense.batch_stride_d[i]);
}

// The problem whose rows and batches may be changed.
GemmProblem without_sizes(const GemmProblem& given) {
  GemmProblem side_by_side = given;
  side_by_side.batch_stride_a = side_by_side.batch_stride_b = kPacked;
  side_by_side.batch_stride_c = side_by_side.batch_stride_out = kPacked;
  side_by_side.batch_stride_d.fill(kPacked);
  side_by_side.batch_stride_scale_a = side_by_side.batch_stride_scale_b = kPacked;
  GemmProblem dense = side_by_side;
  dense.ld_a = dense.ld_b = dense.ld_c = dense.ld_out = kPacked;
  dense.ld_d.fill(kPacked);
  dense.stride_scale_a_m = dense.stride_scale_b_n = kPacked;
  GemmProblem p = with_strides(given);
  settle_batches(with_strides(side_by_side), p);
  settle_rows(with_strides(dense), p);
  return p;
}

}  // namespace

Verdict is_batch_invariant(const KernelSpec& spec, const Target&) {
  const Algorithm& a = spec.algorithm;
  if (std::get<GemmSignature>(spec.signature).arranged) {
    return {"batch invariant kernels read operands where they lie, got arranged ones"};
  }
  if (a.streamk) {
    return {
        "batch invariant kernels must cut K by its length alone, got streamk, which cuts it where "
        "blocks run out of tiles"};
  }
  const auto& s = std::get<GemmSignature>(spec.signature);
  if (a.pipeline == Pipeline::stream && (has_groups(s) || has_outputs(s))) {
    return {
        "batch invariant kernels must add up in one order however many rows a group has, got "
        "pipeline stream"};
  }
  if (a.pipeline == Pipeline::stream) {
    return {
        "batch invariant kernels must add up in one order whichever of m and n is smaller, got "
        "pipeline stream"};
  }
  return {};
}

std::string order_of_sums(const KernelSpec& spec, const Problem& problem, const Target& target) {
  if (std::get<GemmSignature>(spec.signature).out == DType::int32) return "exact in any order";
  if (target.backend == "cpu") return order_on_cpu(spec, std::get<GemmProblem>(problem), target);
  if (spec.algorithm.pipeline == Pipeline::tmaws) return order_of_tmaws(spec.algorithm);
  return name_of(spec);
}

// Where rows are contiguous, their number is a stride, of which an odd one shows whether any
// serves.
AnyBatch any_batch(const Problem& problem) {
  if (is_arranged(std::get<GemmProblem>(problem))) return {problem, {problem}, {problem}};
  GemmProblem p = without_sizes(std::get<GemmProblem>(problem));
  const std::int64_t more = a_is_row_major(p.layout) ? 0 : 1;
  const auto with = [&](const Batch& batch, std::int64_t rows) {
    (cut_along_k(p) ? p.k : p.m) = batch.m + rows;
    p.batch = has_groups(p) ? 1 : batch.batch;
    return p;
  };
  AnyBatch any{problem, {}, {}};
  for (const Batch& batch : kUsualBatches) any.usual.emplace_back(with(batch, more));
  for (const Batch& batch : kUnusualBatches) any.unusual.emplace_back(with(batch, 0));
  return any;
}

}  // namespace tessera::gemm
