// Every router that ships for a GPU compiles, without spilling a register. No GPU is needed.
#include "nvrtc/no_spills.h"

namespace tessera {
namespace {

using EssentialRouters = NvrtcTest;

TEST_F(EssentialRouters, CompileForHopperWithoutSpills) {
  const std::vector<Source> sources = essential_sources(Op::route);
  ASSERT_EQ(sources.size(), 15U);
  expect_no_spills(sources);
}

TEST_F(EssentialRouters, OtherTypesDoNotSpill) {
  std::vector<Source> sources;
  const Target target = load_target("sm90a");
  for (const char* name : {"route_fp16_softmax_rows_16x512x1_16x1x1_1x1x1_bias_order_sm90a",
                           "route_fp16_sigmoid_rows_8x128x1_8x1x1_1x1x1_sm90a"}) {
    sources.push_back(family_of(Op::route).emit(parse_name(name), target));
  }
  expect_no_spills(sources);
}

}  // namespace
}  // namespace tessera
