// What is asked of fused attention, and the pointers that it gets.
#pragma once

#include <array>
#include <cstdint>

#include "tessera/spec/dtype.h"
#include "tessera/spec/fmha_words.h"
#include "tessera/spec/packed.h"

#pragma GCC visibility push(default)
namespace tessera {

// The strides of a tensor of tokens {batch, head, token, element}, in elements.
using FmhaStrides = std::array<std::int64_t, 4>;
inline constexpr FmhaStrides kPackedTokens = {kPacked, kPacked, kPacked, kPacked};

// For each sequence and each query head h, with the key-value head h * heads_kv / heads:
//   s[i][j] = cap(scale * <q[i], k[j]>) + bias[i][j], where cap(x) = soft_cap * tanh(x / soft_cap)
//   p[i][j] = exp(s[i][j] - lse[i]) where key j is seen by query i, else 0
//   out[i]  = sum of p[i][j] * v[j],  lse[i] = log(sum of exp(s[i][j])) over the keys that are seen
// A query that sees no key has out = 0 and lse = minus infinity. With a mask and i' = i + shift,
// query i sees key j when i' - window_left <= j or j < sink, and j <= i' + window_right; a window
// of -1 has no end on that side. q and out have heads * hdim and heads * hdim_v elements a token, k
// and v have heads_kv * hdim and heads_kv * hdim_v.
// With dropout out[i] is the sum of 256 / t * p[i][j] * v[j] over the keys whose random byte
// r[i][j] is below t = round(256 * (1 - p_drop)), which is at least 1; lse stays as it is.
// docs/attention.md says how r follows from seed, offset, batch, head, query and key. It is stored
// for the keys that a query sees: {batch, head, query, key}, packed sequences {head, token, key},
// seqlen_k bytes a row.
//
// q, k and v of 8 bits may have factors, see FmhaQscale. An output of 8 bits is out[i] times
// scale_o, which is there with qscale, rounded to nearest even; beyond the largest number it is
// that one.
//
// With kind=append, k and v are caches with room for seqlen_k keys of each sequence, of which the
// first seqlens_k[b] are there. New token t of sequence b gets the position p = seqlens_k[b] + t,
// and k_new and v_new of it go there. A rotary embedding turns pair i of the first rotary_dim
// elements of the new keys, and with rotate_q of q into out, by the angle of the position:
//   x' = x * cos[p][i] - y * sin[p][i],  y' = y * cos[p][i] + x * sin[p][i]
// Su et al., "RoFormer", 2021, equation 34. A token is left out where p is not in [0, seqlen_k), or
// with an embedding not in [0, rotary_positions). With pages it goes to token p % page_size of the
// page of the sequence's entry p / page_size, and is left out where there is no such entry. New
// tokens need pages that no other sequence has. `lengths` speaks of the new tokens alone:
// seqlens_k always holds `batch` lengths.
//
// A cache of 8 bits (`kv`) holds new keys and values, turned before, divided by their factors and
// rounded to nearest even, beyond the largest number to that one. qscale is none, per_tensor,
// per_head or per_token. With per_token the factors are written, too: the largest magnitude of the
// head's elements divided by the largest number of `kv`; elements of a head of zeros are 0.
//
// With kind=extend new tokens are appended in this way, and attention of their queries reads the
// cache then. The lengths of the keys, seqlen_k or seqlens_k, count the new tokens: token t of the
// n new ones of sequence b gets the position p = length - n + t. With rotate_q q is turned into
// q_turned, and attention reads it.
//
// With kind=backward, out and lse are what attention gave, and dout is a loss's gradient by out.
// With c[i][j] the capped score before the bias, and z[i][j] what dropout multiplies a weight with
// (1 without dropout):
//   delta[i] = <dout[i], out[i]>, with `dlse` less dlse[i], a loss's gradient by lse, which lies as
//     lse does
//   p[i][j] = exp(s[i][j] - lse[i]) where key j is seen by query i and lse[i] > -infinity, else 0
//   ds[i][j] = p[i][j] * (z[i][j] * <dout[i], v[j]> - delta[i])
//   dx[i][j] = ds[i][j] * (1 - (c[i][j] / soft_cap)^2), without a soft cap ds[i][j]
//   dq[i] = scale * sum of dx[i][j] * k[j]
//   dk[j] = scale * sum of dx[i][j] * q[i],  dv[j] = sum of z[i][j] * p[i][j] * dout[i]
// The sums of dk and dv are over the queries of all heads that share the key-value head. Keys and
// queries of a sequence that have nothing to add up get zeros. With `dbias` the gradient of an
// elementwise bias is written, too: ds[b][h][i][j], added up over each dimension whose stride in
// bias_strides is 0. dbias is {batch, head, query, key} without gaps in dtype_bias, with one index
// in those dimensions. With bias=alibi dbias is the gradient of the slopes, {batch, head} without
// gaps in fp32, with one index of the batch where slope_stride is 0: the sum of ds[i][j] times
// minus the distance of i' and j.
struct FmhaProblem {
  FmhaKind kind = FmhaKind::forward;
  DType in = DType::fp32;  // of q, and of k and v unless kv says otherwise
  DType out = DType::fp32;
  DType dtype_bias = DType::fp32;  // of an elementwise bias
  FmhaKv kv = FmhaKv::same;
  FmhaLengths lengths = FmhaLengths::equal;
  FmhaMask mask = FmhaMask::none;
  FmhaBias bias = FmhaBias::none;
  FmhaQscale qscale = FmhaQscale::none;  // of inputs of 8 bits
  std::int64_t batch = 1;
  std::int64_t heads = 0;
  std::int64_t heads_kv = kPacked;  // kPacked: as heads
  std::int64_t seqlen_q = 0;        // of the longest sequence
  std::int64_t seqlen_k = 0;
  std::int64_t tokens_q = kPacked;  // packed: of all sequences; kPacked: batch * seqlen_q
  std::int64_t tokens_k = kPacked;
  std::int64_t hdim = 0;  // elements of q and k in a head
  std::int64_t hdim_v = kPacked;
  // Whether the values are the first hdim_v elements of the keys, as in latent attention: there is
  // no v then, and v_strides are k_strides.
  bool v_in_k = false;
  FmhaStrides q_strides = kPackedTokens;  // packed: the batch's stride is not used
  FmhaStrides k_strides = kPackedTokens;
  FmhaStrides v_strides = kPackedTokens;
  FmhaStrides out_strides = kPackedTokens;
  FmhaStrides bias_strides = kPackedTokens;  // {batch, head, query, key}; 0: the same for all
  std::int64_t window_left = -1;
  std::int64_t window_right = 0;
  std::int64_t sink = 0;
  std::int64_t slope_stride = 0;  // alibi: distance of two sequences' slopes; 0: the same for all
  float scale = 0.0F;             // 0: 1 / sqrt(hdim)
  float soft_cap = 0.0F;          // 0: none
  float p_drop = 0.0F;            // the part of the weights that dropout makes 0; 0: no dropout
  bool lse = false;               // whether lse is stored: fp32, {batch, head, query}
  bool random = false;            // whether dropout's random values are stored
  std::int64_t skip_q = 0;        // sequences of at most so many queries are left out; 0: none
  // Into how many parts kernels that can cut the keys do so, at most as many as there are blocks of
  // keys; 0: as suits the machine; -1: by the number of each sequence's own keys.
  std::int64_t num_splits = 0;
  // With pages, strides of k and v are {page, head, token of a page, element}, and seqlens_k holds
  // the `batch` lengths of the keys wherever seqlens_q is there. tokens_k is not used.
  FmhaPages pages = FmhaPages::none;
  FmhaCacheLayout cache_layout = FmhaCacheLayout::linear;
  bool check_pages = false;               // whether bad_page is written
  std::int64_t page_size = 0;             // tokens of a page
  std::int64_t num_pages = kPacked;       // of the cache; kPacked: as many as all sequences need
  std::int64_t max_pages = kPacked;       // table: of a sequence; kPacked: as seqlen_k needs
  std::int64_t table_stride = kPacked;    // table: distance of two sequences; kPacked: max_pages
  std::int64_t page_entries = kPacked;    // list: of all sequences; kPacked: as seqlen_k needs
  std::int64_t qscale_block_q = kPacked;  // per_block: queries of a factor; kPacked: 128
  std::int64_t qscale_block_k = kPacked;  // keys of a factor; kPacked: 128, or a page
  // append and extend:
  FmhaStrides k_new_strides = kPackedTokens;
  FmhaStrides v_new_strides = kPackedTokens;
  FmhaStrides q_turned_strides = kPackedTokens;  // extend with rotate_q
  FmhaRotary rotary = FmhaRotary::none;
  bool rotate_q = false;        // whether q is turned into out, or q_turned; both may be q
  std::int64_t rotary_dim = 0;  // even; 0: hdim
  std::int64_t rotary_positions = kPacked;  // rows of cos and sin; kPacked: seqlen_k
  // backward:
  FmhaStrides dout_strides = kPackedTokens;
  FmhaStrides dq_strides = kPackedTokens;
  FmhaStrides dk_strides = kPackedTokens;
  FmhaStrides dv_strides = kPackedTokens;
  bool dbias = false;  // whether the gradient of the bias, or of slopes, is written
  bool dlse = false;   // whether lse has a gradient
  friend bool operator==(const FmhaProblem&, const FmhaProblem&) = default;
};

// Attention without a mask, all sequences equal: {batch, token, head, element} in memory.
FmhaProblem fmha_problem(DType in, std::int64_t batch, std::int64_t heads, std::int64_t heads_kv,
                         std::int64_t seqlen_q, std::int64_t seqlen_k, std::int64_t hdim);

// Replaces every kPacked by what it stands for, and a scale of 0 by 1 / sqrt(hdim). Numbers of
// pages and of blocks that the problem does not use become 0.
FmhaProblem with_strides(const FmhaProblem& problem);

// How many pages seqlen_k keys need; 0 without pages.
std::int64_t pages_needed(const FmhaProblem& problem);

// The type of k and v.
DType kv_type(const FmhaProblem& problem);

// Whether a factor of k and v belongs to a page of the cache.
bool scales_pages(const FmhaProblem& problem);

// The pointers that attention reads and writes. Those that the problem does not use may be null.
// Prefix sums and lengths lie where the kernel can read them.
struct FmhaOperands {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* bias = nullptr;                 // elementwise
  const float* slopes = nullptr;              // alibi: one for each query head
  const std::int32_t* seqlens_q = nullptr;    // packed: batch + 1 prefix sums; padded: lengths
  const std::int32_t* seqlens_k = nullptr;    // append: keys in the cache before the call
  const std::int32_t* page_table = nullptr;   // pages: indices from 0 to num_pages - 1
  const std::int32_t* page_starts = nullptr;  // list: batch + 1 prefix sums
  // Dropout: two words {seed, offset} where the kernel can read them, at each launch. Where it is
  // null, the two numbers that follow take their place.
  const std::uint64_t* dropout_rng = nullptr;
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
  // qscale: what stored numbers are multiplied by, and with an output of 8 bits what it is
  // multiplied by before it is stored. They must be finite.
  const float* descale_q = nullptr;
  const float* descale_k = nullptr;
  const float* descale_v = nullptr;
  const float* scale_o = nullptr;
  void* out = nullptr;
  float* lse = nullptr;
  std::uint8_t* random_values = nullptr;
  // check_pages: {1, sequence, entry, index} of the first index out of range, in the order of the
  // sequences and of the entries that their keys need, or their new tokens with append; nothing
  // else is then written. {0, -1, -1, -1} where there is none.
  std::int32_t* bad_page = nullptr;
  // append and extend, which write to k and v
  const void* k_new = nullptr;
  const void* v_new = nullptr;
  const float* cos = nullptr;  // {rotary_positions, rotary_dim / 2}
  const float* sin = nullptr;
  void* q_turned = nullptr;  // extend with rotate_q
  // backward, which reads out and lse
  const void* dout = nullptr;
  const float* dlse = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  void* dbias = nullptr;
};

}  // namespace tessera
#pragma GCC visibility pop
