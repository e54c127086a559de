#include <gtest/gtest.h>

#include "host/spec/expect_error.h"
#include "tessera/device/cuda/tile_sizes.h"
#include "tessera/families/tile/algorithm_space.h"
#include "tessera/families/tile/fields.h"
#include "tessera/families/tile/rules.h"
#include "tessera/families/tile/sets.h"
#include "tessera/targets/targets.h"

namespace tessera::tile {
namespace {

struct Size {
  int value;
};
constexpr Rule<Size> kSizes[] = {
    {[](const Size& c) { return c.value > 0; },
     [](const Size& c) { return "needs more than 0, got " + std::to_string(c.value); }},
    {[](const Size& c) { return c.value % 2 == 0; },
     [](const Size& c) { return "needs an even number, got " + std::to_string(c.value); }},
};

TEST(TileRules, FirstBrokenOneSpeaks) {
  EXPECT_EQ(first_broken(kSizes, Size{4}), nullptr);
  EXPECT_EQ(first_broken(kSizes, Size{3}), kSizes + 1);
  const Rule<Size>* both = first_broken(kSizes, Size{-3});
  ASSERT_EQ(both, kSizes);
  EXPECT_EQ(both->sentence(Size{-3}), "needs more than 0, got -3");
}

TEST(TileSpace, ShorterNumberComesAfterLongerOneThatBeginsLikeIt) {
  const std::vector<Shape3> sorted =
      in_name_order(std::vector<Shape3>{{12, 768, 512}, {120, 3072, 256}, {12, 768, 512}});
  EXPECT_EQ(sorted, (std::vector<Shape3>{{120, 3072, 256}, {12, 768, 512}}));
}

TEST(TileSpace, EveryCombinationOnce) {
  const AlgorithmSpace space = {.pipelines = {Pipeline::tmaws, Pipeline::cpasync},
                                .waves = {{2, 1, 1}, {1, 1, 1}}};
  std::vector<std::string> names;
  for_each_shape(space, {{64, 64, 64}}, {{16, 8, 16}, {64, 64, 16}}, [&](const Algorithm& a) {
    EXPECT_EQ(a.tile, (Shape3{64, 64, 64}));
    names.push_back(std::string(to_string(a.pipeline)) + " " + to_string(a.wave) + " " +
                    to_string(a.warp_tile));
  });
  EXPECT_EQ(names, (std::vector<std::string>{"cpasync 1x1x1 16x8x16", "cpasync 1x1x1 64x64x16",
                                             "cpasync 2x1x1 16x8x16", "cpasync 2x1x1 64x64x16",
                                             "tmaws 1x1x1 16x8x16", "tmaws 1x1x1 64x64x16",
                                             "tmaws 2x1x1 16x8x16", "tmaws 2x1x1 64x64x16"}));
}

TEST(TileSpace, OperationThatTheRowLacks) {
  Target target = load_target("sm90a");
  target.spaces.erase(Op::fmha);
  expect_error(ErrorCode::unsupported,
               "fmha: the row of target sm90a has no space for fmha; add spaces.fmha to it",
               [&] { space_of(Op::fmha, target); });
}

TEST(TileFields, DefaultsMeanNothing) {
  for (const Pipeline pipeline : {Pipeline::stream, Pipeline::tmaws, Pipeline::cpasync,
                                  Pipeline::compv5, Pipeline::mem, Pipeline::async}) {
    EXPECT_TRUE(unused_at_default({.pipeline = pipeline, .tile = {64, 64, 64}}));
    EXPECT_EQ(unused_field({.pipeline = pipeline, .tile = {64, 64, 64}}), "");
  }
}

TEST(TileFields, FirstUnusedOneIsNamed) {
  const Algorithm a = {.pipeline = Pipeline::cpasync,
                       .store = Store::tma,
                       .splits = 4,
                       .slices = 8,
                       .stages = 3,
                       .swap_ab = true};
  const auto on = [&a](Pipeline pipeline) {
    Algorithm other = a;
    other.pipeline = pipeline;
    EXPECT_EQ(unused_at_default(other), unused_field(other).empty());
    return unused_field(other);
  };
  EXPECT_EQ(on(Pipeline::packab), "store must be standard with packab, got tma");
  EXPECT_EQ(on(Pipeline::cpasync), "store must be standard with cpasync, got tma");
  EXPECT_EQ(on(Pipeline::compv3), "swap_ab must be false with compv3, got true");
  EXPECT_EQ(on(Pipeline::async), "swap_ab must be false with async, got true");
  EXPECT_EQ(on(Pipeline::tmaws), "");
}

// Kernels are compiled for what the header says, and judged by what the row says.
TEST(TileSizes, LimitIsTheRows) {
  int rows = 0;
  for (const std::string& name : target_names()) {
    const Target target = load_target(name);
    if (target.backend != "cuda") continue;
    ++rows;
    EXPECT_EQ(target.shared_memory_bytes, device::kSharedLimit) << name;
  }
  EXPECT_GT(rows, 0);
}

Verdict always(const KernelSpec&, const Target&) { return {}; }
Verdict never(const KernelSpec&, const Target&) { return {"no"}; }

TEST(TileSets, TargetWithoutSets) {
  Target target = load_target("sm90a");
  target.name = "sm99";
  expect_error(ErrorCode::not_found, "fmha: sm99 has no preselected set 'bf16_rcr_essential'",
               [&] { preselected(Op::fmha, "bf16_rcr_essential", target, always); });
}

TEST(TileSets, IllegalKernelsAreLeftOut) {
  const Target target = load_target("sm90a");
  const auto all = preselected(Op::gemm, "bf16_rcr_essential", target, always);
  ASSERT_FALSE(all.empty());
  EXPECT_TRUE(preselected(Op::gemm, "bf16_rcr_essential", target, never).empty());
  EXPECT_TRUE(is_essential(Op::gemm, all.front(), target));
  EXPECT_FALSE(is_essential(Op::fmha, all.front(), target));
}

}  // namespace
}  // namespace tessera::tile
