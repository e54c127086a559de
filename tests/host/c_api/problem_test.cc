#include <limits>
#include <thread>

#include "c_handles.h"

namespace tessera {
namespace {

using testing_support::CProblem;
using testing_support::CText;
using testing_support::failure;
using testing_support::ok;
using testing_support::parsed;

constexpr const char* kLine = "gemm m=128 n=3072 k=768 dtype=bf16 epilogue=bias+gelu";

std::string line_of(const tsr_problem_t* problem) {
  CText line;
  EXPECT_TRUE(ok(tsr_problem_line(problem, &line)));
  return line.it == nullptr ? "" : line.it;
}

TEST(CStatus, NamesEveryNumber) {
  EXPECT_STREQ(tsr_status_name(TSR_OK), "ok");
  EXPECT_STREQ(tsr_status_name(TSR_VERIFICATION_FAILED), "verification_failed");
  EXPECT_STREQ(tsr_status_name(TSR_CANCELLED), "cancelled");
  EXPECT_STREQ(tsr_status_name(static_cast<tsr_status_t>(99)), "unknown");
  EXPECT_STREQ(tsr_status_name(static_cast<tsr_status_t>(-1)), "unknown");
}

TEST(CStatus, EachThreadHasItsOwnSentence) {
  CProblem problem;
  EXPECT_EQ(tsr_problem_parse("gemm", &problem), TSR_PARSE_ERROR);
  const std::string here = tsr_error();
  std::string before;
  std::thread([&] {
    before = tsr_error();
    tsr_problem_t* other = nullptr;
    tsr_problem_parse("nothing", &other);
  }).join();
  EXPECT_EQ(before, "");
  EXPECT_EQ(tsr_error(), here);
}

TEST(CProblem, GoesThroughLineAndJson) {
  CProblem problem;
  ASSERT_TRUE(ok(tsr_problem_parse(kLine, &problem)));
  EXPECT_EQ(line_of(problem), kLine);
  CText json;
  ASSERT_TRUE(ok(tsr_problem_json(problem, &json)));
  CProblem again;
  ASSERT_TRUE(ok(tsr_problem_from_json(json.it, &again)));
  EXPECT_EQ(line_of(again), kLine);
}

TEST(CProblem, IsMadeFieldByField) {
  CProblem problem;
  ASSERT_TRUE(ok(tsr_problem_create("gemm", &problem)));
  CText line;
  EXPECT_EQ(failure(tsr_problem_line(problem, &line)),
            "parse_error: problem: gemm needs m, as in 'gemm m=128 n=3072 k=768 dtype=bf16'");
  EXPECT_EQ(line.it, nullptr);
  ASSERT_TRUE(ok(tsr_problem_set_integer(problem, "m", 5)));
  ASSERT_TRUE(ok(tsr_problem_set_integer(problem, "n", 6)));
  ASSERT_TRUE(ok(tsr_problem_set_integer(problem, "k", 7)));
  ASSERT_TRUE(ok(tsr_problem_set_number(problem, "alpha", 0.5)));
  ASSERT_TRUE(ok(tsr_problem_set(problem, "dtype", "bf16")));
  EXPECT_EQ(line_of(problem), "gemm m=5 n=6 k=7 dtype=bf16 alpha=0.5");
}

TEST(CProblem, SetsAFieldOfAWholeProblem) {
  CProblem problem;
  ASSERT_TRUE(ok(tsr_problem_parse(kLine, &problem)));
  ASSERT_TRUE(ok(tsr_problem_set_integer(problem, "m", 1)));
  ASSERT_TRUE(ok(tsr_problem_set(problem, "dtype", "fp16")));
  EXPECT_EQ(line_of(problem), "gemm m=1 n=3072 k=768 dtype=fp16 epilogue=bias+gelu");
}

TEST(CProblem, KeepsItsFieldsWhenOneIsRefused) {
  CProblem problem;
  ASSERT_TRUE(ok(tsr_problem_parse(kLine, &problem)));
  EXPECT_EQ(failure(tsr_problem_set(problem, "layuot", "rcr")),
            "parse_error: problem: unknown key 'layuot' for gemm, did you mean 'layout'?");
  EXPECT_EQ(failure(tsr_problem_set(problem, "layout", "rcr m=4")),
            "invalid_argument: problem: layout must be one word, got 'rcr m=4'");
  EXPECT_EQ(failure(tsr_problem_set(problem, "layout", "")),
            "invalid_argument: problem: layout must be one word, got ''");
  EXPECT_EQ(tsr_problem_set_number(problem, "m", 1.5), TSR_PARSE_ERROR);
  EXPECT_EQ(line_of(problem), kLine);
}

TEST(CProblem, RefusesNaN) {
  CProblem problem;
  ASSERT_TRUE(ok(tsr_problem_parse(kLine, &problem)));
  ASSERT_TRUE(
      ok(tsr_problem_set_number(problem, "alpha", std::numeric_limits<double>::quiet_NaN())));
  EXPECT_EQ(tsr_problem_validate(problem), TSR_INVALID_ARGUMENT);
}

TEST(CProblem, ReadsFields) {
  CProblem problem;
  ASSERT_TRUE(ok(tsr_problem_parse(kLine, &problem)));
  const auto get = [&](const char* field) {
    CText value;
    EXPECT_TRUE(ok(tsr_problem_get(problem, field, &value)));
    return value.it == nullptr ? std::string() : std::string(value.it);
  };
  EXPECT_EQ(get("n"), "3072");
  EXPECT_EQ(get("out"), "bf16");
  EXPECT_EQ(get("epilogue"), "bias+gelu");
  EXPECT_EQ(get("ld_a"), "packed");
  CText none;
  EXPECT_EQ(failure(tsr_problem_get(problem, "nn", &none)),
            "not_found: problem: gemm has no field 'nn', did you mean 'n'?");
}

TEST(CProblem, DescribesItsOperands) {
  CProblem problem;
  ASSERT_TRUE(ok(tsr_problem_parse("gemm m=3 n=4 k=5 ld_a=8 epilogue=bias", &problem)));
  CText json;
  ASSERT_TRUE(ok(tsr_problem_describe(problem, &json)));
  const auto described = parsed(json);
  EXPECT_EQ(described["flops"], 2 * 3 * 4 * 5);
  const auto& a = described["operands"][0];
  EXPECT_EQ(a["name"], "a");
  EXPECT_EQ(a["access"], "read");
  EXPECT_EQ(a["dtype"], "fp32");
  EXPECT_EQ(a["sizes"], (nlohmann::json{5, 3}));
  EXPECT_EQ(a["strides"], (nlohmann::json{1, 8}));
  EXPECT_EQ(a["bytes"], (2 * 8 + 5) * 4);
  EXPECT_EQ(described["operands"].back()["name"], "out");
  EXPECT_EQ(described["operands"].back()["access"], "write");
}

TEST(CProblem, RefusesUnknownOperations) {
  CProblem problem;
  EXPECT_EQ(tsr_problem_create("gem", &problem), TSR_PARSE_ERROR);
  EXPECT_EQ(problem.it, nullptr);
}

TEST(CProblem, RefusesNull) {
  EXPECT_EQ(failure(tsr_problem_parse(kLine, nullptr)),
            "invalid_argument: the address for the problem must not be NULL");
  CProblem problem;
  EXPECT_EQ(failure(tsr_problem_parse(nullptr, &problem)),
            "invalid_argument: the problem's line must not be NULL");
  EXPECT_EQ(failure(tsr_problem_validate(nullptr)),
            "invalid_argument: the problem must not be NULL");
  ASSERT_TRUE(ok(tsr_problem_parse(kLine, &problem)));
  EXPECT_EQ(failure(tsr_problem_line(problem, nullptr)),
            "invalid_argument: the address for the line must not be NULL");
  EXPECT_EQ(failure(tsr_problem_set(problem, nullptr, "1")),
            "invalid_argument: the field's name must not be NULL");
  tsr_problem_destroy(nullptr);
}

#ifndef NDEBUG
TEST(CProblem, RefusesUseAfterDestroy) {
  tsr_problem_t* problem = nullptr;
  ASSERT_TRUE(ok(tsr_problem_parse(kLine, &problem)));
  tsr_problem_destroy(problem);
  EXPECT_EQ(tsr_problem_validate(problem), TSR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(tsr_error()).find("was destroyed, or never was one"), std::string::npos);
}
#endif

TEST(CProblem, IsBuiltBySetters) {
  CProblem problem;
  ASSERT_TRUE(ok(tsr_problem_build(
      "fmha",
      R"({"dims": [128, 64, 2, 300, 400], "nheads": [8, 2], "data_type": "bf16", "lse": true,
          "dropout": [true, 0.25], "mask_type": "2"})",
      &problem)));
  EXPECT_EQ(line_of(problem),
            "fmha batch=2 heads=8 heads_kv=2 seqlen_q=300 seqlen_k=400 hdim=128 hdim_v=64 "
            "dtype=bf16 mask=bottom_right lse=1 p_drop=0.25");
  CProblem backward;
  ASSERT_TRUE(ok(tsr_problem_build(
      "fmha",
      R"({"api_family": "bwd", "dims": [128, 64, 2, 300, 400], "nheads": [8, 2], "lse": true,
          "bias_type": "elementwise", "bwd_flags": [true, false, true]})",
      &backward)));
  EXPECT_EQ(line_of(backward),
            "fmha kind=backward batch=2 heads=8 heads_kv=2 seqlen_q=300 seqlen_k=400 hdim=128 "
            "hdim_v=64 dtype=fp16 bias=elementwise dbias=1");
}

// Every documented setter is known, so that JSON from C reaches all of them.
TEST(CProblem, KnowsEveryDocumentedSetter) {
  CProblem problem;
  ASSERT_TRUE(ok(tsr_problem_build(
      "fmha",
      R"({"api_family": "fwd", "kernel_family": "fwd", "gfx_arch": "avx2", "data_type": "fp8",
          "dims": [64, 64, 1, 8, 8], "nheads": [1, 1], "mask_type": "generic", "bias_type": "no",
          "lse": true, "dropout": true, "qscale_type": "pertensor", "rope_type": "none",
          "logits_soft_cap": true, "v_rowmajor": true, "group_mode": true, "paged_kv": true,
          "fp8_static_quant": true, "skip_min_seqlen_q": true, "sink": true,
          "kv_cache": ["linear", "vllm_2d", 1], "window": [1, 1], "sink_size": 1,
          "max_seqlen": [8, 8], "num_splits": 1, "bwd_flags": [false, true, false]})",
      &problem)));
  EXPECT_EQ(
      line_of(problem),
      "fmha heads=1 heads_kv=1 seqlen_q=8 seqlen_k=8 hdim=64 hdim_v=64 lengths=packed tokens_q=8 "
      "dtype=fp8 out=fp8 mask=top_left window_left=1 window_right=1 sink=1 soft_cap=30 lse=1 "
      "p_drop=0.2 random=1 skip_q=1 num_splits=1 pages=table page_size=1 qscale=per_tensor");
}

TEST(CProblem, RefusesWrongSetters) {
  struct Wrong {
    const char *op, *json, *sentence;
  };
  const Wrong all[] = {
      {"fmha", "{}",
       "invalid_argument: fmha: dims needs hdim_q, hdim_v and batch of at least 1, got 0, 0 and "
       "0"},
      {"fmha", R"({"dims": [1, {}]})",
       "invalid_argument: problem: dims takes words, numbers, true or false, got {}"},
      {"fmha", R"({"dim": 1})", "parse_error: fmha: unknown setter 'dim', did you mean 'dims'?"},
      {"fmha", "[1]",
       R"(parse_error: problem: the setters must be a JSON object such as {"lse": true}, )"
       "got '[1]'"},
      {"gemm", "{}", "unsupported: gemm: there is no builder; set the problem's fields"},
  };
  for (const auto& [op, json, sentence] : all) {
    CProblem problem;
    EXPECT_EQ(failure(tsr_problem_build(op, json, &problem)), sentence);
    EXPECT_EQ(problem.it, nullptr);
  }
}

// Texts of such a depth had ended the process, by whatever way they came.
TEST(CJson, DeepNestingIsRefused) {
  constexpr std::size_t kDeep = 200000;
  const std::string deep = std::string(kDeep, '[') + std::string(kDeep, ']');
  const auto object = [&](const std::string& key) { return "{\"" + key + "\": " + deep + "}"; };
  const std::string words =
      ": lists and objects may lie at most 64 deep in one another, got 200001";
  CProblem problem;
  EXPECT_EQ(failure(tsr_problem_build("fmha", object("lse").c_str(), &problem)),
            "parse_error: problem: the setters" + words);
  EXPECT_EQ(failure(tsr_problem_from_json(object("op").c_str(), &problem)),
            "parse_error: problem" + words);
  testing_support::CKernelSet set;
  EXPECT_EQ(failure(tsr_kernel_set_from_json(object("kernels").c_str(), &set)),
            "parse_error: kernel set" + words);
  CText json;
  EXPECT_EQ(failure(tsr_command("list", object("op").c_str(), nullptr, nullptr, &json)),
            "parse_error: list: the options" + words);
}

}  // namespace
}  // namespace tessera
