// The lists of convolutions to learn from: frozen, fair in every prefix, apart from the unseen.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "host/conv/conv_problems.h"
#include "host/tile/feature_checks.h"
#include "tessera/base/hash.h"
#include "tessera/families/conv/conv.h"
#include "tessera/families/conv/net_layers_internal.h"
#include "tessera/targets/targets.h"

namespace tessera::conv {
namespace {

std::vector<Problem> drawn(std::string_view set, ProblemSide side, const std::string& target,
                           const TypeWords& words = {}) {
  return draw(set, side, load_target(target), words);
}

std::string lines_of(const std::vector<Problem>& problems) {
  std::string lines;
  for (const Problem& p : problems) lines += to_string(p) + "\n";
  return lines;
}
std::string digest(const std::vector<Problem>& problems) {
  return hash_hex(lines_of(problems)).substr(0, 16);
}

struct Frozen {
  const char* set;
  const char* target;
  TypeWords words;
  std::size_t count;
  const char* hash;
  std::size_t unseen_count;
  const char* unseen_hash;
};
const Frozen kFrozen[] = {
    {"forward", "sm90a", {"bf16", ""}, 1400, "ae2fe05ed3d992e4", 300, "5be2c452c4f59208"},
    {"backward_data", "sm90a", {"bf16", ""}, 1400, "7621154dc05bad40", 300, "827fc62859a48623"},
    {"backward_weight", "sm90a", {"bf16", ""}, 1400, "ef91205e8fe4bc36", 300, "3c360b43c171591b"},
    {"forward", "avx512", {"fp32", ""}, 1400, "8ab182aea568f0d9", 300, "3435726186ecbf35"},
    {"backward_data", "avx512", {"fp32", ""}, 1400, "c7bab622023a7481", 300, "a745999288285970"},
    {"backward_weight", "avx512", {"fp32", ""}, 1400, "813f2fbbb57b6b4c", 300, "6db563ea45817bf3"},
    {"forward", "sm90a", {"int8", ""}, 1400, "555444d119795038", 300, "33d3cb775353dd07"},
    {"forward", "avx512", {"fp32", "nchw"}, 1400, "005e48b67ba96c78", 300, "b234f1d5406cdd24"},
    {"wide", "sm90a", {"bf16", ""}, 4200, "035349595aa4d435", 900, "8147d7fd1b236647"},
    {"depthwise", "sm90a", {"bf16", ""}, 600, "da2852b87a10d8c4", 180, "ad8fdb483f2f2494"},
    {"layers", "sm90a", {"bf16", ""}, 600, "fdb3e59833b27fed", 180, "4f0bfcaf6a0e6a05"},
    {"nets", "sm90a", {"bf16", ""}, 4200, "b5e44cdacf063d67", 900, "bd02e0bd50dae5c8"},
    {"nets", "avx512", {"fp32", ""}, 4200, "48471c20ff3f0800", 900, "05440481cd40037b"},
};

// Whatever was measured or learned so far was measured and learned on these very lists.
TEST(ConvProblemSets, AreFrozen) {
  for (const Frozen& f : kFrozen) {
    const auto learned = drawn(f.set, ProblemSide::learned, f.target, f.words);
    const auto unseen = drawn(f.set, ProblemSide::unseen, f.target, f.words);
    EXPECT_EQ(learned.size(), f.count) << f.target << " " << f.set;
    EXPECT_EQ(digest(learned), f.hash) << f.target << " " << f.set;
    EXPECT_EQ(unseen.size(), f.unseen_count) << f.target << " " << f.set;
    EXPECT_EQ(digest(unseen), f.unseen_hash) << f.target << " " << f.set;
  }
}

TEST(ConvProblemSets, UnseenShapesAreNowhereElse) {
  std::set<std::string> seen;
  for (const std::string_view set : problem_sets()) {
    for (const std::string target : {"sm90a", "avx512"}) {
      if (set.starts_with("backward")) continue;  // the shapes of "forward"
      for (const Problem& p : drawn(set, ProblemSide::learned, target)) {
        EXPECT_FALSE(is_unseen(p)) << to_string(p);
        seen.insert(to_string(p));
      }
      for (const Problem& p : drawn(set, ProblemSide::unseen, target)) {
        EXPECT_TRUE(is_unseen(p)) << to_string(p);
      }
    }
  }
  EXPECT_GT(seen.size(), 8000U);
}

// Direction, layout and types do not move a problem to the other side; any size does.
TEST(ConvProblemSets, SidesFollowFromSizes) {
  const auto hash = [](const std::string& more) {
    return facts(parse_problem("conv direction=forward n=2 c=8 k=8 h=9 w=9 y=3 x=3 pad_h=1" + more))
        .shape_hash;
  };
  EXPECT_EQ(hash(""), hash(" layout=nchw dtype=bf16 epilogue=relu"));
  EXPECT_EQ(hash(""), hash(" pad_right_h=1"));
  EXPECT_EQ(facts(parse_problem("conv direction=backward_weight n=1 c=8 k=8 w=9")).shape_hash,
            facts(parse_problem("conv direction=backward_data n=1 c=8 k=8 w=9")).shape_hash);
  std::set<std::uint64_t> all = {hash("")};
  for (const char* more : {" pad_right_h=0", " pad_right_h=2", " pad_right_w=1", " pad_w=1",
                           " stride_h=2", " dilation_w=2", " g=2"}) {
    EXPECT_TRUE(all.insert(hash(more)).second) << more;
  }
}

TEST(ConvProblemSets, NoProblemTwiceAndEveryLineIsRead) {
  for (const std::string_view set : problem_sets()) {
    std::set<std::string> lines;
    for (const Problem& p : drawn(set, ProblemSide::learned, "sm90a", {"bf16", "nchw"})) {
      const std::string line = to_string(p);
      EXPECT_TRUE(lines.insert(line).second) << line;
      EXPECT_EQ(parse_problem(line), p) << line;
      EXPECT_TRUE(features_fit(p)) << line;
    }
  }
}

// A set of one direction holds the shapes of the set of all, which takes directions in turn.
TEST(ConvProblemSets, DirectionsHaveTheSameShapes) {
  const auto all = drawn("wide", ProblemSide::learned, "avx512");
  for (std::size_t d = 0; d < 3; ++d) {
    const auto one = drawn(to_string(kDirections[d]), ProblemSide::learned, "avx512");
    ASSERT_EQ(all.size(), 3 * one.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
      EXPECT_EQ(conv_of(one[i]).direction, kDirections[d]);
      EXPECT_EQ(one[i], all[3 * i + d]);
    }
  }
}

TEST(ConvProblemSets, TypesWithoutGradients) {
  EXPECT_EQ(drawn("wide", ProblemSide::unseen, "sm90a", {"fp8", ""}).size(), 300U);
  expect_error(ErrorCode::invalid_argument,
               "conv: backward_data takes fp32, tf32, fp16 and bf16, got fp8", [] {
                 drawn("backward_data", ProblemSide::unseen, "sm90a", {"fp8", ""});
               });
}

TEST(ConvProblemSets, ProblemsAreBounded) {
  double most = 0;
  for (const Problem& p : drawn("forward", ProblemSide::learned, "avx512")) {
    EXPECT_LE(flops(p), 0x1p31) << to_string(p);
    EXPECT_LE(bytes(p), 0x1p28) << to_string(p);
    most = std::max(most, flops(p));
  }
  EXPECT_GE(most, 0x1p30);
  most = 0;
  for (const Problem& p : drawn("forward", ProblemSide::learned, "sm90a", {"bf16", ""})) {
    EXPECT_LE(flops(p), 0x1p42) << to_string(p);
    EXPECT_LE(bytes(p), 0x1p31) << to_string(p);
    most = std::max(most, flops(p));
  }
  EXPECT_GE(most, 0x1p41);
}

// The documented families, in every prefix.
TEST(ConvProblemSets, EveryPrefixIsAMix) {
  struct Family {
    const char* name;
    bool (*is_one)(const ConvProblem&);
    double least;  // share of a prefix
  };
  constexpr Family kFamilies[] = {
      {"depthwise", is_depthwise, 0.1},
      {"grouped", [](const ConvProblem& p) { return p.g >= 2 && p.g <= 8 && !is_depthwise(p); },
       0.04},
      {"pointwise", is_pointwise, 0.12},
      {"3x3", [](const ConvProblem& p) { return p.filter[1] == 3 && p.filter[2] == 3; }, 0.25},
      {"3-D", [](const ConvProblem& p) { return p.ndim == 3; }, 0.05},
      {"1-D", [](const ConvProblem& p) { return p.ndim == 1; }, 0.03},
      {"stride 2", [](const ConvProblem& p) { return p.stride[2] == 2; }, 0.1},
      {"c != k", [](const ConvProblem& p) { return p.c != p.k; }, 0.3},
      {"stem", [](const ConvProblem& p) { return p.g == 1 && p.c <= 4; }, 0.03},
      {"one image", [](const ConvProblem& p) { return p.n == 1; }, 0.05},
      {"64 images and more", [](const ConvProblem& p) { return p.n >= 64; }, 0.03},
      {"7 x 7", [](const ConvProblem& p) { return p.size[1] == 7 && p.size[2] == 7; }, 0.02},
      {"56 x 56", [](const ConvProblem& p) { return p.size[1] == 56 && p.size[2] == 56; }, 0.02},
  };
  for (const std::string target : {"sm90a", "avx512"}) {
    for (const ProblemSide side : {ProblemSide::learned, ProblemSide::unseen}) {
      const auto all = drawn("forward", side, target);
      for (const std::size_t size : {std::size_t{100}, std::size_t{200}, all.size()}) {
        for (const Family& f : kFamilies) {
          const auto count =
              std::count_if(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(size),
                            [&](const Problem& p) { return f.is_one(conv_of(p)); });
          EXPECT_GE(double(count), f.least * double(size))
              << f.name << " among the first " << size << " on " << target;
        }
      }
    }
  }
}

// Models have no opinion outside of the ranges of what they learned.
TEST(ConvProblemSets, UnseenProblemsAreInRange) {
  for (const std::string name : {"sm90a", "avx512"}) {
    const Target target = load_target(name);
    std::map<std::size_t, std::pair<double, double>> ranges;
    const auto each = [&](const Problem& problem, const auto& see) {
      const std::vector<double> values = shared_values(problem, target, 2);
      for (std::size_t i = 0; i < values.size(); ++i) see(i, values[i]);
    };
    for (const Problem& p : drawn("forward", ProblemSide::learned, name)) {
      each(p, [&](std::size_t i, double value) {
        auto& [least, most] = ranges.try_emplace(i, value, value).first->second;
        least = std::min(least, value), most = std::max(most, value);
      });
    }
    std::size_t outside = 0;
    const auto unseen = drawn("forward", ProblemSide::unseen, name);
    for (const Problem& p : unseen) {
      std::string_view why;
      each(p, [&](std::size_t i, double value) {
        if (value < ranges[i].first || value > ranges[i].second) {
          why = features()[i].name;
        }
      });
      if (!why.empty()) ++outside;
    }
    EXPECT_LE(outside * 20, unseen.size()) << name;
  }
}

TEST(ConvProblemSets, UnseenNetsShareNoLayerWithOthers) {
  for (const ImageLayer& u : kUnseenImageLayers) {
    for (const ImageLayer& l : kImageLayers) {
      EXPECT_FALSE(u.c == l.c && u.k == l.k && u.g == l.g && u.size == l.size &&
                   u.filter == l.filter && u.stride == l.stride)
          << u.c << " " << u.k << " " << u.size;
    }
  }
}

TEST(ConvProblemSets, UnknownWord) {
  expect_error(ErrorCode::not_found,
               "unknown problem set 'depthwize', did you mean 'depthwise'? (known: wide, forward, "
               "backward_data, backward_weight, spatial, channels, batches, pointwise, grouped, "
               "depthwise, strided, volumes, sequences, stems, dilated, odd, layers, nets)",
               [] { drawn("depthwize", ProblemSide::learned, "sm90a"); });
}

}  // namespace
}  // namespace tessera::conv
