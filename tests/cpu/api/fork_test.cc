// Children of fork(), whose parent's other threads and OpenMP's do not exist.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "cpu/api/fixture.h"

namespace tessera::api_test {
namespace {

// How a child ended that ran `work`: 0 when that was true, -1 when it was killed after a minute.
int status_of_child(const std::function<bool()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      ::_exit(work() ? 0 : 1);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
      ::_exit(2);
    }
  }
  int status = 0;
  for (int i = 0; i < 60'000; ++i) {
    if (::waitpid(child, &status, WNOHANG) == child) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return -1;
}

// Sums of small whole numbers, exact in fp32 in whatever order.
bool is_right(Dispatcher& dispatcher, std::int64_t m, int threads) {
  constexpr std::int64_t kN = 90, kK = 70;
  const auto elements = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  std::vector<float> a(elements(m * kK), 2.0F), b(elements(kN * kK), 3.0F);
  std::vector<float> out(elements(m * kN), -1.0F);
  dispatcher.run(gemm_problem(DType::fp32, GemmLayout::rcr, m, kN, kK),
                 GemmOperands{.a = a.data(), .b = b.data(), .out = out.data()},
                 with(threads, "", false));
  return std::all_of(out.begin(), out.end(), [](float x) { return x == 2.0F * 3.0F * kK; });
}

struct ApiFork : ApiTest {
  // A compiler that says when a kernel is on its way, and takes its time.
  std::string slow_compiler() const {
    const fs::path script = folder / "slow-g++";
    write_file_atomic(script, "#!/bin/sh\ncase \"$*\" in *kernel*) touch '" +
                                  (folder / "begun").string() +
                                  "'; sleep 1 ;; esac\nexec g++ \"$@\"\n");
    fs::permissions(script, fs::perms::owner_all);
    return script.string();
  }
};

TEST_F(ApiFork, AfterALaunchAChildRunsWithOneThread) {
  Dispatcher dispatcher(options());
  ASSERT_TRUE(is_right(dispatcher, 200, 2));
  EXPECT_EQ(status_of_child([&] {
              return runtime::thread_limit({.threads = 2}) == 1 && runtime::thread_limit({}) == 1 &&
                     is_right(dispatcher, 200, 2) && is_right(dispatcher, 200, 0) &&
                     is_right(dispatcher, 1, 2);
            }),
            0);
  EXPECT_EQ(status_of_child(
                [&] { return status_of_child([&] { return is_right(dispatcher, 200, 2); }) == 0; }),
            0);
  EXPECT_EQ(runtime::thread_limit({.threads = 2}), 2);
  EXPECT_TRUE(is_right(dispatcher, 200, 2));
}

// A team that other code of this process runs, on OpenMP's library as the loader finds it.
void run_foreign_team() {
  using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
  const auto parallel = reinterpret_cast<Parallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  ASSERT_NE(parallel, nullptr);
  std::atomic<int> members = 0;
  parallel([](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &members, 2, 0);
  ASSERT_EQ(members, 2);
}

TEST_F(ApiFork, AfterOthersRanATeamAChildRunsAlone) {
  Dispatcher dispatcher(options());
  EXPECT_TRUE(is_right(dispatcher, 200, 1));
  run_foreign_team();
  EXPECT_EQ(status_of_child([&] {
              return runtime::thread_limit({.threads = 2}) == 1 && is_right(dispatcher, 200, 2) &&
                     status_of_child([&] { return is_right(dispatcher, 200, 0); }) == 0;
            }),
            0);
  EXPECT_EQ(runtime::thread_limit({.threads = 2}), 2);
  EXPECT_TRUE(is_right(dispatcher, 200, 2));
}

// Threads of other kinds leave a child its team, where the thread that forks has no part in OpenMP.
TEST_F(ApiFork, BesideThreadsOfOtherKindsAChildRunsATeam) {
  Dispatcher dispatcher(options());
  EXPECT_TRUE(is_right(dispatcher, 200, 1));
  const auto status = [&] {
    int found = -1;
    std::thread([&] {
      found = status_of_child([&] {
        runtime::set_default_threads(2);
        return runtime::thread_limit({.threads = 2}) == 2 && is_right(dispatcher, 200, 2);
      });
    }).join();
    return found;
  };
  if (status() != 0) GTEST_SKIP() << "an earlier test of this process ran a team";
  std::atomic<bool> stop = false;
  std::thread other([&] { stop.wait(false); });
  EXPECT_EQ(status(), 0);
  stop = true;
  stop.notify_all();
  other.join();
}

// The parent's flight never lands in the child, and its lock is not the child's.
TEST_F(ApiFork, DuringABuildAChildGetsItsKernel) {
  DispatcherOptions o = options();
  o.build.compiler = slow_compiler();
  Dispatcher dispatcher(o);
  std::atomic<bool> is_parent_right = false;
  std::thread builder([&] { is_parent_right = is_right(dispatcher, 50, 1); });
  while (!fs::exists(folder / "begun")) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(status_of_child([&] { return is_right(dispatcher, 50, 1); }), 0);
  builder.join();
  EXPECT_TRUE(is_parent_right);
}

// Whatever the others hold at the moment of the fork, and at many moments.
TEST_F(ApiFork, WhileOthersChooseAndLogAChildChoosesToo) {
  set_log_sink([](LogLevel, std::string_view) {});
  Dispatcher dispatcher(options());
  std::atomic<bool> stop = false;
  std::vector<std::thread> others;
  for (int t = 0; t < 3; ++t) {
    others.emplace_back([&, t] {
      for (std::int64_t i = 0; !stop; ++i) {
        dispatcher.explain(small(1 + i % 100), with(1));
        log(LogLevel::info, std::to_string(t));
        dispatcher.registry().declare(
            parse_name("gemm_fp32_rcr_packab_96x384x256_0x0x1_8x8x1_generic"));
      }
    });
  }
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(status_of_child([&] {
                log(LogLevel::info, "child");
                return dispatcher.registry().size() <= 1 &&
                       dispatcher.explain(small(7), with(1)).name ==
                           dispatcher.explain(small(7), with(1)).name;
              }),
              0);
  }
  stop = true;
  for (std::thread& other : others) other.join();
  set_log_sink({});
}

}  // namespace
}  // namespace tessera::api_test
