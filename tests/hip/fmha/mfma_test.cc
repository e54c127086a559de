// Attention by matrix instructions of AMD's GPUs: every kernel that ships, compiled here, counted,
// and run instruction by instruction on the emulator on random problems, against the fp64
// reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "hip/emulated_test.h"
#include "host/fmha/low_scores.h"
#include "tessera/device/hip/fmha/fmha_sizes.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/families/operations.h"

namespace tessera {
namespace {

constexpr int kProblemsOfKernel = 1;
constexpr double kMostLdsCycles = 1.05;                        // of what LDS needs at least
constexpr std::int64_t kMostProducts = std::int64_t{3} << 20;  // of a problem

class MfmaFmha : public EmulatedTest {
 protected:
  MfmaFmha() : EmulatedTest(Op::fmha) {}

  static bool is_mfma(const KernelSpec& spec) {
    const Pipeline pipeline = spec.algorithm.pipeline;
    return std::get<FmhaSignature>(spec.signature).kind == FmhaKind::forward &&
           (pipeline == Pipeline::qr || pipeline == Pipeline::qrasync);
  }

  // The kernels of the essential sets, and some that are in none.
  std::vector<KernelSpec> kernels() const {
    std::vector<KernelSpec> specs = essential(is_mfma);
    const auto add = [&](const KernelSpec& spec) {
      if (std::find(specs.begin(), specs.end(), spec) == specs.end()) specs.push_back(spec);
    };
    for (const char* words : kOthers) {
      const KernelSpec spec = parse_name(fmt::format("fmha_forward_{}_{}", words, target_.name));
      if (!family_.is_legal(spec, target_)) continue;
      add(spec);
      if (std::get<FmhaSignature>(spec.signature).bias != FmhaBias::elementwise) continue;
      KernelSpec wide = spec;
      std::get<FmhaSignature>(wide.signature).dtype_bias = DType::fp32;
      if (family_.is_legal(wide, target_)) add(wide);
    }
    return specs;
  }
  // Two blocks of rows a wave, tiles by registers where shipped kernels copy them, bent scores and
  // dropout.
  static constexpr const char* kOthers[] = {
      "bf16_qr_256x64x64_4x1x1_32x32x16_padded_masked_lse",
      "fp16_qr_128x128x64_4x1x1_32x32x16_packed_masked",
      "fp16_qr_128x64x128_4x1x1_32x32x16_masked_lse",
      "bf16_qr_128x64x128_4x1x1_32x32x16_masked_biasalibi_softcap_lse_dropout",
      "fp16_qr_128x64x64_4x1x1_32x32x16_packed_biaselementwise_lse",
      "fp16_qr_128x64x64_4x1x1_32x32x16_padded_masked_biaselementwise_softcap_dropout",
      "bf16_qr_128x128x32_4x1x1_32x32x16_softcap_dropout",
      "bf16_qrasync_256x64x128_4x1x1_32x32x16_packed_masked_lse",
      "fp16_qrasync_256x64x64_4x1x1_32x32x16",
      "fp16_qrasync_128x64x128_4x1x1_32x32x16_masked_biaselementwise_lse",
      "bf16_qrasync_128x64x64_4x1x1_32x32x16_padded_masked_biasalibi_lse",
      "fp16_qrasync_128x64x128_4x1x1_32x32x16_packed_softcap_dropout"};

  FmhaProblem problem_for(const KernelSpec& spec) {
    const auto& s = std::get<FmhaSignature>(spec.signature);
    const Shape3& t = spec.algorithm.tile;
    FmhaProblem p{.in = s.in, .out = s.out, .dtype_bias = s.dtype_bias};
    p.lengths = s.lengths, p.lse = s.lse;
    p.batch = between(1, 2);
    p.heads_kv = between(1, 2);
    p.heads = p.heads_kv * between(1, 2);
    p.hdim = one_in(3) ? std::max<std::int64_t>(8, t.k - 8 * between(1, 3)) : t.k;
    p.hdim_v = one_in(3) ? std::max<std::int64_t>(8, t.k - 8 * between(1, 3)) : t.k;
    p.seqlen_q = one_in(4) ? between(1, 2) * t.m : between(1, t.m + t.m / 2);
    p.seqlen_k = one_in(4) ? between(0, 4) * t.n : between(0, 5 * t.n);
    if (s.masked) add_mask(p);
    add_bends(s, p);
    if (one_in(3)) p.scale = 6 / std::sqrt(static_cast<float>(p.hdim));
    if (one_in(8)) p.scale = -0.1F;
    if (p.lengths != FmhaLengths::equal && one_in(4)) p.skip_q = 2;
    const auto products = [&] { return p.batch * p.heads * p.seqlen_q * p.seqlen_k * t.k / 16; };
    while (products() > kMostProducts && p.seqlen_k > t.n) p.seqlen_k -= t.n / 2;
    add_strides(p);
    return p;
  }
  void add_mask(FmhaProblem& p) {
    p.mask = one_in(2) ? FmhaMask::top_left : FmhaMask::bottom_right;
    p.window_left = one_in(2) ? between(0, p.seqlen_k) : -1;
    p.window_right = one_in(3) ? between(-1, 40) : 0;
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
  // Heads before tokens, gaps between tokens, one head of keys and values for all.
  void add_strides(FmhaProblem& p) {
    const auto spread = [&](std::int64_t heads, std::int64_t tokens, std::int64_t size) {
      const std::int64_t e = size + (one_in(2) ? 8 : 0);
      FmhaStrides s = {tokens * heads * e, e, heads * e, 1};
      if (one_in(2)) s[1] = tokens * e, s[2] = e;
      if (p.lengths == FmhaLengths::packed) s = {kPacked, e, heads * e, 1};
      return s;
    };
    if (one_in(3)) return;
    p.q_strides = spread(p.heads, p.seqlen_q, p.hdim);
    p.k_strides = spread(p.heads_kv, p.seqlen_k, p.hdim);
    p.v_strides = spread(p.heads_kv, p.seqlen_k, p.hdim_v);
    p.out_strides = spread(p.heads, p.seqlen_q, p.hdim_v);
    if (one_in(3)) p.k_strides[1] = 0;
    if (one_in(3) && p.lengths != FmhaLengths::packed) p.v_strides[0] = 0;
  }

  // MFMAs of a tile of keys and a wave, in the code and when it runs.
  std::uint64_t mfmas_of_tile(const KernelSpec& spec) const {
    const Algorithm& a = spec.algorithm;
    int depth = 0;
    for (const Instruction& i : target_.instructions) {
      if (i.a == std::get<FmhaSignature>(spec.signature).in && i.shape.m == 32) {
        depth = std::max(depth, i.shape.k);
      }
    }
    const int blocks = a.tile.m / (32 * a.wave.m);
    const int head_v = fmha::most_hdim_v(a.tile.k);
    return static_cast<std::uint64_t>(blocks * (a.tile.n / 32) * (a.tile.k / depth) +
                                      blocks * (head_v / 32) * (a.tile.n / depth));
  }

  // Tiles that the waves of a workgroup multiply. Waves of a block with a mask leave out tiles of
  // which they see nothing.
  static std::int64_t tiles_of(const Algorithm& a, bool masked, const device::FmhaArguments& g,
                               const device::FmhaSequence& s, std::int64_t first) {
    const auto seen = [&](std::int64_t row) {
      row = std::min<std::int64_t>(row, s.queries - 1);
      return masked ? device::keys_of<true>(g, s, row) : device::keys_of<false>(g, s, row);
    };
    const std::int64_t begin = seen(first).begin / a.tile.n * a.tile.n;
    const std::int64_t end = seen(first + a.tile.m - 1).end;
    const std::int64_t rows = a.tile.m / a.wave.m;
    std::int64_t count = 0;
    for (std::int64_t row = first; row < first + a.tile.m; row += rows) {
      for (std::int64_t key = begin; key < end; key += a.tile.n) {
        const bool sees = key < seen(row + rows - 1).end && key + a.tile.n > seen(row).begin;
        count += !masked || sees ? 1 : 0;
      }
    }
    return count;
  }
  std::uint64_t expected_mfmas(const KernelSpec& spec, const FmhaProblem& p,
                               const FmhaOperands& o) const {
    const Algorithm& a = spec.algorithm;
    const bool masked = std::get<FmhaSignature>(spec.signature).masked;
    const device::FmhaArguments g = fmha::arguments_of(p, o);
    std::int64_t tiles = 0;
    for (std::int64_t b = 0; b < p.batch; ++b) {
      const auto s = fmha::sequence_in<device::FmhaPages::none>(p.lengths, g, b);
      for (std::int64_t first = 0; first < s.queries; first += a.tile.m) {
        tiles += tiles_of(a, masked, g, s, first) * p.heads;
      }
    }
    return static_cast<std::uint64_t>(tiles) * mfmas_of_tile(spec);
  }

  void expect_counted(const KernelSpec& spec, const Source& source,
                      const EmulatedKernel& kernel) const {
    expect_lean(spec, source, kernel);
    const emulator::Facts facts = kernel.facts(name_of(spec));
    EXPECT_EQ(mfmas_in(facts), mfmas_of_tile(spec));
    const Algorithm& a = spec.algorithm;
    const auto& s = std::get<FmhaSignature>(spec.signature);
    const device::MfmaFmhaShape shape = {
        .blocks = a.tile.m / (32 * a.wave.m),
        .waves = a.wave.m,
        .keys = a.tile.n,
        .head = a.tile.k,
        .head_v = fmha::most_hdim_v(a.tile.k),
        .copies = a.pipeline == Pipeline::qrasync,
        .bias_bytes = s.bias == FmhaBias::elementwise ? size_of(s.dtype_bias) : 0,
        .bends = s.soft_cap || s.bias != FmhaBias::none,
        .dropout = s.dropout};
    EXPECT_EQ(facts.lds_bytes, static_cast<unsigned>(device::mfma_fmha_lds_bytes(shape)));
    EXPECT_LE(facts.vgprs, 512U / static_cast<unsigned>(device::mfma_fmha_waves(shape)));
  }

  void check_one(const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    const FmhaProblem p = with_strides(problem_for(spec));
    std::uint64_t expected = 0;
    check(spec, source, kernel, p, [&](const Operands& operands) {
      expected = expected_mfmas(spec, p, std::get<FmhaOperands>(operands));
    });
    EXPECT_EQ(executed_mfmas_, expected) << to_string(Problem(p));
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, MfmaFmha, testing::Values("gfx90a", "gfx942", "gfx950"),
                         [](const auto& row) { return row.param; });

TEST_P(MfmaFmha, EveryKernelIsLeanAndCorrect) {
  const std::vector<KernelSpec> specs = kernels();
  ASSERT_GE(specs.size(), 30U);
  std::vector<Source> sources;
  for (const KernelSpec& spec : specs) sources.push_back(family_.emit(spec, target_));
  const auto built = builder().build_all(sources, target_, 0);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    SCOPED_TRACE(name_of(specs[i]));
    ASSERT_EQ(built[i].error, "");
    EmulatedKernel kernel(read_file(built[i].artifact.binary));
    expect_counted(specs[i], sources[i], kernel);
    for (int n = 0; n < kProblemsOfKernel; ++n) check_one(specs[i], sources[i], kernel);
    const emulator::Statistics& s = kernel.statistics;
    EXPECT_LE(static_cast<double>(s.lds_cycles),
              kMostLdsCycles * static_cast<double>(s.lds_ideal_cycles));
  }
  fmt::print("{}: {} kernels, {} problems, {} elements\n", target_.name, specs.size(), problems_,
             elements_);
}

// Masks of other libraries: a bias of the least finite number, for some keys of a row or all.
TEST_P(MfmaFmha, KeysAreHiddenByTheLeastNumber) {
  for (const char* words : {"dtype=bf16", "dtype=fp16 dtype_bias=fp32"}) {
    const Problem problem = parse_problem(fmt::format(
        "fmha heads=4 heads_kv=2 seqlen_q=5 seqlen_k=150 hdim=64 bias=elementwise lse=1 {}",
        words));
    const std::vector<KernelSpec> all = kernels_for(problem, target_);
    const auto found = std::find_if(all.begin(), all.end(), is_mfma);
    ASSERT_NE(found, all.end()) << words;
    SCOPED_TRACE(name_of(*found));
    const Source source = family_.emit(*found, target_);
    EmulatedKernel kernel(read_file(builder().build(source, target_).binary));
    expect_counted(*found, source, kernel);
    measure::OwnedOperands owned = measure::random_operands(problem, random_());
    const auto& p = std::get<FmhaProblem>(problem);
    const fmha::LowScores scores(p, owned, -max_finite(p.dtype_bias));
    scores.hide_keys();
    emulator::Memory memory;
    add_operands(owned, memory);
    const Launch launch = family_.bind(*found, problem, target_, owned.operands);
    ASSERT_EQ(kernel.run(name_of(*found), source, launch, memory, 1), "");
    scores.expect_means();
  }
}

// The compiler waits for copies to LDS where it cannot tell that a read is not of them. The loop is
// to have the one wait that the kernel asks for.
TEST_P(MfmaFmha, WaitsOnceATileForCopies) {
  if (GetParam() != "gfx950") GTEST_SKIP() << GetParam() << " copies no tiles";
  for (const char* words : {"fp16_qrasync_128x64x128_4x1x1_32x32x16_gfx950",
                            "bf16_qrasync_128x64x64_4x1x1_32x32x16_masked_gfx950"}) {
    SCOPED_TRACE(words);
    const Source source = family_.emit(parse_name(fmt::format("fmha_forward_{}", words)), target_);
    const std::string file = read_file(builder().build(source, target_).binary);
    const emulator::Program program = emulator::read_program(
        std::span(reinterpret_cast<const emulator::u8*>(file.data()), file.size()));
    const std::vector<emulator::Instruction>& code = program.instructions;
    int loops = 0;
    for (std::size_t end = 0; end < code.size(); ++end) {
      if (code[end].target < 0 || static_cast<std::size_t>(code[end].target) > end) continue;
      int mfmas = 0, waits = 0;
      for (auto i = static_cast<std::size_t>(code[end].target); i < end; ++i) {
        mfmas += code[i].mfma != nullptr ? 1 : 0;
        waits += code[i].vm_left >= 0 ? 1 : 0;
      }
      if (mfmas == 0) continue;
      ++loops;
      EXPECT_EQ(waits, 1);
    }
    EXPECT_GE(loops, 1);
  }
}

}  // namespace
}  // namespace tessera
