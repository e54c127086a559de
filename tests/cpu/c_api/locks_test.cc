// A call of a problem that is known takes no lock, so that threads with short calls do not meet.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <mutex>
#include <vector>

#include "c_handles.h"
#include "tessera/base/files.h"
#include "tessera/tessera.hpp"

namespace {

thread_local int t_locks = 0;  // how often this thread has locked a mutex

}  // namespace

// The program's own function stands before the C library's.
extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  using Lock = int (*)(pthread_mutex_t*);
  static const auto kNext = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  ++t_locks;
  return kNext(mutex);
}

namespace tessera {
namespace {

using testing_support::CDispatcher;
using testing_support::CPlan;
using testing_support::CProblem;
using testing_support::ok;

constexpr const char* kLine = "gemm m=5 n=7 k=3";

struct Locks : testing::Test {
  fs::path folder = make_unique_folder(fs::temp_directory_path(), "tessera-locks-");
  std::vector<float> a = std::vector<float>(15);
  std::vector<float> b = std::vector<float>(21);
  std::vector<float> out = std::vector<float>(35);

  ~Locks() override { remove_tree(folder); }

  template <class Call>
  static int locks_of(const Call& call) {
    const int before = t_locks;
    call();
    return t_locks - before;
  }
};

TEST_F(Locks, AreCounted) {
  std::mutex mutex;
  EXPECT_EQ(locks_of([&] { const std::lock_guard lock(mutex); }), 1);
}

TEST_F(Locks, AWarmCallInCppTakesNone) {
  DispatcherOptions options;
  options.target = "generic";
  options.build.cache.folder = folder / "cache";
  Dispatcher dispatcher(options);
  const Problem problem = parse_problem(kLine);
  const Operands operands = GemmOperands{.a = a.data(), .b = b.data(), .out = out.data()};
  const RunOptions run = {.launch = {.threads = 1}};
  EXPECT_GT(locks_of([&] { dispatcher.run(problem, operands, run); }), 0);
  EXPECT_EQ(locks_of([&] { dispatcher.run(problem, operands, run); }), 0);
}

#ifdef NDEBUG  // builds without it look every handle up
TEST_F(Locks, AWarmCallInCTakesNone) {
  const std::string cache = (folder / "cache").string();
  tsr_build_options_t build = TSR_INIT(tsr_build_options_t);
  build.cache = cache.c_str();
  tsr_dispatcher_options_t options = TSR_INIT(tsr_dispatcher_options_t);
  options.target = "generic";
  options.build = &build;
  options.threads = 1;
  CDispatcher dispatcher;
  CProblem problem;
  CPlan plan;
  ASSERT_TRUE(ok(tsr_dispatcher_create(&options, &dispatcher)));
  ASSERT_TRUE(ok(tsr_problem_parse(kLine, &problem)));
  ASSERT_TRUE(ok(tsr_plan(dispatcher, problem, nullptr, &plan)));
  const void* operands[] = {a.data(), b.data(), out.data()};
  const auto call = [&] { ASSERT_TRUE(ok(tsr_launch(plan, operands, 3, nullptr))); };
  call();
  EXPECT_EQ(locks_of(call), 0);
}
#endif

}  // namespace
}  // namespace tessera
