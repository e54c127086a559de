// out[b] = epilogue(alpha * A[b] x B[b] + beta * C[b]) for few rows or few columns, where k is
// contiguous in A and B. Memory limits such products, so the operand with many rows is read once,
// in its order, in words of 16 bytes that lie at multiples of 16 bytes wherever a row begins. The
// operand with few rows is kept in shared memory, where it can be read at any distance. The
// elements of a row before its first word and after its last one are read one by one, so nothing
// outside of the operands is read. Sums are added in an order that depends on the sizes and on
// where rows begin in their 16 bytes, and on nothing else.
#pragma once

#include "tessera/device/cuda/epilogue.h"
#include "tessera/device/cuda/gemm/gemm_arguments.h"
#include "tessera/device/cuda/gemm/stream_sizes.h"

namespace tessera::device {

// Loads a word of a row that no other load will read. The load is not moved behind later ones, so
// that a thread asks for all its words before it uses the first one.
__device__ __forceinline__ void load_word(const char* from, u32 (&word)[4]) {
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
               : "l"(from));
}

// Element i of a word.
template <class T>
__device__ __forceinline__ float element_of(const u32 (&word)[4], int i) {
  constexpr int kIn4 = 4 / static_cast<int>(sizeof(T));
  constexpr int kBits = 8 * static_cast<int>(sizeof(T));
  return float_of_bits<T>(word[i / kIn4] >> (i % kIn4 * kBits));
}

// One batch of the operands. The output's rows are few, or, when it is turned, its columns are.
template <class T>
struct StreamOperands {
  const T* few;
  const T* many;
  i64 ld_few, ld_many, few_rows, many_rows;
  bool turned;

  __device__ __forceinline__ StreamOperands(const GemmArguments& g, i64 batch) {
    const bool in_array = g.pointer_arrays != 0;
    const T* const a = matrix_of<T>(g.a, g.batch_stride_a, batch, in_array);
    const T* const b = matrix_of<T>(g.b, g.batch_stride_b, batch, in_array);
    turned = g.n < g.m;
    few = turned ? b : a;
    many = turned ? a : b;
    ld_few = turned ? g.ld_b : g.ld_a;
    ld_many = turned ? g.ld_a : g.ld_b;
    few_rows = turned ? g.n : g.m;
    many_rows = turned ? g.m : g.n;
  }
};

// An element's bits, by a load that may be moved ahead.
template <class T>
__device__ __forceinline__ u32 bits_at(const T* from) {
  return __ldg(reinterpret_cast<const WordBits<T>*>(from));
}

// A part of the few rows in shared memory, as floats: [block][row][element of a word][word of the
// block]. Lanes that read the same element of neighbouring words read from different banks.
template <class T, int kFew, int kThreads>
struct FewRows {
  static constexpr int kWord = stream_word(sizeof(T));
  static constexpr int kRow = stream_block(sizeof(T));  // floats of a row in a block
  static constexpr int kBlock = kFew * kRow;
  static constexpr int kAtOnce = kFew >= 4 ? 1 : 4 / kFew;  // words of a row that a thread awaits

  static __device__ __forceinline__ int place(int element) {
    const int word = element / kWord;
    return word / kStreamLanes * kBlock + element % kWord * kStreamLanes + word % kStreamLanes;
  }

  // Stores `length` elements of each row, from `first` on. Rows that do not exist become zero, as
  // do elements up to the next word.
  static __device__ __forceinline__ void fill(float* few, const StreamOperands<T>& x, i64 first,
                                              int length, int thread) {
    const i64 distance = x.few_rows > 1 ? x.ld_few : 0;
    const bool aligned = ((reinterpret_cast<u64>(x.few) | distance * sizeof(T)) & 15) == 0;
    const int in_words = aligned ? length / kWord * kWord : 0;  // elements that words have
    const int end = (length + kWord - 1) / kWord;
#pragma unroll 1
    for (int begin = thread; begin < end; begin += kThreads * kAtOnce) {
      u32 words[kAtOnce * kFew][4] = {};
#pragma unroll
      for (int i = 0; i < kAtOnce * kFew; ++i) {
        const int element = (begin + i / kFew * kThreads) * kWord;
        const T* const from = x.few + i % kFew * distance + first + element;
        const bool exists = i % kFew < x.few_rows;
        if (exists && element < in_words) load_whole(from, words[i]);
      }
      if (in_words < length) {
#pragma unroll
        for (int i = 0; i < kAtOnce * kFew; ++i) {
          const int element = (begin + i / kFew * kThreads) * kWord;
          const T* const from = x.few + i % kFew * distance + first + element;
          const bool exists = i % kFew < x.few_rows;
          if (exists && element >= in_words) load_elements(from, length - element, words[i]);
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce * kFew; ++i) {
        const int word = begin + i / kFew * kThreads;
        if (word < end) put(few + place(word * kWord) + i % kFew * kRow, words[i]);
      }
    }
  }

 private:
  static __device__ __forceinline__ void load_whole(const T* from, u32 (&word)[4]) {
    const uint4 all = __ldg(reinterpret_cast<const uint4*>(from));
    word[0] = all.x, word[1] = all.y, word[2] = all.z, word[3] = all.w;
  }
  // The first `left` elements, if there are any.
  static __device__ __forceinline__ void load_elements(const T* from, int left, u32 (&word)[4]) {
    constexpr int kIn4 = 4 / static_cast<int>(sizeof(T));
#pragma unroll
    for (int i = 0; i < kWord; ++i) {
      if (i < left) word[i / kIn4] |= bits_at(from + i) << (i % kIn4 * 16);
    }
  }
  static __device__ __forceinline__ void put(float* to, const u32 (&word)[4]) {
#pragma unroll
    for (int i = 0; i < kWord; ++i) to[i * kStreamLanes] = element_of<T>(word, i);
  }
};

// A warp's part of the many rows: kMany rows, each of which begins as far from a multiple of 16
// bytes as the others. A turn takes kWords words of each row in each lane.
template <class T, int kFew, int kMany, int kWords, int kSharers, int kThreads>
struct ManyRows {
  using Few = FewRows<T, kFew, kThreads>;
  static constexpr int kWord = Few::kWord;
  static constexpr int kTurnWords = kWords * kStreamLanes;

  const char* first;        // the lane's word of the next turn in the first row
  i64 row_bytes;            // from one row to the next
  int rows;                 // that exist; others repeat the last one
  int head, words, length;  // elements before the first word, whole words, all elements
  int next, lane;           // the first word of the next turn
  u32 word[kMany][kWords][4];
  u32 edge[kMany];
  int edge_element;  // the lane's element before the first or after the last word; -1: none

  // Takes the part of `of_length` elements of the rows at `from` and asks for the words of the
  // first turn. Sharer number `sharer` of kSharers warps takes every kSharers-th turn, the first
  // one also the elements outside of words.
  __device__ __forceinline__ void begin(const char* from, int of_length, int sharer) {
    constexpr int kSize = static_cast<int>(sizeof(T));
    length = rows > 0 ? of_length : 0;
    head = static_cast<int>(-reinterpret_cast<u64>(from) & 15) / kSize;
    head = head < length ? head : length;
    words = (length - head) / kWord;
    next = sharer * kTurnWords;
    const int after = head + words * kWord + lane - kStreamLanes / 2;
    const bool is_after = lane >= kStreamLanes / 2 && after < length;
    edge_element = sharer != 0 ? -1 : lane < head ? lane : is_after ? after : -1;
    if (edge_element >= 0) load_edge(reinterpret_cast<const T*>(from) + edge_element);
    first = from + head * kSize + (next + lane) * kStreamWordBytes;
    load();
  }

  // Adds the products with the few rows.
  __device__ __forceinline__ void multiply(const float* few, float (&sums)[kMany][kFew]) {
    int at[kWord];  // where the few rows' elements are that go with the elements of the lane's word
#pragma unroll
    for (int i = 0; i < kWord; ++i) {
      const int element = head + i;
      const bool carry = element >= kWord;
      const int place = !carry ? lane : lane + 1 < kStreamLanes ? lane + 1 : Few::kBlock;
      at[i] = (element - (carry ? kWord : 0)) * kStreamLanes + place;
    }
    multiply_edge(few, sums);
#pragma unroll 1
    while (next < words) {
      const float* const here = few + next / kStreamLanes * Few::kBlock;
      if (next + kTurnWords <= words) {
        multiply_turn<true>(here, at, sums);
      } else {
        multiply_turn<false>(here, at, sums);
      }
      next += kSharers * kTurnWords;
      first += kSharers * kTurnWords * kStreamWordBytes;
      load();
    }
  }

 private:
  __device__ __forceinline__ bool exists(int i) const {
    return next + i * kStreamLanes + lane < words;
  }

  __device__ __forceinline__ i64 to_next_row(int r) const { return r + 1 < rows ? row_bytes : 0; }

  __device__ __forceinline__ void load_edge(const T* element) {
#pragma unroll
    for (int r = 0; r < kMany; ++r) {
      edge[r] = bits_at(element);
      element += to_next_row(r) / static_cast<i64>(sizeof(T));
    }
  }

  __device__ __forceinline__ void load() {
    if (next + kTurnWords <= words) {
      load_turn<true>();
    } else {
      load_turn<false>();
    }
  }

  template <bool kWhole>
  __device__ __forceinline__ void load_turn() {
    const char* row = first;
#pragma unroll
    for (int r = 0; r < kMany; ++r) {
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        if (!kWhole && !exists(w)) continue;
        load_word(row + w * (kStreamLanes * kStreamWordBytes), word[r][w]);
      }
      row += to_next_row(r);
    }
  }

  template <bool kWhole>
  __device__ __forceinline__ void multiply_turn(const float* few, const int (&at)[kWord],
                                                float (&sums)[kMany][kFew]) const {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      if (!kWhole && !exists(w)) continue;
#pragma unroll
      for (int i = 0; i < kWord; ++i) {
#pragma unroll
        for (int f = 0; f < kFew; ++f) {
          const float x = few[at[i] + w * Few::kBlock + f * Few::kRow];
#pragma unroll
          for (int r = 0; r < kMany; ++r) {
            sums[r][f] = fmaf(element_of<T>(word[r][w], i), x, sums[r][f]);
          }
        }
      }
    }
  }

  __device__ __forceinline__ void multiply_edge(const float* few,
                                                float (&sums)[kMany][kFew]) const {
    if (edge_element < 0) return;
    const float* const here = few + Few::place(edge_element);
#pragma unroll
    for (int i = 0; i < kMany * kFew; ++i) {
      const int r = i / kFew;
      sums[r][i % kFew] =
          fmaf(float_of_bits<T>(edge[r]), here[i % kFew * Few::kRow], sums[r][i % kFew]);
    }
  }
};

// kWaveK warps share the words of their rows and add up their sums in their order.
template <class C>
struct StreamGemm {
  using T = typename C::A;
  static constexpr int kThreads = C::kWaveN * C::kWaveK * kStreamLanes;
  static constexpr int kFew = C::kTileM;
  static constexpr int kMany = C::kWarpTileN;
  static constexpr int kWords = C::kWarpTileK / stream_word(sizeof(T));
  static constexpr int kSums = kFew * kMany;
  static constexpr StreamGroup kGroup = stream_group(kMany, sizeof(T));
  using Few = FewRows<T, kFew, kThreads>;
  using Many = ManyRows<T, kFew, kMany, kWords, C::kWaveK, kThreads>;
  static_assert(kSame<T, typename C::B>, "both operands have one type");
  static_assert(kSums <= kStreamLanes, "a lane finishes one output");
  static_assert(C::kTileK % Few::kRow == 0, "parts of k are whole blocks");

  static constexpr int kFit = 65536 / (stream_registers(kFew, kMany, kWords) * kThreads);
  static constexpr int kMinBlocks = kFit < 1 ? 1 : kFit;

  // The words of a block's next tile are on their way while the sums of a tile are added up.
  static __device__ __forceinline__ void run(const CudaGemmArguments& arguments) {
    extern __shared__ __align__(16) float few[];
    const GemmArguments& g = arguments.gemm;
    const u64 tiles = stream_tiles(g.n < g.m ? g.m : g.n, kMany, C::kWaveN, sizeof(T));
    const u64 all = tiles * g.batch;
    const u64 each = all <= gridDim.x ? 1 : (all + gridDim.x - 1) / gridDim.x;
    const u64 first = each * blockIdx.x;
    const u64 end = first + each < all ? first + each : all;
    if (first >= end) return;
    i64 filled = -1;  // the batch of which shared memory has the few rows
    Many many;
    Tile tile(g, first, tiles);
    tile.begin(g, 0, many);
#pragma unroll 1
    for (u64 index = first; index < end; ++index) {
      float sums[kMany][kFew] = {};
      add_up(g, tile, filled == tile.batch, few, many, sums);
      if (g.k <= C::kTileK) filled = tile.batch;
      const Tile done = tile;
      if (index + 1 < end) {
        tile = Tile(g, index + 1, tiles);
        tile.begin(g, 0, many);
      }
      store(g, done, sums);
      if constexpr (C::kWaveK > 1) __syncthreads();  // the sums of parts have been read
    }
  }

 private:
  static __device__ __forceinline__ int lane() {
    return static_cast<int>(threadIdx.x) % kStreamLanes;
  }
  static __device__ __forceinline__ int warp() {
    return static_cast<int>(threadIdx.x) / kStreamLanes;
  }

  // A warp's rows of one of the tiles of all batches. Rows follow each other at the group's
  // distance.
  struct Tile {
    StreamOperands<T> x;
    i64 batch, row;  // the first one

    // Divisions take long enough to be left out where they can be.
    __device__ __forceinline__ Tile(const GemmArguments& g, u64 index, u64 tiles)
        : Tile(g, index, tiles, g.batch == 1 ? 0 : static_cast<i64>(index / tiles)) {}
    __device__ __forceinline__ Tile(const GemmArguments& g, u64 index, u64 tiles, i64 of_batch)
        : x(g, of_batch), batch(of_batch) {
      const i64 in_batch = static_cast<i64>(index) - of_batch * static_cast<i64>(tiles);
      const i64 before = in_batch * C::kWaveN + warp() % C::kWaveN;
      row = before / kGroup.warps * kGroup.rows + before % kGroup.warps;
    }

    // Has `many` ask for the first words of the part of k from `k` on.
    __device__ __forceinline__ void begin(const GemmArguments& g, i64 k, Many& many) const {
      const i64 left = x.many_rows - row;
      const i64 exist = left <= 0 ? 0 : (left + kGroup.warps - 1) / kGroup.warps;
      const int length = static_cast<int>(g.k - k < C::kTileK ? g.k - k : C::kTileK);
      const T* const from = x.many + (exist > 0 ? row * x.ld_many + k : 0);
      many.lane = lane();
      many.rows = static_cast<int>(exist < kMany ? exist : kMany);
      many.row_bytes = kGroup.warps * x.ld_many * static_cast<i64>(sizeof(T));
      many.begin(reinterpret_cast<const char*>(from), length, warp() / C::kWaveN);
    }
  };

  static __device__ __forceinline__ void add_up(const GemmArguments& g, const Tile& tile,
                                                bool is_filled, float* few, Many& many,
                                                float (&sums)[kMany][kFew]) {
#pragma unroll 1
    for (i64 k = 0; k < g.k; k += C::kTileK) {
      const int length = static_cast<int>(g.k - k < C::kTileK ? g.k - k : C::kTileK);
      if (k > 0) tile.begin(g, k, many);
      if (!is_filled) {
        __syncthreads();  // nobody reads the last part any more
        Few::fill(few, tile.x, k, length, static_cast<int>(threadIdx.x));
        __syncthreads();
      }
      many.multiply(few, sums);
    }
  }

  // Lane l has the sum of row l / kFew and few row l % kFew.
  static __device__ __forceinline__ float of_lane(const float (&sums)[kMany][kFew], int lane) {
    float mine = 0;
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      const float sum = sum_of_warp(sums[i / kFew][i % kFew]);
      if (lane == i) mine = sum;
    }
    return mine;
  }

  static __device__ __forceinline__ void store(const GemmArguments& g, const Tile& tile,
                                               const float (&sums)[kMany][kFew]) {
    float sum = of_lane(sums, lane());
    if constexpr (C::kWaveK > 1) {
      __shared__ float parts[C::kWaveK][C::kWaveN][kSums];
      if (lane() < kSums) parts[warp() / C::kWaveN][warp() % C::kWaveN][lane()] = sum;
      __syncthreads();
      if (warp() >= C::kWaveN || lane() >= kSums) return;
#pragma unroll
      for (int i = 1; i < C::kWaveK; ++i) sum += parts[i][warp()][lane()];
    }
    const i64 of_many = tile.row + lane() / kFew * kGroup.warps;
    const i64 of_few = lane() % kFew;
    const bool exists = of_many < tile.x.many_rows && of_few < tile.x.few_rows;
    if (lane() >= kSums || !exists) return;
    const Finish<C, GemmArguments> finish(g, tile.batch);
    // A place of one element may have an odd column, because it is not read as a pair.
    const Place place = tile.x.turned ? Place{of_many, of_few, 1} : Place{of_few, of_many, 1};
    finish.store(finish.address(place), finish.finish(place, sum, 0.0F), 1);
  }
};

}  // namespace tessera::device
