// How the warpgroups of latent attention that add up values fetch keys, and values where these lie
// elsewhere.
#pragma once

#include "tessera/device/cuda/fmha/latent_block.h"

namespace tessera::device {

// A warpgroup fetches the columns that it adds up, and half of the tokens of the keys' last slab.
// It alone reads these columns once a block's weights are there, which were made of all its keys.
// So it may fetch the next tokens to their place when it has multiplied, and need not ask the
// others. A thread copies one chunk of 16 bytes of every line of 128 bytes of two tokens.
template <class C>
class LatentFetch {
  using In = typename C::In;
  using Block = LatentBlock<C>;
  static constexpr int kAtOnce = kGroupThreads / 8;  // tokens
  static constexpr int kSlabBytes = Block::Keys::kSlabBytes;
  static constexpr int kSlabs = kLatentColumns / 64;  // of a warpgroup
  static_assert(kAtOnce % 8 == 0 && kLatentKeys == 2 * kAtOnce, "two lines are swizzled alike");

  const FmhaArguments& g;
  const LatentWork<C>& work;
  const Block block;
  const int half, row, chunk;
  int index;  // the block that is fetched next, and
  i64 page;   // its page
  typename Block::Stages stages;

  __device__ __forceinline__ SplitTile<C> tile() const { return work.item.tile(g); }

  // ---- where tokens lie ----

  // Whether a block lies in one page, and so is as tokens at equal distances are.
  __device__ __forceinline__ bool is_whole() const {
    return C::kPages == FmhaPages::none || tile().has_whole_blocks(kLatentKeys);
  }
  template <bool kOfKeys>
  __device__ __forceinline__ const In* token(int key, int from) const {
    if (is_whole()) return tile().template strided<kOfKeys>(from, page).token(key);
    return tile().template paged<kOfKeys>().token(key);
  }
  template <bool kOfKeys>
  __device__ __forceinline__ bool aligned(int from) const {
    if (is_whole()) return tile().template strided<kOfKeys>(from, page).aligned();
    return tile().template paged<kOfKeys>().aligned();
  }

  // ---- copies ----

  // Slabs from `from` on, of a token's line at `to`. What lies behind the end of a head, or has no
  // elements at all, arrives as zeros.
  template <int kCount>
  static __device__ __forceinline__ void copy(u32 to, const In* from, int elements) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      copy_async<16>(to + i * kSlabBytes, from + i * 64, i * 64 < elements ? 16 : 0);
    }
  }
  // The same of tokens that do not begin at multiples of 16 bytes.
  static __device__ __forceinline__ void move(u32 to, const In* from, int elements, int count) {
#pragma unroll 1
    for (int i = 0; i < count * 8; ++i) {
      const int element = i / 8 * 64 + i % 8;
      const u16 bits = element < elements ? from[element].bits : u16{0};
      store_shared_half(to + i / 8 * kSlabBytes + i % 8 * 2, bits);
    }
  }

  // The block of keys, or of values, from key `first` on. Copies count on the stage's barrier when
  // they arrive, which need not be now.
  __device__ __forceinline__ void fetch(int first, bool of_keys) {
    const int hdim = static_cast<int>(of_keys ? g.hdim : g.hdim_v);
    const int column = half * kLatentColumns + chunk * 8, end = kLatentValues + chunk * 8;
    const u32 full = block.full(stages.stage);
    const u32 to = block.stage(stages.stage) + row * kLineBytes + ((chunk ^ row % 8) << 4);
    const bool is_aligned = of_keys ? aligned<true>(first) : aligned<false>(first);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int key = first + row + i * kAtOnce;
      const In* const from = of_keys ? token<true>(key, first) : token<false>(key, first);
      const int elements = key < work.item.s.keys ? hdim : 0;
      const u32 line = to + i * kAtOnce * kLineBytes;
      const u32 last_line = line + 2 * kSlabs * kSlabBytes;
      const bool has_last = of_keys && i == half;
      if (is_aligned) {
        copy<kSlabs>(line + half * kSlabs * kSlabBytes, from + column, elements - column);
        if (has_last) copy<1>(last_line, from + end, elements - end);
      } else {
        move(line + half * kSlabs * kSlabBytes, from + column, elements - column, kSlabs);
        if (has_last) move(last_line, from + end, elements - end, 1);
      }
    }
    if (is_aligned) {
      copies_arrive(full);
    } else {
      copy_engine_fence();
      barrier_arrive(full);
    }
    stages.next();
  }

  __device__ __forceinline__ i64 page_of_next() const {
    return index < work.part.last ? tile().page_of(work.first_key(index)) : 0;
  }

 public:
  __device__ __forceinline__ LatentFetch(const FmhaArguments& arguments,
                                         const LatentWork<C>& of_work, const Block& of, int of_half)
      : g(arguments),
        work(of_work),
        block(of),
        half(of_half),
        row(static_cast<int>(threadIdx.x) % kGroupThreads / 8),
        chunk(static_cast<int>(threadIdx.x) % 8),
        index(work.part.first),
        page(page_of_next()) {}

  // Fetches the next block of the part, if there is one.
  __device__ __forceinline__ void next() {
    if (index >= work.part.last) return;
#pragma unroll 1
    for (int i = 0; i < (work.in_keys ? 1 : 2); ++i) fetch(work.first_key(index), i == 0);
    ++index;
    page = page_of_next();
  }
  // As many as there are stages for.
  __device__ __forceinline__ void begin() {
#pragma unroll 1
    for (int i = 0; i < (work.in_keys ? Block::kStages : Block::kStages / 2); ++i) next();
  }
};

}  // namespace tessera::device
