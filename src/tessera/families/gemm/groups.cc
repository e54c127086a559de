#include "tessera/families/gemm/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/families/gemm/ways.h"

namespace tessera::gemm {
namespace {

// Of the numbers, as kernels read them, also of those with 64 bits.
constexpr std::int64_t kMostNumber = std::numeric_limits<std::int32_t>::max();

// ---- what is valid ----

std::string without_grouping_reason(const GemmProblem& p) {
  if (p.groups != 0) {
    return fmt::format(
        "grouping must be contiguous, indexed, masked, along_k or lists with groups={}, got none",
        p.groups);
  }
  for (const auto& [name, value] :
       {std::pair{"group_strides", p.group_strides}, std::pair{"group_int64", p.group_int64}}) {
    if (value) return fmt::format("{} must be 0 with grouping=none, got 1", name);
  }
  return p.check_groups ? "check_groups must be 0 with grouping=none, got 1" : "";
}

std::string together_reason(const GemmProblem& p) {
  const std::string_view kind = to_string(p.grouping);
  if (p.batch != 1) return fmt::format("batch must be 1 with grouping={}, got {}", kind, p.batch);
  for (const auto& [name, value] :
       {std::pair{"pointer_arrays", p.pointer_arrays}, std::pair{"preshuffle", p.preshuffled_b}}) {
    if (value) return fmt::format("{} must be 0 with grouping={}, got 1", name, kind);
  }
  if (p.group_strides && !is_list(p)) {
    return fmt::format("group_strides must be 0 with grouping={}, got 1", kind);
  }
  if (p.group_int64 && is_list(p)) {
    return "group_int64 must be 0 with grouping=lists, whose sizes have 32 bits, got 1";
  }
  return {};
}

// The sizes that numbers may be as large as.
std::string rooms_reason(const GemmProblem& p) {
  const bool along_k = p.grouping == GemmGrouping::along_k, all = is_list(p);
  const std::tuple<bool, std::string_view, std::string_view, std::int64_t> rooms[] = {
      {!along_k, "m", all ? "group_m" : numbers_name(p.grouping), p.m},
      {all, "n", "group_n", p.n},
      {along_k || all, "k", all ? "group_k" : numbers_name(p.grouping), p.k}};
  for (const auto& [counts, name, numbers, room] : rooms) {
    if (!counts || room <= kMostNumber) continue;
    return fmt::format(
        "{} must be at most {} with grouping={}, since {} has numbers of 32 bits, got {}", name,
        kMostNumber, to_string(p.grouping), numbers, room);
  }
  return {};
}

// ---- arguments ----

struct Steps {
  std::int64_t a, b, out;  // out counts for everything that goes along its rows
};
Steps steps_of(const GemmProblem& p) {
  const bool a_rows = a_is_row_major(p.layout), b_rows = b_is_row_major(p.layout);
  if (p.grouping == GemmGrouping::masked || is_list(p)) return {0, 0, 0};
  if (p.grouping == GemmGrouping::along_k) return {a_rows ? 1 : p.ld_a, b_rows ? p.ld_b : 1, 0};
  return {a_rows ? p.ld_a : 1, 0, 1};
}

void drop_shared_strides(const GemmProblem& p, device::GemmArguments& g) {
  const GroupMatrices has = group_matrices(p.grouping);
  if (!has.a) g.batch_stride_a = 0;
  if (!has.b) g.batch_stride_b = 0;
  if (!has.out) g.batch_stride_c = g.batch_stride_out = 0;
  const auto uses = d_uses(p.epilogue);
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
    if (!has.d(uses[i].shape)) g.batch_stride_d[i] = 0;
  }
}

// Kernels read the arrays of lists even when they do not need the matrices. Those that the caller
// may leave out are null for them.
void drop_unread_arrays(const GemmProblem& p, device::GemmArguments& g) {
  if (p.k == 0) g.a = g.b = nullptr;
  if (p.beta == 0) g.c = nullptr;
}

// ---- numbers that do not fit ----

constexpr std::array<std::string_view, 3> kSizes = {"m", "n", "k"};
std::string_view size_name(const GemmProblem& p, const device::BadGroup& bad) {
  return kSizes.at(static_cast<std::size_t>(bad.place / p.groups));
}

std::string bound_of(const GemmProblem& p, const device::BadGroup& bad) {
  if (bad.number > bad.bound) {
    if (p.grouping == GemmGrouping::indexed) return fmt::format("with groups={}", p.groups);
    const bool along_k = p.grouping == GemmGrouping::along_k;
    return fmt::format("the room, {}={}", along_k ? "k" : "m", along_k ? p.k : p.m);
  }
  if (p.grouping == GemmGrouping::indexed) {
    return bad.bound == 0 ? "the first group, or -1" : "the index before it, or -1";
  }
  const bool follows = bad.place > 0 && p.grouping != GemmGrouping::masked;
  return follows ? "the end before it, so that ends do not decrease" : "the least number";
}

[[noreturn]] void refuse_size(const GemmProblem& p, const device::BadGroup& bad) {
  const std::string_view size = size_name(p, bad);
  const bool is_large = bad.number > bad.bound;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("gemm: group_{}[{}] must be at {} {}, {}, got {}", size,
                          bad.place % p.groups, is_large ? "most" : "least", bad.bound,
                          is_large ? fmt::format("the problem's {}", size) : "the least number",
                          bad.number));
}

}  // namespace

GroupMatrices group_matrices(GemmGrouping grouping) {
  if (grouping == GemmGrouping::masked || grouping == GemmGrouping::lists) {
    return {true, true, true};
  }
  if (grouping == GemmGrouping::along_k) return {false, false, true};
  return {false, true, false};
}

std::string_view numbers_name(GemmGrouping grouping) {
  if (grouping == GemmGrouping::indexed) return "group_index";
  if (grouping == GemmGrouping::lists) return "group_m";
  return grouping == GemmGrouping::masked ? "group_rows" : "group_ends";
}

std::int64_t numbers_count(const GemmProblem& p) {
  return p.grouping == GemmGrouping::indexed ? p.m : p.groups;
}

const std::int32_t* numbers_of(const GemmProblem& p, const GemmOperands& o) {
  if (is_list(p)) return o.group_sizes[0];
  const void* const numbers = p.grouping == GemmGrouping::indexed  ? o.group_index
                              : p.grouping == GemmGrouping::masked ? o.group_rows
                                                                   : o.group_ends;
  return static_cast<const std::int32_t*>(numbers);
}

void list_numbers(const GemmProblem& p, const GemmOperands& o, Launch& launch) {
  if (!is_list(p)) return launch.pointers.push(numbers_of(p, o));
  for (const std::int32_t* const sizes : o.group_sizes) launch.pointers.push(sizes);
  if (!p.group_strides) return;
  for (const std::int32_t* const lds : o.group_lds) {
    if (lds != nullptr) launch.pointers.push(lds);
  }
}

std::string groups_reason(const GemmProblem& p) {
  if (!has_groups(p)) return without_grouping_reason(p);
  if (p.groups < 0 || p.groups > kMostNumber) {
    return fmt::format("groups must be between 0 and {}, got {}", kMostNumber, p.groups);
  }
  if (std::string why = together_reason(p); !why.empty()) return why;
  return rooms_reason(p);
}

device::GroupArguments group_arguments(const GemmProblem& p, const GemmOperands& o) {
  device::GroupArguments x{};
  x.gemm = gemm_arguments(p, o);
  drop_shared_strides(p, x.gemm);
  if (is_list(p)) drop_unread_arrays(p, x.gemm);
  x.groups = p.groups;
  x.grouping = static_cast<device::Grouping>(p.grouping);
  x.numbers = numbers_of(p, o);
  x.wide = p.group_int64 ? 1 : 0;
  std::copy(o.group_sizes.begin(), o.group_sizes.end(), std::begin(x.sizes));
  if (p.group_strides) std::copy(o.group_lds.begin(), o.group_lds.end(), std::begin(x.lds));
  x.bad_group = p.check_groups ? o.bad_group : nullptr;
  const Steps steps = steps_of(p);
  x.step_a = steps.a, x.step_b = steps.b;
  x.step_c = steps.out * p.ld_c, x.step_out = steps.out * p.ld_out;
  const auto uses = d_uses(p.epilogue);
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
    const DShape shape = uses[i].shape;
    x.step_d[i] =
        shape == DShape::along_n ? 0 : steps.out * (shape == DShape::along_m ? 1 : p.ld_d[i]);
  }
  return x;
}

void refuse_bad_group(const Problem& problem, const Operands& operands) {
  const GemmProblem p = with_strides(std::get<GemmProblem>(problem));
  const device::GroupArguments x = group_arguments(p, std::get<GemmOperands>(operands));
  if (x.numbers == nullptr) return;  // nothing is computed
  const device::BadGroup bad = device::first_bad_group(x);
  if (!bad.found) return;
  if (is_list(p)) refuse_size(p, bad);
  throw Error(ErrorCode::invalid_argument,
              fmt::format("gemm: {}[{}] must be at {} {}, {}, got {}", numbers_name(p.grouping),
                          bad.place, bad.number > bad.bound ? "most" : "least", bad.bound,
                          bound_of(p, bad), bad.number));
}

namespace {
void refuse_bad_numbers(const Problem& problem, const Operands& operands) {
  const auto& p = std::get<GemmProblem>(problem);
  if (has_groups(p)) refuse_bad_group(problem, operands);
  refuse_bad_index(p, std::get<GemmOperands>(operands));
}
}  // namespace

void (*value_check(const Problem& problem))(const Problem&, const Operands&) {
  const auto& p = std::get<GemmProblem>(problem);
  if (p.indexing != GemmIndexing::none) return refuse_bad_numbers;
  return has_groups(p) ? refuse_bad_group : nullptr;
}

GemmProblem problem_of_part(const GemmProblem& p, const device::GemmArguments& part) {
  GemmProblem q = p;
  q.m = part.m, q.k = part.k;
  q.groups = 0, q.grouping = GemmGrouping::none, q.check_groups = q.group_strides = false;
  if (!is_list(p)) return q;
  q.n = part.n;
  q.ld_a = part.ld_a, q.ld_b = part.ld_b, q.ld_c = part.ld_c, q.ld_out = part.ld_out;
  std::copy(std::begin(part.ld_d), std::end(part.ld_d), q.ld_d.begin());
  return q;
}

namespace {

// The operand as a dense product of the group's sizes has it: such a product has all operands that
// are matrices of groups.
Tensor tensor_of_group(const GemmProblem& q, std::size_t operand) {
  const Tensors all = tensors(q);
  return *std::find_if(all.begin(), all.end(),
                       [&](const Tensor& tensor) { return tensor.operand == operand; });
}

[[noreturn]] void refuse_distance(std::string_view name, std::int64_t group, std::int64_t ld) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("gemm: group_ld_{}[{}] must be at least 0, with a last byte below 2^63, "
                          "so that the group can be compared, got {}",
                          name, group, ld));
}

}  // namespace

std::size_t batch_bytes(const Problem& problem, const Operands& operands, const Tensor& tensor,
                        std::int64_t batch) {
  const GemmProblem p = with_strides(std::get<GemmProblem>(problem));
  if (!is_list(p)) return tensor.batch_bytes();
  const auto& o = std::get<GemmOperands>(operands);
  GemmOperands numbers;
  numbers.group_sizes = o.group_sizes, numbers.group_lds = o.group_lds;
  const GemmProblem q =
      problem_of_part(p, device::product_of_list(group_arguments(p, numbers), batch));
  const Tensor own = tensor_of_group(q, tensor.operand);
  if (q.m == 0 || q.n == 0 || own.is_empty()) return 0;  // nothing of the group is accessed
  const std::int64_t ld = own.rank > 1 ? own.strides[1] : 0;
  if (ld < 0 || own.is_too_long()) refuse_distance(tensor.name, batch, ld);
  return own.bytes();
}

GemmProblem as_batches(const GemmProblem& p) {
  GemmProblem q = p;
  q.grouping = GemmGrouping::none;
  q.groups = 0, q.check_groups = q.group_strides = q.group_int64 = false;
  q.indexing = GemmIndexing::none, q.index_room = 0;
  q.batch = p.groups;
  if (p.groups == 0 || p.grouping == GemmGrouping::masked || is_list(p)) return q;
  std::int64_t& cut = p.grouping == GemmGrouping::along_k ? q.k : q.m;
  cut = tiles(cut, p.groups);
  return q;
}

double partly_filled(const Algorithm& a, const GemmProblem& p) {
  const bool share_rows =
      p.grouping == GemmGrouping::contiguous || p.grouping == GemmGrouping::indexed;
  if (!share_rows || p.groups == 0 || p.m == 0) return 1;
  const int side = a.swap_ab ? a.tile.n : a.tile.m;
  const double rows = static_cast<double>(p.m) / static_cast<double>(p.groups);
  const double of_equal = std::ceil(rows / side);
  return std::max(1.0, rows / side + 0.5) / of_equal;
}

}  // namespace tessera::gemm
