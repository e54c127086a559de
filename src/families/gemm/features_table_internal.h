// The table of GEMM's features. Problem and hardware come first: they are the same for every
// candidate. p / q of two numbers is 0 where q does not exist on the target.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "tessera/families/features.h"

namespace tessera::gemm {

using enum FeatureGroup;

// What the formulas mean: rows x columns is m x n, with swap_ab n x m. sizes are bytes of elements.
// word: the 4 bytes that CPU kernels multiply, warp_tile_k elements. span: bytes from one row (of a
// column-major operand: column) to the next. wide: 16 bytes on GPUs, a vector on CPUs. share: what
// the busiest thread of a CPU computes. unit: a core, SM or CU; Hz: its clock.
inline constexpr auto kFeatures = std::to_array<Feature>({
    // ---- the problem ----
    {"m", "rows", "m", problem},
    {"n", "columns", "n", problem},
    {"k", "elements", "k", problem},
    {"batch", "1", "batch", problem},
    {"log2_m", "log2", "log2(max(m, 1))", problem},
    {"log2_n", "log2", "log2(max(n, 1))", problem},
    {"log2_k", "log2", "log2(max(k, 1))", problem},
    {"log2_mnk", "log2", "log2_m + log2_n + log2_k", problem},
    {"narrow_side", "elements", "min(m, n)", problem},
    {"wide_side", "elements", "max(m, n)", problem},
    {"log2_m_over_n", "log2", "log2_m - log2_n", problem},
    {"log2_m_over_k", "log2", "log2_m - log2_k", problem},
    {"log2_n_over_k", "log2", "log2_n - log2_k", problem},
    {"log2_flops", "log2", "log2(1 + flops), flops = 2 m n k batch", problem},
    {"log2_bytes", "log2", "log2(1 + bytes), bytes: every operand once", problem},
    {"arithmetic_intensity", "flop/byte", "flops / max(bytes, 1)", problem},
    {"layout", "code", "rcr 0, rrr 1, crr 2, ccr 3", problem},
    {"a_row_major", "1", "1: k is contiguous in A", problem},
    {"b_row_major", "1", "1: n is contiguous in B", problem},
    {"a_type", "code", "fp32 0, tf32 1, fp16 2, bf16 3, fp8 4, bf8 5, int8 6, int32 7", problem},
    {"b_type", "code", "as a_type", problem},
    {"out_type", "code", "as a_type", problem},
    {"acc_is_integer", "1", "1: sums are int32, 0: fp32 (4 bytes both)", problem},
    {"a_size", "bytes", "of an element of A", problem},
    {"b_size", "bytes", "of an element of B", problem},
    {"out_size", "bytes", "of an element of the output", problem},
    {"d_size", "bytes", "of an element of D; 0: no D", problem},
    {"epilogue_steps", "1", "steps of the chain", problem},
    {"epilogue_functions", "1", "steps that are gelu, gelu_tanh, silu, sigmoid or tanh", problem},
    {"d_matrices", "1", "D tensors of m x n", problem},
    {"d_vectors", "1", "D tensors along m or n", problem},
    {"reads_c", "1", "beta != 0", problem},
    {"scales", "1", "alpha != 1", problem},
    {"a_row_mod16", "bytes", "span of A mod 16", problem},
    {"b_row_mod16", "bytes", "span of B mod 16", problem},
    {"out_row_mod16", "bytes", "span of the output mod 16", problem},
    {"a_align", "log2", "log2 of the largest power of 2 up to 4096 that divides A's span", problem},
    {"b_align", "log2", "log2 of the largest power of 2 up to 4096 that divides B's span", problem},
    {"out_align", "log2", "log2 of the largest power of 2 up to 4096 in the output's span",
     problem},
    {"a_vector", "elements", "wide * a_vector_share / a_size", problem},
    {"b_vector", "elements", "wide * b_vector_share / b_size", problem},
    {"out_vector", "elements", "wide * out_vector_share / out_size", problem},
    {"a_vector_share", "1", "largest power of 2 up to wide that divides A's span, / wide", problem},
    {"b_vector_share", "1", "largest power of 2 up to wide that divides B's span, / wide", problem},
    {"out_vector_share", "1", "largest power of 2 up to wide in the output's span, / wide",
     problem},
    {"a_padding", "1", "max(ld_a, 1) / max(row of A, 1)", problem},
    {"b_padding", "1", "max(ld_b, 1) / max(row of B, 1)", problem},
    {"out_padding", "1", "max(ld_out, 1) / max(n, 1)", problem},
    {"a_shared", "1", "batch > 1 and batch_stride_a = 0", problem},
    {"b_shared", "1", "batch > 1 and batch_stride_b = 0", problem},
    {"preshuffled_b", "1", "1: B was packed before", problem},
    {"bytes_over_l2", "1", "bytes / bytes of L2 (CPU: of all threads)", problem},
    {"bytes_over_l3", "1", "bytes / bytes of L3", problem},
    {"log2_ideal_seconds", "log2", "log2(max(flops / peak, bytes / bandwidth, 1 ns))", problem},
    // ---- the machine ----
    {"hw_units", "1", "cores, SMs or CUs", hardware},
    {"hw_threads", "1", "CPU: threads allowed; GPU: 0", hardware},
    {"hw_clock", "GHz", "clock_ghz of the target's row", hardware},
    {"hw_bandwidth", "GB/s", "memory_gb_per_s of the target's row", hardware},
    {"hw_launch", "us", "launch_us of the target's row", hardware},
    {"hw_shared_kb", "KiB", "shared memory of a block; CPU: 0", hardware},
    {"hw_l1_kb", "KiB", "first cache of the target's row", hardware},
    {"hw_l2_kb", "KiB", "second cache of the target's row", hardware},
    {"hw_l3_kb", "KiB", "third cache of the target's row", hardware},
    {"hw_warp_size", "1", "lanes that step together", hardware},
    {"hw_vector_bytes", "bytes", "CPU: of a register; GPU: 0", hardware},
    {"hw_registers", "1", "CPU: vector registers; GPU: registers of a unit", hardware},
    {"hw_block_threads", "1", "most threads of a block", hardware},
    {"hw_peak", "Gflop/s", "2 * macs per cycle of the best instruction for A's type * Hz * units",
     hardware},
    {"hw_balance", "flop/byte", "hw_peak / hw_bandwidth", hardware},
    // ---- the kernel ----
    {"tile_m", "rows", "tile_m", kernel},
    {"tile_n", "columns", "tile_n", kernel},
    {"tile_k", "elements", "tile_k", kernel},
    {"wave_m", "1", "wave_m; 0: as many threads as allowed", kernel},
    {"wave_n", "1", "wave_n; 0: as many threads as allowed", kernel},
    {"wave_k", "1", "wave_k; 0: as many threads as allowed", kernel},
    {"warp_tile_m", "rows", "warp_tile_m", kernel},
    {"warp_tile_n", "columns", "warp_tile_n", kernel},
    {"warp_tile_k", "elements", "warp_tile_k", kernel},
    {"pipeline", "code", "packab packb packa direct stream tmaws cpasync compv3 compv4 compv5 mem",
     kernel},
    {"scheduler", "code", "standard cooperative pingpong intrawave interwave", kernel},
    {"splits", "1", "blocks that share k", kernel},
    {"split_kind", "code", "none 0, ordered 1, atomic 2", kernel},
    {"stages", "1", "stages", kernel},
    {"cluster_m", "1", "cluster_m", kernel},
    {"cluster_n", "1", "cluster_n", kernel},
    {"cluster_blocks", "1", "cluster_m * cluster_n * splits", kernel},
    {"swap_ab", "1", "1: rows are n", kernel},
    {"takes_tiles", "1", "1: blocks take further tiles (tmaws with splits = 1)", kernel},
    {"num_waves", "1", "wave_m * wave_n * wave_k", kernel},
    {"block_threads", "1", "threads of a block, with those that copy; CPU: 1", kernel},
    {"tile_mn", "elements", "tile_m * tile_n", kernel},
    {"tile_volume", "macs", "tile_m * tile_n * tile_k", kernel},
    {"tile_intensity", "elements", "tile_mn / (tile_m + tile_n)", kernel},
    {"warp_tiles", "1", "tile_mn / (warp_tile_m * warp_tile_n)", kernel},
    {"accumulators", "registers", "of a thread: tile_mn / threads that multiply it; CPU: vectors",
     kernel},
    {"stage_bytes", "bytes", "of A and B for a step of tile_k; CPU: packed as words", kernel},
    {"bytes_in_flight", "bytes", "(stages - 1) * stage_bytes", kernel},
    {"shared_bytes", "bytes", "shared memory of a block; CPU: stage_bytes", kernel},
    {"shared_ratio", "1", "shared_bytes / what the pipeline may use of it; CPU: / L2", kernel},
    {"stores_by_copy", "1", "1: the copy engine may store the output", kernel},
    // ---- the kernel on the problem ----
    {"tiles_m", "1", "ceil(rows / tile_m)", interaction},
    {"tiles_n", "1", "ceil(columns / tile_n)", interaction},
    {"tiles_k", "1", "ceil(k / tile_k)", interaction},
    {"total_tiles", "1", "tiles_m * tiles_n * batch", interaction},
    {"tile_ratio_m", "1", "rows / tile_m", interaction},
    {"tile_ratio_n", "1", "columns / tile_n", interaction},
    {"tile_ratio_k", "1", "k / tile_k", interaction},
    {"tile_eff_m", "1", "tile_ratio_m / max(tiles_m, 1)", interaction},
    {"tile_eff_n", "1", "tile_ratio_n / max(tiles_n, 1)", interaction},
    {"tile_eff_k", "1", "tile_ratio_k / max(tiles_k, 1)", interaction},
    {"tile_efficiency", "1", "tile_eff_m * tile_eff_n * tile_eff_k", interaction},
    {"unit_utilisation", "1", "total_tiles * splits / units (CPU: threads)", interaction},
    {"smaller_than_tile_m", "1", "rows < tile_m", interaction},
    {"smaller_than_tile_n", "1", "columns < tile_n", interaction},
    {"smaller_than_tile_k", "1", "k < tile_k", interaction},
    {"smaller_than_tile", "1", "any of the three", interaction},
    {"cut_tile_m", "1", "tile_m does not divide rows", interaction},
    {"cut_tile_n", "1", "tile_n does not divide columns", interaction},
    {"cut_tile_k", "1", "tile_k does not divide k", interaction},
    {"cut_tile", "1", "any of the three", interaction},
    {"k_steps", "1", "ceil(tiles_k / splits)", interaction},
    {"k_steps_per_stage", "1", "k_steps / stages", interaction},
    {"resident", "blocks", "of a unit at a time, by shared memory and registers; CPU: 1",
     interaction},
    {"blocks", "1", "tiles in whole clusters * splits * batch; CPU: threads used", interaction},
    {"full_rounds", "1", "floor(blocks / (units * resident)); CPU: / threads", interaction},
    {"tail", "1", "blocks / (units * resident) - full_rounds; CPU: / threads", interaction},
    {"wave_efficiency", "1",
     "blocks / (ceil(blocks / slots) * slots), slots = units * resident; CPU: m n k batch / "
     "(threads * share)",
     interaction},
    {"grid_batch", "threads", "CPU: threads over batches; GPU: 0", interaction},
    {"grid_m", "threads", "CPU: threads over m; GPU: 0", interaction},
    {"grid_n", "threads", "CPU: threads over n; GPU: 0", interaction},
    {"grid_k", "threads", "CPU: threads over k; GPU: 0", interaction},
    {"share_rows", "rows", "CPU: of the busiest thread; GPU: 0", interaction},
    {"share_columns", "columns", "CPU: of the busiest thread; GPU: 0", interaction},
    {"a_panel_over_l1", "1", "CPU: min(k, tile_k) * warp_tile_m as words / L1", interaction},
    {"b_panel_over_l1", "1", "CPU: min(k, tile_k) * warp_tile_n as words / L1", interaction},
    {"a_block_over_l2", "1", "CPU: min(k, tile_k) * min(share_rows, tile_m) as words / L2",
     interaction},
    {"b_block_over_l2", "1", "CPU: min(k, tile_k) * min(share_columns, tile_n) as words / L2",
     interaction},
    {"b_block_over_l3", "1", "CPU: b_block_over_l2's bytes * blocks / L3", interaction},
    {"packed_ratio", "1", "CPU: bytes written by packing / max(bytes, 1); GPU: 0", interaction},
    {"log2_tiled_bytes", "log2", "log2(1 + bytes that tiles read from L2)", interaction},
    {"tiled_ratio", "1", "bytes that tiles read from L2 / max(bytes, 1)", interaction},
    {"log2_operand_bytes", "log2",
     "log2(1 + bytes that instructions read from shared memory; CPU: from L1)", interaction},
    {"utilisation", "1", "flops / (2 * macs that the units could do in compute_share's time)",
     interaction},
    {"compute_share", "1", "time to multiply / seconds", interaction},
    {"tiled_share", "1", "time to read tiles from L2 / seconds", interaction},
    {"operand_share", "1", "time to read operands from shared memory or L1 / seconds", interaction},
    {"memory_share", "1", "bytes / bandwidth / seconds", interaction},
    {"log2_seconds", "log2",
     "log2(seconds), seconds = max(multiply (CPU: + pack), tiled, operand, memory) + launch",
     interaction},
    {"log2_over_ideal", "log2", "log2_seconds - log2_ideal_seconds", interaction},
});

inline constexpr std::size_t kNumFeatures = kFeatures.size();

// The place of a feature; a name that is not in the table does not compile.
consteval std::size_t feature(std::string_view name) {
  for (std::size_t i = 0; i < kNumFeatures; ++i) {
    if (kFeatures[i].name == name) return i;
  }
  throw "there is no such feature";
}

// Features from here on differ from candidate to candidate.
inline constexpr std::size_t kFirstLane = feature("tile_m");
inline constexpr std::size_t kNumLanes = kNumFeatures - kFirstLane;

}  // namespace tessera::gemm
