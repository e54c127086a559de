// Finding NVRTC, calling it through a worker, and what is kept of its words. The compiler here is a
// shell script; the real one is tested under the label nvrtc.
#include "tessera/jit/nvrtc.h"

#include <dlfcn.h>

#include "host/jit/fixtures.h"
#include "host/spec/expect_error.h"
#include "tessera/base/error.h"
#include "tessera/base/python_packages.h"
#include "tessera/jit/nvrtc_internal.h"
#include "tessera/jit/toolchain.h"

namespace tessera::jit {
namespace {

// What ptxas writes for a cubin of two kernels.
constexpr const char* kLog =
    "ptxas info    : 88 bytes gmem\n"
    "ptxas info    : Compiling entry function 'gemm_a_pack' for 'sm_90a'\n"
    "ptxas info    : Function properties for gemm_a_pack\n"
    "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 40 registers, used 0 barriers\n"
    "ptxas info    : Compiling entry function 'gemm_a' for 'sm_90a'\n"
    "ptxas info    : Function properties for gemm_a\n"
    "ptxas         .     248 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads\n"
    "ptxas info    : Used 168 registers, used 16 barriers, 248 bytes cumulative stack size, 1024 "
    "bytes smem\n";

Target hopper() {
  Target target;
  target.name = "sm90a";
  target.backend = "cuda";
  target.compile_flags = {"--gpu-architecture=sm_90a"};
  return target;
}

class NvrtcTest : public testing::Test {
 protected:
  NvrtcTest() {
    write_file(library(), "the compiler");
    write_file(temp_ / "libnvrtc-builtins.so.13.0", "its other half");
    write_worker("");
  }

  fs::path library() const { return temp_ / "libnvrtc.so.13"; }
  fs::path worker() const { return temp_ / "worker"; }
  std::ptrdiff_t calls() const {
    const std::string text = try_read_file(temp_ / "calls").value_or("");
    return std::count(text.begin(), text.end(), '\n');
  }

  // Answers like tessera-worker; `body` runs before a cubin is written.
  void write_worker(const std::string& body, const std::string& version = "NVRTC 13.0") const {
    write_file(worker(), fmt::format(R"(#!/bin/sh
[ "$1" = nvrtc ] || exit 9
[ "$3" = --version ] && echo "{}" && exit 0
echo "$@" >> {}
{}
while [ $# -gt 0 ]; do [ "$1" = -o ] && output=$2; shift; done
cat {}
cat {} > "$output"; echo a cubin >> "$output"
)",
                                     version, (temp_ / "calls").string(), body,
                                     (temp_ / "log").string(), (temp_ / "headers").string()));
    write_file(temp_ / "log", kLog);
    write_file(temp_ / "headers", cubin_of(""));
    fs::permissions(worker(), fs::perms::owner_all);
  }

  NvrtcOptions found() const { return {library().string(), worker().string()}; }
  BuildOptions options() const {
    BuildOptions options;
    options.cache.folder = temp_ / "cache";
    options.nvrtc = library().string();
    options.worker = worker().string();
    options.use_shipped_packs = false;
    return options;
  }
  static Source source() {
    return {.name = "gemm_a", .extension = ".cu", .text = "int x;\n", .headers = {}};
  }

  TempFolder temp_;
};

TEST_F(NvrtcTest, IsFoundByName) {
  const Toolchain toolchain = find_nvrtc(found());
  EXPECT_EQ(toolchain.path, library());
  EXPECT_EQ(toolchain.version, "NVRTC 13.0");
  EXPECT_EQ(toolchain.runner, worker());
  const ScopedVariable variable("TESSERA_NVRTC", library().string());
  EXPECT_EQ(find_nvrtc({.library = {}, .worker = worker().string()}).path, library());
}

TEST_F(NvrtcTest, IsFoundInTheLibraryPathAndTheNewestFirst) {
  const ScopedVariable none("TESSERA_NVRTC", std::nullopt);
  fs::create_directories(temp_ / "older");
  write_file(temp_ / "older" / "libnvrtc.so.12", "an older one");
  const ScopedVariable path("LD_LIBRARY_PATH",
                            (temp_ / "older").string() + ":" + temp_.path().string());
  EXPECT_EQ(find_nvrtc({.library = {}, .worker = worker().string()}).path, library());
}

TEST_F(NvrtcTest, LooksIntoToolkitsAndPythonEnvironments) {
  const ScopedVariable cuda("CUDA_HOME", "/opt/my-cuda");
  const ScopedVariable environment("VIRTUAL_ENV", temp_.path().string());
  const fs::path packages = temp_ / "lib" / "python3.11" / "site-packages";
  fs::create_directories(packages);
  const std::vector<fs::path> places = nvrtc_places();
  for (const fs::path& wanted :
       {fs::path("/opt/my-cuda/lib64"), fs::path("/usr/local/cuda/lib64"),
        packages / "nvidia/cu13/lib", packages / "nvidia/cuda_nvrtc/lib"}) {
    EXPECT_NE(std::find(places.begin(), places.end(), wanted), places.end()) << wanted;
  }
}

// A Python whose environment is not activated, and what some other library has loaded.
TEST_F(NvrtcTest, LooksBesidePythonAndWhereItIsLoaded) {
  const fs::path packages = temp_ / "apart" / "lib" / "python3.12" / "site-packages";
  fs::create_directories(packages);
  fs::create_directories(temp_ / "loaded");
  const auto finds = [](const fs::path& wanted) {
    const std::vector<fs::path> places = nvrtc_places();
    return std::find(places.begin(), places.end(), wanted) != places.end();
  };
  EXPECT_FALSE(finds(packages / "nvidia/cu13/lib"));
  add_python_prefix(temp_ / "apart");
  add_python_prefix(temp_ / "apart");
  EXPECT_TRUE(finds(packages / "nvidia/cu13/lib"));
  EXPECT_EQ(std::ranges::count(python_prefixes(), temp_ / "apart"), 1);

  const std::vector<fs::path> any = loaded_libraries("libm.so.");
  ASSERT_FALSE(any.empty());
  fs::copy_file(any.front(), temp_ / "loaded" / "libnvrtc.so.99");
  EXPECT_FALSE(finds(temp_ / "loaded"));
  void* const library = dlopen((temp_ / "loaded" / "libnvrtc.so.99").c_str(), RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  EXPECT_TRUE(finds(temp_ / "loaded"));
  dlclose(library);
}

TEST_F(NvrtcTest, SaysWhatIsMissing) {
  const std::string how =
      "get it with 'pip install nvidia-cuda-nvrtc' or a CUDA toolkit, or name the file with "
      "TESSERA_NVRTC; kernels in a pack need none";
  expect_error(ErrorCode::compile_failed, "NVRTC '/none.so' is not a file; " + how,
               [&] { find_nvrtc({.library = "/none.so", .worker = worker().string()}); });
  const ScopedVariable variable("TESSERA_NVRTC", "/none.so");
  expect_error(ErrorCode::compile_failed,
               "NVRTC '/none.so', named by TESSERA_NVRTC, is not a file; " + how,
               [&] { find_nvrtc({.library = {}, .worker = worker().string()}); });
  expect_error(ErrorCode::compile_failed,
               "NVRTC is run by the worker program, which is not an executable file at '/none': "
               "install it there, or name it in BuildOptions::worker",
               [&] { find_nvrtc({.library = library().string(), .worker = "/none"}); });
  write_file(worker(), "#!/bin/sh\necho no such library; exit 1\n");
  expect_error(ErrorCode::compile_failed,
               "NVRTC " + library().string() +
                   " cannot be used (exit code 1, signal 0): no such library; " + how,
               [&] { find_nvrtc(found()); });
}

TEST_F(NvrtcTest, IsCalledWithTheTargetsFlags) {
  const Toolchain toolchain{.path = "/lib/n.so",
                            .version = "NVRTC 13.0",
                            .build_id = "",
                            .arguments = {},
                            .runner = "/w"};
  EXPECT_EQ(
      compile_command(toolchain, hopper(), source()),
      (std::vector<std::string>{"/w", "nvrtc", "/lib/n.so", "--gpu-architecture=sm_90a",
                                "--std=c++17", "-default-device", "--ptxas-options=-v",
                                "--no-cache", "--minimal", "kernel.cu", "-o", "kernel.cubin"}));
  Toolchain older = toolchain;
  older.version = "NVRTC 12.4";  // has no such options
  const std::vector<std::string> words = compile_command(older, hopper(), source());
  EXPECT_EQ(std::count(words.begin(), words.end(), "--no-cache"), 0);
  EXPECT_EQ(std::count(words.begin(), words.end(), "--minimal"), 0);
}

TEST_F(NvrtcTest, TheKeyCoversTheCompilerButNotWhoRunsIt) {
  const Toolchain toolchain = find_nvrtc(found());
  Toolchain moved = toolchain, updated = toolchain, rebuilt = toolchain;
  moved.runner = "/elsewhere/tessera-worker";
  updated.version = "NVRTC 13.1";
  rebuilt.build_id = "other";
  const std::string key = cache_key(source(), hopper(), toolchain);
  EXPECT_EQ(cache_key(source(), hopper(), moved), key);
  EXPECT_NE(cache_key(source(), hopper(), updated), key);
  EXPECT_NE(cache_key(source(), hopper(), rebuilt), key);
  Target other = hopper();
  other.compile_flags = {"--gpu-architecture=sm_100a"};
  EXPECT_NE(cache_key(source(), other, toolchain), key);
}

TEST_F(NvrtcTest, AChangedHalfIsAnotherCompiler) {
  const std::string before = find_nvrtc(found()).build_id;
  write_file(temp_ / "libnvrtc-builtins.so.13.0", "its other half, updated");
  EXPECT_NE(find_nvrtc(found()).build_id, before);
}

TEST_F(NvrtcTest, BuildsACubinAndKeepsItsFacts) {
  Builder builder(options());
  const Artifact artifact = builder.build(source(), hopper());
  EXPECT_EQ(artifact.binary.filename(), "kernel.cubin");
  EXPECT_EQ(text_of(artifact.binary), "a cubin\n");
  EXPECT_EQ(builder.build(source(), hopper()).binary, artifact.binary);
  EXPECT_EQ(calls(), 1);
  const std::vector<EntryInfo> entries = builder.cache().list();
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].facts, (std::map<std::string, std::int64_t>{{"barriers", 16},
                                                                   {"registers", 168},
                                                                   {"shared_bytes", 1024},
                                                                   {"spill_load_bytes", 24},
                                                                   {"spill_store_bytes", 16},
                                                                   {"stack_bytes", 248}}));
  EXPECT_EQ(builder.cache().verify().good, 1U);
}

TEST_F(NvrtcTest, ADamagedCubinOrFactIsBuiltAgain) {
  Builder builder(options());
  const fs::path binary = builder.build(source(), hopper()).binary;
  write_file(binary, "a cubix\n");
  EXPECT_EQ(text_of(builder.build(source(), hopper()).binary), "a cubin\n");
  const fs::path meta = binary.parent_path() / "meta.json";
  std::string text = read_file(meta);
  text.replace(text.find("168"), 3, "169");
  write_file(meta, text);
  EXPECT_EQ(text_of(builder.build(source(), hopper()).binary), "a cubin\n");
  EXPECT_EQ(calls(), 3);
}

TEST_F(NvrtcTest, ReportsTheCompilersWords) {
  write_worker("echo 'kernel.cu(3): error: expected a ;'; echo 'error: NVRTC_ERROR'; exit 1");
  const std::string failed =
      (temp_ / "cache" / "failed" /
       ("gemm_a-" + cache_key(source(), hopper(), find_nvrtc(found()))) / "log.txt")
          .string();
  expect_error(ErrorCode::compile_failed,
               "gemm_a: " + library().string() +
                   " failed with exit code 1: kernel.cu(3): error: expected a ;; error: "
                   "NVRTC_ERROR; all it said is in " +
                   failed,
               [&] { Builder(options()).build(source(), hopper()); });
}

TEST_F(NvrtcTest, StopsACompilerThatHangs) {
  write_worker("sleep 60");
  BuildOptions impatient = options();
  impatient.timeout_seconds = 0.3;
  try {
    Builder(impatient).build(source(), hopper());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_NE(std::string(error.what()).find("ran longer than 0.3 s and was stopped"),
              std::string::npos);
  }
}

TEST(CubinFacts, AreEmptyForAnotherKernel) {
  EXPECT_TRUE(cubin_facts(kLog, "gemm_b").empty());
  EXPECT_TRUE(cubin_facts("", "gemm_a").empty());
  EXPECT_EQ(cubin_facts(kLog, "gemm_a_pack").at("registers"), 40);
}

TEST(RunNvrtc, RefusesNonsenseWithASentence) {
  struct Case {
    std::vector<std::string> words;
    std::string output;
  };
  const Case cases[] = {
      {{}, "error: nvrtc: name the library\n"},
      {{"/none.so", "--version"},
       "error: /none.so: cannot open shared object file: No such file or directory\n"}};
  for (const Case& c : cases) {
    std::string output;
    EXPECT_EQ(run_nvrtc(c.words, output), 1);
    EXPECT_EQ(output, c.output);
  }
}

// What a compiler that is none, or a broken one, may do. Its errors were the C++ library's words.
TEST(RunNvrtc, SaysWhatABrokenCompilerDid) {
  const TempFolder folder;
  const std::string source = (folder / "kernel.cu").string();
  const std::string output_file = (folder / "kernel.cubin").string();
  write_file(source, "FAKE_ERROR");
  const auto said = [&](const char* fault) {
    const ScopedVariable variable("FAKE_NVRTC_FAULT", fault);
    const std::vector<std::string> words = {FAKE_NVRTC, source, "-o", output_file};
    std::string output;
    EXPECT_EQ(run_nvrtc(words, output), 1);
    EXPECT_FALSE(fs::exists(output_file));
    return output;
  };
  const std::string words = "error: FAKE_ERROR\nerror: nvrtcCompileProgram failed with ";
  EXPECT_EQ(said(""), words + "NVRTC_ERROR_COMPILATION\n");
  EXPECT_EQ(said("mute"), words + "error 6\n");
  EXPECT_EQ(said("log"),
            "error: nvrtcGetProgramLogSize says 18446744073709551614 bytes, no more than 268435456 "
            "are taken; is this NVRTC?\n");
  write_file(source, "int x;\n");
  EXPECT_EQ(said("cubin"),
            "a fake compiled it\nerror: nvrtcGetCUBINSize says 18446744073709551614 bytes, no more "
            "than 268435456 are taken; is this NVRTC?\n");
}

}  // namespace
}  // namespace tessera::jit
