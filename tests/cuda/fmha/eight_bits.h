// Problems of 8 bits for tests of attention on a GPU.
#pragma once

#include <algorithm>
#include <array>

#include "cuda/fmha/pipelines.h"

namespace tessera {

inline std::int64_t whole(std::int64_t hdim) { return std::max<std::int64_t>(16, hdim / 16 * 16); }

// What the kernels read; lengths, masks, factors and strides are random.
inline FmhaProblem for_eight_bits(fmha::RandomFmhas& random, std::int64_t longest) {
  FmhaProblem p;
  p.in = p.dtype_bias = random.one_of(fmha::kEightBits);
  p.out = random.one_of(std::array{DType::fp16, DType::bf16, DType::fp32, DType::fp8, DType::bf8});
  p.batch = random.integer(1, 3);
  const std::int64_t group = random.integer(1, 4);
  p.heads = group * random.integer(1, 3);
  p.heads_kv = p.heads / group;
  p.seqlen_q = random.integer(1, longest), p.seqlen_k = random.integer(1, longest);
  const std::int64_t widest = random.one_of(std::array{64, 128, 192, 256});
  p.hdim = whole(random.integer(16, widest));
  p.hdim_v = whole(random.integer(16, widest == 192 ? 128 : widest));
  p.mask = static_cast<FmhaMask>(random.integer(0, 2));
  if (p.mask != FmhaMask::none && random.coin()) {
    p.window_left = random.integer(-1, longest);
    p.window_right = random.integer(-1, longest);
  }
  p.lengths = static_cast<FmhaLengths>(random.integer(0, 2));
  p.qscale = static_cast<FmhaQscale>(random.integer(0, 3));
  if (p.qscale == FmhaQscale::per_block) p.qscale_block_q = 64 * random.integer(1, 3);
  const bool of_keys = p.qscale == FmhaQscale::per_block || p.qscale == FmhaQscale::kv_block;
  if (of_keys) p.qscale_block_k = 128 * random.integer(1, 2);
  const bool is_long = std::max(p.hdim, p.hdim_v) > 128 && (p.hdim > 192 || p.hdim_v > 128);
  if (of_keys && is_long) p.lengths = FmhaLengths::equal;
  if (random.coin()) p.scale = static_cast<float>(random.normal()) / 8;
  p.lse = random.coin();
  if (p.lengths != FmhaLengths::packed && random.coin()) {  // {batch, head, token, element}
    const FmhaProblem full = with_strides(p);
    const std::int64_t row = full.hdim_v + 16 * random.integer(0, 2);
    p.out_strides = {row * p.seqlen_q * p.heads, row * p.seqlen_q, row, 1};
    p.k_strides = {full.hdim * p.seqlen_k * full.heads_kv, full.hdim * p.seqlen_k, full.hdim, 1};
  }
  return p;
}

}  // namespace tessera
