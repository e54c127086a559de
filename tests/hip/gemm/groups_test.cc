// Groups of unequal sizes on AMD's GPUs: fresh random groups on the emulator, against the fp64
// reference. Every access outside of an operand is a finding.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "grouped.h"
#include "hip/emulated_test.h"

namespace tessera {
namespace {

constexpr const char* kKinds[] = {"contiguous", "indexed", "masked", "alongk", "lists"};
constexpr const char* kLayouts[] = {"rcr", "rrr", "crr", "ccr"};

class GroupsOfGemm : public EmulatedTest {
 protected:
  GroupsOfGemm() : EmulatedTest(Op::gemm) {}

  // Names with a layout that the kernel takes, another one in each run, for each kind of groups.
  // `words` are those before the options, `more` those behind the grouping.
  std::vector<std::string> names(const std::string& types, const std::string& words,
                                 const std::string& more = "", const std::string& tail = "") {
    std::vector<std::string> all;
    for (const char* const kind : kKinds) {
      std::vector<std::string> taken;
      for (const char* const layout : kLayouts) {
        const std::string name =
            fmt::format("gemm_{}_{}_{}_groups{}{}{}", types, layout, words, kind, more, tail);
        const KernelSpec spec = parse_name(fmt::format("{}_{}", name, target_.name));
        if (family_.is_legal(spec, target_)) taken.push_back(name);
      }
      if (taken.empty()) continue;
      all.push_back(taken[static_cast<std::size_t>(between(0, std::ssize(taken) - 1))]);
    }
    return all;
  }
  std::string direct() const {
    return fmt::format("direct_64x64x16_2x{}x1_4x4x1", 2 * 64 / target_.warp_size);
  }

  GemmProblem problem(const KernelSpec& spec, std::int64_t m, std::int64_t n, std::int64_t k,
                      std::int64_t groups) {
    GemmProblem p = gemm::problem_of(std::get<GemmSignature>(spec.signature), m, n, k);
    p.groups = groups;
    p.clamp_lo = -0.5F, p.clamp_hi = 1.5F;
    if (p.out == DType::int8) p.alpha = 0x1p-9F;
    if (one_in(3)) loosen(p);
    return p;
  }
  // Strides that are longer than the sizes, and C.
  void loosen(GemmProblem& p) {
    p = with_strides(p);
    for (std::int64_t* ld : {&p.ld_a, &p.ld_b, &p.ld_c, &p.ld_out}) *ld += between(0, 5);
    const std::int64_t rows = std::max({p.m, p.n, p.k}) + between(0, 3);
    p.beta = p.out == DType::int32 ? 2.0F : -0.5F;
    if (p.grouping == GemmGrouping::lists) return without_distances(p);
    p.batch_stride_a = rows * p.ld_a, p.batch_stride_b = rows * p.ld_b;
    p.batch_stride_c = rows * p.ld_c + 1, p.batch_stride_out = rows * p.ld_out + 1;
    for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
      if (!d_uses(p.epilogue)[i].is_vector()) p.ld_d[i] += between(0, 5);
      p.batch_stride_d[i] = one_in(4) ? 0 : rows * p.ld_d[i];
    }
  }
  static void without_distances(GemmProblem& p) {
    p.batch_stride_a = p.batch_stride_b = p.batch_stride_c = p.batch_stride_out = kPacked;
    p.batch_stride_d.fill(kPacked);
  }
  GemmProblem any_problem(const KernelSpec& spec) {
    const std::int64_t most_m = one_in(3) ? 150 : 70, whole = one_in(2) ? 8 : 1;
    const auto size = [&](std::int64_t most) {
      return (between(1, most) + whole - 1) / whole * whole;
    };
    GemmProblem p = problem(spec, size(most_m), size(90), size(90),
                            one_in(4) ? between(60, 140) : between(1, 9));
    p.check_groups = one_in(4);
    (p.grouping == GemmGrouping::lists ? p.group_strides : p.group_int64) = one_in(2);
    if (one_in(12)) p.groups = 0;
    if (one_in(12)) p.k = 0;
    return p;
  }

  void run(const KernelSpec& spec, const Source& source, EmulatedKernel& kernel,
           const GemmProblem& problem, const measure::OwnedOperands& owned) {
    emulator::Memory memory;
    add_operands(owned, memory);
    const Launch launch = family_.bind(spec, problem, target_, owned.operands);
    const auto resident = static_cast<unsigned>(between(1, 5));
    ASSERT_EQ(kernel.run(source.name, source, launch, memory, resident), "");
    EXPECT_EQ(grouped::gaps_intact(problem, owned), "");
  }

  // `change` sees the operands with their numbers, before anything is computed.
  template <class Change>
  void check_groups(const KernelSpec& spec, const Source& source, EmulatedKernel& kernel,
                    const GemmProblem& p, const Change& change) {
    ASSERT_EQ(family_.supports(spec, p, target_).reason, "") << to_string(Problem(p));
    const std::uint64_t seed = random_();
    SCOPED_TRACE(fmt::format("'{}', operands of seed {}", to_string(Problem(p)), seed));
    const measure::OwnedOperands owned = measure::random_operands(p, seed, 1, target_.fp8_encoding);
    if (!one_in(4)) grouped::fill_numbers(p, owned.operands, random_);
    change(owned);
    const Reference wanted = family_.reference(p, owned.operands, {.fp8 = target_.fp8_encoding});
    const std::vector<std::byte> before = grouped::bytes_of_out(owned);
    ASSERT_NO_FATAL_FAILURE(run(spec, source, kernel, p, owned));
    const Mismatch mismatch = family_.compare(p, owned.operands, wanted);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
    EXPECT_EQ(grouped::touched(p, owned, before), 0U) << "elements of no group changed";
    count_problem(p, mismatch.checked);
  }
  void check_any(const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    check_groups(spec, source, kernel, any_problem(spec), [](const measure::OwnedOperands&) {});
  }

  // Numbers that do not fit are reported, and nothing else is written.
  void check_report(const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    GemmProblem p = problem(spec, 20, 9, 30, 4);
    p.check_groups = true;
    p.group_int64 = p.grouping != GemmGrouping::lists && one_in(2);
    const measure::OwnedOperands owned =
        measure::random_operands(p, random_(), 1, target_.fp8_encoding);
    const grouped::BadNumbers bad = grouped::fill_bad_numbers(p, owned.operands);
    const std::vector<std::byte> before = grouped::bytes_of_out(owned);
    ASSERT_NO_FATAL_FAILURE(run(spec, source, kernel, p, owned));
    EXPECT_EQ(before, grouped::bytes_of_out(owned));
    const std::int32_t* const report = std::get<GemmOperands>(owned.operands).bad_group;
    EXPECT_EQ(std::vector(report, report + 4),
              std::vector<std::int32_t>({1, bad.place, bad.number, bad.bound}));
  }
  // Without the check, numbers that do not fit access nothing outside of an operand.
  void check_clamps(const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    GemmProblem p = problem(spec, between(1, 90), between(1, 70), between(1, 40), 6);
    p.group_int64 = p.grouping != GemmGrouping::lists && one_in(2);
    const measure::OwnedOperands owned =
        measure::random_operands(p, random_(), 1, target_.fp8_encoding);
    auto* const to =
        const_cast<std::int32_t*>(gemm::numbers_of(p, std::get<GemmOperands>(owned.operands)));
    const auto any = [&] {
      return static_cast<std::int32_t>(one_in(2) ? between(-5, 200) : random_());
    };
    const std::int64_t words = gemm::numbers_count(p) * (p.group_int64 ? 2 : 1);
    for (std::int64_t i = 0; i < words; ++i) to[i] = any();
    for (const std::int32_t* const sizes : std::get<GemmOperands>(owned.operands).group_sizes) {
      for (std::int64_t i = 0; sizes != nullptr && i < p.groups; ++i)
        const_cast<std::int32_t*>(sizes)[i] = any();
    }
    run(spec, source, kernel, p, owned);
  }

  // A matrix of one group is NaN, or the rows and the k of one group are.
  void poison(const GemmProblem& given, const measure::OwnedOperands& owned) {
    const GemmProblem p = with_strides(given);
    const auto& o = std::get<GemmOperands>(owned.operands);
    std::vector<device::GroupPart> parts;
    device::for_each_part(gemm::group_arguments(p, o),
                          [&](const device::GroupPart& part) { parts.push_back(part); });
    if (parts.empty()) return;
    const device::GroupPart& part =
        parts[static_cast<std::size_t>(between(0, std::ssize(parts) - 1))];
    const device::GroupArguments x = gemm::group_arguments(p, o);
    const device::GemmArguments g = device::product_of(x, part, {4, 4, 4, 4});
    auto* const a = static_cast<float*>(const_cast<void*>(g.a));
    const bool by_rows = a_is_row_major(p.layout);
    for (std::int64_t i = 0; i < g.m; ++i) {
      for (std::int64_t k = 0; k < g.k; ++k) a[by_rows ? i * g.ld_a + k : k * g.ld_a + i] = NAN;
    }
  }

  void check_all(const std::vector<std::string>& all, int times) {
    for_each_kernel(all, [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
      for (int n = 0; n < times; ++n) check_any(spec, source, kernel);
      check_report(spec, source, kernel);
      check_clamps(spec, source, kernel);
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, GroupsOfGemm,
                         testing::Values("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"),
                         [](const auto& row) { return row.param; });

TEST_P(GroupsOfGemm, RunByTheGeneralKernel) {
  std::vector<std::string> all;
  const auto add = [&](const std::vector<std::string>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  add(names("fp32", direct()));
  add(names("bf16", direct(), "_bias_gelu"));
  add(names("fp8", direct(), "", "_rowscale_colscale"));
  add(names("int8", direct()));
  ASSERT_GE(all.size(), 8U);
  check_all(some(all, 6), 4);
}

TEST_P(GroupsOfGemm, KeepNaNsApart) {
  const auto check_one = [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    for (int n = 0; n < 4; ++n) {
      const GemmProblem p = any_problem(spec);
      check_groups(spec, source, kernel, p,
                   [&](const measure::OwnedOperands& owned) { poison(p, owned); });
    }
  };
  std::vector<std::string> all = names("fp32", direct());
  for (const std::string& name :
       names("fp32", "compv3_64x64x16_2x2x1_16x16x16", "", "_intrawave")) {
    all.push_back(name);
  }
  for_each_kernel(some(all, 4), check_one);
}

TEST_P(GroupsOfGemm, RunByMatrixInstructions) {
  std::vector<std::string> all;
  for (const char* const words :
       {"compv3_64x64x32_2x2x1_16x16x32", "compv4_64x64x32_2x2x1_32x32x16",
        "mem_64x64x32_2x2x1_16x16x32", "compv3_128x64x64_2x2x1_32x32x16"}) {
    for (const std::string& name : names("bf16", words, "_bias_gelu", "_intrawave"))
      all.push_back(name);
  }
  for (const char* const words :
       {"async_64x64x64_2x2x1_16x16x32", "async_64x64x64_2x2x1_32x32x16"}) {
    for (const std::string& name : names("fp16", words, "", "_intrawave_s2")) all.push_back(name);
  }
  if (all.empty()) GTEST_SKIP() << "no such kernel of " << target_.name;
  check_all(some(all, 6), 4);
}

}  // namespace
}  // namespace tessera
