// A layer of experts: a router chooses the experts of each token and puts rows in their order, one
// product gathers the rows and applies a gate, one scatters its rows times their weights.
#include <tessera/tessera.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

constexpr int kLayerTokens = 40, kExperts = 8, kTopK = 2, kHidden = 48, kInner = 32;
constexpr int kRows = kLayerTokens * kTopK;
std::vector<float> numbers(int count, int seed) {
  std::vector<float> all(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    all[static_cast<std::size_t>(i)] = static_cast<float>((i * 37 + seed) % 101) / 200 - 0.25F;
  }
  return all;
}

double dot(const float* a, const float* b, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += double{a[i]} * b[i];
  return sum;
}

// One element of the layer's result, by its definition.
double element(const float* x, const float* w1, const float* w2, const std::int32_t* ids,
               const float* weights, int column) {
  double sum = 0;
  for (int j = 0; j < kTopK; ++j) {
    std::vector<float> inner;
    for (int i = 0; i < kInner; ++i) {
      const float* const gate_row = w1 + (ids[j] * 2 * kInner + i) * kHidden;
      const double gate = dot(x, gate_row, kHidden);
      const double up = dot(x, gate_row + kInner * kHidden, kHidden);
      inner.push_back(static_cast<float>(gate / (1 + std::exp(-gate)) * up));
    }
    const float* const row = w2 + (ids[j] * kHidden + column) * kInner;
    sum += double{weights[j]} * dot(inner.data(), row, kInner);
  }
  return sum;
}

}  // namespace

int main() {
  const std::vector<float> x = numbers(kLayerTokens * kHidden, 1),
                           logits = numbers(kLayerTokens * 8, 2);
  const std::vector<float> w1 = numbers(kExperts * 2 * kInner * kHidden, 3);
  const std::vector<float> w2 = numbers(kExperts * kHidden * kInner, 4);
  std::vector<std::int32_t> ids(kRows), ends(kExperts), tokens(kRows), slots(kRows);
  std::vector<float> weights(kRows), inner(kRows * kInner), each(kRows * kHidden);

  tessera::Dispatcher dispatcher;
  dispatcher.run(tessera::parse_problem("route tokens=40 experts=8 top_k=2 order=1"),
                 tessera::RouteOperands{.logits = logits.data(),
                                        .ids = ids.data(),
                                        .weights = weights.data(),
                                        .group_ends = ends.data(),
                                        .row_index = tokens.data(),
                                        .slots = slots.data()});
  tessera::GemmOperands up{.a = x.data(), .b = w1.data(), .out = inner.data()};
  up.group_ends = ends.data(), up.row_index = tokens.data();
  dispatcher.run(
      tessera::parse_problem("gemm m=80 n=64 k=48 layout=rcr groups=8 grouping=contiguous "
                             "indexing=gathered index_room=40 gate=silu_mul"),
      up);
  tessera::GemmOperands down{.a = inner.data(), .b = w2.data(), .out = each.data()};
  down.d[0] = weights.data(), down.group_ends = ends.data(), down.row_index = slots.data();
  dispatcher.run(
      tessera::parse_problem("gemm m=80 n=48 k=32 layout=rcr groups=8 grouping=contiguous "
                             "indexing=scattered index_room=80 epilogue=row_scale"),
      down);

  double worst = 0;
  for (int token = 0; token < kLayerTokens; ++token) {
    for (int c = 0; c < kHidden; ++c) {
      const float* const rows = each.data() + token * kTopK * kHidden + c;
      const double got = double{rows[0]} + rows[kHidden];
      worst = std::max(worst, std::abs(got - element(x.data() + token * kHidden, w1.data(),
                                                     w2.data(), ids.data() + token * kTopK,
                                                     weights.data() + token * kTopK, c)));
    }
  }
  std::printf("%d rows of %d experts: largest difference %g\n", ends.back(), kExperts, worst);
  return ends.back() == kRows && worst < 1e-5 ? 0 : 1;
}
