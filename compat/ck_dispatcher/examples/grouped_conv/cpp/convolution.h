// What the examples share: a convolution on random tensors, and its numbers from a plain loop.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "ck_tile/dispatcher_conv.hpp"

struct Convolution {
  using Problem = ck_tile::dispatcher::GroupedConvProblem;
  using Op = ck_tile::dispatcher::GroupedConvOp;
  template <class T>
  using Buffer = ck_tile::dispatcher::utils::GpuBuffer<T>;

  Problem p;
  std::vector<float> x, w, y;  // NHWGC, GKYXC, NHWGK; the one that is computed is zero

  explicit Convolution(const Problem& problem)
      : p(problem),
        x(count(p.N * p.Hi() * p.Wi() * p.C)),
        w(count(p.K * p.Y() * p.X() * p.C / p.G)),
        y(count(p.N * p.Ho() * p.Wo() * p.K)) {
    for (std::vector<float>* each : {&x, &w, &y}) {
      if (each == &result()) continue;
      ck_tile::dispatcher::utils::fill_random(each->data(),
                                              static_cast<std::int64_t>(each->size()));
    }
  }
  std::vector<float>& result() {
    return p.op == Op::Forward ? y : p.op == Op::BackwardData ? x : w;
  }

  // Milliseconds; the result is then in the tensor that is computed.
  float run(ck_tile::dispatcher::GroupedConvDispatcher& dispatcher) {
    std::vector<float>* read[] = {&x, &w};
    if (p.op == Op::BackwardData) read[0] = &y;
    if (p.op == Op::BackwardWeight) read[1] = &y;
    Buffer<float> first(size(*read[0])), second(size(*read[1])), out(size(result()));
    first.copy_from_host(read[0]->data()), second.copy_from_host(read[1]->data());
    const float milliseconds = dispatcher.run(first.get(), second.get(), out.get(), p);
    out.copy_to_host(result().data());
    return milliseconds;
  }

  bool is_right() {
    std::vector<double> wanted(result().size());
    each_product([&](std::size_t i, std::size_t f, std::size_t o) {
      if (p.op == Op::Forward) wanted[o] += double(x[i]) * double(w[f]);
      if (p.op == Op::BackwardData) wanted[i] += double(y[o]) * double(w[f]);
      if (p.op == Op::BackwardWeight) wanted[f] += double(x[i]) * double(y[o]);
    });
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const double limit = 1e-4 * std::fmax(1, std::fabs(wanted[i]));
      if (!(std::fabs(double(result()[i]) - wanted[i]) <= limit)) return false;
    }
    return true;
  }

 private:
  static std::size_t count(std::int64_t n) { return static_cast<std::size_t>(n); }
  static std::int64_t size(const std::vector<float>& v) {
    return static_cast<std::int64_t>(v.size());
  }
  // Calls work(place in x, in w, in y) for each product that is added.
  template <class Work>
  void each_product(const Work& work) const {
    const std::int64_t c_in = p.C / p.G, k_in = p.K / p.G;
    for (std::int64_t o = 0; o < size(y); ++o) {
      const std::int64_t k = o % p.K, g = k / k_in, at = o / p.K;
      const std::int64_t wo = at % p.Wo(), ho = at / p.Wo() % p.Ho(), n = at / p.Wo() / p.Ho();
      for (std::int64_t f = 0; f < p.Y() * p.X() * c_in; ++f) {
        const std::int64_t c = f % c_in, s = f / c_in % p.X(), r = f / c_in / p.X();
        const std::int64_t h = ho * p.stride[1] + r * p.dilation[1] - p.padding[1];
        const std::int64_t v = wo * p.stride[2] + s * p.dilation[2] - p.padding[2];
        if (h < 0 || h >= p.Hi() || v < 0 || v >= p.Wi()) continue;
        work(count(((n * p.Hi() + h) * p.Wi() + v) * p.C + g * c_in + c),
             count(k * p.Y() * p.X() * c_in + f), count(o));
      }
    }
  }
};

// A 3 x 3 convolution of a direction; channels of all groups.
inline ck_tile::dispatcher::GroupedConvProblem three_by_three(ck_tile::dispatcher::GroupedConvOp op,
                                                              std::int64_t channels = 16,
                                                              std::int64_t groups = 2) {
  return ck_tile::dispatcher::GroupedConvProblemBuilder()
      .n(2)
      .g(groups)
      .c(channels)
      .k(channels)
      .input_spatial({14, 13})
      .filter_spatial({3, 3})
      .left_pads({1, 1})
      .right_pads({1, 1})
      .operation(op)
      .build();
}

// Runs and checks a convolution, prints a line, and says whether it is right.
inline bool show(ck_tile::dispatcher::GroupedConvDispatcher& dispatcher,
                 const ck_tile::dispatcher::GroupedConvProblem& problem) {
  Convolution one(problem);
  const float milliseconds = one.run(dispatcher);
  const bool right = one.is_right();
  std::printf("%s: %.4f ms, %s\n", problem.to_string().c_str(), double(milliseconds),
              right ? "right" : "WRONG");
  return right;
}
