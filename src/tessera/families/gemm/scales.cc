#include "tessera/families/gemm/scales.h"

#include <algorithm>

#include "tessera/families/gemm/extras.h"
#include "tessera/families/gemm/groups.h"
#include "tessera/families/gemm/ways.h"

namespace tessera::gemm {
namespace {

device::ScaleView view_of(const GemmProblem& p, GemmScale scale, const void* data) {
  device::ScaleView v{};
  if (scale == GemmScale::none) return v;
  const ScaleBlock block = block_of(scale);
  v.data = data;
  v.block_rows = static_cast<int>(block.rows), v.block_k = static_cast<int>(block.k);
  v.is_byte = p.scale_type == GemmScaleType::e8m0 ? 1 : 0;
  v.quads = p.scale_quads ? 1 : 0;
  return v;
}

}  // namespace

device::ScaledArguments scaled_arguments(const GemmProblem& p, const GemmOperands& o) {
  device::ScaledArguments x{};
  if (has_groups(p)) {
    x.groups = group_arguments(p, o);
  } else {
    x.groups.gemm = gemm_arguments(p, o);
  }
  const GroupMatrices has = has_groups(p) ? group_matrices(p.grouping) : GroupMatrices{1, 1, 1};
  x.a = view_of(p, p.scale_a, o.scale_a);
  x.a.stride_rows = p.stride_scale_a_m, x.a.stride_k = p.stride_scale_a_k;
  x.a.batch_stride = has.a ? p.batch_stride_scale_a : 0;
  x.b = view_of(p, p.scale_b, o.scale_b);
  x.b.stride_rows = p.stride_scale_b_n, x.b.stride_k = p.stride_scale_b_k;
  x.b.batch_stride = has.b ? p.batch_stride_scale_b : 0;
  return x;
}

int elements_of_scale(const GemmSignature& s) {
  std::int64_t least = block_of(GemmScale::by_1x128).k;
  for (const GemmScale scale : {s.scale_a, s.scale_b}) {
    if (scale != GemmScale::none) least = std::min<std::int64_t>(least, block_of(scale).k);
  }
  return static_cast<int>(least);
}

void list_scales(std::vector<GemmSignature>& all) {
  constexpr GemmScale kScales[] = {GemmScale::none, GemmScale::by_1x32, GemmScale::by_1x128,
                                   GemmScale::by_128x128};
  const std::vector<GemmSignature> plain = all;
  for (GemmSignature s : plain) {
    if (size_of(s.a) != 1 || s.a == DType::int8 || s.preshuffled_b) continue;
    for (const GemmScale scale_a : kScales) {
      for (const GemmScale scale_b : kScales) {
        for (const GemmScaleType type : {GemmScaleType::fp32, GemmScaleType::e8m0}) {
          s.scale_a = scale_a, s.scale_b = scale_b, s.scale_type = type;
          if (has_scales(s)) all.push_back(s);
        }
      }
    }
  }
}

}  // namespace tessera::gemm
