#include "tessera/spec/problem.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "host/spec/expect_error.h"
#include "host/spec/random_specs.h"

namespace tessera {
namespace {

TEST(Problem, LineLeavesDefaultsOut) {
  struct Row {
    const char* line;
    const char* canonical;
  };
  const Row rows[] = {
      {"gemm m=1 n=2 k=3", "gemm m=1 n=2 k=3"},
      {"  gemm\tk=3 n=2   m=1 dtype=fp32 layout=rcr batch=1", "gemm m=1 n=2 k=3"},
      {"gemm m=128 n=3072 k=768 dtype=bf16 layout=rcr epilogue=bias+gelu",
       "gemm m=128 n=3072 k=768 dtype=bf16 epilogue=bias+gelu"},
      {"gemm m=1 n=2 k=3 dtype=bf16 out=fp32 layout=rrr",
       "gemm m=1 n=2 k=3 dtype=bf16 out=fp32 layout=rrr"},
      {"gemm m=1 n=2 k=3 out=fp32 dtype=bf16 d=bf16",
       "gemm m=1 n=2 k=3 dtype=bf16 out=fp32 d=bf16"},
      {"gemm m=1 n=2 k=3 dtype=fp8,bf8", "gemm m=1 n=2 k=3 dtype=fp8,bf8"},
      {"gemm m=1 n=2 k=3 a=fp8 b=bf8 acc=fp32 out=fp16", "gemm m=1 n=2 k=3 dtype=fp8,bf8"},
      {"gemm m=1 n=2 k=3 a=fp16", "gemm m=1 n=2 k=3 dtype=fp16"},
      {"gemm m=1 n=2 k=3 b=fp16", "gemm m=1 n=2 k=3 dtype=fp32,fp16"},
      {"gemm m=1 n=2 k=3 dtype=int8 alpha=0.1 beta=-0 clamp_lo=-1 clamp_hi=inf preshuffle=true",
       "gemm m=1 n=2 k=3 dtype=int8 alpha=0.1 clamp_lo=-1 preshuffle=1"},
      {"gemm m=1 n=2 k=3 pointer_arrays=true batch=5", "gemm m=1 n=2 k=3 batch=5 pointer_arrays=1"},
      {"gemm m=1 n=2 k=3 ld_a=7 ld_d3=9 batch=2 batch_stride_b=0 batch_stride_d0=5",
       "gemm m=1 n=2 k=3 batch=2 ld_a=7 ld_d3=9 batch_stride_b=0 batch_stride_d0=5"},
  };
  for (const Row& row : rows) {
    const Problem problem = parse_problem(row.line);
    EXPECT_EQ(to_string(problem), row.canonical);
    EXPECT_EQ(parse_problem(row.canonical), problem) << row.canonical;
  }
}

TEST(Problem, DtypeSetsWhatGoesWithIt) {
  const auto p = std::get<GemmProblem>(parse_problem("gemm m=1 n=2 k=3 dtype=int8"));
  EXPECT_EQ(p, gemm_problem(DType::int8, GemmLayout::rcr, 1, 2, 3));
  EXPECT_EQ(p.acc, DType::int32);
  EXPECT_EQ(p.out, DType::int32);
  EXPECT_EQ(p.d, DType::int32);
  const auto wide = std::get<GemmProblem>(parse_problem("gemm m=1 n=2 k=3 dtype=bf16 out=fp32"));
  EXPECT_EQ(wide.d, DType::fp32);
}

TEST(Problem, RefusesALineWithASentence) {
  const std::string example = "'gemm m=128 n=3072 k=768 dtype=bf16'";
  const std::pair<std::string, std::string> rows[] = {
      {"", "the line is empty, expected such as " + example},
      {" \t ", "the line is empty, expected such as " + example},
      {"gem m=1", "unknown operation 'gem', did you mean 'gemm'?"},
      {"m=1 n=2 k=3", "unknown operation 'm=1': it must be one of gemm, norm, conv, fmha, route"},
      {"gemm m=1 n=2", "gemm needs k, as in " + example},
      {"gemm m=1 n=2 k=3 4", "expected key=value, got '4'"},
      {"gemm m=1 n=2 k=3 dtyp=bf16", "unknown key 'dtyp' for gemm, did you mean 'dtype'?"},
      {"gemm m=1 n=2 k=3 =4", "expected key=value, got '=4'"},
      {"gemm m=1 n=2 k=3 threads=4",
       "unknown key 'threads' for gemm: known are dtype, m, n, k, batch, a, b, acc, out, d, "
       "layout, "
       "ld_a, ld_b, ld_c, ld_out, ld_d0, ld_d1, ld_d2, ld_d3, batch_stride_a, batch_stride_b, "
       "batch_stride_c, batch_stride_out, batch_stride_d0, batch_stride_d1, batch_stride_d2, "
       "batch_stride_d3, alpha, beta, epilogue, clamp_lo, clamp_hi, preshuffle, "
       "pointer_arrays, groups, grouping, check_groups, group_strides, group_int64, scale_a, "
       "scale_b, scale_type, "
       "scale_quads, stride_scale_a_m, stride_scale_a_k, stride_scale_b_n, stride_scale_b_k, "
       "batch_stride_scale_a, batch_stride_scale_b, gate, gate_interleaved, indexing, index_room, "
       "quant, scales_by_column, dims, merge_a, merge_b, sources_a, sources_b, ld_a1, ld_a2, "
       "ld_a3, ld_b1, ld_b2, ld_b3, batch_stride_a1, batch_stride_a2, batch_stride_a3, "
       "batch_stride_b1, batch_stride_b2, batch_stride_b3"},
      {"gemm m=1 n=2 k=3 m=1", "m is given twice"},
      {"gemm m=1.5 n=2 k=3", "m must be an integer, got '1.5'"},
      {"gemm m= n=2 k=3", "m must be an integer, got ''"},
      {"gemm m=99999999999999999999 n=2 k=3", "m must be an integer, got '99999999999999999999'"},
      {"gemm m=1 n=2 k=3 alpha=one", "alpha must be a number, got 'one'"},
      {"gemm m=1 n=2 k=3 preshuffle=2", "preshuffle must be 0 or 1, got '2'"},
      {"gemm m=1 n=2 k=3 layout=rxr",
       "layout must be one of rcr, rrr, crr, ccr, got 'rxr', did you mean 'rcr'?"},
      {"gemm m=1 n=2 k=3 dtype=bf1",
       "dtype must be one of fp32, tf32, fp16, bf16, fp8, bf8, int8, int32, got 'bf1', did you "
       "mean 'bf16'?"},
      {"gemm m=1 n=2 k=3 dtype=fp8,bf8,fp8", "dtype takes at most 2 dtypes, got 3"},
      {"gemm m=1 n=2 k=3 epilogue=gelo",
       "epilogue: unknown epilogue op 'gelo', did you mean 'gelu'?"},
  };
  for (const auto& [line, message] : rows) {
    expect_error(ErrorCode::parse_error, "problem: " + message,
                 [text = line] { parse_problem(text); });
  }
}

TEST(Problem, RandomProblemsRoundTripAsLineAndJson) {
  const unsigned seed = fresh_seed();
  SCOPED_TRACE(seed);
  RandomSpecs random(seed);
  for (int i = 0; i < 10000; ++i) {
    const Problem problem = random.problem();
    ASSERT_EQ(parse_problem(to_string(problem)), problem) << to_string(problem);
    ASSERT_EQ(problem_from_json(to_json(problem)), problem) << to_json(problem);
  }
}

TEST(Problem, JsonHoldsEveryFieldButPackedStrides) {
  const Problem problem = parse_problem("gemm m=1 n=2 k=3 dtype=bf16 ld_b=7 epilogue=bias+relu");
  EXPECT_EQ(to_json(problem), R"({
  "op": "gemm",
  "m": 1,
  "n": 2,
  "k": 3,
  "batch": 1,
  "a": "bf16",
  "b": "bf16",
  "acc": "fp32",
  "out": "bf16",
  "d": "bf16",
  "layout": "rcr",
  "ld_b": 7,
  "alpha": 1,
  "beta": 0,
  "epilogue": "bias+relu",
  "clamp_lo": "-inf",
  "clamp_hi": "inf",
  "preshuffle": false,
  "pointer_arrays": false,
  "groups": 0,
  "grouping": "none",
  "check_groups": false,
  "group_strides": false,
  "group_int64": false,
  "scale_a": "none",
  "scale_b": "none",
  "scale_type": "fp32",
  "scale_quads": false,
  "gate": "none",
  "gate_interleaved": false,
  "indexing": "none",
  "index_room": 0,
  "quant": "none",
  "scales_by_column": false,
  "dims": "none",
  "merge_a": "none",
  "merge_b": "none",
  "sources_a": 1,
  "sources_b": 1
})");
}

TEST(Problem, JsonByHandMayLeaveFieldsOut) {
  EXPECT_EQ(problem_from_json(R"({"op": "gemm", "m": 1, "n": 2, "k": 3, "dtype": "fp8,bf8"})"),
            parse_problem("gemm m=1 n=2 k=3 dtype=fp8,bf8"));
}

TEST(Problem, RefusesJsonWithASentence) {
  const std::pair<std::string, std::string> rows[] = {
      {"",
       "line 1, column 1: syntax error while parsing value - unexpected end of input; expected "
       "'[', '{', or a literal"},
      {"[]", "the document must be an object, got []"},
      {"{}", "op is missing"},
      {R"({"op": "gem"})",
       "op must be one of gemm, norm, conv, fmha, route, got \"gem\", did you mean 'gemm'?"},
      {R"({"op": "gemm", "m": "1", "n": 2, "k": 3})", "m must be an integer, got '1'"},
      {R"({"op": "gemm", "m": [1], "n": 2, "k": 3})", "m must be a number or a word, got [1]"},
      {R"({"op": "gemm", "m": 1.0, "n": 2, "k": 3})", "m must be an integer, got '1.0'"},
      {R"({"op": "gemm", "m": 1, "m": 2})", "the key \"m\" is given twice in one object"},
  };
  for (const auto& [json, message] : rows) {
    expect_error(ErrorCode::parse_error, "problem: " + message,
                 [text = json] { problem_from_json(text); });
  }
}

TEST(Problem, PackedStridesFollowFromSizes) {
  struct Row {
    GemmLayout layout;
    std::int64_t ld_a, ld_b, batch_stride_a, batch_stride_b;
  };
  const Row rows[] = {
      {GemmLayout::rcr, 7, 7, 3 * 7, 5 * 7},
      {GemmLayout::rrr, 7, 5, 3 * 7, 7 * 5},
      {GemmLayout::crr, 3, 5, 7 * 3, 7 * 5},
      {GemmLayout::ccr, 3, 7, 7 * 3, 5 * 7},
  };
  for (const Row& row : rows) {
    GemmProblem problem = gemm_problem(DType::fp32, row.layout, 3, 5, 7);
    problem.epilogue = parse_epilogue("bias+add");
    const GemmProblem p = with_strides(problem);
    EXPECT_EQ(p.ld_a, row.ld_a);
    EXPECT_EQ(p.ld_b, row.ld_b);
    EXPECT_EQ(p.batch_stride_a, row.batch_stride_a);
    EXPECT_EQ(p.batch_stride_b, row.batch_stride_b);
    EXPECT_EQ(p.ld_c, 5);
    EXPECT_EQ(p.ld_out, 5);
    EXPECT_EQ(p.batch_stride_c, 15);
    EXPECT_EQ(p.batch_stride_out, 15);
    EXPECT_EQ(p.batch_stride_d[0], 5) << "a bias is a vector";
    EXPECT_EQ(p.batch_stride_d[1], 15);
    EXPECT_EQ(with_strides(p), p);
  }
}

TEST(Problem, GivenStridesStayAndLeadToBatchStrides) {
  GemmProblem problem = gemm_problem(DType::fp32, GemmLayout::rcr, 3, 5, 7);
  problem.ld_a = 100;
  problem.ld_out = 200;
  problem.batch_stride_b = 0;
  const GemmProblem p = with_strides(problem);
  EXPECT_EQ(p.ld_a, 100);
  EXPECT_EQ(p.batch_stride_a, 300);
  EXPECT_EQ(p.batch_stride_b, 0);
  EXPECT_EQ(p.batch_stride_out, 600);
  problem.m = problem.n = problem.k = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(with_strides(problem).batch_stride_c, std::numeric_limits<std::int64_t>::max());
}

TEST(ProblemHash, EqualProblemsHashEqual) {
  GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rcr, 1, 2, 3);
  GemmProblem q = p;
  p.beta = 0.0F;
  q.beta = -0.0F;
  ASSERT_EQ(p, q);
  EXPECT_EQ(hash_of(p), hash_of(q));
  // Padding must not be looked at.
  alignas(GemmProblem) unsigned char bytes[sizeof(GemmProblem)];
  std::memset(bytes, 0xab, sizeof(bytes));
  auto* r = new (bytes) GemmProblem(p);
  EXPECT_EQ(hash_of(*r), hash_of(p));
}

// Changing any one field changes the hash: a field left out would make two problems collide.
TEST(ProblemHash, EveryFieldCounts) {
  const std::string lines[] = {
      "m=2 n=1 k=1",
      "m=1 n=2 k=1",
      "m=1 n=1 k=2",
      "m=1 n=1 k=1 batch=2",
      "m=1 n=1 k=1 a=tf32 b=fp32",
      "m=1 n=1 k=1 b=tf32",
      "m=1 n=1 k=1 acc=int32",
      "m=1 n=1 k=1 out=tf32 d=fp32",
      "m=1 n=1 k=1 d=tf32",
      "m=1 n=1 k=1 layout=rrr",
      "m=1 n=1 k=1 ld_a=1",
      "m=1 n=1 k=1 ld_b=1",
      "m=1 n=1 k=1 ld_c=1",
      "m=1 n=1 k=1 ld_out=1",
      "m=1 n=1 k=1 ld_d0=1",
      "m=1 n=1 k=1 ld_d1=1",
      "m=1 n=1 k=1 ld_d2=1",
      "m=1 n=1 k=1 ld_d3=1",
      "m=1 n=1 k=1 batch_stride_a=1",
      "m=1 n=1 k=1 batch_stride_b=1",
      "m=1 n=1 k=1 batch_stride_c=1",
      "m=1 n=1 k=1 batch_stride_out=1",
      "m=1 n=1 k=1 batch_stride_d0=1",
      "m=1 n=1 k=1 batch_stride_d1=1",
      "m=1 n=1 k=1 batch_stride_d2=1",
      "m=1 n=1 k=1 batch_stride_d3=1",
      "m=1 n=1 k=1 alpha=2",
      "m=1 n=1 k=1 beta=2",
      "m=1 n=1 k=1 clamp_lo=2",
      "m=1 n=1 k=1 clamp_hi=2",
      "m=1 n=1 k=1 epilogue=relu",
      "m=1 n=1 k=1 epilogue=bias",
      "m=1 n=1 k=1 epilogue=multi_d_add1",
      "m=1 n=1 k=1 epilogue=multi_d_add2",
      "m=1 n=1 k=1 preshuffle=1",
      "m=1 n=1 k=1 pointer_arrays=1",
      "m=1 n=1 k=1",
  };
  std::unordered_set<std::uint64_t> hashes;
  for (const std::string& line : lines) hashes.insert(hash_of(parse_problem("gemm " + line)));
  EXPECT_EQ(hashes.size(), std::size(lines));
}

TEST(ProblemHash, RandomProblemsDoNotCollide) {
  const unsigned seed = fresh_seed();
  SCOPED_TRACE(seed);
  RandomSpecs random(seed);
  std::unordered_set<std::uint64_t> hashes;
  std::unordered_set<std::string> lines;
  for (int i = 0; i < 10000; ++i) {
    const Problem problem = random.problem();
    hashes.insert(hash_of(problem));
    lines.insert(to_string(problem));
  }
  EXPECT_EQ(hashes.size(), lines.size());
}

}  // namespace
}  // namespace tessera
