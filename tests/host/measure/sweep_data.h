// Measurements made up for tests.
#pragma once

#include <fmt/format.h>

#include <random>
#include <string>

#include "tessera/measure/sweep_store.h"

namespace tessera::testing_support {

inline measure::SweepRun sweep_run(const std::string& id, std::int64_t started = 1000) {
  measure::SweepRun run;
  run.id = id;
  run.device = "cpu \"model\", 7";
  run.target = "avx2";
  run.threads = 2;
  run.version = "0.1.0";
  run.abi = 1;
  run.compiler = "g++ 12";
  run.protocol = "protocol, words";
  run.seed = 9;
  run.clock_mhz = 2400.5;
  run.started = started;
  return run;
}

// `problems` x `kernels` rows of one run, times drawn at random; sorted.
inline measure::SweepData random_data(const measure::SweepRun& run, int problems, int kernels,
                                      std::uint64_t seed, int first_problem = 1) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(1e-6, 1e-3);
  measure::SweepData data;
  data.runs = {run};
  for (int p = 0; p < problems; ++p) {
    data.problems.push_back(fmt::format("gemm m={} n=2 k=3", first_problem + p));
  }
  for (int k = 0; k < kernels; ++k) data.kernels.push_back(fmt::format("kernel{}", k));
  for (int p = 0; p < problems; ++p) {
    for (int k = 0; k < kernels; ++k) {
      measure::SweepRow row{.run = 0, .problem = p, .kernel = k};
      row.at = uniform(random) * 1e6;
      if (random() % 8 == 0) {
        row.outcome = static_cast<measure::Outcome>(1 + random() % 5);
        row.note = "it's \"broken\",\nquite";
      } else {
        row.seconds = uniform(random);
        row.spread = uniform(random);
        row.min_seconds = row.seconds / 2;
        row.readings = static_cast<int>(random() % 11);
        row.finalist = random() % 2 == 0;
      }
      data.rows.push_back(row);
    }
  }
  data.clock = {{0, 0, 0, 1.25, uniform(random)}, {0, 0, 0, 6.5, uniform(random)}};
  return sorted(data);
}

}  // namespace tessera::testing_support
