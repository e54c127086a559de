// Attention by WMMA (RDNA 3 and RDNA 4). A workgroup of kWaves waves makes 16 rows a wave, kKeys
// keys at a time. Rows are the queries of one head.
//
// Both products are made transposed, as in mfma_fmha.h:
//   scores^T = keys x queries^T      a lane has 8 of 16 keys of its row, lane ^ 16 the others
//   out^T    = values^T x weights^T  weights are the operand as the first product left them
// RDNA 3 wants all 16 keys of a row in both lanes, which exchange their halves of the weights.
//
// Config is a struct of types and constants:
//   In, Out                 fp16 or bf16; Kv is In
//   kHeadSize, kHdimV       the longest heads of q and k, of v
//   kWaves, kKeys
//   kLengths, kMasked, kLse
//   kSoftCap, kBias, Bias   what bends scores; the type of an elementwise bias
//   kPages, kSplit, kXcds   none, false, 1: what other kernels choose from
//
// Tokens lie in multiples of 16 bytes, elements of a token together; heads have multiples of 8
// elements. The host sees to it that a tile of tokens spans less than 2^31 bytes.
#pragma once

#include "tessera/device/hip/fmha/tile_place.h"
#include "tessera/device/hip/fmha/wmma_sizes.h"
#include "tessera/device/hip/fmha/words.h"
#include "tessera/device/hip/matrix.h"
#include "tessera/device/hip/operand_rows.h"

namespace tessera::device {

template <class C>
struct WmmaFmha {
  using In = typename C::In;
  using Out = typename C::Out;
  using Op = MatrixOp<In, In, 16>;
  using Sum = typename Op::Sum;
  using Operand = typename Op::Lane;

  static constexpr WmmaFmhaShape kShape = {C::kWaves, C::kKeys, C::kHeadSize, C::kHdimV};
  static constexpr int kThreads = wmma_fmha_threads(kShape), kTileRows = 16 * C::kWaves;
  static constexpr int kHeadChunks = C::kHeadSize / 8;
  static constexpr int kStepChunks = Op::kGroups * Op::kLaneChunks;
  static constexpr int kSteps = kHeadChunks / kStepChunks;  // along a head
  static constexpr int kKeyBlocks = C::kKeys / 16, kHeadBlocks = C::kHdimV / 16;
  static_assert(kThreads == kLanes * C::kWaves && Op::kParts == 1 && kStepChunks == 2);

  using KeyTile = LdsTile<C::kKeys, kHeadChunks, 1>;
  using LoadKeys = TokenLoader<KeyTile, C::kKeys, kHeadChunks, kThreads, false>;
  using LoadValues = RowLoader<In, C::kHdimV, C::kKeys, kThreads, 1>;
  using ValueTile = typename LoadValues::Tile;
  static constexpr int kLdsBytes = wmma_fmha_lds_bytes(kShape);
  static_assert(KeyTile::kBytes + ValueTile::kBytes == kLdsBytes);

  static __device__ __forceinline__ void run(const MfmaFmhaArguments&) {
    __shared__ __attribute__((aligned(1024))) static u8 memory[kLdsBytes];
    const MfmaFmhaArguments& arguments = fresh_arguments<MfmaFmhaArguments>();
    const auto place =
        TilePlace<C>::of_workgroup(arguments, __builtin_amdgcn_workgroup_id_x(), kTileRows);
    if (place.first_row >= place.rows(arguments.fmha)) return;
    WmmaFmha block(arguments.fmha, place, (Shared*)memory);
    block.loop();
    block.store();
  }

 private:
  __device__ __forceinline__ WmmaFmha(const FmhaArguments& arguments, const TilePlace<C>& at,
                                      Shared* lds)
      : g(arguments),
        place(at),
        memory(lds),
        thread(fresh_thread<kThreads>()),
        lane(thread % kLanes),
        first_row(at.first_row + __builtin_amdgcn_readfirstlane(thread / kLanes) * 16),
        row(at.up_to_last(arguments, first_row + lane % 16)) {
    const FmhaKeys seen = keys_of<C::kMasked>(g, place.sequence, row);
    sink = static_cast<int>(seen.sink);
    begin = static_cast<int>(seen.begin);
    end = static_cast<int>(seen.end);
    load_queries();
#pragma unroll
    for (int d = 0; d < kHeadBlocks; ++d) sums[d] = Sum(0.0F);
  }

  __device__ __forceinline__ void load_queries() {
    const HeadRows rows = place.queries(g);
    const Chunk buffer = rows.template from<16>(first_row);
    const int from = lane % 16 * rows.pitch;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      queries[step] = Op::read([&](int more) __attribute__((always_inline)) {
        const int byte = (step * kStepChunks + more + Op::group_of_k(lane)) * 16;
        return raw_buffer_load_16(buffer, byte < rows.bytes ? from + byte : kNowhere, 0, 0);
      });
    }
  }

  // ---- the loop ----

  // The keys that some row of the workgroup sees lie in this range, which begins with the sink.
  __device__ __forceinline__ int first_key() const {
    if (!C::kMasked || g.sink > 0) return 0;
    return static_cast<int>(keys_of<C::kMasked>(g, place.sequence, place.first_row).begin);
  }
  __device__ __forceinline__ int last_key() const {
    const int last = place.up_to_last(g, place.first_row + kTileRows - 1);
    return static_cast<int>(keys_of<C::kMasked>(g, place.sequence, last).end);
  }

  // The next tile is on its way to registers while this one is multiplied.
  __device__ __forceinline__ void loop() {
    const int from = first_key(), to = last_key();
    if (from >= to) return;  // where there is no key, there are no strides
    const HeadRows tokens = place.values(g);
    const LoadKeys keys(place.keys(g), thread);
    LoadValues values(HipOperand{tokens.address, tokens.pitch / 2, tokens.bytes / 2, tokens.tokens},
                      0, from, thread);
    typename LoadKeys::Staged staged_keys;
    typename LoadValues::Staged staged_values;
    keys.fetch(staged_keys, from);
    values.fetch(staged_values);
#pragma unroll 1
    for (int key = from; key < to; key += C::kKeys) {
      barrier();  // the last tile has been read
      keys.put(memory, staged_keys);
      values.put(memory + KeyTile::kBytes, staged_values);
      keys.fetch(staged_keys, key + C::kKeys);
      values.fetch(staged_values);
      barrier();
      if (lanes_with(sees_some(key)) == 0) continue;
      Sum scores[kKeyBlocks];
      Operand weights[kKeyBlocks];
      multiply_keys(scores);
      weigh(key, scores, weights);
      multiply_values(weights);
    }
  }

  __device__ __forceinline__ bool sees_some(int key) const {
    return key < sink || (key < end && key + C::kKeys > begin);
  }
  __device__ __forceinline__ bool sees_all(int key) const {
    return key >= begin && key + C::kKeys <= end;
  }

  // The lane's part of `step` of rows from 16 * block on of a tile whose rows are First.
  template <class Tile>
  static __device__ __forceinline__ Operand read_tile(const Shared* tile, int lane, int block,
                                                      int step) {
    return Op::read([&](int more) __attribute__((always_inline)) {
      return load_shared<Chunk>(tile + Tile::offset(Op::row_of_first(lane), Op::group_of_k(lane),
                                                    block * 16, step * kStepChunks + more));
    });
  }
  // The compiler would begin all reads at once, and keep all their addresses, for which there are
  // no registers.
  static constexpr int kReadsAtOnce = 4;
  static __device__ __forceinline__ void count_read(int done) {
    if (done % kReadsAtOnce == 0) __builtin_amdgcn_sched_barrier(0);
  }
  __device__ __forceinline__ void multiply_keys(Sum (&scores)[kKeyBlocks]) const {
    const int own = not_ahead(lane);
#pragma unroll
    for (int b = 0; b < kKeyBlocks; ++b) scores[b] = Sum(0.0F);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int b = 0; b < kKeyBlocks; ++b) {
        scores[b] = Op::step(0, read_tile<KeyTile>(memory, own, b, step), queries[step], scores[b]);
        count_read(step * kKeyBlocks + b + 1);
      }
    }
  }
  __device__ __forceinline__ void multiply_values(const Operand (&weights)[kKeyBlocks]) {
    const Shared* const tile = memory + KeyTile::kBytes;
    const int own = not_ahead(lane);
#pragma unroll
    for (int b = 0; b < kKeyBlocks; ++b) {
#pragma unroll
      for (int d = 0; d < kHeadBlocks; ++d) {
        sums[d] = Op::step(0, read_tile<ValueTile>(tile, own, d, b), weights[b], sums[d]);
        count_read(b * kHeadBlocks + d + 1);
      }
    }
  }

  // ---- weights ----

  // The key of a lane's score, counted from the begin of the tile.
  __device__ __forceinline__ int key_of(int block, int i) const {
    return block * 16 + lane / 16 * 8 + i;
  }
  // Makes scores of the products of 8 neighbouring keys and the lane's row.
  __device__ __forceinline__ void bend(Sum& scores, int block, int tile_key) const {
    const FmhaArguments& all = fresh_arguments<MfmaFmhaArguments>().fmha;
    const int key = tile_key + key_of(block, 0);
    scores *= all.scale;
    if constexpr (C::kSoftCap) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        scores[i] = all.soft_cap * tanh_fast(scores[i] * reciprocal(all.soft_cap));
      }
    }
    if constexpr (C::kBias == FmhaBias::elementwise) add_bias(all, scores, not_ahead(key));
    if constexpr (C::kBias == FmhaBias::alibi) {
      const float slope = load_element(all.slopes + place.batch * all.slope_stride + place.head);
      const int diagonal = row + static_cast<int>(place.sequence.keys - place.sequence.queries);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int distance = diagonal - key - i;
        scores[i] -= slope * static_cast<float>(distance < 0 ? -distance : distance);
      }
    }
  }
  // Keys behind the last one, which no row sees, get the last one's.
  __device__ __forceinline__ void add_bias(const FmhaArguments& all, Sum& scores, int key) const {
    using Bias = typename C::Bias;
    const i64 stride = all.bias_stride[3];
    const Bias* const first = static_cast<const Bias*>(all.bias) +
                              place.batch * all.bias_stride[0] + place.head * all.bias_stride[1] +
                              row * all.bias_stride[2];
    const int last = static_cast<int>(place.sequence.keys) - 1;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int at = key + i < last ? key + i : last;
      scores[i] += widened(load_element(first + at * stride));
    }
  }
  __device__ __forceinline__ bool sees(int key) const {
    return key < sink || (key >= begin && key < end);
  }

  template <class F>
  static __device__ __forceinline__ float with_other_half(float x, F f) {
    return f(x, from_lane(x, lane_of_wave() ^ 16));
  }

  __device__ __forceinline__ void weigh(int key, Sum (&scores)[kKeyBlocks],
                                        Operand (&weights)[kKeyBlocks]) {
#pragma unroll
    for (int b = 0; b < kKeyBlocks; ++b) bend(scores[b], b, key);
    if (lanes_with(!sees_all(key)) != 0) {
#pragma unroll
      for (int b = 0; b < kKeyBlocks; ++b) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          if (!sees(key + key_of(b, i))) scores[b][i] = minus_infinity();
        }
      }
    }
    float top = most;
#pragma unroll
    for (int b = 0; b < kKeyBlocks; ++b) {
#pragma unroll
      for (int i = 0; i < 8; ++i) top = __builtin_fmaxf(top, scores[b][i]);
    }
    refer_to(with_other_half(top, [](float a, float b) { return __builtin_fmaxf(a, b); }));
    const float offset = most == minus_infinity() ? 0.0F : most;
#pragma unroll
    for (int b = 0; b < kKeyBlocks; ++b) weights[b] = weights_of(scores[b], offset);
  }
  // Scales the sums so far to a new maximum.
  __device__ __forceinline__ void refer_to(float top) {
    if (lanes_with(top != most) == 0) return;
    const float less = most == minus_infinity() ? 0.0F : exp_fast(most - top);
    most = top;
    total *= less;
#pragma unroll
    for (int d = 0; d < kHeadBlocks; ++d) sums[d] *= less;
  }
  // The weights of 16 keys as the second product takes them.
  __device__ __forceinline__ Operand weights_of(const Sum& scores, float offset) {
    Chunk own;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float a = exp_fast(scores[2 * i] - offset), b = exp_fast(scores[2 * i + 1] - offset);
      total += a + b;
      own[i] = round_pair<In>(a, b);
    }
    if constexpr (Op::kLaneChunks == 1) {
      return own;
    } else {
      Chunk other;
#pragma unroll
      for (int i = 0; i < 4; ++i) other[i] = from_lane(own[i], lane_of_wave() ^ 16);
      const bool is_first = lane < 16;
      return Op::read([&](int i) __attribute__((always_inline)) {
        return (i == 0) == is_first ? own : other;
      });
    }
  }

  // ---- results ----

  // A lane has 8 neighbours of its row of each block.
  __device__ __forceinline__ void store() const {
    const float all = with_other_half(total, [](float a, float b) { return a + b; });
    const float share = all == 0 ? 0.0F : 1.0F / all;
    if (first_row + lane % 16 >= place.rows(g)) return;
    if (C::kLse && lane < 16) {
      g.lse[place.lse_offset(g, row)] = all == 0 ? minus_infinity() : most + log_fast(all);
    }
    Out* const out = static_cast<Out*>(g.out) + place.row_offset(g, g.out_stride, row);
#pragma unroll
    for (int d = 0; d < kHeadBlocks; ++d) {
      const int element = d * 16 + lane / 16 * 8;
      if (element >= g.hdim_v) continue;
      Chunk words;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float a = share == 0 ? 0.0F : sums[d][2 * i] * share;
        const float b = share == 0 ? 0.0F : sums[d][2 * i + 1] * share;
        words[i] = round_to<Out>(a) | round_to<Out>(b) << 16;
      }
      *(__attribute__((address_space(1))) Chunk*)(out + element) = words;
    }
  }

  const FmhaArguments& g;
  const TilePlace<C> place;
  Shared* const memory;
  const int thread, lane;
  const int first_row;            // of the wave
  const int row;                  // of the lane, or the last one
  int sink, begin, end;           // keys that the row sees
  float most = minus_infinity();  // of the scores
  float total = 0;                // of the lane's weights
  Operand queries[kSteps];
  Sum sums[kHeadBlocks];
};

}  // namespace tessera::device
