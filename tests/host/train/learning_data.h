// Times made up for learning: what the analytic estimate says, bent by something simple.
#pragma once

#include <cmath>
#include <random>

#include "host/measure/sweep_data.h"
#include "tessera/families/family.h"
#include "tessera/targets/targets.h"

namespace tessera::testing_support {

// So many fp32 kernels of the target for problems of any size, from all over its list: neighbours
// there are too alike for their order to mean anything.
inline std::vector<KernelSpec> kernels_apart(const Target& target, std::size_t wanted) {
  const Family& family = family_of(Op::gemm);
  const Problem any = gemm_problem(DType::fp32, GemmLayout::rcr, 512, 512, 512);
  std::vector<KernelSpec> all = family.candidates(any, target);
  std::erase_if(all, [&](const KernelSpec& spec) {
    return !family.is_legal(spec, target) || !family.supports(spec, any, target);
  });
  std::vector<KernelSpec> apart;
  for (std::size_t i = 0; i < wanted; ++i) apart.push_back(all[i * all.size() / wanted]);
  return apart;
}

// `problems` of the learned side (`unseen` more of the other) x `kernels`, on avx512 with 1 thread.
// Kernels whose tile_m is 96 or more are faster than their estimates.
inline measure::SweepData learning_data(std::uint64_t seed, int problems, int kernels,
                                        int unseen = 0) {
  std::mt19937_64 random(seed);
  const Target target = load_target("avx512");
  const Family& family = family_of(Op::gemm);
  const std::vector<KernelSpec> specs = kernels_apart(target, static_cast<std::size_t>(kernels));
  measure::SweepData data;
  measure::SweepRun run = sweep_run("0123456789abcdef0123456789abcdef");
  run.target = "avx512";
  run.threads = 1;
  data.runs = {run};
  for (const KernelSpec& spec : specs) data.kernels.push_back(name_of(spec));
  std::uniform_int_distribution<std::int64_t> side(16, 2048);
  std::uniform_real_distribution<double> noise(-0.01, 0.01);
  while (problems + unseen > 0) {
    const GemmProblem p =
        gemm_problem(DType::fp32, GemmLayout::rcr, side(random), side(random), side(random));
    int& wanted = is_unseen(p) ? unseen : problems;
    if (wanted == 0) continue;
    --wanted;
    const int place = static_cast<int>(data.problems.size());
    data.problems.push_back(to_string(Problem(p)));
    for (int k = 0; k < static_cast<int>(specs.size()); ++k) {
      const KernelSpec& spec = specs[static_cast<std::size_t>(k)];
      const double bent = spec.algorithm.tile.m >= 96 ? 0.6 : 1;
      measure::SweepRow row{.run = 0, .problem = place, .kernel = k};
      row.seconds = family.estimate(spec, p, target, 1).seconds * bent * std::exp(noise(random));
      row.min_seconds = row.seconds;
      row.readings = 3;
      data.rows.push_back(row);
    }
  }
  return sorted(data);
}

}  // namespace tessera::testing_support
