// Every normalisation that ships for a GPU compiles, without spilling a register. No GPU is needed.
#include "nvrtc/no_spills.h"

namespace tessera {
namespace {

using EssentialNorms = NvrtcTest;

TEST_F(EssentialNorms, CompileForHopperWithoutSpills) {
  const std::vector<Source> sources = essential_sources(Op::norm);
  ASSERT_EQ(sources.size(), 36U);
  expect_no_spills(sources);
}

}  // namespace
}  // namespace tessera
