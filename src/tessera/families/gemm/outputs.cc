#include "tessera/families/gemm/outputs.h"

#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/device/norm.h"
#include "tessera/families/gemm/groups.h"
#include "tessera/spec/words_internal.h"

namespace tessera::gemm {
namespace {

// Whether the rows of out go on from one group to the next.
bool rows_follow(const GemmProblem& p) {
  return p.grouping == GemmGrouping::contiguous || p.grouping == GemmGrouping::indexed;
}

// Operands that the index goes through begin at the same place for every part of a group.
void drop_indexed_steps(const GemmProblem& p, device::GroupArguments& x) {
  if (p.indexing == GemmIndexing::gathered) x.step_a = 0;
  if (p.indexing != GemmIndexing::scattered) return;
  x.step_c = x.step_out = 0;
  for (auto& step : x.step_d) step = 0;
}

constexpr std::int64_t kLine = 256;  // bytes at whose multiples parts of the workspace begin

std::int64_t whole_lines(std::int64_t bytes) { return tiles(bytes, kLine) * kLine; }

// Rows of the copy begin at multiples of 16 bytes.
std::int64_t ld_of_copy(const GemmProblem& p) {
  const std::int64_t unit = 16 / size_of(p.a);
  return tiles(a_is_row_major(p.layout) ? p.k : p.m, unit) * unit;
}
std::int64_t bytes_of_copy(const GemmProblem& p) {
  if (p.indexing != GemmIndexing::gathered) return 0;
  return whole_lines(ld_of_copy(p) * (a_is_row_major(p.layout) ? p.m : p.k) * size_of(p.a));
}

[[noreturn]] void refuse_index(std::int64_t place, const std::string& what, std::int32_t got) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("gemm: row_index[{}] must be {}, got {}", place, what, got));
}

}  // namespace

ScaleStrides scale_strides(const GemmProblem& p) {
  if (p.quant < NormQuant::row) return {0, 0, 0};
  const std::int64_t rows = stored_rows_out(p);
  const std::int64_t blocks =
      p.quant == NormQuant::row ? 1 : tiles(stored_columns_out(p), device::kQuantBlock);
  const std::int64_t matrix = rows * blocks;
  if (p.scales_by_column) return {1, rows, matrix};
  return {blocks, 1, matrix};
}

device::OutputArguments output_arguments(const GemmProblem& p, const GemmOperands& o) {
  device::OutputArguments x{};
  x.groups = group_arguments(p, o);
  if (!has_groups(p)) x.groups.gemm = gemm_arguments(p, o);
  drop_indexed_steps(p, x.groups);
  x.row_index = o.row_index;
  x.index_room = p.index_room;
  x.out_scale = static_cast<const float*>(o.out_scale);
  x.out_scales = static_cast<float*>(o.out_scales);
  const ScaleStrides strides = scale_strides(p);
  x.row_of_scales = strides.row, x.block_of_scales = strides.block;
  const bool scatters = p.indexing == GemmIndexing::scattered;
  if (rows_follow(p)) {
    x.step_of_scales = scatters ? 0 : strides.row;
  } else {
    x.matrix_of_scales = strides.matrix;
  }
  return x;
}

OutputPlaces output_places(const GemmProblem& p, std::int64_t first) {
  OutputPlaces places{};
  places.copy = first, places.ld_copy = ld_of_copy(p);
  places.sums = first + bytes_of_copy(p);
  const bool of_groups = group_matrices(p.grouping).out;
  places.end = places.sums + matrices(p, of_groups) * p.m * p.n * kStoredSumBytes;
  return places;
}

void list_outputs(const GemmProblem& p, const GemmOperands& o, Launch& launch) {
  if (p.indexing != GemmIndexing::none) launch.pointers.push(o.row_index);
  if (p.quant == NormQuant::tensor) launch.pointers.push(o.out_scale);
  if (p.quant >= NormQuant::row) launch.pointers.push(o.out_scales);
}

Verdict outputs_serve_on_gpus(const GemmProblem& p) {
  if (!has_outputs(p) || !p.pointer_arrays) return {};
  return {"pointer_arrays must be 0 for gates on GPUs, got 1"};
}

std::int64_t scales_offset(const GemmProblem& p, const device::GroupPart& part) {
  const device::OutputArguments x = output_arguments(p, {});
  return 4 * (part.group * x.matrix_of_scales + part.begin * x.step_of_scales);
}

std::string outputs_text(const GemmSignature& s) {
  return fmt::format(
      "  static constexpr Gate kGate = Gate::{};\n"
      "  static constexpr bool kGateInterleaved = {};\n"
      "  static constexpr Indexing kIndexing = Indexing::{};\n"
      "  static constexpr NormQuant kQuant = NormQuant::{};\n",
      to_string(s.gate), yes_no(s.gate_interleaved), to_string(s.indexing), to_string(s.quant));
}

void refuse_bad_index(const GemmProblem& p, const GemmOperands& o) {
  if (p.indexing == GemmIndexing::none || o.row_index == nullptr) return;
  const bool scatters = p.indexing == GemmIndexing::scattered;
  std::vector<bool> seen(scatters ? static_cast<std::size_t>(p.index_room) : 0);
  for (std::int64_t i = 0; i < p.m; ++i) {
    const std::int32_t named = o.row_index[i];
    if (named >= p.index_room) {
      refuse_index(i, fmt::format("at most {} with index_room={}", p.index_room - 1, p.index_room),
                   named);
    }
    if (named < -1) refuse_index(i, "at least -1", named);
    if (!scatters || named < 0) continue;
    const auto at = static_cast<std::size_t>(named);
    if (seen[at]) refuse_index(i, "a row of out that no other row names", named);
    seen[at] = true;
  }
}

std::size_t place_of(const GemmProblem& problem, std::string_view name) {
  const Tensors all = tensors(problem);
  std::size_t place = 0;
  for (const Tensor& tensor : all) {
    if (tensor.name == name) return place;
    ++place;
  }
  throw Error(ErrorCode::internal, fmt::format("gemm: a problem has no operand {}", name));
}

}  // namespace tessera::gemm
