// The problem builder: what each setter sets, and what is refused.
#include <gtest/gtest.h>

#include "host/spec/expect_error.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/families/fmha_builder.h"

namespace tessera::fmha {
namespace {

FmhaProblemBuilder standard_builder() {
  return FmhaProblemBuilder().data_type("bf16").dims(128, 64, 2, 300, 400).nheads(8, 2);
}

FmhaProblem problem_in(const char* line) { return fmha_of(parse_problem(line)); }

// A builder, and the line of the problem that it builds behind the common beginning.
struct Built {
  const char* name;
  void (*set)(FmhaProblemBuilder&);
  const char* line;
};
const char* const kCommonLine =
    "fmha batch=2 heads=8 heads_kv=2 hdim=128 hdim_v=64 seqlen_q=300 seqlen_k=400 ";
using B = FmhaProblemBuilder;
const Built kBuilt[] = {
    {"nothing", [](B&) {}, "dtype=bf16"},
    {"data_type", [](B& b) { b.data_type("fp8bf16"); }, "dtype=fp8 out=bf16"},
    {"data_type_fp8", [](B& b) { b.data_type("fp8"); }, "dtype=fp8 out=fp8"},
    {"mask_type", [](B& b) { b.mask_type("bottom_right"); }, "dtype=bf16 mask=bottom_right"},
    {"mask_number", [](B& b) { b.mask_type("1"); }, "dtype=bf16 mask=top_left"},
    {"generic", [](B& b) { b.mask_type("generic").window(3, 5); },
     "dtype=bf16 mask=top_left window_left=3 window_right=5"},
    {"window", [](B& b) { b.window(7, 0).mask_type("bottom_right"); },
     "dtype=bf16 mask=bottom_right window_left=7"},
    {"sink", [](B& b) { b.mask_type("causal").window(7, 0).sink(true).sink_size(4); },
     "dtype=bf16 mask=top_left window_left=7 sink=4"},
    {"bias_type", [](B& b) { b.bias_type("elementwise"); }, "dtype=bf16 bias=elementwise"},
    {"alibi", [](B& b) { b.bias_type("2"); }, "dtype=bf16 bias=alibi"},
    {"lse", [](B& b) { b.lse(true); }, "dtype=bf16 lse=1"},
    {"dropout", [](B& b) { b.dropout(true); }, "dtype=bf16 p_drop=0.2"},
    {"dropout_off", [](B& b) { b.dropout(true, 0.5F).dropout(false, 0.5F); }, "dtype=bf16"},
    {"store_randval", [](B& b) { b.dropout(true, 0.25F).bwd_flags(false, true, true); },
     "dtype=bf16 p_drop=0.25 random=1"},
    {"qscale_type", [](B& b) { b.data_type("fp8fp32").qscale_type("blockscale"); },
     "dtype=fp8 out=fp32 qscale=per_block"},
    {"fp8_static_quant", [](B& b) { b.data_type("fp8").fp8_static_quant(true); },
     "dtype=fp8 out=fp8 qscale=per_tensor"},
    {"logits_soft_cap", [](B& b) { b.logits_soft_cap(true, 50); }, "dtype=bf16 soft_cap=50"},
    {"v_rowmajor", [](B& b) { b.v_rowmajor(false); },
     "dtype=bf16 v_stride_b=51200 v_stride_h=25600 v_stride_s=1 v_stride_d=400"},
    {"num_splits", [](B& b) { b.api_family("fwd_splitkv").num_splits(4); },
     "dtype=bf16 num_splits=4"},
    {"combine", [](B& b) { b.api_family("fwd_splitkv").kernel_family("fwd_splitkv_combine"); },
     "dtype=bf16"},
    {"paged_kv", [](B& b) { b.paged_kv(true); }, "dtype=bf16 pages=table page_size=64"},
    {"kv_cache", [](B& b) { b.paged_kv(true).kv_cache("vectorized", "sglang_1d", 16); },
     "dtype=bf16 pages=list cache_layout=vectorized page_size=16"},
    {"gfx_arch", [](B& b) { b.gfx_arch("sm90a"); }, "dtype=bf16"},
};

class BuilderSets : public testing::TestWithParam<Built> {};
INSTANTIATE_TEST_SUITE_P(All, BuilderSets, testing::ValuesIn(kBuilt),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_P(BuilderSets, TheFieldsOfALine) {
  FmhaProblemBuilder builder = standard_builder();
  GetParam().set(builder);
  const std::string line = std::string(kCommonLine) + GetParam().line;
  EXPECT_EQ(to_string(Problem(builder.build())), to_string(parse_problem(line)));
}

// With group_mode dims counts the tokens of all sequences.
TEST(FmhaBuilder, OfGroupsHasTheLongestLengths) {
  EXPECT_EQ(
      standard_builder().group_mode(true).max_seqlen(200, 250).skip_min_seqlen_q(true).build(),
      problem_in("fmha batch=2 heads=8 heads_kv=2 hdim=128 hdim_v=64 seqlen_q=200 "
                 "seqlen_k=250 lengths=packed tokens_q=300 tokens_k=400 skip_q=1 "
                 "dtype=bf16"));
  EXPECT_EQ(standard_builder()
                .api_family("batch_prefill")
                .group_mode(true)
                .max_seqlen(200, 0)
                .paged_kv(true)
                .kv_cache("linear", "vllm_2d", 16)
                .build(),
            problem_in("fmha batch=2 heads=8 heads_kv=2 hdim=128 hdim_v=64 seqlen_q=200 "
                       "seqlen_k=400 lengths=packed tokens_q=300 pages=table page_size=16 "
                       "dtype=bf16"));
  EXPECT_EQ(standard_builder().group_mode(true).max_seqlen(200, 250).v_rowmajor(false).build(),
            problem_in("fmha batch=2 heads=8 heads_kv=2 hdim=128 hdim_v=64 seqlen_q=200 "
                       "seqlen_k=250 lengths=packed tokens_q=300 tokens_k=400 v_stride_h=25600 "
                       "v_stride_s=1 v_stride_d=400 dtype=bf16"));
}

TEST(FmhaBuilder, AppendsKeys) {
  EXPECT_EQ(standard_builder()
                .api_family("fwd_appendkv")
                .rope_type("half_rotated")
                .max_seqlen(0, 1024)
                .build(),
            problem_in("fmha kind=append batch=2 heads=8 heads_kv=2 hdim=128 hdim_v=64 "
                       "seqlen_q=300 seqlen_k=1024 rotary=half dtype=bf16"));
}

// lse is an operand of gradients and no field: attention stored it.
TEST(FmhaBuilder, AsksForGradients) {
  const auto backward = [] { return standard_builder().api_family("bwd").lse(true); };
  const std::string line =
      "fmha kind=backward batch=2 heads=8 heads_kv=2 hdim=128 hdim_v=64 dtype=bf16 ";
  EXPECT_EQ(backward().kernel_family("bwd_dq_dk_dv").bwd_flags(false, false, true).build(),
            problem_in((line + "seqlen_q=300 seqlen_k=400").c_str()));
  EXPECT_EQ(backward().bias_type("elementwise").bwd_flags(true, false, false).build(),
            problem_in((line + "seqlen_q=300 seqlen_k=400 bias=elementwise dbias=1").c_str()));
  EXPECT_EQ(backward().mask_type("causal").dropout(true, 0.25F).logits_soft_cap(true, 5).build(),
            problem_in(
                (line + "seqlen_q=300 seqlen_k=400 mask=top_left p_drop=0.25 soft_cap=5").c_str()));
  EXPECT_EQ(backward().group_mode(true).max_seqlen(200, 250).skip_min_seqlen_q(true, 3).build(),
            problem_in((line + "seqlen_q=200 seqlen_k=250 lengths=packed tokens_q=300 "
                               "tokens_k=400 skip_q=3")
                           .c_str()));
}

TEST(FmhaBuilder, KeepsTheTarget) {
  EXPECT_EQ(standard_builder().target(), "");
  EXPECT_EQ(standard_builder().gfx_arch("avx2").gfx_arch("sm90a").target(), "sm90a");
}

TEST(FmhaBuilder, KeepsWhetherTheChoiceIsDeterministic) {
  FmhaProblemBuilder builder = standard_builder();
  EXPECT_FALSE(builder.deterministic());
  EXPECT_TRUE(builder.bwd_flags(false, false, true).deterministic());
  EXPECT_FALSE(builder.bwd_flags(false, false, false).deterministic());
}

// Setters in any order give the same problem.
TEST(FmhaBuilder, DoesNotCareForTheOrder) {
  EXPECT_EQ(FmhaProblemBuilder().nheads(8, 2).dims(128, 64, 2, 300, 400).data_type("bf16").build(),
            standard_builder().build());
}

struct Unfit {
  const char* name;
  void (*set)(FmhaProblemBuilder&);
  ErrorCode code;
  const char* sentence;
};
const Unfit kUnfit[] = {
    {"dims_zero", [](B& b) { b.dims(128, 0, 2, 1, 1); }, ErrorCode::invalid_argument,
     "fmha: dims needs hdim_q, hdim_v and batch of at least 1, got 128, 0 and 2"},
    {"no_lengths", [](B& b) { b.dims(128, 64, 2, 0, 7); }, ErrorCode::invalid_argument,
     "fmha: dims needs seqlen_q and seqlen_k of at least 1, got 0 and 7"},
    {"no_heads", [](B& b) { b.nheads(8, 0); }, ErrorCode::invalid_argument,
     "fmha: nheads must be at least 1 each, got 8 and 0"},
    {"heads_divide", [](B& b) { b.nheads(8, 3); }, ErrorCode::invalid_argument,
     "fmha: heads_kv must divide heads, got heads_kv=3 and heads=8"},
    {"group_without_longest", [](B& b) { b.group_mode(true); }, ErrorCode::invalid_argument,
     "fmha: group_mode needs max_seqlen with q of at least 1, got 0"},
    {"group_too_long", [](B& b) { b.group_mode(true).max_seqlen(301, 0); },
     ErrorCode::invalid_argument,
     "fmha: max_seqlen's q must be at most 300, seqlen_q of dims, which counts the tokens of all "
     "sequences with group_mode, got 301"},
    {"backward_without_lse", [](B& b) { b.api_family("bwd"); }, ErrorCode::invalid_argument,
     "fmha: api_family=bwd needs lse(true), which the forward pass stored, got false"},
    {"dbias_forward", [](B& b) { b.bwd_flags(true, false, false); }, ErrorCode::invalid_argument,
     "fmha: bwd_flags' dbias must be false with api_family=fwd, got true"},
    {"backward_randval",
     [](B& b) { b.api_family("bwd").lse(true).dropout(true).bwd_flags(false, true, false); },
     ErrorCode::invalid_argument,
     "fmha: bwd_flags' store_randval must be false with api_family=bwd, because attention stores "
     "the bytes of the same weights, got true"},
    {"backward_pages", [](B& b) { b.api_family("bwd").lse(true).paged_kv(true); },
     ErrorCode::invalid_argument, "fmha: pages must be none with kind=backward, got table"},
    {"backward_splits", [](B& b) { b.api_family("bwd").lse(true).num_splits(2); },
     ErrorCode::invalid_argument, "fmha: num_splits must be 0 or 1 with kind=backward, got 2"},
    {"backward_eight_bits", [](B& b) { b.api_family("bwd").lse(true).data_type("fp8bf16"); },
     ErrorCode::invalid_argument, "fmha: in must be fp32, fp16 or bf16, got fp8"},
    {"dbias_without_bias",
     [](B& b) { b.api_family("bwd").lse(true).bwd_flags(true, false, false); },
     ErrorCode::invalid_argument, "fmha: dbias must be 0 with bias=none, got 1"},
    {"dropout_of_one", [](B& b) { b.dropout(true, 1); }, ErrorCode::invalid_argument,
     "fmha: p_drop must be at least 0 (none) and below 1, got 1"},
    {"window_left", [](B& b) { b.mask_type("generic").window(-2, 0); }, ErrorCode::invalid_argument,
     "fmha: window_left must be at least -1, got -2"},
    {"randval", [](B& b) { b.bwd_flags(false, true, false); }, ErrorCode::invalid_argument,
     "fmha: bwd_flags' store_randval needs dropout(true), got dropout(false)"},
    {"kernel_family", [](B& b) { b.kernel_family("fwd_splitkv"); }, ErrorCode::invalid_argument,
     "fmha: kernel_family must be one of fwd with api_family=fwd, got fwd_splitkv"},
    {"pagedkv", [](B& b) { b.api_family("fwd_pagedkv"); }, ErrorCode::invalid_argument,
     "fmha: api_family=fwd_pagedkv needs paged_kv(true), got false"},
    {"page", [](B& b) { b.paged_kv(true).kv_cache("linear", "vllm_2d", 0); },
     ErrorCode::invalid_argument, "fmha: kv_cache's page must be at least 1, got 0"},
    {"cache_without_pages", [](B& b) { b.kv_cache("vectorized", "vllm_2d", 16); },
     ErrorCode::invalid_argument, "fmha: kv_cache needs paged_kv(true), got false"},
    {"longest_without_groups", [](B& b) { b.max_seqlen(200, 0); }, ErrorCode::invalid_argument,
     "fmha: max_seqlen's q needs group_mode(true), or must be 0 or 300, seqlen_q of dims, got 200"},
    {"longest_keys_without_groups", [](B& b) { b.max_seqlen(300, 401); },
     ErrorCode::invalid_argument,
     "fmha: max_seqlen's k needs group_mode(true), or must be 0 or 400, seqlen_k of dims, got 401"},
    {"prefill_group", [](B& b) { b.api_family("batch_prefill").paged_kv(true); },
     ErrorCode::invalid_argument,
     "fmha: api_family=batch_prefill needs group_mode(true), got false"},
    {"prefill_page",
     [](B& b) {
       b.api_family("batch_prefill").paged_kv(true).group_mode(true).max_seqlen(9, 9);
       b.kv_cache("linear", "vllm_2d", 48);
     },
     ErrorCode::invalid_argument,
     "fmha: api_family=batch_prefill needs kv_cache with a page of 1, 2, 4, 8, ... tokens, got 48"},
    {"append_group", [](B& b) { b.api_family("fwd_appendkv").group_mode(true).max_seqlen(9, 9); },
     ErrorCode::invalid_argument,
     "fmha: api_family=fwd_appendkv needs group_mode(false), got true"},
    {"columns_split", [](B& b) { b.api_family("fwd_splitkv").v_rowmajor(false); },
     ErrorCode::invalid_argument,
     "fmha: v_rowmajor must be true with api_family=fwd_splitkv and paged_kv=false, got false"},
    {"rope_forward", [](B& b) { b.rope_type("interleaved"); }, ErrorCode::invalid_argument,
     "fmha: rope_type must be none with api_family=fwd, got interleaved"},
    {"static_quant", [](B& b) { b.fp8_static_quant(true); }, ErrorCode::invalid_argument,
     "fmha: fp8_static_quant needs data_type fp8, fp8fp16, fp8bf16 or fp8fp32, got bf16"},
    {"sink_size", [](B& b) { b.sink(true); }, ErrorCode::invalid_argument,
     "fmha: sink(true) needs sink_size of at least 1, got 0"},
    {"generic_window", [](B& b) { b.mask_type("generic"); }, ErrorCode::invalid_argument,
     "fmha: mask_type=generic needs window(left, right), which was not called"},
    {"word", [](B& b) { b.bias_type("alibbi"); }, ErrorCode::parse_error,
     "fmha: unknown bias_type 'alibbi', did you mean 'alibi'?"},
    {"huge_columns", [](B& b) { b.dims(64, 512, 2, 9, std::int64_t{1} << 60).v_rowmajor(false); },
     ErrorCode::invalid_argument,
     "fmha: seqlen_k must be at most 2147483647, got 1152921504606846976"},
};

class BuilderRefuses : public testing::TestWithParam<Unfit> {};
INSTANTIATE_TEST_SUITE_P(All, BuilderRefuses, testing::ValuesIn(kUnfit),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_P(BuilderRefuses, WithASentence) {
  FmhaProblemBuilder builder = standard_builder();
  GetParam().set(builder);
  expect_error(GetParam().code, GetParam().sentence, [&] { builder.build(); });
}

// What no problem can hold is handed on, and whoever settles a problem must take it.
TEST(FmhaSettings, HandOnWhatTheProblemCannotHold) {
  std::vector<Setting> settings = {{"dims", {"128", "64", "2", "300", "400"}},
                                   {"nheads", {"8", "2"}}};
  EXPECT_EQ(from_settings(settings).choice, ChoiceSettings{});
  settings.push_back({"gfx_arch", {"sm90a"}});
  EXPECT_EQ(from_settings(settings).choice, (ChoiceSettings{.target = "sm90a"}));
  settings.push_back({"bwd_flags", {"0", "0", "1"}});
  EXPECT_EQ(from_settings(settings).choice,
            (ChoiceSettings{.target = "sm90a", .deterministic = true}));
}

TEST(FmhaSettings, RefuseWrongCalls) {
  const auto built = [](Setting setting) { (void)from_settings({&setting, 1}); };
  expect_error(ErrorCode::parse_error, "fmha: unknown setter 'nhead', did you mean 'nheads'?", [&] {
    built({"nhead", {"1", "1"}});
  });
  expect_error(ErrorCode::invalid_argument, "fmha: dims takes 5 arguments, got 2", [&] {
    built({"dims", {"1", "1"}});
  });
  expect_error(ErrorCode::invalid_argument, "fmha: dropout takes 1 or 2 arguments, got 0", [&] {
    built({"dropout", {}});
  });
  expect_error(ErrorCode::parse_error, "fmha: nheads takes a whole number, got '1.5'", [&] {
    built({"nheads", {"1.5", "1"}});
  });
  expect_error(ErrorCode::parse_error, "fmha: dropout takes a number, got 'x'", [&] {
    built({"dropout", {"1", "x"}});
  });
  expect_error(ErrorCode::parse_error, "fmha: lse takes true or false, got '2'", [&] {
    built({"lse", {"2"}});
  });
}

}  // namespace
}  // namespace tessera::fmha
