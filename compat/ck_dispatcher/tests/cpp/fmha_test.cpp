// Attention as the original's documents show it from C++.
#include <tessera_ck/fmha_dispatcher.hpp>

#include <algorithm>
#include <cmath>
#include <random>

#include "check.h"

using namespace tessera_ck;

DECL_FMHA_KERNEL_SET(forward_set,
                     .add(FmhaSignature().family("fwd").dtype("fp32").mask("no").hdim(128),
                          FmhaAlgorithm().pipeline("qr").tile_m0(128))
                         .add(FmhaSignature().dtype("fp32").mask("causal").lse(true)));
DECL_FMHA_KERNEL_SET(wild, .add(FmhaSignature().family("*").dtype("fp32").mode("*").mask("*"),
                                FmhaAlgorithm().pipeline("*"), "*"));

namespace {

constexpr int kQ = 5, kK = 9, kD = 8, kHeads = 2;

std::vector<float> drawn(std::size_t count) {
  std::mt19937 random(std::random_device{}());
  std::uniform_real_distribution<float> draw(-1, 1);
  std::vector<float> made(count);
  for (float& x : made) x = draw(random);
  return made;
}

FmhaProblemBuilder plain() {
  return FmhaProblemBuilder()
      .api_family(FmhaApiFamily::Fwd)
      .data_type("fp32")
      .dims(kD, kD, 1, kQ, kK)
      .nheads(kHeads, kHeads);
}

// {token, head, element}, as Tessera has it where the problem does not say strides.
bool is_right(const std::vector<float>& q, const std::vector<float>& k, const std::vector<float>& v,
              const std::vector<float>& out) {
  const auto at = [](const std::vector<float>& x, int t, int h, int e) {
    return static_cast<double>(x[static_cast<std::size_t>((t * kHeads + h) * kD + e)]);
  };
  for (int h = 0; h < kHeads; ++h) {
    for (int i = 0; i < kQ; ++i) {
      double total = 0, sums[kD] = {};
      for (int j = 0; j < kK; ++j) {
        double score = 0;
        for (int e = 0; e < kD; ++e) score += at(q, i, h, e) * at(k, j, h, e);
        const double weight = std::exp(score / std::sqrt(double(kD)));
        total += weight;
        for (int e = 0; e < kD; ++e) sums[e] += weight * at(v, j, h, e);
      }
      for (int e = 0; e < kD; ++e) {
        if (std::abs(sums[e] / total - at(out, i, h, e)) > 1e-4) return false;
      }
    }
  }
  return true;
}

void running() {
  FmhaRegistry registry("mine");
  CHECK(registry.register_set(FMHA_KERNEL_SET(forward_set)) > 1);
  FmhaDispatcher dispatcher(&registry);
  const FmhaProblem problem = plain().build();
  const std::vector<float> q = drawn(kQ * kHeads * kD), k = drawn(kK * kHeads * kD),
                           v = drawn(kK * kHeads * kD);
  std::vector<float> out(q.size());
  tessera::FmhaOperands args;
  args.q = q.data(), args.k = k.data(), args.v = v.data(), args.out = out.data();
  CHECK(dispatcher.run(FmhaInvocation::make(problem, args)) == 0);  // no benchmarking
  CHECK(is_right(q, k, v, out));
  out[7] += 1;
  CHECK(!is_right(q, k, v, out));
  dispatcher.set_benchmarking(true);
  dispatcher.set_timing(1, 2);
  CHECK(dispatcher.run_fwd(problem, args) > 0);
  CHECK(is_right(q, k, v, out));
  CHECK_THROWS(dispatcher.run_bwd(problem, args), UnsupportedProblem,
               "the problem is of the family fwd, and the call is of bwd");
  const std::string id = dispatcher.select_kernel(problem)->get_name();
  CHECK(dispatcher.run_explicit(id, FmhaInvocation::make(problem, args)) > 0);
  CHECK_THROWS(dispatcher.run_explicit("k", FmhaInvocation::make(problem, args)), NoKernelFound,
               "has no kernel 'k'");
  dispatcher.set_heuristic([&](const FmhaProblem&) { return std::vector<std::string>{id}; });
  CHECK(dispatcher.select_kernel(problem)->get_name() == id);
  dispatcher.set_arch("gfx942");
  CHECK(dispatcher.select_kernel(problem) == nullptr && dispatcher.arch() == "gfx942");
  CHECK_THROWS(dispatcher.run_fwd(problem, args), NoKernelFound,
               "no kernel of the registry 'mine'");
}

void plans() {
  FmhaRegistry registry("plans");
  registry.register_set(FMHA_KERNEL_SET(wild));
  const FmhaDispatcher dispatcher(&registry);
  const auto stages = [&](const FmhaProblem& problem) {
    return static_cast<int>(dispatcher.plan(problem).stages.size());
  };
  CHECK(stages(plain().build()) == 1);
  const FmhaExecutionPlan split =
      dispatcher.plan(plain().api_family(FmhaApiFamily::FwdSplitKv).num_splits(2).build());
  CHECK(split.is_valid() && split.stages.size() == 2);
  CHECK(split.stages[1].family == FmhaKernelFamily::FwdSplitKvCombine);
  FmhaRegistry none("none");
  CHECK(!FmhaDispatcher(&none).plan(plain().build()).is_valid());
}

// Names of kernels alone: nothing runs, so that no GPU is needed.
void determinism() {
  const auto gradients = [] {
    return FmhaSignature().family("bwd").dtype("bf16").mode("batch").mask("no").hdim(128);
  };
  const auto is_atomic = [](const FmhaKernelInstancePtr& one) {
    return one->spec().algorithm.split_k == tessera::SplitK::atomic;
  };
  FmhaRegistry registry("gradients");
  registry.register_set(FmhaKernelSet().add(gradients(), FmhaAlgorithm().pipeline("*"), "sm90a"));
  FmhaDispatcher dispatcher(&registry, "sm90a");
  dispatcher.set_strategy(FmhaDispatcher::SelectionStrategy::Heuristic);
  const auto chosen = [&](bool deterministic) {
    return dispatcher.select_kernel(FmhaProblemBuilder()
                                        .api_family(FmhaApiFamily::Bwd)
                                        .data_type("bf16")
                                        .dims(128, 128, 2, 4096, 4096)
                                        .nheads(16, 16)
                                        .lse(true)
                                        .bwd_flags(false, false, deterministic)
                                        .build());
  };
  CHECK(chosen(false) != nullptr && is_atomic(chosen(false)));
  CHECK(chosen(true) != nullptr && !is_atomic(chosen(true)));
  FmhaRegistry strict("strict");
  strict.register_set(
      FmhaKernelSet().add(gradients().deterministic(true), FmhaAlgorithm().pipeline("*"), "sm90a"));
  CHECK(strict.size() > 0 && strict.size() < registry.size());
  for (const FmhaKernelInstancePtr& one : strict.get_all()) CHECK(!is_atomic(one));
}

void hints() {
  const auto told = [] { return ignored_hints().size(); };
  const std::size_t before = told();
  // As Tessera's kernels do it anyway.
  (void)FmhaAlgorithm().padding(true, true, true, true).trload(false).block_per_cu(-1).wave_m0(4);
  CHECK(told() == before);
  for (int again = 0; again < 2; ++again) {
    (void)FmhaAlgorithm().alignments(8, 8).block_per_cu(2).num_wave_groups(2).max_splits_log2(5);
    (void)FmhaAlgorithm().padding(false, true, true, true).trload(true).constraint("a").wave_m0(2);
    (void)FmhaAlgorithm().selection_rank(1).warp({16, 16, 16, 16, 16, 16, 16, 16, 16});
    CHECK(told() == before + 10);
  }
  const std::vector<std::string> all = ignored_hints();
  CHECK(std::count(all.begin(), all.end(),
                   "block_per_cu changes nothing: Tessera's kernels decide it by themselves") == 1);
}

// What a declaration asks for narrows it, or is told.
void nothing_is_dropped() {
  const auto kernels = [](const FmhaSignature& signature) {
    return kernels_of({signature, FmhaAlgorithm().pipeline("*"), ""});
  };
  const auto append = [] { return FmhaSignature().family("fwd_appendkv").dtype("fp32"); };
  CHECK(!kernels(append()).empty());
  CHECK_THROWS(kernels(append().mask("causal")), DispatcherError, "");
  CHECK_THROWS(kernels(append().dropout(true)), DispatcherError, "");
  CHECK_THROWS(kernels(FmhaSignature().dtype("fp32").rope("interleaved")), DispatcherError, "");
  kernels(FmhaSignature().receipt(4).dtype("fp16"));
  const std::size_t before = ignored_hints().size();
  kernels(FmhaSignature().receipt(4).dtype("bf16"));
  CHECK(ignored_hints().size() == before + 1);
  CHECK(ignored_hints().back() ==
        "signature changes nothing: the receipt beside it says what its kernels compute");
}

void receipts() {
  FmhaRegistry registry("receipts");
  CHECK(registry.register_set(FmhaKernelSet().add(FmhaSignature().profile("pytorch"))) > 0);
  const std::vector<int> numbers = registry.available_receipts();
  CHECK(std::find(numbers.begin(), numbers.end(), 4) != numbers.end());
  const std::size_t before = registry.size();
  CHECK(registry.filter_by_receipt(4) == 0 && registry.size() == before);
  CHECK(registry.filter_by_receipt(800) == before);
  CHECK_THROWS(registry.filter_by_receipt(12345), DispatcherError, "12345");
}

void problems_and_json() {
  CHECK_THROWS(plain().api_family(FmhaApiFamily::Bwd).build(), std::invalid_argument, "lse");
  CHECK_THROWS(plain().group_mode(true).build(), std::invalid_argument, "max_seqlen");
  CHECK_THROWS(plain().mask_type("round").build(), std::invalid_argument, "round");
  CHECK(plain().mask_type(1).build().to_string().find("mask=top_left") != std::string::npos);
  const auto registry = make_fmha_registry("mine");
  registry->register_set(FMHA_KERNEL_SET(forward_set));
  CHECK(registry->export_json().find("\"by_family\": {\"forward\": ") != std::string::npos);
  CHECK(!registry->export_json_to_file("/nowhere/x.json"));
  CHECK(registry->lookup(registry->get_all().front()->get_key()) == registry->get_all().front());
  CHECK(registry->filter_by_arch("gfx942") > 0 && registry->empty());
}

}  // namespace

int main() {
  running();
  plans();
  determinism();
  hints();
  nothing_is_dropped();
  receipts();
  problems_and_json();
  return finish("fmha");
}
