// A sample of a target's GEMM kernels: every combination of operand types, layout, pipeline,
// products per lane and preshuffle at least once; tiles, waves, warp tiles, outputs and epilogues
// spread evenly over them. The same every time, so that a test keeps its name.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/families/family.h"
#include "tessera/spec/kernel_spec.h"
#include "tessera/spec/target.h"

namespace tessera::gemm_sample {

struct Types {
  DType a, b;
  std::vector<DType> outs;
};

inline std::vector<Types> all_types() {
  using enum DType;
  return {{fp32, fp32, {fp32}},
          {tf32, tf32, {fp32}},
          {fp16, fp16, {fp16, fp32}},
          {bf16, bf16, {bf16, fp32}},
          {fp8, fp8, {fp16, bf16, fp32}},
          {fp8, bf8, {fp16, fp32}},
          {bf8, fp8, {bf16, fp32}},
          {bf8, bf8, {fp16, bf16, fp32}},
          {int8, int8, {int32, fp32, bf16, int8}}};
}

// Each step alone, usual chains, and the longest that fit into 6 steps and 4 D tensors.
inline constexpr std::array<std::string_view, 24> kEpilogues = {
    "none",         "bias+gelu",
    "none",         "multi_d_add2",
    "relu",         "multi_d_multiply2",
    "none",         "bias+silu",
    "add",          "clamp",
    "none",         "multiply+sigmoid",
    "gelu",         "bias+gelu_tanh",
    "none",         "multi_d_add4+tanh",
    "bias+add",     "silu+multiply",
    "multi_d_add3", "bias+multiply+add+relu+bias+clamp",
    "sigmoid",      "tanh+multi_d_multiply1",
    "col_scale",    "row_scale+col_scale+bias"};

// What the sample holds at least once.
using Class = std::tuple<DType, DType, GemmLayout, Pipeline, int, bool>;
inline Class class_of(const KernelSpec& spec) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  return {s.a, s.b, s.layout, spec.algorithm.pipeline, spec.algorithm.warp_tile.k, s.preshuffled_b};
}

// Waves beyond the target's list: exact numbers of threads along each dimension.
inline std::vector<Shape3> more_waves(std::vector<Shape3> waves) {
  for (const Shape3 wave : {Shape3{2, 1, 1}, Shape3{1, 2, 1}, Shape3{1, 1, 2}, Shape3{2, 1, 2}}) {
    waves.push_back(wave);
  }
  return waves;
}

class Sampler {
 public:
  explicit Sampler(const Target& target)
      : target_(target), space_(target.spaces.at(Op::gemm)), waves_(more_waves(space_.waves)) {}

  std::vector<KernelSpec> run() {
    for (const Types& types : all_types()) {
      const bool is_common =  // what most people multiply gets two of each
          types.a == DType::fp32 || types.a == DType::bf16 || types.a == DType::int8;
      // Types that share another's code, so that enumeration leaves them out.
      const bool is_listed = types.a != DType::tf32 && types.a == types.b;
      for (const GemmLayout layout :
           {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::crr, GemmLayout::ccr}) {
        if (!is_listed && !a_is_row_major(layout)) continue;
        add_small(types, layout);
        for (const Pipeline pipeline : space_.pipelines) {
          const bool fp32_only = pipeline == Pipeline::packa || pipeline == Pipeline::direct;
          if (fp32_only && types.a != DType::fp32 && types.a != DType::tf32) continue;
          for (const int products : products_of(pipeline)) {
            add(types, layout, pipeline, products, false);
            if (is_listed) add(types, layout, pipeline, products, true);
            if (is_common) add(types, layout, pipeline, products, false);
          }
        }
      }
    }
    return std::move(specs_);
  }

 private:
  void add(const Types& types, GemmLayout layout, Pipeline pipeline, int products,
           bool preshuffled) {
    KernelSpec spec;
    spec.target = target_.name;
    spec.signature = signature(types, layout, preshuffled);
    spec.algorithm.pipeline = pipeline;
    if (!choose_shapes(spec, products)) return;
    ++used_tiles_[spec.algorithm.tile];
    ++used_waves_[spec.algorithm.wave];
    ++used_warp_tiles_[spec.algorithm.warp_tile];
    ++count_;
    specs_.push_back(std::move(spec));
  }

  // What a register block multiplies along k: the products of a lane, or a row of a tile.
  static std::vector<int> products_of(Pipeline pipeline) {
    return pipeline == Pipeline::amx ? std::vector<int>{32, 64} : std::vector<int>{1, 2, 4};
  }

  // Kernels for short calls: each shape without and with a chain, over all outputs in turn.
  void add_small(const Types& types, GemmLayout layout) {
    KernelSpec spec;
    spec.target = target_.name;
    const GemmProblem any = gemm_problem(types.a, layout, 64, 64, 64);
    for (const KernelSpec& candidate : family_of(Op::gemm).candidates(any, target_)) {
      spec.algorithm = candidate.algorithm;
      spec.signature = signature(types, layout, false);
      if (spec.algorithm.pipeline != Pipeline::small) continue;
      if (!family_of(Op::gemm).is_legal(spec, target_)) continue;
      ++count_;
      specs_.push_back(spec);
      if (types.a == DType::tf32) return;  // fp32's code
    }
  }

  GemmSignature signature(const Types& types, GemmLayout layout, bool preshuffled) const {
    GemmSignature s;
    s.a = types.a;
    s.b = types.b;
    s.acc = types.a == DType::int8 ? DType::int32 : DType::fp32;
    s.out = types.outs[count_ % types.outs.size()];
    s.d = count_ % 3 == 0 && s.out != DType::int32 ? DType::fp32 : s.out;
    s.layout = layout;
    s.preshuffled_b = preshuffled;
    if (s.out != DType::int32) s.epilogue = parse_epilogue(kEpilogues[count_ % kEpilogues.size()]);
    return s;
  }

  // The least used legal combination.
  bool choose_shapes(KernelSpec& spec, int products) {
    const std::vector<Shape3> tiles = by_use(space_.tiles, used_tiles_);
    const std::vector<Shape3> waves = by_use(waves_, used_waves_);
    const DType a = std::get<GemmSignature>(spec.signature).a;
    const auto listed = space_.warp_tiles.find(a == DType::tf32 ? DType::fp32 : a);
    if (listed == space_.warp_tiles.end()) return false;
    for (const Shape3& warp_tile : by_use(listed->second, used_warp_tiles_)) {
      if (warp_tile.k != products) continue;
      for (const Shape3& wave : waves) {
        for (const Shape3& tile : tiles) {
          spec.algorithm.tile = tile;
          spec.algorithm.wave = wave;
          spec.algorithm.warp_tile = warp_tile;
          if (family_of(Op::gemm).is_legal(spec, target_)) return true;
        }
      }
    }
    return false;
  }

  using Uses = std::map<Shape3, int>;
  static std::vector<Shape3> by_use(std::vector<Shape3> shapes, Uses& uses) {
    std::stable_sort(shapes.begin(), shapes.end(),
                     [&](const Shape3& x, const Shape3& y) { return uses[x] < uses[y]; });
    return shapes;
  }

  const Target& target_;
  const AlgorithmSpace& space_;
  std::vector<Shape3> waves_;
  Uses used_tiles_, used_waves_, used_warp_tiles_;
  std::size_t count_ = 0;
  std::vector<KernelSpec> specs_;
};

// Kernels that came out twice are kept once.
inline std::vector<KernelSpec> sample(const Target& target) {
  std::map<std::string, KernelSpec> by_name;
  for (KernelSpec& spec : Sampler(target).run()) by_name.emplace(name_of(spec), std::move(spec));
  std::vector<KernelSpec> specs;
  for (auto& [name, spec] : by_name) specs.push_back(std::move(spec));
  return specs;
}

}  // namespace tessera::gemm_sample
