// A layer's three convolutions: the output, the gradient of the input, and the gradient of the
// filters. One identity checks all of them: <grad_out, conv(x, w)>, <x, backward_data(grad_out, w)>
// and <w, backward_weight(x, grad_out)> are the same number.
#include <tessera/tessera.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

namespace {

// A smooth pattern between -1 and 1.
std::vector<float> wave(std::int64_t count, double step) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(float(step * double(i)));
  return values;
}

double inner_product(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += double(a[i]) * b[i];
  return sum;
}

}  // namespace

int main() {
  // 12 channels to 18 in 3 groups, 3x3 with a stride of 2. Images are [n][h][w][c], filters
  // [k][y][x][c / g]. Sizes have a depth first, which is 1 here.
  tessera::ConvProblem problem;
  problem.n = 4, problem.c = 12, problem.k = 18, problem.g = 3;
  problem.size = {1, 15, 17};
  problem.filter = {1, 3, 3};
  problem.stride = {1, 2, 2};
  problem.pad = {0, 1, 1};
  const tessera::Spatial out_size = tessera::out_size(problem);

  const std::int64_t pixels = out_size[1] * out_size[2];
  const std::vector<float> x = wave(problem.n * 15 * 17 * problem.c, 0.37);
  const std::vector<float> w = wave(problem.k * 3 * 3 * problem.c / problem.g, 0.71);
  const std::vector<float> grad_out = wave(problem.n * pixels * problem.k, 0.13);
  std::vector<float> out(grad_out.size()), grad_x(x.size()), grad_w(w.size());

  tessera::Dispatcher dispatcher;
  const auto run = [&](tessera::ConvDirection direction, const tessera::ConvOperands& operands) {
    problem.direction = direction;
    dispatcher.run(problem, operands, {.verify = true});  // throws unless each element is right
    std::printf("%s\n  %s\n", to_string(problem).c_str(),
                dispatcher.kernel_for(problem).name.c_str());
  };
  try {
    run(tessera::ConvDirection::forward, {.in = x.data(), .weight = w.data(), .out = out.data()});
    run(tessera::ConvDirection::backward_data,
        {.weight = w.data(), .grad_out = grad_out.data(), .grad_in = grad_x.data()});
    run(tessera::ConvDirection::backward_weight,
        {.in = x.data(), .grad_out = grad_out.data(), .grad_weight = grad_w.data()});
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }

  const double first = inner_product(grad_out, out);
  const double second = inner_product(x, grad_x);
  const double third = inner_product(w, grad_w);
  std::printf("%.5f = %.5f = %.5f\n", first, second, third);
  const double close = 1e-4 * (1 + std::abs(first));
  return std::abs(first - second) < close && std::abs(first - third) < close ? 0 : 1;
}
