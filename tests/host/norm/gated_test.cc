// Gates and outputs of 8 bits without running any: operands, kernels that serve, launches.
#include <gtest/gtest.h>

#include <array>

#include "tessera/families/norm/norm.h"
#include "tessera/targets/targets.h"

namespace tessera::norm {
namespace {

TEST(NormTensors, ScalesOfOutputsOf8Bits) {
  const auto scales = [](const char* line) { return family().tensors(parse_problem(line))[2]; };
  const Tensor given = scales("norm kind=rmsnorm rows=5 columns=300 out=fp8 quant=tensor");
  EXPECT_EQ(given.name, "out_scale");
  EXPECT_TRUE(given.is_read() && !given.is_written());
  EXPECT_EQ(given.sizes[0] * given.rows(), 1);
  const Tensor row = scales("norm kind=rmsnorm rows=5 columns=300 out=fp8 quant=row");
  EXPECT_EQ(row.name, "out_scales");
  EXPECT_TRUE(row.is_written());
  EXPECT_EQ(row.sizes[0], 1);
  EXPECT_EQ(row.sizes[1], 5);
  const Tensor block = scales("norm kind=rmsnorm rows=5 columns=300 out=fp8 quant=block");
  EXPECT_EQ(block.sizes[0], 3);
  EXPECT_EQ(block.strides[1], 3);
  const Tensor columns =
      scales("norm kind=rmsnorm rows=5 columns=300 out=bf8 quant=block scales_by_column=1");
  EXPECT_EQ(columns.strides[0], 5);
  EXPECT_EQ(columns.strides[1], 1);
}

TEST(NormTensors, RowsOfInHaveGatesAndWhatTheyMultiply) {
  const Tensors all = family().tensors(parse_problem("norm kind=silu_mul rows=5 columns=300"));
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].sizes[0], 600);
  EXPECT_EQ(all[0].strides[1], 600);
  EXPECT_FALSE(all[0].may_be_output);
  EXPECT_EQ(all[1].sizes[0], 300);
  EXPECT_EQ(all[1].strides[1], 300);
}

TEST(NormBind, TilesOfElementwiseRowsHaveBlocksOfTheirOwn) {
  for (const char* target : {"sm90a", "gfx942"}) {
    const bool is_cuda = std::string_view(target) == "sm90a";
    for (const auto& [end, tiles] : std::initializer_list<std::pair<const char*, unsigned>>{
             {"", 3}, {"_outfp8_quantblock", 3}, {"_outfp8_quantrow", 1}}) {
      const KernelSpec spec =
          parse_name(fmt::format("norm_fp32_silumul_rows_1x4096x1_1x4x1_1x1x1{}_{}", end, target));
      const bool is_row = tiles == 1;
      NormProblem p = {.kind = NormKind::silu_mul, .rows = 7, .columns = is_row ? 4096 : 9000};
      p.quant = std::get<NormSignature>(spec.signature).quant;
      if (p.quant != NormQuant::none) p.out = DType::fp8;
      const Target machine = load_target(target);
      EXPECT_EQ(family().supports(spec, p, machine).reason, "") << name_of(spec);
      const Launch launch = norm::family().bind(spec, p, machine, NormOperands{});
      EXPECT_EQ(launch.steps[0].grid, (std::array<unsigned, 3>{7, tiles, 1})) << name_of(spec);
      p.columns = 9000;
      EXPECT_EQ(family().supports(spec, p, machine).reason,
                is_row && is_cuda
                    ? "columns must be at most 4096, which 128 threads of 1 blocks hold, got 9000"
                    : "");
    }
  }
  const KernelSpec copy =
      parse_name("norm_bf16_copy_rows_1x2048x1_1x8x1_1x1x1_outfp8_quantblock_sm90a");
  const Problem wide =
      parse_problem("norm kind=copy rows=7 columns=7168 dtype=bf16 out=fp8 quant=block");
  EXPECT_EQ(norm::family().bind(copy, wide, load_target("sm90a"), NormOperands{}).steps[0].grid,
            (std::array<unsigned, 3>{7, 4, 1}));
  const KernelSpec spec = parse_name("norm_fp32_silumul_rows_8x256x1_4x1x1_2x1x1_sm90a");
  EXPECT_EQ(family()
                .supports(spec, parse_problem("norm kind=silu_mul rows=1 columns=16776961"),
                          load_target("sm90a"))
                .reason,
            "columns must be at most 16776960, which are 65535 tiles, got 16776961");
  const KernelSpec narrow =
      parse_name("norm_fp32_silumul_rows_64x64x1_4x1x1_16x1x1_outfp8_quantblock_sm90a");
  EXPECT_EQ(family()
                .supports(narrow,
                          parse_problem("norm kind=silu_mul rows=1 columns=65 out=fp8 quant=block"),
                          load_target("sm90a"))
                .reason,
            "columns must be at most 64 where tile_n is no multiple of 128, got 65");
}

TEST(NormTensors, RowsOfCopiesHaveTheirColumnsAlone) {
  const Tensors all = family().tensors(
      parse_problem("norm kind=copy rows=5 columns=300 dtype=bf16 out=fp8 quant=block"));
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].sizes[0], 300);
  EXPECT_EQ(all[0].strides[1], 300);
  EXPECT_FALSE(all[0].may_be_output);
  EXPECT_EQ(all[2].sizes[0], 3);
}

TEST(NormFeatures, SayNothingOfElementwiseKinds) {
  EXPECT_EQ(family().features_fit(parse_problem("norm kind=copy rows=7 columns=9")).reason,
            "no feature says that kind is copy");
  EXPECT_EQ(family().features_fit(parse_problem("norm kind=silu_mul rows=7 columns=9")).reason,
            "no feature says that kind is silu_mul");
  EXPECT_EQ(family().features_fit(parse_problem("norm kind=rmsnorm rows=7 columns=9")).reason, "");
}

}  // namespace
}  // namespace tessera::norm
