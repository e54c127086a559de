// Attention by matrix instructions over keys and values in pages of a cache, alone and behind the
// appending of new tokens.
#include "hip/fmha/emulated_mfma.h"

namespace tessera {
namespace {

using MfmaPages = EmulatedMfma;
INSTANTIATE_TEST_SUITE_P(Targets, MfmaPages, testing::Values("gfx90a", "gfx942", "gfx950"),
                         [](const auto& row) { return row.param; });

constexpr int kProblemsOfPages = 1;                        // of a kernel
constexpr std::size_t kUsualPaged = 3, kUsualExtends = 2;  // kernels in a usual run
constexpr const char* kPaged[] = {
    "forward_bf16_qr_128x128x64_4x1x1_32x32x16_padded_masked_lse_pagestable",
    "forward_bf16_qr_128x64x128_4x1x1_32x32x16_padded_masked_lse_pagestable",
    "forward_bf16_qr_128x32x256_4x1x1_32x32x16_packed_masked_pageslist",
    "forward_fp16_qr_128x64x192_4x1x1_32x32x16_lse_pagestable",
    "forward_fp16_qr_128x128x32_4x1x1_32x32x16_packed_softcap_pageslist",
    "forward_fp16_qr_128x32x128_4x1x1_32x32x16_padded_masked_biasalibi_dropout_pagestable",
    "forward_bf16_qrasync_128x64x128_4x1x1_32x32x16_padded_masked_lse_pagestable",
    "forward_fp16_qrasync_128x64x64_4x1x1_32x32x16_packed_masked_pageslist",
    "forward_fp16_qrasync_128x64x256_4x1x1_32x32x16_pageslist",
    "forward_bf16_qrasync_128x64x192_4x1x1_32x32x16_padded_masked_pagestable"};
constexpr const char* kExtends[] = {
    "extend_fp16_qr_128x64x64_4x1x1_32x32x16_padded_masked",
    "extend_bf16_qr_128x64x128_4x1x1_32x32x16_padded_masked_pagestable_rotaryhalf_rotateq",
    "extend_fp16_qr_128x64x128_4x1x1_32x32x16_packed_masked_pageslist_rotaryinterleaved",
    "extend_bf16_qrasync_128x64x64_4x1x1_32x32x16_padded_masked_rotaryinterleaved_rotateq",
    "extend_fp16_qrasync_128x64x128_4x1x1_32x32x16_padded_masked_pagestable"};

TEST_P(MfmaPages, ReadsPagesOfAnySize) {
  const std::vector<KernelSpec> specs = named(kPaged);
  ASSERT_GE(specs.size(), 4U);
  check_kernels(some(specs, kUsualPaged), kProblemsOfPages);
}

TEST_P(MfmaPages, AppendsAndAttends) {
  const std::vector<KernelSpec> specs = named(kExtends);
  ASSERT_GE(specs.size(), 2U);
  check_kernels(some(specs, kUsualExtends), kProblemsOfPages);
}

// Tables, prefix sums and lengths that no caller should pass: the nearest page, and no key without
// an entry.
TEST_P(MfmaPages, AnyNumbersLeadIntoTheCache) {
  for (const KernelSpec& spec :
       named(std::array{"forward_fp16_qr_128x64x64_4x1x1_32x32x16_padded_masked_pagestable",
                        "forward_fp16_qr_128x64x64_4x1x1_32x32x16_packed_pageslist"})) {
    const Source source = family_.emit(spec, target_);
    EmulatedKernel kernel(read_file(builder().build(source, target_).binary));
    FmhaProblem p = problem_for(spec);
    p.check_pages = false;
    p = with_strides(p);
    check(spec, source, kernel, p, [&](const Operands& operands) {
      for (const Tensor& tensor : family_.tensors(p)) {
        if (tensor.dtype != DType::int32 || tensor.is_written()) continue;
        auto* const to = static_cast<std::int32_t*>(
            const_cast<void*>(family_.pointer(operands, tensor.operand)));
        for (std::int64_t x = 0; x < tensor.elements(); ++x) {
          const std::int64_t most = one_in(2) ? 200 : (1LL << 31) - 1;
          to[x] = static_cast<std::int32_t>(between(-most - 1, most));
        }
      }
    });
  }
}

TEST_P(MfmaPages, ABadPageStopsACheckedLaunch) {
  for (const KernelSpec& spec :
       named(std::array{"forward_bf16_qr_128x64x128_4x1x1_32x32x16_pagestable",
                        "forward_bf16_splitkv_32x128x128_1x4x1_32x32x16_pagestable"})) {
    SCOPED_TRACE(name_of(spec));
    const Problem problem = parse_problem(
        "fmha batch=3 heads=2 seqlen_q=3 seqlen_k=150 hdim=128 dtype=bf16 pages=table "
        "page_size=16 check_pages=1");
    const Source source = family_.emit(spec, target_);
    EmulatedKernel kernel(read_file(builder().build(source, target_).binary));
    measure::OwnedOperands owned = measure::random_operands(problem, random_());
    auto& operands = std::get<FmhaOperands>(owned.operands);
    auto* const table = const_cast<std::int32_t*>(operands.page_table);
    const std::int32_t good = table[19];
    const auto run = [&] {
      emulator::Memory memory;
      add_operands(owned, memory);
      const Launch launch = family_.bind(spec, problem, target_, owned.operands);
      ASSERT_EQ(kernel.run(name_of(spec), source, launch, memory, 1), "");
    };
    table[19] = static_cast<std::int32_t>(with_strides(std::get<FmhaProblem>(problem)).num_pages);
    const auto* const out = static_cast<const std::uint16_t*>(operands.out);
    const std::vector<std::uint16_t> untouched(out, out + 3 * 2 * 3 * 128);
    run();
    EXPECT_EQ(std::vector<std::int32_t>(operands.bad_page, operands.bad_page + 4),
              (std::vector<std::int32_t>{1, 1, 9, table[19]}));
    EXPECT_EQ(std::vector<std::uint16_t>(out, out + untouched.size()), untouched);
    table[19] = good;
    run();
    EXPECT_EQ(family_.verify(problem, owned.operands).message, "");
  }
}

}  // namespace
}  // namespace tessera
