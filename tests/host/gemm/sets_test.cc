#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tessera/base/embedded.h"
#include "tessera/base/error.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/targets/targets.h"

namespace tessera::gemm {
namespace {

TEST(GemmSets, EveryDtypeLayoutAndKindHasAName) {
  const auto names = preselected_names();
  const std::set<std::string> known(names.begin(), names.end());
  EXPECT_EQ(known.size(), names.size());
  for (const std::string dtype : {"fp32", "fp16", "bf16", "fp8", "bf8", "int8"}) {
    for (const std::string layout : {"rcr", "rrr", "crr", "ccr"}) {
      for (const std::string kind : {"essential", "compute", "memory", "latency"}) {
        EXPECT_TRUE(known.contains(dtype + "_" + layout + "_" + kind)) << dtype << layout << kind;
      }
    }
  }
  EXPECT_EQ(names.size(), 112U) << "the targets that multiply tf32 have sets of it too";
}

class GemmSetsOf : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Targets, GemmSetsOf, testing::ValuesIn(target_names()),
                         [](const auto& row) { return row.param; });

// preselected() leaves out what a machine cannot run: on the shipped rows that must be nothing,
// which the sizes of the sets show.
TEST_P(GemmSetsOf, KernelsAreLegalAndOfTheSetsSignature) {
  const Target target = load_target(GetParam());
  int found = 0;
  for (const std::string& set : preselected_names()) {
    std::vector<KernelSpec> specs;
    try {
      specs = preselected(set, target);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::not_found);
      continue;
    }
    ++found;
    EXPECT_GE(specs.size(), 2U) << set;
    EXPECT_LE(specs.size(), 30U) << set;
    for (const KernelSpec& spec : specs) {
      const auto& s = std::get<GemmSignature>(spec.signature);
      EXPECT_EQ(is_legal(spec, target).reason, "") << name_of(spec);
      EXPECT_TRUE(set.starts_with(std::string(to_string(s.a)) + "_" +
                                  std::string(to_string(s.layout)) + "_"))
          << set << " holds " << name_of(spec);
    }
  }
  EXPECT_EQ(found, GetParam() == "sm90a" ? 112 : 96);
}

TEST(GemmSets, ShippedListsLoseNothing) {
  for (const EmbeddedFile& file : kernel_sets()) {
    constexpr std::string_view kFolder = "gemm/sets/";
    if (!file.path.starts_with(kFolder)) continue;
    const std::string_view name = file.path.substr(kFolder.size());
    const std::string target_name(name.substr(0, name.find('.')));
    const Target target = load_target(target_name);
    std::size_t listed = 0;
    for (std::size_t at = file.content.find("\"gemm_"); at != std::string_view::npos;
         at = file.content.find("\"gemm_", at + 1)) {
      ++listed;
    }
    std::size_t kept = 0;
    for (const std::string& set : preselected_names()) {
      try {
        kept += preselected(set, target).size();
      } catch (const Error&) {
      }
    }
    EXPECT_EQ(kept, listed) << target_name;
  }
}

TEST(GemmSets, MachineWithoutAnInstructionKeepsTheRest) {
  Target target = load_target("avx512");
  std::erase_if(target.instructions, [](const Instruction& i) { return i.name == "dpbf16"; });
  EXPECT_TRUE(preselected("bf16_rcr_essential", target).empty());
  EXPECT_FALSE(preselected("fp32_rcr_essential", target).empty());
}

TEST(GemmSets, UnknownSetNamesTheNearest) {
  try {
    preselected("fp32_rcr_essentail", load_target("avx512"));
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
