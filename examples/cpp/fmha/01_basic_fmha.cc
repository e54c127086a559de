// Attention in fp16: 2 sequences of 64 queries and 256 keys, 8 heads of 64 elements. With
// --validate every element is compared with the definition in double precision.
// TESSERA_TARGET=sm90a runs it on a GPU.
#include <tessera/tools.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

using tessera::FmhaOperands;
using tessera::FmhaProblem;

// {batch, token, head, element} in memory; `i` counts elements of a token's head.
std::int64_t at(std::int64_t batch, std::int64_t token, std::int64_t head, std::int64_t tokens,
                const FmhaProblem& p) {
  return ((batch * tokens + token) * p.heads + head) * p.hdim;
}

// One query's output by the definition.
std::vector<double> attend(const FmhaProblem& p, const FmhaOperands& o, std::int64_t batch,
                           std::int64_t query, std::int64_t head) {
  std::vector<double> out(std::size_t(p.hdim)), weights(std::size_t(p.seqlen_k));
  const std::int64_t q = at(batch, query, head, p.seqlen_q, p);
  double sum = 0;
  for (std::int64_t key = 0; key < p.seqlen_k; ++key) {
    const std::int64_t k = at(batch, key, head, p.seqlen_k, p);
    double score = 0;
    for (std::int64_t i = 0; i < p.hdim; ++i) {
      score += tessera::load_element(p.in, o.q, q + i) * tessera::load_element(p.in, o.k, k + i);
    }
    weights[std::size_t(key)] = std::exp(score / std::sqrt(double(p.hdim)));
    sum += weights[std::size_t(key)];
  }
  for (std::int64_t key = 0; key < p.seqlen_k; ++key) {
    const std::int64_t v = at(batch, key, head, p.seqlen_k, p);
    for (std::int64_t i = 0; i < p.hdim; ++i) {
      out[std::size_t(i)] +=
          weights[std::size_t(key)] / sum * tessera::load_element(p.in, o.v, v + i);
    }
  }
  return out;
}

// Prints how many elements differ by more than fp16 rounds; true where none does.
bool validate(const FmhaProblem& p, const FmhaOperands& o) {
  std::int64_t elements = 0, errors = 0;
  double worst = 0;
  for (std::int64_t row = 0; row < p.batch * p.seqlen_q * p.heads; ++row) {
    const std::int64_t head = row % p.heads, query = row / p.heads % p.seqlen_q;
    const std::int64_t batch = row / p.heads / p.seqlen_q;
    for (const double expected : attend(p, o, batch, query, head)) {
      const double got = tessera::load_element(p.out, o.out, elements++);
      worst = std::max(worst, std::abs(got - expected));
      errors += std::abs(got - expected) > 5e-4 ? 1 : 0;
    }
  }
  std::printf("%lld elements, %lld errors, largest error %.2e\n", static_cast<long long>(elements),
              static_cast<long long>(errors), worst);
  return errors == 0;
}

}  // namespace

int main(int argc, char** argv) {
  FmhaProblem problem = tessera::fmha_problem(tessera::DType::fp16, 2, 8, 8, 64, 256, 64);
  tessera::Dispatcher dispatcher;
  const tessera::runtime::Place place{&tessera::runtime::backend_for(dispatcher.target()), {}};
  auto owned = tessera::measure::random_operands(problem, 42);
  auto placed = tessera::measure::place_operands(owned, place);
  const auto run = [&] { dispatcher.run(problem, placed.operands); };
  run();
  tessera::measure::fetch_outputs(owned, placed, place);
  const auto timing = tessera::runtime::measure({{"fmha", run}}, {.rounds = 5}, place).front();
  std::printf("%s\n  %s\n  %.1f us, %.3f TFLOP/s\n", to_string(problem).c_str(),
              dispatcher.kernel_for(problem).name.c_str(), timing.median_seconds * 1e6,
              tessera::flops_of(problem) / timing.median_seconds / 1e12);
  if (argc < 2 || std::strcmp(argv[1], "--validate") != 0) return 0;
  return validate(problem, std::get<FmhaOperands>(owned.operands)) ? 0 : 1;
}
