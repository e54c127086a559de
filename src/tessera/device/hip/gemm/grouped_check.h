// The entry `_check` of kernels for groups: one workgroup looks for the first number that does not
// fit, as first_bad_group() of gemm/groups.h does, and reports it.
#pragma once

#include "tessera/device/hip/gemm/grouped_arguments.h"
#include "tessera/device/hip/memory.h"

namespace tessera::device {

struct GroupCheck {
  static constexpr int kThreads = kHipCheckThreads;
  static constexpr int kNone = -1;  // no number, and an index of no group

  // A thread looks at neighbours, and has to know the last number before them.
  template <class Arguments>
  static __device__ __forceinline__ void run(const Arguments&) {
    __shared__ __attribute__((aligned(16))) static u8 memory[2 * kThreads * 4];
    Shared* const last_of = (Shared*)memory;
    Shared* const found_by = last_of + kThreads * 4;
    const GroupArguments& x = fresh_arguments<HipGroupedArguments>().groups;
    const bool is_list = x.grouping == Grouping::lists;
    const GroupRule rule = is_list ? GroupRule{3 * x.groups, 0, 0, false} : group_rule(x);
    const int thread = static_cast<int>(__builtin_amdgcn_workitem_id_x());
    const i64 each = (rule.count + kThreads - 1) / kThreads;
    const i64 begin = smaller(thread * each, rule.count), end = smaller(begin + each, rule.count);
    store_shared(last_of + thread * 4, is_list ? kNone : last_number(x, begin, end));
    barrier();
    const BadGroup bad = is_list ? first_bad_size(x, begin, end)
                                 : first_bad(x, rule, begin, end, number_before(last_of, thread));
    store_shared(found_by + thread * 4, bad.found ? 1 : 0);
    barrier();
    bool is_first = true;
    for (int i = 0; i < thread; ++i) is_first &= load_shared<int>(found_by + i * 4) == 0;
    const bool is_last = thread == kThreads - 1;  // where nobody has found one
    if (is_first && (bad.found || is_last)) report(bad, x.bad_group);
  }

 private:
  static constexpr i64 smaller(i64 a, i64 b) { return a < b ? a : b; }

  // Rows of no group may lie between the others.
  static __device__ __forceinline__ int last_number(const GroupArguments& x, i64 begin, i64 end) {
    const bool skips = x.grouping == Grouping::indexed;
    for (i64 i = end; i > begin; --i) {
      const int number = number_at(x, i - 1);
      if (!skips || number != kNone) return number;
    }
    return kNone;
  }
  static __device__ __forceinline__ i64 number_before(const Shared* last_of, int thread) {
    for (int i = thread; i > 0; --i) {
      const int number = load_shared<int>(last_of + (i - 1) * 4);
      if (number != kNone) return number;
    }
    return 0;
  }
  static __device__ __forceinline__ BadGroup first_bad_size(const GroupArguments& x, i64 begin,
                                                            i64 end) {
    for (i64 i = begin; i < end; ++i) {
      const BadGroup bad = bad_size(x, i);
      if (bad.found) return bad;
    }
    return no_bad_group();
  }
  static __device__ __forceinline__ BadGroup first_bad(const GroupArguments& x,
                                                       const GroupRule& rule, i64 begin, i64 end,
                                                       i64 before) {
    for (i64 i = begin; i < end; ++i) {
      const i64 number = whole_number_at(x, i);
      const bool is_none = x.grouping == Grouping::indexed && number == kNone;
      if (number > rule.most) return {true, i, number, rule.most};
      const i64 least = rule.ascends && !is_none ? before : rule.least;
      if (number < least) return {true, i, number, least};
      if (!is_none) before = number;
    }
    return no_bad_group();
  }
};

}  // namespace tessera::device
