// Groups of unequal sizes in one launch: what kernels of every backend are told of them, where each
// group lies, and which numbers do not fit. See GemmGrouping in src/tessera/spec/gemm_problem.h.
#pragma once

#include "tessera/device/gemm/gemm_arguments.h"

namespace tessera::device {

// The values of GemmGrouping.
enum class Grouping : int { none, contiguous, indexed, masked, along_k, lists };

// An operand of group i begins at i times its batch stride, and at its step times the place where
// the group begins among the rows, or along k. One of both is 0.
struct GroupArguments {
  GemmArguments gemm;  // m, or k where groups lie along k, is the room for all groups, or for each
  i64 groups;
  i64 step_a, step_b, step_c, step_out, step_d[4];
  const int* numbers;  // ends, an index for each row, or rows; see number_at()
  int* bad_group;      // null: not checked
  Grouping grouping;
  int wide;  // 1: numbers have 64 bits, the lower word first
  // Lists: m, n and k of each group, where those of `gemm` are the greatest, and the operands of
  // `gemm` are arrays of pointers. Distances of rows of a, b, c, out and d; null: as in `gemm`.
  const int* sizes[3];
  const int* lds[8];
};

// A part of a group without gaps: so many rows from `begin` on, or so much of k.
struct GroupPart {
  i64 group, begin, size;
};

// A number as kernels read it: of one with 64 bits the lower word, which is all of a number that
// fits.
constexpr int number_at(const GroupArguments& x, i64 place) { return x.numbers[place << x.wide]; }
// All of a number.
constexpr i64 whole_number_at(const GroupArguments& x, i64 place) {
  const int low = number_at(x, place);
  if (x.wide == 0) return low;
  const i64 high = x.numbers[2 * place + 1];
  return high * (i64{1} << 32) + static_cast<unsigned>(low);
}

constexpr i64 clamped(i64 value, i64 least, i64 most) {
  return value < least ? least : value > most ? most : value;
}

// The room that the groups share, or that each has.
constexpr i64 group_room(const GroupArguments& x) {
  return x.grouping == Grouping::along_k ? x.gemm.k : x.gemm.m;
}

// Calls visit(part) for each group in its order; empty ones are left out unless `also_empty`.
// Numbers that do not fit are clamped, so that nothing outside of an operand is accessed.
template <class Visit>
void for_each_end(const GroupArguments& x, bool also_empty, const Visit& visit) {
  i64 begin = 0;
  for (i64 i = 0; i < x.groups; ++i) {
    const i64 end = clamped(number_at(x, i), begin, group_room(x));
    if (end > begin || also_empty) visit(GroupPart{i, begin, end - begin});
    begin = end;
  }
}

// Each run of rows with the same index is a part.
template <class Visit>
void for_each_run(const GroupArguments& x, const Visit& visit) {
  for (i64 begin = 0, end = 0; begin < x.gemm.m; begin = end) {
    const int group = number_at(x, begin);
    for (end = begin + 1; end < x.gemm.m && number_at(x, end) == group;) ++end;
    if (group >= 0 && group < x.groups) visit(GroupPart{group, begin, end - begin});
  }
}

// A group without rows has no part; one without k has an empty one, because its output is written.
template <class Visit>
void for_each_part(const GroupArguments& x, const Visit& visit) {
  if (x.grouping == Grouping::indexed) return for_each_run(x, visit);
  if (x.grouping != Grouping::masked && x.grouping != Grouping::lists) {
    return for_each_end(x, x.grouping == Grouping::along_k, visit);
  }
  for (i64 i = 0; i < x.groups; ++i) {  // lists have the sizes of m as numbers
    const i64 rows = clamped(number_at(x, i), 0, x.gemm.m);
    if (rows > 0) visit(GroupPart{i, 0, rows});
  }
}

// ---- numbers that do not fit ----

// The first number that does not fit, where it is, and what it must be at least or at most.
struct BadGroup {
  bool found;
  i64 place, number, bound;
};
constexpr BadGroup no_bad_group() { return {false, -1, -1, -1}; }

// What the numbers must be: at most `most`, and at least `least` or, where they ascend, the one
// before.
struct GroupRule {
  i64 count, least, most;
  bool ascends;
};
constexpr i64 size_room(const GroupArguments& x, i64 which) {
  return which == 0 ? x.gemm.m : which == 1 ? x.gemm.n : x.gemm.k;
}
constexpr GroupRule group_rule(const GroupArguments& x) {
  if (x.grouping == Grouping::indexed) return {x.gemm.m, -1, x.groups - 1, true};
  return {x.groups, 0, group_room(x), x.grouping != Grouping::masked};
}

// Places of lists count the groups' m, then their n, then their k.
constexpr i64 size_at(const GroupArguments& x, i64 place) {
  return x.sizes[place / x.groups][place % x.groups];
}
constexpr BadGroup bad_size(const GroupArguments& x, i64 place) {
  const i64 number = size_at(x, place), most = size_room(x, place / x.groups);
  if (number >= 0 && number <= most) return no_bad_group();
  return {true, place, number, number < 0 ? 0 : most};
}
inline BadGroup first_bad_size(const GroupArguments& x) {
  for (i64 i = 0; i < 3 * x.groups; ++i) {
    if (const BadGroup bad = bad_size(x, i); bad.found) return bad;
  }
  return no_bad_group();
}

// The first that does not fit of the numbers from `from` up to, but not including, `to`. `before`
// is the last number ahead of them that is of a group, or 0. Rows of no group may lie anywhere
// between the others.
inline BadGroup first_bad_between(const GroupArguments& x, i64 from, i64 to, i64 before) {
  const GroupRule rule = group_rule(x);
  for (i64 i = from; i < to; ++i) {
    const i64 number = whole_number_at(x, i);
    const bool is_none = x.grouping == Grouping::indexed && number == -1;
    if (number > rule.most) return {true, i, number, rule.most};
    const i64 least = rule.ascends && !is_none ? before : rule.least;
    if (number < least) return {true, i, number, least};
    if (!is_none) before = number;
  }
  return no_bad_group();
}
inline BadGroup first_bad_group(const GroupArguments& x) {
  if (x.grouping == Grouping::lists) return first_bad_size(x);
  return first_bad_between(x, 0, group_rule(x).count, 0);
}

constexpr void report(const BadGroup& bad, int* to) {
  to[0] = bad.found ? 1 : 0;
  to[1] = static_cast<int>(bad.place);
  constexpr i64 kLimit = 0x7fffffff;  // numbers of 64 bits may be beyond
  to[2] = static_cast<int>(clamped(bad.number, -kLimit - 1, kLimit));
  to[3] = static_cast<int>(bad.bound);
}

// ---- the product of one part ----

// The bytes of an element of each matrix.
struct GroupElements {
  int a, b, d, out;
};

inline const void* moved(const void* pointer, i64 bytes) {
  return pointer == nullptr ? pointer : static_cast<const char*>(pointer) + bytes;
}

// Lists: the pointer of a group, and the distance of rows of its matrix.
inline const void* listed(const void* pointers, i64 group) {
  return pointers == nullptr ? pointers : static_cast<const void* const*>(pointers)[group];
}
inline i64 ld_of(const GroupArguments& x, i64 group, int operand, i64 ld) {
  const int* const own = x.lds[operand];
  return own == nullptr ? ld : own[group];
}
inline GemmArguments product_of_list(const GroupArguments& x, i64 i) {
  const GemmArguments& all = x.gemm;
  GemmArguments g = all;
  g.m = clamped(x.sizes[0][i], 0, all.m);
  g.n = clamped(x.sizes[1][i], 0, all.n);
  g.k = clamped(x.sizes[2][i], 0, all.k);
  g.a = listed(all.a, i), g.b = listed(all.b, i), g.c = listed(all.c, i);
  g.out = const_cast<void*>(listed(all.out, i));
  g.ld_a = ld_of(x, i, 0, all.ld_a), g.ld_b = ld_of(x, i, 1, all.ld_b);
  g.ld_c = ld_of(x, i, 2, all.ld_c), g.ld_out = ld_of(x, i, 3, all.ld_out);
  for (int j = 0; j < 4; ++j) {
    g.d[j] = listed(all.d[j], i);
    g.ld_d[j] = ld_of(x, i, 4 + j, all.ld_d[j]);
  }
  return g;
}

// The arguments of a part as one product: its matrices as operands, its size as m or k.
inline GemmArguments product_of(const GroupArguments& x, const GroupPart& part,
                                const GroupElements& sizes) {
  if (x.grouping == Grouping::lists) return product_of_list(x, part.group);
  const auto at = [&](i64 stride, i64 step, int size) {
    return (part.group * stride + part.begin * step) * size;
  };
  const GemmArguments& all = x.gemm;
  GemmArguments g = all;
  (x.grouping == Grouping::along_k ? g.k : g.m) = part.size;
  g.a = moved(all.a, at(all.batch_stride_a, x.step_a, sizes.a));
  g.b = moved(all.b, at(all.batch_stride_b, x.step_b, sizes.b));
  g.c = moved(all.c, at(all.batch_stride_c, x.step_c, sizes.out));
  for (int i = 0; i < 4; ++i) {
    g.d[i] = moved(all.d[i], at(all.batch_stride_d[i], x.step_d[i], sizes.d));
  }
  g.out = const_cast<void*>(moved(all.out, at(all.batch_stride_out, x.step_out, sizes.out)));
  return g;
}

}  // namespace tessera::device
