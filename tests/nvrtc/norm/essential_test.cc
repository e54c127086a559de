// Every normalisation that ships for a GPU compiles. No GPU is needed.
#include "nvrtc/no_spills.h"

namespace tessera {
namespace {

using EssentialNorms = NvrtcTest;

// LayerNorm of 8192 columns of fp32 spills three registers of a thread, so that three blocks can be
// resident. Nothing else spills.
TEST_F(EssentialNorms, CompileForHopperSpillingThreeRegistersAtMost) {
  const std::vector<Source> sources = essential_sources(Op::norm);
  ASSERT_EQ(sources.size(), 36U);
  expect_spills(sources, 3 * 4);
}

}  // namespace
}  // namespace tessera
