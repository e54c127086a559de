// The text of a tmaws kernel, and its launch: which windows the copy engine sees, and the grid.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/device/cuda/gemm/gemm_arguments.h"
#include "tessera/device/stream_work.h"
#include "tessera/families/gemm/cuda_groups.h"
#include "tessera/families/gemm/cuda_outputs.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/families/gemm/scaled.h"
#include "tessera/families/gemm/tmaws.h"
#include "tessera/families/gemm/ways.h"
#include "tessera/families/tile/wgmma.h"

namespace tessera::gemm {
namespace {

using device::CudaGemmArguments;
using device::CudaTensorMap;

constexpr unsigned kWarpgroup = 128;
constexpr std::uintptr_t kTmaAlignment = 16;
constexpr std::uint32_t kStoreRows = 64;  // rows of wgmma's output that one store writes

// As in src/tessera/device/cuda/gemm/tma_pack.h.
constexpr unsigned kPackThreads = 256;
constexpr std::int64_t kPackedPiece = 16;          // bytes that a thread writes at a time
constexpr std::int64_t kMostPackBlocks = 1 << 20;  // far above what any device runs at once

// How much a block of the entry _prepare moves at a time
// (src/tessera/device/cuda/gemm/tma_prepare.h).
constexpr unsigned kPrepareThreads = 256;
constexpr std::int64_t kCopiedBytes = 8 * 2048;
constexpr std::int64_t kClearedBytes = kPrepareThreads * 16;
constexpr std::int64_t kTransposedSide = 64;
constexpr std::int64_t kMaxPrepareBlocks = 1 << 20;

bool is_batched(const TmaMatrix& matrix) { return matrix.batch > 1 && matrix.batch_stride > 0; }

std::uintptr_t misalignment(const TmaMatrix& matrix) {
  return reinterpret_cast<std::uintptr_t>(matrix.data) % kTmaAlignment;
}

}  // namespace

void refuse_misaligned(const TmaMatrix& matrix) {
  const std::uintptr_t excess = misalignment(matrix);
  if (excess == 0) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("gemm: {} must be aligned to {} bytes for tmaws, got an address {} "
                          "past a multiple of that; use a cpasync kernel or one with repack",
                          matrix.name, kTmaAlignment, excess));
}

void add_window(Launch& launch, const TmaMatrix& matrix, std::size_t offset,
                std::array<std::uint32_t, 2> box, int swizzle_bytes) {
  refuse_misaligned(matrix);
  const std::int64_t size = size_of(matrix.dtype);
  const bool batched = is_batched(matrix);
  const auto bytes = [size](std::int64_t elements) {
    return static_cast<std::uint64_t>(elements * size);
  };
  TensorMap& map = launch.tensor_maps.add();
  map.offset = offset;
  map.base = matrix.data;
  map.in_workspace = matrix.workspace_offset != 0;
  map.workspace_offset = matrix.workspace_offset;
  map.dtype = matrix.dtype;
  map.rank = 3;
  map.sizes = {static_cast<std::uint64_t>(matrix.line), static_cast<std::uint64_t>(matrix.lines),
               batched ? static_cast<std::uint64_t>(matrix.batch) : 1};
  map.strides = {bytes(matrix.ld), bytes(batched ? matrix.batch_stride : matrix.ld)};
  map.box = {box[0], box[1], 1};
  map.swizzle_bytes = swizzle_bytes;
}

void add_operand_window(Launch& launch, const TmaMatrix& matrix, std::size_t offset,
                        const TmawsOperand& o, int tile_k) {
  const int line = kTmawsLineBytes / size_of(matrix.dtype);
  const int lines = (o.k_contiguous ? o.rows : tile_k) / o.parts;
  add_window(launch, matrix, offset,
             {static_cast<std::uint32_t>(line), static_cast<std::uint32_t>(lines)},
             kTmawsLineBytes);
}

namespace {

// Whether the copy engine can write this output. The kernel asks the same question.
bool tma_writes(const GemmProblem& p, const void* out) {
  if (p.pointer_arrays) return false;
  const std::int64_t elements = p.n | p.ld_out | (p.batch > 1 ? p.batch_stride_out : 0);
  const auto bytes = static_cast<std::uintptr_t>(elements * size_of(p.out));
  return ((reinterpret_cast<std::uintptr_t>(out) | bytes) % kTmaAlignment) == 0;
}

// Whether the copy engine can read the D tensors of m x n.
bool tma_reads(const GemmProblem& p, const device::GemmArguments& g, const TmawsDRoles& roles) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(roles.matrices); ++i) {
    const auto index = static_cast<std::size_t>(roles.matrix[i]);
    const std::int64_t stride = p.batch > 1 ? p.batch_stride_d[index] : 0;
    const bool aligned = reinterpret_cast<std::uintptr_t>(g.d[index]) % kTmaAlignment == 0;
    if (!aligned || !tmaws_reads(p.d, p.ld_d[index], stride)) return false;
  }
  return true;
}

// Places a repacked copy of the operand at the end of the workspace, and returns the copy.
TmaMatrix repacked(const TmaMatrix& matrix, bool transposed, Launch& launch,
                   unsigned& prepare_blocks, device::CudaCopy& copy) {
  TmaMatrix to = matrix;
  if (transposed) std::swap(to.line, to.lines);
  const std::int64_t unit = kTmawsLineBytes / size_of(matrix.dtype);
  to.ld = tiles(to.line, unit) * unit;
  to.batch_stride = is_batched(matrix) ? to.lines * to.ld : 0;
  to.data = nullptr;
  to.in_array = false;
  to.workspace_offset = launch.workspace.bytes;
  copy = {static_cast<std::int64_t>(launch.workspace.bytes), to.ld, to.batch_stride};

  const std::int64_t batches = is_batched(matrix) ? matrix.batch : 1;
  const std::int64_t line_bytes = matrix.line * size_of(matrix.dtype);
  const std::int64_t blocks =
      transposed ? tiles(matrix.line, kTransposedSide) * tiles(matrix.lines, kTransposedSide)
                 : tiles(matrix.lines * tiles(line_bytes, kCopiedBytes / 8), 8);
  prepare_blocks += static_cast<unsigned>(std::min(batches * blocks, kMaxPrepareBlocks));
  launch.workspace.bytes +=
      static_cast<std::size_t>(batches * to.lines * to.ld * size_of(matrix.dtype));
  return to;
}

// The operand itself if the copy engine can read it, otherwise its repacked copy. A null operand
// stands for any address.
TmaMatrix readable(const TmaMatrix& matrix, const Algorithm& a, const TmawsOperand& o,
                   Launch& launch, unsigned& prepare_blocks, device::CudaCopy& copy) {
  const bool aligned =
      matrix.data != nullptr && !matrix.in_array && misalignment(matrix) == 0 &&
      tmaws_reads(matrix.dtype, matrix.ld, is_batched(matrix) ? matrix.batch_stride : 0);
  if (!a.repack || (aligned && !o.transposed)) return matrix;
  return repacked(matrix, o.transposed, launch, prepare_blocks, copy);
}

// Adds the windows of the output and of the D tensors that the copy engine brings to the output's
// place in shared memory.
void add_output_windows(const GemmSignature& s, const Algorithm& a, const GemmProblem& p,
                        const device::GemmArguments& g, Launch& launch) {
  const TmawsDRoles roles = tmaws_d_roles(s.epilogue);
  if (!tma_reads(p, g, roles)) return;
  const auto chunk = static_cast<std::uint32_t>(tmaws_out_chunk(s, a));
  const std::uint32_t width = a.swap_ab ? kStoreRows : chunk;
  const std::uint32_t height = a.swap_ab ? chunk : kStoreRows;
  const int line = static_cast<int>(width) * size_of(p.out);
  const int swizzle = line < 32 ? 0 : line;
  const TmaMatrix matrix = {"out", g.out, p.out, p.n, p.m, p.ld_out, p.batch, p.batch_stride_out};
  add_window(launch, matrix, offsetof(CudaGemmArguments, out_map), {width, height}, swizzle);
  for (std::size_t i = 0; i < static_cast<std::size_t>(roles.matrices); ++i) {
    const auto index = static_cast<std::size_t>(roles.matrix[i]);
    const TmaMatrix d = {"d", g.d[index],    p.d,     p.n,
                         p.m, p.ld_d[index], p.batch, p.batch_stride_d[index]};
    const std::size_t offset = offsetof(CudaGemmArguments, d_maps) + i * sizeof(CudaTensorMap);
    add_window(launch, d, offset, {width, height}, swizzle);
  }
}

void add_windows(const GemmSignature& s, const Algorithm& a, const GemmProblem& p,
                 CudaGemmArguments& arguments, Launch& launch, unsigned& prepare_blocks) {
  const device::GemmArguments& g = arguments.gemm;
  if (p.k > 0) {
    const bool by_row = a_is_row_major(p.layout);
    TmaMatrix given = {
        "a", g.a, p.a, by_row ? p.k : p.m, by_row ? p.m : p.k, p.ld_a, p.batch, p.batch_stride_a};
    given.in_array = p.pointer_arrays;
    const TmawsOperand o = tmaws_a(s, a);
    const TmaMatrix matrix = readable(given, a, o, launch, prepare_blocks, arguments.a_copy);
    add_operand_window(launch, matrix, offsetof(CudaGemmArguments, a_map), o, a.tile.k);
  }
  if (p.k > 0 && !s.preshuffled_b) {
    const bool by_row = b_is_row_major(p.layout);
    TmaMatrix given = {
        "b", g.b, p.b, by_row ? p.n : p.k, by_row ? p.k : p.n, p.ld_b, p.batch, p.batch_stride_b};
    given.in_array = p.pointer_arrays;
    const TmawsOperand o = tmaws_b(s, a);
    const TmaMatrix matrix = readable(given, a, o, launch, prepare_blocks, arguments.b_copy);
    add_operand_window(launch, matrix, offsetof(CudaGemmArguments, b_map), o, a.tile.k);
  }
  if (tmaws_copies_out(s, a) && tma_writes(p, g.out)) add_output_windows(s, a, p, g, launch);
}

// Reserves the partial sums: one for each slice, or with atomic adds one for all slices, which
// starts at zero.
void add_slices(const Algorithm& a, std::int64_t clusters, CudaGemmArguments& arguments,
                Launch& launch, unsigned& prepare_blocks) {
  const bool atomic = a.split_k == SplitK::atomic;
  const std::int64_t groups = clusters / (atomic ? a.slices : 1) * tmaws_slice_groups(a);
  arguments.partial_sums = static_cast<std::int64_t>(launch.workspace.bytes);
  arguments.partial_bytes = groups * tmaws_slice_bytes(a);
  launch.workspace.bytes += static_cast<std::size_t>(arguments.partial_bytes);
  launch.workspace.counter_bytes = device::kCounterBytes;
  if (!atomic) return;
  const std::int64_t blocks = tiles(arguments.partial_bytes, kClearedBytes);
  prepare_blocks = static_cast<unsigned>(std::min(blocks, kMaxPrepareBlocks));
}

// The clusters that may share the steps of K of tiles (of a cluster each): more than there are
// tiles where these are few.
std::int64_t stream_clusters(const Algorithm& a, const GemmProblem& p, std::int64_t all_tiles) {
  const std::int64_t most = device::kStreamBlocks / (a.cluster_m * a.cluster_n);
  const std::int64_t shares =
      all_tiles < most ? all_tiles * tiles(p.k, a.tile.k) / device::kLeastStreamSteps : 0;
  return std::min(std::max(all_tiles, shares), most);
}

// Reserves places for the sums of parts of tiles.
void add_stream(const Algorithm& a, std::int64_t clusters, CudaGemmArguments& arguments,
                Launch& launch) {
  constexpr std::int64_t kPlaces = device::kStreamPlaces / device::kStreamBlocks;  // of a block
  arguments.partial_sums = static_cast<std::int64_t>(launch.workspace.bytes);
  arguments.partial_bytes =
      clusters * a.cluster_m * a.cluster_n * kPlaces * tmaws_slice_groups(a) * tmaws_slice_bytes(a);
  launch.workspace.bytes += static_cast<std::size_t>(arguments.partial_bytes);
  launch.workspace.counter_bytes = device::kCounterBytes;
}

// The step that runs the entry _prepare; any number of blocks is right.
Step prepare_step(const KernelSpec& spec, unsigned blocks, std::size_t copied_bytes) {
  return {.entry = prepare_entry(spec),
          .extent = Step::Extent::any,
          .grid = {blocks, 1, 1},
          .block = {kPrepareThreads, 1, 1},
          .copied_bytes = copied_bytes};
}

// ---- text ----

std::string pack_kernel_text(const KernelSpec& spec) {
  return fmt::format(
      "__global__ void __launch_bounds__(PackedB<Config>::kThreads)\n"
      "{}_pack(const __grid_constant__ CudaGemmArguments arguments, void* packed) {{\n"
      "  PackedB<Config>::pack(arguments, packed);\n"
      "}}\n",
      name_of(spec));
}

std::string prepare_kernel_text(const KernelSpec& spec) {
  return fmt::format(
      "__global__ void __launch_bounds__(TmaPrepare<Config>::kThreads, "
      "TmaPrepare<Config>::kMinBlocks)\n"
      "{}_prepare(const __grid_constant__ CudaGemmArguments arguments) {{\n"
      "  TmaPrepare<Config>::run(arguments);\n"
      "}}\n",
      name_of(spec));
}

Source tmaws_source(const KernelSpec& spec) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  const std::string shapes =
      cuda_tile_text(spec, tmaws_a(s, a).transposed, tmaws_b(s, a).transposed);
  if (has_outputs(s)) return tmaws_outputs_source(spec, shapes);
  if (has_groups(s)) return tmaws_groups_source(spec, shapes);
  std::string more;
  if (s.preshuffled_b) more += pack_kernel_text(spec);
  if (tmaws_prepares(a)) more += prepare_kernel_text(spec);
  const CudaTemplate from = has_scales(s)
                                ? CudaTemplate{"tma_scaled_gemm.h", "TmaScaledGemm"}
                                : CudaTemplate{"tma_gemm.h", "TmaGemm", tmaws_prepares(a)};
  return cuda_source(spec, from, shapes, wgmma_text(spec) + "\n", more);
}

}  // namespace

Step tmaws_step(const GemmSignature& s, const Algorithm& a, std::int64_t clusters) {
  const int cluster = a.cluster_m * a.cluster_n * a.splits;
  const auto consumers = static_cast<unsigned>(a.wave.m);
  return {.extent = a.splits == 1 ? Step::Extent::resident : Step::Extent::exact,
          .grid = {static_cast<unsigned>(clusters * cluster), 1, 1},
          .block = {consumers * kWarpgroup + (consumers == 1 ? 32 : kWarpgroup), 1, 1},
          .cluster = {static_cast<unsigned>(cluster), 1, 1},
          .shared_memory_bytes = static_cast<std::size_t>(shared_memory(s, a).all)};
}

std::string wgmma_text(const KernelSpec& spec) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  const TmawsOperand p = a.swap_ab ? tmaws_b(s, a) : tmaws_a(s, a);
  const TmawsOperand q = a.swap_ab ? tmaws_a(s, a) : tmaws_b(s, a);
  const auto from = [](const TmawsOperand& o) {
    return o.k_contiguous ? tile::WgmmaFrom::k_lines : tile::WgmmaFrom::row_lines;
  };
  const tile::Wgmma instruction{p.dtype, q.dtype, a.tile.n, from(p), from(q)};
  return tile::wgmma_text(std::span(&instruction, 1));
}

Source emit_tmaws(const KernelSpec& spec, const Target&) { return tmaws_source(spec); }

Launch bind_tmaws(const KernelSpec& spec, const GemmProblem& p, const Target&,
                  const device::GemmArguments& g) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  Launch launch;
  const bool is_empty = p.m == 0 || p.n == 0 || p.batch == 0;
  const std::int64_t rows = a.swap_ab ? p.n : p.m;
  const std::int64_t columns = a.swap_ab ? p.m : p.n;
  const std::int64_t all_tiles = tiles(rows, std::int64_t{a.tile.m} * a.cluster_m) *
                                 tiles(columns, std::int64_t{a.tile.n} * a.cluster_n) * p.batch;
  const std::int64_t clusters = a.streamk ? stream_clusters(a, p, all_tiles) : all_tiles * a.slices;
  CudaGemmArguments& arguments = launch.arguments.make<CudaGemmArguments>();
  arguments.gemm = g;
  arguments.raster_group = kRasterGroup;
  launch.workspace.bytes = device::kCounterBytes;
  launch.workspace.address_offset = offsetof(CudaGemmArguments, workspace);
  unsigned prepare_blocks = 0;
  std::size_t copied_bytes = 0;
  if (!is_empty) {
    if (a.slices > 1) add_slices(a, clusters, arguments, launch, prepare_blocks);
    if (a.streamk) add_stream(a, clusters, arguments, launch);
    const std::size_t before = launch.workspace.bytes;
    add_windows(s, a, p, arguments, launch, prepare_blocks);
    copied_bytes = launch.workspace.bytes - before;
  }
  if (launch.workspace.bytes == device::kCounterBytes) launch.workspace.bytes = 0;
  list_pointers(p, g, launch);
  if (is_empty) return launch;
  if (prepare_blocks > 0) launch.steps.push(prepare_step(spec, prepare_blocks, copied_bytes));
  launch.steps.push(tmaws_step(s, a, clusters));
  return launch;
}

std::int64_t tmaws_packed_bytes(const KernelSpec& spec, const GemmProblem& p) {
  const Algorithm& a = spec.algorithm;
  const TmawsOperand b = tmaws_b(std::get<GemmSignature>(spec.signature), a);
  return tiles(p.n, b.rows) * tiles(p.k, a.tile.k) * b.bytes;
}

// The entry _pack takes the address of the packed B as its second parameter.
Launch pack_by_tmaws(const GemmProblem& p, const void* b, void* packed, std::int64_t bytes) {
  Launch launch;
  device::CudaGemmArguments arguments{};
  arguments.gemm = gemm_arguments(p, {.b = b});
  launch.arguments.set(arguments);
  launch.arguments.add(packed);
  const std::int64_t blocks = tiles(bytes, kPackThreads * kPackedPiece);
  launch.steps.push({.entry = kPackEntry,
                     .extent = Step::Extent::any,
                     .grid = {static_cast<unsigned>(std::min(blocks, kMostPackBlocks)), 1, 1},
                     .block = {kPackThreads, 1, 1}});
  launch.pointers.push(b);
  launch.pointers.push(packed);
  return launch;
}

}  // namespace tessera::gemm
