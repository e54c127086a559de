// A step of generating: the new token's keys and values go behind those that the cache has, turned
// by their positions (RoPE), its queries are turned in place, and attention reads the cache.
#include <tessera/tessera.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

namespace {

constexpr std::int64_t kBatch = 2, kHeads = 8, kHeadsKv = 2, kRoom = 64, kHdim = 32;
constexpr std::int64_t kPairs = kHdim / 2;

// The cosine and sine of each position and pair of elements.
struct Tables {
  std::vector<float> cos, sin;
  Tables() {
    for (std::int64_t i = 0; i < kRoom * kPairs; ++i) {
      const double rate = std::pow(10000.0, -double(i % kPairs) / kPairs);
      cos.push_back(float(std::cos(double(i / kPairs) * rate)));
      sin.push_back(float(std::sin(double(i / kPairs) * rate)));
    }
  }
};

// Keys whose elements are the same at every position, before they are turned.
std::vector<float> tokens(std::int64_t heads) {
  std::vector<float> all(std::size_t(kBatch * heads * kHdim));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = float(i % kHdim % 5) - 2.0F;
  return all;
}

// What a query and a key give depends on the distance of their positions alone.
double product(const float* x, const float* y) {
  double sum = 0;
  for (std::int64_t i = 0; i < kHdim; ++i) sum += double(x[i]) * double(y[i]);
  return sum;
}

}  // namespace

int main() {
  using tessera::DType;
  tessera::Dispatcher dispatcher;
  const Tables tables;
  std::vector<float> k(std::size_t(kBatch * kRoom * kHeadsKv * kHdim), NAN), v(k.size(), NAN);
  std::vector<std::int32_t> lengths = {0, 10};  // of the two sequences in the cache

  tessera::FmhaProblem append =
      tessera::fmha_problem(DType::fp32, kBatch, kHeads, kHeadsKv, 1, kRoom, kHdim);
  append.kind = tessera::FmhaKind::append;
  append.rotary = tessera::FmhaRotary::half;
  append.rotate_q = true;

  std::vector<float> q;
  for (int step = 0; step < 8; ++step) {
    q = tokens(kHeads);
    const std::vector<float> k_new = tokens(kHeadsKv), v_new = tokens(kHeadsKv);
    dispatcher.run(append, tessera::FmhaOperands{.q = q.data(),
                                                 .k = k.data(),
                                                 .v = v.data(),
                                                 .seqlens_k = lengths.data(),
                                                 .out = q.data(),
                                                 .k_new = k_new.data(),
                                                 .v_new = v_new.data(),
                                                 .cos = tables.cos.data(),
                                                 .sin = tables.sin.data()});
    for (std::int32_t& length : lengths) ++length;
  }

  // Attention over the last 8 keys of the second sequence, whose cache began with room for 10.
  const std::int64_t token = kHeadsKv * kHdim, sequence = kRoom * token;
  tessera::FmhaProblem read = tessera::fmha_problem(DType::fp32, 1, kHeads, kHeadsKv, 1, 8, kHdim);
  std::vector<float> out(std::size_t(kHeads * kHdim), NAN);
  dispatcher.run(read, tessera::FmhaOperands{.q = q.data() + kHeads * kHdim,
                                             .k = k.data() + sequence + 10 * token,
                                             .v = v.data() + sequence + 10 * token,
                                             .out = out.data()});
  bool right = std::isnan(k[std::size_t(8 * token)]) && std::isnan(k[std::size_t(sequence)]);
  for (const float x : out) right = right && std::isfinite(x);
  std::printf("%d and %d keys, attention over 8 of them: %s\n", lengths[0], lengths[1],
              right ? "right" : "wrong");

  // The sequences have other positions and equal distances.
  const double first = product(&q[0], &k[std::size_t(5 * token)]);
  const double second =
      product(&q[std::size_t(kHeads * kHdim)], &k[std::size_t(sequence + 15 * token)]);
  std::printf("a query and the key 2 positions before it: %.4f and %.4f\n", first, second);
  return right && std::abs(first - second) < 1e-3 ? 0 : 1;
}
