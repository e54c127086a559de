// The random numbers of dropout: the generator's published answers, which bits belong to which
// weight, and how many weights are kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "host/fmha/plain_fmha.h"
#include "tessera/device/fmha_dropout.h"
#include "tessera/families/fmha/arguments.h"

namespace tessera::fmha {
namespace {

using device::u32;

// Random123, tests/kat_vectors, philox4x32 10.
struct KnownAnswer {
  std::array<u32, 4> counter;
  std::array<u32, 2> key;
  std::array<u32, 4> bits;
};
constexpr KnownAnswer kKnownAnswers[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

TEST(Philox, GivesThePublishedAnswers) {
  for (const auto& [counter, key, bits] : kKnownAnswers) {
    const device::PhiloxWords<u32> words =
        device::philox({{counter[0], counter[1], counter[2], counter[3]}}, key[0], key[1]);
    EXPECT_EQ((std::array{words.w[0], words.w[1], words.w[2], words.w[3]}), bits);
    EXPECT_EQ(plain_philox(counter, key), bits);
  }
}

// By the layout that docs/attention.md writes down, for places and words of any size.
TEST(FmhaDropout, BitsOfAWeightFollowFromItsPlace) {
  const std::uint64_t seed = std::random_device{}();
  RandomFmhas random(seed);
  const auto word = [&] {
    return static_cast<std::uint64_t>(random.integer(-(1LL << 62), 1LL << 62)) * 2 + random.coin();
  };
  for (int i = 0; i < 1000; ++i) {
    FmhaProblem p = small_problem(1, 1, 1);
    p.heads = random.integer(1, 1LL << 31);
    p.p_drop = 0.5F;
    const std::uint64_t words[] = {word(), word()};
    const device::FmhaArguments g =
        fmha::arguments_of(with_strides(p), FmhaOperands{.seed = words[0], .offset = words[1]});
    PlainCase c(small_problem(1, 1, 1));
    c.p.heads = p.heads;
    c.list.add().name = "dropout_rng";
    c.memory.emplace_back(sizeof(words));
    std::memcpy(c.memory.back().data(), words, sizeof(words));
    const PlainRow row{c,
                       random.integer(0, 1LL << 31),
                       random.integer(0, p.heads - 1),
                       random.integer(0, 1LL << 31),
                       0,
                       0,
                       0,
                       0};
    const std::int64_t j = random.integer(0, 1LL << 31);
    const auto bits = device::dropout_words(device::dropout_key(g),
                                            device::dropout_row(g, row.b, row.h, row.i), j / 16);
    EXPECT_EQ(device::dropout_byte(bits, j), static_cast<u32>(row.random_byte(j))) << seed;
  }
}

TEST(FmhaDropout, KeptIsRoundedAndNeverNone) {
  EXPECT_EQ(device::dropout_kept(0.001F), 256);
  EXPECT_EQ(device::dropout_kept(0.1F), 230);
  EXPECT_EQ(device::dropout_kept(0.5F), 128);
  EXPECT_EQ(device::dropout_kept(0.75F), 64);
  EXPECT_EQ(device::dropout_kept(0.99F), 3);
  EXPECT_EQ(device::dropout_kept(0.9999999F), 1);
}

// The random bytes of `rows` queries and `keys` keys.
std::vector<int> bytes_of(std::uint64_t seed, std::uint64_t offset, int rows, int keys) {
  const FmhaProblem p = with_strides(small_problem(rows, keys, 1));
  const device::FmhaArguments g =
      fmha::arguments_of(p, FmhaOperands{.seed = seed, .offset = offset});
  std::vector<int> bytes;
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < keys; ++j) {
      const auto bits =
          device::dropout_words(device::dropout_key(g), device::dropout_row(g, 0, 0, i), j / 16);
      bytes.push_back(static_cast<int>(device::dropout_byte(bits, j)));
    }
  }
  return bytes;
}

// Shares of kept weights lie within five standard deviations of what they should be.
TEST(FmhaDropout, AsManyAreKeptAsShouldBe) {
  const std::uint64_t seed = std::random_device{}();
  const std::vector<int> bytes = bytes_of(seed, seed / 3, 500, 1000);
  const auto count = static_cast<double>(bytes.size());
  for (const int kept : {1, 26, 128, 230, 255}) {
    const double share = kept / 256.0;
    const auto found = static_cast<double>(
        std::count_if(bytes.begin(), bytes.end(), [kept](int byte) { return byte < kept; }));
    EXPECT_LT(std::abs(found - count * share), 5 * std::sqrt(count * share * (1 - share)))
        << "seed " << seed << ", kept " << kept;
  }
}

// By chance 39 of 10,000 bytes are equal, with a standard deviation of 6.2.
TEST(FmhaDropout, SeedAndOffsetChangeEverything) {
  const std::uint64_t seed = std::random_device{}();
  const std::vector<int> first = bytes_of(seed, 5, 100, 100);
  EXPECT_EQ(bytes_of(seed, 5, 100, 100), first);
  for (const auto& [other_seed, offset] : {std::pair{seed + 1, std::uint64_t{5}},
                                           {seed ^ 1ULL << 40, 5},
                                           {seed, 6},
                                           {seed, 5 + (1ULL << 33)}}) {
    const std::vector<int> other = bytes_of(other_seed, offset, 100, 100);
    int equal = 0;
    for (std::size_t i = 0; i < first.size(); ++i) equal += first[i] == other[i] ? 1 : 0;
    EXPECT_LT(equal, 80) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tessera::fmha
