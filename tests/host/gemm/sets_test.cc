#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "targets_with.h"
#include "tessera/base/error.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/targets/targets.h"

namespace tessera::gemm {
namespace {

TEST(GemmSets, EveryDtypeLayoutAndKindHasAName) {
  const auto names = family().preselected_names();
  const std::set<std::string> known(names.begin(), names.end());
  EXPECT_EQ(known.size(), names.size());
  for (const std::string dtype : {"fp32", "fp16", "bf16", "fp8", "bf8", "int8"}) {
    for (const std::string layout : {"rcr", "rrr", "crr", "ccr"}) {
      for (const std::string kind : {"essential", "compute", "memory", "latency"}) {
        EXPECT_TRUE(known.contains(dtype + "_" + layout + "_" + kind)) << dtype << layout << kind;
      }
    }
  }
  for (const std::string set : {"bf16_rcr_grouped_essential", "bf16_crr_grouped_essential",
                                "fp32_rrr_grouped_essential", "fp8_rcr_scaled_essential",
                                "bf16_rcr_experts_essential", "fp8_rcr_grouped_scaled_essential"}) {
    EXPECT_TRUE(known.contains(set)) << set;
  }
  EXPECT_EQ(names.size(), 125U) << "some targets have sets of tf32 or of fp16's variants too";
}

// What a target's sets are about: types, layouts and kinds, on AMD's GPUs four sets besides, and on
// others those of groups (three layouts of bf16, on CPUs of fp32 too), one of scales, one of layers
// of experts, and on Hopper one of groups with scales.
// RDNA has essential kernels only.
bool is_rdna(const std::string& target) { return target.starts_with("gfx1"); }
int number_of_sets(const std::string& target) {
  if (is_rdna(target)) return target == "gfx1201" ? 8 : 7;
  const std::map<std::string, int> types = {{"sm90a", 7},  {"gfx90a", 4}, {"gfx942", 7},
                                            {"gfx950", 6}, {"avx512", 6}, {"avx2", 6},
                                            {"generic", 6}};
  const int others = target.starts_with("gfx") ? 4 : target == "sm90a" ? 6 : 8;
  return types.at(target) * 16 + others;
}

class GemmSetsOf : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Targets, GemmSetsOf, testing::ValuesIn(targets_with(Op::gemm)),
                         [](const auto& row) { return row.param; });

TEST_P(GemmSetsOf, KernelsAreLegalAndOfTheSetsSignature) {
  const Target target = load_target(GetParam());
  int found = 0;
  for (const std::string& set : family().preselected_names()) {
    std::vector<KernelSpec> specs;
    try {
      specs = family().preselected(set, target);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::not_found);
      continue;
    }
    ++found;
    EXPECT_GE(specs.size(), is_rdna(GetParam()) ? 1U : 2U) << set;
    EXPECT_LE(specs.size(), set == "fp16_rcr_all" ? 64U : 36U) << set;
    for (const KernelSpec& spec : specs) {
      const auto& s = std::get<GemmSignature>(spec.signature);
      EXPECT_EQ(family().is_legal(spec, target).reason, "") << name_of(spec);
      if (set == "mixed_precision") {
        EXPECT_TRUE(s.a != s.b || s.out != default_output(s.a)) << name_of(spec);
        continue;
      }
      EXPECT_TRUE(set.starts_with(std::string(to_string(s.a)) + "_" +
                                  std::string(to_string(s.layout)) + "_"))
          << set << " holds " << name_of(spec);
    }
  }
  EXPECT_EQ(found, number_of_sets(GetParam()));
}

// Kernels that every test run builds and runs on the emulator.
TEST(GemmSets, AmdHasSixtyEssentialMfmaKernelsATarget) {
  for (const std::string name : {"gfx90a", "gfx942", "gfx950"}) {
    const Target target = load_target(name);
    std::set<std::string> kernels;
    for (const std::string& set : family().preselected_names()) {
      if (!set.ends_with("_essential")) continue;
      try {
        for (const KernelSpec& spec : family().preselected(set, target)) {
          if (spec.algorithm.pipeline != Pipeline::direct) kernels.insert(name_of(spec));
        }
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::not_found);
      }
    }
    EXPECT_GE(kernels.size(), 60U) << name;
  }
}

TEST(GemmSets, VariantsOfFp16OnAmd) {
  const Target target = load_target("gfx942");
  for (const KernelSpec& spec : family().preselected("fp16_rcr_multi_d", target)) {
    EXPECT_GT(num_ops(std::get<GemmSignature>(spec.signature).epilogue), 0) << name_of(spec);
  }
  for (const KernelSpec& spec : family().preselected("fp16_rcr_preshuffle", target)) {
    EXPECT_TRUE(std::get<GemmSignature>(spec.signature).preshuffled_b) << name_of(spec);
  }
  std::set<std::string> all, parts;
  for (const KernelSpec& spec : family().preselected("fp16_rcr_all", target))
    all.insert(name_of(spec));
  for (const char* part : {"compute", "memory", "latency", "multi_d", "preshuffle", "essential"}) {
    for (const KernelSpec& spec : family().preselected("fp16_rcr_" + std::string(part), target)) {
      parts.insert(name_of(spec));
    }
  }
  EXPECT_EQ(all, parts);
}

TEST(GemmSets, MachineWithoutAnInstructionKeepsTheRest) {
  Target target = load_target("avx512");
  std::erase_if(target.instructions, [](const Instruction& i) { return i.name == "dpbf16"; });
  for (const KernelSpec& spec : family().preselected("bf16_rcr_essential", target)) {
    EXPECT_EQ(spec.algorithm.pipeline, Pipeline::amx) << name_of(spec);
  }
  EXPECT_FALSE(family().preselected("fp32_rcr_essential", target).empty());
}

TEST(GemmSets, UnknownSetNamesTheNearest) {
  try {
    family().preselected("fp32_rcr_essentail", load_target("avx512"));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
    EXPECT_STREQ(error.what(),
                 "gemm: avx512 has no preselected set 'fp32_rcr_essentail', did you mean "
                 "'fp32_rcr_essential'?");
  }
}

}  // namespace
}  // namespace tessera::gemm
