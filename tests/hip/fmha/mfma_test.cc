// Attention by matrix instructions of AMD's GPUs: every kernel that ships, compiled here, counted,
// and run instruction by instruction on the emulator on random problems, against the fp64
// reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "hip/gemm/emulated.h"
#include "host/fmha/low_scores.h"
#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/device/hip/fmha/fmha_sizes.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/families/operations.h"
#include "tessera/jit/build.h"
#include "tessera/jit/hip_compilers.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

constexpr int kProblemsOfKernel = 1;
constexpr double kMostLdsCycles = 1.05;                        // of what LDS needs at least
constexpr std::int64_t kMostProducts = std::int64_t{3} << 20;  // of a problem

class MfmaFmha : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    try {
      jit::find_hip_compiler({.compiler = {}, .worker = TESSERA_WORKER}, target_);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    if (emulator::find_objdump().empty()) GTEST_SKIP() << "no llvm-objdump was found";
    fmt::print("seed {}\n", seed_);
  }

  static bool is_mfma(const KernelSpec& spec) {
    const Pipeline pipeline = spec.algorithm.pipeline;
    return pipeline == Pipeline::qr || pipeline == Pipeline::qrasync;
  }

  // The kernels of the essential sets, and some that are in none.
  std::vector<KernelSpec> kernels() const {
    std::set<std::string> names;
    std::vector<KernelSpec> specs;
    const auto add = [&](const KernelSpec& spec) {
      if (is_mfma(spec) && names.insert(name_of(spec)).second) specs.push_back(spec);
    };
    for (const std::string& set : family_.preselected_names()) {
      if (!set.ends_with("_essential")) continue;
      try {
        for (const KernelSpec& spec : family_.preselected(set, target_)) add(spec);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::not_found) throw;  // a set of other targets
      }
    }
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

  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least +
           static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(most - least + 1));
  }
  bool one_in(int count) { return random_() % static_cast<unsigned>(count) == 0; }

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

  void expect_lean(const KernelSpec& spec, const EmulatedKernel& kernel) const {
    const emulator::Facts facts = kernel.facts(name_of(spec));
    EXPECT_EQ(facts.scratch_bytes, 0U);
    EXPECT_EQ(facts.vgpr_spills, 0U);
    EXPECT_EQ(facts.sgpr_spills, 0U);
    EXPECT_EQ(facts.uncovered, 0U);
    std::uint64_t mfmas = 0;
    for (const auto& [name, count] : facts.mfmas) mfmas += count;
    EXPECT_EQ(mfmas, mfmas_of_tile(spec));
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

  void check(const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    const FmhaProblem p = with_strides(problem_for(spec));
    const std::uint64_t seed = random_();
    SCOPED_TRACE(fmt::format("'{}', operands of seed {}", to_string(Problem(p)), seed));
    ASSERT_EQ(family_.supports(spec, p, target_).reason, "");
    measure::OwnedOperands owned = measure::random_operands(p, seed, 1, target_.fp8_encoding);
    const Reference wanted = family_.reference(p, owned.operands, {.fp8 = target_.fp8_encoding});
    emulator::Memory memory;
    add_operands(owned, memory);
    const std::uint64_t before = kernel.statistics.mfmas;
    ASSERT_EQ(kernel.run(name_of(spec), source, family_.bind(spec, p, target_, owned.operands),
                         memory, 1),
              "");
    EXPECT_EQ(kernel.statistics.mfmas - before,
              expected_mfmas(spec, p, std::get<FmhaOperands>(owned.operands)));
    const Mismatch mismatch = family_.compare(p, owned.operands, wanted);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
    EXPECT_EQ(measure::gaps_intact(owned), "");
    ++problems_;
    elements_ += mismatch.checked;
  }

  static jit::BuildOptions options() {
    jit::BuildOptions options;
    options.cache.folder = TESSERA_BUILD "/kernel-cache";
    options.worker = TESSERA_WORKER;
    options.use_shipped_packs = false;
    return options;
  }

  Target target_ = load_target(GetParam());
  const Family& family_ = family_of(Op::fmha);
  std::uint64_t seed_ = std::random_device{}();
  std::mt19937_64 random_{seed_};
  int problems_ = 0;
  std::int64_t elements_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Targets, MfmaFmha, testing::Values("gfx90a", "gfx942", "gfx950"),
                         [](const auto& row) { return row.param; });

TEST_P(MfmaFmha, EveryKernelIsLeanAndCorrect) {
  const std::vector<KernelSpec> specs = kernels();
  ASSERT_GE(specs.size(), 30U);
  std::vector<Source> sources;
  for (const KernelSpec& spec : specs) sources.push_back(family_.emit(spec, target_));
  jit::Builder builder(options());
  emulator::Statistics all;
  const auto built = builder.build_all(sources, target_, 0);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    SCOPED_TRACE(name_of(specs[i]));
    ASSERT_EQ(built[i].error, "");
    EmulatedKernel kernel(read_file(built[i].artifact.binary));
    expect_lean(specs[i], kernel);
    for (int n = 0; n < kProblemsOfKernel; ++n) check(specs[i], sources[i], kernel);
    const emulator::Statistics& s = kernel.statistics;
    EXPECT_LE(static_cast<double>(s.lds_cycles),
              kMostLdsCycles * static_cast<double>(s.lds_ideal_cycles));
    all.add(s);
  }
  fmt::print("{}: {} kernels, {} problems, {} elements; {} instructions, {} MFMAs\n", target_.name,
             specs.size(), problems_, elements_, all.instructions, all.mfmas);
}

// Masks of other libraries: a bias of the least finite number, for some keys of a row or all.
TEST_P(MfmaFmha, KeysAreHiddenByTheLeastNumber) {
  for (const char* words : {"dtype=bf16", "dtype=fp16 dtype_bias=fp32"}) {
    const Problem problem = parse_problem(fmt::format(
        "fmha heads=4 heads_kv=2 seqlen_q=5 seqlen_k=150 hdim=64 bias=elementwise lse=1 {}",
        words));
    for (const KernelSpec& spec : kernels_for(problem, target_)) {
      if (!is_mfma(spec) || !family_.supports(spec, problem, target_)) continue;
      SCOPED_TRACE(name_of(spec));
      const Source source = family_.emit(spec, target_);
      EmulatedKernel kernel(read_file(jit::Builder(options()).build(source, target_).binary));
      expect_lean(spec, kernel);
      measure::OwnedOperands owned = measure::random_operands(problem, random_());
      const auto& p = std::get<FmhaProblem>(problem);
      const fmha::LowScores scores(p, owned, -max_finite(p.dtype_bias));
      scores.hide_keys();
      emulator::Memory memory;
      add_operands(owned, memory);
      const Launch launch = family_.bind(spec, problem, target_, owned.operands);
      ASSERT_EQ(kernel.run(name_of(spec), source, launch, memory, 1), "");
      scores.expect_means();
      break;
    }
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
    const std::string file = read_file(jit::Builder(options()).build(source, target_).binary);
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
