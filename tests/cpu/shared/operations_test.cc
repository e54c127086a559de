// What tessera.hpp knows about operations: the functions, without the table of families behind
// them. This program includes tessera.hpp and nothing else of the library.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tessera/tessera.hpp>
#include <vector>

namespace tessera {

struct Family;  // perhaps the first declaration of it

namespace shared_test {
namespace {

template <class T>
concept Complete = requires {
  sizeof(T);
};
template <class T>
concept HasTable = requires(const T& subject) {
  family_of(subject);
};
static_assert(!Complete<Family> && !Complete<Launch>, "tessera.hpp brings internals along");
static_assert(!HasTable<Problem> && !HasTable<KernelSpec> && !HasTable<Op>);

constexpr const char* kLegal = "gemm_fp32_rrr_packb_192x960x256_1x1x1_12x32x1_avx512";
constexpr const char* kIllegal = "gemm_fp32_rrr_packb_193x960x256_1x1x1_12x32x1_avx512";

template <class Call>
std::string error_of(ErrorCode code, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

std::vector<std::string> names_of(const std::vector<KernelSpec>& specs) {
  std::vector<std::string> names;
  for (const KernelSpec& spec : specs) names.push_back(name_of(spec));
  return names;
}

// out = a b, of 2x4 and 4x3 numbers.
struct Product {
  std::vector<float> a = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<float> b = {1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1};
  std::vector<float> out = {5, 6, 7, 13, 14, 15};
  Problem problem = gemm_problem(DType::fp32, GemmLayout::rrr, 2, 3, 4);
  Operands operands = GemmOperands{.a = a.data(), .b = b.data(), .out = out.data()};
};

TEST(Operations, ValidateQuotesTheRule) {
  validate(parse_problem("gemm m=1 n=2 k=3"));
  const Problem broken = gemm_problem(DType::fp32, GemmLayout::rcr, -1, 2, 3);
  const std::string said = error_of(ErrorCode::invalid_argument, [&] { validate(broken); });
  EXPECT_NE(said.find("-1"), std::string::npos) << said;
}

TEST(Operations, TensorsDescribeTheOperands) {
  Product product;
  const Tensors tensors = tensors_of(product.problem);
  ASSERT_EQ(tensors.size(), 3U);
  const char* const names[] = {"a", "b", "out"};
  const void* const pointers[] = {product.a.data(), product.b.data(), product.out.data()};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(tensors[i].name, names[i]);
    EXPECT_EQ(pointer_of(product.operands, tensors[i]), pointers[i]);
    EXPECT_EQ(tensors[i].is_written(), i == 2);
  }
  EXPECT_EQ(tensors[0].elements(), 8);
  EXPECT_EQ(tensors[1].elements(), 12);
  EXPECT_EQ(tensors[2].bytes(), 24U);
  std::vector<float> other(6);
  set_pointer(product.operands, tensors[2], other.data());
  EXPECT_EQ(std::get<GemmOperands>(product.operands).out, other.data());
}

TEST(Operations, WorkIsCounted) {
  const Problem problem = Product().problem;
  EXPECT_EQ(flops_of(problem), 2.0 * 2 * 3 * 4);
  EXPECT_EQ(bytes_of(problem), 4.0 * (2 * 4 + 4 * 3 + 2 * 3));
}

TEST(Operations, VerifyComparesWithTheReference) {
  Product product;
  EXPECT_TRUE(verify(product.problem, product.operands).ok);
  product.out[4] = 14.5F;
  const Mismatch mismatch = verify(product.problem, product.operands);
  EXPECT_FALSE(mismatch.ok);
  EXPECT_EQ(mismatch.bad, 1);
  EXPECT_EQ(mismatch.checked, 6);
  EXPECT_NE(mismatch.message, "");
  std::get<GemmOperands>(product.operands).b = nullptr;
  EXPECT_EQ(error_of(ErrorCode::invalid_argument,
                     [&] { (void)verify(product.problem, product.operands); }),
            "gemm: b must not be null: 4 rows of 3 elements are needed");
  EXPECT_EQ(
      error_of(ErrorCode::invalid_argument, [&] { (void)verify(product.problem, NormOperands{}); }),
      "gemm: the operands must be GemmOperands, got NormOperands");
}

TEST(Operations, SettingsMakeTheBuildersProblem) {
  const std::vector<Setting> settings = {{"data_type", {"bf16"}},
                                         {"dims", {"128", "64", "2", "300", "400"}},
                                         {"nheads", {"8", "2"}},
                                         {"gfx_arch", {"sm90a"}}};
  const SettledProblem settled = settle(Op::fmha, settings);
  FmhaProblemBuilder builder;
  builder.data_type("bf16").dims(128, 64, 2, 300, 400).nheads(8, 2);
  EXPECT_EQ(settled.problem, Problem{builder.build()});
  EXPECT_EQ(settled.choice, (ChoiceSettings{.target = "sm90a"}));
  EXPECT_EQ(error_of(ErrorCode::unsupported, [] { (void)settle(Op::gemm, {}); }),
            "gemm: there is no builder; set the problem's fields");
}

TEST(Operations, KernelsOfATargetPassTheWishes) {
  const Target target = load_target("avx512");
  const std::vector<Wish> wishes = {{"dtype", "fp32"}, {"layout", "rrr"}, {"pipeline", "packb"}};
  const std::vector<KernelSpec> specs = enumerate(Op::gemm, target, wishes);
  ASSERT_FALSE(specs.empty());
  EXPECT_LT(specs.size(), enumerate(Op::gemm, target).size());
  const std::vector<std::string> names = names_of(specs);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  for (std::size_t i = 0; i < specs.size(); ++i) {
    EXPECT_TRUE(names[i].starts_with("gemm_fp32_rrr_packb_")) << names[i];
    EXPECT_TRUE(is_legal(specs[i], target)) << names[i];
  }
  const std::vector<std::string> fields = wish_fields(Op::gemm);
  for (const Wish& wish : wishes) {
    EXPECT_NE(std::find(fields.begin(), fields.end(), wish.field), fields.end()) << wish.field;
  }
  const std::vector<Wish> unknown = {{"tyle", "1x1x1"}};
  const std::string said =
      error_of(ErrorCode::parse_error, [&] { (void)enumerate(Op::gemm, target, unknown); });
  EXPECT_NE(said.find("'tile'"), std::string::npos) << said;
}

TEST(Operations, PreselectedKernelsHaveNames) {
  const Target target = load_target("avx512");
  const std::vector<std::string> names = preselected_names(Op::gemm);
  const std::string set = "fp32_rcr_essential";
  EXPECT_NE(std::find(names.begin(), names.end(), set), names.end());
  const std::vector<KernelSpec> specs = preselected(Op::gemm, set, target);
  EXPECT_FALSE(specs.empty());
  for (const KernelSpec& spec : specs) EXPECT_TRUE(is_legal(spec, target)) << name_of(spec);
  error_of(ErrorCode::not_found, [&] { (void)preselected(Op::gemm, "fp32_rcr_esential", target); });
}

// The kernels for a problem are those among which choose() chooses; the others have a reason.
TEST(Operations, CandidatesServeOrSayWhyNot) {
  const Target target = load_target("avx512");
  for (const char* line : {"gemm m=37 n=45 k=61 dtype=bf16", "norm kind=softmax rows=3 columns=77",
                           "fmha batch=1 heads=2 seqlen_q=33 seqlen_k=65 hdim=64"}) {
    const Problem problem = parse_problem(line);
    const std::vector<KernelSpec> kernels = kernels_for(problem, target);
    ASSERT_FALSE(kernels.empty()) << line;
    std::vector<std::string> serving;
    for (const KernelSpec& spec : candidates(problem, target)) {
      if (is_legal(spec, target) && supports(spec, problem, target)) {
        serving.push_back(name_of(spec));
      }
    }
    EXPECT_EQ(names_of(kernels), serving) << line;
    ChooseOptions options;
    options.explain = true;
    std::vector<std::string> accepted;
    for (const Considered& one : choose(problem, target, options).considered) {
      if (one.refusal.empty()) accepted.push_back(one.name);
    }
    std::sort(accepted.begin(), accepted.end());
    EXPECT_EQ(accepted, serving) << line;
    const KernelSpec general = general_kernel(problem, target);
    EXPECT_TRUE(is_legal(general, target) && supports(general, problem, target)) << line;
  }
}

TEST(Operations, ReceiptsOfAllOperationsNameSignatures) {
  const std::vector<Receipt> receipts = all_receipts();
  ASSERT_FALSE(receipts.empty());
  for (const Receipt& receipt : receipts) {
    const std::vector<Signature> signatures = receipt_signatures(receipt.name);
    EXPECT_FALSE(signatures.empty()) << receipt.name;
    if (!receipt.number.empty()) {
      EXPECT_EQ(receipt_signatures(receipt.number), signatures) << receipt.name;
    }
  }
  error_of(ErrorCode::not_found, [] { (void)receipt_signatures("flesh"); });
}

TEST(Operations, VerdictsNameTheRule) {
  const Target target = load_target("avx512");
  const Problem norm = parse_problem("norm kind=softmax rows=3 columns=77");
  EXPECT_EQ(is_legal(parse_name(kLegal), target).reason, "");
  const std::string reason = is_legal(parse_name(kIllegal), target).reason;
  EXPECT_NE(reason.find("193"), std::string::npos) << reason;
  EXPECT_TRUE(is_deterministic(parse_name(kLegal), target));
  EXPECT_TRUE(supports(parse_name(kLegal), Product().problem, target));
  EXPECT_EQ(supports(parse_name(kLegal), norm, target).reason,
            "the kernel is of gemm, got a problem of norm");
}

TEST(Operations, EstimatesCountThreads) {
  const Target target = load_target("avx512");
  const Problem problem = parse_problem("gemm m=2048 n=2048 k=2048 layout=rrr");
  const KernelSpec shared = general_kernel(problem, target);
  const double alone = estimate(shared, problem, target, 1).seconds;
  EXPECT_GT(alone, 0);
  EXPECT_LT(estimate(shared, problem, target).seconds, alone);
  const KernelSpec spec = parse_name(kLegal);
  const Problem norm = parse_problem("norm kind=softmax rows=3 columns=77");
  EXPECT_EQ(error_of(ErrorCode::invalid_argument, [&] { (void)estimate(spec, norm, target); }),
            std::string(kLegal) + ": the kernel is of gemm, got a problem of norm");
}

TEST(Operations, OnlyLegalKernelsHaveASource) {
  const Target target = load_target("avx512");
  const Source source = emit_legal(parse_name(kLegal), target);
  EXPECT_EQ(source.name, kLegal);
  EXPECT_EQ(source.extension, ".cc");
  EXPECT_NE(source.text.find(kLegal), std::string::npos);
  const KernelSpec illegal = parse_name(kIllegal);
  EXPECT_EQ(error_of(ErrorCode::illegal_spec, [&] { (void)emit_legal(illegal, target); }),
            std::string(kIllegal) + ": " + is_legal(illegal, target).reason);
}

TEST(Operations, StagesAreTheStepsOfALaunch) {
  const Target target = load_target("avx512");
  const KernelSpec spec = parse_name(kLegal);
  const std::vector<Stage> stages = stages_of(spec, Product().problem, target);
  ASSERT_EQ(stages.size(), 1U);
  EXPECT_EQ(stages[0].name, "multiply");
  EXPECT_EQ(stages[0].entry, kLegal);
  EXPECT_EQ(stages[0].parts, 1);
  const Problem empty = parse_problem("gemm m=0 n=3 k=4 layout=rrr");
  EXPECT_TRUE(stages_of(spec, empty, target).empty());
  const Problem norm = parse_problem("norm kind=softmax rows=3 columns=77");
  EXPECT_EQ(error_of(ErrorCode::invalid_argument, [&] { (void)stages_of(spec, norm, target); }),
            std::string(kLegal) + ": the kernel is of gemm, got a problem of norm");
}

}  // namespace
}  // namespace shared_test
}  // namespace tessera
