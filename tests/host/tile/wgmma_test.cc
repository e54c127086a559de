// The text of wgmma instructions.
#include "tessera/families/tile/wgmma.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera::tile {
namespace {

constexpr std::string_view kFromRegisters = R"(namespace tessera::device {

template <>
struct Wgmma<fp16, fp16, 8, WgmmaFrom::registers, WgmmaFrom::row_lines> {
  using Acc = float;
  static __device__ __forceinline__ void multiply(Acc (&d)[4],
      const u32 (&p)[4], u64 q, int accumulate) {
    asm volatile(
        "{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %9, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16\n"
        "{"
        "%0, %1, %2, %3"
        "}, {%4, %5, %6, %7}, %8, accumulate, 1, 1, 1;\n}"
        :
        "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(q), "r"(accumulate));
  }
};

}  // namespace tessera::device
)";

TEST(WgmmaText, TakesPFromRegisters) {
  const Wgmma w{DType::fp16, DType::fp16, 8, WgmmaFrom::registers, WgmmaFrom::row_lines};
  EXPECT_EQ(wgmma_text(std::span(&w, 1)), kFromRegisters);
}

TEST(WgmmaText, WritesEachInstructionOnce) {
  const Wgmma first{.columns = 64};
  const Wgmma other{.columns = 64, .q_from = WgmmaFrom::row_lines};
  const std::string text = wgmma_text(std::vector<Wgmma>{first, other, first});
  const std::string name = "struct Wgmma<bf16, bf16, 64, WgmmaFrom::k_lines, ";
  const auto at_first = text.find(name + "WgmmaFrom::k_lines>");
  EXPECT_NE(at_first, std::string::npos) << text;
  EXPECT_EQ(text.find(name + "WgmmaFrom::k_lines>", at_first + 1), std::string::npos) << text;
  EXPECT_NE(text.find(name + "WgmmaFrom::row_lines>"), std::string::npos) << text;
}

}  // namespace
}  // namespace tessera::tile
