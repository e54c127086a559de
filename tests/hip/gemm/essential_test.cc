// Every kernel that ships for an AMD GPU: compiled here, counted, and run instruction by
// instruction on the emulator on random ragged problems, against the fp64 reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "hip/emulated_test.h"
#include "tessera/device/stream_work.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/families/tile/mfma.h"

namespace tessera {
namespace {

constexpr int kLeastProblems = 200;  // of each target

class EmulatedGemm : public EmulatedTest {
 protected:
  EmulatedGemm() : EmulatedTest(Op::gemm) {}

  // A problem of about a tile: edges in every direction, often rows that begin anywhere, now and
  // then batches, arrays of pointers, C and scales.
  GemmProblem problem_for(const KernelSpec& spec) {
    const Algorithm& a = spec.algorithm;
    if (a.pipeline == Pipeline::stream) return with_few_rows(spec);
    const std::int64_t least_k = a.slices > 1 ? std::int64_t{a.slices - 1} * a.tile.k + 1
                                 : a.streamk  ? 2 * device::kLeastStreamSteps * a.tile.k
                                              : 1;
    const std::int64_t most_m = a.persistent ? 2 * a.tile.m : a.tile.m + a.tile.m / 4;
    GemmProblem p = gemm::problem_of(std::get<GemmSignature>(spec.signature), between(1, most_m),
                                     between(1, a.tile.n + a.tile.n / 4),
                                     between(least_k, least_k + 2 * a.tile.k));
    if (one_in(3)) {  // whole dwords, so that the usual way of loading runs
      for (std::int64_t* size : {&p.m, &p.n, &p.k}) *size = (*size + 7) / 8 * 8;
    }
    if (one_in(12)) p.k = 0;
    const bool is_small = p.m * p.n < 128 * 128;
    if (is_small && one_in(3)) p.batch = between(2, 3);
    p.pointer_arrays = p.batch > 1 && !p.preshuffled_b && one_in(2);
    if (one_in(3)) add_gaps(p);
    const bool is_exact = p.out == DType::int32;
    if (one_in(2)) p.alpha = is_exact ? static_cast<float>(between(-3, 3)) : 0.75F;
    if (one_in(2)) p.beta = is_exact ? static_cast<float>(between(1, 3)) : -1.5F;
    if (a.slices > 1 && p.k < least_k) p.k = least_k;
    return p;
  }
  // Few rows or few columns, which often begin anywhere, and a k of less than a turn of the waves
  // or of more than LDS holds.
  GemmProblem with_few_rows(const KernelSpec& spec) {
    const Algorithm& a = spec.algorithm;
    const std::int64_t few = between(1, a.tile.m), many = between(1, 3 * a.tile.n);
    const std::int64_t turn = std::int64_t{a.warp_tile.k} * tile::kWaveLanes;
    const std::int64_t k = one_in(4) ? between(a.tile.k, a.tile.k + turn) : between(0, 3 * turn);
    const bool is_turned = one_in(2);
    GemmProblem p = gemm::problem_of(std::get<GemmSignature>(spec.signature),
                                     is_turned ? many : few, is_turned ? few : many, k);
    if (one_in(2)) p.k = (p.k + 7) / 8 * 8;
    if (one_in(3)) p.batch = between(2, 3);
    p.pointer_arrays = p.batch > 1 && one_in(2);
    if (one_in(3)) add_gaps(p);
    if (one_in(2)) p.alpha = 0.75F;
    if (one_in(2)) p.beta = -1.5F;
    return p;
  }
  void add_gaps(GemmProblem& p) {
    const GemmProblem packed = with_strides(p);
    p.ld_a = packed.ld_a + between(0, 9);
    if (!p.preshuffled_b) p.ld_b = packed.ld_b + between(0, 9);
    p.ld_out = packed.ld_out + between(0, 9);
  }

  // What the row says an MFMA of this kernel multiplies, and how many the code then has.
  std::uint64_t mfmas_of(const KernelSpec& spec) const {
    const Algorithm& a = spec.algorithm;
    const auto& s = std::get<GemmSignature>(spec.signature);
    int depth = 0;
    for (const Instruction& i : target_.instructions) {
      const bool fits = i.a == s.a && i.shape.m == a.warp_tile.m && a.warp_tile.k % i.shape.k == 0;
      if (fits) depth = std::max(depth, i.shape.k);
    }
    const Shape3& w = a.warp_tile;
    const int blocks = a.tile.m / (a.wave.m * w.m) * (a.tile.n / (a.wave.n * w.n));
    const int turns =
        tile::mfma_tiles(a).prefetch == 2 ? 2 : 1;  // the loop over K multiplies two tiles
    return static_cast<std::uint64_t>(blocks * (a.tile.k / depth) * turns);
  }

  void expect_counted(const KernelSpec& spec, const Source& source,
                      const EmulatedKernel& kernel) const {
    expect_lean(spec, source, kernel);
    const emulator::Facts facts = kernel.facts(name_of(spec));
    const bool multiplies_by_mfma = tile::is_mfma(spec.algorithm.pipeline);
    EXPECT_EQ(mfmas_in(facts), multiplies_by_mfma ? mfmas_of(spec) : 0);
    if (multiplies_by_mfma) {
      const auto& s = std::get<GemmSignature>(spec.signature);
      const int wanted = device::mfma_lds_bytes(
          tile::mfma_shape(spec.algorithm, {size_of(s.a), size_of(s.b), false, false}));
      EXPECT_EQ(facts.lds_bytes, static_cast<unsigned>(wanted));
    }
  }

  // With B packed where the kernel takes it so, and with any number of resident blocks.
  void check_one(const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    const GemmProblem p = problem_for(spec);
    ASSERT_EQ(family_.supports(spec, p, target_).reason, "") << to_string(Problem(p));
    const Problem plain = family_.unpacked(p);
    const std::uint64_t seed = random_();
    SCOPED_TRACE(fmt::format("'{}', operands of seed {}", to_string(Problem(p)), seed));
    measure::OwnedOperands owned = measure::random_operands(p, seed, 1, target_.fp8_encoding);
    const Reference wanted =
        family_.reference(plain, owned.operands, {.fp8 = target_.fp8_encoding});
    emulator::Memory memory;
    add_operands(owned, memory);
    Operands operands = owned.operands;
    std::vector<std::byte> packed;
    if (p.preshuffled_b && p.k > 0) {
      ASSERT_NO_FATAL_FAILURE(pack(spec, source, p, kernel, memory, operands, packed));
    }
    const auto resident = static_cast<unsigned>(between(1, 4));
    ASSERT_EQ(kernel.run(name_of(spec), source, family_.bind(spec, p, target_, operands), memory,
                         resident),
              "");
    const Mismatch mismatch = family_.compare(plain, owned.operands, wanted);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
    EXPECT_EQ(measure::gaps_intact(owned), "");
    count_problem(p, mismatch.checked);
  }

  void pack(const KernelSpec& spec, const Source& source, const GemmProblem& p,
            EmulatedKernel& kernel, emulator::Memory& memory, Operands& operands,
            std::vector<std::byte>& packed) {
    const auto sized = family_.prepack(spec, p, target_, operands, nullptr);
    ASSERT_TRUE(sized);
    packed.assign(sized->bytes, std::byte{0xff});
    const auto made = family_.prepack(spec, p, target_, operands, packed.data());
    memory.add(reinterpret_cast<std::uintptr_t>(packed.data()), packed.size());
    ASSERT_EQ(kernel.run(name_of(spec), source, made->launch, memory, 1), "");
    operands = made->operands;
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, EmulatedGemm, testing::Values("gfx90a", "gfx942", "gfx950"),
                         [](const auto& row) { return row.param; });

TEST_P(EmulatedGemm, EveryEssentialKernelIsLeanAndCorrect) {
  const std::vector<KernelSpec> all = essential([](const KernelSpec&) { return true; });
  ASSERT_GE(all.size(), 60U);
  const std::vector<KernelSpec> specs = sampled(all);
  const auto each = static_cast<int>((kLeastProblems + specs.size() - 1) / specs.size());
  for_each_built(specs, [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    expect_counted(spec, source, kernel);
    for (int n = 0; n < each; ++n) check_one(spec, source, kernel);
    expect_few_lds_cycles(kernel);
  });
  EXPECT_GE(problems_, kLeastProblems);
}

// Some of all kernels for few rows; other ones in each run.
TEST_P(EmulatedGemm, OtherKernelsOfFewRowsAreLeanAndCorrect) {
  const std::size_t others = is_usual_run(target_.name) ? 3 : 8;
  std::vector<KernelSpec> specs = family_.enumerate(target_, {});
  std::erase_if(specs,
                [](const KernelSpec& spec) { return spec.algorithm.pipeline != Pipeline::stream; });
  ASSERT_GE(specs.size(), 100U);
  std::shuffle(specs.begin(), specs.end(), random_);
  specs.resize(others);
  for_each_built(specs, [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    for (int n = 0; n < 3; ++n) check_one(spec, source, kernel);
  });
}

// The check can fail: operands and a reference in the encoding that the target does not have.
TEST_P(EmulatedGemm, TheOtherEncodingOfFp8IsWrong) {
  const std::vector<KernelSpec> specs = essential([](const KernelSpec&) { return true; });
  const auto found = std::find_if(specs.begin(), specs.end(), [](const KernelSpec& spec) {
    return std::get<GemmSignature>(spec.signature).a == DType::fp8;
  });
  if (found == specs.end()) GTEST_SKIP() << target_.name << " multiplies no fp8";
  const Source source = family_.emit(*found, target_);
  EmulatedKernel kernel(read_file(builder().build(source, target_).binary));
  const GemmProblem p = gemm::problem_of(std::get<GemmSignature>(found->signature), 40, 24, 56);
  const bool is_ocp = target_.fp8_encoding == Fp8Encoding::ocp;
  for (const Fp8Encoding encoding : {Fp8Encoding::ocp, Fp8Encoding::fnuz}) {
    const measure::OwnedOperands owned = measure::random_operands(p, random_(), 1, encoding);
    const Reference wanted = family_.reference(p, owned.operands, {.fp8 = encoding});
    emulator::Memory memory;
    add_operands(owned, memory);
    const Launch launch = family_.bind(*found, p, target_, owned.operands);
    ASSERT_EQ(kernel.run(name_of(*found), source, launch, memory, 1), "");
    EXPECT_EQ(family_.compare(p, owned.operands, wanted).ok,
              is_ocp == (encoding == Fp8Encoding::ocp));
  }
}

}  // namespace
}  // namespace tessera
