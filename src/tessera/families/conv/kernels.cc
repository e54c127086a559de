// Which kernels there are: rules, enumeration, and the kernels of a problem.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/families/conv/conv.h"
#include "tessera/families/tile/algorithm_space.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/candidates.h"
#include "tessera/families/tile/defaults.h"
#include "tessera/families/tile/fields.h"
#include "tessera/families/tile/mfma.h"
#include "tessera/spec/words_internal.h"

namespace tessera::conv {
namespace {

// Kernels by MFMA use repack here, and in no other family.
Algorithm without_repack(const Case& c) {
  Algorithm a = c.algorithm;
  if (tile::is_mfma(a.pipeline)) a.repack = false;
  return a;
}

constexpr tile::Rule<Case> kCommonRules[] = {
    {[](const Case& c) {
       return tile::find_way<Types>(c) != nullptr &&
              (c.algorithm.pointwise ||
               tile::has_pipeline(Op::conv, c.target, c.algorithm.pipeline));
     },
     [](const Case& c) {
       return fmt::format("{} has no pipeline {}", c.target.name, to_string(c.algorithm.pipeline));
     }},
    {[](const Case& c) { return signature_reason(c.signature).empty(); },
     [](const Case& c) { return signature_reason(c.signature); }},
    {[](const Case& c) {
       return c.algorithm.pointwise || tile::unused_at_default(without_repack(c));
     },
     [](const Case& c) { return tile::unused_field(without_repack(c)); }},
};

const ConvSignature& in(const Signature& signature) { return std::get<ConvSignature>(signature); }
std::vector<std::string> known_variants() { return known_words<ConvDirection>(); }
constexpr std::array kDerived = {
    DerivedField{"dtype", known_words<DType>,
                 [](const Signature& s) -> std::string_view { return to_string(in(s).in); }},
    DerivedField{"variant", known_variants,
                 [](const Signature& s) -> std::string_view { return to_string(in(s).direction); }},
};

}  // namespace

std::span<const Way* const> Types::ways() {
  static constexpr std::array kAll = {
      &kDirectCpu, &kDirectCuda,   &kPackedCpu,     &kDepthwiseCpu, &kDepthwiseCuda, &kTmaws,
      &kCpasync,   &kPointwiseCpu, &kPointwiseCuda, &kGroupedCuda,  &kMfmaCompv3,    &kMfmaCompv4,
      &kMfmaMem,   &kMfmaAsync,    &kDirectHip,     &kPointwiseHip, &kDepthwiseHip};
  return kAll;
}

std::span<const tile::Rule<Case>> Types::common_rules() { return kCommonRules; }

std::string Types::no_way(const KernelSpec& spec, const Target& target) {
  return fmt::format("{}: this build has no convolution with pipeline {} for {} targets",
                     name_of(spec), to_string(spec.algorithm.pipeline), target.backend);
}

// What networks use: every direction and layout in one type, forward with a bias and an activation.
std::vector<Signature> Types::signatures() {
  std::vector<tessera::Signature> all;
  const auto add = [&](ConvSignature s, DType dtype) {
    s.in = s.weight = dtype;
    s.acc = default_accumulator(dtype);
    s.out = s.d = default_output(dtype);
    all.push_back(s);
    if (s.direction != ConvDirection::forward || s.out == DType::int32) return;
    for (const std::string_view epilogue : {"relu", "bias", "bias+relu", "bias+add+relu"}) {
      s.epilogue = parse_epilogue(epilogue);
      all.push_back(s);
    }
  };
  for (const DType dtype :
       {DType::fp32, DType::tf32, DType::fp16, DType::bf16, DType::fp8, DType::bf8, DType::int8}) {
    for (const ConvDirection direction :
         {ConvDirection::forward, ConvDirection::backward_data, ConvDirection::backward_weight}) {
      if (size_of(dtype) == 1 && direction != ConvDirection::forward) continue;
      for (const ConvLayout layout : {ConvLayout::nhwgc, ConvLayout::nchw}) {
        for (const std::int64_t ndim : {1, 2, 3}) {
          add({.direction = direction, .layout = layout, .ndim = ndim, .epilogue = {}}, dtype);
        }
      }
    }
  }
  return all;
}

std::vector<Algorithm> Types::algorithms_for(const tessera::Problem& problem,
                                             const Target& target) {
  const ConvProblem p = folded(conv_of(problem));
  tile::space_of(Op::conv, target);
  std::vector<Algorithm> all;
  tile::for_each_way<Types>(target, [&](const Way& way) {
    if (way.pointwise && !is_pointwise(p)) return;
    const auto own = way.own.for_problem;
    if (own == nullptr && way.algorithms == nullptr) return;
    for (const Algorithm& a : own != nullptr ? own(p, target) : way.algorithms(target)) {
      all.push_back(a);
    }
  });
  return all;
}

std::vector<Algorithm> blocked_algorithms(const Target& target, Pipeline pipeline) {
  const AlgorithmSpace& space = tile::space_of(Op::conv, target);
  std::vector<Shape3> warp_tiles;
  for (const auto& [dtype, shapes] : space.warp_tiles) {
    warp_tiles.insert(warp_tiles.end(), shapes.begin(), shapes.end());
  }
  return tile::shapes_with(space, pipeline, warp_tiles);
}

std::string source_name(const KernelSpec& spec) {
  return name_of(spec.algorithm.pointwise ? product_kernel(spec) : spec);
}

// Sums that blocks add to memory as they come would be the exception.
Verdict is_deterministic(const KernelSpec& spec, const Target& target) {
  if (spec.algorithm.pointwise) {
    return family_of(Op::gemm).is_deterministic(product_kernel(spec), target);
  }
  if (spec.algorithm.split_k != SplitK::atomic) return {};
  return {"split_k=atomic adds parts in any order"};
}

std::span<const DerivedField> derived() { return kDerived; }

// The kernels that run any valid problem.
KernelSpec general(const Problem& problem, const Target& target) {
  return tile::legal_or_refused(
      family(), {signature_of(problem), direct_algorithm(target), target.name}, target);
}

Launch bind(const KernelSpec& spec, const Problem& problem, const Target& target,
            const Operands& operands) {
  const Tensors all = tensors(problem);
  Launch launch;
  if (!writes_nothing(all)) launch = tile::bind<Types>(spec, problem, target, operands);
  for (const Tensor& tensor : all) {
    if (!tensor.is_empty()) launch.pointers.push(pointer(operands, tensor.operand));
  }
  return launch;
}

Estimate estimate(const KernelSpec& spec, const Problem& problem, const Target& target,
                  int threads) {
  if (writes_nothing(tensors(problem))) return tile::total_of(0, 0, target.launch_us * 1e-6);
  return tile::estimate<Types>(spec, problem, target, threads);
}

}  // namespace tessera::conv
