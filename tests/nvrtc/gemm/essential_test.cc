// Every kernel that ships for a GPU compiles, without spilling a register. No GPU is needed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/jit/build.h"
#include "tessera/jit/nvrtc.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

// Empty when NVRTC is here.
std::string why_not_here() {
  try {
    jit::find_nvrtc({.library = {}, .worker = TESSERA_WORKER});
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

std::vector<Source> essential_sources(const Target& target) {
  const Family& family = family_of(Op::gemm);
  std::set<std::string> names;
  std::vector<Source> sources;
  for (const std::string& set : family.preselected_names()) {
    if (!matches_wildcard("*_essential", set)) continue;
    try {
      for (const KernelSpec& spec : family.preselected(set, target)) {
        if (names.insert(name_of(spec)).second) sources.push_back(family.emit(spec, target));
      }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_found) throw;  // a set of other targets
    }
  }
  return sources;
}

std::int64_t fact(const jit::EntryInfo& entry, const std::string& name) {
  const auto found = entry.facts.find(name);
  return found == entry.facts.end() ? -1 : found->second;
}

// The build's own cache: what has not changed since the last run is not compiled again.
TEST(EssentialKernels, CompileForHopperWithoutSpills) {
  if (const std::string reason = why_not_here(); !reason.empty()) GTEST_SKIP() << reason;
  const Target target = load_target("sm90a");
  const std::vector<Source> sources = essential_sources(target);
  ASSERT_GT(sources.size(), 50U);
  jit::BuildOptions options;
  options.cache.folder = TESSERA_BUILD "/kernel-cache";
  options.worker = TESSERA_WORKER;
  options.use_shipped_packs = false;
  jit::Builder builder(options);
  std::vector<double> seconds;
  std::map<std::string, std::string> key_of;
  for (const jit::BuildResult& result : builder.build_all(sources, target, 0)) {
    EXPECT_EQ(result.error, "");
    if (!result.was_cached) seconds.push_back(result.seconds);
    key_of[result.name] = result.artifact.key;
  }

  std::size_t seen = 0;
  std::int64_t largest = 0;
  for (const jit::EntryInfo& entry : builder.cache().list()) {
    const auto wanted = key_of.find(entry.name);
    if (wanted == key_of.end() || wanted->second != entry.key) continue;
    ++seen;
    largest = std::max(largest, fact(entry, "registers"));
    EXPECT_GT(fact(entry, "registers"), 0) << entry.name;
    EXPECT_EQ(fact(entry, "spill_store_bytes"), 0) << entry.name;
    EXPECT_EQ(fact(entry, "spill_load_bytes"), 0) << entry.name;
  }
  EXPECT_EQ(seen, sources.size());
  std::sort(seconds.begin(), seconds.end());
  if (seconds.empty()) seconds = {0};
  fmt::print(
      "{} kernels, {} compiled now: {:.2f} s (median), {:.2f} s (longest); at most {} "
      "registers\n",
      seen, seconds.size(), seconds[seconds.size() / 2], seconds.back(), largest);
}

// One line of the source is wrong: the compiler's own words come back, and name it.
TEST(EssentialKernels, AnErrorInTheTextIsReported) {
  if (const std::string reason = why_not_here(); !reason.empty()) GTEST_SKIP() << reason;
  const Source source{.name = "broken",
                      .extension = ".cu",
                      .text = "extern \"C\" __global__ void broken() { no_such_name(); }\n",
                      .headers = {}};
  jit::BuildOptions options;
  options.cache.folder = TESSERA_BUILD "/kernel-cache";
  options.worker = TESSERA_WORKER;
  try {
    jit::Builder(options).build(source, load_target("sm90a"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::compile_failed);
    const std::string what = error.what();
    EXPECT_EQ(what.find("broken: "), 0U) << what;
    EXPECT_NE(what.find("failed with exit code 1: kernel.cu(1): error: identifier "
                        "\"no_such_name\" is undefined"),
              std::string::npos)
        << what;
  }
}

}  // namespace
}  // namespace tessera
