// The file of nets' layers: every line is a valid problem, and no unseen layer is learned from.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "host/conv/conv_problems.h"
#include "host/spec/expect_error.h"
#include "tessera/base/hash.h"
#include "tessera/families/conv/conv.h"
#include "tessera/families/conv/nets_internal.h"
#include "tessera/targets/targets.h"

namespace tessera::conv {
namespace {

// The layer of a problem: one image, forward, default types.
std::string layer_of(ConvProblem p) {
  for (std::size_t i = 0; i < 3; ++i) {
    if (p.pad_right[i] == p.pad[i]) p.pad_right[i] = kPacked;
  }
  ConvProblem layer;
  layer.n = 1, layer.c = p.c, layer.k = p.k, layer.g = p.g, layer.ndim = p.ndim;
  layer.size = p.size, layer.filter = p.filter, layer.stride = p.stride;
  layer.dilation = p.dilation, layer.pad = p.pad, layer.pad_right = p.pad_right;
  return to_string(Problem(layer));
}

std::set<std::string> layers_of(std::span<const Net> some) {
  std::set<std::string> all;
  for (const Net& net : some) {
    for (const ConvProblem& layer : net.layers) all.insert(layer_of(layer));
  }
  return all;
}

TEST(ConvNets, EveryLayerIsAValidProblem) {
  std::size_t count = 0;
  for (const Net& net : nets()) {
    EXPECT_FALSE(net.layers.empty()) << net.name;
    std::map<std::string, int> lines;
    for (ConvProblem layer : net.layers) {
      for (const ConvDirection direction : kDirections) {
        layer.direction = direction;
        EXPECT_NO_THROW(validate(layer)) << net.name << ": " << to_string(layer);
      }
      // Autoencoders run some layers in both ways.
      EXPECT_LE(++lines[layer_of(layer)], 2) << net.name << ": " << to_string(layer);
      ++count;
    }
  }
  EXPECT_GT(count, 6000U);
}

TEST(ConvNets, EveryKindOfNetIsOnBothSides) {
  std::set<std::string_view> names;
  std::map<std::string_view, std::map<ProblemSide, int>> domains;
  for (const Net& net : nets()) {
    EXPECT_TRUE(names.insert(net.name).second) << net.name;
    if (net.domain != "none") ++domains[net.domain][net.side];
  }
  EXPECT_GE(names.size(), 200U);
  for (const char* domain : {"classification", "detection", "segmentation", "restoration",
                             "diffusion", "video", "medical", "speech", "language"}) {
    EXPECT_EQ(domains[domain].size(), 2U) << domain;
  }
  EXPECT_EQ(domains.size(), 9U);
}

// A net that is added changes the hash. No net that is there already changes its side.
TEST(ConvNets, SidesAreFrozen) {
  std::string unseen;
  for (const Net& net : nets()) {
    if (net.side == ProblemSide::unseen) unseen += std::string(net.name) + "\n";
  }
  EXPECT_EQ(hash_hex(unseen).substr(0, 16), "feac35ea1c7d435e") << unseen;
}

TEST(ConvNets, LearnedListsHoldNoLayerOfAnUnseenNet) {
  const std::set<std::string> unseen = layers_of(nets_of(ProblemSide::unseen));
  EXPECT_GT(unseen.size(), 1200U);
  for (const std::string& layer : layers_of(nets_of(ProblemSide::learned))) {
    EXPECT_FALSE(unseen.contains(layer)) << layer;
  }
  for (const auto& [name, dtype] :
       {std::pair{"sm90a", "bf16"}, std::pair{"sm90a", "int8"}, std::pair{"avx512", "fp32"}}) {
    const Target target = load_target(name);
    for (const std::string_view set : problem_sets()) {
      if (set.starts_with("backward")) continue;  // the shapes of "forward"
      for (const Problem& p : draw(set, ProblemSide::learned, target, {dtype, ""})) {
        EXPECT_FALSE(unseen.contains(layer_of(conv_of(p)))) << set << ": " << to_string(p);
      }
    }
  }
}

// The nets from which the set "layers" learns are among those of the file, and are learned there.
TEST(ConvNets, LearnedTablesAreLearned) {
  const std::set<std::string> learned = layers_of(nets_of(ProblemSide::learned));
  const Target target = load_target("sm90a");
  std::size_t others = 0;
  for (const Problem& p : draw("layers", ProblemSide::learned, target, {"bf16", ""})) {
    const ConvProblem& problem = conv_of(p);
    const bool is_vector = problem.size == Spatial{1, 1, 1};  // linear layers elsewhere
    if (!is_vector && !learned.contains(layer_of(problem))) ++others;
  }
  EXPECT_EQ(others, 0U);
}

TEST(ConvNets, BothSidesAreWide) {
  for (const ProblemSide side : {ProblemSide::learned, ProblemSide::unseen}) {
    std::int64_t most_size = 0, most_length = 0;
    std::set<std::int64_t> widths;  // channels of a group, where there are several groups
    for (const Net& net : nets_of(side)) {
      for (const ConvProblem& p : net.layers) {
        if (p.ndim == 1) most_length = std::max(most_length, p.size[2]);
        if (p.ndim == 2) most_size = std::max(most_size, p.size[2]);
        if (p.g > 1 && !is_depthwise(p)) widths.insert(p.c / p.g);
      }
    }
    EXPECT_GE(most_size, 1024);
    EXPECT_GE(most_length, 48000);
    EXPECT_GE(widths.size(), 10U);
    EXPECT_TRUE(widths.contains(112));
    std::set<std::int64_t> images;
    const std::vector<Problem> drawn = draw("nets", side, load_target("sm90a"), {"bf16", ""});
    std::size_t grouped = 0;
    for (const Problem& problem : drawn) {
      const ConvProblem& p = conv_of(problem);
      images.insert(p.n);
      grouped += p.g > 1 && !is_depthwise(p);
    }
    EXPECT_GE(grouped * 5, drawn.size());
    EXPECT_EQ(*images.begin(), 1);
    EXPECT_EQ(*images.rbegin(), 256);
  }
}

TEST(ConvNets, LinesAreRead) {
  const std::vector<Net> read = read_nets(
      "# a comment\n\nnet one speech learned 9 paper\n2 c=8 k=8 ndim=1 w=9\n"
      "net two speech unseen 9 paper\n1 transposed c=8 k=4 ndim=1 w=9 x=3 pad_w=1 pad_right_w=0\n");
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].name, "one");
  EXPECT_EQ(read[0].domain, "speech");
  EXPECT_EQ(read[0].side, ProblemSide::learned);
  EXPECT_EQ(read[1].side, ProblemSide::unseen);
  ASSERT_EQ(read[1].layers.size(), 1U);
  EXPECT_EQ(to_string(Problem(read[1].layers[0])),
            "conv direction=forward n=1 c=8 k=4 ndim=1 w=9 x=3 pad_w=1 pad_right_w=0");
}

TEST(ConvNets, RefusedLines) {
  const auto refuses = [](const std::string& text, const std::string& sentence) {
    expect_error(ErrorCode::parse_error, sentence, [&] { read_nets(text); });
  };
  refuses("net one speech learned 9", "nets: 'net one speech learned 9': a net has 6 words, got 5");
  refuses("net one speech seen 9 paper",
          "nets: 'net one speech seen 9 paper': the side must be learned or unseen, got 'seen'");
  refuses("1 c=8 k=8", "nets: '1 c=8 k=8': a layer must follow its net");
  refuses("net one speech learned 9 paper\n1 k=8", "nets: '1 k=8': a layer needs c=");
}

}  // namespace
}  // namespace tessera::conv
