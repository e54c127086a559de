// The files of `generate --source`, compared to the byte: names, folders, index and registration.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "golden.h"
#include "support.h"
#include "tessera/base/hash.h"
#include "tessera/registry/generate.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

const InstanceSource& cktile(Op op) { return *find_instance_source(family_of(op), "cktile"); }

KernelSet set_of(const std::vector<std::string>& names) {
  KernelSet set{.name = "named", .specs = {}};
  for (const std::string& name : names) set.specs.push_back(parse_name(name));
  return set;
}

// Everything that is written for the kernels, as one text.
std::string all_text(Op op, const std::vector<std::string>& names, const std::string& target) {
  const TemporaryFolder folder;
  const GenerateResult result =
      generate_instances(cktile(op), set_of(names), load_target(target), folder.path, 2);
  EXPECT_EQ(result.errors, std::vector<std::string>{});
  EXPECT_EQ(result.written, names.size());
  std::string text;
  for (const auto& [path, content] : contents_of(folder.path)) {
    text += fmt::format("==== {}\n{}", path, content);
  }
  return text;
}

TEST(Instances, OfGemmAreTheseFiles) {
  expect_golden("cktile_gemm.txt",
                all_text(Op::gemm,
                         {"gemm_fp16_rcr_compv3_256x128x64_2x2x1_32x32x16_intrawave_storecshuffle_"
                          "gfx942",
                          "gemm_fp16_rcr_compv4_128x128x32_2x2x1_32x32x16_multidadd2_intrawave_"
                          "storecshuffle_gfx942"},
                         "gfx942"));
}

TEST(Instances, OfConvolutionsAreTheseFiles) {
  expect_golden("cktile_conv.txt",
                all_text(Op::conv,
                         {"conv_forward_fp16_nhwgc_2d_compv3_128x128x64_2x2x1_32x32x16_intrawave_"
                          "storecshuffle_gfx942",
                          "conv_backwardweight_bf16_nhwgc_3d_mem_64x64x64_2x2x1_16x16x32_interwave_"
                          "storecshuffle_gfx942"},
                         "gfx942"));
}

TEST(Instances, OfAttentionAreTheseFiles) {
  expect_golden(
      "cktile_fmha.txt",
      all_text(Op::fmha,
               {"fmha_forward_bf16_qrasync_128x128x128_4x1x1_32x32x16_packed_masked_gfx942",
                "fmha_forward_fp16_qr_16x32x64_1x1x1_16x16x32_biasalibi_lse_dropout_gfx942"},
               "gfx942"));
}

TEST(Instances, AreListedWithTheirOwnNamesAndOurs) {
  const TemporaryFolder folder;
  const std::string name =
      "gemm_bf16_ccr_mem_128x64x64_2x2x1_32x32x8_interwave_storecshuffle_gfx90a";
  generate_instances(cktile(Op::gemm), set_of({name}), load_target("gfx90a"), folder.path, 1);
  const std::map<std::string, std::string> files = contents_of(folder.path);
  const nlohmann::json index = nlohmann::json::parse(files.at("index.json"));
  EXPECT_EQ(index["source"], "cktile");
  EXPECT_EQ(index["target"], "gfx90a");
  ASSERT_EQ(index["kernels"].size(), 1U);
  const nlohmann::json& kernel = index["kernels"][0];
  EXPECT_EQ(kernel["name"], name);
  EXPECT_EQ(kernel["instance"],
            "gemm_bf16_ccr_mem_cshuffle_interwave_True_True_True_False_128x64x64_2x2x1_32x32x8");
  EXPECT_EQ(kernel["file"], kernel["instance"].get<std::string>() + ".hpp");
  EXPECT_EQ(kernel["hash"], hash_hex(files.at(kernel["file"].get<std::string>())));
  EXPECT_EQ(kernel_spec_from_json(kernel["spec"].dump()), parse_name(name));
}

// One name is one kernel in both directions, over everything that the rows list.
TEST(Instances, NamesAreOneToOne) {
  int spaces = 0;
  for (const std::string& target_name : target_names()) {
    const Target target = load_target(target_name);
    for (const auto& [op, space] : target.cktile_spaces) {
      ++spaces;
      // GEMM has many instances: here only the ones of one tile.
      std::vector<Wish> wishes = {{"dtype", "fp16"}};
      if (op == Op::gemm) wishes.push_back({"tile", "128x128x64"});
      const auto specs = enumerate_instances(cktile(op), family_of(op), target, wishes);
      ASSERT_GT(specs.size(), 4U) << target_name << to_string(op);
      std::set<std::string> names, instances;
      for (const KernelSpec& spec : specs) {
        const std::string name = name_of(spec);
        EXPECT_TRUE(names.insert(name).second) << name;
        EXPECT_EQ(parse_name(name), spec);
        EXPECT_TRUE(instances.insert(cktile(op).emit(spec, target).name).second) << name;
      }
    }
  }
  EXPECT_EQ(spaces, 11) << "three operations on CDNA, attention on two more";
}

TEST(Instances, RefuseWhatTheLibraryLacks) {
  const TemporaryFolder folder;
  const std::string odd = "gemm_fp16_rcr_direct_128x128x64_2x2x1_32x32x16_intrawave_gfx942";
  const std::string foreign =
      "gemm_fp16_rcr_compv3_256x128x64_2x2x1_32x32x16_intrawave_storecshuffle_gfx90a";
  const GenerateResult result = generate_instances(cktile(Op::gemm), set_of({odd, foreign}),
                                                   load_target("gfx942"), folder.path, 1);
  EXPECT_EQ(result.written, 0U);
  const std::vector<std::string> expected = {
      foreign + ": the kernel is for target 'gfx90a', not 'gfx942'",
      odd + ": gfx942 has no pipeline direct"};
  EXPECT_EQ(result.errors, expected);
}

TEST(Instances, UnknownSourcesAreAnswered) {
  const auto find = [](Op op, const char* name) {
    return [op, name] { find_instance_source(family_of(op), name); };
  };
  EXPECT_EQ(find_instance_source(family_of(Op::gemm), "native"), nullptr);
  EXPECT_EQ(message_of(find(Op::gemm, "cktil"), ErrorCode::not_found),
            "unknown source 'cktil', did you mean 'cktile'? (known: native, cktile)");
  EXPECT_EQ(message_of(find(Op::norm, "cktile"), ErrorCode::unsupported),
            "norm: source cktile has instances of gemm, conv, fmha only");
  const Target cpu = load_target("avx512");
  EXPECT_EQ(message_of([&] { enumerate_instances(cktile(Op::conv), family_of(Op::conv), cpu, {}); },
                       ErrorCode::unsupported),
            "conv: the row of target avx512 has no cktile_spaces.conv: CK Tile has no conv there");
}

std::string only_name(const std::string& problem, const std::string& target) {
  const Problem parsed = parse_problem(problem);
  const Target row = load_target(target);
  std::string names;
  for (const KernelSpec& spec : instances_for(cktile(op_of(parsed)), parsed, row)) {
    names += name_of(spec) + "\n";
  }
  return names;
}

TEST(Instances, ServeTheProblemsThatTheyCan) {
  EXPECT_EQ(only_name("fmha heads=8 seqlen_q=512 seqlen_k=512 hdim=192 hdim_v=128 dtype=fp16 "
                      "mask=top_left",
                      "gfx950"),
            "fmha_forward_fp16_qr_128x128x192_4x1x1_32x32x16_masked_gfx950\n"
            "fmha_forward_fp16_qr_128x128x256_4x1x1_32x32x16_masked_gfx950\n"
            "fmha_forward_fp16_qrasync_128x128x192_4x1x1_32x32x16_masked_gfx950\n"
            "fmha_forward_fp16_qrasync_128x128x256_4x1x1_32x32x16_masked_gfx950\n");
  EXPECT_EQ(only_name("fmha heads=8 seqlen_q=512 seqlen_k=512 hdim=256 dtype=bf16", "gfx1201"),
            "fmha_forward_bf16_qr_64x64x256_4x1x1_16x16x16_gfx1201\n");
  EXPECT_EQ(only_name("fmha heads=8 seqlen_q=512 seqlen_k=512 hdim=20 dtype=fp16", "gfx942"), "");
  EXPECT_EQ(only_name("conv direction=forward n=1 c=4 k=64 h=8 w=8 y=3 x=3 dtype=fp16", "gfx942"),
            "");
  EXPECT_EQ(only_name("gemm m=64 n=64 k=64 batch=2 dtype=fp16", "gfx942"), "");
  EXPECT_NE(only_name("gemm m=64 n=64 k=64 dtype=fp16", "gfx942"), "");
}

TEST(Instances, OfSetsAreTheLibrarys) {
  const Target target = load_target("gfx942");
  EXPECT_EQ(cktile(Op::conv).preselected("backward_data_bf16_nhwgc_essential", target).size(), 36U);
  EXPECT_EQ(cktile(Op::fmha).preselected("forward_fp16_essential", target).size(), 68U);
  EXPECT_GT(cktile(Op::gemm).preselected("fp16_rcr_essential", target).size(), 0U);
  EXPECT_EQ(message_of([&] { cktile(Op::fmha).preselected("forward_fp61_essential", target); },
                       ErrorCode::not_found),
            "fmha: gfx942 has no preselected set 'forward_fp61_essential', did you mean "
            "'forward_fp16_essential'?");
}

}  // namespace
}  // namespace tessera
