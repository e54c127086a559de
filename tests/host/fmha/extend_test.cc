// Appending to a cache and attending to it: which problems are valid, their tensors, the reference
// beside plain loops, kernels and launches.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "host/fmha/extend_problems.h"
#include "host/fmha/plain_append.h"
#include "host/spec/expect_error.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/targets/targets.h"

namespace tessera::fmha {
namespace {

Problem extend_of(const std::string& fields, int seqlen_q = 3) {
  return parse_problem(
      fmt::format("fmha kind=extend batch=2 heads=4 heads_kv=2 seqlen_q={} seqlen_k=9 hdim=8 {}",
                  seqlen_q, fields));
}

// ---- which problems are valid ----

struct RefusedExtend {
  const char *fields, *sentence;
  int seqlen_q = 3;
};
constexpr RefusedExtend kRefusedExtends[] = {
    {"",
     "fmha: seqlen_k must be at least 10 (seqlen_q) with kind=extend, because it counts the new "
     "tokens, got 9",
     10},
    {"lengths=packed",
     "fmha: pages must be table or list with kind=extend and lengths=packed, because keys that lie "
     "one behind the other leave no room for new tokens, got none"},
    {"rotate_q=1", "fmha: rotate_q must be 0 with rotary=none, got 1"},
    {"rotary=half rotary_positions=8",
     "fmha: rotary_positions must be at least 9 (seqlen_k) with kind=extend, got 8"},
    {"rotary=half rotary_dim=10", "fmha: rotary_dim must be at most 8 (hdim), got 10"},
    {"dtype=fp8 out=fp16", "fmha: in must be fp32, fp16 or bf16, got fp8"},
    {"dtype=bf16 kv=fp8 qscale=kv_block",
     "fmha: qscale must be none, per_tensor, per_head or per_token with kind=extend and kv=fp8, "
     "got "
     "kv_block"},
    {"k_stride_s=15",
     "fmha: strides must not fold k onto itself: 15 is less than the 16 elements that smaller "
     "strides span"},
    {"rotary=half rotate_q=1 q_turned_stride_h=0",
     "fmha: strides must not fold q_turned onto itself: 0 is less than the 1 elements that smaller "
     "strides span"},
    {"q_turned_stride_h=8", "fmha: q_turned_stride_h must be left out with rotate_q=0, got 8"},
    {"v_new_stride_s=-1", "fmha: strides of v_new must be at least 0, got -1"},
    {"lengths=packed pages=table page_size=4 k_new_stride_b=7",
     "fmha: k_new_stride_b must be left out or 0 with lengths=packed, where all sequences are one "
     "run of tokens, got 7"},
};

TEST(FmhaExtendValidate, SaysWhichFieldIsWrong) {
  for (const RefusedExtend& row : kRefusedExtends) {
    expect_error(ErrorCode::invalid_argument, row.sentence,
                 [&] { family().validate(extend_of(row.fields, row.seqlen_q)); });
  }
}

TEST(FmhaExtendValidate, AcceptsWhatIsAllowed) {
  for (const char* fields :
       {"", "lengths=padded mask=bottom_right dtype=bf16 rotary=half rotate_q=1 lse=1",
        "lengths=packed pages=list page_size=4 check_pages=1", "bias=alibi p_drop=0.5 soft_cap=3",
        "rotary=interleaved rotary_dim=4 rotary_positions=12 lengths=padded", "q_stride_h=0"}) {
    EXPECT_NO_THROW(family().validate(extend_of(fields))) << fields;
  }
}

TEST(FmhaExtendTensors, CachesAreUpdatedAndTurnedQueriesWritten) {
  const Tensors all = tensors(extend_of("lengths=padded rotary=half rotate_q=1"));
  std::string names;
  for (const Tensor& tensor : all) {
    constexpr std::array<std::string_view, 3> kWords = {"", "!", "+"};
    names += fmt::format("{}{} ", tensor.name, kWords[static_cast<std::size_t>(tensor.access)]);
  }
  EXPECT_EQ(names, "q q_turned! k+ v+ k_new v_new cos sin seqlens_q seqlens_k out! ");
}

// ---- the reference ----

// The lengths of the keys before the new tokens, which the definition of appending takes.
std::vector<std::int32_t> lengths_before(const PlainCase& c) {
  std::vector<std::int32_t> before;
  const FmhaProblem& p = c.p;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    double keys = double(p.seqlen_k), queries = double(p.seqlen_q);
    if (p.lengths != FmhaLengths::equal) keys = c.load("seqlens_k", b);
    if (p.lengths == FmhaLengths::padded) queries = c.load("seqlens_q", b);
    if (p.lengths == FmhaLengths::packed) {
      queries = c.load("seqlens_q", b + 1) - c.load("seqlens_q", b);
    }
    before.push_back(static_cast<std::int32_t>(keys - queries));
  }
  return before;
}

// Each page once, lengths that have room for the new tokens, a cache of numbers.
void fill_extend(RandomFmhas& random, PlainCase& c) {
  c.fill(random);
  for (const char* name : {"k", "v", "descale_k", "descale_v"}) {
    const std::size_t tensor = c.index_of(name);
    if (tensor == c.list.size()) continue;
    for (std::int64_t i = 0; i < c.list[tensor].elements(); ++i) {
      c.store(tensor, i, random.normal());
    }
  }
  const FmhaProblem& p = c.p;
  for (std::int64_t b = 0; p.lengths != FmhaLengths::equal && b < p.batch; ++b) {
    c.store("seqlens_k", b, double(random.integer(p.seqlen_q, p.seqlen_k)));
  }
  if (p.pages == FmhaPages::none) return;
  const std::size_t table = c.index_of("page_table");
  for (std::int64_t i = 0; i < c.list[table].elements(); ++i) {
    c.store(table, i, double(i % p.num_pages));
  }
  for (std::int64_t b = 0; p.pages == FmhaPages::list && b <= p.batch; ++b) {
    c.store("page_starts", b, double(b * pages_needed(p)));
  }
}

// Appends and then attends by the definitions of both.
void compute_extend(PlainCase& c) {
  auto o = std::get<FmhaOperands>(c.operands);
  const std::vector<std::int32_t> before = lengths_before(c);
  o.seqlens_k = before.data();
  for_each_appended(with_strides(append_part(c.p)), o,
                    [&](std::string_view name, std::int64_t at, long double value) {
                      c.store(name == "out" ? "q_turned" : name, at, static_cast<double>(value));
                    });
  PlainCase attention(attention_part(c.p));
  for (std::size_t i = 0; i < attention.list.size(); ++i) {
    const std::string_view name = attention.list[i].name;
    const bool is_turned = name == "q" && c.p.rotate_q;
    attention.memory[i] = c.memory[c.index_of(is_turned ? "q_turned" : name)];
    family().set_pointer(attention.operands, attention.list[i].operand, attention.memory[i].data());
  }
  attention.compute();
  for (const char* name : {"out", "lse", "random_values"}) {
    const std::size_t from = attention.index_of(name);
    if (from < attention.list.size()) c.memory[c.index_of(name)] = attention.memory[from];
  }
  for (std::size_t i = 0; i < c.list.size(); ++i) {
    family().set_pointer(c.operands, c.list[i].operand, c.memory[i].data());
  }
}

TEST(FmhaExtendReference, AgreesWithPlainLoops) {
  const std::uint64_t seed = std::random_device{}();
  RandomFmhas random(seed);
  for (int i = 0; i < 120; ++i) {
    const FmhaProblem given = random_extend(random, 10, 20);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, to_string(Problem(given))));
    ASSERT_NO_THROW(family().validate(given));
    PlainCase c(given);
    fill_extend(random, c);
    const Reference before = reference(given, c.operands, {});
    compute_extend(c);
    const Mismatch mismatch = compare(given, c.operands, before);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
    EXPECT_TRUE(verify(given, c.operands).ok);
  }
}

// Each output is looked at: one wrong element of any of them is found.
TEST(FmhaExtendReference, NoticesOneWrongElementOfEachOutput) {
  const std::uint64_t seed = std::random_device{}();
  RandomFmhas random(seed);
  PlainCase c(std::get<FmhaProblem>(extend_of("rotary=half rotate_q=1 lse=1 dtype=bf16")));
  fill_extend(random, c);
  const Reference before = reference(c.problem, c.operands, {});
  compute_extend(c);
  EXPECT_TRUE(compare(c.problem, c.operands, before).ok) << "seed " << seed;
  for (const char* name : {"k", "v", "q_turned", "out", "lse"}) {
    const std::int64_t at = random.integer(0, c.list[c.index_of(name)].elements() - 1);
    const double right = c.load(name, at);
    c.store(name, at, right + 1 + std::abs(right));
    EXPECT_EQ(compare(c.problem, c.operands, before).bad, 1) << name << " seed " << seed;
    c.store(name, at, right);
  }
}

TEST(FmhaExtendReference, InPlaceNeedsACopyOfQ) {
  PlainCase c(std::get<FmhaProblem>(extend_of("rotary=half rotate_q=1")));
  auto& o = std::get<FmhaOperands>(c.operands);
  o.q_turned = const_cast<void*>(o.q);
  expect_error(
      ErrorCode::invalid_argument,
      "fmha: verify needs q as it was before the kernel ran, but q is q_turned; pass a copy",
      [&] { verify(c.problem, c.operands); });
}

// ---- kernels ----

TEST(FmhaExtendKernels, EveryPipelineHasThem) {
  const std::vector<Wish> wishes = {{"variant", "extend"}};
  for (const char* name : {"avx2", "avx512", "sm90a"}) {
    const Target target = load_target(name);
    std::set<Pipeline> pipelines;
    for (const KernelSpec& spec : family().enumerate(target, wishes)) {
      EXPECT_TRUE(extends(spec));
      pipelines.insert(spec.algorithm.pipeline);
    }
    EXPECT_EQ(pipelines.size(), is_gpu(target) ? 3U : 1U) << name;
  }
}

TEST(FmhaExtendKernels, OneServesEveryValidProblem) {
  const std::uint64_t seed = std::random_device{}();
  RandomFmhas random(seed);
  for (const char* name : {"generic", "avx512", "sm90a"}) {
    const Target target = load_target(name);
    for (int i = 0; i < 60; ++i) {
      const Problem p = random_extend(random, 20, 60);
      SCOPED_TRACE(fmt::format("seed {}: {}", seed, to_string(p)));
      const KernelSpec spec = family().general(p, target);
      EXPECT_EQ(parse_name(name_of(spec)), spec);
      for (const Problem& sample :
           i % 20 == 0 ? family().samples(spec, target) : std::vector<Problem>()) {
        EXPECT_NO_THROW(family().validate(sample)) << to_string(sample);
      }
    }
  }
}

// On a GPU appending is a step in front of attention; a CPU's kernel does both in one.
TEST(FmhaExtendBind, AppendingIsAStepOfAGpu) {
  struct Row {
    const char *target, *fields;
    std::vector<int> entries;
  };
  const Row rows[] = {
      {"sm90a", "", {1, 0}},
      {"sm90a", "pages=table page_size=4", {2, 0}},
      {"sm90a", "pages=table page_size=4 check_pages=1", {1, 2, 0}},
      {"avx512", "pages=table page_size=4 check_pages=1", {1, 0}},
      {"avx512", "rotary=half", {0}},
  };
  for (const Row& row : rows) {
    const Problem p = extend_of(row.fields);
    const Target target = load_target(row.target);
    for (const KernelSpec& spec : family().candidates(p, target)) {
      if (!family().is_legal(spec, target) || !family().supports(spec, p, target)) continue;
      const Launch launch = family().bind(spec, p, load_target(spec.target), FmhaOperands{});
      std::vector<int> entries;
      for (const Step& step : launch.steps) entries.push_back(step.entry);
      EXPECT_EQ(entries, row.entries) << name_of(spec) << " " << row.fields;
      for (const Step& step : launch.steps) EXPECT_LE(step.block[0], 384U);
      EXPECT_LT(static_cast<std::size_t>(*std::max_element(entries.begin(), entries.end())),
                family().emit(spec, target).entries.size());
    }
  }
}

}  // namespace
}  // namespace tessera::fmha
