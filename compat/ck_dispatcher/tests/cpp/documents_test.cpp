// What the documents of the original spell in another way than its headers.
#include <ck_tile/dispatcher_conv.hpp>
#include <ck_tile/dispatcher_fmha.hpp>
#include <ck_tile/dispatcher_gemm.hpp>

#include <cmath>
#include <cstdio>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "check.h"

using namespace ck_tile::dispatcher;
using namespace ck_tile::dispatcher::utils;
using decl::Algorithm;
using decl::Signature;

DECL_KERNEL_SET(large_tiles, .add("fp32", "rcr", 128, 128, 32));
DECL_KERNEL_SET(small_tiles, .add("fp32", "rcr", 64, 64, 32).add("fp32", "rcr", 32, 32, 32));

namespace {

// Matrices of a batch that lie one behind the other; A is row-major, B column-major.
struct Batch {
  Problem p;
  std::vector<float> a, b, c;
  GpuBuffer<float> there_a, there_b, there_c;

  Batch(const Problem& problem, unsigned seed)
      : p(problem),
        a(drawn(p.batch_size * p.M * p.K, seed)),
        b(drawn(p.batch_size * p.K * p.N, seed + 1)),
        c(drawn(p.batch_size * p.M * p.N, seed + 2)),
        there_a(p.batch_size * p.M * p.K),
        there_b(p.batch_size * p.K * p.N),
        there_c(p.batch_size * p.M * p.N) {
    there_a.copy_from_host(a.data()), there_b.copy_from_host(b.data());
    there_c.copy_from_host(c.data());
  }
  static std::vector<float> drawn(std::int64_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> draw(-1, 1);
    std::vector<float> made(static_cast<std::size_t>(count));
    for (float& x : made) x = draw(random);
    return made;
  }
  float run(const Dispatcher& dispatcher) {
    return dispatcher.run(there_a.get(), there_b.get(), there_c.get(), p);
  }
  bool valid(const Dispatcher& dispatcher) const {
    return dispatcher.validate(there_a.get(), there_b.get(), there_c.get(), nullptr, p);
  }
  // alpha * A x B + beta * C at row i and column j of a matrix.
  double wanted(std::int64_t matrix, std::int64_t i, std::int64_t j) const {
    double sum = 0;
    for (std::int64_t k = 0; k < p.K; ++k) {
      sum += static_cast<double>(a[static_cast<std::size_t>((matrix * p.M + i) * p.K + k)]) *
             static_cast<double>(b[static_cast<std::size_t>((matrix * p.N + j) * p.K + k)]);
    }
    const float old = c[static_cast<std::size_t>((matrix * p.M + i) * p.N + j)];
    return static_cast<double>(p.alpha) * sum +
           static_cast<double>(p.beta) * static_cast<double>(old);
  }
  bool is_right() const {
    std::vector<float> got(c.size());
    there_c.copy_to_host(got.data());
    const double limit = 1e-6 * static_cast<double>(p.K + 4);
    std::size_t place = 0;
    for (std::int64_t matrix = 0; matrix < p.batch_size; ++matrix) {
      for (std::int64_t i = 0; i < p.M; ++i) {
        for (std::int64_t j = 0; j < p.N; ++j, ++place) {
          const double difference = wanted(matrix, i, j) - static_cast<double>(got[place]);
          if (!(std::abs(difference) <= limit)) return false;
        }
      }
    }
    return true;
  }
};

void batches_and_factors(unsigned seed) {
  Registry registry;
  CHECK(REGISTER_KERNEL_SET(large_tiles, registry) == 1);
  Dispatcher dispatcher(registry);
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> size(1, 40), count(2, 5);
  std::uniform_real_distribution<float> factor(0.25F, 2);
  for (const float beta : {0.0F, factor(random)}) {
    ProblemBuilder builder;
    builder.m(size(random)).n(size(random)).k(size(random)).batch_size(count(random));
    const Problem problem = builder.alpha(factor(random)).beta(beta).build();
    Batch once(problem, random()), timed(problem, random());
    CHECK(timed.run(dispatcher) > 0);  // all its calls read the C that was given
    CHECK(timed.is_right());
    dispatcher.set_benchmarking(false);
    CHECK(once.run(dispatcher) == 0 && once.is_right());
    dispatcher.set_benchmarking(true);
    if (beta != 0) {
      CHECK_THROWS(once.valid(dispatcher), UnsupportedProblem, "validate() needs beta=0, got ");
      continue;
    }
    CHECK(once.valid(dispatcher));
    std::vector<float> spoilt(once.c.size());
    once.there_c.copy_to_host(spoilt.data());
    spoilt.back() += 1;  // of the last matrix
    once.there_c.copy_from_host(spoilt.data());
    CHECK(!once.is_right() && !once.valid(dispatcher));
  }
}

void problems() {
  const Problem split = ProblemBuilder().m(1024).n(512).k(8192).split_k(4).build();
  CHECK(split.M == 1024 && split.N == 512 && split.K == 8192 && split.k_batch == 4);
  CHECK(ProblemBuilder().m(2).n(3).k(4).batch_size(5).build().num_ops() == 2 * 2 * 3 * 4 * 5);
  CHECK_THROWS(ProblemBuilder().m(2).n(3).k(4).batch_size(0).build(), std::invalid_argument,
               "got 2, 3, 4, 1 and 0");
  const Problem turned = Problem::from_ab(7, 5, 3, 7, true, true);
  CHECK(turned.M == 5 && turned.K == 7 && turned.N == 3);
  CHECK_THROWS(Problem::from_ab(7, 5, 3, 7, true, false), std::invalid_argument, "7 and 3");
}

void keys_and_registries() {
  KernelKeyBuilder builder;
  builder.layout_b = LayoutTag::Row;
  CHECK(to_string(builder.build().signature.layout_b) == "r");
  const KernelKey key = create_fp16_rcr_key(256, 128, 64, 4, 1, 1, 16, 16, 32);
  CHECK(key.encode_identifier().find("fp16_rcr_") == 0);
  CHECK(key.encode_identifier().find("256x128x64_4x1x1_16x16x32") != std::string::npos);
  Registry registry;
  CHECK(registry.register_kernel(create_generated_tile_kernel<int, float>(key, "named")));
  CHECK(registry.get_kernel_count() == 1 && registry.lookup("named")->get_key() == key);
  CHECK(ignored_hints().back().find("Types changes nothing") == 0);
  CHECK(registry.to_json() == registry.export_json());
  CHECK(REGISTER_KERNEL_SET("small_tiles", registry) == 2);
  CHECK_THROWS(REGISTER_KERNEL_SET(no_such_set, registry), DispatcherError,
               "there is no kernel set 'no_such_set'");
  CHECK(sizeof(half_t) == 2);
}

// A function that gives a key chooses it where it computes the problem; without one, the first fit.
void heuristics_of_keys() {
  Registry registry;
  CHECK(REGISTER_KERNEL_SET(small_tiles, registry) == 2);
  const KernelKey first = registry.get_all().front()->get_key();
  const KernelKey second = registry.get_all().back()->get_key();
  CHECK(first != second);
  Dispatcher dispatcher(registry);
  dispatcher.set_strategy(SelectionStrategy::FirstFit);
  CHECK(dispatcher.select_kernel(Problem(8, 8, 8))->get_key() == first);
  dispatcher.set_heuristic([&](const Problem& p) -> std::optional<KernelKey> {
    if (p.M * p.N < 100) return second;
    if (p.M * p.N < 1000) return KernelKey();
    return std::nullopt;
  });
  CHECK(dispatcher.select_kernel(Problem(8, 8, 8))->get_key() == second);
  CHECK(dispatcher.select_kernel(Problem(20, 20, 8))->get_key() == first);
  CHECK(dispatcher.select_kernel(Problem(80, 80, 8))->get_key() == first);
}

void convolutions() {
  const auto builder = [] {
    return GroupedConvProblemBuilder()
        .n(2)
        .g(1)
        .c(128)
        .k(256)
        .input_spatial({28, 27})
        .filter_spatial({3, 3});
  };
  const GroupedConvProblem p =
      builder().strides({1, 2}).dilations({1, 1}).left_pads({1, 0}).right_pads({1, 0}).build();
  CHECK(p.is_valid() && p.N == 2 && p.G == 1 && p.C == 128 && p.K == 256);
  CHECK(p.Ho() == 28 && p.Wo() == 13 && !p.is_3d());
  CHECK_THROWS(builder().left_pads({1, 1}).right_pads({0, 1}).build(), std::invalid_argument,
               "left_pads 0,1,1 and right_pads 0,0,1");
  CHECK_THROWS(builder().strides({1, 1, 1, 1}), std::invalid_argument, "got 4");
  GroupedConvKernelKey key;
  key.op = GroupedConvOp::BackwardData;
  GroupedConvRegistry registry("own");
  const auto own = std::make_shared<GroupedConvKernelInstance>(
      key, "own", [](const GroupedConvProblem&, void*) { return 1.0F; });
  CHECK(registry.register_kernel(own) && !registry.register_kernel(own));
  CHECK(!registry.register_kernel(GroupedConvKernelInstancePtr()));
  CHECK(registry.filter([](const auto& k) { return k.is_fwd() || k.is_bwd_weight(); }).empty());
  CHECK(registry.filter([](const auto& k) { return k.is_bwd_data(); }).size() == 1);
}

void attention() {
  FmhaRegistry registry;
  registry.register_set(FmhaKernelSet().add(
      FmhaSignature().family("fwd").dtype("fp16").mode("group").hdim(128).mask("no").bias("no"),
      FmhaAlgorithm().padding(true, true, true, true), "gfx950"));
  CHECK(registry.all_kernels().size() == 1);
  const std::string id = registry.all_kernels().front()->id();
  CHECK(id == registry.all_kernels().front()->get_key().encode_identifier());
  const auto groups = [] {
    return FmhaProblemBuilder().data_type("fp16").nheads(2, 2).group_mode(true);
  };
  const FmhaProblem given = groups().dims(128, 128, 2, 130, 256).build();
  CHECK(given.max_seqlen_q == 130 && given.max_seqlen_k == 256);
  FmhaDispatcher dispatcher(&registry);
  dispatcher.set_strategy(SelectionStrategy::Heuristic);
  dispatcher.set_heuristic([&](const FmhaProblem&) { return std::vector<std::string>{id}; });
  const FmhaExecutionPlan plan = dispatcher.plan(given);
  CHECK(plan.is_valid() && plan.stages[0].kernel_id == id);
  const FmhaProblem said = groups().dims(128, 128, 2, 130, 256).max_seqlen(70, 80).build();
  CHECK(said.max_seqlen_q == 70 && said.max_seqlen_k == 80);
  CHECK_THROWS(groups().dims(128, 128, 2, 0, 0).build(), std::invalid_argument, "max_seqlen()");
  fmha_fwd_appendkv_traits traits{};
  fmha_fwd_appendkv_args args{};
  const auto has_places = [&] {
    return FmhaProblem::from_invocation(FmhaInvocation::make(traits, args)).has_cache_batch_idx;
  };
  CHECK(!has_places());
  args.cache_batch_idx_ptr = &args;
  CHECK(has_places());
}

}  // namespace

int main() {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  batches_and_factors(seed);
  problems();
  keys_and_registries();
  heuristics_of_keys();
  convolutions();
  attention();
  return finish("documents");
}
