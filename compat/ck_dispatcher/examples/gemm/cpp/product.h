// What the examples share: random operands where kernels run, and whether a product is right.
#pragma once

#include <cstdint>
#include <cstdio>
#include <vector>

#include "ck_tile/dispatcher.hpp"

// A is row-major, B column-major, C row-major: the layout "rcr".
struct Product {
  using Number = ck_tile::fp16_t;
  template <class T>
  using Buffer = ck_tile::dispatcher::utils::GpuBuffer<T>;

  ck_tile::dispatcher::Problem problem;
  std::vector<Number> a, b;
  Buffer<Number> there_a, there_b, there_c;

  explicit Product(const ck_tile::dispatcher::Problem& p)
      : problem(p),
        a(static_cast<std::size_t>(p.M * p.K)),
        b(static_cast<std::size_t>(p.N * p.K)),
        there_a(p.M * p.K),
        there_b(p.N * p.K),
        there_c(p.M * p.N) {
    ck_tile::dispatcher::utils::fill_random(a.data(), p.M * p.K);
    ck_tile::dispatcher::utils::fill_random(b.data(), p.N * p.K);
    there_a.copy_from_host(a.data());
    there_b.copy_from_host(b.data());
  }
  // Milliseconds.
  float run(const ck_tile::dispatcher::Dispatcher& dispatcher) {
    return dispatcher.run(there_a.get(), there_b.get(), there_c.get(), problem);
  }
  // Compares every element with the fp64 reference.
  bool is_right(const ck_tile::dispatcher::Dispatcher& dispatcher) const {
    return dispatcher.validate(there_a.get(), there_b.get(), there_c.get(), nullptr, problem);
  }
};

// Runs and checks a product, prints a line, and says whether it is right.
inline bool show(const ck_tile::dispatcher::Dispatcher& dispatcher,
                 const ck_tile::dispatcher::Problem& problem) {
  Product product(problem);
  const float milliseconds = product.run(dispatcher);
  const bool right = product.is_right(dispatcher);
  std::printf(
      "%5lld x %5lld x %5lld  %8.3f ms  %8.4f TFLOPS  %s\n", static_cast<long long>(problem.M),
      static_cast<long long>(problem.N), static_cast<long long>(problem.K),
      static_cast<double>(milliseconds),
      ck_tile::dispatcher::utils::calculate_tflops(problem.M, problem.N, problem.K, milliseconds),
      right ? "right" : "WRONG");
  return right;
}
