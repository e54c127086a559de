// A kernel of the blocked GEMM: what the host calls, and the code that depends on its
// configuration, besides the shared code.
#pragma once

#include "tessera/device/cpu/gemm/packed_gemm.h"

namespace tessera::device {

// The entries of `Kernel`, which has a shape, kShape, and what a thread does, run_shape().
template <class C, class Kernel>
struct PackedEntries {
  static i64 workspace_bytes(const void* arguments, int threads) {
    return packed_workspace_bytes(Kernel::kShape, arguments, threads);
  }
  static void run(const void* arguments, const CpuThread* thread) {
    Kernel::run_shape(arguments, *thread);
  }
  // The second entry of preshuffle kernels: one thread packs B to the address of the output.
  static i64 no_bytes(const void*, int) { return 0; }
  static void pack(const void* arguments, const CpuThread* thread) {
    if (thread->index != 0) return;
    packed_b(Kernel::kShape, arguments, static_cast<const GemmArguments*>(arguments)->out);
  }

  static constexpr CpuKernel kernel() {
    if (C::kPreshuffled) return {C::kAbiVersion, {{workspace_bytes, run}, {no_bytes, pack}}};
    return {C::kAbiVersion, {{workspace_bytes, run}}};
  }
};

// kAsks: few rows share a B that lies in memory, so that register blocks ask for its next panel.
template <class C, bool kAsks = false>
struct PackedKernel : PackedEntries<C, PackedKernel<C, kAsks>> {
  using A = typename C::A;
  using B = typename C::B;
  using Math = typename C::Math;
  using Types = OperandTypes<A, B, Math, C::kAKContiguous, C::kBKContiguous>;

  static constexpr int kRows = C::kWarpTileM;
  static constexpr int kColumns = C::kWarpTileN;
  static constexpr int kPer = Math::kPerWord;
  static_assert(kColumns % kLanes == 0, "warp_tile_n must be a multiple of the vector's lanes");
  static_assert(kRows * kColumns <= kMostSums<Math>,
                "a register block has more sums than registers");
  static_assert(C::kTileK % kPer == 0, "tile_k must be a multiple of warp_tile_k");
  static_assert(C::kPackA || sizeof(A) * kPer == 4, "A is read in place only as 32-bit words");
  static_assert(C::kPackA || kPer == 1 || C::kAKContiguous, "A's words are in place along k only");
  static_assert(C::kPackB || (sizeof(B) == 4 && !C::kBKContiguous),
                "B is read in place only as rows of 32-bit words");
  static_assert(C::kPackB || !C::kPreshuffled, "a preshuffled B is packed");

  static constexpr PackedShape<Types> shape() {
    constexpr int kVectors = kColumns / kLanes;
    constexpr int kPackedRows = C::kPackA ? kRows : 0;
    PackedShape<Types> s = configured_shape<C, Types>();
    s.asks_ahead = kAsks;
    s.multiply = multiply_any<Math, kRows, kVectors, kPackedRows, kAsks>;
    if constexpr (sums_convert<C>()) {
      s.multiply_converting =
          multiply_block<Math, kRows, kVectors, kPackedRows, typename C::Out, kAsks>;
    }
    s.pack_a = pack_a_panel<A, Math, kRows, C::kPackA, C::kAKContiguous>;
    s.pack_b = pack_b_panel<B, Math, kColumns, C::kBKContiguous>;
    return s;
  }
  static constexpr PackedShape<Types> kShape = shape();

  static void run_shape(const void* arguments, const CpuThread& thread) {
    packed_run(kShape, arguments, thread);
  }
};

template <class C>
using AskingKernel = PackedKernel<C, true>;

}  // namespace tessera::device
