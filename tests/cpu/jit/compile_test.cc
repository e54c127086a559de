// Kernels built by the compilers that this machine has.
#include <dlfcn.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include "host/jit/fixtures.h"
#include "tessera/base/error.h"
#include "tessera/base/subprocess.h"
#include "tessera/families/headers.h"
#include "tessera/jit/build.h"
#include "tessera/jit/pack.h"
#include "tessera/jit/toolchain.h"

namespace tessera::jit {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kHeader = R"(#pragma once
typedef float f32v __attribute__((vector_size(16)));
struct Table { int version; float (*sum)(const float* x, long n); float (*root)(float x); };
)";

// Uses the header, vectors, a function of the C library that the compiler puts in by itself, and
// one of the mathematical library.
constexpr std::string_view kText = R"(#include "tessera/device/test.h"
extern "C" float expm1f(float);
static float sum(const float* x, long n) {
  float copy[1024];
  __builtin_memset(copy, 0, sizeof copy);
  __builtin_memcpy(copy, x, n * sizeof(float));
  f32v total = {};
  for (long i = 0; i < 1024; i += 4) {
    f32v v;
    __builtin_memcpy(&v, copy + i, sizeof v);
    total += v;
  }
  return total[0] + total[1] + total[2] + total[3];
}
static float root(float x) { return expm1f(x); }
extern "C" {
__attribute__((visibility("default"))) extern const Table gemm_test;
const Table gemm_test = {1, sum, root};
}
)";

struct Table {
  int version;
  float (*sum)(const float* x, long n);
  float (*root)(float x);
};

class Compile : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (find_executable(GetParam()).empty()) GTEST_SKIP() << GetParam() << " is not installed";
  }
  BuildOptions options(const std::string& folder = "cache") const {
    BuildOptions options;
    options.cache.folder = temp_ / folder;
    options.compiler = GetParam();
    options.use_shipped_packs = false;
    return options;
  }
  Source source(const std::string& more = "") const {
    return {.name = "gemm_test",
            .extension = ".cc",
            .text = std::string(kText) + more,
            .headers = std::make_shared<const Headers>(headers_)};
  }
  ScopedVariable no_jit_{"TESSERA_NO_JIT", std::nullopt};
  ScopedVariable no_pack_{"TESSERA_PACK", std::nullopt};
  TempFolder temp_;
  std::vector<EmbeddedFile> headers_ = {{"tessera/device/test.h", kHeader}};
};

INSTANTIATE_TEST_SUITE_P(With, Compile, testing::Values("g++", "clang++"), [](const auto& chosen) {
  return chosen.param[0] == 'g' ? "Gcc" : "Clang";
});

void expect_to_run(const Artifact& artifact) {
  void* library = ::dlopen(artifact.binary.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << ::dlerror();
  const auto* table = static_cast<const Table*>(::dlsym(library, "gemm_test"));
  ASSERT_NE(table, nullptr) << ::dlerror();
  const std::vector<float> x = {1, 2, 3, 4, 5};
  EXPECT_EQ(table->sum(x.data(), 5), 15.0F);
  EXPECT_EQ(table->root(0.0F), 0.0F);
  EXPECT_NEAR(table->root(1.0F), 1.7182818F, 1e-6F);
  EXPECT_EQ(::dlsym(library, "root"), nullptr) << "only the table is exported";
  ::dlclose(library);
}

TEST_P(Compile, MakesALoadableKernel) {
  Builder builder(options());
  expect_to_run(builder.build(source(), make_target()));
  EXPECT_EQ(builder.cache().verify().good, 1U);
  EXPECT_EQ(names_in(temp_ / "cache" / "tmp").size(), 0U);
}

TEST_P(Compile, MakesALoadableKernelInMemory) {
  BuildOptions homeless = options();
  homeless.cache.folder = "/proc/tessera";
  Builder builder(homeless);
  expect_to_run(builder.build(source(), make_target()));
}

TEST_P(Compile, MakesAPackableKernel) {
  const Artifact built = Builder(options()).build(source(), make_target());
  const PackInput input{.entry = {.name = "gemm_test",
                                  .source_key = source_key(source(), make_target()),
                                  .target = "generic"},
                        .binary = built.binary};
  write_pack(temp_ / "test.pack", std::span(&input, 1));
  BuildOptions packed = options("other");
  packed.packs = {(temp_ / "test.pack").string()};
  packed.compiler = "/nowhere/c++";
  expect_to_run(Builder(packed).build(source(), make_target()));
}

TEST_P(Compile, GivesTheSameBytesAnywhere) {
  const fs::path a = Builder(options("a")).build(source(), make_target()).binary.parent_path();
  const fs::path b =
      Builder(options("another/folder")).build(source(), make_target()).binary.parent_path();
  ASSERT_NE(a, b);
  for (const char* file : {"kernel.so", "kernel.cc", "command.txt", "log.txt", "meta.json"}) {
    EXPECT_EQ(read_file(a / file), read_file(b / file)) << file;
  }
}

TEST_P(Compile, QuotesTheCompiler) {
  Builder builder(options());
  try {
    builder.build(source("int broken = missing;\n"), make_target());
    FAIL();
  } catch (const Error& error) {
    const std::string line = std::to_string(std::count(kText.begin(), kText.end(), '\n') + 1);
    const std::string what = error.what();
    EXPECT_EQ(error.code(), ErrorCode::compile_failed);
    EXPECT_TRUE(what.starts_with("gemm_test: " + find_executable(GetParam()).string() +
                                 " failed with exit code 1: kernel.cc:" + line + ":14: error: "))
        << what;
    EXPECT_NE(what.find("missing"), std::string::npos);
    EXPECT_NE(error.context().find("int broken = missing;"), std::string::npos);
  }
}

TEST_P(Compile, SurvivesKillsAtAnyMoment) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 10; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      Builder(options()).build(source(), make_target());
      ::_exit(0);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 150));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  Builder builder(options());
  expect_to_run(builder.build(source(), make_target()));
  // A second insertion sweeps up if the first had nothing to build.
  Builder(options()).build(source("int more;\n"), make_target());
  EXPECT_EQ(names_in(temp_ / "cache" / "tmp").size(), 0U);
  EXPECT_EQ(names_in(temp_ / "cache" / "locks").size(), 0U);
  EXPECT_EQ(builder.cache().verify().damaged, std::vector<std::string>());
}

// The least of several times: what the work takes when nothing else runs.
template <class Work>
double least_seconds(int repeats, const Work& work) {
  double least = 1e9;
  for (int i = 0; i < repeats; ++i) {
    const Clock::time_point start = Clock::now();
    work(i);
    least = std::min(least, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return least;
}

TEST_P(Compile, FindsWhatIsThereInAMillisecond) {
  Builder builder(options());
  builder.build(source(), make_target());
  const double found = least_seconds(20, [&](int) { builder.build(source(), make_target()); });
  RecordProperty("find_ms", std::to_string(1e3 * found));
  EXPECT_LE(found, 0.001);
}

}  // namespace
}  // namespace tessera::jit
