// The router of a mixture of experts on a CPU. Threads share tokens, and find the best experts of
// each by one pass over its scores. Then they share slots: each thread counts the slots of every
// expert, and those before its own, and so knows where its own lie in the order.
#pragma once

#include "tessera/device/cpu/grid.h"
#include "tessera/device/cpu/math.h"
#include "tessera/device/route.h"

namespace tessera::device {

template <class C>
struct RouteKernel {
  using In = typename C::In;
  static constexpr bool kSoftmax = C::kScoring == RouteScoring::softmax;
  static_assert(C::kVectorBytes == kVectorBytes, "compile flags and target disagree on vectors");
  static_assert(kMostExperts % kLanes == 0, "a row of scores is whole vectors");

  // What is known of one token's experts.
  struct Row {
    float scores[kMostExperts];
    u32 keys[kMostExperts];  // by which experts are compared
  };

  static u32 key_of(float x) {
    u32 bits = 0;
    __builtin_memcpy(&bits, &x, sizeof(bits));
    return sort_key(bits);
  }
  static float float_of_key(u32 key) {
    const u32 bits = bits_of_key(key);
    float x = 0;
    __builtin_memcpy(&x, &bits, sizeof(x));
    return x;
  }

  // The numbers of the k greatest keys, the greatest first; of equal ones the lower number. At
  // least k keys are not kTaken.
  static void best_of(const u32* keys, int count, int k, int* found) {
    u32 best[kMostExperts];
    int taken = 0;
    for (int i = 0; i < count; ++i) {
      const u32 key = keys[i];
      if (key == kTaken || (taken == k && key <= best[k - 1])) continue;
      int at = taken < k ? taken++ : k - 1;
      for (; at > 0 && best[at - 1] < key; --at) {
        best[at] = best[at - 1];
        found[at] = found[at - 1];
      }
      best[at] = key;
      found[at] = i;
    }
  }

  static u32 group_key(const u32* keys, int count) {
    int best[2] = {0, 0};
    best_of(keys, count, C::kBias && count > 1 ? 2 : 1, best);
    if (!C::kBias || count == 1) return keys[best[0]];
    return key_of(float_of_key(keys[best[0]]) + float_of_key(keys[best[1]]));
  }

  // Takes away what is not in the token's best groups.
  static void keep_best_groups(const RouteArguments& g, u32* keys) {
    const int groups = static_cast<int>(g.num_groups);
    const int each = static_cast<int>(g.experts) / groups;
    u32 of_groups[kMostExperts];
    int best[kMostExperts];
    bool is_kept[kMostExperts] = {};
    for (int i = 0; i < groups; ++i) of_groups[i] = group_key(keys + i * each, each);
    best_of(of_groups, groups, static_cast<int>(g.top_groups), best);
    for (int i = 0; i < g.top_groups; ++i) is_kept[best[i]] = true;
    for (int i = 0; i < groups * each; ++i) {
      if (!is_kept[i / each]) keys[i] = kTaken;
    }
  }

  static float most_of(const float* x, int count) {
    f32v most = splat(-__builtin_inff());
    for (int i = 0; i < count; i += kLanes) most = max(load<f32v>(x + i), most);
    float all = most[0];
    for (int i = 1; i < kLanes; ++i) all = most[i] > all ? most[i] : all;
    return all;
  }

  // Logits become scores. What lies behind the last expert is minus infinity before.
  static void score(float* x, int count) {
    if constexpr (!kSoftmax) {
      for (int i = 0; i < count; i += kLanes) store(x + i, sigmoid(load<f32v>(x + i)));
      return;
    }
    const float most = most_of(x, count);
    f32v sums = {};
    for (int i = 0; i < count; i += kLanes) {
      const f32v y = exp(load<f32v>(x + i) - most);
      sums = sums + y;
      store(x + i, y);
    }
    float sum = 0;
    for (int i = 0; i < kLanes; ++i) sum += sums[i];
    for (int i = 0; i < count; i += kLanes) store(x + i, load<f32v>(x + i) / sum);
  }

  static void read(const RouteArguments& g, i64 token, Row& row) {
    const int experts = static_cast<int>(g.experts);
    const In* const logits = static_cast<const In*>(g.logits) + g.ld_logits * token;
    for (int i = 0; i < experts; i += kLanes) {
      const int lanes = static_cast<int>(smaller(kLanes, experts - i));
      store(row.scores + i, load_float(logits + i, lanes));
      for (int lane = lanes; lane < kLanes; ++lane) row.scores[i + lane] = -__builtin_inff();
    }
    if (!C::kBias) {
      for (int i = 0; i < experts; ++i) row.keys[i] = key_of(row.scores[i]);
    }
    score(row.scores, experts);
    if (C::kBias) {
      for (int i = 0; i < experts; ++i) row.keys[i] = key_of(row.scores[i] + g.bias[i]);
    }
  }

  static void choose_one(const RouteArguments& g, i64 token, Row& row) {
    const int k = static_cast<int>(g.top_k);
    int* const ids = g.ids + token * k;
    float* const weights = g.weights + token * k;
    read(g, token, row);
    if (g.num_groups > 1) keep_best_groups(g, row.keys);
    best_of(row.keys, static_cast<int>(g.experts), k, ids);
    float sum = 0;
    for (int i = 0; i < k; ++i) sum += row.scores[ids[i]];
    const float divisor = divisor_of(g, sum);
    for (int i = 0; i < k; ++i) weights[i] = row.scores[ids[i]] / divisor * g.scaling_factor;
  }

  static void choose(const void* arguments, const CpuThread* thread) {
    const auto& g = *static_cast<const RouteArguments*>(arguments);
    const Range mine = part(g.tokens, 1, thread->count, thread->index);
    Row row;
    for (i64 token = mine.begin; token < mine.end; ++token) choose_one(g, token, row);
  }

  static void order(const void* arguments, const CpuThread* thread) {
    const auto& g = *static_cast<const RouteArguments*>(arguments);
    const int experts = static_cast<int>(g.experts);
    const Range mine = part(g.tokens * g.top_k, 16, thread->count, thread->index);
    int next[kMostExperts + 1] = {}, counts[kMostExperts + 1] = {};
    for (i64 i = 0; i < mine.begin; ++i) ++next[place_of_id(g.ids[i], experts)];
    for (i64 i = mine.begin; i < g.tokens * g.top_k; ++i) ++counts[place_of_id(g.ids[i], experts)];
    int end = 0;
    for (int e = 0; e <= experts; ++e) {
      const int begin = end;
      end += next[e] + counts[e];
      next[e] += begin;
      if (thread->index == 0 && e < experts) g.group_ends[e] = end;
    }
    for (i64 i = mine.begin; i < mine.end; ++i) {
      const int at = next[place_of_id(g.ids[i], experts)]++;
      g.slots[at] = static_cast<int>(i);
      g.row_index[at] = static_cast<int>(i / g.top_k);
    }
  }

  static i64 workspace_bytes(const void*, int) { return 0; }

  static constexpr CpuKernel kernel() {
    constexpr CpuEntry kChoose = {workspace_bytes, choose}, kOrder = {workspace_bytes, order};
    if (C::kScoring == RouteScoring::given) return {C::kAbiVersion, {kOrder}};
    if (!C::kOrder) return {C::kAbiVersion, {kChoose}};
    return {C::kAbiVersion, {kChoose, kOrder}};
  }
};

}  // namespace tessera::device
