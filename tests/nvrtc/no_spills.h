// What tests of GPU kernels that are only compiled share.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/jit/build.h"
#include "tessera/jit/nvrtc.h"
#include "tessera/targets/targets.h"

namespace tessera {

// Compiles kernels for Hopper; skips where NVRTC is missing.
class NvrtcTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      jit::find_nvrtc({.library = {}, .worker = TESSERA_WORKER});
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  void expect_no_spills(const std::vector<Source>& sources) const { expect_spills(sources, 0); }

  // At most so many bytes of a thread.
  void expect_spills(const std::vector<Source>& sources, int most) const {
    jit::BuildOptions options;
    options.cache.folder = TESSERA_BUILD "/kernel-cache";
    options.worker = TESSERA_WORKER;
    options.use_shipped_packs = false;
    jit::Builder builder(options);
    std::set<std::string> keys;  // the cache may hold what an earlier build left there
    for (const jit::BuildResult& result : builder.build_all(sources, target_, 0)) {
      EXPECT_EQ(result.error, "");
      keys.insert(result.artifact.key);
    }
    std::size_t seen = 0;
    for (const jit::EntryInfo& entry : builder.cache().list()) {
      if (!keys.contains(entry.key)) continue;
      ++seen;
      for (const char* fact : {"spill_store_bytes", "spill_load_bytes"}) {
        EXPECT_LE(entry.facts.at(fact), most) << entry.name << ": " << fact;
      }
    }
    EXPECT_EQ(seen, sources.size());
  }

  // The essential kernels of a family, each source once.
  std::vector<Source> essential_sources(Op op) const {
    const Family& family = family_of(op);
    std::set<std::string> names;
    std::vector<Source> sources;
    for (const std::string& set : family.preselected_names()) {
      for (const KernelSpec& spec : family.preselected(set, target_)) {
        if (names.insert(family.source_name(spec)).second) {
          sources.push_back(family.emit(spec, target_));
        }
      }
    }
    return sources;
  }

  Target target_ = load_target("sm90a");
};

}  // namespace tessera
