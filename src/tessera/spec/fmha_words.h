// The words that a problem of fused attention is made of.
#pragma once

#include <cstdint>
#include <string_view>

#pragma GCC visibility push(default)
namespace tessera {

// What is computed.
//   forward:  attention
//   append:   nothing but a cache, which new keys and values are written to
//   extend:   the same, and then attention over the cache
//   backward: the gradients of attention
enum class FmhaKind : std::uint8_t { forward, append, extend, backward };
std::string_view to_string(FmhaKind kind);

// How the lengths of a batch's sequences are given.
//   equal:  every sequence has seqlen_q queries and seqlen_k keys
//   packed: sequences lie one behind the other; seqlens_q and seqlens_k hold batch + 1 prefix sums
//           of their lengths, beginning with 0
//   padded: every sequence has room for seqlen_q queries and seqlen_k keys; seqlens_q and seqlens_k
//           hold the `batch` lengths
enum class FmhaLengths : std::uint8_t { equal, packed, padded };
std::string_view to_string(FmhaLengths lengths);

// Where the diagonal of the mask lies: query i and key i + shift. top_left: shift is 0;
// bottom_right: the sequence's number of keys minus its number of queries.
enum class FmhaMask : std::uint8_t { none, top_left, bottom_right };
std::string_view to_string(FmhaMask mask);

// What is added to the scores. elementwise: bias[b][h][i][j]. alibi: the head's slope times
// -|i + keys - queries - j|.
enum class FmhaBias : std::uint8_t { none, elementwise, alibi };
std::string_view to_string(FmhaBias bias);

// Where the keys and values lie.
//   none:  each sequence's one behind the other, in k and v
//   table: in pages of a cache; page_table {batch, max_pages} holds the pages of each sequence
//   list:  the same; page_table {page_entries} holds the pages of all sequences one behind the
//          other, and page_starts batch + 1 prefix sums of how many each has, beginning with 0
enum class FmhaPages : std::uint8_t { none, table, list };
std::string_view to_string(FmhaPages pages);

// How a page lies in memory. linear: by the strides of k and v, {page, token, head, element}
// without them. vectorized: in runs of x elements that fill 16 bytes, without gaps; k is {page,
// head, hdim / x, token, x} and v is {page, head, token / x, hdim_v, x}.
enum class FmhaCacheLayout : std::uint8_t { linear, vectorized };
std::string_view to_string(FmhaCacheLayout layout);

// The type of keys and values beside queries of 16 or 32 bits: that of the queries, or one of 8
// bits, in which k and v, or the caches, are stored then.
enum class FmhaKv : std::uint8_t { same, fp8, bf8 };
std::string_view to_string(FmhaKv kv);

// What stands for numbers of 8 bits: each element of q, k and v is multiplied by a factor in fp32.
// Queries of 16 or 32 bits have none, and there is no descale_q then.
//   none:       1
//   per_tensor: descale_q, descale_k and descale_v hold one factor each
//   per_block:  of each sequence and head, one for each run of qscale_block_q queries in descale_q
//               {batch, heads, blocks}, and for each of qscale_block_k keys in descale_k and
//               descale_v {batch, heads_kv, blocks}; blocks of the longest sequence
//   kv_block:   descale_q holds one factor; descale_k and descale_v are as for per_block, but
//               with pages a block is a page of the cache: {num_pages, heads_kv}
//   per_head:   descale_q holds one factor; descale_k and descale_v one for each key-value head
//   per_token:  descale_q holds one factor; descale_k and descale_v one for each key of each
//               key-value head {batch, heads_kv, seqlen_k}, with pages {num_pages, heads_kv,
//               page_size}
enum class FmhaQscale : std::uint8_t { none, per_tensor, per_block, kv_block, per_head, per_token };
std::string_view to_string(FmhaQscale qscale);

// Which elements of a head a rotary embedding turns together: none; interleaved: 2i and 2i + 1
// (GPT-J); half: i and i + rotary_dim / 2 (NeoX, Llama).
enum class FmhaRotary : std::uint8_t { none, interleaved, half };
std::string_view to_string(FmhaRotary rotary);

}  // namespace tessera
#pragma GCC visibility pop
