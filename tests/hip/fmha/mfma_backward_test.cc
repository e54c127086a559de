// Attention's gradients by matrix instructions of AMD's GPUs: every kernel that ships and some that
// do not, compiled here, counted, and run instruction by instruction on the emulator on random
// problems, against the fp64 reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "hip/fmha/mfma_problems.h"
#include "tessera/device/fmha_backward.h"
#include "tessera/device/hip/fmha/gradient_sizes.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/families/operations.h"
#include "tessera/spec/numeric.h"

namespace tessera {
namespace {

constexpr std::int64_t kMostGradientProducts = std::int64_t{1} << 19;  // of a problem
// gfx90a raises gradients of fp16 as long as they are small.
constexpr double kLargeGradient = 64;

class MfmaBackward : public MfmaProblems {
 protected:
  static bool is_gradient(const KernelSpec& spec) {
    const Pipeline pipeline = spec.algorithm.pipeline;
    return signature(spec).kind == FmhaKind::backward &&
           (pipeline == Pipeline::qr || pipeline == Pipeline::qrasync);
  }

  // The kernels of the essential sets, and those of other features that the target has.
  std::vector<KernelSpec> kernels() {
    std::vector<KernelSpec> specs = essential(is_gradient), others;
    EXPECT_GE(specs.size(), 10U);
    for (const char* words : kOthers) {
      KernelSpec spec = parse_name(fmt::format("fmha_backward_{}_{}", words, target_.name));
      if (family_.is_legal(spec, target_)) others.push_back(std::move(spec));
    }
    specs = sampled(specs);
    for (KernelSpec& spec : some(others, kUsualOthers)) specs.push_back(std::move(spec));
    return specs;
  }
  static constexpr const char* kOthers[] = {
      "bf16_qr_128x64x64_4x1x1_32x32x16_padded_masked",
      "fp16_qr_128x64x64_4x1x1_32x32x16_packed_softcap",
      "bf16_qr_128x32x128_4x1x1_32x32x16_masked_biasalibi_softcap_dropout",
      "fp16_qr_128x64x64_4x1x1_32x32x16_packed_biaselementwise",
      "fp16_qr_128x64x64_4x1x1_32x32x16_padded_masked_biaselementwise_softcap_dropout",
      "fp16_qr_128x32x128_4x1x1_32x32x16_masked_biaselementwise_dbias",
      "bf16_qr_128x32x128_4x1x1_32x32x16_packed_biasalibi_dbias",
      "fp16_qr_128x32x128_4x1x1_32x32x16_padded_dropout",
      "bf16_qrasync_128x64x32_4x1x1_32x32x16_packed_masked",
      "fp16_qrasync_128x32x64_4x1x1_32x32x16_masked_dropout",
      "bf16_qrasync_128x64x64_4x1x1_32x32x16_padded_masked_biaselementwise_softcap_dropout",
      "fp16_qrasync_128x32x128_4x1x1_32x32x16_masked_biaselementwise_dbias",
      "bf16_qrasync_128x32x128_4x1x1_32x32x16_packed_biasalibi_dropout_dbias"};

  FmhaProblem problem_for(const KernelSpec& spec) {
    const auto& s = signature(spec);
    const Shape3& t = spec.algorithm.tile;
    FmhaProblem p{.kind = FmhaKind::backward, .in = s.in, .out = s.out, .dtype_bias = s.dtype_bias};
    p.lengths = s.lengths, p.dbias = s.dbias, p.dlse = one_in(3);
    p.batch = between(1, 2);
    p.heads_kv = between(1, 2);
    p.heads = p.heads_kv * between(1, 3);
    const auto head = [&] {
      return one_in(2) ? std::max<std::int64_t>(8, t.k - 8 * between(1, 5)) : t.k;
    };
    p.hdim = head(), p.hdim_v = head();
    p.seqlen_q = one_in(4) ? between(1, 2) * t.m : between(1, t.m + t.m / 2);
    p.seqlen_k = one_in(4) ? between(0, 2) * t.m : between(0, 2 * t.m);
    if (s.masked) add_mask(p);
    add_bends(s, p);
    if (one_in(3)) p.scale = 6 / std::sqrt(static_cast<float>(p.hdim));
    if (one_in(8)) p.scale = -0.1F;
    if (p.lengths != FmhaLengths::equal && one_in(4)) p.skip_q = 2;
    const auto products = [&] { return p.batch * p.heads * p.seqlen_q * p.seqlen_k * t.k / 16; };
    while (products() > kMostGradientProducts && p.seqlen_k > 40) p.seqlen_k -= 33;
    while (products() > kMostGradientProducts && p.seqlen_q > 40) p.seqlen_q -= 33;
    add_strides(p);
    return p;
  }
  // One head of keys and values for all, one dout.
  void add_strides(FmhaProblem& p) {
    if (one_in(3)) return;
    p.q_strides = spread(p, p.heads, p.seqlen_q, p.hdim);
    p.k_strides = spread(p, p.heads_kv, p.seqlen_k, p.hdim);
    p.v_strides = spread(p, p.heads_kv, p.seqlen_k, p.hdim_v);
    p.dout_strides = spread(p, p.heads, p.seqlen_q, p.hdim_v);
    p.dq_strides = spread(p, p.heads, p.seqlen_q, p.hdim);
    p.dk_strides = spread(p, p.heads_kv, p.seqlen_k, p.hdim);
    p.dv_strides = spread(p, p.heads_kv, p.seqlen_k, p.hdim_v);
    if (one_in(3)) p.k_strides[1] = 0;
    if (one_in(3) && p.lengths != FmhaLengths::packed) p.v_strides[0] = 0;
    if (one_in(4)) p.dout_strides[1] = p.dout_strides[2] = 0;
  }

  // ---- how many matrix instructions there are ----

  std::uint64_t mfmas_of_tile(const KernelSpec& spec, bool of_keys) const {
    const Algorithm& a = spec.algorithm;
    const int depth = mfma_depth(spec);
    const int head = a.tile.k, head_v = fmha::most_hdim_v(a.tile.k);
    const int rows = a.tile.n / 32 * (head + head_v) / depth;
    const int columns = a.tile.n / depth * ((of_keys ? head + head_v : head) / 32);
    return static_cast<std::uint64_t>(rows + columns);
  }

  // What a token of a sequence sees.
  struct Range {
    std::int64_t begin, end, sink;
  };
  static Range range_of(bool masked, bool of_keys, const device::FmhaArguments& g,
                        const device::FmhaSequence& s, std::int64_t own) {
    own = std::min<std::int64_t>(own, (of_keys ? s.keys : s.queries) - 1);
    if (of_keys) {
      const auto q =
          masked ? device::queries_of<true>(g, s, own) : device::queries_of<false>(g, s, own);
      return {q.begin, q.end, 0};
    }
    const auto k = masked ? device::keys_of<true>(g, s, own) : device::keys_of<false>(g, s, own);
    return {k.begin, k.end, k.sink};
  }
  static Range range_of_all(bool masked, bool of_keys, const device::FmhaArguments& g,
                            const device::FmhaSequence& s, std::int64_t first, std::int64_t count) {
    const Range low = range_of(masked, of_keys, g, s, first);
    const Range high = range_of(masked, of_keys, g, s, first + count - 1);
    return {low.begin, std::max(low.end, high.end), high.sink};
  }
  // Tiles that the waves of a workgroup multiply for a head: of those that one of its tokens sees,
  // the ones of which the wave sees something.
  static std::int64_t tiles_of(const Algorithm& a, bool masked, bool of_keys,
                               const device::FmhaArguments& g, const device::FmhaSequence& s,
                               std::int64_t first) {
    const Range walked = range_of_all(masked, of_keys, g, s, first, a.tile.m);
    std::int64_t count = 0;
    for (std::int64_t row = first; row < first + a.tile.m; row += a.tile.m / a.wave.m) {
      const Range some = range_of_all(masked, of_keys, g, s, row, a.tile.m / a.wave.m);
      const std::int64_t begin = walked.begin / a.tile.n * a.tile.n;
      for (std::int64_t met = 0; met < walked.end; met += a.tile.n) {
        if (met < begin && met >= walked.sink) continue;
        const bool sees = (met < some.end && met + a.tile.n > some.begin) || met < some.sink;
        count += !masked || sees ? 1 : 0;
      }
    }
    return count;
  }
  std::uint64_t expected_mfmas(const KernelSpec& spec, const FmhaProblem& p,
                               const FmhaOperands& o) const {
    const Algorithm& a = spec.algorithm;
    const bool masked = signature(spec).masked;
    const device::FmhaArguments g = fmha::arguments_of(p, o);
    std::uint64_t sum = 0;
    for (const bool of_keys : {false, true}) {
      std::int64_t tiles = 0;
      for (std::int64_t b = 0; b < p.batch; ++b) {
        const auto s = fmha::sequence_in<device::FmhaPages::none>(p.lengths, g, b);
        for (std::int64_t own = 0; own < (of_keys ? s.keys : s.queries); own += a.tile.m) {
          tiles += tiles_of(a, masked, of_keys, g, s, own) * p.heads;
        }
      }
      sum += static_cast<std::uint64_t>(tiles) * mfmas_of_tile(spec, of_keys);
    }
    return sum;
  }

  void expect_counted(const KernelSpec& spec, const EmulatedKernel& kernel) const {
    const Algorithm& a = spec.algorithm;
    const auto& s = signature(spec);
    const device::MfmaBackwardShape shape = {.waves = a.wave.m,
                                             .met = a.tile.n,
                                             .head = a.tile.k,
                                             .head_v = fmha::most_hdim_v(a.tile.k),
                                             .copies = a.pipeline == Pipeline::qrasync,
                                             .reads_bias = s.bias == FmhaBias::elementwise,
                                             .dropout = s.dropout};
    for (const bool of_keys : {false, true}) {
      SCOPED_TRACE(of_keys ? "dk dv" : "dq");
      const emulator::Facts facts = kernel.facts(name_of(spec) + (of_keys ? "" : "_dq"));
      EXPECT_EQ(mfmas_in(facts), mfmas_of_tile(spec, of_keys));
      EXPECT_EQ(facts.lds_bytes,
                static_cast<unsigned>(device::mfma_backward_lds_bytes(shape, of_keys)));
      EXPECT_LE(facts.vgprs,
                512U / static_cast<unsigned>(device::mfma_backward_waves(shape, of_keys)));
    }
  }

  // Makes dout of fp16 larger, of which each element is met once.
  static void enlarge_dout(const FmhaProblem& p, const FmhaOperands& o) {
    const fmha::TokenCounts n = fmha::token_counts(p);
    std::set<std::int64_t> met;
    const auto& strides = p.dout_strides;
    for (std::int64_t b = 0; b < n.sequences; ++b) {
      for (std::int64_t h = 0; h < p.heads; ++h) {
        for (std::int64_t t = 0; t < n.queries; ++t) {
          for (std::int64_t d = 0; d < p.hdim_v; ++d) {
            const std::int64_t batch = n.sequences > 1 ? b * strides[0] : 0;
            const std::int64_t at = batch + h * strides[1] + t * strides[2] + d * strides[3];
            if (!met.insert(at).second) continue;
            store_element(p.in, const_cast<void*>(o.dout), at,
                          kLargeGradient * load_element(p.in, o.dout, at));
          }
        }
      }
    }
  }

  void check_one(const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    const FmhaProblem p = with_strides(problem_for(spec));
    const bool is_large = p.in == DType::fp16 && one_in(2);
    std::uint64_t expected = 0;
    check(spec, source, kernel, p, [&](const Operands& operands) {
      const auto& o = std::get<FmhaOperands>(operands);
      if (is_large) enlarge_dout(p, o);
      expected = expected_mfmas(spec, p, o);
    });
    EXPECT_EQ(executed_mfmas_, expected) << to_string(Problem(p));
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, MfmaBackward, testing::Values("gfx90a", "gfx942", "gfx950"),
                         [](const auto& row) { return row.param; });

TEST_P(MfmaBackward, EveryKernelIsLeanAndCorrect) {
  const std::vector<KernelSpec> specs = kernels();
  for_each_built(specs, [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    expect_counted(spec, kernel);
    check_one(spec, source, kernel);
    expect_few_lds_cycles(kernel);
  });
}

// lse has lost the logarithm of the sum of weights then.
TEST_P(MfmaBackward, KeysAreHiddenByTheLeastNumber) {
  for (const char* words : {"dtype=bf16", "dtype=fp16 dtype_bias=fp32"}) {
    SCOPED_TRACE(words);
    run_on_low_scores(
        parse_problem(
            fmt::format("fmha kind=backward heads=4 heads_kv=2 seqlen_q=5 seqlen_k=150 hdim=64 "
                        "bias=elementwise {}",
                        words)),
        is_gradient,
        [&](const KernelSpec& spec, const EmulatedKernel& kernel, const fmha::LowScores& scores) {
          expect_counted(spec, kernel);
          scores.hide_keys();
          scores.put_results();
        },
        [](const fmha::LowScores& scores) { scores.expect_gradients(); });
  }
}

// What no kernel by MFMA computes is refused with a sentence.
TEST_P(MfmaBackward, RefusesOtherTypesAndTiles) {
  const auto reason = [&](const char* words) {
    return family_
        .is_legal(parse_name(fmt::format("fmha_backward_{}_{}", words, target_.name)), target_)
        .reason;
  };
  EXPECT_EQ(reason("fp32_qr_128x64x64_4x1x1_32x32x16"),
            "qr computes gradients in fp16 or bf16, got in fp32; direct takes any");
  EXPECT_EQ(reason("bf16_qr_128x64x128_4x1x1_32x32x16"),
            "tile must be one of 128x64x64, 128x32x128 with kind=backward and qr, got 128x64x128");
  EXPECT_EQ(reason("bf16_qr_256x64x64_8x1x1_32x32x16"),
            "qr has 4 waves over m (4x1x1) with kind=backward, got 8x1x1");
}

}  // namespace
}  // namespace tessera
