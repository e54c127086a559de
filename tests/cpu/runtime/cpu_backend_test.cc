// Kernels written for these tests, compiled by the system's compiler and run by the backend.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <omp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <set>
#include <thread>

#include "openmp_limit.h"
#include "tessera/base/embedded.h"
#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/subprocess.h"
#include "tessera/runtime/runtime.h"

// Read by AddressSanitizer, which otherwise ends the program on a request that is too large.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

namespace tessera::runtime {
namespace {

// What the test kernels are given, and what they report.
struct Arguments {
  long long workspace_per_thread = 64;
  int rounds = 1;
  int* counts = nullptr;  // one per thread: the team's size as that thread sees it
  std::atomic<int>* errors = nullptr;
  std::atomic<int>* calls = nullptr;
};

constexpr std::string_view kKernels = R"cc(
#include "tessera/device/cpu/abi.h"
  using namespace tessera::device;
  namespace {
  struct Arguments {
    i64 workspace_per_thread;
    int rounds;
    int* counts;
    int* errors;
    int* calls;
  };
  const Arguments& read(const void* p) { return *static_cast<const Arguments*>(p); }
  void fail(const Arguments& a) { __atomic_fetch_add(a.errors, 1, __ATOMIC_RELAXED); }

  i64 bytes(const void* p, int threads) { return read(p).workspace_per_thread * threads; }

  // Each round, every thread writes to its own part of the workspace and then reads everyone's.
  void run(const void* p, const CpuThread* thread) {
    const Arguments& a = read(p);
    __atomic_fetch_add(a.calls, 1, __ATOMIC_RELAXED);
    if (a.counts) a.counts[thread->index] = thread->count;
    if (reinterpret_cast<unsigned long>(thread->workspace) % 64 != 0) fail(a);
    auto* const shared = static_cast<char*>(thread->workspace);
    for (int round = 0; round < a.rounds; ++round) {
      char* const mine = shared + thread->index * a.workspace_per_thread;
      for (i64 i = 0; i < a.workspace_per_thread; ++i) {
        mine[i] = static_cast<char>(thread->index + round);
      }
      thread->barrier(thread->barrier_context);
      for (int other = 0; other < thread->count; ++other) {
        const char* part = shared + other * a.workspace_per_thread;
        const char wanted = static_cast<char>(other + round);
        if (part[0] != wanted || part[a.workspace_per_thread - 1] != wanted) fail(a);
      }
      thread->barrier(thread->barrier_context);
    }
  }

  void do_nothing(const void*, const CpuThread*) {}
  i64 no_bytes(const void*, int) { return 0; }
  i64 too_many_bytes(const void*, int) { return 1LL << 62; }
  i64 negative_bytes(const void*, int) { return -1; }
  // Two steps: what the first leaves in the workspace, the second reads there from another thread.
  void leave(const void*, const CpuThread* thread) {
    static_cast<char*>(thread->workspace)[thread->index] = static_cast<char>(1 + thread->index);
  }
  void take(const void* p, const CpuThread* thread) {
    const int other = (thread->index + 1) % thread->count;
    if (static_cast<char*>(thread->workspace)[other] != 1 + other) fail(read(p));
    __atomic_fetch_add(read(p).calls, 1, __ATOMIC_RELAXED);
  }
  // Writes down which workspace it has.
  void name_workspace(const void* p, const CpuThread* thread) {
    *reinterpret_cast<void**>(read(p).counts) = thread->workspace;
  }
  }  // namespace
  extern "C" {
  extern const CpuKernel team, idle, greedy, negative, plan, naming, old_abi, half;
  const CpuKernel team = {4, {{bytes, run}}};
  const CpuKernel idle = {4, {{no_bytes, do_nothing}}};
  const CpuKernel greedy = {4, {{too_many_bytes, run}}};
  const CpuKernel negative = {4, {{negative_bytes, run}}};
  const CpuKernel plan = {4, {{no_bytes, take}, {bytes, leave}}};
  const CpuKernel naming = {4, {{bytes, name_workspace}}};
  const CpuKernel old_abi = {7, {{bytes, run}}};
  const CpuKernel half = {4, {{bytes, nullptr}}};
  }
)cc";

std::string compiler() {
  const std::vector<std::string> names = {environment("TESSERA_CXX"), environment("CXX"), "g++",
                                          "c++", "clang++"};
  for (const std::string& name : names) {
    if (name.empty()) continue;
    const fs::path found = find_executable(name);
    if (!found.empty()) return found.string();
  }
  throw std::runtime_error("these tests need a C++ compiler on PATH");
}

void compile(const fs::path& folder, const std::string& stem, std::string_view text) {
  write_file(folder / (stem + ".cc"), text);
  const SubprocessResult result = run_subprocess({compiler(), "-std=c++17", "-O1", "-shared",
                                                  "-fPIC", "-I.", stem + ".cc", "-o", stem + ".so"},
                                                 {.working_folder = folder});
  if (!result.ok()) throw std::runtime_error("test kernels do not compile: " + result.output);
}

// One folder with the test kernels for the whole program.
const fs::path& built_folder() {
  static const fs::path folder = [] {
    fs::path made = make_unique_folder(fs::temp_directory_path(), "tessera-runtime-test-");
    for (const EmbeddedFile& file : cpu_headers()) {
      fs::create_directories((made / file.path).parent_path());
      write_file(made / file.path, file.content);
    }
    compile(made, "kernels", kKernels);
    return made;
  }();
  return folder;
}

class RemovesBuiltFolder : public testing::Environment {
 public:
  void TearDown() override { remove_tree(built_folder()); }
};
const testing::Environment* const kEnvironment =
    testing::AddGlobalTestEnvironment(new RemovesBuiltFolder);

Target machine() {
  Target target;
  target.name = "generic";
  target.backend = "cpu";
  return target;
}

jit::Artifact artifact(const std::string& name) {
  jit::Artifact made;
  made.name = name;
  made.binary = built_folder() / "kernels.so";
  made.abi = 4;
  return made;
}

std::shared_ptr<const LoadedKernel> load(const std::string& name) {
  return backend_for(machine()).load(artifact(name), machine());
}

Launch launch_with(const Arguments& arguments) {
  Launch launch;
  launch.arguments.set(arguments);
  launch.steps.push({});
  return launch;
}

// One launch of "team", and what came of it.
struct TeamRun {
  std::atomic<int> errors = 0;
  std::atomic<int> calls = 0;
  std::vector<int> counts = std::vector<int>(256, 0);

  Launch launch_of(int rounds = 1, long long workspace_per_thread = 64) {
    return launch_with({workspace_per_thread, rounds, counts.data(), &errors, &calls});
  }
  void launch(const LoadedKernel& kernel, int threads, int rounds = 1,
              long long workspace_per_thread = 64) {
    const OpenMpLimit limit(threads > 0 ? threads : omp_get_max_threads());
    kernel.launch(launch_of(rounds, workspace_per_thread), {.threads = threads});
  }
};

std::string load_error(const jit::Artifact& wanted) {
  try {
    backend_for(machine()).load(wanted, machine());
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "no error";
}

TEST(CpuLaunch, EveryThreadOfTheTeamRunsOnce) {
  const auto kernel = load("team");
  for (const int threads : {1, 2, 3, 8, 33}) {
    TeamRun run;
    run.launch(*kernel, threads);
    EXPECT_EQ(run.calls, threads);
    EXPECT_EQ(run.errors, 0);
    for (int i = 0; i < 256; ++i) {
      EXPECT_EQ(run.counts[static_cast<std::size_t>(i)], i < threads ? threads : 0) << i;
    }
  }
}

TEST(CpuLaunch, TeamIsNoLargerThanTheLaunchWants) {
  struct Case {
    int most, threads, expected;
  };
  for (const Case& c : {Case{1, 4, 1}, {2, 4, 2}, {2, 1, 1}, {0, 4, 4}}) {
    TeamRun run;
    Launch launch = run.launch_of();
    launch.max_threads = c.most;
    const OpenMpLimit limit(c.threads);
    load("team")->launch(launch, {.threads = c.threads});
    EXPECT_EQ(run.calls, c.expected) << c.most << " of " << c.threads;
    EXPECT_EQ(run.counts[0], c.expected) << c.most << " of " << c.threads;
    EXPECT_EQ(run.errors, 0);
  }
}

TEST(CpuLaunch, BarrierHoldsTheWholeTeam) {
  const auto kernel = load("team");
  for (const int threads : {1, 2, 4, 7}) {
    TeamRun run;
    run.launch(*kernel, threads, 50);
    EXPECT_EQ(run.errors, 0) << threads << " threads";
  }
}

TEST(CpuLaunch, WorkspaceGrowsAndShrinksWithTheKernel) {
  const auto kernel = load("team");
  for (const long long bytes : {1LL, 100LL, 1LL << 20, 3LL << 20, 5000LL, 40LL << 20, 64LL}) {
    TeamRun run;
    run.launch(*kernel, 2, 1, bytes);
    EXPECT_EQ(run.errors, 0) << bytes << " bytes a thread";
  }
}

TEST(CpuLaunch, ThreadsFollowOpenMpByDefault) {
  const auto kernel = load("team");
  const int before = omp_get_max_threads();
  omp_set_num_threads(3);
  TeamRun run;
  run.launch(*kernel, 0);
  omp_set_num_threads(before);
  EXPECT_EQ(run.calls, 3);
  EXPECT_EQ(run.counts[0], 3);
}

// With dynamic teams OpenMP grants what it likes: each thread must still see the true size, and the
// workspace must be right for it.
TEST(CpuLaunch, TeamSmallerThanAskedForRunsOnce) {
  const auto kernel = load("team");
  const int before = omp_get_dynamic();
  omp_set_dynamic(1);
  for (int i = 0; i < 20; ++i) {
    TeamRun run;
    run.launch(*kernel, 200, 3);
    EXPECT_EQ(run.calls, run.counts[0]);
    EXPECT_GE(run.calls, 1);
    EXPECT_EQ(run.errors, 0);
  }
  omp_set_dynamic(before);
}

TEST(CpuLaunch, InsideAParallelRegionRunsAlone) {
  const auto kernel = load("team");
  std::atomic<int> wrong = 0;
#pragma omp parallel num_threads(4)
  for (int i = 0; i < 50; ++i) {
    TeamRun run;
    run.launch(*kernel, 4, 2);
    if (run.calls != 1 || run.counts[0] != 1 || run.errors != 0) ++wrong;
  }
  EXPECT_EQ(wrong, 0);
}

TEST(CpuLaunch, NestedTeamsWorkWhenTheCallerAllowsThem) {
  const auto kernel = load("team");
  const int levels = omp_get_max_active_levels();
  omp_set_max_active_levels(2);
  std::atomic<int> wrong = 0;
#pragma omp parallel num_threads(2)
  for (int i = 0; i < 20; ++i) {
    TeamRun run;
    run.launch(*kernel, 3, 5);
    if (run.calls != run.counts[0] || run.errors != 0) ++wrong;
  }
  omp_set_max_active_levels(levels);
  EXPECT_EQ(wrong, 0);
}

TEST(CpuLaunch, ConcurrentLaunchesDoNotDisturbEachOther) {
  const auto kernel = load("team");
  std::atomic<int> wrong = 0;
  std::vector<std::thread> users;
  for (int user = 0; user < 8; ++user) {
    users.emplace_back([&, user] {
      for (int i = 0; i < 25; ++i) {
        TeamRun run;
        const int threads = 1 + (user + i) % 3;
        run.launch(*kernel, threads, 3, 100 * (1 + (user * 7 + i) % 50));
        if (run.calls != threads || run.errors != 0) ++wrong;
      }
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_EQ(wrong, 0);
}

TEST(CpuLaunch, EmptyLaunchCallsNothing) {
  TeamRun run;
  Launch launch = launch_with({64, 1, run.counts.data(), &run.errors, &run.calls});
  launch.steps = {};
  load("team")->launch(launch, {.threads = 2});
  EXPECT_EQ(run.calls, 0);
}

TEST(CpuLaunch, WorkspaceThatDoesNotFitIsAnError) {
  const auto code_of = [](const std::string& name, int threads) {
    try {
      load(name)->launch(launch_with({}), {.threads = threads});
    } catch (const Error& error) {
      return std::string(to_string(error.code())) + ": " + error.what();
    }
    return std::string("no error");
  };
  const std::string wanted =
      "out_of_memory: out of memory: cannot allocate a buffer of 4611686018427387904 bytes";
  EXPECT_EQ(code_of("greedy", 1), wanted);
  EXPECT_EQ(code_of("greedy", 4), wanted);
  EXPECT_EQ(code_of("negative", 1),
            "out_of_memory: out of memory: cannot allocate a buffer of 18446744073709551615 bytes");
}

TEST(CpuLaunch, AddsLittleToTheCall) {
  const auto kernel = load("idle");
  const Launch launch = launch_with({});
  const LaunchOptions alone = {.threads = 1};
  double best = 1;
  for (int reading = 0; reading < 20; ++reading) {
    constexpr int kCalls = 20000;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) kernel->launch(launch, alone);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    best = std::min(best, elapsed.count() / kCalls);
  }
  std::printf("launch of an empty kernel on one thread: %.0f ns\n", best * 1e9);
  EXPECT_LT(best, 1e-6);
}

// ---- several steps ----

std::shared_ptr<const LoadedKernel> load_plan() {
  jit::Artifact wanted = artifact("plan");
  wanted.entries = {"", "_leave"};
  return backend_for(machine()).load(wanted, machine());
}

// The whole team has done the first before anyone begins the second, in the same workspace.
TEST(CpuSteps, RunInTheirOrder) {
  const auto kernel = load_plan();
  for (const int threads : {1, 2, 5}) {
    const OpenMpLimit limit(threads);
    for (int i = 0; i < 100; ++i) {
      TeamRun run;
      Launch launch = run.launch_of();
      launch.steps = {{.entry = 1}, {.entry = 0}};
      kernel->launch(launch, {.threads = threads});
      ASSERT_EQ(run.errors, 0) << threads << " threads";
      ASSERT_EQ(run.calls, threads);
    }
  }
}

TEST(CpuSteps, AnEntryThatTheKernelDoesNotList) {
  Launch launch = launch_with({});
  launch.steps = {{.entry = 2}};
  try {
    load_plan()->launch(launch, {.threads = 1});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::internal);
    EXPECT_STREQ(error.what(), "plan: a step runs entry 2, the kernel has entries 0 to 1");
  }
}

// ---- the caller's workspace ----

std::string refusal(const LaunchOptions& options) {
  int calls = 0;
  try {
    TeamRun run;
    load("team")->launch(run.launch_of(1, 100), options);
    calls = run.calls;
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "no error, but calls: " + std::to_string(calls);
}

TEST(CpuWorkspace, IsUsedInPlaceOfOurs) {
  const auto kernel = load("naming");
  const AlignedBuffer memory(4096);
  void* got = nullptr;
  const Launch launch = launch_with({.counts = reinterpret_cast<int*>(&got)});
  EXPECT_EQ(kernel->workspace_bytes(launch, {.threads = 1}), 64U);
  kernel->launch(launch, {.threads = 1, .workspace = memory.data(), .workspace_bytes = 64});
  EXPECT_EQ(got, memory.data());
  kernel->launch(launch, {.threads = 1});
  EXPECT_NE(got, memory.data());
}

TEST(CpuWorkspace, ServesATeam) {
  const auto kernel = load("team");
  const OpenMpLimit limit(3);
  TeamRun run;
  const Launch launch = run.launch_of(20, 1000);
  const AlignedBuffer memory(kernel->workspace_bytes(launch, {.threads = 3}));
  EXPECT_EQ(memory.size(), 3000U);
  kernel->launch(launch,
                 {.threads = 3, .workspace = memory.data(), .workspace_bytes = memory.size()});
  EXPECT_EQ(run.calls, 3);
  EXPECT_EQ(run.errors, 0);
}

TEST(CpuWorkspace, IsRefusedWhereItDoesNotFit) {
  const AlignedBuffer memory(4096);
  auto* const begin = static_cast<char*>(memory.data());
  EXPECT_EQ(refusal({.threads = 1, .workspace = begin, .workspace_bytes = 99}),
            "invalid_argument: team: the workspace must hold at least 100 bytes for this launch, "
            "got 99");
  EXPECT_EQ(refusal({.threads = 1, .workspace = begin + 8, .workspace_bytes = 100}),
            "invalid_argument: team: the workspace must begin at a multiple of 64 bytes, got an "
            "address 8 past one");
  EXPECT_EQ(refusal({.threads = 1, .workspace_bytes = 100}),
            "invalid_argument: team: the workspace must not be null when workspace_bytes is 100; "
            "set it to 0 to use the library's own");
  const LaunchOptions good{.threads = 1, .workspace = begin, .workspace_bytes = 100};
  EXPECT_EQ(refusal(good), "no error, but calls: 1");
}

TEST(CpuLoad, RefusesWhatDoesNotFit) {
  const std::string file = (built_folder() / "kernels.so").string();
  EXPECT_EQ(load_error(artifact("absent")),
            "load_failed: cannot load kernel 'absent': '" + file +
                "' must export a symbol of that name, but has none; clear its cache entry to build "
                "it again");
  EXPECT_EQ(
      load_error(artifact("old_abi")),
      "load_failed: cannot load kernel 'old_abi': its ABI version must be 4, got 7; clear its "
      "cache entry to build it again");
  EXPECT_EQ(load_error(artifact("half")),
            "load_failed: cannot load kernel 'half': its table must hold run and workspace_bytes "
            "of 'half', but one of them is null");
  jit::Artifact wanted = artifact("team");
  wanted.entries = {"", "_combine"};
  EXPECT_EQ(load_error(wanted),
            "load_failed: cannot load kernel 'team': its table must hold run and workspace_bytes "
            "of 'team_combine', but one of them is null");
  wanted.entries = {"", "_a", "_b"};
  EXPECT_EQ(load_error(wanted), "internal: kernel 'team' lists 3 entries, a table holds at most 2");
}

bool is_mapped(const fs::path& file) {
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) return false;
  dlclose(handle);
  return true;
}

// What a row's flags let the compiler use must be there.
TEST(CpuLoad, RefusesFlagsThatTheProcessorCannotServe) {
  const auto why = [](const std::string& flag) {
    Target target;
    target.name = "mine";
    target.backend = "cpu";
    target.compile_flags = {"-O2", flag};
    return host_place().backend->unavailable_reason(target);
  };
  const auto sentence = [](const std::string& flag, const std::string& feature) {
    return "the compile flag '" + flag + "' of target 'mine' needs '" + feature +
           "', which this processor lacks or cannot be asked for; leave the flag out, or give "
           "-march=native in its place";
  };
  const std::string processor = read_file("/proc/cpuinfo");
  const bool has_fma4 = processor.find(" fma4 ") != std::string::npos;
  EXPECT_EQ(why("-mfma4"), has_fma4 ? "" : sentence("-mfma4", "fma4"));
  for (const auto& [flag, feature] :
       std::vector<std::pair<std::string, std::string>>{{"-mabi=ms", "-mabi=ms"},
                                                        {"-march=atari", "atari"},
                                                        {"-mcpu=native+nosuch", "nosuch"},
                                                        {"-mno.such", "nosuch"},
                                                        {"-mdaz-ftz", "dazftz"}}) {
    EXPECT_EQ(why(flag), flag.find("+no") == flag.npos ? sentence(flag, feature) : "") << flag;
  }
  for (const char* flag : {"-march=native", "-mcpu=native", "-mtune=znver5", "-mno-avx512f", "-O3",
                           "-mprefer-vector-width=256", "-fno-gcse"}) {
    EXPECT_EQ(why(flag), "") << flag;
  }
}

TEST(CpuLoad, CodeStaysMappedWhileSomeoneHoldsIt) {
  const fs::path file = built_folder() / "kernels.so";
  auto first = load("idle");
  auto second = load("team");
  first.reset();
  EXPECT_TRUE(is_mapped(file));
  TeamRun run;
  run.launch(*second, 1);
  EXPECT_EQ(run.calls, 1);
  second.reset();
  EXPECT_FALSE(is_mapped(file));
}

TEST(CpuLoad, FailedLoadsLeaveNothingMapped) {
  load_error(artifact("old_abi"));
  EXPECT_FALSE(is_mapped(built_folder() / "kernels.so"));
}

// A copy of a library in memory, whose path names a file descriptor.
jit::Artifact in_memory(const std::string& name, const fs::path& library) {
  const int descriptor = memfd_create("kernel", MFD_CLOEXEC);
  const std::string content = read_file(library);
  if (write(descriptor, content.data(), content.size()) != std::ssize(content)) return {};
  jit::Artifact made = artifact(name);
  made.binary = "/proc/self/fd/" + std::to_string(descriptor);
  made.keep = std::shared_ptr<void>(nullptr, [descriptor](void*) { close(descriptor); });
  return made;
}

// The loader takes equal paths for the same library, so a descriptor must not be reused too early.
TEST(CpuLoad, AnonymousFilesAreKeptApart) {
  constexpr std::string_view kAnswer = R"cc(
#include "tessera/device/cpu/abi.h"
    using namespace tessera::device;
    static i64 none(const void*, int) { return 0; }
    static void run(const void* p, const CpuThread*) { **static_cast<int* const*>(p) = ANSWER; }
    extern "C" {
    extern const CpuKernel answer;
    const CpuKernel answer = {4, {{none, run}}};
    }
  )cc";
  std::vector<std::shared_ptr<const LoadedKernel>> kernels;
  for (const int number : {11, 22, 33}) {
    const std::string stem = "answer" + std::to_string(number);
    compile(built_folder(), stem,
            "#define ANSWER " + std::to_string(number) + std::string(kAnswer));
    kernels.push_back(backend_for(machine()).load(
        in_memory("answer", built_folder() / (stem + ".so")), machine()));
  }
  std::vector<int> answers;
  for (const auto& kernel : kernels) {
    int answer = 0;
    int* const where = &answer;
    Launch launch;
    launch.arguments.set(where);
    launch.steps.push({});
    kernel->launch(launch, {.threads = 1});
    answers.push_back(answer);
  }
  EXPECT_EQ(answers, (std::vector<int>{11, 22, 33}));
}

}  // namespace
}  // namespace tessera::runtime
