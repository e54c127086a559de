// Kernels of several tiles side by side, on a 3x3 and a 1x1 layer in fp16 on images of 56 x 56: the
// best kernel of each tile is timed, and its result is compared with the result in fp32. The first
// argument is the number of images; TESSERA_TARGET=sm90a measures on a GPU.
#include <tessera/tools.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kTiles = 6;  // tiles

// The best kernel of each tile, best tile first.
std::vector<std::string> best_of_tiles(const tessera::Decision& decision) {
  std::vector<std::string> names;
  std::set<std::string> tiles;
  for (const auto& considered : decision.considered) {
    if (!considered.refusal.empty() || names.size() == kTiles) break;
    const tessera::KernelSpec spec = tessera::parse_name(considered.name);
    if (tiles.insert(to_string(spec.algorithm.tile)).second) names.push_back(considered.name);
  }
  return names;
}

// What one kernel makes of random operands, and its time.
struct Result {
  std::vector<double> out;
  double seconds = 0;
};
Result run_once(tessera::Dispatcher& dispatcher, const tessera::ConvProblem& problem,
                const std::string& kernel) {
  const tessera::runtime::Place place{&tessera::runtime::backend_for(dispatcher.target()), {}};
  auto owned = tessera::measure::random_operands(problem, 42);  // equal for equal sizes and types
  auto placed = tessera::measure::place_operands(owned, place);
  tessera::RunOptions options;
  options.force = kernel;
  const auto call = [&] { dispatcher.run(problem, placed.operands, options); };
  call();
  tessera::measure::fetch_outputs(owned, placed, place);
  const void* const out = std::get<tessera::ConvOperands>(owned.operands).out;
  Result result;
  for (std::int64_t i = 0; i < problem.n * 56 * 56 * problem.k; ++i) {
    result.out.push_back(tessera::load_element(problem.out, out, i));
  }
  result.seconds =
      tessera::runtime::measure({{kernel, call}}, {.rounds = 5}, place).front().median_seconds;
  return result;
}

bool measure_layer(tessera::Dispatcher& dispatcher, const std::string& line) {
  const auto problem = std::get<tessera::ConvProblem>(tessera::parse_problem(line));
  tessera::ConvProblem wide = problem;
  wide.out = wide.d = tessera::DType::fp32;
  const Result exact = run_once(dispatcher, wide, "");
  std::printf("%s\n", line.c_str());
  bool all_near = true;
  for (const std::string& name : best_of_tiles(dispatcher.explain(problem))) {
    const Result result = run_once(dispatcher, problem, name);
    double worst = 0;
    for (std::size_t i = 0; i < exact.out.size(); ++i) {
      worst = std::max(worst, std::abs(result.out[i] - exact.out[i]));
    }
    std::printf("  %8.3f TFLOP/s  max_abs_diff %.6f  %s\n",
                tessera::flops_of(problem) / result.seconds / 1e12, worst, name.c_str());
    all_near = all_near && worst < 0.002;
  }
  return all_near;
}

}  // namespace

int main(int argc, char** argv) {
  tessera::Dispatcher dispatcher;
  const bool on_gpu = tessera::is_gpu(dispatcher.target());
  const std::string images = argc > 1 ? argv[1] : on_gpu ? "32" : "1";
  // alpha keeps the sums below 4, where fp16 rounds by at most 0.001.
  const std::string head =
      "conv direction=forward n=" + images + " h=56 w=56 dtype=fp16 alpha=0.0625 ";
  const bool first = measure_layer(dispatcher, head + "c=64 k=64 y=3 x=3 pad_h=1 pad_w=1");
  return measure_layer(dispatcher, head + "c=64 k=256") && first ? 0 : 1;
}
