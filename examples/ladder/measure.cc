// All steps of the ladder beside Tessera's own kernel, in turns in one process.
//
//     example_ladder_measure [ROUNDS [SIZE...]]
//
// Prints a table in markdown: medians of GFLOP/s, and in brackets the least and the greatest.
// What runs on one thread is timed by the processor time of that thread, which stays right while
// other programs have the machine, too. What runs on all threads is timed by the wall's clock.
#include <omp.h>

#include <ctime>
#include <string>

#define LADDER_ALL
#include "01_naive.cc"
#include "02_loop_order.cc"
#include "03_register_tile.cc"
#include "04_packing.cc"
#include "05_vectors.cc"
#include "06_blocking.cc"
#include "07_threads.cc"
#include "08_edges_and_epilogue.cc"
#include "tessera_kernel.h"

namespace {

void tessera_one(const ladder::Gemm& g) { ladder::tessera_on(g, 1); }
void tessera_all(const ladder::Gemm& g) { ladder::tessera_on(g, omp_get_max_threads()); }

struct Row {
  ladder::Step step;
  bool all_threads;
  std::vector<double> speeds;
};

double now(bool all_threads) {
  timespec time{};
  clock_gettime(all_threads ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::vector<Row> all_rows() {
  return {{step1::kStep, false, {}}, {step2::kStep, false, {}},
          {step3::kStep, false, {}}, {step4::kStep, false, {}},
          {step5::kStep, false, {}}, {step6::kStep, false, {}},
          {step8::kStep, false, {}}, {{"Tessera, one thread", tessera_one, 1, 1}, false, {}},
          {step7::kStep, true, {}},  {{"Tessera, all threads", tessera_all, 1, 1}, true, {}}};
}

// Small products are repeated until a reading takes some time.
double reading(const Row& row, const ladder::Gemm& g) {
  const int repeats = static_cast<int>(1 + 2e7 / (1.0 * g.m * g.n * g.k));
  const double start = now(row.all_threads);
  for (int i = 0; i < repeats; ++i) row.step.multiply(g);
  return ladder::gflops(g, (now(row.all_threads) - start) / repeats);
}

bool measure(int size, int rounds, std::mt19937& random) {
  const auto a = ladder::random_matrix(size, size, random);
  const auto b = ladder::random_matrix(size, size, random);
  std::vector<float> c(a.size());
  std::vector<float> expected(a.size());
  const ladder::Gemm g{size, size, size, a.data(), b.data(), c.data()};
  step2::multiply({size, size, size, a.data(), b.data(), expected.data()});
  std::vector<Row> rows = all_rows();
  for (int round = 0; round <= rounds; ++round) {  // round 0 builds kernels and checks
    for (Row& row : rows) {
      if (size % row.step.multiple_m != 0 || size % row.step.multiple_n != 0) continue;
      std::fill(c.begin(), c.end(), -1.0F);
      const double speed = reading(row, g);
      if (!ladder::equal(row.step, g, expected)) return false;
      if (round > 0) row.speeds.push_back(speed);
    }
  }
  std::printf("\n| size %d | GFLOP/s |\n| --- | --- |\n", size);
  for (Row& row : rows) {
    std::vector<double>& all = row.speeds;
    if (all.empty()) continue;
    std::sort(all.begin(), all.end());
    std::printf("| %s | %.1f (%.1f to %.1f) |\n", row.step.name, all[all.size() / 2], all.front(),
                all.back());
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 1;
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  std::printf("seed %u, %d rounds, %d threads\n", seed, rounds, omp_get_max_threads());
  bool right = true;
  for (int i = 2; i < argc; ++i) right = measure(std::atoi(argv[i]), rounds, random) && right;
  if (argc <= 2) right = measure(96, rounds, random) && measure(67, rounds, random);
  return right ? 0 : 1;
}
