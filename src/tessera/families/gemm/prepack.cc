// Preshuffle: packs B in a kernel's own form, once for many launches.
#include <algorithm>

#include "tessera/device/cuda/gemm/gemm_arguments.h"
#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {
namespace {

constexpr unsigned kPackThreads = 256;             // as in src/tessera/device/cuda/gemm/tma_pack.h
constexpr std::int64_t kPackedPiece = 16;          // bytes that a thread writes at a time
constexpr std::int64_t kMostPackBlocks = 1 << 20;  // far above what any device runs at once

// A packed B is panels of warp_tile.n columns, in words of warp_tile.k elements of k. When a word
// holds four int8 (VNNI), the panel of each block of k begins with one word for each column that
// undoes the bias. PackedOperands::packed_bytes() in src/tessera/device/cpu/gemm/packed_operands.h
// computes the same size.
std::int64_t cpu_batch_bytes(const Algorithm& a, const GemmProblem& p) {
  const bool is_biased = p.a == DType::int8 && a.warp_tile.k == 4;
  const std::int64_t words = tiles(p.k, a.warp_tile.k) + (is_biased ? tiles(p.k, a.tile.k) : 0);
  return tiles(p.n, a.warp_tile.n) * a.warp_tile.n * words * 4;
}

std::int64_t gpu_batch_bytes(const GemmSignature& s, const Algorithm& a, const GemmProblem& p) {
  const TmawsOperand b = tmaws_b(s, a);
  return tiles(p.n, b.rows) * tiles(p.k, a.tile.k) * b.bytes;
}

// The CPU's entry reads B as B and writes the packed B as the output.
Launch pack_on_cpu(const GemmProblem& p, const void* b, void* packed) {
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

}  // namespace

std::optional<Prepack> prepack(const KernelSpec& spec, const Problem& problem,
                               const Operands& operands, void* packed) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  if (!s.preshuffled_b) return std::nullopt;
  const GemmProblem p = with_strides(std::get<GemmProblem>(problem));
  GemmOperands o = std::get<GemmOperands>(operands);
  const bool is_gpu = spec.algorithm.pipeline == Pipeline::tmaws;
  const std::int64_t bytes =
      (p.batch_stride_b == 0 ? 1 : p.batch) *
      (is_gpu ? gpu_batch_bytes(s, spec.algorithm, p) : cpu_batch_bytes(spec.algorithm, p));
  Prepack made{.operand = "b", .from = o.b, .bytes = static_cast<std::size_t>(bytes)};
  if (bytes > 0) {
    made.launch = is_gpu ? pack_on_gpu(p, o.b, packed, bytes) : pack_on_cpu(p, o.b, packed);
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
