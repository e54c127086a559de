// A transformer's feed-forward layer in one pass: out = gelu(A x B + bias) in bf16. The epilogue is
// applied while the product is still in registers, so the result is written to memory once.
#include <tessera/tessera.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

using Bf16 = std::uint16_t;  // the bits, as frameworks store them
constexpr auto kBf16 = tessera::DType::bf16;
constexpr int kTokens = 48;
constexpr int kIn = 96;
constexpr int kOut = 160;

// A smooth pattern between -1/2 and 1/2.
std::vector<Bf16> wave(int count, double step) {
  std::vector<Bf16> values(count);
  for (int i = 0; i < count; ++i) {
    tessera::store_element(kBf16, values.data(), i, std::sin(step * i) / 2);
  }
  return values;
}

// The same in double precision, element by element.
double expected(const std::vector<Bf16>& x, const std::vector<Bf16>& weight,
                const std::vector<float>& bias, int token, int channel) {
  double sum = bias[channel];
  for (int p = 0; p < kIn; ++p) {
    sum += tessera::load_element(kBf16, x.data(), token * kIn + p) *
           tessera::load_element(kBf16, weight.data(), channel * kIn + p);
  }
  return sum / 2 * (1 + std::erf(sum / std::sqrt(2.0)));
}

}  // namespace

int main() {
  const std::vector<Bf16> x = wave(kTokens * kIn, 0.37);
  const std::vector<Bf16> weight = wave(kOut * kIn, 0.11);  // [out][in], hence layout rcr
  std::vector<float> bias(kOut);
  for (int i = 0; i < kOut; ++i) bias[i] = static_cast<float>(i % 5) / 4 - 0.5F;
  std::vector<Bf16> out(kTokens * kOut);

  tessera::GemmProblem problem =
      tessera::gemm_problem(kBf16, tessera::GemmLayout::rcr, kTokens, kOut, kIn);
  problem.epilogue = tessera::parse_epilogue("bias+gelu");
  problem.d = tessera::DType::fp32;  // of the bias; by default it is out's type

  tessera::GemmOperands operands{.a = x.data(), .b = weight.data(), .out = out.data()};
  operands.d[0] = bias.data();  // steps take D tensors in their order: the bias is the first

  tessera::Dispatcher dispatcher;
  dispatcher.run(problem, operands);
  std::printf("problem  %s\n", to_string(problem).c_str());
  std::printf("kernel   %s\n", dispatcher.kernel_for(problem).name.c_str());

  // bf16 keeps 8 bits: half a unit in the last place is 1/256 of the value at most.
  int wrong = 0;
  for (int i = 0; i < kTokens * kOut; ++i) {
    const double want = expected(x, weight, bias, i / kOut, i % kOut);
    const double got = tessera::load_element(kBf16, out.data(), i);
    wrong += std::abs(got - want) <= std::abs(want) / 256 + 1e-5 ? 0 : 1;
  }
  std::printf("%d of %d elements differ from gelu(A x B + bias)\n", wrong, kTokens * kOut);
  return wrong == 0 ? 0 : 1;
}
