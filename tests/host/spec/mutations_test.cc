// Every parser of the spec under random damage: an Error or a value, never anything else.
#include <gtest/gtest.h>

#include "host/spec/random_specs.h"
#include "tessera/base/error.h"
#include "tessera/spec/target.h"

namespace tessera {
namespace {

constexpr int kRounds = 5000;

// Changes, removes, repeats or inserts up to four bytes or runs of bytes.
std::string damaged(std::string text, RandomSpecs& random) {
  constexpr std::string_view kBytes = "0129abgmx_=,+-.:\"{}[] \n\\\xff";
  for (std::int64_t i = random.integer(1, 4); i > 0 && !text.empty(); --i) {
    const auto last = static_cast<std::int64_t>(text.size()) - 1;
    const auto at = static_cast<std::size_t>(random.integer(0, last));
    const auto run = static_cast<std::size_t>(random.integer(1, 9));
    const char byte = kBytes[static_cast<std::size_t>(
        random.integer(0, static_cast<std::int64_t>(kBytes.size()) - 1))];
    switch (random.integer(0, 3)) {
      case 0:
        text[at] = byte;
        break;
      case 1:
        text.erase(at, run);
        break;
      case 2:
        text.insert(at, text.substr(at, run));
        break;
      default:
        text.insert(at, 1, byte);
    }
  }
  return text;
}

// How many damaged texts still parse; whatever parses must survive a second trip.
template <class Make, class Parse>
int count_parsed(const Make& make, const Parse& parse) {
  const unsigned seed = fresh_seed();
  SCOPED_TRACE(seed);
  RandomSpecs random(seed);
  int parsed = 0;
  for (int i = 0; i < kRounds; ++i) {
    const std::string text = damaged(make(random), random);
    try {
      parse(text);
      ++parsed;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::parse_error) << text << ": " << error.what();
    }
  }
  return parsed;
}

TEST(Mutations, OfNames) {
  count_parsed([](RandomSpecs& random) { return name_of(random.spec()); },
               [](const std::string& text) { EXPECT_EQ(name_of(parse_name(text)), text); });
}

TEST(Mutations, OfLines) {
  const int parsed = count_parsed([](RandomSpecs& random) { return to_string(random.problem()); },
                                  [](const std::string& text) {
                                    const std::string canonical = to_string(parse_problem(text));
                                    EXPECT_EQ(to_string(parse_problem(canonical)), canonical)
                                        << text;
                                  });
  EXPECT_GT(parsed, 0);
}

TEST(Mutations, OfProblemJson) {
  const int parsed = count_parsed([](RandomSpecs& random) { return to_json(random.problem()); },
                                  [](const std::string& text) {
                                    const std::string canonical = to_json(problem_from_json(text));
                                    EXPECT_EQ(to_json(problem_from_json(canonical)), canonical)
                                        << text;
                                  });
  EXPECT_GT(parsed, 0);
}

TEST(Mutations, OfSpecJson) {
  count_parsed([](RandomSpecs& random) { return to_json(random.spec()); },
               [](const std::string& text) {
                 const KernelSpec spec = kernel_spec_from_json(text);
                 EXPECT_EQ(kernel_spec_from_json(to_json(spec)), spec) << text;
               });
}

TEST(Mutations, OfTargetRows) {
  const std::string row = R"({"name": "mine", "backend": "cpu", "vector_bytes": 32,
    "vector_registers": 16, "clock_ghz": 3.5, "memory_gb_per_s": 40, "units": 2,
    "caches": [{"name": "l1", "bytes": 32768}],
    "instructions": [{"name": "fma", "a": "fp32", "b": "fp32", "acc": "fp32", "shape": "1x8x1",
                      "per_cycle": 2}],
    "spaces": {"gemm": {"pipelines": ["direct"], "tiles": ["8x8x8"], "waves": ["0x0x1"],
                        "warp_tiles": {"fp32": ["6x16x1"]}}},
    "sources": {"*": "x"}})";
  const int parsed = count_parsed([&](RandomSpecs&) { return row; },
                                  [](const std::string& text) {
                                    const Target target = target_from_json(text);
                                    EXPECT_EQ(target_from_json(to_json(target)), target) << text;
                                  });
  EXPECT_GT(parsed, 0);
}

}  // namespace
}  // namespace tessera
