// Random problems for kernels of attention, and of its gradients, by matrix instructions of AMD's
// GPUs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "hip/emulated_test.h"
#include "host/fmha/low_scores.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/families/fmha/ways.h"
#include "tessera/families/operations.h"
#include "tessera/spec/numeric.h"

namespace tessera {

inline constexpr std::int64_t kMostProducts = std::int64_t{3} << 20;  // of a problem

class MfmaProblems : public EmulatedTest {
 protected:
  MfmaProblems() : EmulatedTest(Op::fmha) {}

  static const FmhaSignature& signature(const KernelSpec& spec) {
    return std::get<FmhaSignature>(spec.signature);
  }

  // The k of a matrix instruction of 32 rows; those of 64 are not used.
  int depth_of(DType type) const {
    int depth = 0;
    for (const Instruction& i : target_.instructions) {
      if (i.a == type && i.shape.m == 32 && i.shape.k < 64) depth = std::max(depth, i.shape.k);
    }
    return depth;
  }
  int mfma_depth(const KernelSpec& spec) const { return depth_of(signature(spec).in); }

  // Masks of other libraries: a bias of the least finite number, for some keys of a row or all.
  // Runs the first kernel `is` on the problem; `before` hides keys, `after` looks at results.
  template <class Is, class Before, class After>
  void run_on_low_scores(const Problem& problem, const Is& is, const Before& before,
                         const After& after) {
    const std::vector<KernelSpec> all = kernels_for(problem, target_);
    const auto found = std::find_if(all.begin(), all.end(), is);
    ASSERT_NE(found, all.end());
    SCOPED_TRACE(name_of(*found));
    const Source source = family_.emit(*found, target_);
    EmulatedKernel kernel(read_file(builder().build(source, target_).binary));
    expect_lean(*found, source, kernel);
    measure::OwnedOperands owned = measure::random_operands(problem, random_());
    const auto& p = std::get<FmhaProblem>(problem);
    const fmha::LowScores scores(p, owned, -max_finite(p.dtype_bias));
    before(*found, kernel, scores);
    emulator::Memory memory;
    add_operands(owned, memory);
    const Launch launch = family_.bind(*found, problem, target_, owned.operands);
    ASSERT_EQ(kernel.run(name_of(*found), source, launch, memory, 1), "");
    after(scores);
  }

  FmhaProblem problem_for(const KernelSpec& spec) {
    const auto& s = signature(spec);
    const Shape3& t = spec.algorithm.tile;
    FmhaProblem p{.in = s.in, .out = s.out, .dtype_bias = s.dtype_bias};
    p.kind = s.kind, p.kv = s.kv;
    p.lengths = s.lengths, p.lse = s.lse;
    p.batch = between(1, 2);
    p.heads_kv = between(1, 2);
    p.heads = p.heads_kv * between(1, 2);
    const std::int64_t piece = piece_of(s);
    p.hdim = one_in(3) ? std::max<std::int64_t>(piece, t.k - piece * between(1, 3)) : t.k;
    const std::int64_t most_v = fmha::most_hdim_v(t.k);
    p.hdim_v = one_in(3) ? std::max<std::int64_t>(piece, most_v - piece * between(1, 3)) : most_v;
    p.seqlen_q = one_in(4) ? between(1, 2) * t.m : between(1, t.m + t.m / 2);
    p.seqlen_k = one_in(4) ? between(0, 4) * t.n : between(0, 5 * t.n);
    p.v_in_k = fmha::is_latent_mfma(spec.algorithm);
    if (p.v_in_k) p.hdim_v = std::min(p.hdim_v, p.hdim);
    if (spec.algorithm.pipeline == Pipeline::splitkv) set_decoding(t, p);
    if (s.masked) add_mask(p);
    add_bends(s, p);
    if (one_in(3)) p.scale = 6 / std::sqrt(static_cast<float>(p.hdim));
    if (one_in(8)) p.scale = -0.1F;
    if (p.lengths != FmhaLengths::equal && one_in(4)) p.skip_q = 2;
    const auto products = [&] { return p.batch * p.heads * p.seqlen_q * p.seqlen_k * t.k / 16; };
    while (products() > kMostProducts && p.seqlen_k > t.n) p.seqlen_k -= t.n / 2;
    if (s.kind == FmhaKind::extend) add_new_tokens(s, p);
    if (s.pages != FmhaPages::none) add_pages(s, p);
    add_factors(spec, p);
    add_strides(p);
    if (p.v_in_k) p.v_strides = FmhaProblem{}.v_strides;
    return p;
  }
  // Elements of 16 bytes, which heads and strides are multiples of.
  static std::int64_t piece_of(const FmhaSignature& s) { return 16 / size_of(fmha::kv_type(s)); }
  // A wave meets one factor of keys at a time.
  void add_factors(const KernelSpec& spec, FmhaProblem& p) {
    p.qscale = signature(spec).qscale;
    const bool of_queries = p.qscale == FmhaQscale::per_block;
    if (of_queries) p.qscale_block_q = between(1, 150);
    if (!of_queries && p.qscale != FmhaQscale::kv_block) return;
    const Algorithm& a = spec.algorithm;
    const std::int64_t keys = a.tile.n / (a.pipeline == Pipeline::splitkv ? a.wave.n : 1);
    if (p.pages == FmhaPages::none) {
      p.qscale_block_k = keys * between(1, 3);
    } else {
      p.page_size = keys * between(1, 2);
      p.num_pages = kPacked, p.max_pages = kPacked, p.table_stride = kPacked;
    }
  }
  // Few queries of more heads, and parts as the kernel cuts them, or as many as are asked for.
  void set_decoding(const Shape3& tile, FmhaProblem& p) {
    p.heads = p.heads_kv * between(1, 9);
    p.seqlen_q = one_in(2) ? between(1, 3) : between(1, 2 * tile.m * p.heads_kv / p.heads + 1);
    if (one_in(2)) p.num_splits = one_in(2) ? -1 : between(1, 7);
  }
  // Keys are as long as the new ones at least.
  void add_new_tokens(const FmhaSignature& s, FmhaProblem& p) {
    p.seqlen_k = std::max(p.seqlen_k, p.seqlen_q);
    p.rotary = s.rotary, p.rotate_q = s.rotate_q;
    if (s.rotary != FmhaRotary::none && one_in(2)) p.rotary_dim = 2 * between(1, p.hdim / 2);
  }
  // Pages of any size from 1. Those that are appended to belong to one sequence.
  void add_pages(const FmhaSignature& s, FmhaProblem& p) {
    constexpr std::array kUsual = {1, 2, 16, 64, 256};
    p.pages = s.pages, p.cache_layout = s.cache_layout;
    p.page_size = one_in(2) ? between(1, 40) : kUsual[static_cast<std::size_t>(between(0, 4))];
    p.check_pages = one_in(3);
    const std::int64_t needed = pages_needed(p);
    if (p.kind == FmhaKind::extend) {
      p.num_pages = p.batch * needed + between(1, 4);
    } else if (one_in(2)) {
      p.num_pages = between(1, p.batch * needed + 4);
    }
    if (s.pages == FmhaPages::table && one_in(2)) p.max_pages = needed + between(0, 3);
    if (s.pages == FmhaPages::table && one_in(2)) p.table_stride = needed + between(3, 5);
  }

  void add_mask(FmhaProblem& p) {
    p.mask = one_in(2) ? FmhaMask::top_left : FmhaMask::bottom_right;
    p.window_left = one_in(2) ? between(0, p.seqlen_k) : -1;
    p.window_right = one_in(3) ? between(-1, 40) : 0;
    if (one_in(2)) p.sink = between(0, one_in(2) ? 20 : p.seqlen_k + 10);
  }
  // A bias for each query or for all, whose keys are neighbours or are not.
  void add_bends(const FmhaSignature& s, FmhaProblem& p) {
    if (s.soft_cap) p.soft_cap = one_in(2) ? 2 : 30;
    if (s.dropout) p.p_drop = one_in(2) ? 0.25F : 0.9F;
    p.bias = s.bias;
    if (s.bias == FmhaBias::alibi && one_in(2)) p.slope_stride = p.heads;
    if (s.bias != FmhaBias::elementwise) return;
    const std::int64_t gap = one_in(3) ? 2 : 1;
    const std::int64_t pitch = one_in(2) ? (p.seqlen_k + 3) / 4 * 4 * gap : p.seqlen_k * gap;
    p.bias_strides = {p.heads * p.seqlen_q * pitch, p.seqlen_q * pitch, pitch, gap};
    for (std::size_t i = 0; i < 3; ++i) {
      if (one_in(4)) p.bias_strides[i] = 0;
    }
  }
  // Heads before tokens or behind, gaps between tokens.
  FmhaStrides spread(const FmhaProblem& p, std::int64_t heads, std::int64_t tokens,
                     std::int64_t size) {
    const std::int64_t e = size + (one_in(2) ? 16 / size_of(kv_type(p)) : 0);
    FmhaStrides s = {tokens * heads * e, e, heads * e, 1};
    if (one_in(2)) s[1] = tokens * e, s[2] = e;
    if (p.lengths == FmhaLengths::packed) s = {kPacked, e, heads * e, 1};
    return s;
  }
  // One head of keys and values for all.
  void add_strides(FmhaProblem& p) {
    if (one_in(3)) return;
    p.q_strides = spread(p, p.heads, p.seqlen_q, p.hdim);
    p.out_strides = spread(p, p.heads, p.seqlen_q, p.hdim_v);
    if (p.pages != FmhaPages::none) {
      add_page_strides(p);
      return;
    }
    p.k_strides = spread(p, p.heads_kv, p.seqlen_k, p.hdim);
    p.v_strides = spread(p, p.heads_kv, p.seqlen_k, p.hdim_v);
    if (p.kind == FmhaKind::extend) return;
    if (one_in(3)) p.k_strides[1] = 0;
    if (one_in(3) && p.lengths != FmhaLengths::packed) p.v_strides[0] = 0;
  }
  // {page, head, token, element}: heads before tokens or behind, gaps between pages.
  void add_page_strides(FmhaProblem& p) {
    const auto spread = [&](std::int64_t size) {
      const std::int64_t e = size + (one_in(2) ? 16 / size_of(kv_type(p)) : 0);
      const std::int64_t gap = one_in(2) ? 16 : 0;
      const std::int64_t page = p.page_size * p.heads_kv * e + gap;
      return one_in(2) ? FmhaStrides{page, e, p.heads_kv * e, 1}
                       : FmhaStrides{page, p.page_size * e, e, 1};
    };
    p.k_strides = spread(p.hdim), p.v_strides = spread(p.hdim_v);
  }
};

}  // namespace tessera
