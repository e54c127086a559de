// GEMM as the original's documents show it from C++.
#include <ck_tile/dispatcher/dispatcher.hpp>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <random>
#include <sstream>

#include "check.h"

using namespace ck_tile::dispatcher;
using decl::ANY;
using decl::ANY_INT;

DECL_KERNEL_SET(declared_here,
                .add(decl::Signature().dtype("fp32").layout("rcr"), decl::Algorithm()
                                                                        .tile(128, 128, 32)
                                                                        .wave(2, 2, 1)
                                                                        .warp(32, 32, 16)
                                                                        .pipeline("compv4")
                                                                        .scheduler("intrawave")));
DECL_KERNEL_SET(
    with_wildcards,
    .add(decl::Signature().dtype("fp16").layout("rcr"),
         decl::Algorithm().tile(128, 128, 64).wave(ANY_INT).warp(32, 32, 16).pipeline(ANY),
         "gfx942"));

namespace {

struct Matrices {
  std::vector<float> a, b, c;
  explicit Matrices(const Problem& p)
      : a(static_cast<std::size_t>(p.M * p.K)),
        b(static_cast<std::size_t>(p.K * p.N)),
        c(static_cast<std::size_t>(p.M * p.N)) {
    std::mt19937 random(std::random_device{}());
    std::uniform_real_distribution<float> draw(-1, 1);
    for (std::vector<float>* each : {&a, &b}) {
      for (float& x : *each) x = draw(random);
    }
  }
  // A is row-major, B column-major.
  bool is_right(const Problem& p) const {
    for (std::int64_t i = 0; i < p.M * p.N; ++i) {
      double sum = 0;
      for (std::int64_t k = 0; k < p.K; ++k) {
        sum += static_cast<double>(a[static_cast<std::size_t>(i / p.N * p.K + k)]) *
               static_cast<double>(b[static_cast<std::size_t>(i % p.N * p.K + k)]);
      }
      if (std::abs(sum - c[static_cast<std::size_t>(i)]) > 1e-4) return false;
    }
    return true;
  }
};

void registries() {
  Registry registry("mine");
  const std::size_t count = registry.register_set(KERNEL_SET(declared_here));
  CHECK(count > 0 && registry.size() == count && !registry.empty());
  CHECK(registry.register_set(KERNEL_SET(declared_here)) == 0);
  CHECK(registry.register_set(KERNEL_SET(declared_here), Priority::High) == count);
  const KernelInstancePtr first = registry.get_all().front();
  CHECK(registry.lookup(first->get_name()) == first);
  CHECK(registry.lookup(first->get_key()) == first);
  CHECK(registry.lookup("no_such_kernel") == nullptr);
  CHECK(registry.filter([](const KernelInstance&) { return false; }).empty());
  Registry other("other");
  CHECK(other.register_set(KERNEL_SET(with_wildcards)) > 1);  // several waves and pipelines
  CHECK(other.merge_from(registry) == count);
  CHECK(other.filter_by_arch("gfx942") == count);
  CHECK(other.get_all().front()->get_key().gfx_arch == "gfx942");
  other.clear();
  CHECK(other.empty());
  CHECK_THROWS(decl::KernelSetRegistry::instance().get("nothing"), DispatcherError,
               "there is no kernel set 'nothing'");
  CHECK_THROWS(machine_for("gfx1"), DispatcherError, "unknown target 'gfx1'");
}

void json() {
  const std::string path = "gemm_registry.json";
  {
    Registry registry("exported");
    registry.enable_auto_export(path, true, false);
    CHECK(registry.is_auto_export_enabled());
    registry.register_set(KERNEL_SET(declared_here));
    CHECK(!std::ifstream(path));  // not before it ends
  }
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  CHECK(text.str().find("\"registry_name\": \"exported\"") != std::string::npos);
  CHECK(text.str().find("\"by_datatype\": {\"fp32\": ") != std::string::npos);
  std::remove(path.c_str());
}

void running() {
  Registry registry("runs");
  registry.register_set(KERNEL_SET(declared_here));
  Dispatcher dispatcher(&registry);
  const Problem problem = ProblemBuilder().dimensions(24, 33, 17).build();
  CHECK(problem.num_ops() == 2.0 * 24 * 33 * 17);
  CHECK(dispatcher.select_kernel(problem) == registry.get_all().front());
  for (const auto strategy :
       {Dispatcher::SelectionStrategy::FirstFit, Dispatcher::SelectionStrategy::Heuristic}) {
    Matrices m(problem);
    dispatcher.set_strategy(strategy);
    CHECK(dispatcher.run(m.a.data(), m.b.data(), m.c.data(), problem, nullptr) > 0);
    CHECK(m.is_right(problem));
    m.c[5] += 1;
    CHECK(!m.is_right(problem));
    CHECK(dispatcher.validate(m.a.data(), m.b.data(), m.c.data(), nullptr, problem));
  }
  const auto able = registry.filter([&](const KernelInstance& k) { return k.supports(problem); });
  for (const KernelInstancePtr& one : able) {  // as the library explains it
    tessera::RunOptions forced;
    forced.force = one->get_name();
    const tessera::Decision decision =
        one->machine().dispatcher->explain(tessera::parse_problem(one->line(problem)), forced);
    CHECK(one->predicted_seconds(problem) == decision.predicted_seconds);
  }
  const std::string last = able.back()->get_name();
  dispatcher.set_heuristic([&](const Problem&) { return std::vector<std::string>{"none", last}; });
  CHECK(dispatcher.select_kernel(problem)->get_name() == last);
  Matrices m(problem);
  CHECK(dispatcher.run_explicit(last, m.a.data(), m.b.data(), m.c.data(), nullptr, problem) > 0);
  CHECK(m.is_right(problem));
  for (const KernelInstancePtr& one : registry.get_all()) {
    if (one->supports(problem)) continue;
    CHECK_THROWS(dispatcher.run_explicit(one->get_name(), m.a.data(), m.b.data(), m.c.data(),
                                         nullptr, problem),
                 UnsupportedProblem, "cannot run 'gemm m=24 n=33 k=17'");
  }
  dispatcher.set_benchmarking(false);
  CHECK(dispatcher.run(m.a.data(), m.b.data(), m.c.data(), problem) == 0);
}

void refusals() {
  Registry empty("empty");
  const Dispatcher dispatcher(&empty);
  float x = 0;
  CHECK_THROWS(dispatcher.run(&x, &x, &x, Problem(1, 1, 1)), NoKernelFound,
               "no kernel of the registry 'empty', which has 0");
  CHECK_THROWS(dispatcher.run_explicit("k", &x, &x, &x, nullptr, Problem(1, 1, 1)), NoKernelFound,
               "the registry 'empty' has no kernel 'k'");
  CHECK_THROWS(ProblemBuilder().dimensions(1, 0, 1).build(), std::invalid_argument, "at least 1");
  CHECK_THROWS(ProblemBuilder().from_ab(2, 3, 4, 5), std::invalid_argument, "A has 3 columns");
  Registry elsewhere("elsewhere");
  CHECK(register_all_tile_gemm_kernels("gfx942", Priority::Normal, elsewhere) ==
        get_tile_gemm_kernel_count("gfx942"));
  const Dispatcher far(&elsewhere);
  CHECK(far.select_kernel(Problem(1024, 1024, 1024)) != nullptr);
  if (!machine_for("gfx942")->refusal.empty()) {
    CHECK_THROWS(far.run(&x, &x, &x, Problem(1024, 1024, 1024)), DispatcherError,
                 "target 'gfx942'");
  }
}

}  // namespace

int main() {
  registries();
  json();
  running();
  refusals();
  return finish("gemm");
}
