// Attention by matrix instructions. A workgroup of kWaves waves makes kBlocks * 32 rows a wave,
// kKeys keys at a time. Rows are the queries of one head.
//
// Both products are made transposed, so that a lane has one row all the time:
//   scores^T = keys x queries^T      a lane has 16 of 32 keys of its row, lane ^ 32 the others
//   out^T    = values^T x weights^T  weights are the operand as the first product left them
// so weights stay in registers without any exchange between lanes, and maxima, sums and the
// rescaling of the output are numbers of the lane. The one exchange a tile is over lanes l, l + 32.
//
// With kSplit keys are cut into parts. Rows are the queries of all heads of a key-value head then,
// kTeams waves share rows and have different keys of a tile, and mfma_parts.h says where their sums
// go.
//
// Config is a struct of types and constants:
//   In, Kv, Out             fp16 or bf16; 8 bits, of keys and values (Kv) or of queries (In), too
//   kQscale                 what numbers of 8 bits are multiplied by
//   kByteWeights            whether weights are rounded to e4m3 and values stay as they are
//   kHeadSize, kHdimV       the longest heads of q and k, of v
//   kBlocks, kWaves, kKeys, kTeams, kSplit
//   kLengths, kPages, kMasked, kLse
//   kSoftCap, kBias, Bias    what bends scores; the type of an elementwise bias
//   kDropout
//   kCopies                 whether tiles are copied to LDS (gfx950) or go by registers
//   kXcds
//
// Tokens lie in multiples of 16 bytes, elements of a token together; heads have multiples of 8
// elements. The host sees to it that a tile of tokens spans less than 2^31 bytes.
#pragma once

#include "tessera/device/hip/fmha/byte_factors.h"
#include "tessera/device/hip/fmha/check_pages.h"
#include "tessera/device/hip/fmha/finished_rows.h"
#include "tessera/device/hip/fmha/fmha_sizes.h"
#include "tessera/device/hip/fmha/kept_weights.h"
#include "tessera/device/hip/fmha/mfma_parts.h"
#include "tessera/device/hip/fmha/mfma_products.h"
#include "tessera/device/hip/fmha/own_queries.h"
#include "tessera/device/hip/fmha/score_bends.h"
#include "tessera/device/hip/fmha/seen_tiles.h"

namespace tessera::device {

template <class C>
struct MfmaFmha {
  using In = typename C::In;
  using Out = typename C::Out;

  static constexpr MfmaFmhaShape kShape = {.blocks = C::kBlocks,
                                           .waves = C::kWaves,
                                           .keys = C::kKeys,
                                           .head = C::kHeadSize,
                                           .head_v = C::kHdimV,
                                           .copies = C::kCopies,
                                           .teams = C::kSplit ? C::kTeams : 0,
                                           .kv_bytes = TilePlace<C>::kKvSize,
                                           .out_bytes = static_cast<int>(sizeof(Out))};
  static constexpr int kThreads = mfma_fmha_threads(kShape);
  static constexpr int kWaveRows = C::kBlocks * 32, kTileRows = mfma_fmha_rows(kShape);
  static constexpr bool kPaged = C::kPages != FmhaPages::none;

  using Products = MfmaProducts<C, kThreads>;
  using Sum = typename Products::Sum;
  using LoadKeys = typename Products::Keys;
  using LoadValues = typename Products::Values;
  static constexpr int kOwnKeys = Products::kOwnKeys, kKeyBlocks = Products::kKeyBlocks;
  static constexpr int kHeadBlocks = Products::kHeadBlocks;
  static constexpr int kChunks = Products::kWeights;
  using Weight = typename Products::Weight;
  using Weights = RowWeights<Weight, kKeyBlocks>;
  using Queries = OwnQueries<C, Products::kOfQuery, Products::kEach>;
  using Factors = ByteFactors<C>;
  using Bends = ScoreBends<C, kKeyBlocks>;
  using Ahead =
      typename If<kPaged, PagedHead<C::kKeys, TilePlace<C>::kKvSize>, RowsInOrder<C::kSplit>>::Type;
  using Finished = FinishedRows<Out, C::kHdimV>;

  // Copies go to a second buffer while the first one is read. What comes by registers waits there.
  static constexpr int kStageBytes = LoadKeys::kBytes + LoadValues::kBytes;
  static constexpr int kLdsBytes = mfma_fmha_lds_bytes(kShape);
  static constexpr bool kStages = !C::kSplit && sizeof(Out) == 2;  // results
  static_assert((C::kCopies ? 2 : 1) * kStageBytes <= kLdsBytes &&
                (!kStages || C::kWaves * Finished::kBytes <= kLdsBytes));
  using Parts = MfmaParts<C, kTileRows, kLdsBytes>;

  static __device__ __forceinline__ void run(const MfmaFmhaArguments&) {
    __shared__ __attribute__((aligned(1024))) static u8 memory[kLdsBytes];
    const MfmaFmhaArguments& arguments = fresh_arguments<MfmaFmhaArguments>();
    if (kPaged && has_bad_page(arguments.fmha)) return;
    const TilePlace<C> place = place_of(arguments, __builtin_amdgcn_workgroup_id_x());
    if (place.first_row >= place.rows(arguments.fmha)) return;
    MfmaFmha block(arguments.fmha, place, (Shared*)memory);
    block.loop();
    if constexpr (C::kSplit) {
      block.store_part();
    } else {
      block.store();
    }
  }
  static __device__ __forceinline__ void merge(const MfmaFmhaArguments&) {
    __shared__ __attribute__((aligned(1024))) static u8 memory[Parts::kMergeBytes];
    if (kPaged && has_bad_page(fresh_arguments<MfmaFmhaArguments>().fmha)) return;
    Parts::merge((Shared*)memory);
  }
  static __device__ __forceinline__ void check(const MfmaFmhaArguments&) {
    check_pages<C::kLengths, C::kPages>(fresh_arguments<MfmaFmhaArguments>().fmha);
  }

 private:
  // The workgroups of a tile's parts are neighbours.
  static __device__ __forceinline__ TilePlace<C> place_of(const MfmaFmhaArguments& arguments,
                                                          u32 index) {
    if constexpr (C::kSplit) index /= static_cast<u32>(arguments.parts);
    return TilePlace<C>::of_workgroup(arguments, index, kTileRows);
  }

  __device__ __forceinline__ MfmaFmha(const FmhaArguments& g, const TilePlace<C>& place,
                                      Shared* lds)
      : memory(lds),
        thread(fresh_thread<kThreads>()),
        lane(thread % 64),
        wave(__builtin_amdgcn_readfirstlane(thread / 64)),
        group(lane / 32),
        first_row(place.first_row + wave / C::kTeams * kWaveRows),
        own_key(wave % C::kTeams * kOwnKeys),
        workgroup(not_ahead(static_cast<int>(__builtin_amdgcn_workgroup_id_x()))),
        keys(place.keys(g), thread),
        values(place.values(g), thread) {
    const float scaled = g.scale * kLog2OfE, size = __builtin_fabsf(scaled);
    scale = size < 1e-30F ? 1e-30F : size;
    // Scores of 8 bits are multiplied by their factors before all else.
    if constexpr (Factors::kAny) scale = kLog2OfE;
    factor = Bends::kAny || Factors::kAny ? 1.0F : scale;
    slack = kWeightSlack<Weight> * reciprocal(factor);
    const u32 sign = scaled < 0 && !Factors::kAny ? 0x80008000U : 0U;
    Queries::load(fresh_arguments<MfmaFmhaArguments>().fmha, place, first_row, lane, sign, queries);
    seen.find(fresh_arguments<MfmaFmhaArguments>(), place, first_row, lane);
    find_bends(fresh_arguments<MfmaFmhaArguments>().fmha, place);
    find_factors(fresh_arguments<MfmaFmhaArguments>().fmha, place);
    // With several blocks, clang 22 spills some of the zeros that it knows.
    float zero = 0;
    if constexpr (C::kBlocks > 1) asm volatile("" : "+v"(zero));
#pragma unroll
    for (int m = 0; m < C::kBlocks; ++m) {
#pragma unroll
      for (int d = 0; d < kHeadBlocks; ++d) sums[m][d] = Sum(zero);
      if constexpr (Bends::kReads) state[m].reference = kNothingWithBias;
    }
  }

  __device__ __forceinline__ int row_of(int block) const {
    return first_row + block * 32 + lane % 32;
  }

  __device__ __forceinline__ void find_bends(const FmhaArguments& g, const TilePlace<C>& place) {
    if constexpr (C::kDropout) {
      const DropoutKey key = dropout_key(g);
      // The loop has no scalar registers for all this.
      dropout = {same_in_all(key.low), same_in_all(key.high),
                 static_cast<u32>(not_ahead(static_cast<int>(key.offset)))};
      kept = not_ahead(g.kept);
      dropped_head = not_ahead(static_cast<int>(dropout_row(g, place.batch, place.head, 0).head));
    }
#pragma unroll
    for (int m = 0; m < C::kBlocks; ++m) {
      const int row = C::kSplit ? place.up_to_last(g, row_of(m)) : row_of(m);
      bends[m].begin(g, place.sequence, place.batch, place.head_of(g, row), place.query_of(g, row),
                     group, scale);
    }
  }

  __device__ __forceinline__ void find_factors(const FmhaArguments& g, const TilePlace<C>& place) {
    if constexpr (Factors::kAny) {
      factors.begin(g, place);
      const float more = Bends::kAny ? 1.0F : kLog2OfE;
#pragma unroll
      for (int m = 0; m < C::kBlocks; ++m) factors.begin_row(g, place, m, row_of(m), more);
    }
  }

  // ---- the loop ----

  __device__ __forceinline__ Ahead ahead_of() const {
    if constexpr (kPaged) {
      const MfmaFmhaArguments& arguments = fresh_arguments<MfmaFmhaArguments>();
      const auto index = static_cast<u32>(__builtin_amdgcn_readfirstlane(workgroup));
      return Ahead(arguments.fmha, place_of(arguments, index).sequence, seen.end_of_reads, lane);
    } else {
      return Ahead(seen.end_key);
    }
  }

  __device__ __forceinline__ void loop() {
    if (!kPaged || seen.begin_key < seen.end_key) {
      if constexpr (C::kCopies) {
        loop_copied();
      } else {
        loop_staged();
      }
    }
    barrier();
  }

  // Keys and values of the next tile are on their way to the other buffer.
  __device__ __forceinline__ void loop_copied() {
    Ahead ahead = ahead_of();
    ahead.ask(seen.begin_key);
    Shared* now = memory;
    copy(now, ahead, seen.begin_key);
#pragma unroll 1
    for (int key = seen.begin_key; key < seen.end_key; key = seen.after(key)) {
      Shared* const next = now == memory ? memory + kStageBytes : memory;
      wait_for_loads<0>();
      barrier_between_copies();
      const bool active = seen.has(key + own_key);
      if (active) fetch_bends(key);
      if (seen.after(key) < seen.end_key) copy(next, ahead, seen.after(key));
      if (active) {
        Sum scores[C::kBlocks][kKeyBlocks];
        Chunk weights[C::kBlocks][kChunks];
        Products::multiply_keys(now, lane, own_key, queries, scores);
        weigh(key + own_key, scores, weights);
        Products::multiply_values(now + LoadKeys::kBytes, lane, own_key, weights, sums);
      }
      now = next;
    }
  }
  __device__ __forceinline__ void copy(Shared* to, Ahead& ahead, int key) const {
    keys.copy(to, ahead.keys(key), wave);
    values.copy(to + LoadKeys::kBytes, ahead.values(key), wave);
    ahead.ask(seen.after(key));
  }

  // One buffer of keys and one of values. Between the barriers of a turn the values of this tile
  // and the keys of the next one are put there, while weights are made.
  __device__ __forceinline__ void loop_staged() {
    Shared* const tile_of_values = memory + LoadKeys::kBytes;
    typename LoadValues::Staged staged_values;
    typename LoadKeys::Staged staged_keys;
    Ahead ahead = ahead_of();
    ahead.ask(seen.begin_key);
    const auto first = ahead.keys(seen.begin_key);
    values.fetch(staged_values, ahead.values(seen.begin_key));
    keys.fetch(staged_keys, first);
    ahead.ask(seen.after(seen.begin_key));
    keys.put(memory, staged_keys);
    keys.fetch(staged_keys, ahead.keys(seen.after(seen.begin_key)));
    ahead.ask(seen.after(seen.after(seen.begin_key)));
    barrier();
#pragma unroll 1
    for (int key = seen.begin_key; key < seen.end_key; key = seen.after(key)) {
      const bool active = seen.has(key + own_key);
      Sum scores[C::kBlocks][kKeyBlocks];
      Chunk weights[C::kBlocks][kChunks];
      if (active) fetch_bends(key);
      if (active) Products::multiply_keys(memory, lane, own_key, queries, scores);
      barrier();  // keys of this tile and values of the last one have been read
      values.put(tile_of_values, staged_values);
      keys.put(memory, staged_keys);
      const int next = seen.after(key), next_keys = seen.after(next);
      values.fetch(staged_values, ahead.values(next));
      keys.fetch(staged_keys, ahead.keys(next_keys));
      ahead.ask(seen.after(next_keys));
      if (active) weigh(key + own_key, scores, weights);
      barrier_between_copies();
      if (active) Products::multiply_values(tile_of_values, lane, own_key, weights, sums);
    }
  }

  __device__ __forceinline__ void fetch_bends(int key) {
#pragma unroll
    for (int m = 0; m < C::kBlocks; ++m) bends[m].fetch(biases[m], key + own_key);
    if constexpr (Factors::kAny) factors.fetch(key + own_key);
  }
  __device__ __forceinline__ void hide(Sum (&scores)[C::kBlocks][kKeyBlocks], int key) const {
#pragma unroll
    for (int m = 0; m < C::kBlocks; ++m) {
      Weights::template mask<C::kMasked>(scores[m], seen.rows[m], seen.sink, key, group);
    }
  }

  __device__ __forceinline__ void weigh(int key, Sum (&scores)[C::kBlocks][kKeyBlocks],
                                        Chunk (&weights)[C::kBlocks][kChunks]) {
#pragma unroll
    for (int m = 0; m < C::kBlocks; ++m) factors.multiply(m, scores[m]);
    if constexpr (Bends::kAny) {
#pragma unroll
      for (int m = 0; m < C::kBlocks; ++m) bends[m].bend(scores[m], biases[m], key, scale);
    }
    if (key < seen.all.begin || key + kOwnKeys > seen.all.end) hide(scores, key);
#pragma unroll
    for (int m = 0; m < C::kBlocks; ++m) {
      const float reference = Weights::largest(scores[m], state[m].reference);
      // Sums stay as they are while no weight is larger than 2^8.
      if (__builtin_amdgcn_ballot_w64(!(reference <= state[m].reference + slack)) != 0) {
        const float less = exp2_fast((state[m].reference - reference) * factor);
        state[m].reference = reference;
        state[m].sums *= less;
#pragma unroll
        for (int d = 0; d < kHeadBlocks; ++d) sums[m][d] *= less;
      }
      Weights::weigh(scores[m], factor, state[m], drawn(m, key), weights[m]);
    }
    if constexpr (Factors::kAny) factors.turn(sums, weights);
  }

  __device__ __forceinline__ auto drawn(int block, int key) const {
    if constexpr (C::kDropout) {
      return KeptWeights(dropout, kept, DropoutRow{row_of(block), dropped_head}, key, lane);
    } else {
      return AllWeights();
    }
  }

  // ---- store ----

  // What is made of the thread's number, anew: the loop has no registers for it.
  __device__ __forceinline__ TilePlace<C> find_place_again() {
    const auto index = static_cast<u32>(__builtin_amdgcn_readfirstlane(workgroup));
    const TilePlace<C> place = place_of(fresh_arguments<MfmaFmhaArguments>(), index);
    thread = fresh_thread<kThreads>();
    lane = thread % 64;
    wave = __builtin_amdgcn_readfirstlane(thread / 64);
    first_row = place.first_row + wave / C::kTeams * kWaveRows;
    group = lane / 32;
    return place;
  }
  __device__ __forceinline__ float sum_of(int block) const {
    return over_halves(state[block].sums[0] + state[block].sums[1],
                       [](float a, float b) { return a + b; });
  }

  __device__ __forceinline__ void store() {
    const FmhaArguments& g = fresh_arguments<MfmaFmhaArguments>().fmha;
    const TilePlace<C> place = find_place_again();
    Shared* const staging = memory + wave * Finished::kBytes;
    const i64 from =
        token_offset(g.out_stride, place.own_batch(), place.head, place.sequence.first_query);
    Out* const out = static_cast<Out*>(g.out) + from;
    const int queries = static_cast<int>(place.sequence.queries);
#pragma unroll
    for (int m = 0; m < C::kBlocks; ++m) {
      const float sum = sum_of(m);
      float share = sum == 0 ? 0.0F : reciprocal(sum);
      if constexpr (C::kDropout) share *= dropout_scale(g);
      if constexpr (Factors::kAny) share *= factors.of_sums();
      if constexpr (sizeof(Out) == 2) Finished::put(staging, sums[m], share, lane);
      if (C::kLse && group == 0 && row_of(m) < queries) {
        const float power =
            state[m].reference * factor + __builtin_amdgcn_logf(sum) - kWeightShift<Weight>;
        const float lse = power * 0.693147181F;
        g.lse[place.lse_offset(g, row_of(m))] = Bends::kReads ? brought_back(lse) : lse;
      }
      const int row = first_row + m * 32;
      if constexpr (sizeof(Out) != 2) {
        if (row + lane % 32 < queries) {
          Out* const to = out + (row + lane % 32) * g.out_stride[kToken] + 4 * group;
          store_quads<C>(to, sums[m], share, static_cast<int>(g.hdim_v) - 4 * group);
        }
        continue;
      }
      wave_barrier();
      Finished::store(staging, out + row * g.out_stride[kToken], g.out_stride[kToken],
                      queries - row, static_cast<int>(g.hdim_v) / 8, lane);
      wave_barrier();
    }
  }

  __device__ __forceinline__ void store_part() {
    const TilePlace<C> place = find_place_again();
    const auto index = static_cast<u32>(__builtin_amdgcn_readfirstlane(workgroup));
    const float power = state[0].reference * factor - kWeightShift<Weight>;
    Parts::store(memory, sums[0], {power, sum_of(0)}, factors.of_sums(), place, index, wave, lane);
  }

  Shared* memory;
  int thread, lane, wave, group;
  int first_row;  // of the wave
  int own_key;    // the first one of a tile that the wave multiplies
  int workgroup;
  LoadKeys keys;
  LoadValues values;
  float scale, factor, slack;
  DropoutKey dropout = {};
  int kept = 0;
  int dropped_head = 0;
  SeenTiles<C> seen;
  Factors factors;
  Bends bends[C::kBlocks];
  typename Bends::Staged biases[C::kBlocks];
  RowState state[C::kBlocks];
  Chunk queries[C::kBlocks][Products::kOfQuery];
  Sum sums[C::kBlocks][kHeadBlocks];
};

}  // namespace tessera::device
