// Receipts: which signatures frameworks need, and the kernels that serve them.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "host/registry/support.h"
#include "tessera/families/family.h"
#include "tessera/families/operations.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

std::set<std::string> receipt_set_names(std::string_view receipt, std::string_view target) {
  const KernelSet set = KernelSetBuilder("mine", target).receipt(receipt).build();
  const std::vector<std::string> names = names_of(set.specs);
  return {names.begin(), names.end()};
}

const FmhaSignature& attention(const Signature& signature) {
  return std::get<FmhaSignature>(signature);
}

// A receipt, a rule of its signatures, and whether every signature has to keep it.
struct ReceiptRule {
  const char* receipt;
  bool (*holds)(const FmhaSignature&);
};
bool is_half(const FmhaSignature& s) { return s.in == DType::fp16 || s.in == DType::bf16; }
const ReceiptRule kReceiptRules[] = {
    {"ck_default", [](const FmhaSignature& s) { return s.in != DType::fp32; }},
    {"flash_fwd",
     [](const FmhaSignature& s) {
       return is_half(s) && s.bias != FmhaBias::elementwise && s.qscale == FmhaQscale::none;
     }},
    {"pytorch",
     [](const FmhaSignature& s) {
       return is_half(s) && s.bias != FmhaBias::alibi && !s.soft_cap &&
              s.qscale == FmhaQscale::none;
     }},
    {"aiter_batch", [](const FmhaSignature& s) { return s.lengths == FmhaLengths::equal; }},
    {"aiter_group", [](const FmhaSignature& s) { return s.lengths != FmhaLengths::equal; }},
    {"flash_bwd",
     [](const FmhaSignature& s) {
       return is_half(s) && s.kind == FmhaKind::backward && s.bias != FmhaBias::elementwise;
     }},
    {"aiter_bwd_batch",
     [](const FmhaSignature& s) { return is_half(s) && s.lengths == FmhaLengths::equal; }},
    {"aiter_bwd_group",
     [](const FmhaSignature& s) { return is_half(s) && s.lengths != FmhaLengths::equal; }},
    {"fp32_all", [](const FmhaSignature& s) { return s.in == DType::fp32 && !s.soft_cap; }},
    {"fp32_min",
     [](const FmhaSignature& s) {
       return s.in == DType::fp32 && s.lengths == FmhaLengths::equal && s.bias == FmhaBias::none &&
              !s.lse && !s.dropout;
     }},
    {"fp8_test", [](const FmhaSignature& s) { return s.in == DType::fp8 && s.out != DType::fp8; }},
};

class ReceiptRules : public testing::TestWithParam<ReceiptRule> {};
INSTANTIATE_TEST_SUITE_P(All, ReceiptRules, testing::ValuesIn(kReceiptRules),
                         [](const auto& row) { return std::string(row.param.receipt); });

TEST_P(ReceiptRules, HoldForEverySignature) {
  const std::vector<Signature> signatures = receipt_signatures(GetParam().receipt);
  EXPECT_FALSE(signatures.empty());
  for (const Signature& signature : signatures) {
    EXPECT_TRUE(GetParam().holds(attention(signature)));
  }
}

TEST(Receipts, HaveTheDocumentedNumbers) {
  const std::vector<std::pair<std::string, std::string>> documented = {{"0", "ck_default"},
                                                                       {"1", "ck_extended"},
                                                                       {"2", "flash_fwd"},
                                                                       {"3", "flash_bwd"},
                                                                       {"4", "pytorch"},
                                                                       {"100", "aiter_batch"},
                                                                       {"200", "aiter_group"},
                                                                       {"300", "aiter_bwd_batch"},
                                                                       {"400", "aiter_bwd_group"},
                                                                       {"600", "aiter_cpp"},
                                                                       {"800", "fp32_all"},
                                                                       {"801", "fp32_min"},
                                                                       {"888", "fp8_test"},
                                                                       {"flash", "flash"},
                                                                       {"aiter", "aiter"},
                                                                       {"fp32", "fp32"},
                                                                       {"fp8", "fp8"}};
  EXPECT_EQ(all_receipts().size(), documented.size());
  for (const auto& [word, name] : documented) {
    EXPECT_EQ(find_receipt(word).receipt->name, name);
    EXPECT_EQ(find_receipt(name).receipt->name, name);
  }
}

TEST(Receipts, HaveValidProblems) {
  for (const Receipt& receipt : all_receipts()) {
    const Family& family = *find_receipt(receipt.name).family;
    for (const Problem& problem : family.receipt_problems(receipt)) {
      ASSERT_NO_THROW(family.validate(problem)) << receipt.name << ": " << to_string(problem);
    }
  }
}

// Frameworks train: the bias's gradient belongs to the receipts that have biases with elements.
TEST(Receipts, HoldGradients) {
  struct Counted {
    const char* receipt;
    bool has_forward, has_backward, has_dbias;
  };
  const Counted counted[] = {
      {"ck_default", true, true, true},
      {"flash_fwd", true, false, false},
      {"flash_bwd", false, true, false},
      {"pytorch", true, true, true},
      {"aiter_batch", true, false, false},
      {"aiter_bwd_batch", false, true, true},
      {"aiter_bwd_group", false, true, true},
      {"fp32_all", true, true, true},
      {"fp32_min", true, false, false},
      {"flash", true, true, false},
      {"aiter", true, true, true},
  };
  for (const auto& [receipt, has_forward, has_backward, has_dbias] : counted) {
    bool forward = false, backward = false, dbias = false;
    for (const Signature& each : receipt_signatures(receipt)) {
      const FmhaSignature& s = attention(each);
      forward = forward || s.kind == FmhaKind::forward;
      backward = backward || s.kind == FmhaKind::backward;
      dbias = dbias || s.dbias;
    }
    EXPECT_EQ(std::tuple(forward, backward, dbias),
              std::tuple(has_forward, has_backward, has_dbias))
        << receipt;
  }
}

TEST(Receipts, RefuseUnknownNames) {
  const std::string known =
      " (known: ck_default, ck_extended, flash_fwd, flash_bwd, pytorch, aiter_batch, aiter_group, "
      "aiter_bwd_batch, aiter_bwd_group, aiter_cpp, fp32_all, fp32_min, fp8_test, flash, aiter, "
      "fp32, fp8)";
  EXPECT_EQ(
      message_of([] { KernelSetBuilder("mine", "avx2").receipt("pytorhc"); }, ErrorCode::not_found),
      "unknown receipt 'pytorhc', did you mean 'pytorch'?" + known);
  EXPECT_EQ(message_of([] { find_receipt("5555"); }, ErrorCode::not_found),
            "unknown receipt '5555'" + known);
}

class ReceiptSets : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Targets, ReceiptSets,
                         testing::Values("avx2", "avx512", "generic", "sm90a"),
                         [](const auto& row) { return std::string(row.param); });

// Each kernel is legal, and each problem of the receipt has one that serves it.
TEST_P(ReceiptSets, ServeTheirProblems) {
  const Target target = load_target(GetParam());
  for (const char* name : {"pytorch", "fp32_min", "fp8_test"}) {
    const FoundReceipt found = find_receipt(name);
    const KernelSet set = KernelSetBuilder("mine", target).receipt(name).build();
    EXPECT_TRUE(std::is_sorted(set.specs.begin(), set.specs.end(),
                               [](auto& a, auto& b) { return name_of(a) < name_of(b); }));
    for (const KernelSpec& spec : set.specs) {
      EXPECT_EQ(found.family->is_legal(spec, target).reason, "") << name_of(spec);
    }
    for (const Problem& problem : found.family->receipt_problems(*found.receipt)) {
      EXPECT_TRUE(std::any_of(set.specs.begin(), set.specs.end(), [&](const KernelSpec& spec) {
        return bool(found.family->supports(spec, problem, target));
      })) << to_string(problem);
    }
  }
}

TEST_P(ReceiptSets, OfSeveralHoldThoseOfEach) {
  const std::set<std::string> all = receipt_set_names("fp32", GetParam());
  for (const char* part : {"800", "801"}) {
    const std::set<std::string> some = receipt_set_names(part, GetParam());
    EXPECT_TRUE(std::includes(all.begin(), all.end(), some.begin(), some.end())) << part;
  }
}

TEST(ReceiptSet, IsReadFromJson) {
  const std::vector<std::string> built =
      names_of(KernelSetBuilder("mine", "avx2").receipt("801").build().specs);
  for (const char* receipt : {"801", "\"801\"", "\"fp32_min\"", "[\"fp32_min\", \"801\"]"}) {
    const KernelSet read = kernel_set_from_json(
        std::string(R"({"name": "mine", "target": "avx2", "receipt": )") + receipt + "}");
    EXPECT_EQ(names_of(read.specs), built) << receipt;
  }
  EXPECT_EQ(
      message_of([] { kernel_set_from_json(R"({"name": "x", "target": "avx2", "receipt": 0.5})"); },
                 ErrorCode::parse_error),
      "kernel set: receipt must be a string or a list of strings, got 0.5");
  EXPECT_EQ(message_of([] { kernel_set_from_json(R"({"name": "x", "receipt": "flash"})"); },
                       ErrorCode::parse_error),
            "kernel set: target is missing");
}

TEST(ReceiptRegistry, IsFilteredByWhatReceiptsAskFor) {
  Registry registry("mine");
  registry.declare(KernelSetBuilder("a", "avx2").receipt("fp32_min").build());
  registry.declare(KernelSetBuilder("b", "avx2").receipt("fp8_test").build());
  registry.declare(KernelSetBuilder("c", "avx2")
                       .add("gemm_fp32_rcr_packab_240x240x256_0x0x1_6x16x1_avx2")
                       .build());
  EXPECT_EQ(names_of(registry.filtered_by_receipt("801").declared()),
            names_of(KernelSetBuilder("a", "avx2").receipt("fp32_min").build().specs));
  EXPECT_EQ(registry.receipts(),
            (std::vector<std::string>{"ck_default", "ck_extended", "aiter_batch", "aiter_group",
                                      "aiter_cpp", "fp32_all", "fp32_min", "fp8_test", "aiter",
                                      "fp32", "fp8"}));
  EXPECT_EQ(registry.filtered_by_receipt("pytorch").size(), 0);
  EXPECT_EQ(
      message_of([&] { registry.filtered_by_receipt("none"); }, ErrorCode::not_found).substr(0, 22),
      "unknown receipt 'none'");
}

}  // namespace
}  // namespace tessera
