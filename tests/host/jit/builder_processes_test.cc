#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include "host/jit/fixtures.h"
#include "tessera/jit/build.h"

namespace tessera::jit {
namespace {

using Milliseconds = std::chrono::milliseconds;

// Runs `work` in a process of its own; its exit code is 0 if the work returned true.
template <class Work>
pid_t start(const Work& work) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  bool good = false;
  try {
    good = work();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
  }
  ::_exit(good ? 0 : 1);
}

int wait_for(pid_t child) {
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

class BuilderProcesses : public testing::Test {
 protected:
  BuildOptions options() const { return make_options(cache_, compiler_); }
  bool build_is_good() const {
    const Artifact artifact = Builder(options()).build(make_source("gemm_a"), make_target());
    return text_of(artifact.binary) == "a binary made of:\nint x;\n";
  }
  // One good entry, and no trace of those that were killed.
  void expect_tidy() const {
    EXPECT_EQ(names_in(cache_ / "tmp"), std::vector<std::string>());
    EXPECT_EQ(names_in(cache_ / "locks"), std::vector<std::string>());
    EXPECT_EQ(names_in(cache_ / "damaged"), std::vector<std::string>());
    EXPECT_EQ(names_in(cache_ / "failed"), std::vector<std::string>());
    const Cache cache({.folder = cache_});
    EXPECT_EQ(cache.list().size(), 1U);
    EXPECT_EQ(cache.verify().good, 1U);
  }
  bool appears(const fs::path& file) const {
    for (int i = 0; i < 1000 && !fs::exists(file); ++i)
      std::this_thread::sleep_for(Milliseconds(5));
    return fs::exists(file);
  }
  TempFolder temp_;
  fs::path cache_ = temp_ / "cache";
  FakeCompiler compiler_{temp_.path()};
};

TEST_F(BuilderProcesses, ThirtyTwoAtOnceCompileOnce) {
  compiler_.write("sleep 0.3");
  std::vector<pid_t> children;
  for (int i = 0; i < 32; ++i) children.push_back(start([&] { return build_is_good(); }));
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), 0);
  EXPECT_EQ(compiler_.calls(), 1);
  EXPECT_TRUE(build_is_good());
  expect_tidy();
}

TEST_F(BuilderProcesses, KilledWhileTheCompilerRuns) {
  const fs::path running = temp_ / "running";
  compiler_.write("if [ ! -e " + running.string() + " ]; then : > half.o; : > " + running.string() +
                  "; exec sleep 60; fi");
  const pid_t builder = start([&] { return build_is_good(); });
  ASSERT_TRUE(appears(running));
  // Another one waits for the first, and takes over when it dies.
  const pid_t waiting = start([&] { return build_is_good(); });
  std::this_thread::sleep_for(Milliseconds(100));
  EXPECT_EQ(compiler_.calls(), 1);
  ::kill(builder, SIGKILL);
  wait_for(builder);
  EXPECT_EQ(wait_for(waiting), 0);
  EXPECT_EQ(compiler_.calls(), 2);
  EXPECT_TRUE(build_is_good());
  EXPECT_EQ(compiler_.calls(), 2);
  expect_tidy();
}

// The stages of an insertion that a test can reach: before, amid and after the work.
TEST_F(BuilderProcesses, KilledInsideTheBuild) {
  const auto die = [] { ::raise(SIGKILL); };
  const std::vector<std::function<void(const fs::path&)>> stages = {
      [&](const fs::path&) { die(); },
      [&](const fs::path& folder) {
        write_file(folder / "kernel.cc", "half");
        die();
      },
      [&](const fs::path& folder) {
        produces("binary")(folder);
        write_file(folder / "meta.json", "{");
        die();
      },
  };
  for (std::size_t i = 0; i < stages.size(); ++i) {
    SCOPED_TRACE(i);
    const CacheOptions cache{.folder = cache_};
    const std::string name = "gemm_a";
    const pid_t child = start([&] {
      Cache(cache).insert(name, kKeyA, stages[i]);
      return true;
    });
    EXPECT_EQ(WTERMSIG(wait_for(child)), SIGKILL);
    EXPECT_EQ(names_in(cache_ / "tmp").size(), 1U) << "the kill came too late or too early";
    Cache fresh(cache);
    EXPECT_FALSE(fresh.find(name, kKeyA));
    fresh.insert(name, kKeyA, produces("good"));
    expect_tidy();
    fresh.clear();
  }
}

TEST_F(BuilderProcesses, KilledAtAnyMoment) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  build_is_good();  // from here on the compiler is known, and a build takes a few milliseconds
  int killed = 0;
  for (int i = 0; i < 60; ++i) {
    for (const EntryInfo& entry : Cache({.folder = cache_}).list()) remove_tree(entry.folder);
    const pid_t child = start([&] { return build_is_good(); });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 16000));
    ::kill(child, SIGKILL);
    killed += WIFSIGNALED(wait_for(child)) ? 1 : 0;
    ASSERT_TRUE(build_is_good());
  }
  EXPECT_GT(killed, 0);
  Builder(options()).build(make_source("gemm_other"), make_target());
  Cache({.folder = cache_}).clear("gemm_other");
  expect_tidy();
}

TEST_F(BuilderProcesses, LeavesTheFoldersOfLivingBuildsAlone) {
  const fs::path running = temp_ / "running";
  const fs::path go = temp_ / "go";
  compiler_.write("grep -q slow kernel.cc && : > " + running.string() + " && while [ ! -e " +
                  go.string() + " ]; do sleep 0.02; done");
  const pid_t slow = start([&] {
    Builder(options()).build(make_source("gemm_slow", "slow"), make_target());
    return true;
  });
  ASSERT_TRUE(appears(running));
  EXPECT_TRUE(build_is_good());
  EXPECT_EQ(names_in(cache_ / "tmp").size(), 1U);
  EXPECT_EQ(names_in(cache_ / "locks").size(), 1U);
  write_file(go, "");
  EXPECT_EQ(wait_for(slow), 0);
  EXPECT_EQ(names_in(cache_ / "tmp").size(), 0U);
}

TEST_F(BuilderProcesses, RemovesWhatDeadBuildsLeftInTheTemporaryFolder) {
  const ScopedVariable temporary("TMPDIR", temp_.path().string());
  BuildOptions homeless = options();
  homeless.cache.folder = "/proc/tessera";
  const fs::path running = temp_ / "running";
  compiler_.write("if [ ! -e " + running.string() + " ]; then : > " + running.string() +
                  "; exec sleep 60; fi");
  const auto build = [&] {
    Builder(homeless).build(make_source("gemm_a"), make_target());
    return true;
  };
  const pid_t child = start(build);
  ASSERT_TRUE(appears(running));
  ::kill(child, SIGKILL);
  wait_for(child);
  const auto litter = [&] {
    const std::vector<std::string> names = names_in(temp_.path());
    return std::count_if(names.begin(), names.end(),
                         [](const std::string& n) { return n.starts_with("tessera-build-"); });
  };
  EXPECT_EQ(litter(), 1);
  EXPECT_TRUE(build());
  EXPECT_EQ(litter(), 0);
}

}  // namespace
}  // namespace tessera::jit
