// Fills in the features of candidates: the problem's part once, then kernel by kernel.
#include <fmt/format.h>

#include <tuple>

#include "tessera/base/forever.h"
#include "tessera/device/cuda/fmha/flash_backward_sizes.h"
#include "tessera/device/fmha.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/fmha/features_internal.h"

namespace tessera::fmha {
namespace {

tile::FeatureTables<ProblemFacts, KernelFacts> all_features() {
  return {problem_features(), kernel_features()};
}

}  // namespace

std::span<const Feature> features() {
  static const Forever<std::vector<Feature>> kAll(list_of(all_features()));
  return *kAll;
}

// Rows of 16 bytes and more come from memory at the same pace wherever they lie, but elements that
// lie apart do not. Keys that hold the values are read once, which changes what limits a kernel.
Verdict features_fit(const Problem& problem) {
  const FmhaProblem p = with_strides(fmha_of(problem));
  if (p.v_in_k) return {"no feature says that values are a part of the keys, got v_in_k=1"};
  if (has_own_kv(p)) {
    return {fmt::format("no feature says that keys have another type than queries, got kv={}",
                        to_string(p.kv))};
  }
  if (appends(p) || p.cache_layout != FmhaCacheLayout::linear) return {};
  for (const auto& [name, hdim, strides] : {std::tuple{"q", p.hdim, &query_strides(p)},
                                            {"k", p.hdim, &p.k_strides},
                                            {"v", p.hdim_v, &p.v_strides},
                                            {"out", p.hdim_v, &p.out_strides}}) {
    const std::int64_t stride = strides->at(device::kTokenElement);
    if (hdim <= 1 || stride == 1) continue;
    return {fmt::format("no feature describes elements of {} that lie apart, got a stride of {}",
                        name, stride)};
  }
  return {};
}

// Lists to learn from have attention alone: what comes on top costs every kernel about as much.
Problem plain(const Problem& problem) {
  FmhaProblem p = fmha_of(problem);
  if (p.kind != FmhaKind::forward && p.kind != FmhaKind::backward) return p;
  const FmhaProblem standard;
  p.bias = standard.bias, p.dtype_bias = p.in, p.bias_strides = standard.bias_strides;
  p.slope_stride = standard.slope_stride, p.dbias = standard.dbias;
  p.soft_cap = standard.soft_cap, p.p_drop = standard.p_drop, p.random = standard.random;
  p.lse = standard.lse, p.skip_q = standard.skip_q, p.num_splits = standard.num_splits;
  p.sink = standard.sink;
  if (p.pages == FmhaPages::none) return p;
  p.pages = standard.pages, p.cache_layout = standard.cache_layout;
  p.check_pages = standard.check_pages, p.page_size = standard.page_size;
  p.num_pages = standard.num_pages, p.max_pages = standard.max_pages;
  p.table_stride = standard.table_stride, p.page_entries = standard.page_entries;
  p.tokens_k = standard.tokens_k;
  p.k_strides = p.v_strides = standard.k_strides;
  return p;
}

// No shipped model has learned from gradients with slices, nor from blocks of 64 keys.
bool is_described(const KernelSpec& spec) {
  const Algorithm& a = spec.algorithm;
  const bool is_gradient = signature_in(spec).kind == FmhaKind::backward;
  if (!is_gradient || a.pipeline != Pipeline::tmaws) return true;
  return a.slices == 1 && a.tile.m == device::kFlashOwnKeys;
}

// Appending takes the same time whatever kernel attends. The tensor cores of GPUs multiply both
// types of 16 bits at one rate.
Problem twin(const Problem& problem, const Target& target) {
  FmhaProblem p = fmha_of(problem);
  if (extends(p)) p = attention_part(p);
  if (!is_gpu(target) || p.in != DType::fp16) return p;
  for (DType* type : {&p.in, &p.out, &p.dtype_bias}) {
    if (*type == DType::fp16) *type = DType::bf16;
  }
  return p;
}

void extract(const Problem& problem, const Target& target, int threads,
             std::span<const KernelSpec> specs, std::span<double> columns,
             std::span<const FeatureUse> wanted) {
  tile::check_features(Op::fmha, features().size(), specs.size(), columns.size(), wanted.size());
  if (specs.empty()) return;
  const ProblemFacts f = problem_facts(fmha_of(problem), target, threads);
  // A model may be asked about a plain problem in place of the kernels' own.
  KernelSpec spec = {signature_of(problem), {}, {}};
  const auto spec_of = [&](std::size_t i) -> const KernelSpec& {
    spec.algorithm = specs[i].algorithm, spec.target = specs[i].target;
    return spec;
  };
  fill_columns(
      all_features(), f, {Op::fmha, specs.size(), columns, wanted},
      [&](std::size_t i) { return kernel_facts(f, spec_of(i), target); },
      [&](std::size_t i) { return estimate(spec_of(i), problem, target, threads); });
}

}  // namespace tessera::fmha
