// The emulated HIP, through dlopen, and the program.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "bench.h"
#include "compile.h"
#include "tessera/runtime/hip_driver_internal.h"

namespace tessera::cdna_emulator {
namespace {

namespace hip = runtime::hip;

const char kScale[] =
    "extern \"C\" {\n"
    "__attribute__((device, used)) extern const int scale_abi = 7;\n"
    "__attribute__((global, amdgpu_flat_work_group_size(64, 64)))\n"
    "void scale(float* x, float factor, int n) {\n"
    "  const int t = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();\n"
    "  if (t < n) x[t] *= factor;\n}\n}\n";

class EmulatedHip : public ::testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_TOOLS();
    setenv("TESSERA_EMULATED_TARGET", "gfx942", 1);
    library = dlopen(EMULATED_HIP, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    load(f.init, "hipInit");
    load(f.device_count, "hipGetDeviceCount");
    load(f.properties6, "hipGetDevicePropertiesR0600");
    load(f.module_load, "hipModuleLoadData");
    load(f.module_unload, "hipModuleUnload");
    load(f.module_function, "hipModuleGetFunction");
    load(f.module_global, "hipModuleGetGlobal");
    load(f.launch, "hipModuleLaunchKernel");
    load(f.blocks_per_unit, "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor");
    load(f.allocate, "hipMalloc");
    load(f.free, "hipFree");
    load(f.copy_to_device, "hipMemcpyHtoDAsync");
    load(f.copy_to_host, "hipMemcpyDtoHAsync");
    load(f.pointer_facts, "hipPointerGetAttributes");
    load(f.error_name, "hipGetErrorName");
    load(f.emulator_finding, "tessera_emulator_finding");
    load(f.emulator_report, "tessera_emulator_report");
    ASSERT_EQ(f.init(0), hip::kSuccess);
  }
  template <class T>
  void load(T& function, const char* name) {
    function = reinterpret_cast<T>(dlsym(library, name));
    ASSERT_NE(function, nullptr) << name;
  }
  hip::Result launch_scale(hip::Function function, hip::Pointer x, int n) {
    struct {
      hip::Pointer x;
      float factor;
      int n;
    } arguments{x, 3.0F, n};
    std::size_t bytes = sizeof arguments;
    void* extra[] = {hip::kArgumentBuffer, &arguments, hip::kArgumentBytes, &bytes,
                     hip::kArgumentsEnd};
    return f.launch(function, 2, 1, 1, 64, 1, 1, 0, nullptr, nullptr, extra);
  }
  void* library = nullptr;
  hip::Functions f{};
};

TEST_F(EmulatedHip, RunsAKernel) {
  const std::vector<u8> object = compile_hip(kScale, "gfx942");
  hip::Module module{};
  hip::Function function{};
  ASSERT_EQ(f.module_load(&module, object.data()), hip::kSuccess) << f.emulator_finding();
  ASSERT_EQ(f.module_function(&function, module, "scale"), hip::kSuccess);
  EXPECT_EQ(f.module_function(&function, module, "other"), hip::kNotFound);
  ASSERT_EQ(f.module_function(&function, module, "scale"), hip::kSuccess);
  hip::Pointer address = 0, x = 0;
  std::size_t bytes = 0;
  ASSERT_EQ(f.module_global(&address, &bytes, module, "scale_abi"), hip::kSuccess);
  int abi = 0;
  ASSERT_EQ(f.copy_to_host(&abi, address, bytes, nullptr), hip::kSuccess);
  EXPECT_EQ(abi, 7);
  std::vector<float> values(100, 2.0F);
  ASSERT_EQ(f.allocate(&x, 400), hip::kSuccess);
  ASSERT_EQ(f.copy_to_device(x, values.data(), 400, nullptr), hip::kSuccess);
  EXPECT_EQ(f.copy_to_device(x, values.data(), 401, nullptr), hip::kInvalidValue);
  ASSERT_EQ(launch_scale(function, x, 100), hip::kSuccess) << f.emulator_finding();
  ASSERT_EQ(f.copy_to_host(values.data(), x, 400, nullptr), hip::kSuccess);
  for (const float v : values) EXPECT_EQ(v, 6.0F);
  hip::PointerFacts facts{};
  EXPECT_EQ(f.pointer_facts(&facts, reinterpret_cast<void*>(x)), hip::kSuccess);
  EXPECT_EQ(facts.type, 2);
  EXPECT_EQ(f.pointer_facts(&facts, &facts), hip::kSuccess);
  EXPECT_EQ(facts.type, hip::kUnregistered6);
  int blocks = 0;
  EXPECT_EQ(f.blocks_per_unit(&blocks, function, 64, 0), hip::kSuccess);
  EXPECT_EQ(blocks, 32);
  // One element more than there is.
  EXPECT_EQ(launch_scale(function, x, 101), hip::kIllegalAddress);
  EXPECT_NE(std::string(f.emulator_finding()).find("outside of all allocations"),
            std::string::npos);
  EXPECT_NE(std::string(f.emulator_report()).find("\"findings\":1"), std::string::npos)
      << f.emulator_report();
  EXPECT_EQ(f.free(x), hip::kSuccess);
  EXPECT_EQ(f.free(x), hip::kInvalidValue);
  EXPECT_EQ(f.module_unload(module), hip::kSuccess);
}

TEST_F(EmulatedHip, HasOneDeviceOfTheTarget) {
  int count = 0;
  ASSERT_EQ(f.device_count(&count), hip::kSuccess);
  EXPECT_EQ(count, 1);
  std::vector<char> properties(hip::kProperties6.bytes);
  ASSERT_EQ(f.properties6(properties.data(), 0), hip::kSuccess);
  EXPECT_STREQ(properties.data() + hip::kProperties6.architecture, "gfx942:sramecc+:xnack-");
  int units = 0;
  std::memcpy(&units, properties.data() + hip::kProperties6.units, sizeof units);
  EXPECT_EQ(units, 304);
  EXPECT_EQ(f.properties6(properties.data(), 1), hip::kInvalidDevice);
}

TEST_F(EmulatedHip, RefusesAnotherTargetsModule) {
  const std::vector<u8> object = compile_hip(kScale, "gfx90a");
  hip::Module module{};
  EXPECT_EQ(f.module_load(&module, object.data()), hip::kInvalidImage);
  EXPECT_STREQ(f.emulator_finding(), "The module is for gfx90a, but the device is a gfx942.");
  EXPECT_STREQ(f.error_name(hip::kInvalidImage), "hipErrorInvalidImage");
}

std::string output_of(const std::string& command, int expected_status = 0) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::string text;
  char buffer[4096];
  for (std::size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  EXPECT_EQ(WEXITSTATUS(pclose(pipe)), expected_status) << command << "\n" << text;
  return text;
}

TEST(Program, ShowsAndRunsAKernel) {
  SKIP_WITHOUT_TOOLS();
  const auto object = scratch_folder() / "scale.co", launch = scratch_folder() / "launch.json",
             result = scratch_folder() / "x.bin";
  const std::vector<u8> file = compile_hip(kScale, "gfx90a");
  std::ofstream(object, std::ios::binary)
      .write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
  const std::string program = EMULATOR_PROGRAM " ";
  const std::string facts = output_of(program + object.string() + " --json");
  EXPECT_NE(facts.find("\"kernel\":\"scale\",\"target\":\"gfx90a\""), std::string::npos) << facts;
  EXPECT_NE(output_of(program + object.string() + " --listing").find("global_load_dword"),
            std::string::npos);
  std::ofstream(launch)
      << "{\"grid\": [1, 1, 1], \"block\": [64, 1, 1], \"buffers\": {\"x\": "
         "{\"bytes\": 256, \"output\": \"" +
             result.string() +
             "\"}}, "
             "\"arguments\": [{\"buffer\": \"x\"}, {\"f32\": 2.5}, {\"i32\": 65}]}";
  const std::string bad = output_of(program + object.string() + " --launch " + launch.string());
  EXPECT_NE(bad.find("\"launches\":1"), std::string::npos) << bad;
  EXPECT_EQ(read_bytes(result).size(), 256U);
  EXPECT_EQ(output_of(program + "/no/such/file", 1),
            "tessera-emulator: '/no/such/file' cannot be read.\n");
  EXPECT_EQ(output_of(program + object.string() + " --kernel other", 1),
            "tessera-emulator: '" + object.string() + "' has no kernel 'other'.\n");
}

TEST(Program, RefusesDescriptionsThatAreNone) {
  SKIP_WITHOUT_TOOLS();
  const auto object = scratch_folder() / "other.co", launch = scratch_folder() / "bad.json";
  const std::vector<u8> file = compile_hip(kScale, "gfx90a");
  std::ofstream(object, std::ios::binary)
      .write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
  const std::string program = EMULATOR_PROGRAM " ", run = program + object.string() + " --launch ";
  const std::string levels(200000, '['), ends(200000, ']');
  const std::string deep = R"({"arguments": [)" + levels + ends + "]}";
  const std::pair<std::string, std::string> cases[] = {
      {R"({"arguments": [{}]})", "An argument is one of "},
      {R"({"arguments": [5, {}]})", "An argument is one of "},
      {R"({"arguments": [{"i32": 1099511627776}]})", "\"i32\" must be a whole number from "},
      {R"({"buffers": {"x": {"bytes": -1}}})", "\"bytes\" of the buffer 'x' must be "},
      {R"({"buffers": {"x": {"bytes": 4611686018427387904}}})", "from 0 to 4294967296, got 461"},
      {R"({"buffers": {"x": {"file": "/dev/zero"}}})", "'/dev/zero' is not a regular file."},
      {R"({"buffers": 5})", "\"buffers\" of a launch must be of the form {}, got 5."},
      {R"({"grid": [-1, 1, 1]})", "A side of \"grid\" must be a whole number from 1 to 2147483647"},
      {R"({"grid": [1, 1]})", "\"grid\" must hold 3 numbers, got [1,1]."},
      {R"({"grid": [2147483647, 2147483647, 4]})", "there may be 1 to 2^32 of each."},
      {R"({"block": "wide"})", "\"block\" of a launch must be of the form [1,1,1], got \"wide\"."},
      {R"({)", "must hold a JSON object such as"},
      {deep, "may lie at most 64 deep in one another."},
  };
  for (const auto& [text, sentence] : cases) {
    std::ofstream(launch) << text;
    const std::string words = output_of(run + launch.string(), 1);
    EXPECT_NE(words.find(sentence), std::string::npos) << text << "\n" << words;
    EXPECT_EQ(words.find("json.exception"), std::string::npos) << words;
  }
  EXPECT_EQ(output_of(program + "/dev/zero", 1),
            "tessera-emulator: '/dev/zero' is not a regular file.\n");
  EXPECT_NE(output_of(program + std::string(300, 'x'), 1).find("cannot be read."),
            std::string::npos);
}

TEST(Program, EndsADisassemblyThatDoesNot) {
  const auto script = scratch_folder() / "objdump";
  std::ofstream(script) << "#!/bin/sh\nexec sleep 60\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  setenv("TESSERA_LLVM_OBJDUMP", script.c_str(), 1);
  std::string words;
  try {
    disassemble({}, 0.1);
  } catch (const Finding& finding) {
    words = finding.text;
  }
  unsetenv("TESSERA_LLVM_OBJDUMP");
  EXPECT_NE(words.find("the code object may be damaged."), std::string::npos) << words;
}

// Objects with other bytes in their headers and notes are read or refused; none is written outside.
TEST(Program, ReadsDamagedObjects) {
  SKIP_WITHOUT_TOOLS();
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const std::vector<u8> file = compile_hip(kScale, "gfx942");
  constexpr u64 kLarge[] = {~u64{0}, u64{1} << 63, u64{0} - 4, 0xffffffff, 0xfffffffc, 0x7fffffff};
  int refused = 0;
  for (int n = 0; n < 3000; ++n) {
    std::vector<u8> bytes = file;
    for (u64 k = 0; k < 1 + random() % 3; ++k) {
      const u64 value = random() % 2 == 0 ? random() : kLarge[random() % std::size(kLarge)];
      const u64 size = u64{1} << random() % 4;
      std::memcpy(bytes.data() + random() % (bytes.size() - size), &value, size);
    }
    try {
      const CodeObject object = read_code_object(bytes);
      Memory memory;
      load_image(object, memory);
    } catch (const Finding& finding) {
      EXPECT_NE(finding.text, "");
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace tessera::cdna_emulator
