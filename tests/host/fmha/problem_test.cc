// What attention's table says of problems: tensors, counts, facts, the checks of a caller's
// operands, and the arguments of a launch.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "host/families/asked.h"
#include "host/fmha/plain_fmha.h"
#include "host/spec/expect_error.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/operands.h"
#include "tessera/targets/targets.h"

namespace tessera::fmha {
namespace {

std::map<std::string_view, Tensor> tensors_of(const char* line) {
  std::map<std::string_view, Tensor> all;
  for (const Tensor& tensor : tensors(parse_problem(line))) all[tensor.name] = tensor;
  return all;
}

TEST(FmhaTensors, TokensLieBehindEachOther) {
  const auto all = tensors_of(
      "fmha batch=2 heads=6 heads_kv=3 seqlen_q=5 seqlen_k=7 hdim=8 hdim_v=4 dtype=bf16 out=fp32 "
      "lse=1");
  EXPECT_EQ(all.size(), 5U);
  EXPECT_EQ(sizes(all.at("q")), (Sizes{8, 5, 6, 2}));
  EXPECT_EQ(strides(all.at("q")), (Sizes{1, 48, 8, 240}));
  EXPECT_EQ(sizes(all.at("k")), (Sizes{8, 7, 3, 2}));
  EXPECT_EQ(sizes(all.at("v")), (Sizes{4, 7, 3, 2}));
  EXPECT_EQ(sizes(all.at("out")), (Sizes{4, 5, 6, 2}));
  EXPECT_EQ(all.at("out").dtype, DType::fp32);
  EXPECT_EQ(sizes(all.at("lse")), (Sizes{1, 5, 6, 2}));
  EXPECT_EQ(strides(all.at("lse")), (Sizes{1, 1, 5, 30}));
  EXPECT_EQ(all.at("lse").dtype, DType::fp32);
  EXPECT_FALSE(all.at("lse").has_gaps());
}

TEST(FmhaTensors, PackedSequencesAreOneRun) {
  const auto all = tensors_of(
      "fmha batch=2 heads=6 seqlen_q=5 seqlen_k=7 hdim=8 lengths=packed tokens_q=9 tokens_k=11 "
      "lse=1 bias=elementwise dtype=bf16,fp32");
  EXPECT_EQ(all.size(), 8U);
  EXPECT_EQ(sizes(all.at("q")), (Sizes{8, 9, 6, 1}));
  EXPECT_EQ(sizes(all.at("v")), (Sizes{8, 11, 6, 1}));
  EXPECT_EQ(sizes(all.at("lse")), (Sizes{1, 9, 6, 1}));
  EXPECT_EQ(strides(all.at("lse")), (Sizes{1, 1, 9, 0}));
  EXPECT_EQ(sizes(all.at("bias")), (Sizes{7, 5, 6, 2}));
  EXPECT_EQ(all.at("bias").dtype, DType::fp32);
  const Tensor& q = all.at("seqlens_q");
  const Tensor& k = all.at("seqlens_k");
  EXPECT_EQ(sizes(q), (Sizes{3}));
  EXPECT_EQ(q.dtype, DType::int32);
  EXPECT_EQ(q.fill, Fill::prefix_sums);
  EXPECT_EQ(q.most, 5);
  EXPECT_EQ(q.total, 9);
  EXPECT_EQ(k.most, 7);
  EXPECT_EQ(k.total, 11);
}

TEST(FmhaTensors, PaddedSequencesHaveLengths) {
  const auto all = tensors_of(
      "fmha batch=3 heads=6 seqlen_q=5 seqlen_k=7 hdim=8 lengths=padded bias=alibi slope_stride=9");
  EXPECT_EQ(all.size(), 7U);
  EXPECT_EQ(sizes(all.at("seqlens_k")), (Sizes{3}));
  EXPECT_EQ(all.at("seqlens_k").fill, Fill::lengths);
  EXPECT_EQ(sizes(all.at("slopes")), (Sizes{6, 3}));
  EXPECT_EQ(strides(all.at("slopes")), (Sizes{1, 9}));
}

TEST(FmhaTensors, DropoutHasTwoWordsAndAByteForEachScore) {
  auto all = tensors_of(
      "fmha batch=3 heads=6 seqlen_q=5 seqlen_k=7 hdim=8 lengths=padded p_drop=0.5 random=1");
  EXPECT_EQ(all.size(), 8U);
  EXPECT_EQ(all.at("dropout_rng").bytes(), 16U);
  EXPECT_EQ(all.at("dropout_rng").alignment, 8);
  EXPECT_TRUE(all.at("dropout_rng").may_be_null);
  EXPECT_EQ(sizes(all.at("random_values")), (Sizes{7, 5, 6, 3}));
  EXPECT_EQ(strides(all.at("random_values")), (Sizes{1, 7, 35, 210}));
  EXPECT_EQ(all.at("random_values").dtype, DType::int8);
  EXPECT_FALSE(all.at("random_values").has_gaps());
  all = tensors_of(
      "fmha batch=3 heads=6 seqlen_q=5 seqlen_k=7 hdim=8 lengths=packed tokens_q=11 p_drop=0.5 "
      "random=1");
  EXPECT_EQ(sizes(all.at("random_values")), (Sizes{7, 11, 6, 1}));
  EXPECT_EQ(strides(all.at("random_values")), (Sizes{1, 7, 77, 0}));
  EXPECT_EQ(tensors_of("fmha heads=6 seqlen_q=5 seqlen_k=7 hdim=8 p_drop=0.5").size(), 5U);
}

TEST(FmhaTensors, FactorsAreThoseOfTensorsBlocksAndPages) {
  const std::string head = "fmha batch=3 heads=6 heads_kv=2 seqlen_q=5 seqlen_k=300 hdim=8 ";
  auto all = tensors_of((head + "dtype=fp8").c_str());
  EXPECT_EQ(all.size(), 4U);
  EXPECT_EQ(all.at("out").dtype, DType::fp16);
  all = tensors_of((head + "dtype=fp8 out=bf8 qscale=per_tensor").c_str());
  EXPECT_EQ(all.size(), 8U);
  for (const char* name : {"descale_q", "descale_k", "descale_v", "scale_o"}) {
    EXPECT_EQ(sizes(all.at(name)), (Sizes{1})) << name;
    EXPECT_EQ(all.at(name).dtype, DType::fp32) << name;
  }
  all = tensors_of((head + "dtype=fp8 qscale=per_block qscale_block_q=2").c_str());
  EXPECT_EQ(all.size(), 7U);
  EXPECT_EQ(sizes(all.at("descale_q")), (Sizes{3, 6, 3}));
  EXPECT_EQ(strides(all.at("descale_q")), (Sizes{1, 3, 18}));
  EXPECT_EQ(sizes(all.at("descale_k")), (Sizes{3, 2, 3}));
  EXPECT_EQ(sizes(all.at("descale_v")), (Sizes{3, 2, 3}));
  all = tensors_of((head + "dtype=bf8 qscale=kv_block qscale_block_k=100").c_str());
  EXPECT_EQ(sizes(all.at("descale_q")), (Sizes{1}));
  EXPECT_EQ(strides(all.at("descale_v")), (Sizes{1, 3, 6}));
  all =
      tensors_of((head + "dtype=bf8 qscale=kv_block pages=list page_size=16 num_pages=9").c_str());
  EXPECT_EQ(sizes(all.at("descale_k")), (Sizes{2, 9}));
  EXPECT_EQ(strides(all.at("descale_v")), (Sizes{1, 2}));
}

// Keys of 8 bits beside queries of 16, which have no factor.
TEST(FmhaTensors, KeysMayHaveATypeOfTheirOwn) {
  const std::string head = "fmha batch=3 heads=6 heads_kv=2 seqlen_q=5 seqlen_k=300 hdim=16 ";
  auto all = tensors_of((head + "dtype=bf16 kv=fp8").c_str());
  EXPECT_EQ(all.size(), 4U);
  EXPECT_EQ(all.at("q").dtype, DType::bf16);
  EXPECT_EQ(all.at("k").dtype, DType::fp8);
  EXPECT_EQ(all.at("v").dtype, DType::fp8);
  EXPECT_EQ(all.at("out").dtype, DType::bf16);
  all = tensors_of((head + "dtype=fp16 kv=bf8 qscale=per_head").c_str());
  EXPECT_EQ(all.size(), 6U);
  EXPECT_EQ(sizes(all.at("descale_k")), (Sizes{2}));
  all = tensors_of((head + "dtype=fp8 qscale=per_head").c_str());
  EXPECT_EQ(sizes(all.at("descale_q")), (Sizes{1}));
  all = tensors_of((head + "dtype=fp16 kv=bf8 qscale=per_token").c_str());
  EXPECT_EQ(sizes(all.at("descale_v")), (Sizes{300, 2, 3}));
  all =
      tensors_of((head + "dtype=fp16 kv=fp8 qscale=per_token pages=table page_size=16 num_pages=9 "
                         "cache_layout=vectorized")
                     .c_str());
  EXPECT_EQ(sizes(all.at("descale_v")), (Sizes{16, 2, 9}));
  EXPECT_EQ(sizes(all.at("k")), (Sizes{16, 16, 1, 2, 9}));
  EXPECT_EQ(std::get<FmhaSignature>(signature_of(parse_problem(head + "dtype=bf16 kv=fp8"))).kv,
            FmhaKv::fp8);
  const KernelSpec spec = {.signature = signature_of(parse_problem(head + "dtype=bf16 kv=fp8")),
                           .target = "sm90a"};
  EXPECT_EQ(name_of(spec), "fmha_forward_bf16_direct_1x1x1_1x1x1_1x1x1_kvfp8_sm90a");
}

// Appending writes factors of tokens beside the cache, and reads others.
TEST(FmhaTensors, CachesOfBytesHaveFactors) {
  const std::string head =
      "fmha kind=append batch=2 heads=4 heads_kv=2 seqlen_q=6 seqlen_k=9 hdim=8 dtype=bf16 ";
  auto all = tensors_of((head + "kv=fp8").c_str());
  EXPECT_EQ(all.size(), 5U);
  EXPECT_EQ(all.at("k").dtype, DType::fp8);
  EXPECT_EQ(all.at("k_new").dtype, DType::bf16);
  all = tensors_of((head + "kv=bf8 qscale=per_head").c_str());
  EXPECT_EQ(sizes(all.at("descale_k")), (Sizes{2}));
  EXPECT_EQ(all.at("descale_v").access, Access::read);
  all = tensors_of((head + "kv=fp8 qscale=per_token").c_str());
  EXPECT_EQ(sizes(all.at("descale_k")), (Sizes{9, 2, 2}));
  EXPECT_EQ(all.at("descale_k").access, Access::update);
  all = tensors_of((head + "kv=fp8 qscale=per_token pages=table page_size=4 num_pages=7").c_str());
  EXPECT_EQ(sizes(all.at("descale_v")), (Sizes{4, 2, 7}));
}

// Each pointer goes to the member that has its name.
TEST(FmhaTensors, PointersAreThoseOfTheirOperands) {
  PlainCase c(fmha_of(parse_problem(
      "fmha batch=2 heads=2 seqlen_q=3 seqlen_k=4 hdim=5 lengths=padded bias=alibi lse=1 "
      "pages=list page_size=2 check_pages=1 p_drop=0.5 random=1 dtype=fp8 out=fp8 "
      "qscale=kv_block")));
  const auto& o = std::get<FmhaOperands>(c.operands);
  const std::map<std::string_view, const void*> members = {{"q", o.q},
                                                           {"k", o.k},
                                                           {"v", o.v},
                                                           {"slopes", o.slopes},
                                                           {"seqlens_q", o.seqlens_q},
                                                           {"seqlens_k", o.seqlens_k},
                                                           {"page_table", o.page_table},
                                                           {"page_starts", o.page_starts},
                                                           {"dropout_rng", o.dropout_rng},
                                                           {"descale_q", o.descale_q},
                                                           {"descale_k", o.descale_k},
                                                           {"descale_v", o.descale_v},
                                                           {"scale_o", o.scale_o},
                                                           {"out", o.out},
                                                           {"lse", o.lse},
                                                           {"random_values", o.random_values},
                                                           {"bad_page", o.bad_page}};
  EXPECT_EQ(c.list.size(), members.size());
  for (std::size_t i = 0; i < c.list.size(); ++i) {
    EXPECT_EQ(members.at(c.list[i].name), c.memory[i].data()) << c.list[i].name;
    EXPECT_EQ(pointer(c.operands, c.list[i].operand), c.memory[i].data()) << c.list[i].name;
  }
}

// ---- counts ----

double scores_of(const std::string& fields) {
  return scores(fmha_of(parse_problem("fmha batch=2 heads=3 hdim=4 " + fields)));
}

TEST(FmhaCounts, ScoresAreThoseOfSeenKeys) {
  EXPECT_EQ(scores_of("seqlen_q=5 seqlen_k=7"), 6 * 35);
  EXPECT_EQ(scores_of("seqlen_q=5 seqlen_k=7 mask=top_left"), 6 * (1 + 2 + 3 + 4 + 5));
  EXPECT_EQ(scores_of("seqlen_q=5 seqlen_k=7 mask=bottom_right"), 6 * (3 + 4 + 5 + 6 + 7));
  EXPECT_EQ(scores_of("seqlen_q=5 seqlen_k=2 mask=bottom_right"), 6 * (0 + 0 + 0 + 1 + 2));
  EXPECT_EQ(scores_of("seqlen_q=5 seqlen_k=7 mask=top_left window_left=1 window_right=1"),
            6 * (2 + 3 + 3 + 3 + 3));
  EXPECT_EQ(scores_of("seqlen_q=5 seqlen_k=7 mask=top_left window_left=1 sink=2"),
            6 * (1 + 2 + 3 + 4 + 4));
  EXPECT_EQ(scores_of("seqlen_q=0 seqlen_k=7 mask=top_left"), 0);
  const double many = scores_of("seqlen_q=100000 seqlen_k=100000 mask=top_left");
  EXPECT_NEAR(many / (6 * 5e9), 1, 1e-3);
}

TEST(FmhaCounts, OperationsAndBytes) {
  const Problem p = parse_problem(
      "fmha batch=2 heads=6 heads_kv=3 seqlen_q=5 seqlen_k=7 hdim=8 hdim_v=4 dtype=bf16 lse=1 "
      "bias=elementwise bias_stride_b=0");
  EXPECT_EQ(flops(p), 2.0 * 2 * 6 * 5 * 7 * (8 + 4));
  const double q = 2 * 5 * 6 * 8, k = 2 * 7 * 3 * 8, v = 2 * 7 * 3 * 4, out = 2 * 5 * 6 * 4;
  EXPECT_EQ(bytes(p), 2 * (q + k + v + out) + 2 * 6 * 5 * 7 + 4 * 2 * 6 * 5);
}

TEST(FmhaFacts, SizesDecideTheSide) {
  const auto hash = [](const std::string& more) {
    return family()
        .facts(parse_problem("fmha batch=2 heads=4 seqlen_q=30 seqlen_k=40 hdim=64" + more))
        .shape_hash;
  };
  EXPECT_EQ(hash(""), hash(" dtype=bf16 mask=top_left bias=alibi lse=1 heads_kv=4"));
  EXPECT_NE(hash(""), hash(" heads_kv=2"));
  const Facts facts = family().facts(parse_problem("fmha heads=4 seqlen_q=1 seqlen_k=40 hdim=64"));
  EXPECT_EQ(facts.sizes, (std::vector<Label>{{"queries", "decode"}}));
  EXPECT_TRUE(facts.bandwidth_bound);
}

TEST(FmhaFacts, RetypedKeepsTheRest) {
  const Problem p = parse_problem("fmha heads=4 seqlen_q=3 seqlen_k=4 hdim=8 mask=top_left");
  EXPECT_EQ(family().retyped(p, {.dtype = "fp16", .layout = ""}),
            parse_problem("fmha heads=4 seqlen_q=3 seqlen_k=4 hdim=8 mask=top_left dtype=fp16"));
}

TEST(FmhaFacts, RetypedDropsFactorsOfEightBits) {
  const std::string sizes = "fmha heads=4 seqlen_q=3 seqlen_k=4 hdim=8 ";
  const Problem p = parse_problem(sizes + "dtype=fp8 out=fp8 qscale=per_block qscale_block_q=2");
  EXPECT_EQ(family().retyped(p, {.dtype = "fp16", .layout = ""}),
            parse_problem(sizes + "dtype=fp16"));
  EXPECT_EQ(family().retyped(p, {.dtype = "bf8", .layout = ""}),
            parse_problem(sizes + "dtype=bf8 qscale=per_block qscale_block_q=2"));
}

TEST(FmhaWords, ForeignRowsAreReadByTheirKeys) {
  EXPECT_EQ(family().from_words({{"heads", "4"},
                                 {"seqlen_q", "3"},
                                 {"seqlen_k", "4"},
                                 {"hdim", "8"},
                                 {"dtype", "bf16"},
                                 {"m", "3"}}),
            parse_problem("fmha heads=4 seqlen_q=3 seqlen_k=4 hdim=8 dtype=bf16"));
  expect_error(ErrorCode::parse_error,
               "cannot be read: problem: fmha needs heads, as in 'fmha batch=2 heads=16 "
               "seqlen_q=512 seqlen_k=512 hdim=128 dtype=bf16'",
               [] {
                 family().from_words({{"hdim", "8"}});
               });
}

// ---- a caller's operands ----

class FmhaOperandsTest : public testing::Test {
 protected:
  FmhaOperands& operands() { return std::get<FmhaOperands>(c_.operands); }
  std::string refusal() {
    return error_of([&] { validate_operands(family(), c_.problem, c_.operands); },
                    ErrorCode::invalid_argument);
  }

  PlainCase c_{fmha_of(parse_problem(
      "fmha batch=2 heads=3 seqlen_q=4 seqlen_k=4 hdim=8 lengths=packed bias=elementwise lse=1"))};
};

TEST_F(FmhaOperandsTest, Accepted) { EXPECT_EQ(refusal(), ""); }

TEST_F(FmhaOperandsTest, Null) {
  operands().lse = nullptr;
  EXPECT_EQ(refusal(), "fmha: lse must not be null: 24 rows of 1 elements are needed");
  c_ = PlainCase(c_.problem);
  operands().seqlens_k = nullptr;
  EXPECT_EQ(refusal(), "fmha: seqlens_k must not be null: 1 rows of 3 elements are needed");
  c_ = PlainCase(c_.problem);
  operands().bias = nullptr;
  EXPECT_EQ(refusal(), "fmha: bias must not be null: 24 rows of 4 elements are needed");
}

TEST_F(FmhaOperandsTest, NullFactors) {
  c_ = PlainCase(fmha_of(parse_problem(
      "fmha batch=2 heads=3 seqlen_q=4 seqlen_k=300 hdim=8 dtype=fp8 out=fp8 qscale=per_block")));
  operands().descale_k = nullptr;
  EXPECT_EQ(refusal(), "fmha: descale_k must not be null: 6 rows of 3 elements are needed");
  c_ = PlainCase(c_.problem);
  operands().scale_o = nullptr;
  EXPECT_EQ(refusal(), "fmha: scale_o must not be null: 1 rows of 1 elements are needed");
}

TEST_F(FmhaOperandsTest, Misaligned) {
  operands().k = static_cast<const std::byte*>(operands().k) + 2;
  EXPECT_EQ(
      refusal(),
      "fmha: k must be aligned to 4 bytes for fp32, got an address 2 past a multiple of that");
}

TEST_F(FmhaOperandsTest, OutputsMustNotOverlapAnything) {
  operands().out = const_cast<void*>(operands().q);
  EXPECT_EQ(refusal(),
            "fmha: out must not overlap q, got out 0 bytes after the start of q, which spans 768 "
            "bytes");
  c_ = PlainCase(c_.problem);
  operands().lse = static_cast<float*>(operands().out) + 1;
  EXPECT_EQ(refusal(),
            "fmha: out must not overlap lse, got out 4 bytes before the start of lse, which spans "
            "96 bytes");
}

// The numbers beside the pointers then count.
TEST_F(FmhaOperandsTest, WordsOfDropoutMayBeNull) {
  c_ = PlainCase(fmha_of(parse_problem("fmha heads=3 seqlen_q=4 seqlen_k=4 hdim=8 p_drop=0.5")));
  operands().dropout_rng = nullptr;
  EXPECT_EQ(refusal(), "");
  operands().dropout_rng = reinterpret_cast<const std::uint64_t*>(4);
  EXPECT_EQ(refusal(),
            "fmha: dropout_rng must be aligned to 8 bytes for int32, got an address 4 past a "
            "multiple of that");
}

TEST_F(FmhaOperandsTest, NothingIsNeededForNoQueries) {
  c_.problem = fmha_of(parse_problem("fmha heads=3 seqlen_q=0 seqlen_k=4 hdim=8 lse=1"));
  operands() = {};
  EXPECT_EQ(refusal(), "");
}

// ---- launches ----

device::FmhaArguments arguments_of(const Launch& launch) {
  device::FmhaArguments g;
  EXPECT_EQ(launch.arguments.size(), sizeof(g));
  std::memcpy(&g, launch.arguments.data(), sizeof(g));
  return g;
}

TEST(FmhaBind, ArgumentsSayWhatTheProblemSays) {
  const Target target = load_target("avx512");
  const Problem problem = parse_problem(
      "fmha batch=2 heads=6 heads_kv=3 seqlen_q=5 seqlen_k=7 hdim=8 lengths=packed tokens_q=9 "
      "mask=bottom_right window_left=4 sink=2 soft_cap=30 skip_q=1 bias=alibi slope_stride=6 "
      "lse=1 p_drop=0.1 random=1");
  PlainCase c(fmha_of(problem));
  std::get<FmhaOperands>(c.operands).seed = 0x123456789abcdefULL;
  std::get<FmhaOperands>(c.operands).offset = 77;
  const Launch launch = fmha::bind(family().general(problem, target), problem, target, c.operands);
  const device::FmhaArguments g = arguments_of(launch);
  const auto& o = std::get<FmhaOperands>(c.operands);
  EXPECT_EQ(g.q, o.q);
  EXPECT_EQ(g.lse, o.lse);
  EXPECT_EQ(g.seqlens_k, o.seqlens_k);
  EXPECT_EQ(g.heads_kv, 3);
  EXPECT_EQ(g.tokens_q, 9);
  EXPECT_EQ(g.tokens_k, 14);
  EXPECT_EQ(g.hdim_v, 8);
  EXPECT_EQ(g.q_stride[0], 0);
  EXPECT_EQ(g.q_stride[2], 48);
  EXPECT_EQ(g.k_stride[2], 24);
  EXPECT_EQ(g.lse_stride[0], 0);
  EXPECT_EQ(g.lse_stride[1], 9);
  EXPECT_EQ(g.window_left, 4);
  EXPECT_EQ(g.window_right, 0);
  EXPECT_EQ(g.sink, 2);
  EXPECT_EQ(g.skip_q, 1);
  EXPECT_EQ(g.slope_stride, 6);
  EXPECT_EQ(g.at_end, 1);
  EXPECT_EQ(g.soft_cap, 30);
  EXPECT_EQ(g.kept, 230);
  EXPECT_EQ(static_cast<const void*>(g.dropout_rng), o.dropout_rng);
  EXPECT_EQ(g.seed, 0x123456789abcdefULL);
  EXPECT_EQ(g.offset, 77U);
  EXPECT_EQ(g.random_values, o.random_values);
  EXPECT_FLOAT_EQ(g.scale, 1 / std::sqrt(8.0F));
}

// Neither does a packed tensor with room for tokens that no sequence has.
TEST(FmhaBind, NothingToCompute) {
  const auto steps = [](const std::string& target, const std::string& fields) {
    const Problem p = parse_problem("fmha heads=3 hdim=8 " + fields);
    const Target row = load_target(target);
    const KernelSpec spec = family().general(p, row);
    return fmha::bind(spec, p, row, FmhaOperands{}).steps.size();
  };
  for (const char* target : {"avx2", "sm90a"}) {
    for (const char* fields : {"seqlen_q=0 seqlen_k=4", "batch=0 seqlen_q=2 seqlen_k=4",
                               "seqlen_q=0 seqlen_k=4 lengths=packed tokens_q=5",
                               "batch=0 seqlen_q=2 seqlen_k=4 lengths=packed tokens_q=5",
                               "seqlen_q=2 seqlen_k=4 lengths=packed tokens_q=0"}) {
      EXPECT_EQ(steps(target, fields), 0U) << target << " " << fields;
    }
    EXPECT_EQ(steps(target, "seqlen_q=2 seqlen_k=0"), 1U) << "zeros are written";
  }
}

// ---- which keys a query sees ----

// By the definition, for every mask, window and sink, and lengths of 0 too.
TEST(FmhaKeys, AreThoseOfTheDefinition) {
  FmhaProblem p = small_problem(5, 6, 1);
  for (const FmhaMask mask : {FmhaMask::top_left, FmhaMask::bottom_right}) {
    for (std::int64_t code = 0; code < 9 * 9 * 4 * 7 * 6; ++code) {
      p.mask = mask;
      p.window_left = code % 9 - 1, p.window_right = code / 9 % 9 - 1;
      p.sink = code / 81 % 4 * 2;
      p.seqlen_k = code / 324 % 7, p.seqlen_q = code / 2268;
      const PlainCase c(p);
      const device::FmhaArguments g = fmha::arguments_of(c.p, FmhaOperands{});
      const device::FmhaSequence s = device::sequence_of<device::FmhaLengths::equal>(g, 0);
      for (std::int64_t i = 0; i < p.seqlen_q; ++i) {
        const PlainRow row{c, 0, 0, i, p.seqlen_q, p.seqlen_k, 0, 0};
        const device::FmhaKeys keys = device::keys_of<true>(g, s, i);
        ASSERT_LE(keys.sink, keys.begin);
        ASSERT_LE(keys.begin, keys.end);
        ASSERT_LE(keys.end, p.seqlen_k);
        for (std::int64_t j = 0; j < p.seqlen_k; ++j) {
          ASSERT_EQ(keys.has(j), row.sees(j)) << to_string(Problem(p)) << " " << i << " " << j;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::fmha
