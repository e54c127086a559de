// The masks of attention on one short sequence: which keys each query sees, read off the output. v
// is a unit matrix, so that a query's output is its weights for the keys.
#include <tessera/tessera.hpp>

#include <cstdio>
#include <vector>

namespace {

constexpr std::int64_t kQueries = 6, kKeys = 8;

// Prints an x for every key that a query sees, and counts them.
int seen(tessera::Dispatcher& dispatcher, const char* what, const tessera::FmhaProblem& problem) {
  std::vector<float> q(kQueries * 8, 1.0F), k(kKeys * 8, 1.0F), v(kKeys * kKeys, 0.0F);
  std::vector<float> out(kQueries * kKeys, -1.0F);
  for (std::int64_t i = 0; i < kKeys; ++i) v[std::size_t(i * kKeys + i)] = 1;
  dispatcher.run(problem, tessera::FmhaOperands{
                              .q = q.data(), .k = k.data(), .v = v.data(), .out = out.data()});
  int count = 0;
  std::printf("%s\n", what);
  for (std::int64_t i = 0; i < kQueries; ++i) {
    for (std::int64_t j = 0; j < kKeys; ++j) {
      const bool sees = out[std::size_t(i * kKeys + j)] > 0;
      std::printf(" %c", sees ? 'x' : '.');
      count += sees ? 1 : 0;
    }
    std::printf("\n");
  }
  return count;
}

}  // namespace

int main() {
  tessera::Dispatcher dispatcher;
  tessera::FmhaProblem p = tessera::fmha_problem(tessera::DType::fp32, 1, 1, 1, kQueries, kKeys, 8);
  bool right = seen(dispatcher, "no mask", p) == 48;
  p.mask = tessera::FmhaMask::top_left;
  right = seen(dispatcher, "causal, the diagonal at the first key", p) == 21 && right;
  p.mask = tessera::FmhaMask::bottom_right;
  right = seen(dispatcher, "causal, the diagonal at the last key", p) == 33 && right;
  p.window_left = 2;
  right = seen(dispatcher, "a window of 2 keys to the left", p) == 18 && right;
  p.sink = 1;
  right = seen(dispatcher, "the same, and the first key", p) == 23 && right;
  return right ? 0 : 1;
}
