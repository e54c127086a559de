// Where the tokens of a workgroup of attention's gradients lie, and which tokens they meet. Those
// of dq have queries of their own and meet keys; those of dk and dv have keys and meet the queries
// of all heads that read them.
#pragma once

#include "tessera/device/hip/fmha/backward_scores.h"
#include "tessera/device/hip/fmha/gradient_arguments.h"
#include "tessera/device/hip/fmha/kept_weights.h"
#include "tessera/device/hip/fmha/tile_place.h"

namespace tessera::device {

// A tile of tokens that are met; heads count from the first one that reads the keys.
struct Turn {
  int met, head;
};

// The tokens that one sees: [begin, end), and those before `sink` and `end`.
struct MetRange {
  int begin, end, sink;
};
// One that is the same in all lanes, in scalar registers.
__device__ __forceinline__ MetRange uniform(const MetRange& x) {
  return {uniform(x.begin), uniform(x.end), uniform(x.sink)};
}

// The rows of the first head, and where the next head begins.
struct HeadsRows {
  HeadRows rows;
  i64 step;  // bytes
  template <int kTokens>
  __device__ __forceinline__ Chunk from(const Turn& turn) const {
    HeadRows of_head = rows;
    of_head.address += static_cast<u64>(turn.head * step);
    return of_head.template from<kTokens>(turn.met);
  }
};

template <class C, bool kOfKeys>
struct GradientPlace : TilePlace<C> {
  using Base = TilePlace<C>;
  using Base::head;
  using Base::rows_of;
  using Base::sequence;

  __device__ __forceinline__ static const MfmaBackwardArguments& arguments() {
    return fresh_arguments<MfmaBackwardArguments>();
  }
  __device__ __forceinline__ static const FmhaArguments& forward() {
    return arguments().general.backward.forward;
  }
  __device__ __forceinline__ static int heads_of_keys() {
    const FmhaArguments& g = forward();
    return static_cast<int>(static_cast<u32>(g.heads) / static_cast<u32>(g.heads_kv));
  }

  // With a mask the workgroups that have most to do come first: the last queries, the first keys.
  __device__ __forceinline__ static GradientPlace of_workgroup(u32 workgroup, int tokens) {
    const MfmaBackwardArguments& a = arguments();
    const FmhaArguments& g = a.general.backward.forward;
    const u32 tiles = static_cast<u32>(kOfKeys ? a.key_tiles : a.query_tiles);
    const u32 total = static_cast<u32>(kOfKeys ? a.key_total : a.query_total);
    const u32 heads = static_cast<u32>(kOfKeys ? g.heads_kv : g.heads);
    const u32 index = near_on_die<C::kXcds>(workgroup, total);
    const u32 whole = index / tiles, tile = same_in_all(index % tiles);
    const u32 batch = same_in_all(whole / heads);
    const int own_head = uniform(static_cast<int>(whole - batch * heads));
    GradientPlace place;
    place.sequence = uniform_sequence<C::kLengths, FmhaPages::none>(g, batch);
    place.batch = static_cast<int>(batch);
    place.head = kOfKeys ? own_head * heads_of_keys() : own_head;
    place.first_row = static_cast<int>(C::kMasked && !kOfKeys ? tiles - 1 - tile : tile) * tokens;
    return place;
  }

  __device__ __forceinline__ int own_tokens() const {
    return static_cast<int>(kOfKeys ? sequence.keys : sequence.queries);
  }
  __device__ __forceinline__ HeadRows douts() const {
    const FmhaBackwardArguments& a = arguments().general.backward;
    return rows_of(a.dout, a.dout_stride, head, sequence.first_query, sequence.queries,
                   a.forward.hdim_v);
  }
  // What scores are products of, and what the gradients of weights are products of.
  __device__ __forceinline__ HeadRows own_rows() const {
    return kOfKeys ? Base::keys(forward()) : Base::queries(forward());
  }
  __device__ __forceinline__ HeadRows own_values() const {
    return kOfKeys ? Base::values(forward()) : douts();
  }
  __device__ __forceinline__ HeadsRows met_rows() const {
    if constexpr (!kOfKeys) return {Base::keys(forward()), 0};
    return {Base::queries(forward()), forward().q_stride[kTokenHead] * 2};
  }
  __device__ __forceinline__ HeadsRows met_values() const {
    if constexpr (!kOfKeys) return {Base::values(forward()), 0};
    return {douts(), arguments().general.backward.dout_stride[kTokenHead] * 2};
  }

  // What a token of its own sees. Tokens behind the last one see what that one does.
  __device__ __forceinline__ MetRange met_by(int own) const {
    const int last = own_tokens() - 1;
    const int at = own < last ? own : last;
    if constexpr (kOfKeys) {
      const FmhaQueries q = queries_of<C::kMasked>(forward(), sequence, at);
      return {static_cast<int>(q.begin), static_cast<int>(q.end), 0};
    } else {
      const FmhaKeys k = keys_of<C::kMasked>(forward(), sequence, at);
      return {static_cast<int>(k.begin), static_cast<int>(k.end), static_cast<int>(k.sink)};
    }
  }
  // What some of the tokens [first, last] see, and what all of them do, but for sinks. Ranges move
  // on with the tokens, except that keys of the sink are seen by all later queries.
  __device__ __forceinline__ MetRange met_by_some(int first, int last) const {
    const MetRange low = met_by(first), high = met_by(last);
    return uniform(MetRange{low.begin, low.end > high.end ? low.end : high.end, high.sink});
  }
  __device__ __forceinline__ MetRange met_by_all(int first, int last) const {
    int least = first;
    if constexpr (kOfKeys && C::kMasked) {
      const i64 past = clamped(forward().sink, first, last);
      least = static_cast<int>(past);
    }
    return uniform(MetRange{met_by(last).begin, met_by(least).end, 0});
  }
};

}  // namespace tessera::device
