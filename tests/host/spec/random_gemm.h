// Scales, outputs, contractions and sources of random GEMM problems, which need not be valid.
#pragma once

#include "tessera/spec/gemm_problem.h"

namespace tessera {

// `random` draws integers, coins, words and strides.
template <class Random>
void draw_scales_and_outputs(Random& random, GemmProblem& p) {
  for (GemmScale* scale : {&p.scale_a, &p.scale_b}) *scale = random.template word<GemmScale>();
  p.scale_type = random.template word<GemmScaleType>();
  for (std::int64_t* one :
       {&p.stride_scale_a_m, &p.stride_scale_a_k, &p.stride_scale_b_n, &p.stride_scale_b_k,
        &p.batch_stride_scale_a, &p.batch_stride_scale_b}) {
    *one = random.stride();
  }
  p.gate = random.template word<GemmGate>();
  p.indexing = random.template word<GemmIndexing>();
  p.index_room = random.integer(0, 9);
  p.quant = random.template word<NormQuant>();
  for (bool* flag : {&p.scale_quads, &p.gate_interleaved, &p.scales_by_column}) {
    *flag = random.coin();
  }
}

template <class Random>
GemmDim draw_dim(Random& random) {
  using enum GemmDimKind;
  GemmDim dim;
  dim.kind = random.template word<GemmDimKind>();
  dim.size = random.integer(0, 99);
  if (dim.kind != n) dim.a = random.integer(0, 99);
  if (dim.kind != m) dim.b = random.integer(0, 99);
  if (dim.kind == k) return dim;
  dim.out = random.integer(0, 99);
  dim.c = random.stride();
  for (std::int64_t& d : dim.d) d = random.stride();
  return dim;
}

template <class Random>
void draw_arranged(Random& random, GemmProblem& p) {
  const auto count =
      random.coin() ? 0 : static_cast<std::size_t>(random.integer(1, std::int64_t{kMostDims}));
  for (std::size_t i = 0; i < count; ++i) p.dims.all.at(i) = draw_dim(random);
  p.dims.count = static_cast<std::uint8_t>(count);
  for (GemmMerge* merge : {&p.merge_a, &p.merge_b}) {
    *merge = random.template word<GemmMerge>();
  }
  for (std::int64_t* sources : {&p.sources_a, &p.sources_b}) {
    *sources = random.integer(1, kMaxSources);
  }
  for (auto* strides :
       {&p.ld_more_a, &p.ld_more_b, &p.batch_stride_more_a, &p.batch_stride_more_b}) {
    for (std::int64_t& one : *strides) one = random.stride();
  }
}

}  // namespace tessera
