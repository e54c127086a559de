// Attention of few queries to many keys, which reads keys and values about once at the memory's
// pace: decoding. The rows of a tile are the queries of all heads that share a key-value head,
// query by query. The keys of a tile are cut into parts; each part is a block's, and the blocks of
// a tile merge a share each of what all have left in the workspace, in the order of the parts.
//
// Launch: one block of 32 * wave_m * wave_n threads with split_sizes().bytes of dynamic shared
// memory for each part of each tile of each key-value head and sequence; the parts of a tile are
// neighbours.
#pragma once

#include "tessera/device/cuda/fmha/check_pages.h"
#include "tessera/device/cuda/fmha/split_bytes.h"
#include "tessera/device/cuda/fmha/split_fetch.h"
#include "tessera/device/cuda/fmha/split_store.h"

namespace tessera::device {

// A lane has parts of two rows of scores, as in flash_rows.h, and of two rows of sums. The warps of
// a team have different rows of the same keys, teams have different keys.
template <class C>
class SplitFmha {
  using In = typename C::In;
  using Kv = typename C::Kv;
  // Keys and values of 8 bits are multiplied as fp16, see split_bytes.h.
  static constexpr bool kBytes = sizeof(Kv) == 1;
  static constexpr bool kKeyFactors = SplitTile<C>::kKeyFactors;
  using Half = typename If<kBytes, fp16, In>::Type;
  static constexpr int kRows = C::kTileM, kKeys = C::kTileN, kHdim = C::kTileK;
  static constexpr int kTeams = C::kWaveN, kStages = C::kStages;
  static constexpr int kTeamThreads = 32 * C::kWaveM;
  static constexpr int kScores = kKeys / 2;  // of a lane
  static constexpr bool kKeepsQueries = kHdim <= 128;
  static constexpr SplitSizes kSizes = split_sizes(split_shape_of<C>());
  static_assert(kRows == kSplitRows * C::kWaveM && kKeys % 16 == 0 && kStages >= 2, "tile");

  using Fetch = SplitFetch<C>;
  using Block = typename Fetch::Copy::Shape;
  using Queries = TileShape<Half, kRows, kHdim, true>;
  using Bytes = SplitBytes<C, Block, Queries>;

  struct Area {
    static constexpr int kTeams = C::kWaveN, kThreads = kTeams * kTeamThreads, kBarrier = 0;
    static constexpr int kSumPitch = kSizes.sum_pitch, kHeads = kSizes.heads;
  };
  using Store = SplitStore<C, Area>;

  const SplitTile<C>& tile;
  const FmhaArguments& g;
  unsigned char* const memory;
  const int thread, lane, warp, team;  // warp: of the team
  SplitRow row[2];
  u32 queries[kKeepsQueries ? kHdim / 16 : 1][4];
  float most[2], total[2];  // total: of this lane's keys
  float sums[kHdim / 8][4];
  ByteUnit unit;  // of the sums, where keys have factors

  __device__ __forceinline__ SplitFmha(const SplitTile<C>& of_tile, unsigned char* shared)
      : tile(of_tile),
        g(of_tile.g),
        memory(shared),
        thread(static_cast<int>(threadIdx.x)),
        lane(thread % 32),
        warp(thread / 32 % C::kWaveM),
        team(thread / kTeamThreads) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      row[r] = tile.row(warp * kSplitRows + lane / 4 + 8 * r);
      most[r] = minus_infinity();
      total[r] = 0;
    }
#pragma unroll
    for (int i = 0; i < kHdim / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[i][j] = 0;
    }
  }

  __device__ __forceinline__ u32 stage_at(int stage) const {
    return shared_address(memory) + team * kSizes.ring + stage * kSizes.stage;
  }

  __device__ __forceinline__ void sync_team() const {
    if constexpr (C::kWaveM == 1) {
      __syncwarp();
    } else {
      threads_sync(1 + team, kTeamThreads);
    }
  }

  // ---- queries ----

  // Brings the tile's queries to shared memory, zeros where there are none.
  __device__ __forceinline__ void bring_queries() {
    constexpr int kChunks = Queries::kChunks, kPerChunk = Queries::kPerChunk;
    const i64 stride = g.q_stride[kTokenElement];
#pragma unroll 1
    for (int i = thread; i < kRows * kChunks; i += kTeams * kTeamThreads) {
      const int r = i / kChunks, first = i % kChunks * kPerChunk;
      u32 words[4] = {};
      if (r < tile.rows) {
        const i64 token = tile.s.first_query + tile.query_of(r);
        const In* const q = tile.template token<const In>(g.q, g.q_stride, tile.head_of(r), token);
#pragma unroll
        for (int e = 0; e < kPerChunk; ++e) {
          const int element = kBytes ? byte_order(first + e) : first + e;
          if (element < g.hdim) words[e / 2] |= half_of(q[element * stride]) << e % 2 * 16;
        }
      }
      const u32 to = shared_address(memory) + kSizes.queries;
      store_chunk(to + Queries::at(r, i % kChunks), words);
    }
    __syncthreads();
    if constexpr (kBytes) scale_queries();
  }
  // Queries of bf16 become fp16 with a factor for each row.
  __device__ __forceinline__ void scale_queries() {
    float* const scales = reinterpret_cast<float*>(memory + kSizes.scales);
    if constexpr (kSame<In, bf16>) {
      Bytes::scale_queries(shared_address(memory) + kSizes.queries, thread, scales);
      __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      row[r].scale = tile.scale_of(row[r]);
      if (kSame<In, bf16>) row[r].scale *= scales[warp * kSplitRows + lane / 4 + 8 * r];
    }
  }
  static __device__ __forceinline__ u32 half_of(In x) {
    if constexpr (sizeof(In) == 1) return halves_of<In>(x.bits) & 0xffffU;
    return x.bits;
  }

  // The warp's 16 rows of 16 elements, as the left operand.
  __device__ __forceinline__ void load_queries(int step, u32 (&words)[4]) const {
    const u32 from = shared_address(memory) + kSizes.queries;
    load_matrices<false>(from + Queries::at(warp * kSplitRows + lane % 16, 2 * step + lane / 16),
                         words);
  }

  __device__ __forceinline__ void keep_queries() {
    if constexpr (kKeepsQueries) {
#pragma unroll
      for (int step = 0; step < kHdim / 16; ++step) load_queries(step, queries[step]);
    }
  }

  // ---- scores ----

  __device__ __forceinline__ void multiply(u32 keys, float (&x)[kScores / 4][4]) const {
    const u32 start = Block::at(lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
    for (int i = 0; i < kScores; ++i) x[i / 4][i % 4] = 0;
    if constexpr (kBytes) {
      Bytes::multiply(
          keys, start, [this](int step, u32(&q)[4]) { take_queries(step, q); }, x);
    } else {
      multiply_halves(keys, start, x);
    }
  }
  __device__ __forceinline__ void multiply_halves(u32 keys, u32 start,
                                                  float (&x)[kScores / 4][4]) const {
#pragma unroll
    for (int step = 0; step < kHdim / 16; ++step) {
      u32 q[4];
      take_queries(step, q);
      const u32 upper[2] = {q[0], q[2]};
      const u32 lower[2] = {q[1], q[3]};
#pragma unroll
      for (int i = 0; i < kKeys / 16; ++i) {
        u32 k[4];
        load_matrices<false>(keys + (start ^ step * 32) + i * 16 * Block::kLineBytes, k);
        mma<Half>(x[2 * i], upper, lower, {k[0], k[1]});
        mma<Half>(x[2 * i + 1], upper, lower, {k[2], k[3]});
      }
    }
  }
  __device__ __forceinline__ void take_queries(int step, u32 (&q)[4]) const {
    if constexpr (kKeepsQueries) {
#pragma unroll
      for (int i = 0; i < 4; ++i) q[i] = queries[step][i];
    } else {
      load_queries(step, q);
    }
  }

  // Makes scores of the products of the block from `first` on; minus infinity where a row does not
  // see the key.
  __device__ __forceinline__ void score(int first, bool whole, float (&x)[kScores / 4][4]) const {
    if (kBytes && whole) {  // blocks of 8 bits are larger, and come sooner
#pragma unroll
      for (int i = 0; i < kScores; ++i) {
        const int key = first + i / 4 * 8 + lane % 4 * 2 + i % 2;
        x[i / 4][i % 4] = tile.score(x[i / 4][i % 4], row[i / 2 % 2], key);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const SplitRow& r = row[i / 2 % 2];
      const int key = first + i / 4 * 8 + lane % 4 * 2 + i % 2;
      float& y = x[i / 4][i % 4];
      y = whole || r.keys.has(key) ? tile.score(y, r, key) : minus_infinity();
    }
  }

  // Makes weights of scores, and scales what was added up to the new maxima. A NaN never becomes
  // the maximum, but it makes its weight NaN, and so does +inf.
  __device__ __forceinline__ void weigh(float (&x)[kScores / 4][4]) {
    float top[2] = {most[0], most[1]};
    float offset[2];
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      top[i / 2 % 2] = fmaxf(top[i / 2 % 2], x[i / 4][i % 4]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = most_of_row(top[r]);
      offset[r] = split_reference<C::kBias>(top[r]);
    }
    if (__any_sync(~0U, top[0] != most[0] || top[1] != most[1])) rescale(top, offset);
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int r = i / 2 % 2;
      x[i / 4][i % 4] = split_weight<C::kBias>(x[i / 4][i % 4], offset[r]);
      total[r] += x[i / 4][i % 4];
    }
  }

  // A row whose maximum stays keeps its sums: a reference of a large maximum is rounded, so that
  // its weight is not 1.
  __device__ __forceinline__ void rescale(const float (&top)[2], const float (&offset)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float factor = top[r] == most[r] ? 1.0F : split_weight<C::kBias>(most[r], offset[r]);
      most[r] = top[r];
      total[r] *= factor;
#pragma unroll
      for (int i = 0; i < kHdim / 8; ++i) sums[i][2 * r] *= factor, sums[i][2 * r + 1] *= factor;
    }
  }

  // ---- sums over the values ----

  __device__ __forceinline__ void add_values(u32 values, const float (&x)[kScores / 4][4]) {
    const u32 start = Block::at(lane % 16, lane / 16);
    if constexpr (kBytes) {
      Bytes::add(values, start, x, sums);
    } else {
      add_halves(values, start, x);
    }
  }
  __device__ __forceinline__ void add_halves(u32 values, u32 start,
                                             const float (&x)[kScores / 4][4]) {
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) {
      const float(&p)[4] = x[2 * i];
      const float(&q)[4] = x[2 * i + 1];
      const u32 upper[2] = {round_pair<In>(p[0], p[1]), round_pair<In>(q[0], q[1])};
      const u32 lower[2] = {round_pair<In>(p[2], p[3]), round_pair<In>(q[2], q[3])};
#pragma unroll
      for (int chunk = 0; chunk < kHdim / 8; chunk += 2) {
        u32 v[4];
        load_matrices<true>(values + (start ^ chunk * 16) + i * 16 * Block::kLineBytes, v);
        mma<In>(sums[chunk], upper, lower, {v[0], v[1]});
        mma<In>(sums[chunk + 1], upper, lower, {v[2], v[3]});
      }
    }
  }

  // ---- one part of the keys ----

  // The team's blocks of a part: every kTeams-th. The queries come while the first ones are on
  // their way.
  __device__ __forceinline__ void attend(const SplitBlocks& blocks, const SplitPart& part) {
    Fetch fetch(tile, thread % kTeamThreads);
    int next = part.first + team;  // what is fetched next, and to which stage
    int to = 0;
    const auto look_up_next = [&] {
      if (next < part.last) fetch.look_up(blocks.block(next) * kKeys);
    };
    look_up_next();
    const auto fetch_next = [&] {
      if (next < part.last) fetch.fetch(stage_at(to), blocks.block(next) * kKeys);
      copies_commit();
      next += kTeams;
      to = to + 1 < kStages ? to + 1 : 0;
      look_up_next();
    };
#pragma unroll 1
    for (int i = 0; i + 1 < kStages; ++i) fetch_next();
    bring_queries();
    keep_queries();
    const SplitKeys all = tile.seen_by_all();
    int from = 0;
#pragma unroll 1
    for (int index = part.first + team; index < part.last; index += kTeams) {
      copies_wait<kStages - 2>();
      sync_team();
      fetch_next();
      const int first = blocks.block(index) * kKeys;
      const int last = first + kKeys;
      float x[kScores / 4][4];
      const u32 factors = stage_at(from) + 2 * kSizes.block;
      multiply(stage_at(from), x);
      if constexpr (kKeyFactors) Bytes::scale_products(factors, lane, x);
      score(first, last <= all.sink || (first >= all.begin && last <= all.end), x);
      weigh(x);
      if constexpr (kKeyFactors) Bytes::scale_weights(factors + kKeys * 4, lane, unit, x, sums);
      add_values(stage_at(from) + kSizes.block, x);
      from = from + 1 < kStages ? from + 1 : 0;
    }
    copies_wait<0>();
    __syncthreads();
  }

  // Leaves the sums in shared memory, in place of keys and queries.
  __device__ __forceinline__ void leave_sums() const {
    float* const heads = reinterpret_cast<float*>(memory + kSizes.heads);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int at = team * kRows + warp * kSplitRows + lane / 4 + 8 * r;
      const float all = sum_of_row(total[r]);
      if (lane % 4 == 0) heads[2 * at] = most[r], heads[2 * at + 1] = all;
      float* const to = reinterpret_cast<float*>(memory) + at * kSizes.sum_pitch;
      if constexpr (kBytes) {
        Bytes::leave(to + lane % 4 * 4, r, kKeyFactors ? unit.up() : 1.0F, sums);
      } else {
        leave_pairs(to + lane % 4 * 2, r);
      }
    }
    __syncthreads();
  }
  __device__ __forceinline__ void leave_pairs(float* to, int r) const {
#pragma unroll
    for (int i = 0; i < kHdim / 8; ++i) {
      *reinterpret_cast<float2*>(to + 8 * i) = {sums[i][2 * r], sums[i][2 * r + 1]};
    }
  }

 public:
  static __device__ __forceinline__ void run(const SplitArguments& a) {
    extern __shared__ __align__(128) unsigned char fmha_memory[];
    const FmhaArguments& g = a.fmha;
    if (C::kPages != FmhaPages::none && has_bad_page(g)) return;
    const SplitItem<C> item(a);
    if (item.rows == 0) return;
    const SplitTile<C> tile = item.tile(g);
    const SplitBlocks blocks =
        split_blocks<C::kMasked>(g, tile.s, tile.query_of(0), tile.query_of(item.rows - 1), kKeys);
    const SplitPart part = split_part(blocks.count, kTeams, a.parts, item.index, a.fmha.num_splits);
    if (item.index >= part.parts) return;
    SplitFmha state(tile, fmha_memory);
    state.attend(blocks, part);
    state.leave_sums();
    Store{a, tile, fmha_memory, state.thread}.store(item.number, part, item.index);
  }

  static __device__ __forceinline__ void check(const SplitArguments& a) {
    check_pages<C::kLengths, C::kPages>(a.fmha);
  }
};

}  // namespace tessera::device
