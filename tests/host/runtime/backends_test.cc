#include <gtest/gtest.h>
#include <omp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "openmp_limit.h"
#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/log.h"
#include "tessera/base/processors.h"
#include "tessera/runtime/cpu_features_internal.h"
#include "tessera/runtime/runtime.h"

namespace tessera::runtime {
namespace {

Target target(const std::string& name, const std::string& backend,
              std::vector<std::string> features = {}) {
  Target t;
  t.name = name;
  t.backend = backend;
  t.features = std::move(features);
  return t;
}

TEST(Backends, CpuIsThere) { EXPECT_EQ(backend_for(target("generic", "cpu")).name(), "cpu"); }

TEST(Backends, OthersAreRefusedWithASentence) {
  struct Case {
    std::string backend;
    std::string message;
  };
  const std::vector<Case> cases = {
      {"opencl", "target 't' names the unknown backend 'opencl'; the backends are cpu, cuda, hip"},
      {"cuba",
       "target 't' names the unknown backend 'cuba', did you mean 'cuda'?; the backends are cpu, "
       "cuda, hip"},
  };
  for (const Case& c : cases) {
    try {
      backend_for(target("t", c.backend));
      FAIL() << c.backend;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_EQ(std::string(error.what()), c.message);
    }
  }
}

TEST(CpuBackend, NamesMissingFeatures) {
  const Backend& cpu = backend_for(target("generic", "cpu"));
  EXPECT_EQ(cpu.unavailable_reason(target("generic", "cpu")), "");
  EXPECT_EQ(cpu.unavailable_reason(target("odd", "cpu", {"avx1024", "warp9"})),
            "target 'odd' needs the processor features avx1024, warp9, this machine lacks avx1024, "
            "warp9");
  EXPECT_EQ(cpu.unavailable_reason(target("sm90a", "cuda")),
            "target 'sm90a' needs the backend 'cuda', this is 'cpu'");
}

// The compiler's run-time support reads the same bits by other means.
TEST(CpuBackend, FeaturesAgreeWithTheCompiler) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  EXPECT_EQ(cpu_has("avx"), __builtin_cpu_supports("avx") != 0);
  EXPECT_EQ(cpu_has("avx2"), __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(cpu_has("fma"), __builtin_cpu_supports("fma") != 0);
  EXPECT_EQ(cpu_has("sse42"), __builtin_cpu_supports("sse4.2") != 0);
  EXPECT_EQ(cpu_has("bmi1"), __builtin_cpu_supports("bmi") != 0);
  EXPECT_EQ(cpu_has("bmi2"), __builtin_cpu_supports("bmi2") != 0);
  EXPECT_EQ(cpu_has("popcnt"), __builtin_cpu_supports("popcnt") != 0);
  EXPECT_EQ(cpu_has("avx512f"), __builtin_cpu_supports("avx512f") != 0);
  EXPECT_EQ(cpu_has("avx512bw"), __builtin_cpu_supports("avx512bw") != 0);
  EXPECT_EQ(cpu_has("avx512dq"), __builtin_cpu_supports("avx512dq") != 0);
  EXPECT_EQ(cpu_has("avx512vl"), __builtin_cpu_supports("avx512vl") != 0);
  EXPECT_EQ(cpu_has("avx512vnni"), __builtin_cpu_supports("avx512vnni") != 0);
  EXPECT_EQ(cpu_has("avx512bf16"), __builtin_cpu_supports("avx512bf16") != 0);
#endif
  EXPECT_FALSE(cpu_has("no such feature"));
}

// Linux kills a process that uses tiles without having asked for them.
TEST(CpuBackend, TilesAreThereOnlyWithPermission) {
#if defined(__x86_64__)
  const std::string list = read_file("/proc/cpuinfo");
  const bool has_tiles = list.find(" amx_tile ") != std::string::npos;
  EXPECT_EQ(cpu_has("amxtile"), has_tiles && may_use_tiles());
  if (!cpu_has("amxtile")) return;
  constexpr int kPermitted = 0x1022;  // ARCH_GET_XCOMP_PERM
  std::uint64_t state = 0;
  ASSERT_EQ(::syscall(SYS_arch_prctl, kPermitted, &state), 0);
  EXPECT_NE(state & (std::uint64_t{1} << 18), 0U);
#else
  EXPECT_FALSE(may_use_tiles());
#endif
}

TEST(CpuBackend, RefusesAMachineWithoutTheFeature) {
  const Target odd = target("odd", "cpu", {"avx1024"});
  try {
    backend_for(odd).load({.name = "k", .key = "", .binary = "/none", .keep = nullptr}, odd);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::load_failed);
    EXPECT_STREQ(error.what(),
                 "cannot load kernel 'k': target 'odd' needs the processor features avx1024, this "
                 "machine lacks avx1024");
  }
}

TEST(CpuBackend, RefusesFilesThatAreNoLibrary) {
  const Target generic = target("generic", "cpu");
  const fs::path folder = make_unique_folder(fs::temp_directory_path(), "tessera-runtime-");
  const std::string text = folder / "not_a_library.so", none = folder / "no_such_library.so";
  write_file(text, "this is no ELF file, although it is longer than a header of one\n");
  const std::string prefix = "cannot load kernel 'k': ";
  for (const auto& [path, words] :
       {std::pair{none, none + ": cannot open shared object file: No such file or directory"},
        std::pair{text, text + ": invalid ELF header"}}) {
    try {
      backend_for(generic).load({.name = "k", .key = "", .binary = path, .keep = nullptr}, generic);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::load_failed);
      EXPECT_EQ(std::string(error.what()), prefix + words);
    }
  }
  fs::remove_all(folder);
}

TEST(ThreadLimit, FollowsOptionsThenOpenMp) {
  {
    const OpenMpLimit five(5);
    EXPECT_EQ(thread_limit({}), 5);
    EXPECT_EQ(thread_limit({.threads = 4}), 4);
    EXPECT_EQ(thread_limit({.threads = 1}), 1);
  }
  const OpenMpLimit three(3);
  EXPECT_EQ(thread_limit({}), 3);
}

// What a larger number would start are threads without a processor, and from some thousands on the
// end of the process.
TEST(ThreadLimit, IsAtMostTheProcessorsOrOpenMpsLimit) {
  const OpenMpLimit one(1);
  const int processors = std::min(usable_processors(), kMaxThreads);
  for (const int wanted : {5000, 100'000, std::numeric_limits<int>::max()}) {
    EXPECT_EQ(thread_limit({.threads = wanted}), processors);
  }
  const OpenMpLimit more(processors + 3);
  EXPECT_EQ(thread_limit({.threads = 100'000}), std::min(processors + 3, kMaxThreads));
  EXPECT_EQ(thread_limit({}), std::min(processors + 3, kMaxThreads));
}

TEST(ThreadLimit, IsNeverMoreThanThoseOfOneProcess) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(100'000);
  EXPECT_EQ(thread_limit({}), 1024);
  EXPECT_EQ(thread_limit({.threads = 5000}), 1024);
  EXPECT_EQ(thread_limit({.threads = 600}), 600);
  omp_set_num_threads(before);
}

TEST(ThreadLimit, NotesALargerNumberOnce) {
  static int fresh = 77'777;  // no earlier run in this process has noted it
  const int wanted = fresh++;
  std::vector<std::string> notes;
  set_log_sink([&](LogLevel, std::string_view note) { notes.emplace_back(note); });
  for (int i = 0; i < 3; ++i) thread_limit({.threads = wanted});
  set_log_sink({});
  const int most = std::min(kMaxThreads, std::max(usable_processors(), omp_get_max_threads()));
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0],
            std::to_string(wanted) + " threads were asked for, " + std::to_string(most) +
                " are used: the larger of this process's processors and OpenMP's limit, and never "
                "more than 1024");
}

TEST(ThreadLimit, IsOneInsideAParallelRegion) {
  int largest = 0;
#pragma omp parallel num_threads(2) reduction(max : largest)
  largest = std::max(thread_limit({}), thread_limit({.threads = 4}));
  EXPECT_EQ(largest, 1);
}

TEST(ThreadLimit, NestedTeamsNeedConsentAndANumber) {
  const OpenMpLimit four(4);
  const int levels = omp_get_max_active_levels();
  omp_set_max_active_levels(2);
  int unasked = 0, asked = 0;
#pragma omp parallel num_threads(2) reduction(max : unasked, asked)
  {
    unasked = thread_limit({});
    asked = thread_limit({.threads = 4});
  }
  omp_set_max_active_levels(levels);
  EXPECT_EQ(unasked, 1);
  EXPECT_EQ(asked, 4);
}

}  // namespace
}  // namespace tessera::runtime
