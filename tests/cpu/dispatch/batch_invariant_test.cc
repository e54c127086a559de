// The wish batch_invariant on CPUs: a row, an image or a sequence has the same bits whatever else
// is in the batch. Each test computes a large batch, then parts of it, and compares bytes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <random>
#include <vector>

#include "openmp_limit.h"
#include "tessera/dispatch/dispatcher.h"
#include "tessera/families/family.h"
#include "tessera/families/operations.h"
#include "tessera/measure/operands.h"
#include "tessera/spec/numeric.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

using Bytes = std::vector<char>;

class BatchInvariant : public testing::Test {
 protected:
  const std::uint64_t seed_ = std::random_device{}();
  std::mt19937_64 random_{seed_};
  OpenMpLimit limit_{2};
  Dispatcher dispatcher_{options()};

  BatchInvariant() { RecordProperty("seed", std::to_string(seed_)); }

  // Kernels that a second run need not compile.
  static DispatcherOptions options() {
    DispatcherOptions o;
    o.target = host_target().name;
    o.build.cache.folder = std::filesystem::current_path() / "batch_invariant_kernels";
    o.tuning_worker = TESSERA_WORKER;
    o.batch_invariant = true;
    return o;
  }
  std::int64_t draw(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  // Any number of threads, which must not matter either.
  void run(const Problem& problem, const Operands& operands, const std::string& force = {}) {
    RunOptions run;
    run.launch.threads = static_cast<int>(draw(1, 2));
    run.force = force;
    dispatcher_.run(problem, operands, run);
  }
  std::string words(const Problem& problem) const {
    return fmt::format("seed {}: '{}'", seed_, to_string(problem));
  }
};

const char* at(const void* data, std::int64_t offset) {
  return static_cast<const char*>(data) + offset;
}
Bytes bytes_at(const void* data, std::int64_t offset, std::int64_t count) {
  return {at(data, offset), at(data, offset + count)};
}

// The first byte that differs and how many do; empty where none does.
std::string difference(const Bytes& a, const Bytes& b, std::int64_t row) {
  const auto [first, other] = std::mismatch(a.begin(), a.end(), b.begin());
  if (first == a.end()) return {};
  const std::int64_t place = first - a.begin();
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += a[i] != b[i] ? 1 : 0;
  return fmt::format("{} of {} bytes differ, from byte {} of row {} on", count, a.size(),
                     place % row, place / row);
}

// ---- GEMM ----

constexpr std::int64_t kMostRows = 8192;
constexpr std::int64_t kRowCounts[] = {1, 2, 3, 5, 8, 16, 17, 31, 64, 129, 1000, 4097};

// Rows [first, first + p.m) of an A of kMostRows rows.
Bytes rows_of_a(const GemmProblem& p, const void* a, std::int64_t first) {
  const std::int64_t size = size_of(p.a);
  if (a_is_row_major(p.layout)) return bytes_at(a, first * p.k * size, p.m * p.k * size);
  Bytes rows;
  for (std::int64_t k = 0; k < p.k; ++k) {
    const Bytes column = bytes_at(a, (k * kMostRows + first) * size, p.m * size);
    rows.insert(rows.end(), column.begin(), column.end());
  }
  return rows;
}

class BatchInvariantGemm : public BatchInvariant {
 protected:
  void check(GemmProblem p) {
    p.m = kMostRows;
    SCOPED_TRACE(words(p));
    const measure::OwnedOperands all = measure::random_operands(p, seed_);
    run(p, all.operands);
    for (const std::int64_t m : kRowCounts) check_rows(p, std::get<GemmOperands>(all.operands), m);
  }

  void check_rows(GemmProblem p, GemmOperands o, std::int64_t m, const std::string& force = {}) {
    const std::int64_t first = draw(0, kMostRows - m), row = p.n * size_of(p.out);
    p.m = m;
    const Bytes expected = bytes_at(o.out, first * row, m * row);
    const Bytes a = rows_of_a(p, o.a, first);
    Bytes out(expected.size());
    o.a = a.data(), o.out = out.data();
    run(p, o, force);
    EXPECT_EQ(difference(out, expected, row), "")
        << m << " rows from " << first << " on, " << dispatcher_.explain(p).name << ' ' << force;
  }
};

TEST_F(BatchInvariantGemm, RowsHaveTheSameBits) {
  for (const DType type : {DType::fp32, DType::bf16, DType::fp16, DType::int8}) {
    for (const GemmLayout layout : {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::crr}) {
      check(gemm_problem(type, layout, 0, 130, 701));
    }
  }
}

TEST_F(BatchInvariantGemm, RowsOfLongSumsWithAnEpilogueHaveTheSameBits) {
  for (const DType type : {DType::fp32, DType::bf16}) {
    GemmProblem p = gemm_problem(type, GemmLayout::rcr, 0, 70, 2600);
    p.epilogue = parse_epilogue("bias+gelu");
    check(p);
  }
}

// Batches of matrices: the number of them does not matter either.
TEST_F(BatchInvariantGemm, MatricesOfABatchHaveTheSameBits) {
  GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rrr, 37, 64, 300);
  p.batch = 9;
  SCOPED_TRACE(words(p));
  const measure::OwnedOperands all = measure::random_operands(p, seed_);
  run(p, all.operands);
  GemmOperands o = std::get<GemmOperands>(all.operands);
  const std::int64_t size = p.m * p.n * size_of(p.out);
  const Bytes expected = bytes_at(o.out, 4 * size, size);
  o.a = at(o.a, 4 * p.m * p.k * 2), o.b = at(o.b, 4 * p.k * p.n * 2);
  Bytes out(expected.size());
  o.out = out.data();
  p.batch = 1;
  run(p, o);
  EXPECT_TRUE(out == expected);
}

// Kernels whose order of sums has the same words give the same bits: a few of them, others at each
// run.
TEST_F(BatchInvariantGemm, KernelsOfOneOrderGiveEqualBits) {
  for (const DType type : {DType::fp32, DType::bf16}) {
    for (const std::int64_t k : {301, 1500}) {
      GemmProblem p =
          gemm_problem(type, draw(0, 1) == 0 ? GemmLayout::rcr : GemmLayout::rrr, kMostRows, 96, k);
      SCOPED_TRACE(words(p));
      const measure::OwnedOperands all = measure::random_operands(p, seed_);
      run(p, all.operands);
      p.m = 24;
      std::vector<Considered> others = dispatcher_.explain(p).considered;
      std::erase_if(others, [](const Considered& c) { return !c.refusal.empty(); });
      EXPECT_GT(others.size(), 4U);
      std::shuffle(others.begin(), others.end(), random_);
      if (others.size() > 5) others.resize(5);
      for (const Considered& c : others) {
        check_rows(p, std::get<GemmOperands>(all.operands), p.m, c.name);
      }
    }
  }
}

// ---- normalisations ----

TEST_F(BatchInvariant, RowsOfNormalisationsHaveTheSameBits) {
  for (const NormKind kind : {NormKind::softmax, NormKind::rmsnorm, NormKind::layernorm}) {
    for (const DType type : {DType::fp32, DType::fp16, DType::bf16}) {
      NormProblem p{.kind = kind, .in = type, .weight = type, .out = type};
      p.rows = 700, p.columns = draw(0, 1) == 0 ? draw(200, 900) : draw(5000, 9000);
      p.scale = kind != NormKind::softmax;
      SCOPED_TRACE(words(p));
      const measure::OwnedOperands all = measure::random_operands(p, seed_);
      run(p, all.operands);
      const NormOperands whole = std::get<NormOperands>(all.operands);
      const std::int64_t row = p.columns * size_of(type);
      for (const std::int64_t rows : {1, 2, 3, 17, 300}) {
        const std::int64_t first = draw(0, 700 - rows);
        NormOperands o = whole;
        Bytes out(static_cast<std::size_t>(rows * row));
        o.in = at(whole.in, first * row), o.out = out.data();
        p.rows = rows;
        run(p, o);
        EXPECT_TRUE(out == bytes_at(whole.out, first * row, rows * row)) << rows << " rows";
      }
    }
  }
}

// ---- convolutions ----

// Images at any place of a batch, of forward convolutions and of gradients by images.
TEST_F(BatchInvariant, ImagesHaveTheSameBits) {
  constexpr const char* kLayers[] = {
      "conv c=32 k=48 h=14 w=14 y=3 x=3 pad_h=1 pad_w=1", "conv c=32 k=48 h=14 w=14 y=1 x=1",
      "conv c=24 k=24 g=24 h=15 w=13 y=3 x=3 pad_h=1 pad_w=1",
      "conv c=32 k=32 g=4 h=14 w=14 y=3 x=3 stride_h=2 stride_w=2 pad_h=1 pad_w=1"};
  for (const char* layer : kLayers) {
    for (const char* type : {"fp32", "bf16"}) {
      for (const char* direction : {"forward", "backward_data"}) {
        ConvProblem p = std::get<ConvProblem>(
            parse_problem(fmt::format("{} n=9 dtype={} direction={}", layer, type, direction)));
        SCOPED_TRACE(words(p));
        const measure::OwnedOperands all = measure::random_operands(p, seed_);
        run(p, all.operands);
        const bool is_forward = p.direction == ConvDirection::forward;
        const auto& whole = std::get<ConvOperands>(all.operands);
        const Tensors tensors = tensors_of(p);
        const auto image_bytes = [&](std::string_view name) {
          const auto* const found = std::find_if(tensors.begin(), tensors.end(),
                                                 [&](const Tensor& t) { return t.name == name; });
          return static_cast<std::int64_t>(found->bytes()) / 9;
        };
        const std::int64_t from = image_bytes(is_forward ? "in" : "grad_out");
        const std::int64_t to = image_bytes(is_forward ? "out" : "grad_in");
        for (const std::int64_t n : {1, 2, 5}) {
          const std::int64_t first = draw(0, 9 - n);
          ConvOperands o = whole;
          Bytes out(static_cast<std::size_t>(n * to));
          (is_forward ? o.in : o.grad_out) =
              at(is_forward ? whole.in : whole.grad_out, first * from);
          (is_forward ? o.out : o.grad_in) = out.data();
          p.n = n;
          run(p, o);
          EXPECT_TRUE(out == bytes_at(is_forward ? whole.out : whole.grad_in, first * to, n * to))
              << n << " images from " << first << " on";
        }
      }
    }
  }
}

// ---- attention ----

// Sequences of a padded batch: operand `name` of sequence b lies `bytes` behind the one before.
struct Sequences {
  FmhaProblem p;
  measure::OwnedOperands all;
  FmhaOperands o;
  std::vector<std::int32_t> queries, keys;

  std::int64_t of_q() const { return p.seqlen_q * p.heads * p.hdim * size_of(p.in); }
  std::int64_t of_k() const { return p.seqlen_k * p.heads_kv * p.hdim * size_of(p.in); }
};

class BatchInvariantAttention : public BatchInvariant {
 protected:
  // `least` and `most` queries of a sequence; 1 key at least.
  Sequences draw_sequences(FmhaProblem p, std::int64_t least) {
    p.lengths = FmhaLengths::padded;
    Sequences s{p, measure::random_operands(p, seed_), {}, {}, {}};
    s.o = std::get<FmhaOperands>(s.all.operands);
    for (std::int64_t b = 0; b < p.batch; ++b) {
      s.queries.push_back(static_cast<std::int32_t>(draw(least, p.seqlen_q)));
      s.keys.push_back(static_cast<std::int32_t>(draw(s.queries.back(), p.seqlen_k)));
    }
    s.queries[0] = static_cast<std::int32_t>(p.seqlen_q);
    s.keys[0] = static_cast<std::int32_t>(p.seqlen_k);
    s.o.seqlens_q = s.queries.data(), s.o.seqlens_k = s.keys.data();
    return s;
  }

  // Each sequence by itself has the bits that it has in the batch.
  void check(FmhaProblem p, std::int64_t least) {
    SCOPED_TRACE(words(p));
    const Sequences s = draw_sequences(p, least);
    run(s.p, s.o);
    for (std::int64_t b = 0; b < p.batch; ++b) {
      FmhaProblem one = s.p;
      FmhaOperands o = s.o;
      one.batch = 1;
      one.seqlen_q = s.queries[static_cast<std::size_t>(b)];
      one.seqlen_k = s.keys[static_cast<std::size_t>(b)];
      Bytes out(static_cast<std::size_t>(s.of_q()));
      o.q = at(s.o.q, b * s.of_q()), o.k = at(s.o.k, b * s.of_k());
      o.v = at(s.o.v, b * s.of_k()), o.out = out.data();
      o.seqlens_q = s.queries.data() + b, o.seqlens_k = s.keys.data() + b;
      run(one, o);
      const std::int64_t written = one.seqlen_q * p.heads * p.hdim * size_of(p.out);
      EXPECT_TRUE(bytes_at(out.data(), 0, written) == bytes_at(s.o.out, b * s.of_q(), written))
          << "sequence " << b << " of " << one.seqlen_q << " queries and " << one.seqlen_k
          << " keys";
    }
  }
};

TEST_F(BatchInvariantAttention, SequencesHaveTheSameBits) {
  for (const DType type : {DType::fp32, DType::fp16, DType::bf16}) {
    FmhaProblem p = fmha_problem(type, 6, 4, 2, 150, 400, 64);
    p.mask = FmhaMask::bottom_right;
    check(p, 17);
  }
}

// Few queries and many keys, which are cut into parts.
TEST_F(BatchInvariantAttention, DecodingSequencesHaveTheSameBits) {
  for (const DType type : {DType::fp32, DType::bf16}) {
    for (const std::int64_t queries : {1, 5}) {
      FmhaProblem p = fmha_problem(type, 5, 8, 2, queries, 5000, 64);
      p.mask = FmhaMask::bottom_right;
      check(p, 1);
    }
  }
}

// The pages of a cache in another order hold the same keys.
TEST_F(BatchInvariantAttention, PagesInAnotherOrderGiveTheSameBits) {
  FmhaProblem p = fmha_problem(DType::bf16, 3, 4, 2, 1, 3000, 64);
  p.lengths = FmhaLengths::padded;
  p.pages = FmhaPages::table;
  p.page_size = 16;
  SCOPED_TRACE(words(p));
  const Sequences s = draw_sequences(p, 1);
  const std::int64_t needed = pages_needed(s.p), pages = needed * p.batch;
  std::vector<std::int32_t> places(static_cast<std::size_t>(pages));
  std::iota(places.begin(), places.end(), 0);
  FmhaOperands o = s.o;
  o.page_table = places.data();
  run(s.p, o);
  const std::int64_t page = p.page_size * p.heads_kv * p.hdim * 2;
  const Bytes k = bytes_at(o.k, 0, pages * page), v = bytes_at(o.v, 0, pages * page);
  const Bytes expected = bytes_at(o.out, 0, p.batch * s.of_q());
  std::shuffle(places.begin(), places.end(), random_);
  Bytes moved_k(k.size()), moved_v(v.size()), out(expected.size());
  for (std::int64_t i = 0; i < pages; ++i) {
    const std::int64_t to = places[static_cast<std::size_t>(i)] * page;
    std::memcpy(moved_k.data() + to, k.data() + i * page, static_cast<std::size_t>(page));
    std::memcpy(moved_v.data() + to, v.data() + i * page, static_cast<std::size_t>(page));
  }
  o.k = moved_k.data(), o.v = moved_v.data(), o.out = out.data();
  run(s.p, o);
  EXPECT_TRUE(out == expected);
}

// A causal prefill at once, and in chunks of several sizes, all multiples of the block of rows.
TEST_F(BatchInvariantAttention, ChunksOfAPrefillGiveTheSameBits) {
  constexpr std::int64_t kChunk = 192, kTokens = 4 * kChunk;
  for (const DType type : {DType::fp32, DType::bf16}) {
    FmhaProblem p = fmha_problem(type, 1, 4, 2, kTokens, kTokens, 64);
    p.mask = FmhaMask::bottom_right;
    SCOPED_TRACE(words(p));
    const measure::OwnedOperands all = measure::random_operands(p, seed_);
    run(p, all.operands);
    const auto& whole = std::get<FmhaOperands>(all.operands);
    const std::int64_t token = p.heads * p.hdim * size_of(type);
    for (std::int64_t first = 0; first < kTokens;) {
      const std::int64_t chunk = std::min(kTokens - first, kChunk * draw(1, 2));
      p.seqlen_q = chunk, p.seqlen_k = first + chunk;
      FmhaOperands o = whole;
      Bytes out(static_cast<std::size_t>(chunk * token));
      o.q = at(whole.q, first * token), o.out = out.data();
      run(p, o);
      EXPECT_TRUE(out == bytes_at(whole.out, first * token, chunk * token))
          << chunk << " tokens from " << first << " on";
      first += chunk;
    }
  }
}

// Gradients of a sequence, too.
TEST_F(BatchInvariantAttention, GradientsOfSequencesHaveTheSameBits) {
  FmhaProblem p = fmha_problem(DType::fp32, 3, 2, 2, 100, 130, 32);
  p.kind = FmhaKind::backward;
  SCOPED_TRACE(words(p));
  const measure::OwnedOperands all = measure::random_operands(p, seed_);
  run(p, all.operands);
  const auto& whole = std::get<FmhaOperands>(all.operands);
  const std::int64_t of_q = p.seqlen_q * p.heads * p.hdim * 4;
  const std::int64_t of_k = p.seqlen_k * p.heads * p.hdim * 4;
  FmhaOperands o = whole;
  Bytes dq(static_cast<std::size_t>(of_q)), dk(static_cast<std::size_t>(of_k)), dv = dk;
  o.q = at(whole.q, of_q), o.dout = at(whole.dout, of_q);
  o.out = const_cast<char*>(at(whole.out, of_q));
  o.lse = whole.lse + p.heads * p.seqlen_q;
  o.k = at(whole.k, of_k), o.v = at(whole.v, of_k);
  o.dq = dq.data(), o.dk = dk.data(), o.dv = dv.data();
  p.batch = 1;
  run(p, o);
  EXPECT_TRUE(dq == bytes_at(whole.dq, of_q, of_q));
  EXPECT_TRUE(dk == bytes_at(whole.dk, of_k, of_k));
  EXPECT_TRUE(dv == bytes_at(whole.dv, of_k, of_k));
}

// ---- refusals ----

TEST_F(BatchInvariant, APinnedKernelMustBeInvariantToo) {
  const GemmProblem p = gemm_problem(DType::fp32, GemmLayout::rcr, 8, 96, 300);
  std::string stream;
  for (const KernelSpec& spec : kernels_for(p, dispatcher_.target())) {
    if (spec.algorithm.pipeline == Pipeline::stream) stream = name_of(spec);
  }
  if (stream.empty()) GTEST_SKIP() << "no kernel streams here";
  try {
    dispatcher_.explain(p, {.force = stream});
    ADD_FAILURE() << stream;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("whichever of m and n is smaller"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tessera
