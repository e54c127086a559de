// Every normalisation that ships for a GPU compiles, without spilling a register. No GPU is needed.
#include "nvrtc/no_spills.h"

namespace tessera {
namespace {

using EssentialNorms = NvrtcTest;

TEST_F(EssentialNorms, CompileForHopperWithoutSpills) {
  const std::vector<Source> sources = essential_sources(Op::norm);
  ASSERT_EQ(sources.size(), 133U);
  expect_no_spills(sources);
}

TEST_F(EssentialNorms, ElementwiseKernelsDoNotSpill) {
  std::vector<Source> sources;
  const Target target = load_target("sm90a");
  for (const char* types : {"bf16", "fp32"}) {
    for (const char* kernel :
         {"silumul_rows_1x4096x1_1x8x1_1x1x1{}", "gelumul_rows_1x8192x1_1x8x1_1x1x1{}",
          "silumul_rows_4x1024x1_4x1x1_1x1x1_interleaved{}",
          "gelutanhmul_rows_1x8192x1_1x8x1_1x1x1_outfp8_quantrow{}",
          "silumul_rows_1x4096x1_1x8x1_1x1x1_outfp8_quantblock{}",
          "copy_rows_1x8192x1_1x8x1_1x1x1_outfp8_quantrow{}",
          "copy_rows_4x1024x1_4x1x1_1x1x1_outbf8_quantblock{}"}) {
      const std::string name =
          fmt::format("norm_{}_", types) + fmt::format(fmt::runtime(kernel), "_sm90a");
      sources.push_back(family_of(Op::norm).emit(parse_name(name), target));
    }
  }
  expect_no_spills(sources);
}

}  // namespace
}  // namespace tessera
