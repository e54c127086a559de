// The machine code of src/tessera/device/hip/gemm/ for each target: matrix instructions, LDS and
// registers, by the assembly that clang writes. './dev setup' installs clang; where CI is set,
// there must be one. Whether the kernels compute right is seen on the emulator.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "host/jit/fixtures.h"
#include "tessera/base/subprocess.h"
#include "tessera/device/hip/tile_sizes.h"

namespace tessera::jit {
namespace {

constexpr const char* kCompiler = "clang++-22";
constexpr std::array<std::string_view, 3> kTargets = {"gfx90a", "gfx942", "gfx950"};

struct Form {
  bool a_contiguous = true, b_contiguous = true, direct = false, packed = false, atomic = false;
  bool shares = false;  // stream-K
  int slices = 1;
  std::string_view steps = {};  // of the epilogue
  int num_steps = 0, num_d = 0;
};

struct Row {
  std::string_view type, sum, out;
  int size;  // bytes of an element
  std::array<int, 3> tile;
  std::array<int, 2> wave;
  int side, buffers, prefetch;
  std::array<int, 3> mfmas;  // in the code for kTargets; 0: the target has no such kernel
  Form form = {};
};

constexpr Row kRows[] = {
    {"fp16", "float", "fp16", 2, {256, 256, 32}, {2, 2}, 32, 2, 1, {64, 64, 32}},
    {"fp16", "float", "fp16", 2, {256, 128, 32}, {2, 2}, 32, 2, 1, {32, 32, 16}},
    {"bf16", "float", "float", 2, {256, 256, 32}, {2, 4}, 16, 2, 1, {64, 64, 32}},
    {"bf16",
     "float",
     "bf16",
     2,
     {128, 128, 64},
     {2, 2},
     16,
     1,
     1,
     {64, 64, 32},
     {.steps = "Step::bias, Step::gelu", .num_steps = 2, .num_d = 1}},
    {"fp16", "float", "fp16", 2, {16, 64, 128}, {1, 4}, 16, 1, 2, {16, 16, 8}},
    {"fp16",
     "float",
     "fp16",
     2,
     {128, 64, 64},
     {2, 2},
     32,
     2,
     1,
     {16, 16, 8},
     {.a_contiguous = false, .b_contiguous = false}},
    {"fp16", "float", "fp16", 2, {64, 64, 64}, {2, 2}, 32, 2, 1, {8, 8, 4}, {.slices = 4}},
    {"fp16",
     "float",
     "fp16",
     2,
     {64, 64, 64},
     {2, 2},
     32,
     2,
     1,
     {8, 8, 4},
     {.packed = true, .atomic = true, .slices = 2}},
    {"fp8", "float", "bf16", 1, {256, 256, 64}, {2, 4}, 32, 2, 1, {0, 32, 32}},
    {"bf8", "float", "fp16", 1, {32, 64, 256}, {1, 4}, 16, 1, 2, {0, 32, 32}},
    {"int8", "int", "int", 1, {256, 128, 64}, {2, 2}, 32, 2, 1, {64, 32, 16}},
    {"int8",
     "int",
     "int8",
     1,
     {64, 64, 128},
     {2, 2},
     16,
     1,
     2,
     {64, 32, 16},
     {.a_contiguous = false, .b_contiguous = false}},
    {"float", "float", "float", 4, {128, 128, 32}, {2, 2}, 32, 2, 1, {64, 64, 64}},
    {"tf32", "float", "float", 4, {128, 128, 32}, {2, 2}, 32, 2, 1, {0, 32, 0}},
    {"bf16", "float", "bf16", 2, {256, 256, 64}, {2, 4}, 16, 2, 0, {0, 0, 64}, {.direct = true}},
    {"fp8", "float", "bf16", 1, {128, 128, 128}, {2, 2}, 32, 3, 0, {0, 0, 32}, {.direct = true}},
    {"fp16",
     "float",
     "fp16",
     2,
     {256, 256, 64},
     {2, 4},
     16,
     2,
     0,
     {0, 0, 64},
     {.a_contiguous = false, .b_contiguous = false, .direct = true}},
    {"int8",
     "int",
     "int",
     1,
     {64, 128, 128},
     {2, 2},
     32,
     3,
     0,
     {0, 0, 8},
     {.a_contiguous = false, .b_contiguous = false, .direct = true}},
    {"bf16", "float", "bf16", 2, {256, 128, 32}, {2, 2}, 32, 2, 1, {32, 32, 16}, {.shares = true}},
};

std::string constant(std::string_view type, std::string_view name, auto value) {
  return fmt::format("  static constexpr {} {} = {};\n", type, name, value);
}

std::string config_of(const Row& row) {
  const Form& form = row.form;
  std::string text = fmt::format(
      "struct Config {{\n  using A = {0};\n  using B = {0};\n  using Acc = {1};\n"
      "  using Out = {2};\n  using D = {2};\n",
      row.type, row.sum, row.out);
  const std::pair<std::string_view, int> numbers[] = {
      {"kTileM", row.tile[0]},   {"kTileN", row.tile[1]},
      {"kTileK", row.tile[2]},   {"kWaveM", row.wave[0]},
      {"kWaveN", row.wave[1]},   {"kWarpTileM", row.side},
      {"kWarpTileN", row.side},  {"kWarpTileK", 16 / row.size * 64 / row.side},
      {"kBuffers", row.buffers}, {"kPrefetch", row.prefetch},
      {"kSlices", form.slices},  {"kXcds", 8},
      {"kNumD", form.num_d},     {"kNumSteps", form.num_steps}};
  for (const auto& [name, value] : numbers) text += constant("int", name, value);
  const std::pair<std::string_view, bool> flags[] = {{"kDirectToLds", form.direct},
                                                     {"kAtomicSplit", form.atomic},
                                                     {"kPersistent", false},
                                                     {"kAKContiguous", form.a_contiguous},
                                                     {"kBKContiguous", form.b_contiguous},
                                                     {"kPreshuffled", form.packed}};
  for (const auto& [name, value] : flags) text += constant("bool", name, value);
  if (form.shares) text += constant("bool", "kStreamK", true);
  if (form.num_steps > 0) text += constant("Step", "kSteps[]", fmt::format("{{{}}}", form.steps));
  return text + "};\n";
}

std::string source_of(const Row& row) {
  std::string text =
      "#include \"tessera/device/hip/gemm/mfma_gemm.h\"\n"
      "using namespace tessera::device;\n" +
      config_of(row) +
      "using Kernel = MfmaGemm<Config>;\n"
      "extern \"C\" {\n"
      "__attribute__((device, used)) extern const int gemm_mfmas = Kernel::kMfmas;\n"
      "__attribute__((global, amdgpu_flat_work_group_size(Kernel::kThreads, Kernel::kThreads),\n"
      "               amdgpu_waves_per_eu(Kernel::kMinWaves, Kernel::kMaxWaves)))\n"
      "void gemm(HipGemmArguments arguments) { Kernel::run(arguments); }\n";
  if (row.form.packed) {
    text +=
        "__attribute__((global, amdgpu_flat_work_group_size(256, 256)))\n"
        "void gemm_pack(HipGemmArguments arguments, void* packed) {\n"
        "  HipPackedB<Config>::pack(arguments, packed);\n}\n";
  }
  return text + "}\n";
}

// The numbers that follow a word in the assembly, one for each kernel.
std::vector<int> numbers_after(const std::string& text, const std::string& word) {
  std::vector<int> numbers;
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    numbers.push_back(std::atoi(text.c_str() + at + word.size()));
  }
  return numbers;
}

int count(const std::string& text, std::string_view word) {
  int found = 0;
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++found;
  return found;
}

int lds_of(const Row& row) {
  return device::mfma_lds_bytes({row.tile[0], row.tile[1], row.tile[2], row.wave[0], row.wave[1],
                                 row.side, row.size, row.size, row.buffers, row.prefetch});
}

void expect_code(const Row& row, std::size_t target, const TempFolder& folder) {
  const fs::path path = folder / "gemm.hip";
  write_file(path, source_of(row));
  const SubprocessResult built =
      run_subprocess({kCompiler, "-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output",
                      fmt::format("--offload-arch={}", kTargets[target]), "-nogpuinc", "-nogpulib",
                      "-O3", "-std=c++20", "-Wall", "-Wextra", "-I", TESSERA_SOURCE "/src", "-S",
                      "-o", "-", path.string()});
  ASSERT_TRUE(built.ok()) << built.output;
  const std::string& text = built.output;
  EXPECT_EQ(text.find("warning:"), text.npos) << text.substr(0, 2000);
  EXPECT_EQ(count(text, "\tv_mfma_"), row.mfmas[target]);
  const std::size_t label = text.find("gemm_mfmas:\n");
  ASSERT_NE(label, text.npos);
  EXPECT_EQ(numbers_after(text.substr(label), ".long").at(0), row.mfmas[target]);
  const std::size_t kernels = row.form.packed ? 2 : 1;
  for (const char* word :
       {".vgpr_spill_count:", ".sgpr_spill_count:", ".private_segment_fixed_size:"}) {
    EXPECT_EQ(numbers_after(text, word), std::vector<int>(kernels, 0)) << word;
  }
  EXPECT_EQ(numbers_after(text, ".group_segment_fixed_size:").at(0), lds_of(row));
}

class MfmaCode : public testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    if (!find_executable(kCompiler).empty()) return;
    ASSERT_EQ(std::getenv("CI"), nullptr) << kCompiler << " is not installed";
    GTEST_SKIP() << kCompiler << " is not installed";
  }
};

TEST_P(MfmaCode, HasTheMatrixInstructionsOfItsTileAndNoSpills) {
  const TempFolder folder;
  for (const Row& row : kRows) {
    if (row.mfmas[GetParam()] == 0) continue;
    SCOPED_TRACE(fmt::format("{} {} {}x{}x{} of {}x{} waves by {}", kTargets[GetParam()], row.type,
                             row.tile[0], row.tile[1], row.tile[2], row.wave[0], row.wave[1],
                             row.side));
    expect_code(row, GetParam(), folder);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, MfmaCode, testing::Values(0U, 1U, 2U),
                         [](const auto& test) { return std::string(kTargets[test.param]); });

}  // namespace
}  // namespace tessera::jit
