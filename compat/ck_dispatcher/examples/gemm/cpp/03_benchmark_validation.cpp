// Times a product, and compares it with a reference of the host (--verify 1) or with the library's
// own in fp64 (--verify 2).
#include "product.h"

using namespace ck_tile::dispatcher;

DECL_KERNEL_SET(measured, .add("fp16", "rcr", 128, 128, 32));

namespace {

// By compute_reference_gemm(), whose B is row-major.
bool is_near(const Product& x, double rtol, double atol) {
  const Problem& p = x.problem;
  std::vector<Product::Number> b_rows(x.b.size());
  for (std::int64_t j = 0; j < p.N; ++j) {
    for (std::int64_t k = 0; k < p.K; ++k) {
      b_rows[static_cast<std::size_t>(k * p.N + j)] = x.b[static_cast<std::size_t>(j * p.K + k)];
    }
  }
  std::vector<Product::Number> wanted(static_cast<std::size_t>(p.M * p.N)), got(wanted);
  utils::compute_reference_gemm(x.a.data(), b_rows.data(), wanted.data(), p.M, p.N, p.K);
  x.there_c.copy_to_host(got.data());
  const auto found = utils::validate_result(got.data(), wanted.data(), p.M * p.N, rtol, atol);
  found.print();
  return found.correct;
}

}  // namespace

int main(int argc, char* argv[]) {
  utils::ExampleArgs args("gemm_03_benchmark_validation", "times and checks a product");
  args.add_option("--size", "192", "m, n and k");
  args.add_option("--verify", "0", "0, 1 or 2");
  args.add_option("--warmup", "5", "calls before the clock is read");
  args.add_option("--iterations", "10", "timed calls, of which the median is printed");
  args.add_option("--rtol", "1e-2", "of --verify 1");
  args.add_option("--atol", "1e-2", "of --verify 1");
  if (!args.parse(argc, argv)) return 0;
  Registry registry;
  REGISTER_GENERATED_KERNELS(registry, "gfx942");
  Dispatcher dispatcher(registry);
  const int size = args.get_int("--size", 192), verify = args.get_int("--verify", 0);
  Product product(Problem(size, size, size));
  dispatcher.set_benchmarking(false);
  for (int i = 0; i < args.get_int("--warmup", 5); ++i) product.run(dispatcher);
  dispatcher.set_benchmarking(true);
  std::vector<float> times;
  for (int i = 0; i < args.get_int("--iterations", 10); ++i)
    times.push_back(product.run(dispatcher));
  std::sort(times.begin(), times.end());
  if (!times.empty()) {
    std::printf("least %.4f ms, median %.4f ms\n", static_cast<double>(times.front()),
                static_cast<double>(times[times.size() / 2]));
  }
  if (verify == 1) {
    return is_near(product, args.get_float("--rtol", 1e-2F), args.get_float("--atol", 1e-2F)) ? 0
                                                                                              : 1;
  }
  return verify == 2 && !product.is_right(dispatcher) ? 1 : 0;
}
