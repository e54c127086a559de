// Built-ins change their types from release to release: bf16 became a type of its own in GCC 13 and
// Clang 16. Every compiler found here must take every way of multiplying.
#include <gtest/gtest.h>

#include "host/jit/fixtures.h"
#include "tessera/base/subprocess.h"
#include "tessera/jit/build.h"
#include "tessera/spec/kernel_spec.h"
#include "tessera/targets/targets.h"

namespace tessera::jit {
namespace {

class NewerCompilers : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(With, NewerCompilers,
                         testing::Values("g++-13", "g++-14", "g++-15", "clang++-17", "clang++-18",
                                         "clang++-19"),
                         [](const auto& chosen) {
                           const std::string name = chosen.param;
                           return (name[0] == 'g' ? "Gcc" : "Clang") +
                                  name.substr(name.find('-') + 1);
                         });

TEST_P(NewerCompilers, TakeEveryInstruction) {
  if (find_executable(GetParam()).empty()) GTEST_SKIP() << GetParam() << " is not installed";
  const TempFolder temp;
  BuildOptions options;
  options.cache.folder = temp / "cache";
  options.compiler = GetParam();
  options.use_shipped_packs = false;
  Builder builder(options);
  const Target target = load_target("avx512");
  for (const char* name : {"gemm_fp32_rcr_packab_192x1920x256_0x0x1_12x32x1_avx512",
                           "gemm_bf16_rcr_packab_192x1920x256_0x0x1_12x32x2_avx512",
                           "gemm_fp16_rcr_packab_192x1920x256_0x0x1_12x32x1_avx512",
                           "gemm_int8_rcr_packab_192x1920x256_0x0x1_12x32x2_avx512",
                           "gemm_int8_rcr_packab_192x1920x256_0x0x1_12x32x4_avx512"}) {
    const KernelSpec spec = parse_name(name);
    EXPECT_NO_THROW(builder.build(family_of(spec).emit(spec, target), target)) << name;
  }
}

}  // namespace
}  // namespace tessera::jit
