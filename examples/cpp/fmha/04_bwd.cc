// The gradients of attention: what a loss changes by q, k and v, checked by finite differences and
// against the definition. The weights are made again from the log-sum-exp that attention stored.
#include <tessera/tessera.hpp>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

namespace {

constexpr std::int64_t kTrainedBatch = 2, kTrainedHeads = 4, kTrainedHeadsKv = 2,
                       kTrainedTokens = 40, kTrainedHdim = 32;
using TrainedFloats = std::vector<float>;

TrainedFloats draw_trained(std::int64_t heads, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  TrainedFloats all(
      static_cast<std::size_t>(kTrainedBatch * kTrainedTokens * heads * kTrainedHdim));
  for (float& x : all) x = normal(random);
  return all;
}

double sum_of_products(const TrainedFloats& a, const TrainedFloats& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += double(a[i]) * b[i];
  return sum;
}

}  // namespace

int main() {
  tessera::Dispatcher dispatcher;
  tessera::FmhaProblem forward =
      tessera::fmha_problem(tessera::DType::fp32, kTrainedBatch, kTrainedHeads, kTrainedHeadsKv,
                            kTrainedTokens, kTrainedTokens, kTrainedHdim);
  forward.mask = tessera::FmhaMask::top_left;
  tessera::FmhaProblem backward = forward;
  forward.lse = true;
  backward.kind = tessera::FmhaKind::backward;

  TrainedFloats inputs[] = {draw_trained(kTrainedHeads, 1), draw_trained(kTrainedHeadsKv, 2),
                            draw_trained(kTrainedHeadsKv, 3)};  // q, k, v
  const TrainedFloats dout = draw_trained(kTrainedHeads, 4);
  TrainedFloats out(dout.size()), lse(kTrainedBatch * kTrainedHeads * kTrainedTokens);
  const auto loss = [&] {  // the sum of the products with dout, so that dout is its gradient
    dispatcher.run(forward, tessera::FmhaOperands{.q = inputs[0].data(),
                                                  .k = inputs[1].data(),
                                                  .v = inputs[2].data(),
                                                  .out = out.data(),
                                                  .lse = lse.data()});
    return sum_of_products(out, dout);
  };
  const double here = loss();

  TrainedFloats gradients[] = {inputs[0], inputs[1],
                               inputs[2]};  // dq, dk, dv: every element is written
  dispatcher.run(backward,
                 tessera::FmhaOperands{.q = inputs[0].data(),
                                       .k = inputs[1].data(),
                                       .v = inputs[2].data(),
                                       .out = out.data(),
                                       .lse = lse.data(),
                                       .dout = dout.data(),
                                       .dq = gradients[0].data(),
                                       .dk = gradients[1].data(),
                                       .dv = gradients[2].data()},
                 {.verify = true});  // throws unless it is right
  std::printf("loss %.4f, gradients by %s\n", here, dispatcher.kernel_for(backward).name.c_str());

  bool right = true;
  const char* const names[] = {"dq", "dk", "dv"};
  for (std::size_t i = 0; i < 3; ++i) {  // along a random direction
    constexpr float kStep = 4e-3F;
    const TrainedFloats before = inputs[i];
    const TrainedFloats way =
        draw_trained(i == 0 ? kTrainedHeads : kTrainedHeadsKv, 10U + unsigned(i));
    double ends[2] = {0, 0};
    for (const int side : {0, 1}) {
      for (std::size_t e = 0; e < before.size(); ++e) {
        inputs[i][e] = before[e] + (side == 0 ? -kStep : kStep) * way[e];
      }
      ends[side] = loss();
    }
    inputs[i] = before;
    const double slope = (ends[1] - ends[0]) / (2 * double(kStep));
    const double said = sum_of_products(gradients[i], way);
    std::printf("%s: the loss's slope is %9.4f, the gradient says %9.4f\n", names[i], slope, said);
    right = std::abs(slope - said) < 2e-2 + 2e-3 * std::abs(said) && right;
  }
  return right ? 0 : 1;
}
