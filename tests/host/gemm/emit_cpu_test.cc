// The objects of CPU kernels: which kernels share them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "tessera/families/family.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

Source emitted(const std::string& name) {
  const KernelSpec spec = parse_name(name);
  return family_of(spec).emit(spec, load_target(spec.target));
}

std::set<std::string> object_texts(const std::string& name) {
  std::set<std::string> texts;
  for (const Source& object : emitted(name).objects) texts.insert(object.text);
  return texts;
}

std::size_t shared(const std::string& a, const std::string& b) {
  const std::set<std::string> of_a = object_texts(a);
  const std::set<std::string> of_b = object_texts(b);
  return static_cast<std::size_t>(std::count_if(
      of_a.begin(), of_a.end(), [&of_b](const std::string& text) { return of_b.contains(text); }));
}

TEST(EmitCpu, KernelsShareAllThatTilesAndEpiloguesDoNotChange) {
  const std::string kernel = "gemm_fp32_rcr_packab_48x1920x512_0x0x1_12x32x1_avx512";
  const std::size_t all = object_texts(kernel).size();
  EXPECT_EQ(all, 4U);  // the block, the driver, a panel of A, a panel of B
  const auto with = [&](const char* other) { return shared(kernel, other); };
  EXPECT_EQ(with("gemm_fp32_rcr_packab_96x960x256_2x2x1_12x32x1_avx512"), all);
  EXPECT_EQ(with("gemm_fp32_rcr_packab_48x1920x512_0x0x1_12x32x1_bias_gelu_avx512"), all);
  EXPECT_EQ(with("gemm_fp32_rcr_packab_48x1920x512_0x0x1_12x32x1_presh_avx512"), all);
  EXPECT_EQ(with("gemm_fp32_rcr_packab_48x1920x512_0x0x1_8x32x1_avx512"), 2U);   // driver, B
  EXPECT_EQ(with("gemm_fp32_rcr_packab_48x1920x512_0x0x1_12x16x1_avx512"), 2U);  // driver, A
  EXPECT_EQ(with("gemm_fp32_rcr_packb_48x1920x512_0x0x1_12x32x1_avx512"), 2U);   // driver, B
  EXPECT_EQ(with("gemm_fp32_rrr_packab_48x1920x512_0x0x1_12x32x1_avx512"), 2U);  // block, A
  EXPECT_EQ(with("gemm_fp16_rcr_packab_48x1920x512_0x0x1_12x32x1_avx512"), 1U);  // block
  EXPECT_EQ(with("gemm_int8_rcr_packab_48x1920x512_0x0x1_12x32x4_avx512"), 0U);
}

TEST(EmitCpu, ABlockThatConvertsIsAnObjectOfItsOwn) {
  const char* plain = "gemm_bf16_rcr_packab_48x1920x512_0x0x1_12x32x2_avx512";
  const char* fp32_out = "gemm_bf16_rcr_packab_48x1920x512_0x0x1_12x32x2_outfp32_avx512";
  const char* fused = "gemm_bf16_rcr_packab_48x1920x512_0x0x1_12x32x2_relu_avx512";
  EXPECT_EQ(object_texts(plain).size(), 5U);
  EXPECT_EQ(object_texts(fp32_out).size(), 4U);
  EXPECT_EQ(object_texts(fused).size(), 4U);
  EXPECT_EQ(shared(plain, fp32_out), 4U);
  EXPECT_EQ(shared(plain, fused), 4U);
}

TEST(EmitCpu, StreamKernelsShareByTheirStrips) {
  const std::string kernel = "gemm_fp32_rrr_stream_8x1024x512_0x0x1_8x16x1_avx512";
  EXPECT_EQ(object_texts(kernel).size(), 3U);  // the driver, strips along k and across
  EXPECT_EQ(shared(kernel, "gemm_fp32_rrr_stream_8x1024x512_1x1x1_8x16x1_relu_avx512"), 3U);
  EXPECT_EQ(shared(kernel, "gemm_fp32_rrr_stream_8x4096x512_0x0x1_8x16x1_avx512"), 3U);
  // Both operands are read along k: one strip serves both.
  EXPECT_EQ(object_texts("gemm_fp32_rcr_stream_8x1024x512_0x0x1_8x16x1_avx512").size(), 2U);
}

TEST(EmitCpu, ObjectsAreDeclaredAheadOfTheKernel) {
  for (const char* name : {"gemm_fp32_rrr_stream_8x1024x512_0x0x1_8x16x1_avx512",
                           "gemm_bf16_rcr_packab_48x1920x512_0x0x1_12x32x2_avx512"}) {
    const Source source = emitted(name);
    std::string declarations;
    for (const Source& object : source.objects) {
      EXPECT_TRUE(object.is_object);
      EXPECT_EQ(object.extension, ".cc");
      EXPECT_TRUE(std::all_of(object.name.begin(), object.name.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '_';
      })) << object.name;
      std::string declared = object.text;
      const std::string keyword = "\ntemplate ";
      for (std::size_t at = declared.find(keyword); at != declared.npos;
           at = declared.find(keyword, at + 1)) {
        declared.insert(at + 1, "extern ");
      }
      declarations += declared;
    }
    EXPECT_EQ(source.declarations, declarations);
  }
}

std::size_t packed_bytes(const std::string& name, std::string_view line) {
  const KernelSpec spec = parse_name(name);
  return family_of(spec)
      .prepack(spec, parse_problem(line), load_target(spec.target), GemmOperands{}, nullptr)
      ->bytes;
}

// Whole panels of words of 4 bytes; with four int8 in a word each block of k begins with one more.
TEST(CpuPrepack, CountsTheBytesOfAPackedB) {
  EXPECT_EQ(packed_bytes("gemm_fp32_rcr_packb_192x1920x256_1x1x0_6x64x1_presh_avx512",
                         "gemm m=5 n=129 k=65 batch=3 preshuffle=1"),
            3U * 192 * 65 * 4);
  EXPECT_EQ(packed_bytes("gemm_fp32_rcr_packb_192x1920x256_1x1x0_6x64x1_presh_avx512",
                         "gemm m=5 n=129 k=65 batch=3 batch_stride_b=0 preshuffle=1"),
            1U * 192 * 65 * 4);
  EXPECT_EQ(packed_bytes("gemm_int8_rcr_packb_192x1920x256_1x1x0_6x64x4_presh_avx512",
                         "gemm m=5 n=129 k=65 dtype=int8 preshuffle=1"),
            192U * 17 * 4);
  EXPECT_EQ(packed_bytes("gemm_int8_rcr_packb_192x1920x256_1x1x0_6x64x4_presh_avx512",
                         "gemm m=5 n=129 k=513 dtype=int8 preshuffle=1"),
            192U * 129 * 4);
}

TEST(CpuPrepack, IsOneStepOfTheSecondEntryOnOneThread) {
  const KernelSpec spec = parse_name("gemm_fp32_rcr_packb_192x1920x256_1x1x0_6x64x1_presh_avx512");
  const float b = 0;
  float packed = 0;
  const auto made =
      family_of(spec).prepack(spec, parse_problem("gemm m=5 n=9 k=7 preshuffle=1"),
                              load_target(spec.target), GemmOperands{.b = &b}, &packed);
  ASSERT_TRUE(made.has_value());
  ASSERT_EQ(made->launch.steps.size(), 1U);
  EXPECT_EQ(made->launch.steps[0].entry, 1);
  EXPECT_EQ(made->launch.max_threads, 1);
  EXPECT_EQ(made->from, &b);
  EXPECT_EQ(std::get<GemmOperands>(made->operands).b, &packed);
}

}  // namespace
}  // namespace tessera
