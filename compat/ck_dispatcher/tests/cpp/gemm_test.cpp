// GEMM as programs for the original call it from C++17.
#include <ck_tile/dispatcher_gemm.hpp>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <random>
#include <sstream>

#include "check.h"

using namespace ck_tile::dispatcher;
using utils::GpuBuffer;
using Signature = decl::Signature;
using Algorithm = decl::Algorithm;

DECL_KERNEL_SET(declared_here, .add(Signature().dtype("fp32").layout("rcr"),
                                    Algorithm()
                                        .tile(128, 128, 32)
                                        .wave(2, 2, 1)
                                        .warp(32, 32, 16)
                                        .pipeline("compv4")
                                        .scheduler("intrawave"),
                                    "gfx942")
                                   .add("fp16", "rrr", 64, 64, 32));
DECL_KERNEL_ALL(bf16, crr);

namespace {

// A kernel of a program's own, beside Tessera's: it takes multiples of its tile alone.
class OwnKernel : public KernelInstance {
 public:
  explicit OwnKernel(int tile) {
    key_.algorithm.tile_shape.m = static_cast<std::uint16_t>(tile);
    key_.gfx_arch = "gfx942";
  }
  const KernelKey& get_key() const override { return key_; }
  bool supports(const Problem& p) const override { return p.M % key_.algorithm.tile_shape.m == 0; }
  std::string get_name() const override { return "own"; }
  float run(const void*, const void*, void*, const void**, const Problem&, void*) const override {
    return 1;
  }
  bool validate(const void*, const void*, const void*, const void**, const Problem&,
                float) const override {
    return true;
  }

 private:
  KernelKey key_;
};

// Random operands of one type and layout, and their product in fp64.
template <class T>
struct Product {
  Problem problem;
  bool a_rows, b_rows;
  std::vector<T> a, b, c;
  GpuBuffer<T> there_a, there_b, there_c;

  Product(const Problem& p, const std::string& layout, unsigned seed)
      : problem(p),
        a_rows(layout[0] == 'r'),
        b_rows(layout[1] == 'r'),
        a(static_cast<std::size_t>(p.M * p.K)),
        b(static_cast<std::size_t>(p.K * p.N)),
        c(static_cast<std::size_t>(p.M * p.N), T(777.0F)),
        there_a(p.M * p.K),
        there_b(p.K * p.N),
        there_c(p.M * p.N) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> draw(-1, 1);
    for (std::vector<T>* each : {&a, &b}) {
      for (T& x : *each) x = T(draw(random));
    }
    there_a.copy_from_host(a.data()), there_b.copy_from_host(b.data());
    there_c.copy_from_host(c.data());  // poisoned
  }
  double exact(std::int64_t i, std::int64_t j) const {
    double sum = 0;
    for (std::int64_t k = 0; k < problem.K; ++k) {
      const std::int64_t at = a_rows ? i * problem.K + k : k * problem.M + i;
      const std::int64_t of = b_rows ? k * problem.N + j : j * problem.K + k;
      sum += static_cast<double>(a[static_cast<std::size_t>(at)]) *
             static_cast<double>(b[static_cast<std::size_t>(of)]);
    }
    return sum;
  }
  // unit: the distance of the output's numbers at 1.
  bool is_right(double unit) {
    there_c.copy_to_host(c.data());
    const double sums = 1e-7 * static_cast<double>(problem.K);
    for (std::int64_t i = 0; i < problem.M; ++i) {
      for (std::int64_t j = 0; j < problem.N; ++j) {
        const double wanted = exact(i, j);
        const auto got = static_cast<double>(c[static_cast<std::size_t>(i * problem.N + j)]);
        if (!(std::abs(wanted - got) <= sums + unit * std::abs(wanted))) return false;
      }
    }
    return true;
  }
  void spoil(std::size_t place) {
    there_c.copy_to_host(c.data());
    c[place] = T(static_cast<float>(c[place]) + 1.0F);
    there_c.copy_from_host(c.data());
  }
};

template <class T>
void random_problems(const Dispatcher& dispatcher, const std::string& layout, double unit,
                     unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> size(1, 90);
  for (int i = 0; i < 4; ++i) {
    Product<T> x(Problem(size(random), size(random), size(random)), layout, random());
    CHECK(dispatcher.run(x.there_a.get(), x.there_b.get(), x.there_c.get(), x.problem) > 0);
    CHECK(x.is_right(unit));
    const auto valid = [&] {
      return dispatcher.validate(x.there_a.get(), x.there_b.get(), x.there_c.get(), nullptr,
                                 x.problem);
    };
    CHECK(valid());
    x.spoil(static_cast<std::size_t>(x.problem.M * x.problem.N - 1));
    CHECK(!x.is_right(unit));
    CHECK(!valid());
  }
}

void running(unsigned seed) {
  Registry fp32("fp32"), fp16("fp16"), bf16("bf16");
  const KernelConfig config = KernelConfig::fp32_rcr().tile(64, 64, 32);
  CHECK(fp32.register_kernel(config.build_key(), config.get_name()));
  CHECK(fp32.lookup(config.build_key())->get_name() == config.get_name());
  fp16.register_set(BEGIN_KERNEL_SET().add("fp16", "rrr", 64, 64, 32));
  bf16.register_set(BEGIN_KERNEL_SET().add("bf16", "crr", 128, 128, 32, ""));
  random_problems<float>(Dispatcher(&fp32), "rcr", 1e-6, seed);
  random_problems<ck_tile::fp16_t>(Dispatcher(&fp16), "rrr", 1e-3, seed + 1);
  random_problems<ck_tile::bf16_t>(Dispatcher(&bf16), "crr", 8e-3, seed + 2);
}

void own_kernels_beside_ours(unsigned seed) {
  Registry registry("both");
  CHECK(registry.register_kernel(std::make_shared<OwnKernel>(64), Priority::High));
  CHECK(!registry.register_kernel(nullptr));
  const std::size_t declared = REGISTER_KERNEL_SET("declared_here", registry, "gfx942");
  CHECK(declared == 2 && registry.size() == 3);
  CHECK_THROWS(REGISTER_KERNEL_SET("nothing", registry, ""), DispatcherError,
               "there is no kernel set 'nothing'");
  Dispatcher dispatcher(&registry);
  CHECK(dispatcher.select_kernel(Problem(128, 8, 8))->get_name() == "own");
  Product<float> x(Problem(65, 7, 9), "rcr", seed);
  CHECK(dispatcher.select_kernel(x.problem)->get_name().find("gemm_fp32_rcr_compv4_") == 0);
  dispatcher.set_benchmarking(false);
  CHECK(dispatcher.run(x.there_a.get(), x.there_b.get(), x.there_c.get(), x.problem) == 0);
  CHECK(x.is_right(1e-6));
  const std::string id = registry.get_all().back()->get_key().encode_identifier();
  dispatcher.set_heuristic([&](const Problem&) { return std::vector<std::string>{"none", id}; });
  CHECK(dispatcher.select_kernel(x.problem)->get_key().encode_identifier() == id);
  dispatcher.set_arch("gfx950");
  CHECK(dispatcher.select_kernel(x.problem) == nullptr);
  CHECK(registry.filter_by_arch("gfx950") == 3 && registry.empty());
}

// Kernels of the machine's own pipelines are exact, and their names are Tessera's.
void exact_kernels() {
  Registry registry;
  CHECK(REGISTER_GENERATED_KERNELS(registry, "") > 10);
  const auto own =
      registry.filter([](const KernelInstance& k) { return !k.get_key().kernel.empty(); });
  CHECK(own.size() == registry.size() - 2);
  for (const KernelInstancePtr& one : own) {
    CHECK(one->get_name().find("gemm_bf16_crr_") == 0);
    CHECK(registry.lookup(one->get_name()) == one && registry.lookup(one->get_key()) == one);
  }
  CHECK(register_all_tile_gemm_kernels("gfx942", Priority::Normal, registry) ==
        get_tile_gemm_kernel_count("gfx942"));
}

void d_tensors(unsigned seed) {
  Registry registry;
  registry.register_set(BEGIN_KERNEL_SET().add(
      Signature().dtype("fp32").layout("rcr").elementwise("MultiDAdd", 2), Algorithm()));
  const Dispatcher dispatcher(&registry);
  Product<float> x(Problem(5, 6, 7), "rcr", seed);
  GpuBuffer<float> d(x.problem.M * x.problem.N);
  const std::vector<float> halves(30, 0.5F);
  d.copy_from_host(halves.data());
  const void* both[] = {d.get(), d.get()};
  CHECK_THROWS(dispatcher.run(x.there_a.get(), x.there_b.get(), x.there_c.get(), x.problem),
               UnsupportedProblem, "reads 2 D tensors");
  CHECK(dispatcher.run_fused(x.there_a.get(), x.there_b.get(), x.there_c.get(), both, x.problem) >
        0);
  x.there_c.copy_to_host(x.c.data());
  CHECK(std::abs(static_cast<double>(x.c[13]) - x.exact(2, 1) - 1) < 1e-5);

  Registry plain;
  plain.register_set(BEGIN_KERNEL_SET().add(
      Signature().dtype("fp32").layout("rcr").elementwise("PassThrough", 2), Algorithm()));
  CHECK(Dispatcher(&plain).run_fused(x.there_a.get(), x.there_b.get(), x.there_c.get(), both,
                                     x.problem) > 0);
  x.there_c.copy_to_host(x.c.data());
  CHECK(std::abs(static_cast<double>(x.c[13]) - x.exact(2, 1)) < 1e-5);
}

void json() {
  const std::string path = "gemm_registry.json";
  {
    Registry registry("exported");
    registry.enable_auto_export(path, true, false);
    registry.register_set(KernelSetRegistry::instance().get("declared_here"));
    CHECK(!std::ifstream(path));  // not before it ends
  }
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  CHECK(text.str().find("\"registry_name\": \"exported\", \"total_kernels\": 2") !=
        std::string::npos);
  CHECK(text.str().find("\"fp32_fp32_fp32\": 1") != std::string::npos);
  CHECK(json_escape("a\"\\\n\x01") == "a\\\"\\\\\\n\\u0001");
  std::remove(path.c_str());
}

void numbers() {
  using namespace ck_tile;
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const auto narrow = static_cast<std::uint16_t>(bits);
    half_t half;
    std::memcpy(&half, &narrow, 2);
    const auto value = static_cast<float>(half);
    const half_t again(value);
    CHECK(std::memcmp(&again, &half, 2) == 0 || std::isnan(value));
  }
  CHECK(float(half_t(65520.0F)) == INFINITY && float(half_t(65519.0F)) == 65504.0F);
  CHECK(float(half_t(1.0F + 0x1p-11F)) == 1.0F && float(half_t(0x1p-25F)) == 0.0F);
  CHECK(float(bf16_t(1.0F + 0x1.8p-8F)) == 1.0F + 0x1p-7F);
  CHECK(float(fp8_t(449.0F)) == 448.0F && float(fp8_t(0x1p-9F)) == 0x1p-9F);
  CHECK(float(bf8_t(57344.0F)) == 57344.0F && std::isnan(float(fp8_t(NAN))));
}

}  // namespace

int main() {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  running(seed);
  own_kernels_beside_ours(seed);
  exact_kernels();
  d_tensors(seed);
  json();
  numbers();
  return finish("gemm");
}
