// Attention by matrix instructions. A workgroup of kWaves waves makes kBlocks * 32 queries of one
// head a wave, kKeys keys at a time.
//
// Both products are made transposed, so that a lane has one query all the time:
//   scores^T = keys x queries^T      a lane has 16 of 32 keys of its query, lane ^ 32 the others
//   out^T    = values^T x weights^T  weights are the operand as the first product left them
// so weights stay in registers without any exchange between lanes, and maxima, sums and the
// rescaling of the output are numbers of the lane. The one exchange a tile is over lanes l, l + 32.
//
// Config is a struct of types and constants:
//   In, Out                 fp16 or bf16
//   kHeadSize, kHdimV       the longest heads of q and k, of v
//   kBlocks, kWaves, kKeys
//   kLengths, kMasked, kLse
//   kSoftCap, kBias, Bias    what bends scores; the type of an elementwise bias
//   kDropout
//   kCopies                 whether tiles are copied to LDS (gfx950) or go by registers
//   kXcds
//
// Tokens lie in multiples of 16 bytes, elements of a token together; heads have multiples of 8
// elements. The host sees to it that a tile of tokens spans less than 2^31 bytes.
#pragma once

#include "tessera/device/hip/fmha/finished_rows.h"
#include "tessera/device/hip/fmha/fmha_sizes.h"
#include "tessera/device/hip/fmha/kept_weights.h"
#include "tessera/device/hip/fmha/score_bends.h"
#include "tessera/device/hip/fmha/tile_place.h"
#include "tessera/device/hip/fmha/value_tile.h"

namespace tessera::device {

template <class C>
struct MfmaFmha {
  using In = typename C::In;
  using Out = typename C::Out;
  using Op = Mfma<In, In, 32>;
  using Sum = typename Op::Sum;

  static constexpr MfmaFmhaShape kShape = {C::kBlocks,   C::kWaves, C::kKeys,
                                           C::kHeadSize, C::kHdimV, C::kCopies};
  static constexpr int kThreads = mfma_fmha_threads(kShape);
  static constexpr int kWaveRows = C::kBlocks * 32, kTileRows = mfma_fmha_rows(kShape);
  static constexpr int kKeyBlocks = C::kKeys / 32, kHeadBlocks = C::kHdimV / 32;
  static constexpr int kSteps = C::kHeadSize / 16, kPairs = C::kKeys / 16;
  static constexpr int kChunks = C::kHeadSize / 8;
  using Weights = RowWeights<In, kKeyBlocks>;
  using Bends = ScoreBends<C, kKeyBlocks>;

  using KeyTile = LdsTile<C::kKeys, kChunks, 1>;
  using LoadKeys = TokenLoader<KeyTile, C::kKeys, kChunks, kThreads, C::kCopies>;
#if defined(__gfx950__)
  using LoadValues = typename If<C::kCopies, CopiedValues<C::kKeys, C::kHdimV, kThreads>,
                                 TransposedValues<C::kKeys, C::kHdimV, kThreads>>::Type;
#else
  using LoadValues = TransposedValues<C::kKeys, C::kHdimV, kThreads>;
#endif
  using Finished = FinishedRows<Out, C::kHdimV>;
  // Copies go to a second buffer while the first one is read. What comes by registers waits there.
  static constexpr int kStageBytes = KeyTile::kBytes + LoadValues::kBytes;
  static constexpr int kLdsBytes = mfma_fmha_lds_bytes(kShape);
  static_assert((C::kCopies ? 2 : 1) * kStageBytes <= kLdsBytes &&
                C::kWaves * Finished::kBytes <= kLdsBytes);

  static __device__ __forceinline__ void run(const MfmaFmhaArguments&) {
    __shared__ __attribute__((aligned(1024))) static u8 memory[kLdsBytes];
    const MfmaFmhaArguments& arguments = fresh_arguments<MfmaFmhaArguments>();
    const TilePlace<C> place =
        TilePlace<C>::of_workgroup(arguments, __builtin_amdgcn_workgroup_id_x(), kTileRows);
    if (place.first_row >= place.sequence.queries) return;
    MfmaFmha block(arguments.fmha, place, (Shared*)memory);
    block.loop();
    block.store();
  }

 private:
  __device__ __forceinline__ MfmaFmha(const FmhaArguments& g, const TilePlace<C>& place,
                                      Shared* lds)
      : memory(lds),
        thread(fresh_thread<kThreads>()),
        lane(thread % 64),
        wave(__builtin_amdgcn_readfirstlane(thread / 64)),
        group(lane / 32),
        first_row(place.first_row + wave * kWaveRows),
        workgroup(not_ahead(static_cast<int>(__builtin_amdgcn_workgroup_id_x()))),
        keys(place.keys(g), thread),
        values(place.values(g), thread) {
    const float scaled = g.scale * kLog2OfE, size = __builtin_fabsf(scaled);
    scale = size < 1e-30F ? 1e-30F : size;
    factor = Bends::kAny ? 1.0F : scale;
    slack = 8.0F * reciprocal(factor);
    load_queries(fresh_arguments<MfmaFmhaArguments>().fmha, place, scaled < 0 ? 0x80008000U : 0U);
    find_keys(fresh_arguments<MfmaFmhaArguments>().fmha, place);
    find_bends(fresh_arguments<MfmaFmhaArguments>().fmha, place);
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

  // A lane has the chunks of its query that the keys' chunks meet. A negative scale turns queries.
  __device__ __forceinline__ void load_queries(const FmhaArguments& g, const TilePlace<C>& place,
                                               u32 sign) {
    const HeadRows rows = place.queries(g);
    const Chunk buffer = rows.template from<kWaveRows>(first_row);
#pragma unroll
    for (int m = 0; m < C::kBlocks; ++m) {
      const int from = (m * 32 + lane % 32) * rows.pitch + group * 16;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const bool exists = step * 32 + group * 16 < rows.bytes;
        queries[m][step] =
            raw_buffer_load_16(buffer, exists ? from + step * 32 : kNowhere, 0, 0) ^ sign;
      }
    }
  }

  // Which keys the rows see, and which tiles of keys the workgroup and the wave need.
  __device__ __forceinline__ void find_keys(const FmhaArguments& g, const TilePlace<C>& place) {
#pragma unroll
    for (int m = 0; m < C::kBlocks; ++m) seen[m] = place.keys_at(g, row_of(m));
    const RowKeys top = place.keys_at(g, first_row);
    const RowKeys bottom = place.keys_at(g, first_row + kWaveRows - 1);
    some = {top.begin, bottom.end};
    all = {bottom.begin, top.end};
    const int end = place.keys_at(g, place.first_row + kTileRows - 1).end;
    begin_key = place.keys_at(g, place.first_row).begin / C::kKeys * C::kKeys;
    end_key = begin_key > end ? begin_key : end;
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
      bends[m].begin(g, place.sequence, place.batch, place.head, row_of(m), group, scale);
    }
  }

  // ---- the loop ----

  __device__ __forceinline__ void loop() {
    if constexpr (C::kCopies) {
      loop_copied();
    } else {
      loop_staged();
    }
    barrier();
  }

  // Keys and values of the next tile are on their way to the other buffer.
  __device__ __forceinline__ void loop_copied() {
    Shared* now = memory;
    copy(now, begin_key);
#pragma unroll 1
    for (int key = begin_key; key < end_key; key += C::kKeys) {
      Shared* const next = now == memory ? memory + kStageBytes : memory;
      wait_for_loads<0>();
      barrier_between_copies();
      const bool active = is_seen(key);
      if (active) fetch_bends(key);
      if (key + C::kKeys < end_key) copy(next, key + C::kKeys);
      if (active) {
        Sum scores[C::kBlocks][kKeyBlocks];
        Chunk weights[C::kBlocks][kPairs];
        multiply_keys(now, scores);
        weigh(key, scores, weights);
        multiply_values(now + KeyTile::kBytes, weights);
      }
      now = next;
    }
  }
  __device__ __forceinline__ void copy(Shared* to, int key) const {
    keys.copy(to, key, wave);
    values.copy(to + KeyTile::kBytes, key, wave);
  }

  // One buffer of keys and one of values. Between the barriers of a turn the values of this tile
  // and the keys of the next one are put there, while weights are made.
  __device__ __forceinline__ void loop_staged() {
    Shared* const of_values = memory + KeyTile::kBytes;
    typename LoadValues::Staged staged_values;
    typename LoadKeys::Staged staged_keys;
    values.fetch(staged_values, begin_key);
    keys.fetch(staged_keys, begin_key);
    keys.put(memory, staged_keys);
    keys.fetch(staged_keys, begin_key + C::kKeys);
    barrier();
#pragma unroll 1
    for (int key = begin_key; key < end_key; key += C::kKeys) {
      const bool active = is_seen(key);
      Sum scores[C::kBlocks][kKeyBlocks];
      Chunk weights[C::kBlocks][kPairs];
      if (active) fetch_bends(key);
      if (active) multiply_keys(memory, scores);
      barrier();  // keys of this tile and values of the last one have been read
      values.put(of_values, staged_values);
      keys.put(memory, staged_keys);
      values.fetch(staged_values, key + C::kKeys);
      keys.fetch(staged_keys, key + 2 * C::kKeys);
      if (active) weigh(key, scores, weights);
      barrier_between_copies();
      if (active) multiply_values(of_values, weights);
    }
  }

  __device__ __forceinline__ void fetch_bends(int key) {
#pragma unroll
    for (int m = 0; m < C::kBlocks; ++m) bends[m].fetch(biases[m], key);
  }
  __device__ __forceinline__ bool is_seen(int key) const {
    return !C::kMasked || (key < some.end && key + C::kKeys > some.begin);
  }

  // Chunks of so many steps are on their way from LDS while a step is multiplied.
  static constexpr int kAhead = 1, kRing = kAhead + 1;
  // Vector, scalar and memory instructions may be moved across; reads of LDS and MFMAs stay.
  static __device__ __forceinline__ void keep_order() {
    __builtin_amdgcn_sched_barrier(0x2 | 0x4 | 0x10);
  }

  __device__ __forceinline__ void multiply_keys(const Shared* tile,
                                                Sum (&scores)[C::kBlocks][kKeyBlocks]) const {
    Chunk ring[kRing][kKeyBlocks];
    const auto read = [&](int step) {
#pragma unroll
      for (int b = 0; b < kKeyBlocks; ++b) {
        ring[step % kRing][b] =
            load_shared<Chunk>(tile + KeyTile::offset(lane % 32, group, b * 32, step * 2));
      }
    };
    __builtin_amdgcn_s_setprio(1);
#pragma unroll
    for (int step = 0; step < kAhead; ++step) read(step);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step + kAhead < kSteps) read(step + kAhead);
      keep_order();
#pragma unroll
      for (int part = 0; part < Op::kParts; ++part) {
#pragma unroll
        for (int b = 0; b < kKeyBlocks; ++b) {
#pragma unroll
          for (int m = 0; m < C::kBlocks; ++m) {
            const Sum before = step + part == 0 ? Sum(0.0F) : scores[m][b];
            scores[m][b] = Op::step(part, ring[step % kRing][b], queries[m][step], before);
          }
        }
      }
      keep_order();
    }
    __builtin_amdgcn_s_setprio(0);
  }

  __device__ __forceinline__ void weigh(int key, Sum (&scores)[C::kBlocks][kKeyBlocks],
                                        Chunk (&weights)[C::kBlocks][kPairs]) {
    if constexpr (Bends::kAny) {
#pragma unroll
      for (int m = 0; m < C::kBlocks; ++m) bends[m].bend(scores[m], biases[m], key, scale);
    }
    if (key < all.begin || key + C::kKeys > all.end) {
#pragma unroll
      for (int m = 0; m < C::kBlocks; ++m) Weights::mask(scores[m], seen[m], key, group);
    }
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
  }

  __device__ __forceinline__ auto drawn(int block, int key) const {
    if constexpr (C::kDropout) {
      return KeptWeights(dropout, kept, DropoutRow{row_of(block), dropped_head}, key, lane);
    } else {
      return AllWeights();
    }
  }

  // A step is 16 keys and kTogether blocks of the head.
  static constexpr int kTogether = kHeadBlocks % 2 == 0 ? 2 : 1;
  static constexpr int kValueSteps = kPairs * kHeadBlocks / kTogether;
  __device__ __forceinline__ void multiply_values(const Shared* tile,
                                                  const Chunk (&weights)[C::kBlocks][kPairs]) {
    Chunk ring[kRing][kTogether];
    const auto read = [&](int step) {
      const int first = step * kTogether;
#pragma unroll
      for (int d = 0; d < kTogether; ++d) {
        ring[step % kRing][d] =
            LoadValues::read(tile, lane, first % kHeadBlocks + d, first / kHeadBlocks);
      }
    };
    __builtin_amdgcn_s_setprio(1);
#pragma unroll
    for (int step = 0; step < kAhead; ++step) read(step);
#pragma unroll
    for (int step = 0; step < kValueSteps; ++step) {
      if (step + kAhead < kValueSteps) read(step + kAhead);
      keep_order();
      const int first = step * kTogether % kHeadBlocks, pair = step * kTogether / kHeadBlocks;
#pragma unroll
      for (int part = 0; part < Op::kParts; ++part) {
#pragma unroll
        for (int d = 0; d < kTogether; ++d) {
#pragma unroll
          for (int m = 0; m < C::kBlocks; ++m) {
            Sum& sum = sums[m][first + d];
            sum = Op::step(part, ring[step % kRing][d], weights[m][pair], sum);
          }
        }
      }
      keep_order();
    }
    __builtin_amdgcn_s_setprio(0);
  }

  // ---- store ----

  __device__ __forceinline__ void store() {
    const MfmaFmhaArguments& arguments = fresh_arguments<MfmaFmhaArguments>();
    const FmhaArguments& g = arguments.fmha;
    // The loop has no scalar registers for what is known anew here.
    const auto index = static_cast<u32>(__builtin_amdgcn_readfirstlane(workgroup));
    const TilePlace<C> place = TilePlace<C>::of_workgroup(arguments, index, kTileRows);
    thread = fresh_thread<kThreads>();
    lane = thread % 64;
    wave = __builtin_amdgcn_readfirstlane(thread / 64);
    first_row = place.first_row + wave * kWaveRows;
    group = lane / 32;
    Shared* const staging = memory + wave * Finished::kBytes;
    const i64 from =
        token_offset(g.out_stride, place.own_batch(), place.head, place.sequence.first_query);
    Out* const out = static_cast<Out*>(g.out) + from;
    const int queries = static_cast<int>(place.sequence.queries);
#pragma unroll
    for (int m = 0; m < C::kBlocks; ++m) {
      const float sum =
          over_halves(state[m].sums[0] + state[m].sums[1], [](float a, float b) { return a + b; });
      const float share = sum == 0 ? 0.0F : reciprocal(sum);
      Finished::put(staging, sums[m], C::kDropout ? share * dropout_scale(g) : share, lane);
      if (C::kLse && group == 0 && row_of(m) < queries) {
        const float power =
            state[m].reference * factor + __builtin_amdgcn_logf(sum) - kWeightShift<In>;
        const float lse = power * 0.693147181F;
        g.lse[place.lse_offset(g, row_of(m))] = Bends::kReads ? brought_back(lse) : lse;
      }
      wave_barrier();
      const int row = first_row + m * 32;
      Finished::store(staging, out + row * g.out_stride[kToken], g.out_stride[kToken],
                      queries - row, static_cast<int>(g.hdim_v) / 8, lane);
      wave_barrier();
    }
  }

  Shared* memory;
  int thread, lane, wave, group;
  int first_row;  // of the wave
  int workgroup;
  LoadKeys keys;
  LoadValues values;
  float scale, factor, slack;
  DropoutKey dropout = {};
  int kept = 0;
  int dropped_head = 0;
  RowKeys some, all;  // keys that a row of the wave sees, that all of them see
  int begin_key, end_key;
  RowKeys seen[C::kBlocks];
  Bends bends[C::kBlocks];
  typename Bends::Staged biases[C::kBlocks];
  RowState state[C::kBlocks];
  Chunk queries[C::kBlocks][kSteps];
  Sum sums[C::kBlocks][kHeadBlocks];
};

}  // namespace tessera::device
