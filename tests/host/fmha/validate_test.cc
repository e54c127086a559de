// Which problems and signatures of attention are valid, and what is said of the others.
#include <gtest/gtest.h>

#include <limits>

#include "host/families/asked.h"
#include "host/fmha/fmha_problems.h"
#include "tessera/families/fmha/fmha.h"

namespace tessera::fmha {
namespace {

constexpr const char* kHead = "fmha heads=4 seqlen_q=6 seqlen_k=9 hdim=8 batch=2 ";

struct BadProblem {
  const char* fields;  // that follow kHead, or take the place of its own
  const char* sentence;
};
constexpr BadProblem kBadSizes[] = {
    {"batch=-1", "fmha: batch must be at least 0, got -1"},
    {"batch=2147483648", "fmha: batch must be at most 2147483647, got 2147483648"},
    {"heads=0", "fmha: heads must be at least 1, got 0"},
    {"heads=2147483648", "fmha: heads must be at most 2147483647, got 2147483648"},
    {"heads_kv=0", "fmha: heads_kv must be at least 1, got 0"},
    {"heads_kv=-2", "fmha: heads_kv must be at least 1, got -2"},
    {"heads_kv=3", "fmha: heads_kv must divide heads, got heads_kv=3 and heads=4"},
    {"heads_kv=8", "fmha: heads_kv must divide heads, got heads_kv=8 and heads=4"},
    {"seqlen_q=-6", "fmha: seqlen_q must be at least 0, got -6"},
    {"seqlen_q=2147483648", "fmha: seqlen_q must be at most 2147483647, got 2147483648"},
    {"seqlen_k=-1", "fmha: seqlen_k must be at least 0, got -1"},
    {"seqlen_k=2147483648", "fmha: seqlen_k must be at most 2147483647, got 2147483648"},
    {"hdim=0", "fmha: hdim must be at least 1, got 0"},
    {"hdim=577", "fmha: hdim must be at most 576, got 577"},
    {"hdim_v=0", "fmha: hdim_v must be at least 1, got 0"},
    {"hdim_v=513", "fmha: hdim_v must be at most 512, got 513"},
    {"hdim=576", "fmha: hdim_v must be at most 512, got 576"},
    {"tokens_q=13",
     "fmha: tokens_q must be left out or 12 (batch x seqlen_q) with lengths=equal, got 13"},
    {"lengths=padded tokens_k=17",
     "fmha: tokens_k must be left out or 18 (batch x seqlen_k) with lengths=padded, got 17"},
    {"lengths=packed tokens_q=-3", "fmha: tokens_q must be at least 0, got -3"},
    {"lengths=packed tokens_k=2147483648",
     "fmha: tokens_k must be at most 2147483647, got 2147483648"},
    {"lengths=packed batch=2147483647",
     "fmha: tokens_q must be at most 2147483647, got 12884901882"},
    {"lengths=packed skip_q=-1", "fmha: skip_q must be at least 0, got -1"},
    {"lengths=padded skip_q=2147483648", "fmha: skip_q must be at most 2147483647, got 2147483648"},
    {"skip_q=1",
     "fmha: skip_q must be 0 with lengths=equal, where all sequences are as long, got 1"},
    {"batch=2147483647 heads=2147483647",
     "fmha: bytes of q, batch x tokens x heads x hdim x 4, must be below 2^63, got 2147483647 x 6 "
     "x "
     "2147483647 x 8 x 4"},
    {"batch=2147483647 heads=1048576 seqlen_q=1 seqlen_k=2000 hdim=1",
     "fmha: bytes of k, batch x tokens x heads_kv x hdim x 4, must be below 2^63, got 2147483647 x "
     "2000 x 1048576 x 1 x 4"},
    {"batch=2147483647 heads=1048576 seqlen_q=1 seqlen_k=3 hdim=1 hdim_v=512",
     "fmha: bytes of v, batch x tokens x heads_kv x hdim_v x 4, must be below 2^63, got 2147483647 "
     "x 3 x 1048576 x 512 x 4"},
    {"batch=2147483647 heads=1048576 heads_kv=1 seqlen_q=3 seqlen_k=1 hdim=1 hdim_v=512",
     "fmha: bytes of out, batch x tokens x heads x hdim_v x 4, must be below 2^63, got 2147483647 "
     "x "
     "3 x 1048576 x 512 x 4"},
    {"lengths=packed batch=1 heads=64 seqlen_q=1 tokens_q=2147483647 seqlen_k=2147483647 "
     "p_drop=0.5 random=1",
     "fmha: bytes of random_values, batch x heads x tokens x seqlen_k, must be below 2^63, got 1 x "
     "64 x 2147483647 x 2147483647"},
    {"batch=16 heads=64 seqlen_q=2147483647 seqlen_k=2147483647",
     "fmha: operations, 2 x batch x heads x seqlen_q x seqlen_k x (hdim + hdim_v), must be below "
     "2^63, got 2 x 16 x 64 x 2147483647 x 2147483647 x 16"},
};

constexpr BadProblem kBadOptions[] = {
    {"dtype=int8 out=bf16", "fmha: in must be fp32, fp16, bf16, fp8 or bf8, got int8"},
    {"dtype=tf32", "fmha: in must be fp32, fp16, bf16, fp8 or bf8, got tf32"},
    {"dtype=bf16 out=int8", "fmha: out must be fp32, fp16 or bf16 with in=bf16, got int8"},
    {"dtype=fp32 out=bf8", "fmha: out must be fp32, fp16 or bf16 with in=fp32, got bf8"},
    {"dtype=fp8 out=int8", "fmha: out must be fp32, fp16, bf16, fp8 or bf8 with in=fp8, got int8"},
    {"dtype=bf8,fp8 bias=elementwise",
     "fmha: dtype_bias must be fp32, fp16, bf16 or bf8 like in, got fp8"},
    {"dtype=fp16 qscale=per_tensor",
     "fmha: qscale must be none with in=fp16, only fp8 and bf8 have factors, got per_tensor"},
    {"dtype=fp8 kv=bf8", "fmha: kv must be same with in=fp8, got bf8"},
    {"dtype=bf16 kv=fp8 qscale=per_block",
     "fmha: qscale must be none, per_tensor, kv_block, per_head or per_token with kind=forward and "
     "kv=fp8, got per_block"},
    {"dtype=bf16 kv=fp8 qscale=per_token qscale_block_k=1",
     "fmha: qscale_block_k must be left out with qscale=per_token, got 1"},
    {"dtype=bf16 kv=fp8 out=fp8", "fmha: out must be fp32, fp16 or bf16 with in=bf16, got fp8"},
    {"dtype=fp8 qscale_block_k=64",
     "fmha: qscale_block_k must be left out with qscale=none, got 64"},
    {"dtype=fp8 qscale=per_tensor qscale_block_q=64",
     "fmha: qscale_block_q must be left out with qscale=per_tensor, got 64"},
    {"dtype=fp8 qscale=kv_block qscale_block_q=128",
     "fmha: qscale_block_q must be left out with qscale=kv_block, got 128"},
    {"dtype=fp8 qscale=per_block qscale_block_q=0",
     "fmha: qscale_block_q must be at least 1, got 0"},
    {"dtype=bf8 qscale=kv_block qscale_block_k=-2",
     "fmha: qscale_block_k must be at least 1, got -2"},
    {"dtype=bf8 qscale=per_block qscale_block_k=2147483648",
     "fmha: qscale_block_k must be at most 2147483647, got 2147483648"},
    {"dtype=fp8 qscale=kv_block pages=table page_size=4 qscale_block_k=4",
     "fmha: qscale_block_k must be left out with qscale=kv_block and pages=table, where each page "
     "of 4 tokens has factors, got 4"},
    {"dtype=bf16,fp8 bias=elementwise", "fmha: dtype_bias must be fp32, fp16 or bf16, got fp8"},
    {"dtype=bf16,fp32", "fmha: dtype_bias must be bf16 like in with bias=none, got fp32"},
    {"dtype=fp16,fp32 bias=alibi",
     "fmha: dtype_bias must be fp16 like in with bias=alibi, got fp32"},
    {"window_left=3", "fmha: window_left must be -1 with mask=none, got 3"},
    {"window_right=-1", "fmha: window_right must be 0 with mask=none, got -1"},
    {"sink=2", "fmha: sink must be 0 with mask=none, got 2"},
    {"mask=top_left window_left=-2", "fmha: window_left must be at least -1, got -2"},
    {"mask=bottom_right window_right=-7", "fmha: window_right must be at least -1, got -7"},
    {"mask=bottom_right window_left=2147483648",
     "fmha: window_left must be at most 2147483647, got 2147483648"},
    {"mask=bottom_right window_right=2147483648",
     "fmha: window_right must be at most 2147483647, got 2147483648"},
    {"mask=top_left sink=-1", "fmha: sink must be at least 0, got -1"},
    {"mask=top_left sink=2147483648", "fmha: sink must be at most 2147483647, got 2147483648"},
    {"scale=inf", "fmha: scale must be finite, got inf"},
    {"soft_cap=-1", "fmha: soft_cap must be finite and at least 0 (none), got -1"},
    {"soft_cap=inf", "fmha: soft_cap must be finite and at least 0 (none), got inf"},
    {"p_drop=1", "fmha: p_drop must be at least 0 (none) and below 1, got 1"},
    {"p_drop=-0.25", "fmha: p_drop must be at least 0 (none) and below 1, got -0.25"},
    {"random=1",
     "fmha: random must be 0 without dropout (p_drop 0), which draws no random values, got 1"},
    {"slope_stride=4", "fmha: slope_stride must be 0 with bias=none, which has no slopes, got 4"},
    {"bias=elementwise slope_stride=4",
     "fmha: slope_stride must be 0 with bias=elementwise, which has no slopes, got 4"},
    {"bias=alibi slope_stride=-4", "fmha: slope_stride must be at least 0, got -4"},
    {"bias_stride_b=0", "fmha: bias_stride_b must be left out with bias=none, got 0"},
    {"bias=alibi bias_stride_k=1", "fmha: bias_stride_k must be left out with bias=alibi, got 1"},
};

constexpr BadProblem kBadStrides[] = {
    {"q_stride_s=-8", "fmha: strides of q must be at least 0, got -8"},
    {"k_stride_b=-1", "fmha: strides of k must be at least 0, got -1"},
    {"v_stride_d=-1", "fmha: strides of v must be at least 0, got -1"},
    {"out_stride_h=-8", "fmha: strides of out must be at least 0, got -8"},
    {"bias=elementwise bias_stride_q=-9", "fmha: strides of bias must be at least 0, got -9"},
    {"out_stride_b=0",
     "fmha: strides must not fold out onto itself: 0 is less than the 1 elements that smaller "
     "strides span"},
    {"out_stride_h=7",
     "fmha: strides must not fold out onto itself: 7 is less than the 8 elements that smaller "
     "strides span"},
    {"out_stride_s=31",
     "fmha: strides must not fold out onto itself: 31 is less than the 32 elements that smaller "
     "strides span"},
    {"out_stride_d=2 out_stride_h=8",
     "fmha: strides must not fold out onto itself: 8 is less than the 15 elements that smaller "
     "strides span"},
    {"q_stride_b=2305843009213693952 batch=3",
     "fmha: the last byte of q must be below 2^63, got strides of up to 2305843009213693952"},
    {"bias=elementwise bias_stride_h=4611686018427387904",
     "fmha: the last byte of bias must be below 2^63, got strides of up to "
     "9223372036854775807"},
    {"bias=alibi slope_stride=4611686018427387904",
     "fmha: the last byte of slopes must be below 2^63, got strides of up to "
     "4611686018427387904"},
    {"lengths=packed q_stride_b=7",
     "fmha: q_stride_b must be left out or 0 with lengths=packed, where all sequences are one run "
     "of tokens, got 7"},
    {"lengths=packed k_stride_b=-7",
     "fmha: k_stride_b must be left out or 0 with lengths=packed, where all sequences are one run "
     "of tokens, got -7"},
    {"lengths=packed v_stride_b=1",
     "fmha: v_stride_b must be left out or 0 with lengths=packed, where all sequences are one run "
     "of tokens, got 1"},
    {"lengths=packed out_stride_b=384",
     "fmha: out_stride_b must be left out or 0 with lengths=packed, where all sequences are one "
     "run of tokens, got 384"},
};

constexpr BadProblem kBadPages[] = {
    {"pages=table", "fmha: page_size must be at least 1, got 0"},
    {"pages=list page_size=-3", "fmha: page_size must be at least 1, got -3"},
    {"pages=list page_size=2147483648",
     "fmha: page_size must be at most 2147483647, got 2147483648"},
    {"pages=table page_size=4 num_pages=0",
     "fmha: num_pages must be at least 1 with seqlen_k=9, got 0"},
    {"pages=table page_size=4 num_pages=-1", "fmha: num_pages must be at least 0, got -1"},
    {"pages=table page_size=4 num_pages=2147483648",
     "fmha: num_pages must be at most 2147483647, got 2147483648"},
    {"pages=table page_size=4 max_pages=2",
     "fmha: max_pages must be at least 3, the pages of 4 tokens that seqlen_k=9 needs, got 2"},
    {"pages=table page_size=4 max_pages=2147483648",
     "fmha: max_pages must be at most 2147483647, got 2147483648"},
    {"pages=table page_size=4 table_stride=-1", "fmha: table_stride must be at least 0, got -1"},
    {"pages=table page_size=4 page_entries=6",
     "fmha: page_entries must be left out with pages=table, got 6"},
    {"pages=list page_size=4 page_entries=5",
     "fmha: page_entries must be at least 6 with lengths=equal, 3 pages of 4 tokens for each of 2 "
     "sequences, got 5"},
    {"pages=list page_size=4 page_entries=-1 lengths=padded",
     "fmha: page_entries must be at least 0, got -1"},
    {"pages=list page_size=4 max_pages=3",
     "fmha: max_pages must be left out with pages=list, got 3"},
    {"pages=list page_size=4 table_stride=3",
     "fmha: table_stride must be left out with pages=list, got 3"},
    {"page_size=4", "fmha: page_size must be left out with pages=none, got 4"},
    {"num_pages=4", "fmha: num_pages must be left out with pages=none, got 4"},
    {"check_pages=1", "fmha: check_pages must be left out with pages=none, got 1"},
    {"cache_layout=vectorized",
     "fmha: cache_layout must be linear with pages=none, got vectorized"},
    {"pages=table page_size=16 cache_layout=vectorized hdim=12 dtype=bf16",
     "fmha: hdim must be a multiple of 8, 16 bytes of bf16, with cache_layout=vectorized, got 12"},
    {"pages=list page_size=18 cache_layout=vectorized",
     "fmha: page_size must be a multiple of 4, 16 bytes of fp32, with cache_layout=vectorized, got "
     "18"},
    {"pages=table page_size=16 cache_layout=vectorized k_stride_s=4",
     "fmha: k_stride_s must be left out with cache_layout=vectorized, got 4"},
    {"pages=table page_size=16 cache_layout=vectorized v_stride_b=512",
     "fmha: v_stride_b must be left out with cache_layout=vectorized, got 512"},
    {"lengths=packed pages=table page_size=4 tokens_k=9",
     "fmha: tokens_k must be left out with pages=table, got 9"},
    {"pages=table page_size=4 k_stride_b=-1", "fmha: strides of k must be at least 0, got -1"},
    {"pages=list page_size=2147483647 num_pages=2147483647",
     "fmha: bytes of k, num_pages x page_size x heads_kv x hdim x 4, must be below 2^63, got "
     "2147483647 x 2147483647 x 4 x 8 x 4"},
    {"pages=table page_size=1 table_stride=4611686018427387904",
     "fmha: the last byte of page_table must be below 2^63, got strides of up to "
     "4611686018427387904"},
};

// The head's fields without those that `fields` sets.
std::string line_of(std::string_view fields) {
  std::string line;
  for (std::string_view rest = kHead; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(word.size() + 1);
    const std::string key = " " + std::string(word.substr(0, word.find('=') + 1));
    const bool is_set = (" " + std::string(fields)).find(key) != std::string::npos;
    if (!is_set || line.empty()) line += std::string(word) + " ";
  }
  return line + std::string(fields);
}

template <std::size_t n>
void expect_refusals(const BadProblem (&rows)[n]) {
  for (const BadProblem& row : rows) {
    EXPECT_EQ(refusal(parse_problem(line_of(row.fields))), row.sentence) << row.fields;
  }
}

TEST(FmhaValidate, SaysWhichSizeIsWrong) { expect_refusals(kBadSizes); }
TEST(FmhaValidate, SaysWhichOptionIsWrong) { expect_refusals(kBadOptions); }
TEST(FmhaValidate, SaysWhichStrideIsWrong) { expect_refusals(kBadStrides); }
TEST(FmhaValidate, SaysWhatIsWrongOfPages) { expect_refusals(kBadPages); }

TEST(FmhaValidate, SaysWhichNumberIsNone) {
  FmhaProblem p = small_problem(1, 1, 1);
  p.mask = static_cast<FmhaMask>(9);
  EXPECT_EQ(refusal(p), "fmha: mask must be a number from 0 to 2, got 9");
  p = small_problem(1, 1, 1);
  p.scale = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(refusal(p), "fmha: scale must be finite, got nan");
  p.scale = 1;
  p.soft_cap = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(refusal(p), "fmha: soft_cap must be finite and at least 0 (none), got nan");
  p.soft_cap = 0;
  p.p_drop = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(refusal(p), "fmha: p_drop must be at least 0 (none) and below 1, got nan");
}

TEST(FmhaValidate, AcceptsWhatIsAllowed) {
  for (const char* fields : {
           "",
           "batch=0",
           "seqlen_q=0 seqlen_k=0",
           "heads_kv=1",
           "hdim=576 hdim_v=512",
           "hdim=1 hdim_v=1 lse=1",
           "tokens_q=12 tokens_k=18",
           "lengths=packed tokens_q=0 tokens_k=2147483647 skip_q=3",
           "lengths=padded skip_q=2147483647",
           "lengths=packed q_stride_b=0 out_stride_b=0",
           "mask=top_left window_left=-1 window_right=-1 sink=2147483647",
           "mask=bottom_right window_left=0 window_right=2147483647",
           "scale=-0.5 soft_cap=30",
           "p_drop=0.999999 random=1",
           "dtype=bf16,fp32 bias=elementwise out=fp16",
           "dtype=fp16 out=bf16 bias=alibi slope_stride=1",
           "bias=elementwise bias_stride_b=0 bias_stride_h=0 bias_stride_q=0 bias_stride_k=0",
           "q_stride_b=0 k_stride_h=0 v_stride_s=0 v_stride_d=9",
           "out_stride_d=6 out_stride_s=1 out_stride_h=48 out_stride_b=192",
           "batch=1 out_stride_b=-7",
           "seqlen_q=0 out_stride_h=0",
           "pages=table page_size=1",
           "pages=table page_size=4 num_pages=1 max_pages=9 table_stride=0 check_pages=1",
           "pages=list page_size=1024 lengths=packed page_entries=0",
           "pages=list page_size=3 lengths=padded k_stride_b=0 v_stride_s=7 skip_q=1",
           "pages=table page_size=16 cache_layout=vectorized dtype=bf16 hdim_v=3 lengths=packed",
           "pages=table page_size=4 num_pages=0 seqlen_k=0",
           "pages=list page_size=4 num_pages=0 batch=0",
           "dtype=fp8",
           "dtype=bf8 out=fp8 bias=elementwise",
           "dtype=fp8,fp32 out=bf8 bias=elementwise qscale=per_tensor",
           "dtype=bf8 qscale=per_block qscale_block_q=1 qscale_block_k=2147483647",
           "dtype=fp8 qscale=per_block pages=list page_size=4 qscale_block_k=3",
           "dtype=fp8 qscale=kv_block pages=table page_size=16 cache_layout=vectorized hdim=16",
       }) {
    EXPECT_EQ(refusal(parse_problem(line_of(fields))), "") << fields;
  }
}

TEST(FmhaValidate, RandomProblemsAreValid) {
  const std::uint64_t seed = std::random_device{}();
  RandomFmhas random(seed);
  for (int i = 0; i < 1000; ++i) {
    const Problem p = random.problem(300, 576 - 64);
    EXPECT_EQ(refusal(p), "") << "seed " << seed << ": " << to_string(p);
    EXPECT_EQ(parse_problem(to_string(p)), p) << seed;
  }
}

}  // namespace
}  // namespace tessera::fmha
