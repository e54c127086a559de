#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <thread>

#include "cpu/cached.h"
#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/jit/toolchain.h"
#include "tessera/registry/registry.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

struct TemporaryFolder {
  fs::path path = make_unique_folder(fs::temp_directory_path(), "tessera-registry-");
  ~TemporaryFolder() { remove_tree(path); }
};

jit::BuildOptions options_in(const fs::path& folder) {
  jit::BuildOptions options;
  options.cache.folder = folder / "cache";
  return options;
}

// A few kernels of this machine.
KernelSet host_set(std::size_t most) {
  const Target host = host_target();
  KernelSetBuilder builder("host", host);
  builder.gemm().dtype("fp32").layout("rrr").variant("standard").pipeline("direct").wave("1x1x1");
  KernelSet set = builder.build();
  if (set.specs.size() > most) set.specs.resize(most);
  return set;
}

TEST(RegistryBuild, BuildsLoadsAndReportsEveryKernel) {
  const TemporaryFolder folder;
  Registry registry("mine", options_in(folder.path));
  const KernelSet set = host_set(3);
  registry.declare(set);
  std::vector<std::size_t> progress;
  const std::vector<jit::BuildResult> results =
      registry.build(2, [&](std::size_t done, std::size_t total, const jit::BuildResult&) {
        EXPECT_EQ(total, 3U);
        progress.push_back(done);
      });
  ASSERT_EQ(results.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(results[i].name, name_of(set.specs[i]));
    EXPECT_EQ(results[i].error, "");
    EXPECT_FALSE(results[i].was_cached);
    EXPECT_NE(registry.find(results[i].name), nullptr);
  }
  EXPECT_EQ(progress, (std::vector<std::size_t>{1, 2, 3}));

  for (const jit::BuildResult& again : registry.build(2)) {
    EXPECT_EQ(again.error, "");
    EXPECT_TRUE(again.was_cached);
    EXPECT_TRUE(fs::exists(again.artifact.binary));
  }
  EXPECT_EQ(kernels_in(registry.builder().cache()), 3);
}

// As 'tessera generate' writes it, for people who compile it themselves.
TEST(RegistryBuild, EmittedTextIsCompleteInItself) {
  const TemporaryFolder folder;
  const Target host = host_target();
  jit::Builder builder(options_in(folder.path));
  for (const char* pipeline : {"packab", "stream"}) {
    KernelSetBuilder set("one", host);
    set.gemm().dtype("fp32").layout("rcr").variant("standard").pipeline(pipeline);
    const KernelSpec spec = set.build().specs.front();
    Source source = family_of(spec).emit(spec, host);
    source.objects.clear();
    source.declarations.clear();
    EXPECT_NO_THROW(builder.build(source, host)) << source.name;
  }
  EXPECT_EQ(builder.cache().list().size(), 2U);
}

// Processor time of the children that have ended, which other work on the machine does not change.
double children_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Such a kernel takes 0.08 s.
TEST(RegistryBuild, AKernelWhoseObjectsAreThereTakesAtMost150Milliseconds) {
  const TemporaryFolder folder;
  const Target host = host_target();
  const std::string compiler = jit::find_toolchain({}).path.filename().string();
  if (compiler.find("clang") != std::string::npos) GTEST_SKIP() << "the promise is of g++";
  KernelSetBuilder set("tiles", host);
  set.gemm().dtype("fp32").layout("rcr").variant("standard").pipeline("packab").wave("1x1x1");
  std::vector<KernelSpec> specs = set.build().specs;
  const Shape3 warp_tile = specs.front().algorithm.warp_tile;
  std::erase_if(specs, [&](const KernelSpec& s) { return s.algorithm.warp_tile != warp_tile; });
  ASSERT_GE(specs.size(), 5U);
  jit::Builder builder(options_in(folder.path));
  builder.build(family_of(specs[0]).emit(specs[0], host), host);
  double least = 1e9;
  for (std::size_t i = 1; i < 5; ++i) {
    const double before = children_seconds();
    builder.build(family_of(specs[i]).emit(specs[i], host), host);
    least = std::min(least, children_seconds() - before);
  }
  EXPECT_EQ(kernels_in(builder.cache()), 5);
  EXPECT_GT(least, 0.0);
  EXPECT_LE(least, 0.15);
}

TEST(RegistryBuild, GetBuildsOnDemandOnceForAllThreads) {
  const TemporaryFolder folder;
  Registry registry("mine", options_in(folder.path));
  const KernelSpec spec = host_set(1).specs.front();
  std::vector<std::shared_ptr<const runtime::LoadedKernel>> loaded(8);
  std::vector<std::thread> threads;
  for (auto& kernel : loaded) {
    threads.emplace_back([&registry, &spec, &kernel] {
      try {
        kernel = registry.get(spec);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_NE(loaded[0], nullptr);
  for (const auto& kernel : loaded) EXPECT_EQ(kernel, loaded[0]);
  EXPECT_EQ(registry.find(name_of(spec)), loaded[0]);
  EXPECT_TRUE(registry.contains(name_of(spec)));
}

TEST(RegistryBuild, MergeKeepsItsOwnKernels) {
  const TemporaryFolder folder;
  const KernelSet set = host_set(2);
  Registry one("one", options_in(folder.path));
  Registry two("two", options_in(folder.path));
  const auto own = one.get(set.specs[0]);
  const auto same = two.get(set.specs[0]);
  const auto more = two.get(set.specs[1]);
  ASSERT_NE(own, same);
  one.merge(two);
  EXPECT_EQ(one.find(name_of(set.specs[0])), own);
  EXPECT_EQ(one.find(name_of(set.specs[1])), more);
  EXPECT_EQ(two.find(name_of(set.specs[0])), same);
}

TEST(RegistryBuild, FilteredCopiesKeepLoadedKernels) {
  const TemporaryFolder folder;
  const KernelSet set = host_set(2);
  std::shared_ptr<const runtime::LoadedKernel> kept;
  {
    Registry all("all", options_in(folder.path));
    all.declare(set);
    const auto loaded = all.get(set.specs[0]);
    const Registry copy = all.filtered(set.specs[0].target);
    EXPECT_EQ(copy.size(), 2U);
    EXPECT_EQ(copy.find(name_of(set.specs[0])), loaded);
    EXPECT_EQ(copy.find(name_of(set.specs[1])), nullptr);
    EXPECT_EQ(all.filtered("sm90a").size(), 0U);
    kept = copy.find(name_of(set.specs[0]));
  }
  EXPECT_EQ(kept.use_count(), 1);  // its code stays mapped while somebody holds it
}

// A compiler that fails as long as a file is there.
fs::path moody_compiler(const fs::path& folder, const fs::path& mood) {
  const fs::path script = folder / "moody-c++";
  write_file(script, fmt::format("#!/bin/sh\n"
                                 "case \"$*\" in *--version*|*-dump*|*-print*) exec '{0}' \"$@\";; "
                                 "esac\n"
                                 "if [ -e '{1}' ]; then echo 'not today' >&2; exit 1; fi\n"
                                 "exec '{0}' \"$@\"\n",
                                 jit::find_toolchain("").path.string(), mood.string()));
  fs::permissions(script, fs::perms::owner_all);
  return script;
}

TEST(RegistryBuild, FailuresAreReportedAndRetried) {
  const TemporaryFolder folder;
  const fs::path mood = folder.path / "bad-mood";
  jit::BuildOptions options = options_in(folder.path);
  options.compiler = moody_compiler(folder.path, mood).string();
  Registry registry("mine", options);
  const KernelSet set = host_set(2);
  registry.declare(set);

  write_file(mood, "");
  std::vector<jit::BuildResult> results = registry.build(2);
  ASSERT_EQ(results.size(), 2U);
  for (const jit::BuildResult& result : results) {
    EXPECT_NE(result.error.find("not today"), std::string::npos) << result.error;
    EXPECT_EQ(registry.find(result.name), nullptr);
  }
  fs::remove(mood);
  results = registry.build(2);
  for (const jit::BuildResult& result : results) {
    EXPECT_EQ(result.error, "");
    EXPECT_NE(registry.find(result.name), nullptr);
  }
}

TEST(RegistryBuild, OneBadKernelDoesNotStopTheOthers) {
  const TemporaryFolder folder;
  Registry registry("mine", options_in(folder.path));
  const KernelSet set = host_set(2);
  registry.declare(set);
  KernelSpec bad = set.specs[0];
  bad.algorithm.tile.m = 1;
  bad.algorithm.warp_tile.m = 7777;
  registry.declare(bad);
  std::size_t failed = 0;
  for (const jit::BuildResult& result : registry.build(2)) {
    if (result.error.empty()) continue;
    ++failed;
    EXPECT_EQ(result.name, name_of(bad));
    EXPECT_EQ(result.error.rfind(name_of(bad) + ": ", 0), 0U) << result.error;
  }
  EXPECT_EQ(failed, 1U);
}

TEST(RegistryBuild, WithoutACompilerTheCacheStillServes) {
  const TemporaryFolder folder;
  const KernelSpec spec = host_set(1).specs.front();
  Registry("warm", options_in(folder.path)).get(spec);
  jit::BuildOptions options = options_in(folder.path);
  options.allow_compile = false;
  Registry registry("cold", options);
  EXPECT_NE(registry.get(spec), nullptr);
  const KernelSpec missing = host_set(2).specs.back();
  try {
    registry.get(missing);
    FAIL() << "built " << name_of(missing);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::jit_disabled);
    EXPECT_NE(std::string(error.what()).find(name_of(missing)), std::string::npos);
  }
}

TEST(RegistryBuild, ImportedKernelsAreTheSameKernels) {
  const TemporaryFolder folder;
  Registry one("one", options_in(folder.path));
  one.declare(host_set(2));
  one.build(2);
  Registry two("two", options_in(folder.path));
  two.import_json(one.export_json());
  for (const jit::BuildResult& result : two.build(2)) {
    EXPECT_EQ(result.error, "");
    EXPECT_TRUE(result.was_cached);
  }
}

}  // namespace
}  // namespace tessera
