// For any machine: plain loops, which the compiler turns into vector instructions.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "tessera/learn/forest_batch_internal.h"

namespace tessera {
namespace {

Extent extent(const double* column, std::size_t count) {
  Extent e{column[0], column[0], true};
  double zero = 0;  // becomes NaN when a number is not finite
  for (std::size_t i = 0; i < count; ++i) {
    e.low = column[i] < e.low ? column[i] : e.low;
    e.high = column[i] > e.high ? column[i] : e.high;
    zero += column[i] * 0;
  }
  e.finite = zero == 0;
  return e;
}

void encode(const double* column, std::size_t count, const Coding& coding, std::int16_t* codes) {
  for (std::size_t i = 0; i < count; ++i) codes[i] = coding.code(column[i]);
  std::fill(codes + count, codes + (count + kWordBits - 1) / kWordBits * kWordBits, kNoCode);
}

// Eight bytes of 0 or 1 become eight bits by one multiplication that shifts each to its place.
CodeGap compare_codes(const std::int16_t* codes, std::size_t words, std::int16_t threshold,
                      std::uint64_t* left) {
  static_assert(std::endian::native == std::endian::little);
  std::array<std::int16_t, kWordBits> most;
  std::array<std::int16_t, kWordBits> least;
  most.fill(-1);
  least.fill(kNoCode);
  for (std::size_t w = 0; w < words; ++w, codes += kWordBits) {
    std::array<std::uint8_t, kWordBits> below;
    for (std::size_t i = 0; i < kWordBits; ++i) {
      const std::int16_t code = codes[i];
      const bool is_below = code <= threshold;
      below[i] = is_below ? 1 : 0;
      most[i] = std::max(most[i], is_below ? code : std::int16_t{-1});
      least[i] = std::min(least[i], is_below ? kNoCode : code);
    }
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < kWordBits; i += 8) {
      std::uint64_t bytes = 0;
      std::memcpy(&bytes, &below[i], sizeof bytes);
      word |= (bytes * 0x0102040810204080 >> 56) << i;
    }
    left[w] = word;
  }
  return {*std::max_element(most.begin(), most.end()),
          *std::min_element(least.begin(), least.end())};
}

Gap compare(const double* column, std::size_t count, const Split& split, std::uint64_t* left) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Gap gap{-kInfinity, kInfinity};
  for (std::size_t first = 0; first < count; first += kWordBits) {
    const std::size_t bits = std::min(kWordBits, count - first);
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < bits; ++i) {
      const double x = column[first + i];
      const bool below = x <= split.threshold;
      const bool above = x > split.threshold;  // NaN is on neither side
      gap.most_left = below && x > gap.most_left ? x : gap.most_left;
      gap.least_right = above && x < gap.least_right ? x : gap.least_right;
      bool is_left = split.missing_left ? !above : below;
      is_left ^= split.flip_zero && std::fabs(x) <= kForestZero;
      word |= static_cast<std::uint64_t>(is_left) << i;
    }
    *left++ = word;
  }
  return gap;
}

Sides divide(std::uint64_t* from, const std::uint64_t* mask, std::uint64_t* left,
             std::size_t words) {
  std::uint64_t any_left = 0;
  std::uint64_t any_right = 0;
  for (std::size_t w = 0; w < words; ++w) {
    const std::uint64_t all = from[w];
    left[w] = all & mask[w];
    from[w] = all & ~mask[w];
    any_left |= left[w];
    any_right |= from[w];
  }
  return {any_left != 0, any_right != 0};
}

// A word whose bits are all set is handled at once. That is frequent, because neighbours in a list
// sorted by name are much alike.
void add_word(std::uint64_t word, double value, double* sums) {
  if (word == ~std::uint64_t{0}) {
    for (std::size_t i = 0; i < kWordBits; ++i) sums[i] += value;
    return;
  }
  for (; word != 0; word &= word - 1) sums[std::countr_zero(word)] += value;
}

void add(std::span<const ReachedTree> trees, std::size_t words, std::uint64_t*, double* sums) {
  for (std::size_t w = 0; w < words; ++w) {
    for (const ReachedTree& tree : trees) {
      for (std::size_t leaf = 0; leaf < tree.leaves; ++leaf) {
        add_word(tree.sets[leaf * words + w], tree.values[leaf], sums + w * kWordBits);
      }
    }
  }
}

void copy(const double* sums, std::span<double> out) { std::copy_n(sums, out.size(), out.begin()); }

}  // namespace

const ForestKernels& generic_kernels() {
  static constexpr ForestKernels kKernels{extent, encode, compare_codes, compare,
                                          divide, add,    copy};
  return kKernels;
}

}  // namespace tessera
