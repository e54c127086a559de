// What tests of GEMM's CPU kernels have in common: the kernel of a row, fresh random numbers, a
// launch by some threads.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "cpu/gemm/tile_registry.h"
#include "cpu/guarded.h"
#include "tessera/families/operands.h"

namespace tessera::gemm_kernel {

// The kernels of a usual run, and those of a long one.
struct Kernels {
  std::vector<KernelSpec> usual, others;
};

// Every second kernel that packs B becomes one that streams it past parts of few rows, where such a
// kernel is legal.
inline KernelSpec streaming_every_second(std::size_t number, KernelSpec spec,
                                         const Target& target) {
  if (spec.algorithm.pipeline != Pipeline::packab || number % 2 != 0) return spec;
  KernelSpec streams = spec;
  streams.algorithm.pipeline = Pipeline::stream;
  return family_of(Op::gemm).is_legal(streams, target) ? streams : spec;
}

class GemmKernelTest : public testing::TestWithParam<KernelSpec> {
 protected:
  const KernelSpec& spec = GetParam();
  const GemmSignature& signature = std::get<GemmSignature>(spec.signature);
  const Target& target = tile_registry::target_named(spec.target);
  const Family& family = family_of(Op::gemm);
  std::uint64_t seed = testing_support::seed_of_run();
  std::mt19937_64 random{seed};
  std::shared_ptr<const runtime::LoadedKernel> kernel = tile_registry::registry().get(spec);

  std::int64_t draw(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  }

  void launch(const Problem& p, const Operands& operands, int threads) {
    const OpenMpLimit limit(threads);
    runtime::LaunchOptions options;
    options.threads = threads;
    kernel->launch(family.bind(spec, p, target, operands), options);
  }
};

}  // namespace tessera::gemm_kernel
