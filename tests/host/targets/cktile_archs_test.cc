// The CK Tile Dispatcher's arch_specs.json as rows of targets.
#include "tessera/targets/cktile_archs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "broken_text.h"
#include "tessera/base/error.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

const std::string kFile = R"({
 "_comment": "made up", "_version": "1.2.0",
 "architectures": {
  "gfx908": {"family": "cdna1", "warp_size": 64, "warp_configs": [[2, 2, 1]]},
  "gfx942": {
   "family": "cdna3", "description": "AMD Instinct MI300 series", "warp_size": 64,
   "lds_capacity_kb": 32, "warp_configs": [[2, 2, 1], [4, 4, 1]],
   "warp_tile_combos": {
    "fp16_fp16_fp32": [[32, 32, 8], [16, 16, 16]], "fp8_bf8_fp32": [[32, 32, 16]],
    "int8_int8_int32": [[32, 32, 16]], "pk_fp4_pk_fp4_fp32": [[16, 16, 128]]}}},
 "element_sizes": {"fp16": 2},
 "pipeline_lds_budget": {
  "_comment": ["words"], "mem": {"basis": "fraction", "value": 0.75},
  "compv4": {"basis": "absolute_kb", "value": 8}, "compv6": {"basis": "fraction", "value": 0.5},
  "default": {"basis": "fraction", "value": 1.0}},
 "unsupported_trait_combos": {"combinations": [
  ["compv3", "cshuffle", "interwave"], ["compv4", "cshuffle", "interwave"],
  ["compv5", "default", "interwave"]]}})";

ImportedTarget made_of(const std::string& text, const std::string& arch, const std::string& base) {
  return import_cktile_arch(text, "f.json", arch, Op::gemm, [&] { return load_target(base); });
}

using testing_support::with;

std::string message_of(const std::string& text) {
  return testing_support::message_of([&] { made_of(text, "gfx942", "gfx942"); });
}

bool has(const std::vector<std::string>& sentences, const std::string& sentence) {
  return std::find(sentences.begin(), sentences.end(), sentence) != sentences.end();
}

TEST(ArchSpecs, TheirPartsReplaceThoseOfTheRow) {
  const Target base = load_target("gfx942");
  const ImportedTarget made = made_of(kFile, "gfx942", base.name);
  Target wanted = base;
  wanted.description = "AMD Instinct MI300 series";
  wanted.shared_memory_bytes = 32 * 1024;
  AlgorithmSpace& space = wanted.cktile_spaces.at(Op::gemm);
  space.waves = {{2, 2, 1}, {4, 4, 1}};
  space.warp_tiles = {{DType::fp16, {{32, 32, 8}, {16, 16, 16}}}, {DType::int8, {{32, 32, 16}}}};
  wanted.pipeline_limits.at(Pipeline::mem).shared_memory_fraction = 0.75;
  wanted.pipeline_limits.at(Pipeline::compv4).shared_memory_fraction = 0.25;
  wanted.sources = made.target.sources;
  EXPECT_EQ(made.target, wanted);
  EXPECT_EQ(made.target.sources.at("shared_memory_bytes"),
            "CK Tile Dispatcher arch_specs.json v1.2.0, lds_capacity_kb");
  EXPECT_EQ(made.target.sources.at("units"), base.sources.at("units"));
  // What is written is what the loader reads.
  EXPECT_EQ(target_from_json(to_json(made.target)), made.target);
}

TEST(ArchSpecs, SaysWhatIsTakenAndWhatIsLeft) {
  const ImportedTarget made = made_of(kFile, "gfx942", "gfx942");
  for (const char* sentence :
       {"warp_size: 64 lanes", "lds_capacity_kb: 32768 bytes", "warp_configs: waves 2x2x1 4x4x1",
        "warp_tile_combos.fp16_fp16_fp32: 32x32x8 16x16x16",
        "pipeline_lds_budget.compv4: compv4 has 0.25 of LDS",
        "pipeline_lds_budget.default: compv3 has 1 of LDS",
        "unsupported_trait_combos: as Tessera's rule, interwave for mem alone",
        "everything else: the row of gfx942"}) {
    EXPECT_TRUE(has(made.taken, sentence)) << sentence;
  }
  for (const char* sentence :
       {"warp_tile_combos.fp8_bf8_fp32: lists are by one type of both operands, with its usual "
        "accumulator",
        "pipeline_lds_budget.compv6: the row has no such pipeline of CK Tile",
        "family: a row has no family", "element_sizes: Tessera's types have their sizes"}) {
    EXPECT_TRUE(has(made.left, sentence)) << sentence;
  }
  const std::string other = with(kFile, R"(["compv3", "cshuffle", "interwave"], )", "");
  EXPECT_TRUE(has(made_of(other, "gfx942", "gfx942").left,
                  "unsupported_trait_combos: the file allows interwave for compv3, Tessera's rule "
                  "refuses it"));
}

TEST(ArchSpecs, NumbersOfAnotherMachineSayWhoseTheyAre) {
  const Target base = load_target("gfx90a");
  const ImportedTarget made = made_of(kFile, "gfx908", base.name);
  EXPECT_EQ(made.target.name, "gfx908");
  EXPECT_EQ(made.target.features, std::vector<std::string>{"gfx908"});
  EXPECT_EQ(made.target.compile_flags, std::vector<std::string>{"--offload-arch=gfx908"});
  EXPECT_TRUE(made.target.unmeasured);
  EXPECT_EQ(made.target.units, base.units);
  EXPECT_EQ(made.target.sources.at("units"),
            "the row of gfx90a, another machine: " + base.sources.at("units"));
  EXPECT_EQ(target_from_json(to_json(made.target)), made.target);
}

TEST(ArchSpecs, ARowWithoutListsOfGemmKeepsNone) {
  const ImportedTarget made = made_of(kFile, "gfx908", "gfx1100");
  EXPECT_EQ(made.target.cktile_spaces.count(Op::gemm), 0U);
  EXPECT_TRUE(
      has(made.left, "warp_configs: the row has no list of CK Tile's gemm kernels to put them in"));
}

TEST(ArchSpecs, NamesOfArchitectures) {
  EXPECT_EQ(cktile_archs(kFile, "f.json"), (std::vector<std::string>{"gfx908", "gfx942"}));
}

TEST(ArchSpecs, HostileTextGetsASentence) {
  const auto broken = [](const std::string& what, const std::string& instead) {
    return message_of(with(kFile, what, instead));
  };
  EXPECT_EQ(message_of("[]"), "'f.json': the document must be an object, got []");
  EXPECT_EQ(message_of("{}"), "'f.json': architectures is missing");
  EXPECT_EQ(message_of("{").rfind("'f.json': line 1, column 2: ", 0), 0U);
  EXPECT_EQ(broken("\"gfx942\"", "\"gfx941\""),
            "'f.json' describes no architecture 'gfx942', did you mean 'gfx941'? (known: gfx908, "
            "gfx941)");
  EXPECT_EQ(broken("\"warp_size\": 64,\n", "\"lanes\": 64,\n"),
            "'f.json': architectures.gfx942.warp_size is missing");
  EXPECT_EQ(broken("[4, 4, 1]", "[4, 4]"),
            "'f.json': architectures.gfx942.warp_configs[1] must be a list of three sizes, got "
            "[4,4]");
  EXPECT_EQ(broken("[4, 4, 1]", "[4, 4, -1]"),
            "'f.json': architectures.gfx942.warp_configs[1][2] must be a positive integer, got -1");
  EXPECT_EQ(broken("\"lds_capacity_kb\": 32", "\"lds_capacity_kb\": \"much\""),
            "'f.json': architectures.gfx942.lds_capacity_kb must be a positive integer, got "
            "\"much\"");
  EXPECT_EQ(broken("absolute_kb", "share"),
            "'f.json': pipeline_lds_budget.compv4.basis must be \"fraction\" or \"absolute_kb\", "
            "got \"share\"");
  EXPECT_EQ(broken("\"value\": 8", "\"value\": 64"),
            "'f.json': pipeline_lds_budget.compv4 allows 2 times the 32 KB of LDS");
}

}  // namespace
}  // namespace tessera
