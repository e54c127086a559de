// The inner loops that evaluate a forest for many candidates: one version for any machine, one for
// AVX-512. A set of candidates has one bit for each candidate, in 64-bit words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/learn/forest.h"

namespace tessera {

inline constexpr std::size_t kWordBits = 64;
inline constexpr std::size_t kTreeGroup = 16;  // the most trees that are added together
inline constexpr std::size_t kScratchSets = 8 * kTreeGroup;

// Whether a divided set has members on the left side and on the right side.
struct Sides {
  bool left = false;
  bool right = false;
};

// The leaves of one tree that candidates reach: `leaves` sets of `words` words, one after the
// other, and the value of each.
struct ReachedTree {
  const std::uint64_t* sets;
  const double* values;  // at least 32 can be read
  std::size_t leaves;
};

// The nearest values of a column on either side of a threshold. Every threshold from `most_left` up
// to but not including `least_right` divides the column in the same way.
struct Gap {
  double most_left;    // -infinity: no value goes left
  double least_right;  // infinity: no value goes right
};

// A column of finite numbers as 15-bit codes: (x - low) * scale, cut to an integer. Codes have the
// order of the numbers: the greater code belongs to the greater number. Equal codes say nothing
// about which number is greater.
struct Coding {
  double low;
  double scale;
  std::int16_t code(double x) const { return static_cast<std::int16_t>((x - low) * scale); }
};
inline constexpr std::int16_t kMostCode = 32766;
inline constexpr std::int16_t kNoCode = 32767;  // fills the rest of the last word; greater than
                                                // every code

// The least and the greatest number of a column. Meaningless when a number is not finite.
struct Extent {
  double low;
  double high;
  bool finite;
};

// The codes next to a threshold's code: the greatest code up to it and the least code above it
// (kNoCode: none).
struct CodeGap {
  std::int16_t most_left;
  std::int16_t least_right;
};

struct ForestKernels {
  Extent (*extent)(const double* column, std::size_t count);
  // Fills whole words of 64 codes.
  void (*encode)(const double* column, std::size_t count, const Coding& coding,
                 std::int16_t* codes);
  // Fills `words` words with the set of candidates whose code is at most `threshold`. There must be
  // at least one.
  CodeGap (*compare_codes)(const std::int16_t* codes, std::size_t words, std::int16_t threshold,
                           std::uint64_t* left);
  // Fills `words` words with the set of candidates that go left at a numeric question. Bits from
  // `count` on are 0.
  Gap (*compare)(const double* column, std::size_t count, const Split& split, std::uint64_t* left);
  // Divides the set `from`: `left` gets its members inside of `mask`, and `from` keeps those
  // outside.
  Sides (*divide)(std::uint64_t* from, const std::uint64_t* mask, std::uint64_t* left,
                  std::size_t words);
  // Adds each tree's value to the sums of all candidates, tree by tree. `sums` has words * 64
  // places; each version orders the 64 sums of a word in its own way. `scratch` has room for
  // kScratchSets sets.
  void (*add)(std::span<const ReachedTree> trees, std::size_t words, std::uint64_t* scratch,
              double* sums);
  // Copies the sums in the order of the candidates.
  void (*copy)(const double* sums, std::span<double> out);
};

// Whether two questions differ in nothing but their threshold.
inline bool same_kind(const Split& a, const Split& b) {
  return a.feature == b.feature && a.categorical == b.categorical &&
         a.missing_left == b.missing_left && a.flip_zero == b.flip_zero;
}

bool goes_left(const Split& split, const std::uint32_t* category_bits, double x);

const ForestKernels& generic_kernels();
// nullptr when this build or this machine has no AVX-512.
const ForestKernels* avx512_kernels();

}  // namespace tessera
