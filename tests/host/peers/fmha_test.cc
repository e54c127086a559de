// Peers compute attention: oneDNN where it is installed, and what cuDNN's peer asks for, which a
// library that is none computes operation by operation.
#include <algorithm>
#include <random>

#include "host/fmha/fmha_problems.h"
#include "host/peers/ways.h"

namespace tessera::peers {
namespace {

using fmha::RandomFmhas;

FmhaProblem attention(const std::string& words) {
  return std::get<FmhaProblem>(parse_problem("fmha " + words));
}

// A problem in bf16, which cuDNN takes, where no type is named.
FmhaProblem half(const std::string& words, const std::string& type = "bf16") {
  return attention(fmt::format("{} in={} out={} dtype_bias={}", words, type, type, type));
}

// The words with fields of `changes` in place of their own.
std::string changed(const std::string& words, const std::string& changes) {
  std::string all = changes;
  for (const std::string_view word : split_words(words)) {
    const std::string key(word.substr(0, word.find('=') + 1));
    if (fmt::format(" {}", changes).find(" " + key) == std::string::npos)
      all += fmt::format(" {}", word);
  }
  return all;
}

void check_all(const Peer& peer, const runtime::Place& place, const FmhaProblem& p,
               std::uint64_t seed) {
  Ways ways(peer, p, place, seed);
  ASSERT_GT(ways.size(), 0U) << to_string(Problem(p));
  for (std::size_t way = 0; way < ways.size(); ++way) ways.check(way);
}

constexpr std::size_t kAllWays = 1000;

// Checks problems that `draw` gives, until the peer has computed six. A peer leaves out many of
// what is drawn, so a fixed number of draws would sometimes check nothing.
template <class Draw>
void check_six(const Peer& peer, const runtime::Place& place, std::uint64_t seed, const Draw& draw,
               std::size_t max_ways) {
  int computed = 0;
  for (int i = 0; i < 4000 && computed < 6; ++i) {
    Ways ways(peer, draw(), place, seed);
    const std::size_t checked = std::min(ways.size(), max_ways);
    for (std::size_t way = 0; way < checked; ++way) ways.check(way);
    computed += checked > 0;
  }
  EXPECT_EQ(computed, 6);
}

// ---- cuDNN ----

struct CuDnnFmha : CuDnnTest {
  std::size_t count(const FmhaProblem& p) { return Ways(*peer_, p, place(), 1).size(); }
  void SetUp() override {
    CuDnnTest::SetUp();
    fmt::print("seed {}\n", seed_);
  }
  // The first choice runs no search.
  void check(const std::string& words) {
    is_bf16_ = !is_bf16_;
    Ways ways(*peer_, half(words, is_bf16_ ? "bf16" : "fp16"), place(), seed_);
    ASSERT_GT(ways.size(), 0U) << words;
    ways.check(0);
  }
  std::uint64_t seed_ = std::random_device{}();
  bool is_bf16_ = false;
  static runtime::Place place() { return place_of_peer("cudnn"); }
};

constexpr const char* kSmall = "batch=2 heads=4 heads_kv=2 seqlen_q=9 seqlen_k=13 hdim=16 hdim_v=8";

TEST_F(CuDnnFmha, EveryWayOfGroupsOfHeads) { check_all(*peer_, place(), half(kSmall), seed_); }
TEST_F(CuDnnFmha, LogSumExp) { check(fmt::format("{} lse=1 scale=0.7", kSmall)); }
TEST_F(CuDnnFmha, OneQuery) { check("heads=4 heads_kv=1 seqlen_q=1 seqlen_k=33 hdim=8 lse=1"); }

TEST_F(CuDnnFmha, Masks) {
  for (const char* mask :
       {"mask=top_left", "mask=bottom_right", "mask=bottom_right window_right=2",
        "mask=top_left window_right=3", "mask=top_left window_left=4",
        "mask=bottom_right window_left=4", "mask=bottom_right window_left=0",
        "mask=top_left window_left=3 window_right=2", "mask=bottom_right window_right=-1",
        "mask=top_left window_left=2 window_right=-1"}) {
    check(fmt::format("{} {}", kSmall, mask));
  }
}

TEST_F(CuDnnFmha, BiasAndCap) {
  for (const char* words :
       {"bias=elementwise", "bias=elementwise bias_stride_b=0 bias_stride_h=0 mask=top_left lse=1",
        "bias=elementwise bias_stride_h=0", "bias=alibi mask=top_left",
        "bias=alibi mask=top_left window_left=3", "soft_cap=2", "soft_cap=2 mask=bottom_right"}) {
    check(fmt::format("{} {}", kSmall, words));
  }
  check("batch=2 heads=4 seqlen_q=9 seqlen_k=9 hdim=8 bias=alibi mask=top_left lse=1");
}

TEST_F(CuDnnFmha, Lengths) {
  const std::string many = "batch=9 heads=2 heads_kv=1 seqlen_q=9 seqlen_k=13 hdim=8";
  for (const char* words :
       {"lengths=padded", "lengths=padded lse=1 mask=top_left",
        "lengths=padded mask=bottom_right window_left=4", "lengths=packed",
        "lengths=packed tokens_q=20 tokens_k=30", "lengths=packed mask=bottom_right",
        "lengths=packed mask=top_left window_left=3 window_right=1"}) {
    check(fmt::format("{} {}", many, words));
  }
}

TEST_F(CuDnnFmha, Strides) {
  check(
      fmt::format("{} q_stride_b=2000 q_stride_h=200 q_stride_s=20 k_stride_b=2000 "
                  "k_stride_h=16 k_stride_s=40 v_stride_b=300 v_stride_h=8 v_stride_s=16 "
                  "out_stride_b=1000 out_stride_h=80 out_stride_s=8",
                  kSmall));
}

TEST_F(CuDnnFmha, RandomProblems) {
  RandomFmhas random(seed_);
  const auto draw = [&] {
    FmhaProblem p = random.problem(12, 3);
    p.hdim *= 8;
    if (p.hdim_v != kPacked) p.hdim_v *= 8;
    p.in = p.out = random.coin() ? DType::fp16 : DType::bf16;
    p.sink = p.skip_q = 0;
    p.p_drop = 0, p.random = false;
    for (FmhaStrides* strides : {&p.q_strides, &p.k_strides, &p.v_strides, &p.out_strides}) {
      *strides = kPackedTokens;
    }
    return p;
  };
  check_six(*peer_, place(), seed_, draw, 1);
}

TEST_F(CuDnnFmha, LeavesOutWhatItDoesNotHave) {
  EXPECT_GT(count(half(kSmall)), 0U);
  for (const char* words :
       {"sink=1 mask=top_left", "lengths=padded skip_q=3", "hdim_v=12", "hdim=12", "seqlen_k=0",
        "batch=0", "q_stride_h=0", "mask=bottom_right seqlen_k=8",
        "mask=top_left window_left=2 seqlen_k=8", "mask=bottom_right bias=elementwise",
        "bias=alibi", "bias=alibi mask=top_left slope_stride=4",
        "bias=alibi mask=top_left window_right=1", "bias=alibi mask=top_left seqlen_k=8",
        "bias=alibi mask=top_left lse=1", "lengths=packed lse=1", "p_drop=0.5",
        "pages=table page_size=4", "kind=append"}) {
    EXPECT_EQ(count(half(changed(kSmall, words))), 0U) << words;
  }
  EXPECT_EQ(count(attention(kSmall)), 0U);
  EXPECT_EQ(count(attention(fmt::format("{} in=bf16 out=fp32 dtype_bias=bf16", kSmall))), 0U);
}

// The type of a bias counts only where there is one.
TEST_F(CuDnnFmha, LeavesOutBiasesOfEightBits) {
  for (const DType type : all_dtypes()) {
    FmhaProblem p = half(kSmall);
    p.dtype_bias = type;
    EXPECT_GT(count(p), 0U) << to_string(type);
    p.bias = FmhaBias::elementwise;
    const bool is_known = type == DType::fp32 || type == DType::fp16 || type == DType::bf16;
    EXPECT_EQ(count(p) > 0, is_known) << to_string(type);
  }
}

// ---- oneDNN ----

class OneDnnFmha : public testing::Test {
 protected:
  void SetUp() override {
    peer_ = load_onednn(2);
    if (peer_ == nullptr) GTEST_SKIP() << "oneDNN is not installed";
    fmt::print("seed {}\n", seed_);
  }
  std::size_t count(const std::string& words) {
    return Ways(*peer_, attention(words), runtime::host_place(), 1).size();
  }
  void check(const std::string& words) {
    check_all(*peer_, runtime::host_place(), attention(words), seed_);
  }
  std::uint64_t seed_ = std::random_device{}();
  std::unique_ptr<Peer> peer_;
};

TEST_F(OneDnnFmha, EveryWayIsCorrect) {
  for (const char* words :
       {"", "heads_kv=4", "mask=top_left", "mask=bottom_right scale=0.7", "soft_cap=2",
        "mask=bottom_right window_left=4 window_right=2 sink=1", "bias=elementwise",
        "bias=elementwise mask=top_left bias_stride_b=0 bias_stride_h=0"}) {
    check(changed(kSmall, words));
  }
}

TEST_F(OneDnnFmha, RandomProblemsWithStrides) {
  RandomFmhas random(seed_);
  const auto draw = [&] {
    FmhaProblem p = random.problem(20, 40);
    p.in = p.out = DType::fp32;
    p.lengths = FmhaLengths::equal;
    p.tokens_q = p.tokens_k = kPacked;
    p.lse = false, p.skip_q = 0;
    p.p_drop = 0, p.random = false;
    for (FmhaStrides* strides : {&p.q_strides, &p.k_strides, &p.v_strides, &p.out_strides}) {
      const bool is_usual = (*strides)[0] > 0 && (*strides)[1] > 0 && (*strides)[3] == 1;
      if (!is_usual) *strides = kPackedTokens;
    }
    return p;
  };
  check_six(*peer_, runtime::host_place(), seed_, draw, kAllWays);
}

TEST_F(OneDnnFmha, Bf16) {
  const std::string words = fmt::format("{} in=bf16 out=bf16 dtype_bias=bf16", kSmall);
  if (count(words) == 0) GTEST_SKIP() << "oneDNN has no bf16 on this processor";
  check(words);
  check(words + " mask=top_left");
}

TEST_F(OneDnnFmha, LeavesOutWhatItDoesNotHave) {
  for (const char* words :
       {"lengths=padded", "lengths=packed", "pages=list page_size=4", "lse=1", "bias=alibi",
        "p_drop=0.5", "kind=append", "mask=bottom_right seqlen_k=8",
        "mask=top_left window_left=2 seqlen_k=5", "seqlen_q=0", "batch=0", "k_stride_h=0",
        "v_stride_d=2 v_stride_h=99 v_stride_s=999 v_stride_b=99999",
        "seqlen_q=16384 seqlen_k=16384"}) {
    EXPECT_EQ(count(changed(kSmall, words)), 0U) << words;
  }
}

}  // namespace
}  // namespace tessera::peers
