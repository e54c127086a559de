#include <array>

#include "tessera/device/stream_work.h"
#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {
namespace {

struct SampleSize {
  std::int64_t m, n, k;
};
// Whole tiles, edges, single rows and columns, and nothing at all.
constexpr std::array kSampleSizes = {SampleSize{64, 64, 64},  SampleSize{127, 129, 131},
                                     SampleSize{1, 257, 300}, SampleSize{257, 1, 67},
                                     SampleSize{5, 7, 3},     SampleSize{33, 65, 1},
                                     SampleSize{16, 16, 0},   SampleSize{0, 8, 8}};

constexpr std::int64_t kSampleGroups = 5;

}  // namespace

GemmProblem problem_of(const GemmSignature& signature, std::int64_t m, std::int64_t n,
                       std::int64_t k) {
  GemmProblem problem = gemm_problem(signature.a, signature.layout, m, n, k);
  problem.b = signature.b;
  problem.acc = signature.acc;
  problem.out = signature.out;
  problem.d = signature.d;
  problem.epilogue = signature.epilogue;
  problem.preshuffled_b = signature.preshuffled_b;
  problem.grouping = signature.grouping;
  if (signature.grouping != GemmGrouping::none) problem.groups = kSampleGroups;
  problem.scale_a = signature.scale_a;
  problem.scale_b = signature.scale_b;
  problem.scale_type = signature.scale_type;
  problem.gate = signature.gate;
  if (signature.gate != GemmGate::none) problem.n += n % 2;  // columns go in pairs
  problem.gate_interleaved = signature.gate_interleaved;
  problem.indexing = signature.indexing;
  if (signature.indexing != GemmIndexing::none) problem.index_room = m + 3;
  problem.quant = signature.quant;
  return problem;
}

// Makes sizes as odd as the kernel supports. GPU copies need multiples of some number, and each
// slice of k needs a tile, and stream-K shares out no fewer than some.
std::vector<Problem> samples(const KernelSpec& spec, const Target& target) {
  const auto& signature = std::get<GemmSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  const std::int64_t parts = a.streamk      ? 2 * device::kLeastStreamSteps
                             : a.slices > 1 ? std::int64_t{a.splits} * a.slices
                                            : 0;
  const std::int64_t more_k = parts * a.tile.k;
  std::vector<Problem> problems;
  for (const std::int64_t unit : {1, 4, 8, 16}) {
    for (const SampleSize& size : kSampleSizes) {
      const GemmProblem p =
          problem_of(signature, unit * size.m, unit * size.n, unit * size.k + more_k);
      if (supports(spec, p, target)) problems.emplace_back(p);
    }
    if (!problems.empty()) break;
  }
  return problems;
}

}  // namespace tessera::gemm
