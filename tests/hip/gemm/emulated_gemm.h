// Random ragged problems for GEMM's kernels on the emulator, and what their code is to have.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "hip/emulated_test.h"
#include "tessera/device/stream_work.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/families/tile/mfma.h"

namespace tessera {

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
    const std::int64_t turn = std::int64_t{a.warp_tile.k} * target_.warp_size;
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

}  // namespace tessera
