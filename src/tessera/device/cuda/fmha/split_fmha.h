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
#include "tessera/device/cuda/fmha/split_ring.h"
#include "tessera/device/cuda/fmha/split_store.h"

namespace tessera::device {

// A lane has parts of two rows of scores, as in flash_rows.h, and of two rows of sums. The warps of
// a team have different rows of the same keys, teams have different keys.
template <class C>
class SplitFmha {
  using In = typename C::In;
  static constexpr int kRows = C::kTileM, kKeys = C::kTileN, kHdim = C::kTileK;
  static constexpr int kTeams = C::kWaveN, kStages = C::kStages;
  static constexpr int kTeamThreads = 32 * C::kWaveM;
  static constexpr int kScores = kKeys / 2;  // of a lane
  static constexpr bool kKeepsQueries = kHdim <= 128;
  static constexpr SplitSizes kSizes = split_sizes({kRows, kKeys, kHdim, kStages, kTeams});
  static_assert(kRows == kSplitRows * C::kWaveM && kKeys % 16 == 0 && kStages >= 2, "tile");

  using Copy = SplitCopy<In, kKeys, kHdim, kTeamThreads>;
  using Block = typename Copy::Shape;
  using Queries = TileShape<In, kRows, kHdim, true>;

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
  __device__ __forceinline__ void bring_queries() const {
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
          if (first + e < g.hdim) words[e / 2] |= u32{q[(first + e) * stride].bits} << e % 2 * 16;
        }
      }
      const u32 to = shared_address(memory) + kSizes.queries;
      store_chunk(to + Queries::at(r, i % kChunks), words);
    }
    __syncthreads();
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
#pragma unroll
    for (int step = 0; step < kHdim / 16; ++step) {
      u32 q[4];
      if constexpr (kKeepsQueries) {
#pragma unroll
        for (int i = 0; i < 4; ++i) q[i] = queries[step][i];
      } else {
        load_queries(step, q);
      }
      const u32 upper[2] = {q[0], q[2]};
      const u32 lower[2] = {q[1], q[3]};
#pragma unroll
      for (int i = 0; i < kKeys / 16; ++i) {
        u32 k[4];
        load_matrices<false>(keys + (start ^ step * 32) + i * 16 * Block::kLineBytes, k);
        mma<In>(x[2 * i], upper, lower, {k[0], k[1]});
        mma<In>(x[2 * i + 1], upper, lower, {k[2], k[3]});
      }
    }
  }

  // Makes scores of the products of the block from `first` on; minus infinity where a row does not
  // see the key.
  __device__ __forceinline__ void score(int first, bool whole, float (&x)[kScores / 4][4]) const {
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

  __device__ __forceinline__ Copy copy_of(i64 hdim) const {
    return Copy(static_cast<int>(hdim), tile.s.keys, thread % kTeamThreads);
  }

  // Fetches the block of keys and values from `key` on to a stage. A block that lies in one page is
  // as tokens at equal distances are; `page` is that page, which was asked for a block earlier.
  __device__ __forceinline__ void fetch(u32 to, const Copy& keys, const Copy& values, int key,
                                        i64 page) const {
    if (C::kPages != FmhaPages::none && !tile.has_whole_blocks(kKeys)) {
      keys.fetch(to, tile.template paged<true>(), key);
      values.fetch(to + kSizes.block, tile.template paged<false>(), key);
    } else {
      keys.fetch(to, tile.template strided<true>(key, page), key);
      values.fetch(to + kSizes.block, tile.template strided<false>(key, page), key);
    }
  }

  // The team's blocks of a part: every kTeams-th. The queries come while the first ones are on
  // their way.
  __device__ __forceinline__ void attend(const SplitBlocks& blocks, const SplitPart& part) {
    const Copy keys = copy_of(g.hdim);
    const Copy values = copy_of(g.hdim_v);
    int next = part.first + team;  // what is fetched next, and to which stage
    int to = 0;
    const auto page_of_next = [&]() -> i64 {
      return next < part.last ? tile.page_of(blocks.block(next) * kKeys) : 0;
    };
    i64 page = page_of_next();
    const auto fetch_next = [&] {
      if (next < part.last) {
        fetch(stage_at(to), keys, values, blocks.block(next) * kKeys, page);
      }
      copies_commit();
      next += kTeams;
      to = to + 1 < kStages ? to + 1 : 0;
      page = page_of_next();
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
      multiply(stage_at(from), x);
      score(first, last <= all.sink || (first >= all.begin && last <= all.end), x);
      weigh(x);
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
      float* const to = reinterpret_cast<float*>(memory) + at * kSizes.sum_pitch + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < kHdim / 8; ++i) {
        *reinterpret_cast<float2*>(to + 8 * i) = {sums[i][2 * r], sums[i][2 * r + 1]};
      }
    }
    __syncthreads();
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
