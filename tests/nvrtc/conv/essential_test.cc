// Every convolution that ships for a GPU compiles, without spilling a register. No GPU is needed.
#include "nvrtc/no_spills.h"

namespace tessera {
namespace {

using EssentialConvs = NvrtcTest;

TEST_F(EssentialConvs, CompileForHopperWithoutSpills) {
  const std::vector<Source> sources = essential_sources(Op::conv);
  ASSERT_EQ(sources.size(), 298U);
  expect_no_spills(sources);
}

}  // namespace
}  // namespace tessera
