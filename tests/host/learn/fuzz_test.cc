// Damaged files: whatever is done to a valid model, reading it gives a model or a sentence.
#include <gtest/gtest.h>

#include "host/learn/models.h"
#include "tessera/learn/gzip.h"

namespace tessera {
namespace {

// Numbers at and past the ends of what fields hold, and things that are no numbers.
const std::string kExtremes[] = {
    "0",          "-1",  "1",   "2147483647", "2147483648", "-2147483648",
    "4294967295", "nan", "inf", "-inf",       "1e308",      "-1e309",
    "1e-320",     "",    " ",   "x",          "0x10",       "99999999999999999999"};

struct Mutator {
  std::mt19937_64 random;
  std::size_t below(std::size_t limit) { return random() % limit; }

  void flip(std::string& text) { text[below(text.size())] = static_cast<char>(random()); }

  // Replaces the number, or whatever word, that stands at a random place.
  void replace_number(std::string& text) {
    const std::string_view ends = " =\n\",:[]{}";
    const std::size_t at = below(text.size());
    const std::size_t begin = text.find_last_of(ends, at);
    const std::size_t first = begin == std::string::npos ? 0 : begin + 1;
    const std::size_t last = std::min(text.find_first_of(ends, first), text.size());
    text.replace(first, last - first, kExtremes[below(std::size(kExtremes))]);
  }

  void change_line(std::string& text) {
    const std::size_t at = below(text.size());
    const std::size_t begin = text.rfind('\n', at);
    const std::size_t first = begin == std::string::npos ? 0 : begin + 1;
    const std::size_t last = std::min(text.find('\n', first), text.size() - 1) + 1;
    const std::string line = text.substr(first, last - first);
    if (below(2) == 0) {
      text.erase(first, last - first);
    } else {
      text.insert(below(2) == 0 ? first : below(text.size()), line);
    }
  }

  std::string mutate(std::string text) {
    for (std::size_t n = 1 + below(4); n-- > 0 && !text.empty();) {
      switch (below(5)) {
        case 0:
          flip(text);
          break;
        case 1:
        case 2:
          replace_number(text);
          break;
        case 3:
          change_line(text);
          break;
        default:
          if (below(8) == 0) text.resize(below(text.size()));
      }
    }
    return text;
  }
};

// Whether it was read; anything but a sentence of ours fails the test.
bool survives(const std::function<void()>& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    EXPECT_NE(error.code(), ErrorCode::internal) << error.what();
    EXPECT_LT(std::string_view(error.what()).size(), 700u) << error.what();
    return false;
  }
}

TEST(Fuzz, DamagedForests) {
  const unsigned seed = fresh_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  RandomForest maker(seed);
  const std::string valid = maker.text(4, 12);
  const std::vector<double> columns = maker.columns(70);
  Mutator mutator{std::mt19937_64(seed)};
  std::size_t read = 0;
  constexpr std::size_t kRounds = 20000;
  for (std::size_t round = 0; round < kRounds; ++round) {
    const std::string text = mutator.mutate(round % 2 == 0 ? valid : kSmall);
    read += survives([&] {
      const Forest forest = parse_forest(text, "model.txt");
      const std::size_t features = forest.feature_names.size();
      std::vector<double> out(columns.size() / features);
      predict(forest, {std::span(columns).first(features * out.size()), out.size()}, out);
    });
  }
  // Both must happen, or the mutations are too weak or too strong to find anything.
  EXPECT_GT(read, kRounds / 50);
  EXPECT_LT(read, kRounds * 9 / 10);
}

TEST(Fuzz, DamagedGzip) {
  const unsigned seed = fresh_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Mutator mutator{std::mt19937_64(seed)};
  const std::string valid = deflate_gzip(kSmall);
  for (std::size_t round = 0; round < 1000; ++round) {
    std::string bytes = valid;
    mutator.flip(bytes);
    survives([&] { parse_forest(bytes, "model.txt.gz"); });
  }
}

TEST(Fuzz, DamagedManifests) {
  const unsigned seed = fresh_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Mutator mutator{std::mt19937_64(seed)};
  const std::string valid = to_json(small_manifest());
  std::size_t read = 0;
  constexpr std::size_t kRounds = 3000;
  for (std::size_t round = 0; round < kRounds; ++round) {
    const std::string json = mutator.mutate(valid);
    read += survives([&] { make_model(json, kSmall, kSmallUse, "small"); });
  }
  EXPECT_GT(read, 0u);
  EXPECT_LT(read, kRounds * 9 / 10);
}

}  // namespace
}  // namespace tessera
