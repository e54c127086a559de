#include "tessera/registry/registry.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "support.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

constexpr const char* kOne = "gemm_fp32_rrr_packb_192x960x256_1x1x1_12x32x1_avx512";
constexpr const char* kTwo = "gemm_fp32_rrr_packb_48x1920x512_1x1x1_12x32x1_avx512";
constexpr const char* kOther = "gemm_fp32_rrr_packb_48x192x256_1x1x1_6x16x1_avx2";

Registry with(std::string name, const std::vector<const char*>& kernels) {
  Registry registry(std::move(name));
  for (const char* kernel : kernels) registry.declare(parse_name(kernel));
  return registry;
}

TEST(Registry, DeclaresEachNameOnce) {
  Registry registry = with("mine", {kTwo, kOne, kTwo});
  registry.declare(KernelSet{"again", {parse_name(kOne)}});
  const std::vector<std::string> expected = {kOne, kTwo};
  EXPECT_EQ(names_of(registry.declared()), expected);
  EXPECT_EQ(registry.size(), 2U);
  EXPECT_EQ(registry.name(), "mine");
  EXPECT_TRUE(registry.contains(kOne));
  EXPECT_FALSE(registry.contains(kOther));
  EXPECT_EQ(registry.find(kOne), nullptr);
  EXPECT_EQ(registry.find("no such kernel"), nullptr);
}

TEST(Registry, SeveralLiveSideBySide) {
  const Registry one = with("one", {kOne});
  const Registry two = with("two", {kTwo, kOther});
  EXPECT_EQ(one.size(), 1U);
  EXPECT_EQ(two.size(), 2U);
  EXPECT_FALSE(two.contains(kOne));
}

TEST(Registry, MergeIsTheUnionOfDeclarations) {
  Registry one = with("one", {kOne, kTwo});
  const Registry two = with("two", {kTwo, kOther});
  one.merge(two);
  one.merge(one);
  const std::vector<std::string> expected = {kOne, kOther, kTwo};
  std::vector<std::string> sorted = expected;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(names_of(one.declared()), sorted);
  EXPECT_EQ(one.name(), "one");
  EXPECT_EQ(two.size(), 2U);
}

TEST(Registry, FiltersByTargetAndByPredicate) {
  const Registry all = with("all", {kOne, kTwo, kOther});
  EXPECT_EQ(names_of(all.filtered("avx2").declared()), std::vector<std::string>{kOther});
  EXPECT_EQ(all.filtered("sm90a").size(), 0U);
  const Registry big =
      all.filtered([](const KernelSpec& spec) { return spec.algorithm.tile.m == 192; });
  EXPECT_EQ(names_of(big.declared()), std::vector<std::string>{kOne});
  EXPECT_EQ(big.name(), "all");
  EXPECT_EQ(all.size(), 3U);
}

TEST(Registry, JsonRoundTrips) {
  const Registry all = with("all", {kOne, kTwo, kOther});
  Registry copy("copy");
  copy.import_json(all.export_json());
  EXPECT_EQ(copy.declared(), all.declared());
  EXPECT_EQ(copy.name(), "copy");
}

TEST(Registry, JsonCarriesTheUsersTargets) {
  Target laptop = load_target("avx2");
  laptop.name = "laptop";
  Registry registry("mine");
  registry.add_target(laptop);
  registry.declare(KernelSetBuilder("set", laptop).gemm().dtype("fp32").layout("rrr").build());
  Registry copy("mine");
  copy.import_json(registry.export_json());
  EXPECT_EQ(copy.export_json(), registry.export_json());
  EXPECT_NE(registry.export_json().find("\"name\": \"laptop\""), std::string::npos);
}

TEST(Registry, MalformedJsonChangesNothing) {
  Registry registry = with("mine", {kOne});
  std::string text = message_of([&] { registry.import_json("{\"name\": \"x\",\n oops}"); },
                                ErrorCode::parse_error);
  EXPECT_EQ(text.rfind("registry: line 2, column 2: ", 0), 0U) << text;
  text = message_of(
      [&] {
        registry.import_json(fmt::format(
            R"({{"name": "x", "kernels": ["{}"], "targets": [{{"name": "UPPER"}}]}})", kTwo));
      },
      ErrorCode::parse_error);
  EXPECT_EQ(text.rfind("registry: targets[0]: target row: ", 0), 0U) << text;
  EXPECT_EQ(names_of(registry.declared()), std::vector<std::string>{kOne});
}

TEST(Registry, RefusesAnUnknownTarget) {
  const TemporaryFolder folder;
  Registry registry("mine", without_compiler(folder.path));
  KernelSpec spec = parse_name(kOne);
  spec.target = "nowhere";
  const std::string expected =
      "unknown target 'nowhere' (known: avx512, avx2, generic, sm90a, gfx1100, gfx1201, gfx90a, "
      "gfx942, gfx950; a "
      "row of your own is a file that ends in .json)";
  EXPECT_EQ(message_of([&] { registry.get(spec); }, ErrorCode::not_found), expected);
  registry.declare(spec);
  const std::vector<jit::BuildResult> results = registry.build(1);
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].error, expected);
  EXPECT_EQ(results[0].name, name_of(spec));
}

TEST(Registry, RefusesAnIllegalKernelWithItsRule) {
  const TemporaryFolder folder;
  Registry registry("mine", without_compiler(folder.path));
  const std::string name = "gemm_fp32_rrr_packb_193x960x256_1x1x1_12x32x1_generic";
  const std::string reason =
      family_of(Op::gemm).is_legal(parse_name(name), load_target("generic")).reason;
  ASSERT_NE(reason, "");
  EXPECT_EQ(message_of([&] { registry.get(parse_name(name)); }, ErrorCode::illegal_spec),
            name + ": " + reason);
}

TEST(Registry, UsersRowWinsOverTheShippedOne) {
  const TemporaryFolder folder;
  Registry registry("mine", without_compiler(folder.path));
  Target small = load_target("generic");
  small.vector_registers = 2;
  registry.add_target(small);
  const KernelSpec spec = parse_name("gemm_fp32_rrr_packb_48x192x256_1x1x1_4x8x1_generic");
  ASSERT_TRUE(family_of(Op::gemm).is_legal(spec, load_target("generic")));
  message_of([&] { registry.get(spec); }, ErrorCode::illegal_spec);
}

// Kernels of a machine that is not here are reported, with the reason, and nothing is compiled.
TEST(Registry, BuildSaysWhyAKernelCannotBeBuiltHere) {
  const TemporaryFolder folder;
  Registry registry("mine", without_compiler(folder.path));
  const KernelSet hopper = KernelSetBuilder("hopper", "sm90a")
                               .for_problem(parse_problem("gemm m=512 n=512 k=512 dtype=bf16"), 2)
                               .build();
  registry.declare(hopper);
  std::vector<std::size_t> progress;
  const std::vector<jit::BuildResult> results =
      registry.build(2, [&](std::size_t done, std::size_t total, const jit::BuildResult& result) {
        EXPECT_EQ(total, 2U);
        EXPECT_NE(result.error, "");
        progress.push_back(done);
      });
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].name, name_of(hopper.specs[0]));
  EXPECT_EQ(results[1].name, name_of(hopper.specs[1]));
  EXPECT_NE(results[0].error, "");
  const std::vector<std::size_t> expected = {1, 2};
  EXPECT_EQ(progress, expected);
}

TEST(Registry, DeclaresFromManyThreads) {
  const std::vector<KernelSpec> specs =
      KernelSetBuilder("all", "generic").gemm().dtype("fp32").build().specs;
  Registry registry("mine");
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (const KernelSpec& spec : specs) registry.declare(spec);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(registry.declared(), specs);
}

}  // namespace
}  // namespace tessera
