// Three layers of networks on images of 56 x 56 in fp16: 3x3, the same in 32 groups, and 1x1. Each
// is compared with the plain loop on some elements, and timed. The first argument is the number of
// images; TESSERA_TARGET=sm90a runs the layers on a GPU.
#include <tessera/tools.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

using tessera::ConvOperands;
using tessera::ConvProblem;

// One element of the output by the definition; x and w are fp16, channels last.
double plain_loop(const ConvProblem& p, const ConvOperands& o, int image, int row, int column,
                  int channel) {
  const std::int64_t c = p.c / p.g, group = channel / (p.k / p.g);
  double sum = 0;
  for (std::int64_t fy = 0; fy < p.filter[1]; ++fy) {
    for (std::int64_t fx = 0; fx < p.filter[2]; ++fx) {
      const std::int64_t h = row + fy - p.pad[1], w = column + fx - p.pad[2];
      if (h < 0 || h >= p.size[1] || w < 0 || w >= p.size[2]) continue;
      for (std::int64_t i = 0; i < c; ++i) {
        const std::int64_t x = ((image * p.size[1] + h) * p.size[2] + w) * p.c + group * c + i;
        const std::int64_t f = ((channel * p.filter[1] + fy) * p.filter[2] + fx) * c + i;
        sum += tessera::load_element(p.in, o.in, x) * tessera::load_element(p.weight, o.weight, f);
      }
    }
  }
  return p.alpha * sum;
}

// The largest difference over every 97th element.
double max_abs_diff(const ConvProblem& p, const ConvOperands& o) {
  double worst = 0;
  for (std::int64_t i = 0; i < p.n * p.size[1] * p.size[2] * p.k; i += 97) {
    const int channel = int(i % p.k), column = int(i / p.k % p.size[2]);
    const int row = int(i / p.k / p.size[2] % p.size[1]),
              image = int(i / p.k / p.size[2] / p.size[1]);
    const double got = tessera::load_element(p.out, o.out, i);
    worst = std::max(worst, std::abs(got - plain_loop(p, o, image, row, column, channel)));
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  tessera::Dispatcher dispatcher;
  const bool on_gpu = tessera::is_gpu(dispatcher.target());
  const std::string images = argc > 1 ? argv[1] : on_gpu ? "32" : "1";
  const tessera::runtime::Place place{&tessera::runtime::backend_for(dispatcher.target()), {}};
  bool all_near = true;
  for (const char* const layer : {"c=64 k=64 y=3 x=3 pad_h=1 pad_w=1",
                                  "c=128 k=128 g=32 y=3 x=3 pad_h=1 pad_w=1", "c=64 k=256"}) {
    // alpha keeps the sums below 4, where fp16 rounds by at most 0.001.
    const tessera::Problem problem = tessera::parse_problem(
        "conv direction=forward n=" + images + " h=56 w=56 dtype=fp16 alpha=0.0625 " + layer);
    auto owned = tessera::measure::random_operands(problem, 42);
    auto placed = tessera::measure::place_operands(owned, place);
    const auto run = [&] { dispatcher.run(problem, placed.operands); };
    run();
    tessera::measure::fetch_outputs(owned, placed, place);

    const double worst =
        max_abs_diff(std::get<ConvProblem>(problem), std::get<ConvOperands>(owned.operands));
    const auto timing = tessera::runtime::measure({{layer, run}}, {.rounds = 5}, place).front();
    std::printf("%s\n  %s\n  %.3f TFLOP/s, max_abs_diff %.6f\n", to_string(problem).c_str(),
                dispatcher.kernel_for(problem).name.c_str(),
                tessera::flops_of(problem) / timing.median_seconds / 1e12, worst);
    all_near = all_near && worst < 0.002;
  }
  return all_near ? 0 : 1;
}
