// Random problems and kernel specs over all their fields, for round trips.
#pragma once

#include <cstring>
#include <random>

#include "host/spec/random_fmha.h"
#include "host/spec/random_gemm.h"
#include "tessera/spec/kernel_spec.h"
#include "tessera/spec/words_internal.h"

namespace tessera {

class RandomSpecs {
 public:
  explicit RandomSpecs(unsigned seed) : engine_(seed) {}

  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  int small(int low, int high) { return static_cast<int>(integer(low, high)); }
  bool coin() { return integer(0, 1) == 1; }

  template <Worded Enum>
  Enum word() {
    return static_cast<Enum>(integer(0, std::int64_t{Words<Enum>::kAll.size()} - 1));
  }

  // Mostly defaults, else any finite pattern of bits or an infinity.
  float number(float standard) {
    if (coin()) return standard;
    const auto bits = static_cast<std::uint32_t>(integer(0, 0xffffffff));
    float value = 0;
    std::memcpy(&value, &bits, sizeof(value));
    return value != value ? standard : value;
  }

  Epilogue epilogue() {
    Epilogue epilogue;
    bool all_taken = false;
    const int steps = coin() ? 0 : small(1, kMaxEpilogueOps);
    for (int i = 0; i < steps; ++i) {
      const auto op = word<EpilogueOp>();
      const bool one = op == EpilogueOp::bias || op == EpilogueOp::add ||
                       op == EpilogueOp::multiply || op == EpilogueOp::row_scale ||
                       op == EpilogueOp::col_scale;
      const bool all = op == EpilogueOp::multi_d_add || op == EpilogueOp::multi_d_multiply;
      const int left = all_taken ? 0 : kMaxD - epilogue.num_d;
      if ((one || all) && left == 0) continue;
      epilogue.ops[static_cast<std::size_t>(i)] = op;
      const int taken = all ? small(1, left) : static_cast<int>(one);
      epilogue.num_d = static_cast<std::uint8_t>(epilogue.num_d + taken);
      all_taken = all_taken || all;
    }
    return epilogue;
  }

  Shape3 shape() { return {small(0, 600), small(0, 600), small(0, 4)}; }

  Signature signature() {
    if (integer(0, 4) == 0) {
      return RouteSignature{
          .scoring = word<RouteScoring>(), .in = word<DType>(), .bias = coin(), .order = coin()};
    }
    if (integer(0, 3) == 0) {
      return FmhaSignature{.kind = word<FmhaKind>(),
                           .in = word<DType>(),
                           .out = word<DType>(),
                           .dtype_bias = word<DType>(),
                           .kv = word<FmhaKv>(),
                           .lengths = word<FmhaLengths>(),
                           .masked = coin(),
                           .bias = word<FmhaBias>(),
                           .soft_cap = coin(),
                           .lse = coin(),
                           .dropout = coin(),
                           .random = coin(),
                           .pages = word<FmhaPages>(),
                           .cache_layout = word<FmhaCacheLayout>(),
                           .qscale = word<FmhaQscale>(),
                           .rotary = word<FmhaRotary>(),
                           .rotate_q = coin(),
                           .dbias = coin()};
    }
    if (integer(0, 2) == 0) {
      return ConvSignature{.direction = word<ConvDirection>(),
                           .layout = word<ConvLayout>(),
                           .ndim = integer(1, 3),
                           .in = word<DType>(),
                           .weight = word<DType>(),
                           .acc = word<DType>(),
                           .out = word<DType>(),
                           .d = word<DType>(),
                           .epilogue = epilogue()};
    }
    if (coin()) {
      return NormSignature{.kind = word<NormKind>(),
                           .in = word<DType>(),
                           .weight = word<DType>(),
                           .out = word<DType>(),
                           .scale = coin(),
                           .shift = coin(),
                           .residual = coin(),
                           .quant = word<NormQuant>()};
    }
    return GemmSignature{.a = word<DType>(),
                         .b = word<DType>(),
                         .acc = word<DType>(),
                         .out = word<DType>(),
                         .d = word<DType>(),
                         .layout = word<GemmLayout>(),
                         .epilogue = epilogue(),
                         .preshuffled_b = coin(),
                         .grouping = word<GemmGrouping>(),
                         .scale_a = word<GemmScale>(),
                         .scale_b = word<GemmScale>(),
                         .scale_type = word<GemmScaleType>(),
                         .gate = word<GemmGate>(),
                         .gate_interleaved = coin(),
                         .indexing = word<GemmIndexing>(),
                         .quant = word<NormQuant>(),
                         .arranged = coin()};
  }

  KernelSpec spec() {
    const Algorithm algorithm{.pipeline = word<Pipeline>(),
                              .tile = shape(),
                              .wave = shape(),
                              .warp_tile = shape(),
                              .scheduler = word<Scheduler>(),
                              .store = word<Store>(),
                              .split_k = word<SplitK>(),
                              .splits = small(1, 3),
                              .slices = small(1, 3),
                              .streamk = coin(),
                              .stages = small(1, 5),
                              .cluster_m = small(1, 3),
                              .cluster_n = small(1, 3),
                              .persistent = coin(),
                              .swap_ab = coin(),
                              .repack = coin(),
                              .pointwise = coin()};
    // Targets named like words of the grammar must not confuse it.
    constexpr const char* kTargets[] = {"avx512", "sm90a", "s4", "relu", "fp32", "c2x1", "swap"};
    return {signature(), algorithm, kTargets[integer(0, 6)]};
  }

  std::int64_t stride() { return coin() ? kPacked : integer(-4, 100000); }

  GemmProblem gemm() {
    GemmProblem p;
    for (DType* type : {&p.a, &p.b, &p.acc, &p.out, &p.d}) *type = word<DType>();
    p.layout = word<GemmLayout>();
    for (std::int64_t* size : {&p.m, &p.n, &p.k, &p.batch}) *size = integer(0, 1LL << 40);
    for (std::int64_t* ld : {&p.ld_a, &p.ld_b, &p.ld_c, &p.ld_out, &p.batch_stride_a,
                             &p.batch_stride_b, &p.batch_stride_c, &p.batch_stride_out}) {
      *ld = stride();
    }
    for (std::int64_t& ld : p.ld_d) ld = stride();
    for (std::int64_t& ld : p.batch_stride_d) ld = stride();
    p.alpha = number(1);
    p.beta = number(0);
    p.clamp_lo = number(p.clamp_lo);
    p.clamp_hi = number(p.clamp_hi);
    p.epilogue = epilogue();
    p.preshuffled_b = coin();
    p.pointer_arrays = coin();
    p.groups = integer(0, 9);
    p.grouping = word<GemmGrouping>();
    p.check_groups = coin();
    p.group_strides = coin();
    p.group_int64 = coin();
    draw_scales_and_outputs(*this, p);
    draw_arranged(*this, p);
    return p;
  }

  NormProblem norm() {
    NormProblem p;
    p.kind = word<NormKind>();
    for (DType* type : {&p.in, &p.weight, &p.out}) *type = word<DType>();
    for (std::int64_t* size : {&p.rows, &p.columns}) *size = integer(0, 1LL << 40);
    for (std::int64_t* ld : {&p.ld_in, &p.ld_residual, &p.ld_out, &p.ld_sum}) *ld = stride();
    p.epsilon = number(1e-5F);
    p.quant = word<NormQuant>();
    for (bool* flag : {&p.scale, &p.shift, &p.residual, &p.interleaved}) *flag = coin();
    return p;
  }

  ConvProblem conv() {
    ConvProblem p;
    p.direction = word<ConvDirection>();
    p.layout = word<ConvLayout>();
    p.ndim = integer(1, 3);
    for (DType* type : {&p.in, &p.weight, &p.acc, &p.out, &p.d}) *type = word<DType>();
    for (std::int64_t* count : {&p.n, &p.c, &p.k, &p.g}) *count = integer(0, 1LL << 40);
    for (Spatial* sizes : {&p.size, &p.filter, &p.stride, &p.dilation, &p.pad}) {
      for (std::int64_t& size : *sizes) size = integer(0, 300);
    }
    for (std::int64_t& pad : p.pad_right) pad = stride();
    for (ConvStrides* strides : {&p.in_strides, &p.weight_strides, &p.out_strides}) {
      for (std::int64_t& one : *strides) one = stride();
    }
    p.alpha = number(1);
    p.beta = number(0);
    p.epilogue = epilogue();
    p.clamp_lo = number(p.clamp_lo);
    p.clamp_hi = number(p.clamp_hi);
    return p;
  }

  RouteProblem route() {
    RouteProblem p;
    p.scoring = word<RouteScoring>();
    p.in = word<DType>();
    for (std::int64_t* size : {&p.tokens, &p.experts, &p.top_k, &p.num_groups, &p.top_groups}) {
      *size = integer(0, 1LL << 40);
    }
    p.ld_logits = stride();
    p.scaling_factor = number(1);
    for (bool* flag : {&p.bias, &p.renormalize, &p.order}) *flag = coin();
    return p;
  }

  Problem problem() {
    const std::int64_t which = integer(0, 4);
    if (which == 4) return route();
    if (which == 3) return random_fmha(*this);
    return which == 0 ? Problem(gemm()) : which == 1 ? Problem(norm()) : Problem(conv());
  }

 private:
  std::mt19937_64 engine_;
};

// Printed with every failure, so that it can be repeated.
inline unsigned fresh_seed() { return std::random_device{}(); }

}  // namespace tessera
