// The files of bench/shapes: every line is a valid problem, and attention has the published heads.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tessera/base/error.h"
#include "tessera/commands/options.h"
#include "tessera/targets/targets.h"

namespace tessera::commands {
namespace {

std::string name_of_file(const EmbeddedFile& file) {
  return std::string(file.path.substr(0, file.path.rfind('.')));
}

// Hopper has no kernels for groups of unequal sizes.
bool has_kernels(const Problem& problem, const Target& target) {
  const auto* const gemm = std::get_if<GemmProblem>(&problem);
  return gemm == nullptr || gemm->groups == 0 || target.backend != "cuda";
}

TEST(ShapeFiles, EveryLineIsValidAndServedEverywhere) {
  const Target targets[] = {load_target("generic"), load_target("avx512"), load_target("sm90a")};
  ASSERT_GE(shape_files().size(), 27U);
  for (const EmbeddedFile& file : shape_files()) {
    SCOPED_TRACE(file.path);
    EXPECT_TRUE(file.content.starts_with("# ")) << "begins with no sentence on its source";
    std::set<std::string> lines;
    for (const Problem& problem : read_shapes(name_of_file(file))) {
      EXPECT_TRUE(lines.insert(to_string(problem)).second) << to_string(problem);
      for (const Target& target : targets) {
        if (!has_kernels(problem, target)) continue;
        const Family& family = family_of(problem);
        const KernelSpec spec = family.general(problem, target);
        EXPECT_EQ(family.is_legal(spec, target).reason, "") << to_string(problem);
        EXPECT_EQ(family.supports(spec, problem, target).reason, "") << to_string(problem);
      }
    }
  }
}

// "heads/heads_kv x hdim", and hdim_v where it differs.
std::string heads_of(const Problem& problem) {
  const FmhaProblem p = with_strides(std::get<FmhaProblem>(problem));
  std::string text =
      std::to_string(p.heads) + "/" + std::to_string(p.heads_kv) + " x " + std::to_string(p.hdim);
  if (p.hdim_v != p.hdim) text += "/" + std::to_string(p.hdim_v);
  return text;
}

TEST(ShapeFiles, AttentionHasThePublishedHeads) {
  const std::set<std::string> served = {"64/8 x 128", "32/8 x 128", "64/4 x 128"};
  const std::map<std::string, std::set<std::string>> published = {
      {"gpt2", {"12/12 x 64"}},
      {"llama3_8b", {"32/8 x 128"}},
      {"llama3_70b", {"64/8 x 128", "8/1 x 128"}},
      {"qwen3",
       {"16/8 x 128", "32/8 x 128", "40/8 x 128", "64/8 x 128", "32/4 x 128", "64/4 x 128"}},
      {"deepseek_v3", {"128/128 x 192/128", "128/1 x 576/512"}},
      {"bert", {"12/12 x 64", "16/16 x 64"}},
      {"stable_diffusion",
       {"8/8 x 40", "8/8 x 80", "8/8 x 160", "10/10 x 64", "20/20 x 64", "12/12 x 64"}},
      {"decode_8k", served},
      {"decode_32k", served},
      {"decode_128k", served},
      {"decode_fp8", {"64/8 x 128", "32/8 x 128"}},
      {"prefill_paged", {"32/8 x 128"}},
      {"prefill_ragged", {"32/8 x 128", "64/8 x 128"}},
  };
  for (const auto& [name, heads] : published) {
    std::set<std::string> found;
    for (const Problem& problem : read_problems({.shapes = name, .op = "fmha"})) {
      found.insert(heads_of(problem));
    }
    EXPECT_EQ(found, heads) << name;
  }
}

// A file of a whole network: one operation of it, or all.
TEST(ShapeFiles, OneOperation) {
  const std::size_t all = read_problems({.shapes = "gpt2"}).size();
  const std::size_t products = read_problems({.shapes = "gpt2", .op = "gemm"}).size();
  const std::size_t attention = read_problems({.shapes = "gpt2", .op = "fmha"}).size();
  EXPECT_EQ(products, 11U);
  EXPECT_EQ(attention, 4U);
  EXPECT_EQ(all, products + attention);
  // what is left out need not fit the options
  EXPECT_EQ(read_problems({.shapes = "gpt2", .layout = "rcr", .op = "gemm"}).size(), products);
  try {
    read_problems({.shapes = "square", .op = "fmha"});
    FAIL() << "square has attention";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(), "square holds no problem of fmha");
  }
}

}  // namespace
}  // namespace tessera::commands
