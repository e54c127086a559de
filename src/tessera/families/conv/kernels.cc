// Which kernels there are: rules, enumeration, and the kernels of a problem.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/families/conv/conv.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/fields.h"
#include "tessera/families/tile/space.h"
#include "tessera/families/tile/specs.h"
#include "tessera/families/tile/usual.h"
#include "tessera/spec/words_internal.h"

namespace tessera::conv {
namespace {

const ConvSignature& signature_in(const KernelSpec& spec) {
  return std::get<ConvSignature>(spec.signature);
}

// The row of a legal kernel.
const Way& way_of(const KernelSpec& spec, const Target& target) {
  const Way* const way = find_way(target.backend, spec.algorithm);
  if (way != nullptr) return *way;
  throw Error(ErrorCode::unsupported,
              fmt::format("{}: this build has no convolution with pipeline {} for {} targets",
                          name_of(spec), to_string(spec.algorithm.pipeline), target.backend));
}

std::vector<Algorithm> algorithms_of(const Target& target) {
  tile::space_of(Op::conv, target);
  std::vector<Algorithm> all;
  for (const Way& way : ways()) {
    if (way.backend != target.backend) continue;
    if (!way.pointwise && !tile::has_pipeline(Op::conv, target, way.pipeline)) continue;
    for (const Algorithm& a : way.algorithms(target)) all.push_back(a);
  }
  return all;
}

// What networks use: every direction and layout in one type, forward with a bias and an activation.
std::vector<Signature> signatures() {
  std::vector<Signature> all;
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

const ConvSignature& in(const Signature& signature) { return std::get<ConvSignature>(signature); }
std::vector<std::string> known_variants() { return known_words<ConvDirection>(); }
constexpr std::array kDerived = {
    DerivedField{"dtype", known_words<DType>,
                 [](const Signature& s) -> std::string_view { return to_string(in(s).in); }},
    DerivedField{"variant", known_variants,
                 [](const Signature& s) -> std::string_view { return to_string(in(s).direction); }},
};

std::vector<Algorithm> algorithms_for(const Problem& problem, const Target& target) {
  std::vector<Algorithm> algorithms = algorithms_of(target);
  if (!is_pointwise(conv_of(problem))) {
    std::erase_if(algorithms, [](const Algorithm& a) { return a.pointwise; });
  }
  return algorithms;
}

}  // namespace

std::string source_name(const KernelSpec& spec) {
  return name_of(spec.algorithm.pointwise ? product_kernel(spec) : spec);
}

Verdict is_legal(const KernelSpec& spec, const Target& target) {
  if (std::string why = tile::foreign_reason(Op::conv, spec, target); !why.empty()) return {why};
  const Algorithm& a = spec.algorithm;
  const Way* const way = find_way(target.backend, a);
  if (way == nullptr || !(a.pointwise || tile::has_pipeline(Op::conv, target, a.pipeline))) {
    return {fmt::format("{} has no pipeline {}", target.name, to_string(a.pipeline))};
  }
  const ConvSignature& s = signature_in(spec);
  if (std::string why = signature_reason(s); !why.empty()) return {why};
  if (!a.pointwise && !tile::unused_at_default(a)) return {tile::unused_field(a)};
  return {way->illegal(s, a, target)};
}

// Sums that blocks add to memory as they come would be the exception.
Verdict is_deterministic(const KernelSpec& spec, const Target& target) {
  if (spec.algorithm.pointwise) {
    return family_of(Op::gemm).is_deterministic(product_kernel(spec), target);
  }
  if (spec.algorithm.split_k != SplitK::atomic) return {};
  return {"split_k=atomic adds parts in any order"};
}

Verdict supports(const KernelSpec& spec, const Problem& problem, const Target& target) {
  if (std::string why = tile::signature_mismatch(spec, problem); !why.empty()) return {why};
  return {way_of(spec, target).unsupported(spec, with_strides(conv_of(problem)), target)};
}

std::vector<KernelSpec> combinations(const Target& target, std::span<const Wish> wishes,
                                     std::size_t most) {
  return tile::product(family(), target, wishes, signatures(), algorithms_of(target), most);
}

std::vector<KernelSpec> enumerate(const Target& target, std::span<const Wish> wishes) {
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  return tile::legal_by_name(family(), target, combinations(target, wishes, kAll));
}

std::span<const DerivedField> derived() { return kDerived; }

std::vector<KernelSpec> candidates(const Problem& problem, const Target& target) {
  return tile::specs_for(problem, target, algorithms_for(problem, target));
}

std::vector<KernelSpec> legal_candidates(const Problem& problem, const Target& target) {
  return tile::legal_specs_for(family(), problem, target, algorithms_for(problem, target));
}

KernelSpec general(const Problem& problem, const Target& target) {
  KernelSpec spec = {signature_of(problem), direct_algorithm(target), target.name};
  if (const Verdict verdict = is_legal(spec, target); !verdict) {
    throw Error(ErrorCode::unsupported, fmt::format("conv: {}", verdict.reason));
  }
  return spec;
}

Source emit(const KernelSpec& spec, const Target& target) {
  return way_of(spec, target).emit(spec, target);
}

Launch bind(const KernelSpec& spec, const Problem& problem, const Operands& operands) {
  const Tensors all = tensors(problem);
  Launch launch;
  if (!writes_nothing(all)) {
    launch = find_way(spec.algorithm)
                 ->bind(spec, with_strides(conv_of(problem)), std::get<ConvOperands>(operands));
  }
  for (const Tensor& tensor : all) {
    if (!tensor.is_empty()) launch.pointers.push(pointer(operands, tensor.operand));
  }
  return launch;
}

Estimate estimate(const KernelSpec& spec, const Problem& problem, const Target& target,
                  int threads) {
  const ConvProblem p = with_strides(conv_of(problem));
  if (writes_nothing(tensors(problem))) return tile::total_of(0, 0, target.launch_us * 1e-6);
  return way_of(spec, target).estimate(spec, p, target, threads);
}

}  // namespace tessera::conv
