// What tests of the dispatcher share.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "openmp_limit.h"
#include "tessera/base/files.h"
#include "tessera/dispatch/dispatcher.h"

namespace tessera {

// Throws away what the test builds.
struct DispatcherTest : testing::Test {
  fs::path folder = make_unique_folder(fs::temp_directory_path(), "tessera-dispatch-");
  std::uint64_t seed = std::random_device{}();
  OpenMpLimit limit{2};

  DispatcherTest() { RecordProperty("seed", std::to_string(seed)); }
  ~DispatcherTest() override { remove_tree(folder); }

  // The generic row runs everywhere, and its names do not depend on the machine.
  DispatcherOptions options() const {
    DispatcherOptions o;
    o.target = "generic";
    o.build.cache.folder = folder / "cache";
    o.tuning_worker = TESSERA_WORKER;
    return o;
  }
};

inline RunOptions verified() {
  RunOptions run;
  run.verify = true;
  return run;
}
inline RunOptions with_threads(int threads, const std::string& force = {}) {
  RunOptions run;
  run.launch.threads = threads;
  run.force = force;
  return run;
}
inline RunOptions forced(const std::string& name) { return with_threads(0, name); }

inline GemmProblem small(std::int64_t m = 33) {
  return gemm_problem(DType::fp32, GemmLayout::rcr, m, 17, 29);
}

}  // namespace tessera
