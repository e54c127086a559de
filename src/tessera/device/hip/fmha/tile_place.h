// Where the rows of a workgroup lie: which queries of which head, and which keys they see. With
// keys in parts (kSplit) rows are the queries of all heads of a key-value head, query by query.
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
  static constexpr bool kPaged = C::kPages != FmhaPages::none;
  static constexpr int kSize = static_cast<int>(sizeof(typename C::In));
  static constexpr int kKvSize = static_cast<int>(sizeof(typename C::Kv));  // of an element

  FmhaSequence sequence;
  int batch, head, first_row;  // kSplit: the head of keys and values

  __device__ __forceinline__ static TilePlace of_workgroup(const MfmaFmhaArguments& arguments,
                                                           u32 workgroup, int rows) {
    const FmhaArguments& g = arguments.fmha;
    const u32 total = static_cast<u32>(arguments.total), tiles = static_cast<u32>(arguments.tiles);
    const u32 index = C::kSplit ? workgroup : near_on_die<C::kXcds>(workgroup, total);
    const u32 heads = static_cast<u32>(C::kSplit ? g.heads_kv : g.heads);
    const u32 whole = index / tiles, batch = whole / heads;
    // The last queries see most keys.
    const u32 tile = C::kMasked ? tiles - 1 - index % tiles : index % tiles;
    return {sequence_of<C::kLengths, C::kPages>(g, batch), static_cast<int>(batch),
            static_cast<int>(whole - batch * heads), static_cast<int>(tile) * rows};
  }

  // Packed sequences are one of all tokens.
  __device__ __forceinline__ i64 own_batch() const { return kPacked ? 0 : batch; }

  // ---- rows ----

  // Query heads that share keys.
  static __device__ __forceinline__ u32 group(const FmhaArguments& g) {
    return static_cast<u32>(g.heads) / static_cast<u32>(g.heads_kv);
  }
  __device__ __forceinline__ int rows(const FmhaArguments& g) const {
    const int queries = static_cast<int>(sequence.queries);
    return C::kSplit ? queries * static_cast<int>(group(g)) : queries;
  }
  __device__ __forceinline__ int query_of(const FmhaArguments& g, int row) const {
    return C::kSplit ? static_cast<int>(static_cast<u32>(row) / group(g)) : row;
  }
  __device__ __forceinline__ int head_of(const FmhaArguments& g, int row) const {
    if constexpr (!C::kSplit) return head;
    const u32 each = group(g);
    return head * static_cast<int>(each) + static_cast<int>(static_cast<u32>(row) % each);
  }
  // The row, or the last one.
  __device__ __forceinline__ int up_to_last(const FmhaArguments& g, int row) const {
    const int last = rows(g) - 1;
    return row < last ? row : last;
  }
  // Where a row lies in a tensor of queries or of results, in elements.
  __device__ __forceinline__ i64 row_offset(const FmhaArguments& g, const i64 (&stride)[4],
                                            int row) const {
    return token_offset(stride, own_batch(), head_of(g, row),
                        sequence.first_query + query_of(g, row));
  }

  // ---- tokens ----

  template <int kBytes = 2>
  __device__ __forceinline__ HeadRows rows_of(const void* data, const i64 (&stride)[4], i64 of_head,
                                              i64 first, i64 tokens, i64 elements) const {
    const i64 from = token_offset(stride, own_batch(), of_head, first);
    return {uniform(bits<u64>(data) + static_cast<u64>(from * kBytes)),
            static_cast<int>(stride[kToken]) * kBytes, static_cast<int>(tokens),
            static_cast<int>(elements) * kBytes};
  }
  // The first page holds the head's first elements.
  __device__ __forceinline__ HeadRows pages_of(const void* data, const i64 (&stride)[4],
                                               i64 of_head, i64 elements) const {
    const u64 from = static_cast<u64>(of_head * stride[kTokenHead] * kKvSize);
    return {uniform(bits<u64>(data) + from), 0, 0, static_cast<int>(elements) * kKvSize};
  }
  __device__ __forceinline__ HeadRows queries(const FmhaArguments& g) const {
    return rows_of<kSize>(g.q, g.q_stride, head, sequence.first_query, sequence.queries, g.hdim);
  }
  __device__ __forceinline__ HeadRows keys(const FmhaArguments& g) const {
    if constexpr (kPaged) return pages_of(g.k, g.k_stride, head_kv(g), g.hdim);
    return rows_of<kKvSize>(g.k, g.k_stride, head_kv(g), sequence.first_key, sequence.keys, g.hdim);
  }
  __device__ __forceinline__ HeadRows values(const FmhaArguments& g) const {
    if constexpr (kPaged) return pages_of(g.v, g.v_stride, head_kv(g), g.hdim_v);
    return rows_of<kKvSize>(g.v, g.v_stride, head_kv(g), sequence.first_key, sequence.keys,
                            g.hdim_v);
  }
  __device__ __forceinline__ u32 head_kv(const FmhaArguments& g) const {
    return C::kSplit ? static_cast<u32>(head) : static_cast<u32>(head) / group(g);
  }

  // ---- keys ----

  // The keys that a row sees besides the first ones. Rows behind the last one see what it does.
  __device__ __forceinline__ RowKeys keys_at(const FmhaArguments& g, int row) const {
    const int query = query_of(g, up_to_last(g, row));
    const FmhaKeys all = keys_of<C::kMasked>(g, sequence, query);
    return {static_cast<int>(all.begin), static_cast<int>(all.end)};
  }
  // The tiles of keys that some of `count` rows see.
  __device__ __forceinline__ SplitBlocks blocks(const FmhaArguments& g, int count) const {
    const int first = query_of(g, up_to_last(g, first_row));
    const int last = query_of(g, up_to_last(g, first_row + count - 1));
    return split_blocks<C::kMasked>(g, sequence, first, last, C::kKeys);
  }

  __device__ __forceinline__ i64 lse_offset(const FmhaArguments& g, int row) const {
    return own_batch() * g.lse_stride[0] + head_of(g, row) * g.lse_stride[1] +
           ((kPacked ? sequence.first_query : 0) + query_of(g, row)) * g.lse_stride[2];
  }
};

}  // namespace tessera::device
