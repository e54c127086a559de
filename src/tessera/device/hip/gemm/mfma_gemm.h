// out[b] = epilogue(alpha * A[b] x B[b] + beta * C[b]) by matrix instructions. A workgroup of
// kWaveM x kWaveN waves makes a tile of kTileM x kTileN, kTileK at a time, from tiles of A and B in
// LDS, while the next tiles are on their way.
//
// Config is a struct of types and constants:
//   A, B, Acc, Out, D                      as in types.h
//   kTileM, kTileN, kTileK, kWaveM, kWaveN, kWarpTileM, kWarpTileN, kWarpTileK
//   kBuffers, kPrefetch, kDirectToLds      tiles in LDS, tiles under way in registers
//   kSlices, kAtomicSplit, kPersistent
//   kStreamK                               if there: workgroups share the steps of the last tiles
//   kAKContiguous, kBKContiguous, kPreshuffled
//   kNumSteps, kNumD, kSteps               the epilogue; kSteps only if there are steps
//   kXcds                                  compute dies with an L2 of their own
//
// Any sizes, strides and alignments; operands of aligned dwords are fast. The host sees to it that
// m, n, k and the tiles with their slices are below 2^31 - 1024, and that the part of an operand
// that a tile reads spans less than 2^31 bytes: kTileM * ld, or kTileK * ld where k is not
// contiguous. Kernel::kMfmas says how many matrix instructions are in the code.
#pragma once

#include "tessera/device/hip/epilogue.h"
#include "tessera/device/hip/gemm/gemm_operands.h"
#include "tessera/device/hip/gemm/mfma_sizes.h"
#include "tessera/device/hip/gemm/no_groups.h"
#include "tessera/device/hip/gemm/plain_sums.h"
#include "tessera/device/hip/gemm/result_places.h"
#include "tessera/device/hip/gemm/stream_shares.h"
#include "tessera/device/hip/matrix.h"
#include "tessera/device/hip/slices.h"
#include "tessera/device/hip/tile_order.h"

namespace tessera::device {

template <class C, class Operands = GemmOperands<C>, class Groups = NoGroups,
          class Scaling = PlainSums>
struct MfmaGemm {
  using A = typename C::A;
  using B = typename C::B;
  using Acc = typename C::Acc;
  static constexpr int kSide = C::kWarpTileM;
  using Op = typename Scaling::template Op<B, A, kSide>;
  using Sum = typename Op::Sum;

  using Sizes = MfmaSizes<C, Operands>;
  static constexpr MfmaShape kShape = Sizes::kShape;
  static constexpr int kThreads = Sizes::kThreads;
  static constexpr int kMinWaves = Sizes::kMinWaves, kMaxWaves = kMinWaves;

  static constexpr bool kStreamK = requires { requires C::kStreamK; };
  static_assert(!kStreamK || (C::kSlices == 1 && !C::kAtomicSplit && !C::kPersistent),
                "stream-K cuts K itself and adds in order");

  static_assert(!Groups::kAny || (C::kSlices == 1 && !kStreamK && !C::kPersistent));

  using Shares = StreamShares<C, Operands>;

  // Tiles that a turn of the loop multiplies.
  static constexpr int kTurns = C::kPrefetch == 2 ? 2 : 1;
  using LoadA = typename Operands::LoadA;
  using LoadB = typename Operands::LoadB;
  using TileA = typename LoadA::Tile;
  using TileB = typename LoadB::Tile;
  static constexpr int kStageBytes = TileA::kBytes + TileB::kBytes;

  // Chunks along k that a wave multiplies in a step.
  static constexpr int kStepChunks = Op::kGroups * Op::kLaneChunks;
  static constexpr int kSteps = LoadA::kChunks / kStepChunks;
  static constexpr int kBlocksM = C::kTileM / C::kWaveM / kSide;
  static constexpr int kBlocksN = C::kTileN / C::kWaveN / kSide;
  static constexpr int kQuads = kSide * kSide / (4 * kLanes);  // of a block's sums in a lane
  static constexpr int kSumsALane = kBlocksM * kBlocksN * kQuads * 4;
  using Scales = typename Scaling::template Scales<C, Op, kBlocksM, kBlocksN>;
  // Matrix instructions in the code.
  static constexpr int kMfmas = kBlocksM * kBlocksN * kSteps * Op::kParts * kTurns;
  static_assert(C::kWarpTileM == C::kWarpTileN, "a block of sums is square");
  static_assert(sizeof(A) == sizeof(B), "chunks of A and B hold the same k");
  static_assert(C::kWarpTileK == kStepChunks * LoadA::kElements, "kWarpTileK is a step");
  static_assert(kBlocksM * C::kWaveM * kSide == C::kTileM, "waves cover the rows");
  static_assert(kBlocksN * C::kWaveN * kSide == C::kTileN, "waves cover the columns");
  static_assert(kSteps * kStepChunks == LoadA::kChunks && kSteps > 0, "matrix steps cover kTileK");
  static_assert(!C::kDirectToLds || C::kBuffers > 1, "a tile is copied while another is read");

  template <class Arguments>
  static __device__ __forceinline__ void run(const Arguments&) {
    __shared__ __attribute__((aligned(1024))) static u8 memory[Sizes::kLdsBytes];
    if constexpr (Groups::kAny) return run_groups((Shared*)memory);
    if constexpr (kStreamK) return run_shares((Shared*)memory);
    u32 index = __builtin_amdgcn_workgroup_id_x();
    for (;;) {
      const HipGemmArguments& arguments = fresh_arguments<HipGemmArguments>();
      const HipTileOrder<C> order(Operands::sizes(arguments.gemm), arguments.raster_group);
      if (index >= order.total) break;
      MfmaGemm block(order.tile(index), (Shared*)memory);
      block.multiply();
      if (C::kSlices == 1 || block.add_slices(order.total / C::kSlices)) block.store();
      index += static_cast<u32>(fresh_arguments<HipGemmArguments>().blocks);
    }
  }

 private:
  __device__ __forceinline__ MfmaGemm(const HipTile& tile, Shared* lds) : at(tile), memory(lds) {
    thread = fresh_thread<kThreads>();
    lane = thread % kLanes;
    wave = __builtin_amdgcn_readfirstlane(thread / kLanes);
    row_a = wave % C::kWaveM * (C::kTileM / C::kWaveM) + lane % kSide;
    row_b = wave / C::kWaveM * (C::kTileN / C::kWaveN) + Op::row_of_first(lane);
    // With so many sums, clang 22 spills some of the zeros that it knows.
    Acc zero = 0;
    if constexpr (kSumsALane >= 256) asm volatile("" : "+v"(zero));
#pragma unroll
    for (int i = 0; i < kBlocksM * kBlocksN; ++i) sums[i] = Sum(zero);
  }

  // `Groups` as in grouped_gemm.h.
  static __device__ __forceinline__ void run_groups(Shared* memory) {
    if (Groups::refused()) return;
    typename Groups::Walk walk;
    typename Groups::Tile tile;
#pragma unroll 1
    while (walk.next(tile)) {
      MfmaGemm block({static_cast<int>(tile.row), static_cast<int>(tile.column), 0, 0, 0}, memory);
      block.part = tile.part;
      block.multiply();
      block.store();
    }
  }

  // ---- sums ----

  // When a tile has been put into LDS, at most the loads of the other turns are under way. Telling
  // the compiler so keeps it from waiting for more: it knows less where the ways of aligned and
  // other operands meet.
  static constexpr int kTurnLoads = LoadA::kInstructions + LoadB::kInstructions;
  static constexpr int kOtherLoads =
      (kTurns - 1) * kTurnLoads < 63 ? (kTurns - 1) * kTurnLoads : 63;

  __device__ __forceinline__ void multiply() {
    const GemmArguments& g = Groups::product(part);
    const i64 depth = Operands::sizes(g).k;
    const int k_tiles = static_cast<int>((depth + C::kTileK - 1) / C::kTileK);
    const int begin = static_cast<int>(i64{k_tiles} * at.slice / C::kSlices);
    const int end = static_cast<int>(i64{k_tiles} * (at.slice + 1) / C::kSlices);
    const int k = at.slice + 1 == C::kSlices ? static_cast<int>(depth) : end * C::kTileK;
    multiply(begin, end, k);
  }
  // The steps from `begin` up to `end`, where K ends at k.
  __device__ __forceinline__ void multiply(int begin, int end, int k) {
    const GemmArguments& g = Groups::product(part);
    LoadA a = Operands::a(g, at, begin * C::kTileK, k, thread);
    LoadB b = Operands::b(g, at, begin * C::kTileK, k, thread);
    if constexpr (C::kDirectToLds) {
      multiply_direct(a, b, begin, end);
    } else {
      multiply_staged(a, b, begin, end);
    }
    scales.finish(sums);
    barrier();
  }

  // While a tile is multiplied, the next kPrefetch ones are on their way to registers. Past the end
  // of K, or of the slice, tiles are zero: a last turn may multiply one of them.
  __device__ __forceinline__ void multiply_staged(LoadA& a, LoadB& b, int begin, int end) {
    typename LoadA::Staged staged_a[kTurns];
    typename LoadB::Staged staged_b[kTurns];
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      a.fetch(staged_a[i]);
      b.fetch(staged_b[i]);
    }
    int now = 0;
#pragma unroll 1
    for (int tile = begin; tile < end; tile += kTurns) {
#pragma unroll
      for (int i = 0; i < kTurns; ++i) {
        Shared* const lds = memory + now;
        if constexpr (C::kBuffers == 1) {
          barrier();  // the last tile has been read
        } else {
          now = kStageBytes - now;
        }
        a.put(lds, staged_a[i]);
        b.put(lds + TileA::kBytes, staged_b[i]);
        wait_for_loads<kOtherLoads>();
        a.fetch(staged_a[i]);
        b.fetch(staged_b[i]);
        barrier();
        multiply_tile(lds, tile + i);
      }
    }
  }

  // While a tile is multiplied, the next kBuffers - 1 ones are on their way to LDS.
  __device__ __forceinline__ void multiply_direct(LoadA& a, LoadB& b, int begin, int end) {
    constexpr int kAhead = C::kBuffers - 1;
    static_assert(kAhead <= 2 && kTurnLoads < 64, "the hardware counts up to 63 loads");
    Shared* to = memory;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (begin + i < end) copy(a, b, to);
    }
    const Shared* from = memory;
#pragma unroll 1
    for (int tile = begin; tile < end; ++tile) {
      if (kAhead == 2 && tile + 1 < end) {
        wait_for_loads<kTurnLoads>();
      } else {
        wait_for_loads<0>();
      }
      barrier_between_copies();
      if (tile + kAhead < end) copy(a, b, to);
      multiply_tile(from, tile);
      from = from == memory + kAhead * kStageBytes ? memory : from + kStageBytes;
    }
  }
  __device__ __forceinline__ void copy(LoadA& a, LoadB& b, Shared*& to) const {
    a.copy(to, wave);
    b.copy(to + TileA::kBytes, wave);
    to = to == memory + (C::kBuffers - 1) * kStageBytes ? memory : to + kStageBytes;
  }

  // The chunks of a step are read while the last step's are multiplied, when there are
  // registers for both.
  static constexpr int kFragments =
      kSteps > 1 && kBlocksM + kBlocksN <= kLanes / 8 && kSumsALane < 256 ? 2 : 1;
  struct Fragment {
    typename Op::Lane a[kBlocksM], b[kBlocksN];
  };

  __device__ __forceinline__ void multiply_tile(const Shared* lds, int tile) {
    Fragment fragments[kFragments];
    if constexpr (kFragments == 2) read_step(lds, 0, fragments[0]);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int next = step + kFragments - 1;
      if (next < kSteps) read_step(lds, next, fragments[next % kFragments]);
      if constexpr (Scales::kAny) begin_scales(tile * C::kTileK, step * C::kWarpTileK);
      multiply_step(fragments[step % kFragments]);
      if constexpr (Scales::kAny) scales.end((step + 1) * C::kWarpTileK, sums);
    }
  }
  // The scales of the step at `depth` of the tile that begins at k.
  __device__ __forceinline__ void begin_scales(int k, int depth) {
    if (!Scales::begins(depth)) return;
    const GemmArguments& g = Groups::product(part);
    scales.begin(g, part, at, {first_row(), first_column()}, lane, k + depth);
  }
  __device__ __forceinline__ int first_row() const {
    return at.row + wave % C::kWaveM * (C::kTileM / C::kWaveM);
  }
  __device__ __forceinline__ int first_column() const {
    return at.column + wave / C::kWaveM * (C::kTileN / C::kWaveN);
  }
  __device__ __forceinline__ void read_step(const Shared* lds, int step, Fragment& to) const {
#pragma unroll
    for (int i = 0; i < kBlocksM; ++i) to.a[i] = read_chunks<LoadA>(lds, row_a, i * kSide, step);
#pragma unroll
    for (int j = 0; j < kBlocksN; ++j) {
      to.b[j] = read_chunks<LoadB>(lds + TileA::kBytes, row_b, j * kSide, step);
    }
  }
  template <class Load>
  __device__ __forceinline__ typename Op::Lane read_chunks(const Shared* tile, int row,
                                                           int more_rows, int step) const {
    if constexpr (requires { Load::kTransposedRead; }) {
      return Load::template read<kSide>(tile, row - lane % kSide + more_rows, lane, step);
    } else {
      return Op::read([&](int more) __attribute__((always_inline)) {
        return load_shared<Chunk>(tile + Load::Tile::offset(row, Op::group_of_k(lane), more_rows,
                                                            step * kStepChunks + more));
      });
    }
  }
  __device__ __forceinline__ void multiply_step(const Fragment& from) {
    __builtin_amdgcn_s_setprio(1);
#pragma unroll
    for (int part = 0; part < Op::kParts; ++part) {
#pragma unroll
      for (int i = 0; i < kBlocksM * kBlocksN; ++i) {
        // B goes first: a lane then has neighbours along n of one row.
        sums[i] = scales.step(part, from.b[i % kBlocksN], from.a[i / kBlocksN], sums[i], i);
      }
    }
    __builtin_amdgcn_s_setprio(0);
  }

  // ---- slices ----

  // Whether this workgroup is the last one of its tile; it then holds the sums over all slices.
  __device__ __forceinline__ bool add_slices(u32 tiles) {
    const HipGemmArguments& arguments = fresh_arguments<HipGemmArguments>();
    const u64 workspace = bits<u64>(arguments.workspace);
    const HipSliceSums<Acc, kBlocksM * kBlocksN * kQuads, C::kAtomicSplit, kThreads> all = {
        workspace + static_cast<u64>(arguments.partial_sums),
        static_cast<u32*>(arguments.workspace) + at.index,
        at.index,
        static_cast<int>(tiles),
        0,
        at.slice,
        C::kSlices,
        fresh_thread<kThreads>()};
    return all.add(sums, memory);
  }

  // ---- stream-K ----

  // Whole tiles, and then the workgroup's share of the steps of the last tiles.
  static __device__ __forceinline__ void run_shares(Shared* memory) {
#pragma unroll 1
    for (int index = 0;; ++index) {
      const HipGemmArguments& arguments = fresh_arguments<HipGemmArguments>();
      const StreamWork work = Shares::work(arguments);
      const StreamItem item = Shares::item(arguments, work, index);
      if (item.tile < 0) break;
      const auto& sizes = Operands::sizes(arguments.gemm);
      const HipTileOrder<C> order(sizes, arguments.raster_group);
      MfmaGemm tile(order.tile(static_cast<u32>(item.tile)), memory);
      tile.multiply(item.begin, item.end,
                    item.end == work.steps ? static_cast<int>(sizes.k) : item.end * C::kTileK);
      if (tile.has_all(index)) tile.store();
    }
  }

  // As add_slices(), of an item that may be whole. What it is is found out again, since scalar
  // registers are few while K is multiplied.
  __device__ __forceinline__ bool has_all(int index) {
    const HipGemmArguments& arguments = fresh_arguments<HipGemmArguments>();
    const StreamWork work = Shares::work(arguments);
    const StreamItem item = Shares::item(arguments, work, index);
    if (item.end - item.begin == work.steps) return true;
    const auto all = Shares::template sums<Acc, kBlocksM * kBlocksN * kQuads, kThreads>(
        arguments, work, item.tile);
    return all.add(sums, memory);
  }

  // ---- store ----

  // A wave stages kStaged neighbouring blocks of its sums in LDS, so that lanes finish and store
  // neighbours of a row together. The code for that exists once: the sums to stage are chosen by
  // branches that all lanes take alike.
  static constexpr int kStaged = mfma_staged_blocks(kShape);
  static constexpr int kPasses = kBlocksM * kBlocksN / kStaged;
  static constexpr int kRowQuads = kStaged * kSide / 4;
  using Staging = LdsTile<kSide, kRowQuads, 1>;
  using Places = ResultPlaces<C, Operands, GemmArguments>;

  __device__ __forceinline__ void store() {
    const GemmArguments& g = Groups::product(part);
    lane = fresh_thread<kThreads>() % kLanes;
    const Finish<C, GemmArguments> finish(g, at.batch);
    Shared* const staging = memory + wave * Staging::kBytes;
#pragma unroll 1
    for (int pass = 0; pass < kPasses; ++pass) {
      stage(staging, pass);
      wave_barrier();
      const int i = pass * kStaged / kBlocksN, j = pass * kStaged % kBlocksN;
#pragma unroll 1
      for (int quad = lane; quad < kSide * kRowQuads; quad += kLanes) {
        const int row = Places::is_scattered() ? quad % kSide : quad / kRowQuads;
        const int column = Places::is_scattered() ? quad / kSide : quad % kRowQuads;
        const i64 to_row = first_row() + i * kSide + row;
        const i64 to_column = first_column() + j * kSide + column * 4;
        const i64 columns = to_row < Operands::sizes(g).m ? g.n - to_column : 0;
        const Chunk words = load_shared<Chunk>(staging + Staging::place(row, column) * 16);
        const Place to = {to_row, to_column, static_cast<int>(columns < 4 ? columns : 4)};
        Places::put(finish, to, bits<Vec<Acc, 4>>(words));
      }
      wave_barrier();
    }
    barrier();
  }

  __device__ __forceinline__ void stage(Shared* staging, int pass) const {
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      if (i != pass) continue;
#pragma unroll
      for (int j = 0; j < kStaged; ++j) {
#pragma unroll
        for (int s = 0; s < kQuads; ++s) {
          const Sum& all = sums[i * kStaged + j];
          const Vec<Acc, 4> quad = {all[4 * s], all[4 * s + 1], all[4 * s + 2], all[4 * s + 3]};
          const int more = j * kSide / 4 + Op::more_quads(s);
          store_shared(staging + Staging::offset(lane % kSide, Op::first_quad(lane), 0, more),
                       bits<Chunk>(quad));
        }
      }
    }
  }

  HipTile at;
  [[no_unique_address]] typename Groups::Part part;
  [[no_unique_address]] Scales scales;
  Shared* memory;
  int thread, lane, wave;
  int row_a, row_b;  // of the lane's first chunks
  Sum sums[kBlocksM * kBlocksN];
};

}  // namespace tessera::device
