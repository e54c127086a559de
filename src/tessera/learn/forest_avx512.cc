// For AVX-512: eight doubles at a time. The sums of a word of 64 candidates stay in registers while
// one tree after the other is added. The number of the leaf selects a tree's value from a table.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "tessera/learn/forest_batch_internal.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace tessera {
namespace {

// The most leaves that a byte can number, and the most whose values fit into registers.
constexpr std::size_t kMostNumbered = 256;
constexpr std::size_t kLanes = 8;
// Masked intrinsics with all lanes on, because the unmasked ones in GCC 12's header warn of an
// uninitialised value.
constexpr __mmask8 kAll = 0xff;

[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] Extent extent(const double* column,
                                                                    std::size_t count) {
  __m512d low = _mm512_set1_pd(column[0]);
  __m512d high = low;
  __m512d zero = _mm512_setzero_pd();  // becomes NaN when a number is not finite
  const __m512d first = low;
  for (std::size_t i = 0; i < count; i += kLanes) {
    const auto present = static_cast<__mmask8>((1U << std::min(kLanes, count - i)) - 1);
    const __m512d x = _mm512_mask_loadu_pd(first, present, column + i);
    low = _mm512_mask_min_pd(low, kAll, low, x);
    high = _mm512_mask_max_pd(high, kAll, high, x);
    zero += x * _mm512_setzero_pd();
  }
  Extent e{column[0], column[0], true};
  for (std::size_t i = 0; i < kLanes; ++i) {
    e.low = std::min(e.low, low[i]);
    e.high = std::max(e.high, high[i]);
    e.finite = e.finite && zero[i] == 0;
  }
  return e;
}

[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void encode(const double* column,
                                                                  std::size_t count,
                                                                  const Coding& coding,
                                                                  std::int16_t* codes) {
  const __m512d low = _mm512_set1_pd(coding.low);
  const __m512d scale = _mm512_set1_pd(coding.scale);
  const __m128i none = _mm_set1_epi16(kNoCode);
  const std::size_t end = (count + kWordBits - 1) / kWordBits * kWordBits;
  for (std::size_t i = 0; i < end; i += kLanes) {
    const std::size_t here = i < count ? std::min(kLanes, count - i) : 0;
    const auto present = static_cast<__mmask8>((1U << here) - 1);
    const __m512d x = (_mm512_maskz_loadu_pd(present, column + i) - low) * scale;
    const __m256i whole = _mm512_maskz_cvttpd_epi32(present, x);
    const __m128i narrow = _mm256_mask_cvtepi32_epi16(none, present, whole);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i), narrow);
  }
}

[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] CodeGap compare_codes(
    const std::int16_t* codes, std::size_t words, std::int16_t threshold, std::uint64_t* left) {
  constexpr std::size_t kHalf = kWordBits / 2;
  const __m512i limit = _mm512_set1_epi16(threshold);
  __m512i most = _mm512_set1_epi16(-1);
  __m512i least = _mm512_set1_epi16(kNoCode);
  for (std::size_t w = 0; w < words; ++w) {
    std::uint64_t word = 0;
    for (std::size_t half = 0; half < kWordBits; half += kHalf) {
      const __m512i code = _mm512_loadu_si512(codes + w * kWordBits + half);
      const __mmask32 below = _mm512_cmple_epi16_mask(code, limit);
      most = _mm512_mask_max_epi16(most, below, most, code);
      least = _mm512_mask_min_epi16(least, ~below, least, code);
      word |= std::uint64_t{below} << half;
    }
    left[w] = word;
  }
  std::array<std::int16_t, kHalf> mosts;
  std::array<std::int16_t, kHalf> leasts;
  _mm512_storeu_si512(mosts.data(), most);
  _mm512_storeu_si512(leasts.data(), least);
  return {*std::max_element(mosts.begin(), mosts.end()),
          *std::min_element(leasts.begin(), leasts.end())};
}

// Compares eight values of a column with a threshold at a time.
struct Lanes {
  __m512d threshold, most_left, least_right;
  bool missing_left, flip_zero;
};

[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::always_inline]] inline __mmask8
compare_lanes(Lanes& lanes, __m512d x, __mmask8 present) {
  const __mmask8 below = _mm512_mask_cmp_pd_mask(present, x, lanes.threshold, _CMP_LE_OQ);
  const __mmask8 above = _mm512_mask_cmp_pd_mask(present, x, lanes.threshold, _CMP_GT_OQ);
  lanes.most_left = _mm512_mask_max_pd(lanes.most_left, below, lanes.most_left, x);
  lanes.least_right = _mm512_mask_min_pd(lanes.least_right, above, lanes.least_right, x);
  __mmask8 left = lanes.missing_left ? static_cast<__mmask8>(present & ~above) : below;
  if (lanes.flip_zero) {
    const __m512d zero = _mm512_set1_pd(kForestZero);
    left ^= _mm512_mask_cmp_pd_mask(present, _mm512_abs_pd(x), zero, _CMP_LE_OQ);
  }
  return left;
}

[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] Gap compare(const double* column,
                                                                  std::size_t count,
                                                                  const Split& split,
                                                                  std::uint64_t* left) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Lanes lanes{_mm512_set1_pd(split.threshold), _mm512_set1_pd(-kInfinity),
              _mm512_set1_pd(kInfinity), split.missing_left, split.flip_zero};
  const std::size_t whole = count / kWordBits * kWordBits;
  for (std::size_t first = 0; first < whole; first += kWordBits) {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < kWordBits; i += kLanes) {
      const __m512d x = _mm512_loadu_pd(column + first + i);
      word |= std::uint64_t{compare_lanes(lanes, x, kAll)} << i;
    }
    *left++ = word;
  }
  if (whole < count) *left = 0;
  for (std::size_t i = whole; i < count; i += kLanes) {
    const auto present = static_cast<__mmask8>((1U << std::min(kLanes, count - i)) - 1);
    const __m512d x = _mm512_maskz_loadu_pd(present, column + i);
    *left |= std::uint64_t{compare_lanes(lanes, x, present)} << (i - whole);
  }
  Gap gap{-kInfinity, kInfinity};
  for (std::size_t i = 0; i < kLanes; ++i) {
    gap.most_left = std::max(gap.most_left, lanes.most_left[i]);
    gap.least_right = std::min(gap.least_right, lanes.least_right[i]);
  }
  return gap;
}

[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] Sides divide(std::uint64_t* from,
                                                                   const std::uint64_t* mask,
                                                                   std::uint64_t* left,
                                                                   std::size_t words) {
  __m512i any_left = _mm512_setzero_si512();
  __m512i any_right = any_left;
  for (std::size_t w = 0; w < words; w += kLanes) {
    const auto present = static_cast<__mmask8>((1U << std::min(kLanes, words - w)) - 1);
    const __m512i all = _mm512_maskz_loadu_epi64(present, from + w);
    const __m512i inside = _mm512_maskz_loadu_epi64(present, mask + w);
    const __m512i to_left = all & inside;
    const __m512i to_right = all & ~inside;
    _mm512_mask_storeu_epi64(left + w, present, to_left);
    _mm512_mask_storeu_epi64(from + w, present, to_right);
    any_left |= to_left;
    any_right |= to_right;
  }
  return {_mm512_test_epi64_mask(any_left, any_left) != 0,
          _mm512_test_epi64_mask(any_right, any_right) != 0};
}

// The sets of a tree's leaf numbers, one for each of `bits` bits.
struct NumberedTree {
  const std::uint64_t* planes;
  unsigned bits;
};

// Set b holds the candidates whose leaf number has bit b. Uniting whole sets is cheaper than
// writing each leaf's number to bytes.
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void unite_bits(const ReachedTree& tree,
                                                                      std::size_t words,
                                                                      unsigned bits,
                                                                      std::uint64_t* planes) {
  for (unsigned b = 0; b < bits; ++b, planes += words) {
    for (std::size_t w = 0; w < words; w += kLanes) {
      const auto present = static_cast<__mmask8>((1U << std::min(kLanes, words - w)) - 1);
      __m512i plane = _mm512_setzero_si512();
      for (std::size_t leaf = std::size_t{1} << b; leaf < tree.leaves;
           leaf = (leaf + 1) | (1U << b)) {
        plane |= _mm512_maskz_loadu_epi64(present, tree.sets + leaf * words + w);
      }
      _mm512_mask_storeu_epi64(planes + w, present, plane);
    }
  }
}

// The leaf numbers of 64 candidates, as bytes.
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::always_inline]] inline __m512i numbers_of(
    const NumberedTree& tree, std::size_t words, std::size_t w) {
  __m512i number = _mm512_setzero_si512();
  for (unsigned b = 0; b < tree.bits; ++b) {
    const __m512i bit = _mm512_set1_epi8(static_cast<char>(1U << b));
    number |= _mm512_maskz_mov_epi8(tree.planes[b * words + w], bit);
  }
  return number;
}

// Sum j belongs to byte j of each of the eight 64-bit lanes. Shifts bring one byte after the other
// to the low end of its lane, where the permutation uses only the low bits.
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::always_inline]] inline void add_numbered(
    const ReachedTree& tree, __m512i numbers, __m512d* sums) {
  const double* values = tree.values;
  if (tree.leaves <= kLanes) {
    const __m512d table = _mm512_loadu_pd(values);
    for (std::size_t j = 0; j < kLanes; ++j) {
      sums[j] += _mm512_maskz_permutexvar_pd(kAll, numbers, table);
      numbers = numbers >> 8;
    }
    return;
  }
  if (tree.leaves <= 2 * kLanes) {
    const __m512d low = _mm512_loadu_pd(values);
    const __m512d high = _mm512_loadu_pd(values + kLanes);
    for (std::size_t j = 0; j < kLanes; ++j) {
      sums[j] += _mm512_permutex2var_pd(low, numbers, high);
      numbers = numbers >> 8;
    }
    return;
  }
  if (tree.leaves <= 4 * kLanes) {
    const __m512d quarter[] = {_mm512_loadu_pd(values), _mm512_loadu_pd(values + kLanes),
                               _mm512_loadu_pd(values + 2 * kLanes),
                               _mm512_loadu_pd(values + 3 * kLanes)};
    const __m512i upper_half = _mm512_set1_epi64(2 * kLanes);
    for (std::size_t j = 0; j < kLanes; ++j) {
      const __m512d low = _mm512_permutex2var_pd(quarter[0], numbers, quarter[1]);
      const __m512d high = _mm512_permutex2var_pd(quarter[2], numbers, quarter[3]);
      sums[j] += _mm512_mask_mov_pd(low, _mm512_test_epi64_mask(numbers, upper_half), high);
      numbers = numbers >> 8;
    }
    return;
  }
  const __m512i low_byte = _mm512_set1_epi64(0xff);
  for (std::size_t j = 0; j < kLanes; ++j) {
    const __m512i index = (numbers >> (8 * j)) & low_byte;
    sums[j] += _mm512_mask_i64gather_pd(_mm512_setzero_pd(), kAll, index, values, 8);
  }
}

// With more leaves than a byte can number, each set is added by itself.
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void add_sets(const ReachedTree& tree,
                                                                    std::size_t words,
                                                                    std::size_t w, __m512d* sums) {
  for (std::size_t leaf = 0; leaf < tree.leaves; ++leaf) {
    const std::uint64_t set = tree.sets[leaf * words + w];
    if (set == 0) continue;
    const __m512d value = _mm512_set1_pd(tree.values[leaf]);
    const __m512i members = _mm512_movm_epi8(set);
    for (std::size_t j = 0; j < kLanes; ++j) {
      const __mmask8 lanes = _mm512_test_epi64_mask(members, _mm512_set1_epi64(0xffLL << (8 * j)));
      sums[j] = _mm512_mask_add_pd(sums[j], lanes, sums[j], value);
    }
  }
}

[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void add_word(
    std::span<const ReachedTree> trees, std::span<const NumberedTree> numbered, std::size_t words,
    std::size_t w, double* sums) {
  __m512d sum[kLanes];
  for (std::size_t j = 0; j < kLanes; ++j) sum[j] = _mm512_loadu_pd(sums + j * kLanes);
  for (std::size_t i = 0; i < trees.size(); ++i) {
    const ReachedTree& tree = trees[i];
    if (tree.leaves == 1) {
      const __m512d value = _mm512_set1_pd(tree.values[0]);
      for (std::size_t j = 0; j < kLanes; ++j) sum[j] += value;
    } else if (tree.leaves <= kMostNumbered) {
      add_numbered(tree, numbers_of(numbered[i], words, w), sum);
    } else {
      add_sets(tree, words, w, sum);
    }
  }
  for (std::size_t j = 0; j < kLanes; ++j) _mm512_storeu_pd(sums + j * kLanes, sum[j]);
}

void add(std::span<const ReachedTree> trees, std::size_t words, std::uint64_t* scratch,
         double* sums) {
  std::array<NumberedTree, kTreeGroup> numbered;
  for (std::size_t i = 0; i < trees.size(); ++i) {
    numbered[i] = {scratch, static_cast<unsigned>(std::bit_width(trees[i].leaves - 1))};
    if (trees[i].leaves > kMostNumbered) continue;
    unite_bits(trees[i], words, numbered[i].bits, scratch);
    scratch += numbered[i].bits * words;
  }
  for (std::size_t w = 0; w < words; ++w) add_word(trees, numbered, words, w, sums + w * kWordBits);
}

void copy(const double* sums, std::span<double> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t in_word = i % kWordBits;
    out[i] = sums[i - in_word + in_word % kLanes * kLanes + in_word / kLanes];
  }
}

}  // namespace

const ForestKernels* avx512_kernels() {
  static constexpr ForestKernels kKernels{extent, encode, compare_codes, compare,
                                          divide, add,    copy};
  static const bool kHas = __builtin_cpu_supports("avx512f") &&
                           __builtin_cpu_supports("avx512bw") &&
                           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return kHas ? &kKernels : nullptr;
}

}  // namespace tessera

#else

namespace tessera {

const ForestKernels* avx512_kernels() { return nullptr; }

}  // namespace tessera

#endif
