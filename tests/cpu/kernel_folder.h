// What tests of a family's CPU kernels share: the targets of this machine, kernels that a second
// run need not compile, seeds, launches, and what must hold behind each.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "openmp_limit.h"
#include "tessera/measure/operands.h"
#include "tessera/registry/registry.h"
#include "tessera/runtime/runtime.h"
#include "tessera/targets/targets.h"

namespace tessera::testing_support {

inline std::vector<Target> targets_here() {
  std::vector<Target> targets;
  for (const char* name : {"avx512", "avx2", "generic"}) {
    Target row = name == host_target().name ? host_target() : load_target(name);
    if (runtime::backend_for(row).unavailable_reason(row).empty()) targets.push_back(row);
  }
  return targets;
}

// A usual run takes the first target of this machine and one of the others, which the seed chooses;
// with TESSERA_TEST_TIMES, as in long runs, it takes all.
inline std::vector<Target> targets_of_run(std::uint64_t seed) {
  std::vector<Target> all = targets_here();
  if (all.size() < 3 || std::getenv("TESSERA_TEST_TIMES") != nullptr) return all;
  return {all.front(), all[1 + seed % (all.size() - 1)]};
}

// One for the process; the folder <name>_kernels of the working directory outlives it.
inline Registry& registry_in(const std::string& name) {
  static Registry& instance = [&]() -> Registry& {
    jit::BuildOptions options;
    options.cache.folder = std::filesystem::current_path() / (name + "_kernels");
    options.worker = TESSERA_WORKER;
    static Registry made(name, options);
    for (const Target& target : targets_here()) made.add_target(target);
    return made;
  }();
  return instance;
}

// A new seed, unless --gtest_random_seed gives the seed of a run that failed.
inline std::uint64_t seed_of_run() {
  const auto fixed = static_cast<std::uint64_t>(testing::GTEST_FLAG(random_seed));
  return fixed != 0 ? fixed : std::random_device{}() % 99999 + 1;
}

inline void launch(Registry& registry, const KernelSpec& spec, const Problem& problem,
                   const Operands& operands, int threads) {
  const OpenMpLimit limit(threads);
  runtime::LaunchOptions options;
  options.threads = threads;
  registry.get(spec)->launch(
      family_of(problem).bind(spec, problem, load_target(spec.target), operands), options);
}

// The outputs are right, and nothing else was written.
inline void expect_verified(const Problem& problem, const measure::OwnedOperands& owned) {
  EXPECT_EQ(measure::gaps_intact(owned), "");
  const Mismatch mismatch = family_of(problem).verify(problem, owned.operands);
  EXPECT_TRUE(mismatch.ok) << mismatch.message;
}
// The same of a kernel that updates what it reads; `before` knows that.
inline void expect_compared(const Problem& problem, const measure::OwnedOperands& owned,
                            const Reference& before) {
  EXPECT_EQ(measure::gaps_intact(owned), "");
  const Mismatch mismatch = family_of(problem).compare(problem, owned.operands, before);
  EXPECT_TRUE(mismatch.ok) << mismatch.message;
}

}  // namespace tessera::testing_support
