#include "tessera/base/text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/hash.h"

namespace tessera {
namespace {

using Words = std::vector<std::string_view>;

TEST(Text, SplitKeepsEmptyParts) {
  EXPECT_EQ(split("a_b", '_'), (Words{"a", "b"}));
  EXPECT_EQ(split("_a__", '_'), (Words{"", "a", "", ""}));
  EXPECT_EQ(split("", '_'), Words{""});
}

TEST(Text, SplitWordsSkipsBlanks) {
  EXPECT_EQ(split_words(" a\t bc\r\n d "), (Words{"a", "bc", "d"}));
  EXPECT_EQ(split_words(" \n"), Words{});
  EXPECT_EQ(split_words(""), Words{});
}

TEST(Text, Join) {
  EXPECT_EQ(join(std::vector<std::string>{"a", "", "b"}, ", "), "a, , b");
  EXPECT_EQ(join(std::vector<std::string>{}, ", "), "");
}

TEST(Text, EditDistance) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("bf16", "bf61"), 1);  // neighbours that changed places
  EXPECT_EQ(edit_distance("dtype", "dtpye"), 1);
  EXPECT_EQ(edit_distance("abcd", "badc"), 2);
  EXPECT_EQ(edit_distance("relu", "rel"), 1);
}

TEST(Text, EditDistanceIsSymmetricAndBoundedByTheLengths) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto word = [&] {
    std::string text(random() % 8, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int i = 0; i < 2000; ++i) {
    const std::string a = word(), b = word();
    ASSERT_EQ(edit_distance(a, b), edit_distance(b, a)) << a << " " << b;
    const int longer = static_cast<int>(std::max(a.size(), b.size()));
    const int shorter = static_cast<int>(std::min(a.size(), b.size()));
    ASSERT_GE(edit_distance(a, b), longer - shorter) << a << " " << b;
    ASSERT_LE(edit_distance(a, b), longer) << a << " " << b;
    ASSERT_EQ(edit_distance(a, b) == 0, a == b);
  }
}

TEST(Text, SuggestsOnlyWhatIsNear) {
  const std::vector<std::string> known = {"packab", "packb", "direct"};
  EXPECT_EQ(nearest("pckb", known), "packb");
  EXPECT_EQ(nearest("dirtec", known), "direct");
  EXPECT_EQ(nearest("pcakb", known), "packb");
  EXPECT_EQ(nearest("stream", known), "");
  EXPECT_EQ(did_you_mean("pckb", known), ", did you mean 'packb'?");
  EXPECT_EQ(did_you_mean("stream", known), "");
  EXPECT_EQ(did_you_mean("x", {}), "");
}

// The distance to the first one is 1, and takes ten thousand million steps to find.
TEST(Text, EndlessWordsGetNoSuggestion) {
  const std::string word(100'000, 'x');
  const std::vector<std::string> known = {word.substr(1), "packab"};
  EXPECT_EQ(nearest(word, known), "");
  EXPECT_EQ(nearest(word.substr(0, 200), std::vector{word.substr(0, 199)}), word.substr(0, 199));
}

TEST(Text, ShortenedKeepsBothEnds) {
  EXPECT_EQ(shortened("0123456789", 10), "0123456789");
  EXPECT_EQ(shortened("0123456789", 8), "012345 [... 2 bytes left out ...] 89");
  EXPECT_EQ(shortened("", 0), "");
}

TEST(Text, ErrorsQuoteNothingEndless) {
  const std::string sentence =
      Error(ErrorCode::not_found, std::string(100'000, 'x') + " end").what();
  EXPECT_LT(sentence.size(), 4100U);
  EXPECT_TRUE(sentence.ends_with("x end")) << sentence;
}

TEST(Text, ByteOrderMarkIsNoText) {
  EXPECT_EQ(without_byte_order_mark("\xEF\xBB\xBFgemm"), "gemm");
  EXPECT_EQ(without_byte_order_mark("gemm\xEF\xBB\xBF"), "gemm\xEF\xBB\xBF");
  EXPECT_EQ(without_byte_order_mark("\xEF\xBB"), "\xEF\xBB");
}

TEST(Text, Wildcards) {
  struct Row {
    const char* pattern;
    const char* text;
    bool matches;
  };
  const Row rows[] = {
      {"", "", true},
      {"", "a", false},
      {"*", "", true},
      {"*", "abc", true},
      {"a*c", "abbc", true},
      {"a*c", "abcd", false},
      {"*b*", "abc", true},
      {"*b*", "ac", false},
      {"a*b*c", "axbxbc", true},
      {"**a", "ba", true},
      {"abc", "abd", false},
      {"128x*x64", "128x256x64", true},
      {"128x*x64", "128x64", false},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(matches_wildcard(row.pattern, row.text), row.matches)
        << row.pattern << " " << row.text;
  }
}

// Names of files in caches that live longer than a release: the values may never change.
TEST(Hash, IsStable) {
  EXPECT_EQ(hash_hex(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash64(""), 0x2d06800538d394c2ULL);
  EXPECT_NE(hash64("a", 0), hash64("a", 1));
  EXPECT_EQ(hash_hex("tessera").size(), 32U);
}

TEST(Hash, EveryByteCounts) {
  std::set<std::string> hex;
  std::set<std::uint64_t> words;
  std::string bytes(300, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = 1;
    hex.insert(hash_hex(bytes));
    words.insert(hash64(bytes));
    bytes[i] = 0;
    words.insert(hash64(std::string_view(bytes).substr(0, i)));
  }
  EXPECT_EQ(hex.size(), 300U);
  EXPECT_EQ(words.size(), 600U);
}

TEST(Hash, CombineDependsOnOrder) {
  EXPECT_NE(hash_combine(hash_combine(0, 1), 2), hash_combine(hash_combine(0, 2), 1));
  EXPECT_NE(hash_combine(0, 0), hash_combine(hash_combine(0, 0), 0));
}

}  // namespace
}  // namespace tessera
