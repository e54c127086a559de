// What the bits of a row follow besides its own operands, and which problems stand for any number
// of rows. docs/decisions/choosing_and_commands.md says how kernels are chosen by that.
#include <fmt/format.h>

#include <array>

#include "tessera/families/gemm/gemm_internal.h"
#include "tessera/families/gemm/small.h"

namespace tessera::gemm {
namespace {

// ---- orders of sums ----

// A sum grows word by word along k, in blocks of tile_k whose sums are added in their order. Which
// operands are packed, and how many rows and columns a register block has, does not matter.
std::string order_on_cpu(const KernelSpec& spec, const GemmProblem& p, const Target& target) {
  const Algorithm& a = spec.algorithm;
  switch (a.pipeline) {
    case Pipeline::packab:
    case Pipeline::packa:
    case Pipeline::packb:
    case Pipeline::direct:
      return fmt::format("words of {} in blocks of {}", a.warp_tile.k,
                         p.k <= a.tile.k ? 0 : a.tile.k);
    case Pipeline::small:
      if (small_kind(a, target) != SmallKind::blocks) return name_of(spec);
      return fmt::format("words of {} in blocks of 0", a.warp_tile.k);
    case Pipeline::amx:
      return fmt::format("tiles in blocks of {}", p.k <= a.tile.k ? 0 : a.tile.k);
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
// Fewer rows than a tile and more, none of them a multiple of 8, and as many as anybody has.
constexpr std::array<Batch, 4> kBatches = {{{1, 1}, {3, 2}, {515, 3}, {std::int64_t{1} << 20, 1}}};

// The rows that stand for all. Where rows are contiguous, their number is a stride, which an odd
// one shows.
constexpr Batch kUsual = {128, 1}, kUsualByColumns = {129, 1};

// A stride that follows from the sizes does so with others, too.
void follow(std::int64_t& stride, std::int64_t without_gaps) {
  if (stride == without_gaps) stride = kPacked;
}

// The strides that do not follow from the number of rows or batches are left.
GemmProblem without_sizes(const GemmProblem& given) {
  GemmProblem plain = given;
  plain.ld_a = a_is_row_major(given.layout) ? given.ld_a : kPacked;
  plain.batch_stride_a = plain.batch_stride_b = kPacked;
  plain.batch_stride_c = plain.batch_stride_out = kPacked;
  plain.batch_stride_d.fill(kPacked);
  const GemmProblem dense = with_strides(plain);
  GemmProblem p = with_strides(given);
  if (!a_is_row_major(p.layout)) follow(p.ld_a, dense.ld_a);
  const bool is_single = p.batch <= 1 || p.pointer_arrays;
  const auto settle = [&](std::int64_t& stride, std::int64_t without_gaps) {
    if (is_single) stride = kPacked;
    follow(stride, without_gaps);
  };
  settle(p.batch_stride_a, dense.batch_stride_a);
  settle(p.batch_stride_b, dense.batch_stride_b);
  settle(p.batch_stride_c, dense.batch_stride_c);
  settle(p.batch_stride_out, dense.batch_stride_out);
  for (std::size_t i = 0; i < kMaxD; ++i) settle(p.batch_stride_d[i], dense.batch_stride_d[i]);
  return p;
}

}  // namespace

Verdict is_batch_invariant(const KernelSpec& spec, const Target&) {
  const Algorithm& a = spec.algorithm;
  if (a.streamk) {
    return {
        "batch invariant kernels must cut K by its length alone, got streamk, which cuts it where "
        "blocks run out of tiles"};
  }
  if (a.pipeline == Pipeline::stream) {
    return {
        "batch invariant kernels must add up in one order whichever of m and n is smaller, got "
        "pipeline stream"};
  }
  return {};
}

std::string order_of_sums(const KernelSpec& spec, const Problem& problem, const Target& target) {
  if (target.backend == "cpu") return order_on_cpu(spec, std::get<GemmProblem>(problem), target);
  if (spec.algorithm.pipeline == Pipeline::tmaws) return order_of_tmaws(spec.algorithm);
  return name_of(spec);
}

AnyBatch any_batch(const Problem& problem) {
  GemmProblem p = without_sizes(std::get<GemmProblem>(problem));
  AnyBatch any{problem, {}};
  const auto add = [&](const Batch& batch) {
    p.m = batch.m, p.batch = batch.batch;
    any.others.push_back(p);
  };
  add(a_is_row_major(p.layout) ? kUsual : kUsualByColumns);
  for (const Batch& batch : kBatches) add(batch);
  return any;
}

}  // namespace tessera::gemm
