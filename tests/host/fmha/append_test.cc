// Appending to a cache without running a kernel: which problems are valid, their tensors, counts
// and kernels, and the reference against plain loops.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "host/families/asked.h"
#include "host/fmha/append_problems.h"
#include "host/fmha/plain_append.h"
#include "host/spec/expect_error.h"
#include "tessera/base/hash.h"
#include "tessera/families/fmha/append.h"
#include "tessera/families/operands.h"
#include "tessera/targets/targets.h"

namespace tessera::fmha {
namespace {

const std::string kAppendHead = "fmha kind=append ";
constexpr const char* kAppendSizes = "batch=2 heads=4 seqlen_q=6 seqlen_k=9 hdim=8 ";

Problem append_of(const std::string& fields) {
  return parse_problem(kAppendHead + kAppendSizes + fields);
}

// ---- which problems are valid ----

struct RefusedAppend {
  const char *fields, *sentence;
};
constexpr RefusedAppend kRefusedAppends[] = {
    {"mask=top_left", "fmha: mask must be none with kind=append, got top_left"},
    {"window_left=3", "fmha: window_left must be -1 with kind=append, got 3"},
    {"sink=2", "fmha: sink must be 0 with kind=append, got 2"},
    {"skip_q=1", "fmha: skip_q must be 0 with kind=append, got 1"},
    {"slope_stride=4", "fmha: slope_stride must be 0 with kind=append, got 4"},
    {"scale=2", "fmha: scale must be left out with kind=append, got 2"},
    {"soft_cap=2", "fmha: soft_cap must be 0 with kind=append, got 2"},
    {"bias=alibi", "fmha: bias must be none with kind=append, got alibi"},
    {"bias_stride_k=1", "fmha: bias_stride_k must be left out with kind=append, got 1"},
    {"p_drop=0.5", "fmha: p_drop must be 0 with kind=append, got 0.5"},
    {"lse=1", "fmha: lse must be 0 with kind=append, got 1"},
    {"dtype=bf16 out=fp32", "fmha: out must be bf16 like in with kind=append, got fp32"},
    {"dtype=fp8 out=fp8", "fmha: in must be fp32, fp16 or bf16, got fp8"},
    {"dtype=bf16 qscale=per_token",
     "fmha: qscale must be none with in=bf16, only fp8 and bf8 have factors, got per_token"},
    {"dtype=bf16 kv=fp8 qscale=kv_block",
     "fmha: qscale must be none, per_tensor, per_head or per_token with kind=append and kv=fp8, "
     "got "
     "kv_block"},
    {"rotate_q=1", "fmha: rotate_q must be 0 with rotary=none, got 1"},
    {"rotary_dim=4", "fmha: rotary_dim must be 0 with rotary=none, got 4"},
    {"rotary_positions=9", "fmha: rotary_positions must be left out with rotary=none, got 9"},
    {"rotary=half rotary_dim=10", "fmha: rotary_dim must be at most 8 (hdim), got 10"},
    {"rotary=half rotary_dim=-2", "fmha: rotary_dim must be at least 0, got -2"},
    {"rotary=interleaved rotary_dim=5",
     "fmha: rotary_dim must be even, because pairs are turned, got 5"},
    {"rotary=half rotary_positions=-3", "fmha: rotary_positions must be at least 0, got -3"},
    {"rotary=half rotary_positions=2147483648",
     "fmha: rotary_positions must be at most 2147483647, got 2147483648"},
    {"tokens_k=19",
     "fmha: tokens_k must be left out or 18 (batch x seqlen_k) with lengths=equal, got 19"},
    {"pages=table page_size=4 tokens_k=18",
     "fmha: tokens_k must be left out with pages=table, got 18"},
    {"pages=table page_size=4 max_pages=2",
     "fmha: max_pages must be at least 3, the pages of 4 tokens that seqlen_k=9 needs, got 2"},
    {"pages=list", "fmha: page_size must be at least 1, got 0"},
    {"page_size=4", "fmha: page_size must be left out with pages=none, got 4"},
    {"pages=list page_size=6 cache_layout=vectorized",
     "fmha: page_size must be a multiple of 4, 16 bytes of fp32, with cache_layout=vectorized, got "
     "6"},
    {"pages=table page_size=4 k_stride_s=31",
     "fmha: strides must not fold k onto itself: 31 is less than the 32 elements that smaller "
     "strides span"},
    {"lengths=packed tokens_k=19",
     "fmha: tokens_k must be left out or 18 (batch x seqlen_k) with lengths=packed, got 19"},
    {"tokens_q=11",
     "fmha: tokens_q must be left out or 12 (batch x seqlen_q) with lengths=equal, got 11"},
    {"lengths=packed tokens_q=-2", "fmha: tokens_q must be at least 0, got -2"},
    {"lengths=packed k_new_stride_b=7",
     "fmha: k_new_stride_b must be left out or 0 with lengths=packed, where all sequences are one "
     "run of tokens, got 7"},
    {"rotary=half rotate_q=1 q_turned_stride_h=8",
     "fmha: q_turned_stride_h must be left out with kind=append, got 8"},
    {"q_stride_s=8", "fmha: q_stride_s must be left out with rotate_q=0, got 8"},
    {"out_stride_h=8", "fmha: out_stride_h must be left out with rotate_q=0, got 8"},
    {"k_stride_s=31",
     "fmha: strides must not fold k onto itself: 31 is less than the 32 elements that smaller "
     "strides span"},
    {"v_new_stride_s=-1", "fmha: strides of v_new must be at least 0, got -1"},
    {"rotary=half rotate_q=1 out_stride_h=7",
     "fmha: strides must not fold out onto itself: 7 is less than the 8 elements that smaller "
     "strides span"},
};

TEST(FmhaAppendValidate, SaysWhichFieldIsWrong) {
  for (const RefusedAppend& row : kRefusedAppends) {
    EXPECT_EQ(refusal(append_of(row.fields)), row.sentence) << row.fields;
  }
  EXPECT_EQ(
      refusal(parse_problem(kAppendHead + "heads=2 seqlen_q=1 seqlen_k=4 hdim=7 rotary=half")),
      "fmha: rotary_dim must be even, because pairs are turned, got 7 (hdim)");
  EXPECT_EQ(refusal(parse_problem(kAppendHead + "heads=6 heads_kv=4 seqlen_q=1 seqlen_k=4 hdim=8")),
            "fmha: heads_kv must divide heads, got heads_kv=4 and heads=6");
  EXPECT_EQ(
      refusal(parse_problem(kAppendHead + "batch=2147483647 heads=1048576 seqlen_q=1 seqlen_k=2000 "
                                          "hdim=1")),
      "fmha: bytes of k, batch x seqlen_k x heads_kv x hdim x 4, must be below 2^63, got "
      "2147483647 x 2000 x 1048576 x 1 x 4");
}

TEST(FmhaAppendValidate, AttentionHasNoneOfItsFields) {
  const auto of = [](const char* fields) {
    return refusal(parse_problem(std::string("fmha ") + kAppendSizes + fields));
  };
  EXPECT_EQ(of("rotary=half"), "fmha: rotary must be none with kind=forward, got half");
  EXPECT_EQ(of("rotate_q=1"), "fmha: rotate_q must be 0 with kind=forward, got 1");
  EXPECT_EQ(of("rotary_dim=4"), "fmha: rotary_dim must be 0 with kind=forward, got 4");
  EXPECT_EQ(of("rotary_positions=4"),
            "fmha: rotary_positions must be left out with kind=forward, got 4");
  EXPECT_EQ(of("k_new_stride_s=4"),
            "fmha: k_new_stride_s must be left out with kind=forward, got 4");
}

TEST(FmhaAppendValidate, AcceptsWhatIsAllowed) {
  for (const char* fields :
       {"", "rotary=half", "rotary=interleaved rotary_dim=4", "rotary=half rotary_positions=0",
        "rotary=half rotate_q=1 dtype=bf16", "lengths=packed tokens_q=0", "lengths=padded",
        "k_stride_d=9 k_stride_s=1 k_stride_h=72 k_stride_b=288", "v_new_stride_h=0",
        "pages=table page_size=4 check_pages=1", "pages=list page_size=16 cache_layout=vectorized",
        "pages=list page_size=4 page_entries=1", "k_new_stride_b=0 v_new_stride_s=0"}) {
    EXPECT_EQ(refusal(append_of(fields)), "") << fields;
  }
  const std::uint64_t seed = std::random_device{}();
  RandomFmhas random(seed);
  for (int i = 0; i < 500; ++i) {
    const Problem p = random_append(random, 300, 300);
    EXPECT_EQ(refusal(p), "") << "seed " << seed << ": " << to_string(p);
    EXPECT_EQ(parse_problem(to_string(p)), p) << seed;
  }
}

// ---- tensors ----

std::map<std::string_view, Tensor> append_tensors_of(const std::string& fields) {
  std::map<std::string_view, Tensor> all;
  for (const Tensor& tensor : tensors(append_of(fields))) all[tensor.name] = tensor;
  return all;
}
using AppendSizes = std::vector<std::int64_t>;
AppendSizes sizes_of(const Tensor& t) {
  return {t.sizes.begin(), t.sizes.begin() + std::int64_t(t.rank)};
}

TEST(FmhaAppendTensors, CachesAreUpdated) {
  const auto all = append_tensors_of("heads_kv=2 hdim_v=16 dtype=bf16");
  EXPECT_EQ(all.size(), 5U);
  EXPECT_EQ(sizes_of(all.at("k")), (AppendSizes{8, 9, 2, 2}));
  EXPECT_EQ(sizes_of(all.at("v")), (AppendSizes{16, 9, 2, 2}));
  EXPECT_EQ(sizes_of(all.at("k_new")), (AppendSizes{8, 6, 2, 2}));
  EXPECT_EQ(sizes_of(all.at("v_new")), (AppendSizes{16, 6, 2, 2}));
  EXPECT_EQ(sizes_of(all.at("seqlens_k")), (AppendSizes{2}));
  EXPECT_EQ(all.at("seqlens_k").most, 9 - 6);
  EXPECT_EQ(all.at("k").access, Access::update);
  EXPECT_EQ(all.at("v").access, Access::update);
  EXPECT_EQ(all.at("v_new").access, Access::read);
  EXPECT_EQ(all.at("k").dtype, DType::bf16);
}

TEST(FmhaAppendTensors, PagesAreUpdatedInPlace) {
  const auto all = append_tensors_of(
      "heads_kv=2 hdim_v=16 dtype=bf16 pages=table page_size=8 num_pages=7 cache_layout=vectorized "
      "check_pages=1");
  EXPECT_EQ(all.size(), 7U);
  EXPECT_EQ(sizes_of(all.at("k")), (AppendSizes{8, 8, 1, 2, 7}));
  EXPECT_EQ(sizes_of(all.at("v")), (AppendSizes{8, 16, 1, 2, 7}));
  EXPECT_EQ(all.at("v").access, Access::update);
  EXPECT_EQ(sizes_of(all.at("page_table")), (AppendSizes{2, 2}));
  EXPECT_EQ(all.at("page_table").most, 6);
  EXPECT_EQ(sizes_of(all.at("seqlens_k")), (AppendSizes{2}));
  EXPECT_EQ(all.at("bad_page").access, Access::write);
}

TEST(FmhaAppendTensors, TablesAndQueriesAreThereWhereTheyAreUsed) {
  const auto all =
      append_tensors_of("rotary=half rotary_dim=6 rotate_q=1 lengths=packed tokens_q=11");
  EXPECT_EQ(all.size(), 10U);
  EXPECT_EQ(sizes_of(all.at("cos")), (AppendSizes{3, 9}));
  EXPECT_EQ(sizes_of(all.at("sin")), (AppendSizes{3, 9}));
  EXPECT_EQ(sizes_of(all.at("q")), (AppendSizes{8, 11, 4, 1}));
  EXPECT_EQ(sizes_of(all.at("out")), (AppendSizes{8, 11, 4, 1}));
  EXPECT_EQ(sizes_of(all.at("seqlens_q")), (AppendSizes{3}));
  EXPECT_EQ(all.at("out").access, Access::write);
}

// ---- a caller's operands ----

class FmhaAppendOperands : public testing::Test {
 protected:
  FmhaOperands& operands() { return std::get<FmhaOperands>(c_.operands); }
  std::string append_refusal() {
    return error_of([&] { validate_operands(family(), c_.problem, c_.operands); },
                    ErrorCode::invalid_argument);
  }
  PlainCase c_{fmha_of(parse_problem(
      "fmha kind=append batch=2 heads=3 seqlen_q=4 seqlen_k=4 hdim=8 rotary=half rotate_q=1"))};
};

TEST_F(FmhaAppendOperands, OutMayBeQ) {
  EXPECT_EQ(append_refusal(), "");
  operands().out = const_cast<void*>(operands().q);
  EXPECT_EQ(append_refusal(), "");
  operands().out = static_cast<std::byte*>(operands().out) + 4;
  EXPECT_EQ(append_refusal(),
            "fmha: out must not overlap q unless it is the same matrix with equal strides, got out "
            "4 bytes after the start of q, which spans 768 bytes");
}

// The caches have the sizes of q here.
TEST_F(FmhaAppendOperands, CachesMustBeApart) {
  operands().k = operands().q;
  EXPECT_EQ(
      append_refusal(),
      "fmha: k must not overlap q, got k 0 bytes after the start of q, which spans 768 bytes");
  c_ = PlainCase(c_.problem);
  operands().v = operands().k;
  EXPECT_EQ(
      append_refusal(),
      "fmha: k must not overlap v, got k 0 bytes after the start of v, which spans 768 bytes");
  c_ = PlainCase(c_.problem);
  operands().v_new = operands().v;
  EXPECT_NE(append_refusal(), "");
  c_ = PlainCase(c_.problem);
  operands().cos = nullptr;
  EXPECT_EQ(append_refusal(), "fmha: cos must not be null: 4 rows of 4 elements are needed");
}

// Queries, keys and values of a token side by side: the queries are turned where they lie.
TEST_F(FmhaAppendOperands, OneTensorMayHoldAllNewHeads) {
  const std::string token = std::to_string((4 + 2 + 2) * 8), batch = std::to_string(3 * 64);
  std::string line =
      "fmha kind=append batch=2 heads=4 heads_kv=2 seqlen_q=3 seqlen_k=9 hdim=8 "
      "rotary=half rotate_q=1";
  for (const char* name : {"q", "out", "k_new", "v_new"}) {
    line += fmt::format(" {0}_stride_s={1} {0}_stride_b={2}", name, token, batch);
  }
  c_ = PlainCase(fmha_of(parse_problem(line)));
  std::vector<float> all(2 * 3 * 64);
  operands().q = operands().out = all.data();
  operands().k_new = &all[4 * 8], operands().v_new = &all[6 * 8];
  EXPECT_EQ(append_refusal(), "");
  operands().k_new = &all[4 * 8 - 1];
  EXPECT_EQ(append_refusal(),
            "fmha: out must not overlap k_new, got out 124 bytes before the start of k_new, which "
            "spans 1344 bytes");
}

// ---- counts ----

TEST(FmhaAppendCounts, EveryElementMovesOnce) {
  const Problem p =
      append_of("heads_kv=2 hdim_v=16 dtype=bf16 rotary=half rotary_dim=4 rotate_q=1");
  const double keys = 2 * 6 * 2, queries = 2 * 6 * 4;
  const double moved = keys * (8 + 16) + queries * 8;
  EXPECT_EQ(flops(p), moved + 3 * 4 * (keys + queries));
  EXPECT_EQ(bytes(p), 2 * 2 * moved + 4 * 9 * 4 + 4 * 2);
  EXPECT_TRUE(family().facts(p).bandwidth_bound);
  EXPECT_EQ(family().model_key(signature_of(p)), "append_bf16");
}

// ---- the reference ----

void fill_append(const FmhaProblem& p, RandomFmhas& random, PlainCase& c) {
  c.fill(random);
  for (const char* cache : {"k", "v"}) {
    const std::size_t tensor = c.index_of(cache);
    for (std::int64_t i = 0; i < c.list[tensor].elements(); ++i)
      c.store(tensor, i, random.normal());
  }
  for (std::int64_t b = 0; b < p.batch; ++b) {
    c.store("seqlens_k", b, double(random.integer(-2, p.seqlen_k + 1)));
  }
}

TEST(FmhaAppendReference, AgreesWithPlainLoops) {
  const std::uint64_t seed = std::random_device{}();
  RandomFmhas random(seed);
  for (int i = 0; i < 200; ++i) {
    const FmhaProblem given = random_append(random, 12, 40);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, to_string(Problem(given))));
    PlainCase c(given);
    fill_append(c.p, random, c);
    const Reference before = reference(given, c.operands, {});
    std::map<std::pair<std::string_view, std::int64_t>, int> writes;
    for_each_appended(c.p, std::get<FmhaOperands>(c.operands),
                      [&](std::string_view name, std::int64_t at, long double value) {
                        c.store(name, at, static_cast<double>(value));
                        ++writes[{name, at}];
                      });
    const Mismatch mismatch = compare(given, c.operands, before);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
    EXPECT_TRUE(verify(given, c.operands).ok);
    std::vector<std::pair<std::string_view, std::int64_t>> places;  // that one token becomes
    for (const auto& [place, count] : writes) {
      if (count == 1) places.push_back(place);
    }
    if (places.empty()) continue;
    const auto [name, at] = random.one_of(places);
    const double right = c.load(name, at);
    const bool is_coarse = size_of(kv_type(c.p)) == 1 && (name == "k" || name == "v");
    c.store(
        name, at,
        is_coarse && right != 0 ? -right : right + (is_coarse ? 8 : 0.25) + std::abs(right) / 16);
    EXPECT_EQ(compare(given, c.operands, before).bad, 1) << name << " " << at;
    EXPECT_EQ(verify(given, c.operands).bad, 1) << name << " " << at;
  }
}

// What is not to be written must stay, be it by one bit.
TEST(FmhaAppendReference, NoticesWhatChangedElsewhere) {
  const std::uint64_t seed = std::random_device{}();
  RandomFmhas random(seed);
  for (const DType in : kTypes) {
    FmhaProblem p = fmha_of(parse_problem(
        "fmha kind=append batch=2 heads=4 heads_kv=2 seqlen_q=3 seqlen_k=9 hdim=8 lengths=padded "
        "rotary=half rotary_positions=7"));
    p.in = p.out = p.dtype_bias = in;
    PlainCase c(p);
    fill_append(p, random, c);
    c.store("seqlens_k", 0, 2), c.store("seqlens_k", 1, 6);
    c.store("seqlens_q", 0, 2), c.store("seqlens_q", 1, 3);
    for_each_appended(c.p, std::get<FmhaOperands>(c.operands),
                      [&](std::string_view name, std::int64_t at, long double value) {
                        c.store(name, at, static_cast<double>(value));
                      });
    const Reference before = reference(p, c.operands, {});
    EXPECT_TRUE(compare(p, c.operands, before).ok) << seed;
    // The first sequence has positions 2 and 3, the second one 6; 7 has no row in the tables.
    for (const std::int64_t position : {0, 1, 4, 8, 9 + 5, 9 + 7, 9 + 8}) {
      const std::int64_t at = position * 16 + 5;
      const double was = c.load("k", at);
      c.store("k", at, was * (1 + epsilon(in)));
      EXPECT_EQ(compare(p, c.operands, before).bad, 1) << position << " seed " << seed;
      c.store("k", at, was);
    }
    EXPECT_TRUE(compare(p, c.operands, before).ok);
  }
}

// The rows of a large cache that are looked at include rows that are written.
TEST(FmhaAppendReference, LooksAtNewTokensOfLargeCaches) {
  const std::uint64_t seed = std::random_device{}();
  RandomFmhas random(seed);
  const FmhaProblem p =
      fmha_of(parse_problem("fmha kind=append heads=1 seqlen_q=1 seqlen_k=20000 hdim=8"));
  PlainCase c(p);
  fill_append(p, random, c);
  c.store("seqlens_k", 0, 12345);
  const Reference some = reference(p, c.operands, {.elements = 1600});
  EXPECT_LT(some.runs.size(), 200U);
  std::set<std::int64_t> offsets;
  for (const Reference::Run& run : some.runs) offsets.insert(run.offset);
  EXPECT_TRUE(offsets.contains(12345 * 8 * 4)) << seed;
}

// Where a token's elements lie in many rows, each of its rows is among them.
TEST(FmhaAppendReference, LooksAtAllElementsOfNewTokensOfLargeCaches) {
  const std::uint64_t seed = std::random_device{}();
  RandomFmhas random(seed);
  const FmhaProblem p = fmha_of(
      parse_problem("fmha kind=append heads=1 seqlen_q=1 seqlen_k=20000 hdim=16 pages=table "
                    "cache_layout=vectorized page_size=1024 num_pages=20"));
  PlainCase c(p);
  fill_append(p, random, c);
  for (int page = 0; page < 20; ++page) c.store("page_table", page, page);
  c.store("seqlens_k", 0, 12345);
  const Reference some = reference(p, c.operands, {.elements = 4000});
  std::vector<std::pair<std::string_view, std::int64_t>> places;
  for_each_appended(c.p, std::get<FmhaOperands>(c.operands),
                    [&](std::string_view name, std::int64_t at, long double value) {
                      c.store(name, at, static_cast<double>(value));
                      places.emplace_back(name, at);
                    });
  EXPECT_EQ(places.size(), 32U);
  for (const auto& [name, at] : places) {
    const double right = c.load(name, at);
    c.store(name, at, right + 1);
    EXPECT_EQ(compare(p, c.operands, some).bad, 1) << name << " " << at << " seed " << seed;
    c.store(name, at, right);
  }
  EXPECT_TRUE(compare(p, c.operands, some).ok) << seed;
}

// Which of two tokens stays is not said where sequences write to one page.
TEST(FmhaAppendReference, SharedPlacesMayHoldEither) {
  const std::uint64_t seed = std::random_device{}();
  RandomFmhas random(seed);
  PlainCase c(fmha_of(append_of("pages=table page_size=16 num_pages=3")));
  fill_append(c.p, random, c);
  c.store("page_table", 0, 1), c.store("page_table", 1, 1);
  c.store("seqlens_k", 0, 2), c.store("seqlens_k", 1, 0);
  const Reference before = reference(c.problem, c.operands, {});
  for_each_appended(c.p, std::get<FmhaOperands>(c.operands),
                    [&](std::string_view name, std::int64_t at, long double value) {
                      c.store(name, at, static_cast<double>(value));
                    });
  EXPECT_TRUE(compare(c.problem, c.operands, before).ok) << seed;
  const std::int64_t token = 4 * 8, page = 16 * token;  // elements
  c.store("k", page + 2 * token, 100);
  EXPECT_TRUE(compare(c.problem, c.operands, before).ok) << seed;
  c.store("k", page + 6 * token, 100);  // of the first sequence alone
  EXPECT_EQ(compare(c.problem, c.operands, before).bad, 1) << seed;
}

TEST(FmhaAppendReference, ABadPageIsRefused) {
  RandomFmhas random(std::random_device{}());
  PlainCase c(fmha_of(append_of("pages=table page_size=4 num_pages=6 check_pages=1")));
  fill_append(c.p, random, c);
  for (int i = 0; i < 6; ++i) c.store("page_table", i, i);
  c.store("seqlens_k", 0, 4), c.store("seqlens_k", 1, 2);
  c.store("page_table", 0, -1);  // which the new tokens do not need
  const auto check = [&] { return reference(c.problem, c.operands, {}); };
  EXPECT_NO_THROW(check());
  c.store("page_table", 4, 6);
  expect_error(ErrorCode::invalid_argument, "fmha: page_table[1, 1] must be from 0 to 5, got 6",
               check);
}

TEST(FmhaAppendReference, InPlaceNeedsACopyOfQ) {
  PlainCase c(fmha_of(append_of("rotary=half rotate_q=1")));
  auto& o = std::get<FmhaOperands>(c.operands);
  o.out = const_cast<void*>(o.q);
  expect_error(ErrorCode::invalid_argument,
               "fmha: verify needs q as it was before the kernel ran, but q is out; pass a copy",
               [&] { verify(c.problem, c.operands); });
}

// ---- kernels ----

struct RejectedAppend {
  const char *name, *reason;
};
constexpr RejectedAppend kRejectedAppends[] = {
    {"fmha_append_fp32_flash_1x1x1_0x1x1_1x1x1_avx2",
     "the pipeline must be direct with kind=append on avx2, got flash"},
    {"fmha_append_fp32_direct_1x1x1_0x1x1_1x1x1_masked_avx2",
     "masked must be 0 with kind=append, got 1"},
    {"fmha_append_fp32_direct_1x1x1_0x1x1_1x1x1_rotateq_avx2",
     "rotate_q must be 0 with rotary=none, got 1"},
    {"fmha_append_fp32_direct_1x1x1_0x1x1_1x1x1_slices3_avx2",
     "slices must be 1 with direct, got 3"},
    {"fmha_append_fp32_direct_2x1x1_4x1x1_1x1x1_sm90a",
     "tile, wave and warp tile must be 1x1x1, 4x1x1 and 1x1x1, got 2x1x1, 4x1x1 and 1x1x1"},
    {"fmha_forward_fp32_flash_96x64x576_0x1x1_6x16x1_rotaryhalf_avx2",
     "rotary must be none with kind=forward, got half"},
};

TEST(FmhaAppendKernels, SaysWhichRuleIsBroken) {
  for (const RejectedAppend& row : kRejectedAppends) {
    const KernelSpec spec = parse_name(row.name);
    EXPECT_EQ(family().is_legal(spec, load_target(spec.target)).reason, row.reason) << row.name;
  }
}

TEST(FmhaAppendKernels, OneServesEveryValidProblem) {
  const std::uint64_t seed = std::random_device{}();
  RandomFmhas random(seed);
  for (const char* name : {"avx512", "avx2", "generic", "sm90a"}) {
    const Target target = load_target(name);
    for (int i = 0; i < 100; ++i) {
      const FmhaProblem p = random_append(random, 5000, 576);
      SCOPED_TRACE(fmt::format("seed {}: {} on {}", seed, to_string(Problem(p)), name));
      const KernelSpec spec = family().general(p, target);
      EXPECT_EQ(family().is_legal(spec, target).reason, "");
      EXPECT_EQ(family().supports(spec, p, target).reason, "");
      EXPECT_EQ(parse_name(name_of(spec)), spec);
      const double seconds = estimate(spec, p, target, 2).seconds;
      EXPECT_GT(seconds, 0);
      EXPECT_LT(seconds, 1);
    }
  }
}

TEST(FmhaAppendKernels, TextNamesTypesAndEmbedding) {
  const Problem p = append_of("dtype=bf16 lengths=padded rotary=interleaved rotate_q=1");
  for (const char* name : {"avx2", "sm90a"}) {
    const Target target = load_target(name);
    const KernelSpec spec = family().general(p, target);
    const std::string cpu = "fmha_append_bf16_direct_1x1x1_0x1x1_1x1x1";
    const std::string gpu = "fmha_append_bf16_direct_1x1x1_4x1x1_1x1x1";
    EXPECT_EQ(name_of(spec),
              (is_gpu(target) ? gpu : cpu) + "_padded_rotaryinterleaved_rotateq_" + name);
    const Source source = family().emit(spec, target);
    for (const char* part : {"using In = bf16;", "kLengths = FmhaLengths::padded;",
                             "kRotary = FmhaRotary::interleaved;", "kRotateQ = true;"}) {
      EXPECT_NE(source.text.find(part), std::string::npos) << part;
    }
  }
}

TEST(FmhaAppendKernels, SamplesAreValidAndServed) {
  for (const char* name : {"avx512", "generic", "sm90a"}) {
    const Target target = load_target(name);
    for (const KernelSpec& spec : family().enumerate(target, {})) {
      if (!appends(spec)) continue;
      const std::vector<Problem> problems = samples(spec, target);
      EXPECT_EQ(problems.size(), 12U);
      for (const Problem& problem : problems) {
        EXPECT_EQ(refusal(problem), "") << to_string(problem);
        EXPECT_EQ(family().supports(spec, problem, target).reason, "");
      }
    }
  }
}

// Kernels that append to pages are listed where a wish names pages.
TEST(FmhaAppendKernels, PagesAreListedWhereAskedFor) {
  for (const char* name : {"avx2", "sm90a"}) {
    const Target target = load_target(name);
    const std::vector<Wish> wishes = {{"variant", "append"}, {"pages", "list"}, {"in", "bf16"}};
    const std::vector<KernelSpec> specs = family().enumerate(target, wishes);
    EXPECT_EQ(specs.size(), 30U);  // lengths, embeddings with and without q, layouts
    for (const KernelSpec& spec : specs) {
      EXPECT_EQ(family().emit(spec, target).entries, (std::vector<std::string>{"", "_check"}));
      for (const Problem& problem : samples(spec, target)) {
        EXPECT_EQ(refusal(problem), "") << to_string(problem);
        EXPECT_EQ(family().supports(spec, problem, target).reason, "");
      }
    }
  }
}

TEST(FmhaAppendBind, TheCheckIsAStepOfItsOwn) {
  const auto steps = [](const char* fields) {
    const Problem p = append_of(std::string("pages=table page_size=4 ") + fields);
    std::vector<int> entries;
    const Target target = load_target("sm90a");
    const KernelSpec spec = family().general(p, target);
    for (const Step& step : fmha::bind(spec, p, target, FmhaOperands{}).steps) {
      entries.push_back(step.entry);
    }
    return entries;
  };
  EXPECT_EQ(steps(""), (std::vector<int>{0}));
  EXPECT_EQ(steps("check_pages=1"), (std::vector<int>{1, 0}));
  EXPECT_EQ(steps("check_pages=1 rotary=half rotary_positions=0"), (std::vector<int>{1}));
}

TEST(FmhaAppendBind, NothingToCompute) {
  for (const char* target : {"avx2", "sm90a"}) {
    for (const char* fields :
         {"seqlen_q=0 seqlen_k=4", "seqlen_q=2 seqlen_k=0", "batch=0 seqlen_q=2 seqlen_k=4",
          "seqlen_q=2 seqlen_k=4 lengths=packed tokens_q=0",
          "seqlen_q=2 seqlen_k=4 rotary=half rotary_positions=0"}) {
      const Problem p = parse_problem(kAppendHead + "heads=3 hdim=8 " + fields);
      const Target row = load_target(target);
      const KernelSpec spec = family().general(p, row);
      EXPECT_EQ(fmha::bind(spec, p, row, FmhaOperands{}).steps.size(), 0U)
          << target << " " << fields;
    }
  }
}

// Every row of every token has its threads, and the grid's sides are those that a GPU takes.
TEST(FmhaAppendBind, GridCoversTokensAndRows) {
  const std::uint64_t seed = std::random_device{}();
  RandomFmhas random(seed);
  const Target target = load_target("sm90a");
  for (int i = 0; i < 300; ++i) {
    FmhaProblem p = random_append(random, 200, 576);
    if (i % 10 == 0) {
      p = fmha_problem(DType::bf16, 100000, 1000000, 1000000, 5, 9, 8), p.kind = FmhaKind::append;
    }
    const Launch launch = fmha::bind(family().general(p, target), p, target, FmhaOperands{});
    if (launch.steps.size() == 0 || launch.steps[launch.steps.size() - 1].entry != 0) continue;
    const FmhaProblem full = with_strides(p);
    const auto g = append_arguments(full, {});
    const auto block = device::append_block(g, static_cast<device::FmhaRotary>(p.rotary),
                                            p.rotate_q, 16 / size_of(p.in), 7);
    const Step& step = launch.steps[launch.steps.size() - 1];
    EXPECT_EQ(step.block[0], 128U);
    EXPECT_EQ(block.tokens << (block.row_bits + block.thread_bits), 128);
    EXPECT_GE(std::int64_t{step.grid[0]} * block.tokens, p.seqlen_q) << seed;
    EXPECT_LE(step.grid[1], 65535U);
    EXPECT_LE(step.grid[2], 65535U);
    const std::int64_t rows = std::int64_t{step.grid[1]} << block.row_bits;
    const std::int64_t wanted = device::rows_of_token(g, p.rotate_q);
    EXPECT_GE(rows, std::min<std::int64_t>(wanted, 65535)) << seed;
  }
}

}  // namespace
}  // namespace tessera::fmha
