// Every attention kernel that ships for a GPU compiles, without spilling a register. No GPU is
// needed.
#include "nvrtc/no_spills.h"

namespace tessera {
namespace {

using EssentialFmha = NvrtcTest;

TEST_F(EssentialFmha, CompileForHopperWithoutSpills) {
  const std::vector<Source> sources = essential_sources(Op::fmha);
  ASSERT_EQ(sources.size(), 33U);
  expect_no_spills(sources);
}

TEST_F(EssentialFmha, OtherAppendingKernelsCompileWithoutSpills) {
  const Family& family = family_of(Op::fmha);
  std::vector<Source> sources;
  for (const char* words : {"dtype=bf16 lengths=packed rotary=interleaved rotate_q=1",
                            "dtype=fp32 lengths=padded rotary=interleaved"}) {
    const Problem problem = parse_problem(
        std::string("fmha kind=append heads=2 seqlen_q=64 seqlen_k=64 hdim=64 ") + words);
    sources.push_back(family.emit(family.general(problem, target_), target_));
  }
  expect_no_spills(sources);
}

// For heads of every length, with and without a store of the random values.
TEST_F(EssentialFmha, DropoutCompilesWithoutSpills) {
  const Family& family = family_of(Op::fmha);
  std::vector<Source> sources;
  for (const char* words : {"hdim=64 dtype=bf16 random=1", "hdim=128 dtype=fp32 mask=top_left",
                            "hdim=256 dtype=fp16 mask=top_left random=1 lse=1 lengths=packed",
                            "hdim=576 hdim_v=512 dtype=bf16 bias=alibi soft_cap=3"}) {
    const Problem problem =
        parse_problem(std::string("fmha heads=2 seqlen_q=64 seqlen_k=64 p_drop=0.5 ") + words);
    sources.push_back(family.emit(family.general(problem, target_), target_));
  }
  expect_no_spills(sources);
}

// Kernels that read pages of a cache are made when they are needed.
TEST_F(EssentialFmha, PagedKernelsCompileWithoutSpills) {
  const Family& family = family_of(Op::fmha);
  std::vector<Source> sources;
  for (const char* words :
       {"dtype=fp32 pages=table", "dtype=bf16 pages=list cache_layout=vectorized lengths=packed",
        "dtype=fp32 pages=list cache_layout=vectorized lengths=padded mask=bottom_right lse=1",
        "dtype=fp16 pages=table lengths=padded mask=bottom_right lse=1"}) {
    const Problem problem = parse_problem(
        std::string("fmha heads=2 seqlen_q=64 seqlen_k=64 hdim=64 page_size=16 ") + words);
    family.validate(problem);
    for (const KernelSpec& spec : family.candidates(problem, target_)) {
      if (family.is_legal(spec, target_)) sources.push_back(family.emit(spec, target_));
    }
  }
  ASSERT_EQ(sources.size(), 16U);
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

// The row lists no kernels with split keys yet, because none has run on a GPU.
TEST_F(EssentialFmha, SplitKernelsCompileWithoutSpills) {
  target_.spaces.at(Op::fmha).pipelines = {Pipeline::splitkv};
  const Family& family = family_of(Op::fmha);
  std::vector<Source> sources;
  for (const char* words : {"dtype=bf16", "dtype=fp16 mask=bottom_right lse=1 lengths=padded",
                            "dtype=bf16 lengths=packed bias=elementwise soft_cap=30",
                            "dtype=fp16 bias=alibi mask=top_left"}) {
    const Problem problem =
        parse_problem(std::string("fmha heads=2 seqlen_q=1 seqlen_k=64 hdim=64 ") + words);
    for (const KernelSpec& spec : family.candidates(problem, target_)) {
      ASSERT_EQ(family.is_legal(spec, target_).reason, "") << name_of(spec);
      sources.push_back(family.emit(spec, target_));
    }
  }
  ASSERT_EQ(sources.size(), 24U);
  expect_no_spills(sources);
}

}  // namespace
}  // namespace tessera
