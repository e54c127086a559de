// The router of a mixture of experts on a GPU, as lanes of a warp or wave do it. The backend says
// by `L` what its lanes can do; L::kLanes of them make a warp. Each block has C::kWaveM warps.
#pragma once

#include "tessera/device/route.h"

namespace tessera::device {

// The best experts of a token, which a warp finds: lane l looks after the experts l, l + kLanes,
// l + 2 * kLanes and so on, of which it keeps the keys in registers.
template <class C, class L>
struct RouteChoice {
  using In = typename C::In;
  static constexpr bool kSoftmax = C::kScoring == RouteScoring::softmax;
  static constexpr int kEach = C::kTileN / L::kLanes;  // experts of a lane
  static_assert(C::kTileN % L::kLanes == 0, "each lane looks after as many experts");

  struct Keys {
    u32 of[kEach];
  };
  // What the scores of a token need: each is exp(logit - most) / sum, or the logit's sigmoid.
  struct Scale {
    float most, sum;
  };

  // The i-th of those of this lane. What the compiler computes of all of them ahead would take more
  // scalar registers than there are.
  static __device__ __forceinline__ int expert(int i) {
    return L::not_ahead(i * L::kLanes + L::lane());
  }
  static __device__ __forceinline__ u32 key_of(float x) { return sort_key(L::bits(x)); }

  static __device__ __forceinline__ float score(float logit, Scale s) {
    if constexpr (!kSoftmax) return sigmoid(logit);
    return exp_fast(logit - s.most) / s.sum;
  }

  // The number of the greatest key, of equal ones the lowest. It is then taken.
  static __device__ __forceinline__ int take_best(Keys& keys) {
    u32 best = kTaken;
    int at = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (keys.of[i] > best) best = keys.of[i], at = i;
    }
    const u32 most = L::most(best);
    const u32 mine = best == most ? static_cast<u32>(at * L::kLanes + L::lane()) : ~0U;
    const u32 number = L::least(mine);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (static_cast<u32>(expert(i)) == number) keys.of[i] = kTaken;
    }
    return static_cast<int>(number);
  }

  // As good as the group's best expert, or with a bias as the sum of its two best.
  static __device__ __forceinline__ u32 group_key(const u32* keys, int count) {
    u32 best = kTaken, second = kTaken;
    for (int i = 0; i < count; ++i) {
      const u32 key = keys[i];
      second = key > best ? best : key > second ? key : second;
      best = key > best ? key : best;
    }
    if (!C::kBias || count == 1) return best;
    return key_of(L::of_bits(bits_of_key(best)) + L::of_bits(bits_of_key(second)));
  }

  // Takes away what is not in the token's best groups. `words`: C::kTileN of the warp's own.
  static __device__ __forceinline__ void keep_best_groups(const RouteArguments& g, Keys& keys,
                                                          u32* words) {
    const int groups = static_cast<int>(g.num_groups);
    const int each = static_cast<int>(g.experts) / groups;
    Keys of_groups;
#pragma unroll
    for (int i = 0; i < kEach; ++i) words[expert(i)] = keys.of[i];
    L::meet_warp();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int group = expert(i);
      of_groups.of[i] = group < groups ? group_key(words + group * each, each) : kTaken;
    }
    L::meet_warp();
#pragma unroll
    for (int i = 0; i < kEach; ++i) words[expert(i)] = 0;
    L::meet_warp();
    for (int i = 0; i < static_cast<int>(g.top_groups); ++i) {
      const int best = take_best(of_groups);
      if (L::lane() == 0) words[best] = 1;
    }
    L::meet_warp();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int own = expert(i);
      if (own < static_cast<int>(g.experts) && words[own / each] == 0) keys.of[i] = kTaken;
    }
    L::meet_warp();  // before the warp's next token writes there
  }

  static __device__ __forceinline__ Scale read(const RouteArguments& g, const In* logits,
                                               Keys& keys) {
    const int experts = static_cast<int>(g.experts);
    float x[kEach];
    Scale s = {L::minus_infinity(), 0};
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int own = expert(i);
      x[i] = own < experts ? to_float(logits[own]) : L::minus_infinity();
      s.most = x[i] > s.most ? x[i] : s.most;
    }
    if constexpr (kSoftmax) {
      s.most = L::most_number(s.most);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (expert(i) < experts) s.sum += exp_fast(x[i] - s.most);
      }
      s.sum = L::sum(s.sum);
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int own = expert(i);
      keys.of[i] = kTaken;
      if (own >= experts) continue;
      keys.of[i] = key_of(C::kBias ? score(x[i], s) + g.bias[own] : x[i]);
    }
    return s;
  }

  // Lane j has the j-th best expert, and those kLanes behind it.
  static __device__ __forceinline__ void choose(const RouteArguments& g, i64 token, u32* words) {
    const In* const logits = static_cast<const In*>(g.logits) + token * g.ld_logits;
    const int k = static_cast<int>(g.top_k);
    int* const ids = g.ids + token * k;
    float* const weights = g.weights + token * k;
    Keys keys;
    const Scale s = read(g, logits, keys);
    if (g.num_groups > 1) keep_best_groups(g, keys, words);
    float own_sum = 0, last = 0;
    for (int first = 0; first < k; first += L::kLanes) {
      const int end = k - first < L::kLanes ? k - first : L::kLanes;
      int mine = 0;
      for (int j = 0; j < end; ++j) {
        const int best = take_best(keys);
        if (L::lane() == j) mine = best;
      }
      if (L::lane() < end) {
        last = score(to_float(logits[mine]), s);
        own_sum += last;
        ids[first + L::lane()] = mine;
        if (k > L::kLanes) weights[first + L::lane()] = last;
      }
    }
    const float divisor = divisor_of(g, L::sum(own_sum));
    for (int at = L::lane(); at < k; at += L::kLanes) {
      const float mine = k > L::kLanes ? weights[at] : last;
      weights[at] = mine / divisor * g.scaling_factor;
    }
  }
};

// The order of slots by their experts. Each block counts the slots of all experts, and those before
// its own slots, so that blocks need not wait for each other. Its warps have equal parts of its
// slots, one behind the other, and counts of their own.
template <class C, class L>
struct RouteOrder {
  static constexpr int kPlaces = C::kTileN + 1;             // the last one is of no expert
  static constexpr int kWords = (C::kWaveM + 2) * kPlaces;  // of shared memory
  static constexpr int kThreads = C::kWaveM * L::kLanes;

  u32* const ends;   // of all slots of each place
  u32* const first;  // slots before those of this block
  u32* const parts;  // of each warp: slots, and then where its next one goes
  const RouteArguments& g;
  const int experts;
  const i64 slots, begin, end;  // all of them, and those of this block

  __device__ __forceinline__ RouteOrder(const RouteArguments& arguments, u32* words, i64 block)
      : ends(words),
        first(words + kPlaces),
        parts(words + 2 * kPlaces),
        g(arguments),
        experts(static_cast<int>(g.experts)),
        slots(g.tokens * g.top_k),
        begin(block * g.block_slots < slots ? block * g.block_slots : slots),
        end(begin + g.block_slots < slots ? begin + g.block_slots : slots) {}

  __device__ __forceinline__ i64 part_begin(int warp) const {
    const i64 at = begin + (g.block_slots * warp / C::kWaveM);
    return at < end ? at : end;
  }
  __device__ __forceinline__ int place(i64 slot) const { return place_of_id(g.ids[slot], experts); }

  __device__ __forceinline__ void count() const {
    for (int i = L::thread(); i < kWords; i += kThreads) ends[i] = 0;
    L::meet_block();
#pragma unroll 4
    for (i64 slot = L::thread(); slot < slots; slot += kThreads) {
      const int at = place(slot);
      L::add(ends + at, 1);
      if (slot < begin) L::add(first + at, 1);
    }
    u32* const own = parts + L::warp() * kPlaces;
    const i64 own_end = part_begin(L::warp() + 1);
    for (i64 slot = part_begin(L::warp()) + L::lane(); slot < own_end; slot += L::kLanes) {
      L::add(own + place(slot), 1);
    }
    L::meet_block();
  }

  // The first warp makes sums of the counts: a lane has so many neighbouring places.
  __device__ __forceinline__ void add_up() const {
    constexpr int kOfLane = (kPlaces + L::kLanes - 1) / L::kLanes;
    if (L::warp() == 0) {
      u32 sum = 0;
      const int from = L::lane() * kOfLane;
      for (int i = from; i < from + kOfLane && i < kPlaces; ++i) sum += ends[i];
      u32 before = L::sum_before(sum);
      for (int i = from; i < from + kOfLane && i < kPlaces; ++i) {
        before += ends[i];
        ends[i] = before;
      }
    }
    L::meet_block();
    for (int i = L::thread(); i <= experts; i += kThreads) {
      u32 next = first[i] + (i == 0 ? 0 : ends[i - 1]);
      for (int warp = 0; warp < C::kWaveM; ++warp) {
        const u32 count = parts[warp * kPlaces + i];
        parts[warp * kPlaces + i] = next;
        next += count;
      }
    }
    L::meet_block();
  }

  // The lanes that have the same place, a bit for each; only lanes with a slot are asked.
  static __device__ __forceinline__ u64 alike(int at, bool has_slot) {
    u64 lanes = L::lanes_with(has_slot);
#pragma unroll
    for (int bit = 1; bit < 2 * C::kTileN; bit *= 2) {
      const u64 set = L::lanes_with((at & bit) != 0);
      lanes &= (at & bit) != 0 ? set : ~set;
    }
    return lanes;
  }

  // So many slots at a time as a warp has lanes; among equal ones the lower lane comes first.
  __device__ __forceinline__ void put() const {
    u32* const next = parts + L::warp() * kPlaces;
    const i64 own_end = part_begin(L::warp() + 1);
    for (i64 from = part_begin(L::warp()); from < own_end; from += L::kLanes) {
      const i64 slot = from + L::lane();
      const bool has_slot = slot < own_end;
      const int at = has_slot ? place(slot) : 0;
      const u64 lanes = alike(at, has_slot);
      const int rank = L::count_bits(lanes & ((u64{1} << L::lane()) - 1));
      const u32 to = next[at] + static_cast<u32>(rank);
      L::meet_warp();
      if (has_slot) {
        if (rank == 0) next[at] += static_cast<u32>(L::count_bits(lanes));
        g.slots[to] = static_cast<int>(slot);
        g.row_index[to] = static_cast<int>(slot / g.top_k);
      }
      L::meet_warp();
    }
  }

  __device__ __forceinline__ void run() const {
    count();
    add_up();
    if (begin == 0) {
      for (int i = L::thread(); i < experts; i += kThreads) {
        g.group_ends[i] = static_cast<int>(ends[i]);
      }
    }
    put();
  }
};

template <class C, class L>
struct RouteLanes {
  static constexpr int kWords = RouteOrder<C, L>::kWords;

  // A warp has every token that lies so many warps behind its first one.
  static __device__ __forceinline__ void choose(const RouteArguments& g, u32* words, i64 block,
                                                i64 blocks) {
    if constexpr (C::kScoring != RouteScoring::given) {
      u32* const own = words + L::warp() * C::kTileN;
      for (i64 token = block * C::kWaveM + L::warp(); token < g.tokens;
           token += blocks * C::kWaveM) {
        RouteChoice<C, L>::choose(g, token, own);
      }
    }
  }
  static __device__ __forceinline__ void order(const RouteArguments& g, u32* words, i64 block) {
    RouteOrder<C, L>(g, words, block).run();
  }
  // Both by one block.
  static __device__ __forceinline__ void run_all(const RouteArguments& g, u32* words) {
    choose(g, words, 0, 1);
    L::meet_block();
    order(g, words, 0);
  }
};

}  // namespace tessera::device
