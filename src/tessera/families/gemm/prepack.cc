// Preshuffle: packs B in a kernel's own form, once for many launches.
#include <algorithm>

#include "tessera/device/cuda/gemm/gemm_arguments.h"
#include "tessera/device/hip/gemm/gemm_arguments.h"
#include "tessera/families/gemm/amx_internal.h"

namespace tessera::gemm {
namespace {

// As in src/tessera/device/cuda/gemm/tma_pack.h and src/tessera/device/hip/gemm/mfma_pack.h.
constexpr unsigned kPackThreads = 256;
constexpr std::int64_t kPackedPiece = 16;             // bytes that a thread writes at a time
constexpr std::int64_t kMostPackBlocks = 1 << 20;     // far above what any device runs at once
constexpr std::int64_t kMostHipPackBlocks = 1 << 11;  // AMD's kernel is told how many there are

// A packed B is panels of warp_tile.n columns, in words of warp_tile.k elements of k, or in rows of
// tiles, which are 16 words. Where A is biased, the panel of each block of k begins with one word
// for each column that undoes the bias. PackedOperands::packed_bytes() in
// src/tessera/device/cpu/gemm/packed_operands.h computes the same size.
std::int64_t cpu_batch_bytes(const Algorithm& a, const GemmProblem& p) {
  const bool has_starts = biased_side(p.a, a) == BiasedSide::a;
  const int of_step = a.pipeline == Pipeline::amx ? device::kTileWords : 1;
  const std::int64_t words =
      tiles(p.k, a.warp_tile.k) * of_step + (has_starts ? tiles(p.k, a.tile.k) : 0);
  return tiles(p.n, a.warp_tile.n) * a.warp_tile.n * words * 4;
}

std::int64_t gpu_batch_bytes(const GemmSignature& s, const Algorithm& a, const GemmProblem& p) {
  const TmawsOperand b = tmaws_b(s, a);
  return tiles(p.n, b.rows) * tiles(p.k, a.tile.k) * b.bytes;
}

// Tiles as they lie in LDS.
std::int64_t hip_batch_bytes(const Algorithm& a, const GemmProblem& p) {
  return tiles(p.n, a.tile.n) * tiles(p.k, a.tile.k) * a.tile.n * a.tile.k * size_of(p.b);
}

// The CPU's entry reads B as B and writes the packed B as the output.
Launch pack_on_cpu(const GemmProblem& p, const void* b, void* packed, std::int64_t) {
  Launch launch;
  launch.arguments.set(gemm_arguments(p, {.b = b, .out = packed}));
  launch.steps.push({.entry = kPackEntry});
  launch.max_threads = 1;
  return launch;
}

// The GPU's entry takes the address of the packed B as its second parameter.
Launch pack_on_gpu(const GemmProblem& p, const void* b, void* packed, std::int64_t bytes) {
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

// The same with AMD's arguments.
Launch pack_on_hip(const GemmProblem& p, const void* b, void* packed, std::int64_t bytes) {
  Launch launch;
  const auto blocks = static_cast<unsigned>(
      std::min(tiles(bytes, kPackThreads * kPackedPiece), kMostHipPackBlocks));
  device::HipGemmArguments arguments{};
  arguments.gemm = gemm_arguments(p, {.b = b});
  arguments.blocks = static_cast<int>(blocks);
  launch.arguments.set(arguments);
  launch.arguments.add(packed);
  launch.steps.push({.entry = kPackEntry, .grid = {blocks, 1, 1}, .block = {kPackThreads, 1, 1}});
  launch.pointers.push(b);
  launch.pointers.push(packed);
  return launch;
}

struct PackWay {
  std::int64_t batch_bytes;
  Launch (*launch)(const GemmProblem&, const void* b, void* packed, std::int64_t bytes);
};
PackWay pack_way(const GemmSignature& s, const Algorithm& a, const GemmProblem& p) {
  if (runs_on_hip(a)) return {hip_batch_bytes(a, p), pack_on_hip};
  if (a.pipeline == Pipeline::tmaws) return {gpu_batch_bytes(s, a, p), pack_on_gpu};
  return {cpu_batch_bytes(a, p), pack_on_cpu};
}

}  // namespace

std::optional<Prepack> prepack(const KernelSpec& spec, const Problem& problem,
                               const Operands& operands, void* packed) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  if (!s.preshuffled_b) return std::nullopt;
  const GemmProblem p = with_strides(std::get<GemmProblem>(problem));
  GemmOperands o = std::get<GemmOperands>(operands);
  const PackWay way = pack_way(s, spec.algorithm, p);
  const std::int64_t bytes = (p.batch_stride_b == 0 ? 1 : p.batch) * way.batch_bytes;
  Prepack made{.operand = "b", .from = o.b, .bytes = static_cast<std::size_t>(bytes)};
  if (bytes > 0) {
    made.launch = way.launch(p, o.b, packed, bytes);
  }
  o.b = packed;
  made.operands = o;
  return made;
}

Problem unpacked(const Problem& problem) {
  GemmProblem p = std::get<GemmProblem>(problem);
  p.preshuffled_b = false;
  return p;
}

}  // namespace tessera::gemm
