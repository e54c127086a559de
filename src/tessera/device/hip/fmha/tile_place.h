// Where the rows of a workgroup lie: which queries of which head, and which keys they see.
#pragma once

#include "tessera/device/hip/fmha/head_rows.h"
#include "tessera/device/hip/fmha/mfma_arguments.h"
#include "tessera/device/hip/fmha/row_weights.h"

namespace tessera::device {

// The index of the work that the workgroup has: a die gets neighbouring heads, whose tokens are in
// its L2.
template <int kXcds>
__device__ __forceinline__ u32 near_on_die(u32 workgroup, u32 total) {
  if constexpr (kXcds > 1) {
    const u32 die = workgroup % kXcds, each = total / kXcds, left = total % kXcds;
    return die * each + (die < left ? die : left) + workgroup / kXcds;
  }
  return workgroup;
}

template <class C>
struct TilePlace {
  static constexpr bool kPacked = C::kLengths == FmhaLengths::packed;

  FmhaSequence sequence;
  int batch, head, first_row;

  __device__ __forceinline__ static TilePlace of_workgroup(const MfmaFmhaArguments& arguments,
                                                           u32 workgroup, int rows) {
    const FmhaArguments& g = arguments.fmha;
    const u32 total = static_cast<u32>(arguments.total), tiles = static_cast<u32>(arguments.tiles);
    const u32 index = near_on_die<C::kXcds>(workgroup, total);
    const u32 heads = static_cast<u32>(g.heads), whole = index / tiles, batch = whole / heads;
    // The last queries see most keys.
    const u32 tile = C::kMasked ? tiles - 1 - index % tiles : index % tiles;
    return {sequence_of<C::kLengths>(g, batch), static_cast<int>(batch),
            static_cast<int>(whole - batch * heads), static_cast<int>(tile) * rows};
  }

  // Packed sequences are one of all tokens.
  __device__ __forceinline__ i64 own_batch() const { return kPacked ? 0 : batch; }

  __device__ __forceinline__ HeadRows rows_of(const void* data, const i64 (&stride)[4], i64 of_head,
                                              i64 first, i64 tokens, i64 elements) const {
    const i64 from = token_offset(stride, own_batch(), of_head, first);
    return {uniform(bits<u64>(data) + static_cast<u64>(from * 2)),
            static_cast<int>(stride[kToken]) * 2, static_cast<int>(tokens),
            static_cast<int>(elements) * 2};
  }
  __device__ __forceinline__ HeadRows queries(const FmhaArguments& g) const {
    return rows_of(g.q, g.q_stride, head, sequence.first_query, sequence.queries, g.hdim);
  }
  __device__ __forceinline__ HeadRows keys(const FmhaArguments& g) const {
    return rows_of(g.k, g.k_stride, head_kv(g), sequence.first_key, sequence.keys, g.hdim);
  }
  __device__ __forceinline__ HeadRows values(const FmhaArguments& g) const {
    return rows_of(g.v, g.v_stride, head_kv(g), sequence.first_key, sequence.keys, g.hdim_v);
  }
  __device__ __forceinline__ u32 head_kv(const FmhaArguments& g) const {
    return static_cast<u32>(head) / (static_cast<u32>(g.heads) / static_cast<u32>(g.heads_kv));
  }

  // The keys that a row sees. Rows behind the last query see what that one does.
  __device__ __forceinline__ RowKeys keys_at(const FmhaArguments& g, int row) const {
    const int last = static_cast<int>(sequence.queries) - 1;
    const FmhaKeys all = keys_of<C::kMasked>(g, sequence, row < last ? row : last);
    return {static_cast<int>(all.begin), static_cast<int>(all.end)};
  }

  __device__ __forceinline__ i64 lse_offset(const FmhaArguments& g, int row) const {
    return own_batch() * g.lse_stride[0] + head * g.lse_stride[1] +
           ((kPacked ? sequence.first_query : 0) + row) * g.lse_stride[2];
  }
};

}  // namespace tessera::device
