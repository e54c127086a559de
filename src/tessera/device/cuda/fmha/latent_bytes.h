// How the warpgroups of latent attention that add up values fetch keys of 8 bits, and make fp16 of
// them for the tensor cores.
#pragma once

#include "tessera/device/cuda/fmha/latent_block.h"

namespace tessera::device {

// A warpgroup fetches the columns that it adds up, and half of the tokens of the keys' last 64
// elements, as LatentFetch does. A thread converts what it has copied itself, so that nobody waits
// for anybody between a copy and its conversion. Values that lie elsewhere take turns with keys.
template <class C>
class LatentBytes {
  using Kv = typename C::Kv;
  using Block = LatentBlock<C>;
  static constexpr bool kPaged = C::kPages != FmhaPages::none;
  static constexpr int kPiece = 16;                        // elements that are copied at a time
  static constexpr int kPieces = kLatentColumns / kPiece;  // of a token, of a warpgroup
  static constexpr int kAtOnce = kGroupThreads / kPieces;  // tokens
  static constexpr int kTurns = kLatentKeys / kAtOnce;
  static constexpr int kLastPieces = (kLatentHead - kLatentValues) / kPiece;  // of a token
  static constexpr int kLastThreads = kLatentKeys / 2 * kLastPieces;
  static_assert(kLatentKeys == 32, "each lane knows where a token of a block lies");

  const FmhaArguments& g;
  const LatentWork<C>& work;
  const Block block;
  int fetched, converted;  // blocks, or blocks of keys and of values, from the part's first one on
  int entry, token;        // of this lane's token of the block that is fetched next
  typename Block::Stages stages;

  // Sums leave few registers: what follows from the thread's number is not kept.
  static __device__ __forceinline__ int half() {
    return static_cast<int>(threadIdx.x) / kGroupThreads - 1;
  }
  static __device__ __forceinline__ int thread() {
    return static_cast<int>(threadIdx.x) % kGroupThreads;
  }
  static __device__ __forceinline__ u32 raw_of(int unit) {
    return static_cast<u32>(unit) % kLatentRaws;
  }

  __device__ __forceinline__ SplitTile<C> tile() const { return work.item.tile(g); }
  // Keys come first.
  __device__ __forceinline__ int index_of(int unit) const {
    return work.part.first + (work.in_keys ? unit : unit / 2);
  }
  __device__ __forceinline__ bool of_keys(int unit) const { return work.in_keys || unit % 2 == 0; }

  // Where this thread's piece of a turn goes to and comes from: as many as it copies.
  __device__ __forceinline__ u32 place(u32 raw, int turn) const {
    return block.raw(raw) + (turn * 2 * kGroupThreads + half() * kGroupThreads + thread()) * 16;
  }
  __device__ __forceinline__ u32 last_place(u32 raw) const {
    return block.raw(raw) + kTurns * 2 * kGroupThreads * 16 +
           (half() * kLastThreads + thread()) * 16;
  }
  __device__ __forceinline__ int row_of(int turn) const {
    return turn * kAtOnce + thread() / kPieces;
  }
  __device__ __forceinline__ int last_row() const {
    return half() * kLatentKeys / 2 + thread() / kLastPieces;
  }

  // ---- copies ----

  __device__ __forceinline__ void look_up(int first) {
    if constexpr (kPaged) {
      const int last = static_cast<int>(work.item.s.keys) - 1;
      const FmhaSlot slot = slot_of(g, min(first + static_cast<int>(threadIdx.x) % 32, last));
      entry = g.page_table[work.item.s.first_key + slot.entry];
      token = static_cast<int>(slot.token);
    }
  }

  // The first element of token `row` of a block. All lanes of a warp ask at the same time.
  template <bool kOfKeys>
  __device__ __forceinline__ const Kv* token_at(int first, int row) const {
    if constexpr (!kPaged) return tile().template strided<kOfKeys>(first, 0).token(first + row);
    const i64(&stride)[kTokenStrides] = kOfKeys ? g.k_stride : g.v_stride;
    const i64 page = page_in_cache(g, __shfl_sync(~0U, entry, row));
    return tile().template cache<kOfKeys>() + page * stride[kTokenBatch] +
           work.item.head_kv * stride[kTokenHead] + __shfl_sync(~0U, token, row) * stride[kToken];
  }

  // `left`: elements from `p` on.
  __device__ __forceinline__ void copy(u32 at, const Kv* p, int left) const {
    if (aligned16(p)) return copy_async<16>(at, p, left > 0 ? 16 : 0);
#pragma unroll 1
    for (int i = 0; i < kPiece; ++i) store_shared_byte(at + i, i < left ? p[i].bits : 0U);
  }

  template <bool kOfKeys>
  __device__ __forceinline__ void fetch(int first) {
    const int hdim = static_cast<int>(kOfKeys ? g.hdim : g.hdim_v);
    const int keys = static_cast<int>(work.item.s.keys);
    const int column = half() * kLatentColumns + thread() % kPieces * kPiece;
#pragma unroll 1
    for (int turn = 0; turn < kTurns; ++turn) {
      const Kv* const p = token_at<kOfKeys>(first, row_of(turn)) + column;
      copy(place(raw_of(fetched), turn), p, first + row_of(turn) < keys ? hdim - column : 0);
    }
    if (!kOfKeys) return;
    const int row = last_row() % kLatentKeys,
              last = kLatentValues + thread() % kLastPieces * kPiece;
    const Kv* const p = token_at<kOfKeys>(first, row) + last;
    if (thread() < kLastThreads)
      copy(last_place(raw_of(fetched)), p, first + row < keys ? hdim - last : 0);
  }

  // The next unit, if there is one; a group of copies in any case.
  __device__ __forceinline__ void fetch_next() {
    const int index = index_of(fetched);
    if (index < work.part.last) {
      const int first = work.first_key(index);
      if (of_keys(fetched)) {
        fetch<true>(first);
      } else {
        fetch<false>(first);
      }
      ++fetched;
      if (index_of(fetched) < work.part.last) look_up(work.first_key(index_of(fetched)));
    }
    copies_commit();
  }

  // ---- conversion ----

  // 16 elements of a row from `element` on, a multiple of 16, to their places in two chunks. Lanes
  // whose slabs differ store them in another order, so that they find different banks.
  __device__ __forceinline__ void convert(u32 at, u32 stage, int row, int element) const {
    u32 words[4], halves[8];
    load_words(at, words);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      u32 two[2];
      halves_of_word<Kv>(words[i], two);
      halves[2 * i] = two[0], halves[2 * i + 1] = two[1];
    }
    const int slab = element / 64, chunk = element % 64 / 8, odd = slab % 2;
    const u32 line = stage + slab * Block::Keys::kSlabBytes + row * kLineBytes;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      u32 x[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) x[j] = i == odd ? halves[j] : halves[4 + j];
      store_words(line + (((chunk + (i ^ odd)) ^ row % 8) << 4), x);
    }
  }

  __device__ __forceinline__ void convert_next() {
    if (index_of(converted) >= work.part.last) return;
    const u32 stage = block.stage(stages.stage);
    const int column = half() * kLatentColumns + thread() % kPieces * kPiece;
#pragma unroll 1
    for (int turn = 0; turn < kTurns; ++turn) {
      convert(place(raw_of(converted), turn), stage, row_of(turn), column);
    }
    if (of_keys(converted) && thread() < kLastThreads) {
      convert(last_place(raw_of(converted)), stage, last_row(),
              kLatentValues + thread() % kLastPieces * kPiece);
    }
    copy_engine_fence();
    barrier_arrive(block.full(stages.stage));
    ++converted;
    stages.next();
  }

  __device__ __forceinline__ void step() {
    copies_wait<kLatentRaws - 1>();
    convert_next();
    fetch_next();
  }

 public:
  __device__ __forceinline__ LatentBytes(const FmhaArguments& arguments,
                                         const LatentWork<C>& of_work, const Block& of, int)
      : g(arguments), work(of_work), block(of), fetched(0), converted(0), entry(0), token(0) {
    if (work.part.first < work.part.last) look_up(work.first_key(work.part.first));
  }

  // Fills the stages of a block that this warpgroup has multiplied.
  __device__ __forceinline__ void next() {
#pragma unroll 1
    for (int i = 0; i < (work.in_keys ? 1 : 2); ++i) step();
  }
  __device__ __forceinline__ void begin() {
#pragma unroll 1
    for (int i = 0; i < kLatentRaws; ++i) fetch_next();
#pragma unroll 1
    for (int i = 0; i < Block::kStages; ++i) step();
  }
};

}  // namespace tessera::device
