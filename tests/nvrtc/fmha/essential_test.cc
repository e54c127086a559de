// Every attention kernel that ships for a GPU compiles, without spilling a register. No GPU is
// needed.
#include "nvrtc/no_spills.h"

namespace tessera {
namespace {

using EssentialFmha = NvrtcTest;

TEST_F(EssentialFmha, CompileForHopperWithoutSpills) {
  const std::vector<Source> sources = essential_sources(Op::fmha);
  ASSERT_EQ(sources.size(), 24U);
  expect_no_spills(sources);
}

// The row lists no flash kernels yet, because none has run on a GPU.
TEST_F(EssentialFmha, FlashKernelsCompileWithoutSpills) {
  target_.spaces.at(Op::fmha).pipelines = {Pipeline::tmaws};
  const Family& family = family_of(Op::fmha);
  std::vector<Source> sources;
  for (const char* words : {"dtype=bf16", "dtype=fp16 mask=top_left lse=1"}) {
    const Problem problem =
        parse_problem(std::string("fmha heads=2 seqlen_q=64 seqlen_k=64 hdim=64 ") + words);
    for (const KernelSpec& spec : family.candidates(problem, target_)) {
      ASSERT_EQ(family.is_legal(spec, target_).reason, "") << name_of(spec);
      sources.push_back(family.emit(spec, target_));
    }
  }
  ASSERT_EQ(sources.size(), 10U);
  expect_no_spills(sources);
}

}  // namespace
}  // namespace tessera
