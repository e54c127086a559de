// Every convolution that ships for a GPU compiles, without spilling a register. No GPU is needed.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tessera/base/error.h"
#include "tessera/jit/build.h"
#include "tessera/jit/nvrtc.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

TEST(EssentialConvs, CompileForHopperWithoutSpills) {
  try {
    jit::find_nvrtc({.library = {}, .worker = TESSERA_WORKER});
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const Target target = load_target("sm90a");
  const Family& family = family_of(Op::conv);
  std::vector<Source> sources;
  std::set<std::string> names;  // GEMM's kernels serve two directions
  for (const std::string& set : family.preselected_names()) {
    for (const KernelSpec& spec : family.preselected(set, target)) {
      if (names.insert(family.source_name(spec)).second) {
        sources.push_back(family.emit(spec, target));
      }
    }
  }
  ASSERT_EQ(sources.size(), 273U);
  jit::BuildOptions options;
  options.cache.folder = TESSERA_BUILD "/kernel-cache";
  options.worker = TESSERA_WORKER;
  options.use_shipped_packs = false;
  jit::Builder builder(options);
  std::set<std::string> keys;  // the cache may hold what an earlier build left there
  for (const jit::BuildResult& result : builder.build_all(sources, target, 0)) {
    EXPECT_EQ(result.error, "");
    keys.insert(result.artifact.key);
  }
  std::size_t seen = 0;
  for (const jit::EntryInfo& entry : builder.cache().list()) {
    if (!keys.contains(entry.key)) continue;
    ++seen;
    for (const char* fact : {"spill_store_bytes", "spill_load_bytes"}) {
      EXPECT_EQ(entry.facts.at(fact), 0) << entry.name << ": " << fact;
    }
  }
  EXPECT_EQ(seen, sources.size());
}

}  // namespace
}  // namespace tessera
