// The gradient of a layer's filters over two halves of a batch: the second half is added to the
// first (beta), and the sum is the gradient over the whole batch. A kernel that a
// deterministic dispatcher chooses gives the same bits, however many threads add them up.
#include <tessera/tessera.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t kBatch = 4, kSide = 14, kInputs = 24, kOutputs = 16, kTaps = 3;

std::vector<float> pattern(std::int64_t count, int period) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = float(int(i) % period) / 16 - 0.5F;
  return values;
}

}  // namespace

int main() {
  tessera::ConvProblem problem;
  problem.direction = tessera::ConvDirection::backward_weight;
  problem.n = kBatch, problem.c = kInputs, problem.k = kOutputs;
  problem.size = {1, kSide, kSide};
  problem.filter = {1, kTaps, kTaps};
  problem.pad = {0, 1, 1};

  const std::vector<float> x = pattern(kBatch * kSide * kSide * kInputs, 17);
  const std::vector<float> grad_out = pattern(kBatch * kSide * kSide * kOutputs, 13);
  std::vector<float> whole(kOutputs * kTaps * kTaps * kInputs), again(whole.size()),
      halves(whole.size());

  tessera::Dispatcher dispatcher(tessera::DispatcherOptions{.deterministic = true});
  const std::string kernel = dispatcher.kernel_for(problem).name;
  const auto run = [&](std::int64_t first, std::int64_t images, float beta,
                       std::vector<float>& grad, int threads) {
    problem.n = images;
    problem.beta = beta;
    tessera::ConvOperands operands;
    operands.in = x.data() + first * kSide * kSide * kInputs;
    operands.grad_out = grad_out.data() + first * kSide * kSide * kOutputs;
    operands.c = operands.grad_weight = grad.data();
    tessera::RunOptions options;
    options.launch.threads = threads;
    options.force = kernel;
    dispatcher.run(problem, operands, options);
  };
  run(0, kBatch, 0, whole, 1);
  run(0, kBatch, 0, again, 2);
  std::printf("problem  %s\n", to_string(problem).c_str());
  std::printf("kernel   %s\n", kernel.c_str());
  const bool is_equal = std::memcmp(whole.data(), again.data(), whole.size() * sizeof(float)) == 0;
  std::printf("1 and 2 threads: %s\n", is_equal ? "the same bits" : "other bits");

  run(0, kBatch / 2, 0, halves, 0);
  run(kBatch / 2, kBatch / 2, 1, halves, 0);
  float worst = 0, largest = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    worst = std::max(worst, std::abs(whole[i] - halves[i]));
    largest = std::max(largest, std::abs(whole[i]));
  }
  std::printf("two halves differ from the whole by %g of %g\n", worst, largest);
  return is_equal && worst <= 1e-4F * largest ? 0 : 1;
}
