// Which kernels there are, and what their ways share.
#include <fmt/format.h>

#include <array>

#include "tessera/device/route.h"
#include "tessera/families/route/route.h"
#include "tessera/families/tile/algorithm_space.h"
#include "tessera/spec/words_internal.h"

namespace tessera::route {
namespace {

constexpr tile::Rule<Case> kCommonRules[] = {
    {[](const Case& c) { return tile::has_pipeline(Op::route, c.target, c.algorithm.pipeline); },
     [](const Case& c) {
       return fmt::format("{} has no pipeline {}", c.target.name, to_string(c.algorithm.pipeline));
     }},
    {[](const Case& c) { return signature_reason(c.signature).empty(); },
     [](const Case& c) { return signature_reason(c.signature); }},
    tile::kRowOf<Case, tile::kUnusedFields>,
    tile::kRowOf<Case, tile::kWarpTileOfOne>,
    {[](const Case& c) { return c.algorithm.slices == 1 && c.algorithm.cluster_n == 1; },
     [](const Case& c) {
       return fmt::format("slices must be 1 and cluster 1x1, got {} and 1x{}", c.algorithm.slices,
                          c.algorithm.cluster_n);
     }},
};

std::string_view dtype_of(const Signature& signature) {
  return to_string(std::get<RouteSignature>(signature).in);
}
constexpr std::array kDerived = {DerivedField{"dtype", known_words<DType>, dtype_of}};

}  // namespace

std::span<const Way* const> Types::ways() {
  static constexpr std::array kAll = {&kRowsCpu, &kRowsCuda, &kRowsHip};
  return kAll;
}

std::span<const tile::Rule<Case>> Types::common_rules() { return kCommonRules; }

std::string Types::no_way(const KernelSpec& spec, const Target& target) {
  return tile::no_backend("routers", spec, target);
}

// Softmax without a bias and sigmoid with one are what models use.
std::vector<Signature> Types::signatures() {
  std::vector<tessera::Signature> all = {
      RouteSignature{.scoring = RouteScoring::given, .order = true}};
  for (const DType in : {DType::fp32, DType::fp16, DType::bf16}) {
    for (const bool order : {false, true}) {
      all.push_back(RouteSignature{.in = in, .order = order});
      for (const bool bias : {false, true}) {
        all.push_back(RouteSignature{RouteScoring::sigmoid, in, bias, order});
      }
    }
  }
  return all;
}

std::vector<Algorithm> Types::algorithms_for(const tessera::Problem&, const Target& target) {
  return tile::algorithms_of<Types>(target);
}

std::vector<Algorithm> rows_algorithms(const Target& target) {
  return tile::shapes_with(tile::space_of(Op::route, target), Pipeline::rows, {Shape3{}});
}

tile::Template rows_template(const KernelSpec& spec) {
  const auto& s = std::get<RouteSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  return {"route/route_kernel.h", "RouteKernel", "RouteArguments",
          fmt::format("  using In = {};\n"
                      "  static constexpr RouteScoring kScoring = RouteScoring::{};\n"
                      "  static constexpr bool kBias = {};\n"
                      "  static constexpr int kTileN = {}, kWaveM = {};\n",
                      tile::storage_type(s.in), to_string(s.scoring), s.bias, a.tile.n, a.wave.m)};
}

device::RouteArguments rows_arguments(const RouteProblem& p, const RouteOperands& o) {
  const auto ints = [](void* data) { return static_cast<int*>(data); };
  return {p.tokens,
          p.experts,
          p.top_k,
          p.num_groups,
          p.top_groups,
          o.logits,
          static_cast<const float*>(o.bias),
          ints(o.ids),
          static_cast<float*>(o.weights),
          ints(o.group_ends),
          ints(o.row_index),
          ints(o.slots),
          p.ld_logits,
          p.scaling_factor,
          p.renormalize ? 1 : 0,
          1,
          0};
}

std::span<const DerivedField> derived() { return kDerived; }

KernelSpec general(const Problem& problem, const Target& target) {
  KernelSpec spec = {signature_of(problem), kRowsCpu.own.general, target.name};
  if (const Way* const way = tile::find_way<Types>(spec, target)) spec.algorithm = way->own.general;
  return tile::legal_or_refused(family(), std::move(spec), target);
}

}  // namespace tessera::route
