// Peers compute convolutions: how they see the tensors, oneDNN where it is installed, and cuDNN's
// interface with a library and a driver that are none (fake_peers/fake_cudnn.cc).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "host/conv/conv_problems.h"
#include "host/peers/ways.h"
#include "peers/conv_tensors.h"

namespace tessera::peers {
namespace {

using Numbers = std::vector<std::int64_t>;

ConvProblem conv(const std::string& words) {
  return std::get<ConvProblem>(parse_problem("conv direction=forward " + words));
}

TEST(ConvTensors, ChannelsOfAllGroupsAreOneDimension) {
  const auto last = conv_tensors(conv("n=2 c=6 k=9 g=3 h=7 w=8 y=3 x=2 pad_h=1"), 1);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->x.dims, (Numbers{2, 6, 7, 8}));
  EXPECT_EQ(last->x.strides, (Numbers{7 * 8 * 6, 1, 8 * 6, 6}));
  EXPECT_EQ(last->w.dims, (Numbers{9, 2, 3, 2}));
  EXPECT_EQ(last->w.strides, (Numbers{12, 1, 4, 2}));
  EXPECT_EQ(last->y.dims, (Numbers{2, 9, 7, 7}));
  EXPECT_EQ(last->y.strides, (Numbers{7 * 7 * 9, 1, 7 * 9, 9}));
  const auto first = conv_tensors(conv("n=2 c=6 k=9 g=3 h=7 w=8 y=3 x=2 pad_h=1 layout=nchw"), 1);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->x.strides, (Numbers{6 * 56, 56, 8, 1}));
  EXPECT_EQ(first->w.strides, (Numbers{12, 6, 2, 1}));
}

TEST(ConvTensors, LinesHaveTwoPlacesWhereTheseAreTheLeast) {
  const auto tensors = conv_tensors(conv("n=2 c=4 k=4 g=4 ndim=1 w=8 x=3"), 2);
  ASSERT_TRUE(tensors);
  EXPECT_EQ(tensors->x.dims, (Numbers{2, 4, 1, 8}));
  EXPECT_EQ(tensors->x.strides, (Numbers{32, 1, 32, 4}));
  EXPECT_EQ(tensors->w.dims, (Numbers{4, 1, 1, 3}));
  EXPECT_EQ(conv_places(conv("n=1 c=1 k=1 ndim=1 w=8 dilation_w=5"), 2, {1, 1, 5}),
            (Numbers{1, 5}));
}

TEST(ConvTensors, GroupsApartHaveNoDimensionInCommon) {
  ConvProblem p = conv("n=2 c=6 k=6 g=3 ndim=1 w=8");
  p.in_strides = with_strides(p).in_strides;
  p.in_strides[1] += 1;
  p.in_strides[5] += 2, p.in_strides[4] = p.in_strides[3] = p.in_strides[0] = 8 * p.in_strides[5];
  EXPECT_FALSE(conv_tensors(p, 1));
  p.c = p.k = 3;  // one channel a group
  EXPECT_TRUE(conv_tensors(p, 1));
}

// How many of the random problems the peer computes. It leaves out those with unusual padding and
// those whose elements share a place.
int check_random(const Peer& peer, const runtime::Place& place, std::uint64_t seed) {
  fmt::print("seed {}\n", seed);
  conv::RandomConvs random(seed);
  int computed = 0;
  for (int i = 0; i < 600 && computed < 30; ++i) {
    ConvProblem p = random.problem();
    p.direction = conv::kDirections[static_cast<std::size_t>(i) % 3];
    random.share_places(p);
    Ways ways(peer, p, place, seed);
    for (std::size_t way = 0; way < ways.size(); ++way) ways.check(way);
    if (ways.size() > 0) ++computed;
  }
  return computed;
}

TEST(OneDnn, EveryWayOfRandomConvolutionsIsCorrect) {
  const std::unique_ptr<Peer> peer = load_onednn(2);
  if (peer == nullptr) GTEST_SKIP() << "oneDNN is not installed";
  EXPECT_GT(check_random(*peer, runtime::host_place(), std::random_device{}()), 20);
}

TEST(OneDnn, FusesBiasAndRelu) {
  const std::unique_ptr<Peer> peer = load_onednn(1);
  if (peer == nullptr) GTEST_SKIP() << "oneDNN is not installed";
  for (const char* epilogue : {"bias", "relu", "bias+relu"}) {
    Ways ways(*peer, conv(fmt::format("n=2 c=8 k=24 h=9 w=7 y=3 x=3 epilogue={}", epilogue)),
              runtime::host_place(), 1);
    EXPECT_GT(ways.size(), 0U);
    for (std::size_t way = 0; way < ways.size(); ++way) ways.check(way);
  }
  EXPECT_EQ(Ways(*peer, conv("n=1 c=8 k=8 h=9 w=7 epilogue=gelu"), runtime::host_place(), 1).size(),
            0U);
}

struct CuDnn : CuDnnTest {
  std::string error_of(const std::string& words) { return CuDnnTest::error_of(conv(words)); }
};

TEST_F(CuDnn, RandomConvolutionsAreCorrect) {
  EXPECT_GT(check_random(*peer_, place_of_peer("cudnn"), std::random_device{}()), 20);
}

TEST_F(CuDnn, SearchKeepsTheFastestEngines) {
  Ways ways(*peer_, conv("n=1 c=3 k=4 h=5 w=6 y=3 x=3 pad_h=1"), place_of_peer("cudnn"), 1);
  ASSERT_EQ(ways.size(), 4U);
  EXPECT_EQ(ways[0].group, "cudnn_first");
  EXPECT_EQ(ways[1].group, "cudnn");
  EXPECT_EQ(ways[1].how, "fastest of the search");
  const int tf32 = runs(1);
  ways.check(0);  // engine 1 computes in tf32 and 2 cannot be built: the first choice is 4
  const int first = runs(4);
  ways.check(0);
  EXPECT_EQ(runs(4), first + 1);
  ways.check(1);
  const int fastest = runs(0), failing = runs(5);
  ways.check(1);
  EXPECT_EQ(runs(0), fastest + 1);
  ways.check(2);  // the slow one
  EXPECT_EQ(runs(0), fastest + 1);
  EXPECT_EQ(runs(5), failing) << "the search runs once";
  EXPECT_EQ(runs(3), 0) << "it wants more workspace than is lent";
  EXPECT_EQ(runs(1), tf32);
}

TEST_F(CuDnn, Tf32TakesEnginesThatFp32LeavesOut) {
  Ways ways(*peer_, conv("n=1 c=3 k=4 h=5 w=6 y=3 x=3 dtype=tf32"), place_of_peer("cudnn"), 1);
  const int before = runs(1);
  ways[0].call();
  EXPECT_EQ(runs(1), before + 1);
}

TEST_F(CuDnn, RefusalsAreSentences) {
  EXPECT_EQ(error_of("n=1 c=8 k=8 h=5 w=6 dtype=bf16"),
            "cudnn cannot compute this problem: finishing a descriptor gave FAKE_NOT_SUPPORTED: as "
            "the test wished");
  setenv("FAKE_PEER", "none", 1);
  EXPECT_EQ(error_of("n=1 c=8 k=8 h=5 w=6"),
            "cudnn cannot compute this problem: its heuristics propose no engine");
  setenv("FAKE_PEER", "create", 1);
  peer_ = load_cudnn(1);
  EXPECT_EQ(error_of("n=1 c=8 k=8 h=5 w=6"),
            "cudnn cannot compute this problem: cudnnCreate gave FAKE_FAILED: as the test wished");
}

TEST_F(CuDnn, LeavesOutWhatItDoesNotHave) {
  for (const char* words :
       {"n=1 c=8 k=8 h=5 w=6 epilogue=relu", "n=1 c=8 k=8 h=5 w=6 beta=1", "n=0 c=8 k=8 h=5 w=6"}) {
    EXPECT_EQ(Ways(*peer_, conv(words), place_of_peer("cudnn"), 1).size(), 0U) << words;
  }
}

}  // namespace
}  // namespace tessera::peers
