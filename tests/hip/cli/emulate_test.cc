// tessera verify --emulate and tessera show --asm.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

namespace {

struct Output {
  int status = 0;
  std::string text;
};
Output run_cli(const std::string& words) {
  FILE* const pipe = popen((TESSERA_CLI " " + words + " 2>&1").c_str(), "r");
  Output output;
  char buffer[4096];
  for (std::size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    output.text.append(buffer, n);
  }
  output.status = WEXITSTATUS(pclose(pipe));
  return output;
}

bool lacks_tools() {
  return std::system("clang++-22 --version >/dev/null 2>&1") != 0 ||
         std::system("llvm-objdump-22 --version >/dev/null 2>&1") != 0;
}

class Emulate : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (lacks_tools()) GTEST_SKIP() << "there is no clang++-22 or no llvm-objdump-22";
  }
};

TEST_P(Emulate, VerifiesAProblem) {
  const Output output =
      run_cli("verify --emulate --json --target " + GetParam() + " gemm m=70 n=50 k=40 dtype=fp16");
  ASSERT_EQ(output.status, 0) << output.text;
  const auto json = nlohmann::json::parse(output.text);
  EXPECT_EQ(json["verified"], 1);
  EXPECT_EQ(json["emulator"]["findings"], 0);
  EXPECT_GE(json["emulator"]["launches"], 1);
  EXPECT_GE(json["emulator"]["instructions"], 1000);
}

TEST_P(Emulate, ShowsAssemblyOfTheFirstEssentialKernel) {
  const Output list =
      run_cli("list --json --op gemm --preselected fp16_rcr_essential --target " + GetParam());
  ASSERT_EQ(list.status, 0) << list.text;
  const std::string kernel = nlohmann::json::parse(list.text)["kernels"][0];
  const Output output = run_cli("show --asm --json " + kernel);
  ASSERT_EQ(output.status, 0) << output.text;
  const auto json = nlohmann::json::parse(output.text);
  const auto& shown = json["kernels"][0];
  EXPECT_EQ(shown["target"], GetParam());
  EXPECT_EQ(shown["scratch_bytes"], 0);
  EXPECT_EQ(shown["uncovered"], 0);
  EXPECT_NE(shown["listing"].get<std::string>().find("    s_endpgm\n"), std::string::npos);
  EXPECT_EQ(json["error"], "");
  EXPECT_LE(json["emulator"]["lds_cycles"].get<double>(),
            1.05 * json["emulator"]["lds_ideal_cycles"].get<double>());
}

INSTANTIATE_TEST_SUITE_P(Cdna, Emulate, testing::Values("gfx90a", "gfx942", "gfx950"),
                         [](const auto& param) { return param.param; });

TEST(Emulation, RefusesOtherTargets) {
  for (const char* words : {"verify --emulate --target avx2 gemm m=1 n=1 k=1",
                            "show --asm gemm_fp32_rrr_packb_240x480x256_1x1x1_12x32x1_avx2"}) {
    const Output output = run_cli(words);
    EXPECT_EQ(output.status, 1);
    EXPECT_EQ(output.text,
              "tessera: the emulator runs kernels for AMD's GPUs, and avx2 is a target of the "
              "backend cpu\n");
  }
}

}  // namespace
