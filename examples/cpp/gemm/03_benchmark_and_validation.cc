// Which of the three best candidates is fastest here? Validate each, then time them against each
// other and against a plain loop: interleaved, in random order, medians of paired ratios.
#include <tessera/tools.hpp>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace {

constexpr int kSize = 192;

void plain_loop(const float* a, const float* b, float* out) {
  std::fill(out, out + kSize * kSize, 0.0F);
  for (int i = 0; i < kSize; ++i) {
    for (int p = 0; p < kSize; ++p) {
      for (int j = 0; j < kSize; ++j) out[i * kSize + j] += a[i * kSize + p] * b[p * kSize + j];
    }
  }
}

}  // namespace

int main() {
  const tessera::GemmProblem problem =
      tessera::gemm_problem(tessera::DType::fp32, tessera::GemmLayout::rrr, kSize, kSize, kSize);
  const auto owned = tessera::measure::random_operands(problem, 42);
  const auto& operands = std::get<tessera::GemmOperands>(owned.operands);

  tessera::Dispatcher dispatcher;
  std::vector<tessera::runtime::Candidate> candidates;
  for (const auto& considered : dispatcher.explain(problem).considered) {  // best first
    if (!considered.refusal.empty() || candidates.size() == 3) break;
    tessera::RunOptions run;
    run.launch.threads = 1;
    run.force = considered.name;  // that one or an error
    run.verify = true;            // throws unless every element is within its tolerance
    dispatcher.run(problem, operands, run);

    run.verify = false;
    candidates.push_back({considered.name, [&dispatcher, &problem, &operands, run] {
                            dispatcher.run(problem, operands, run);
                          }});
  }
  std::printf("%zu candidates validated\n", candidates.size());

  std::vector<float> plain_out(kSize * kSize);
  candidates.push_back({"plain loop", [&] {
                          plain_loop(static_cast<const float*>(operands.a),
                                     static_cast<const float*>(operands.b), plain_out.data());
                        }});

  const tessera::runtime::Protocol protocol{.rounds = 7, .warmup = 1, .min_seconds = 0.005};
  const auto timings = tessera::runtime::measure(candidates, protocol);
  const double flops = tessera::flops_of(problem);
  const tessera::runtime::Timing& plain = timings.back();
  for (const tessera::runtime::Timing& timing : timings) {
    const auto ratio = tessera::runtime::paired_ratio(timing, plain);
    std::printf("%8.1f us +- %4.1f%%  %7.2f GFLOP/s  %5.1fx plain  %s\n",
                timing.median_seconds * 1e6, timing.spread * 50,
                flops / timing.median_seconds / 1e9, ratio.median, timing.name.c_str());
  }

  // The plain loop too is compared with the reference.
  tessera::GemmOperands plain_operands = operands;
  plain_operands.out = plain_out.data();
  const tessera::Mismatch mismatch = tessera::verify(problem, plain_operands);
  std::printf("plain loop: %s\n", mismatch.ok ? "verified" : mismatch.message.c_str());
  return mismatch.ok ? 0 : 1;
}
