// What a caller's mistakes get: a code and one whole sentence, and an output that nobody touched.
#include "fixture.h"

namespace tessera::api_test {
namespace {

struct ApiErrors : ApiTest {
  Dispatcher dispatcher{options()};

  // 8 x 8 in fp32: 256 bytes each. beta and the epilogue make the call read every operand.
  static GemmProblem square() {
    GemmProblem p = gemm_problem(DType::fp32, GemmLayout::rcr, 8, 8, 8);
    p.beta = 1;
    p.epilogue = parse_epilogue("bias+add");
    return p;
  }
};

template <typename T>
T* shifted(T* pointer, int bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return static_cast<T*>(static_cast<Byte*>(pointer) + bytes);
}

TEST_F(ApiErrors, MistakenOperands) {
  struct Case {
    const char* what;
    void (*spoil)(GemmOperands&);
    const char* message;
  };
  const Case cases[] = {
      {"null a", [](GemmOperands& o) { o.a = nullptr; },
       "gemm: a must not be null: 8 rows of 8 elements are needed"},
      {"null b", [](GemmOperands& o) { o.b = nullptr; },
       "gemm: b must not be null: 8 rows of 8 elements are needed"},
      {"null c", [](GemmOperands& o) { o.c = nullptr; },
       "gemm: c must not be null: 8 rows of 8 elements are needed"},
      {"null bias", [](GemmOperands& o) { o.d[0] = nullptr; },
       "gemm: d0 must not be null: 1 rows of 8 elements are needed"},
      {"null d1", [](GemmOperands& o) { o.d[1] = nullptr; },
       "gemm: d1 must not be null: 8 rows of 8 elements are needed"},
      {"null out", [](GemmOperands& o) { o.out = nullptr; },
       "gemm: out must not be null: 8 rows of 8 elements are needed"},
      {"odd a", [](GemmOperands& o) { o.a = shifted(o.a, 1); },
       "gemm: a must be aligned to 4 bytes for fp32, got an address 1 past a multiple of that"},
      {"odd d1", [](GemmOperands& o) { o.d[1] = shifted(o.d[1], 2); },
       "gemm: d1 must be aligned to 4 bytes for fp32, got an address 2 past a multiple of that"},
      {"odd out", [](GemmOperands& o) { o.out = shifted(o.out, 3); },
       "gemm: out must be aligned to 4 bytes for fp32, got an address 3 past a multiple of that"},
      {"out is a", [](GemmOperands& o) { o.a = o.out; },
       "gemm: out must not overlap a, got out 0 bytes after the start of a, which spans 256 bytes"},
      {"out meets b", [](GemmOperands& o) { o.b = shifted(o.out, -32); },
       "gemm: out must not overlap b, got out 32 bytes after the start of b, which spans 256 "
       "bytes"},
      {"out meets c", [](GemmOperands& o) { o.c = shifted(o.out, 64); },
       "gemm: out must not overlap c unless it is the same matrix with equal strides, got out 64 "
       "bytes before the start of c, which spans 256 bytes"},
      {"out is the bias", [](GemmOperands& o) { o.d[0] = o.out; },
       "gemm: out must not overlap d0, got out 0 bytes after the start of d0, which spans 32 "
       "bytes"},
  };
  const measure::OwnedOperands owned = operands_of(square());
  const std::string before = output_bytes(square(), owned);
  for (const Case& c : cases) {
    GemmOperands operands = std::get<GemmOperands>(owned.operands);
    c.spoil(operands);
    EXPECT_EQ(error_of([&] { dispatcher.run(square(), operands, with(1, "", false)); }),
              std::string("invalid_argument: ") + c.message)
        << c.what;
    EXPECT_TRUE(output_bytes(square(), owned) == before) << c.what;
  }
  EXPECT_EQ(error_of([&] { dispatcher.run(square(), owned.operands, with(1)); }), "no error");
}

TEST_F(ApiErrors, MistakenProblems) {
  struct Case {
    const char* what;
    void (*spoil)(GemmProblem&);
    const char* message;
  };
  const Case cases[] = {
      {"negative k", [](GemmProblem& p) { p.k = -3; }, "gemm: k must be at least 0, got -3"},
      {"too large", [](GemmProblem& p) { p.m = p.n = p.k = std::int64_t{1} << 30; },
       "gemm: m x n x k x batch x 4 bytes must be below 2^63, got 1073741824 x 1073741824 x "
       "1073741824 x 1 x 4"},
      {"short stride", [](GemmProblem& p) { p.ld_a = 7; },
       "gemm: ld_a must be at least 8 (the row length of A for rcr), got 7"},
      {"negative batch stride", [](GemmProblem& p) { p.batch_stride_b = -1; },
       "gemm: batch_stride_b must be at least 0, got -1"},
  };
  const measure::OwnedOperands owned = operands_of(square());
  const std::string before = output_bytes(square(), owned);
  for (const Case& c : cases) {
    GemmProblem problem = square();
    c.spoil(problem);
    EXPECT_EQ(error_of([&] { dispatcher.run(problem, owned.operands); }),
              std::string("invalid_argument: ") + c.message)
        << c.what;
    EXPECT_TRUE(output_bytes(square(), owned) == before) << c.what;
  }
}

TEST_F(ApiErrors, UnknownForcedKernel) {
  const GemmProblem p = small();
  const std::string good = "gemm_fp32_rcr_packab_48x192x256_0x0x1_4x8x1_generic";
  const auto force = [&](const std::string& name) {
    return error_of([&] { dispatcher.kernel_for(p, with(1, name)); });
  };
  EXPECT_EQ(force("gemm_fp32_rcr_pakab_48x192x256_0x0x1_4x8x1_generic"),
            "not_found: unknown kernel 'gemm_fp32_rcr_pakab_48x192x256_0x0x1_4x8x1_generic', did "
            "you mean '" +
                good + "'?");
  const std::string cannot_run = "' cannot run 'gemm m=37 n=45 k=61' on 'generic': ";
  EXPECT_EQ(force("gemm_fp32_rcr_packab_48x192x256_0x0x1_4x8x1_avx2"),
            "illegal_spec: kernel 'gemm_fp32_rcr_packab_48x192x256_0x0x1_4x8x1_avx2" + cannot_run +
                "the kernel is for target 'avx2', the problem is for 'generic'");
  EXPECT_EQ(force("gemm_fp32_rrr_packab_48x192x256_0x0x1_4x8x1_generic")
                .find("illegal_spec: kernel 'gemm_fp32_rrr_packab_48x192x256_0x0x1_4x8x1_generic" +
                      cannot_run),
            0U);
  EXPECT_EQ(dispatcher.registry().size(), 0U);  // nothing was built on the way
}

TEST_F(ApiErrors, PackingWithoutAPlace) {
  GemmProblem p = small();
  p.preshuffled_b = true;
  const std::size_t bytes = dispatcher.packed_bytes(p);
  EXPECT_GE(bytes, static_cast<std::size_t>(p.n * p.k * 4));
  float b = 0;
  EXPECT_EQ(error_of([&] { dispatcher.pack(p, GemmOperands{.b = &b}, nullptr); }),
            "invalid_argument: pack: packed must not be null: " + std::to_string(bytes) +
                " bytes are to be packed");
  EXPECT_EQ(error_of([&] { dispatcher.pack(small(), GemmOperands{.b = &b}, &b); }),
            "invalid_argument: pack: the problem must have an operand that is packed ahead "
            "(preshuffle=1), got 'gemm m=37 n=45 k=61'");
}

TEST_F(ApiErrors, TargetsThatDoNotExist) {
  EXPECT_EQ(error_of([&] {
              Dispatcher unknown(options("avx51"));
            }).find("not_found: unknown target 'avx51', did you mean 'avx512'?"),
            0U);
  const std::string row = (folder / "row.json").string();
  std::string text = to_json(load_target("generic"));
  const std::size_t at = text.find("\"vector_bytes\": ");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, text.find(',', at) - at, "\"vector_bytes\": -16");
  write_file(row, text);
  EXPECT_EQ(
      error_of([&] { Dispatcher malformed(options(row)); }),
      "parse_error: " + row + ": target row: vector_bytes must be an integer not below 0, got -16");
}

TEST_F(ApiErrors, CompilerThatIsMissing) {
  DispatcherOptions o = options();
  o.build.compiler = "no-such-compiler";
  Dispatcher without(o);
  const std::string message = error_of([&] { without.kernel_for(small()); });
  EXPECT_EQ(message.find("compile_failed: "), 0U) << message;
  EXPECT_NE(message.find("no-such-compiler"), std::string::npos) << message;
}

}  // namespace
}  // namespace tessera::api_test
