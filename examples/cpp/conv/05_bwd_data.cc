// The gradient of a layer's input, for a stride of 2: several sizes of input give an output of the
// same size, so that the problem names the input's. It is added to a gradient that is there already
// (beta), as where a network branches, and compared with the plain loop.
#include <tessera/tessera.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

constexpr int kImages = 2, kSize = 12, kOutSize = 6, kC = 16, kK = 24, kFilter = 3, kPad = 1;

std::vector<float> pattern(int count, int period) {
  std::vector<float> values(count);
  for (int i = 0; i < count; ++i) values[i] = static_cast<float>(i % period) / period - 0.5F;
  return values;
}

// Each element of grad_out goes to all elements of x that it was made of.
void plain_loop(const std::vector<float>& grad_out, const std::vector<float>& w,
                std::vector<float>& grad_x) {
  for (int i = 0; i < kImages * kOutSize * kOutSize * kK; ++i) {
    const int k = i % kK, column = i / kK % kOutSize, row = i / kK / kOutSize % kOutSize;
    const int image = i / kK / kOutSize / kOutSize;
    for (int f = 0; f < kFilter * kFilter; ++f) {
      const int y = 2 * row + f / kFilter - kPad, x = 2 * column + f % kFilter - kPad;
      if (y < 0 || y >= kSize || x < 0 || x >= kSize) continue;
      float* const at = &grad_x[((image * kSize + y) * kSize + x) * kC];
      const float* const filter = &w[(k * kFilter * kFilter + f) * kC];
      for (int c = 0; c < kC; ++c) at[c] += grad_out[i] * filter[c];
    }
  }
}

}  // namespace

int main() {
  tessera::ConvProblem problem;
  problem.direction = tessera::ConvDirection::backward_data;
  problem.n = kImages, problem.c = kC, problem.k = kK;
  problem.size = {1, kSize, kSize};  // 11 x 11 would have an output of 6 x 6 as well
  problem.filter = {1, kFilter, kFilter};
  problem.stride = {1, 2, 2};
  problem.pad = {0, kPad, kPad};
  problem.beta = 1;
  if (tessera::out_size(problem) != tessera::Spatial{1, kOutSize, kOutSize}) return 1;

  const std::vector<float> grad_out = pattern(kImages * kOutSize * kOutSize * kK, 17);
  const std::vector<float> w = pattern(kK * kFilter * kFilter * kC, 13);
  std::vector<float> grad_x = pattern(kImages * kSize * kSize * kC, 7);
  std::vector<float> expected = grad_x;
  plain_loop(grad_out, w, expected);

  // C, which beta multiplies, may be the place of the result.
  tessera::ConvOperands operands{.weight = w.data(), .grad_out = grad_out.data()};
  operands.c = operands.grad_in = grad_x.data();
  tessera::Dispatcher dispatcher;
  dispatcher.run(problem, operands);
  std::printf("problem  %s\n", to_string(problem).c_str());
  std::printf("kernel   %s\n", dispatcher.kernel_for(problem).name.c_str());

  float worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    worst = std::max(worst, std::abs(grad_x[i] - expected[i]));
  }
  std::printf("largest difference from the plain loop: %g\n", worst);
  return worst < 1e-4F ? 0 : 1;
}
