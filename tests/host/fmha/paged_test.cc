// Caches of pages without running a kernel: tensors, random operands, where tokens lie, what the
// reference says of pages out of range.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>

#include "host/fmha/plain_fmha.h"
#include "host/spec/expect_error.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/targets/targets.h"

namespace tessera::fmha {
namespace {

std::map<std::string_view, Tensor> paged_tensors(const std::string& fields) {
  std::map<std::string_view, Tensor> all;
  const Problem p = parse_problem(
      "fmha batch=3 heads=4 heads_kv=2 seqlen_q=5 seqlen_k=20 hdim=16 hdim_v=24 " + fields);
  for (const Tensor& tensor : tensors(p)) all[tensor.name] = tensor;
  return all;
}

TEST(FmhaPages, TensorsOfATable) {
  const auto all =
      paged_tensors("pages=table page_size=8 num_pages=7 table_stride=5 lengths=packed");
  EXPECT_EQ(all.size(), 7U);
  EXPECT_EQ(sizes(all.at("k")), (Sizes{16, 8, 2, 7}));
  EXPECT_EQ(strides(all.at("k")), (Sizes{1, 32, 16, 256}));
  EXPECT_EQ(sizes(all.at("v")), (Sizes{24, 8, 2, 7}));
  EXPECT_EQ(sizes(all.at("page_table")), (Sizes{3, 3}));
  EXPECT_EQ(strides(all.at("page_table")), (Sizes{1, 5}));
  EXPECT_EQ(all.at("page_table").most, 6);
  EXPECT_EQ(all.at("page_table").fill, Fill::indices);
  EXPECT_EQ(sizes(all.at("seqlens_q")), (Sizes{4}));
  EXPECT_EQ(all.at("seqlens_q").fill, Fill::prefix_sums);
  EXPECT_EQ(sizes(all.at("seqlens_k")), (Sizes{3}));
  EXPECT_EQ(all.at("seqlens_k").fill, Fill::lengths);
}

TEST(FmhaPages, TensorsOfAList) {
  const auto all =
      paged_tensors("pages=list page_size=8 dtype=bf16 cache_layout=vectorized check_pages=1");
  EXPECT_EQ(all.size(), 7U);
  EXPECT_EQ(sizes(all.at("k")), (Sizes{8, 8, 2, 2, 9}));
  EXPECT_EQ(strides(all.at("k")), (Sizes{1, 8, 64, 128, 256}));
  EXPECT_EQ(sizes(all.at("v")), (Sizes{8, 24, 1, 2, 9}));
  EXPECT_EQ(strides(all.at("v")), (Sizes{1, 8, 192, 192, 384}));
  EXPECT_FALSE(all.at("k").has_gaps());
  EXPECT_FALSE(all.at("v").has_gaps());
  EXPECT_EQ(sizes(all.at("page_table")), (Sizes{9}));
  EXPECT_EQ(sizes(all.at("page_starts")), (Sizes{4}));
  EXPECT_EQ(sizes(all.at("bad_page")), (Sizes{4}));
  EXPECT_TRUE(all.at("bad_page").is_report);
  EXPECT_EQ(all.at("bad_page").access, Access::write);
  EXPECT_EQ(all.at("bad_page").dtype, DType::int32);
}

// A cache may be much larger than what the sequences read of it.
TEST(FmhaPages, BytesAreThoseOfTheSequences) {
  const auto bytes_of = [](const std::string& pages) {
    return bytes(parse_problem("fmha batch=2 heads=4 seqlen_q=1 seqlen_k=64 hdim=16 " + pages));
  };
  const double table = 2 * 4 * 4;  // entries of 4 bytes
  EXPECT_EQ(bytes_of("pages=table page_size=16"), bytes_of("") + table);
  EXPECT_EQ(bytes_of("pages=table page_size=16 num_pages=1000"), bytes_of("") + table);
}

// ---- places ----

// Whatever the table, the prefix sums and the lengths hold, entries and pages are those that exist.
template <device::FmhaLengths kLengths, device::FmhaPages kPages>
void expect_within(const FmhaProblem& p, const PlainCase& c, std::int64_t entries) {
  const device::FmhaArguments g = arguments_of(c.p, std::get<FmhaOperands>(c.operands));
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const device::FmhaSequence s = device::sequence_of<kLengths, kPages>(g, b);
    ASSERT_GE(s.keys, 0);
    ASSERT_LE(s.keys, p.seqlen_k);
    for (std::int64_t key = 0; key < s.keys; ++key) {
      const device::FmhaSlot slot = device::slot_of(g, key);
      ASSERT_LT(s.first_key + slot.entry, entries);
      ASSERT_GE(s.first_key + slot.entry, 0);
      ASSERT_EQ(slot.entry * p.page_size + slot.token, key);
      const std::int64_t page = device::page_of(g, s, slot.entry);
      ASSERT_GE(page, 0);
      ASSERT_LT(page, c.p.num_pages);
    }
  }
}

TEST(FmhaPages, AnyNumbersLeadIntoTheCache) {
  const std::uint64_t seed = std::random_device{}();
  RandomFmhas random(seed);
  for (int i = 0; i < 100; ++i) {
    FmhaProblem p = small_problem(3, random.integer(1, 40), 4);
    p.batch = 4;
    p.lengths = FmhaLengths::padded;
    p.pages = i % 2 == 0 ? FmhaPages::table : FmhaPages::list;
    p.page_size = random.integer(1, 20);
    p.num_pages = random.integer(1, 9);
    if (i % 2 == 1) p.page_entries = random.integer(1, 12);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << to_string(Problem(p)));
    PlainCase c(p);
    for (const char* name : {"seqlens_k", "page_table", "page_starts"}) {
      const std::size_t at = c.index_of(name);
      for (std::int64_t x = 0; at < c.list.size() && x < c.list[at].elements(); ++x) {
        const std::int64_t most = random.coin() ? 12 : (1LL << 31) - 1;
        c.store(at, x, static_cast<double>(random.integer(-most - 1, most)));
      }
    }
    using enum device::FmhaPages;
    const std::int64_t entries = c.list[c.index_of("page_table")].elements();
    if (i % 2 == 0) expect_within<device::FmhaLengths::padded, table>(p, c, entries);
    if (i % 2 == 1) expect_within<device::FmhaLengths::padded, list>(p, c, entries);
  }
}

// Keys end where a sequence's entries do.
TEST(FmhaPages, KeysWithoutEntriesDoNotExist) {
  FmhaProblem p = small_problem(2, 20, 4);
  p.batch = 3;
  p.lengths = FmhaLengths::padded;
  p.pages = FmhaPages::list;
  p.page_size = 4;
  PlainCase c(p);
  const int starts[] = {0, 3, 3, 8};
  for (int b = 0; b < 4; ++b) c.store("page_starts", b, starts[b]);
  for (int b = 0; b < 3; ++b) c.store("seqlens_k", b, 18);
  const device::FmhaArguments g = arguments_of(c.p, std::get<FmhaOperands>(c.operands));
  const std::int64_t keys[] = {12, 0, 18};
  for (int b = 0; b < 3; ++b) {
    const auto s = device::sequence_of<device::FmhaLengths::padded, device::FmhaPages::list>(g, b);
    EXPECT_EQ(s.keys, keys[b]);
    EXPECT_EQ(s.first_key, starts[b]);
  }
}

// ---- what the reference says ----

class FmhaBadPages : public testing::TestWithParam<FmhaPages> {
 protected:
  static FmhaProblem problem() {
    FmhaProblem p = small_problem(2, 20, 4);
    p.batch = 4;
    p.lengths = FmhaLengths::padded;
    p.pages = GetParam();
    p.page_size = 4;
    p.num_pages = 20;
    p.check_pages = true;
    return p;
  }

  FmhaBadPages() {
    c_.fill(random_);
    for (int b = 0; b < 4; ++b) c_.store("seqlens_q", b, 2), c_.store("seqlens_k", b, 18);
    for (int b = 0; b < 5 && GetParam() == FmhaPages::list; ++b) c_.store("page_starts", b, b * 5);
    c_.compute();
  }

  RandomFmhas random_{std::random_device{}()};
  PlainCase c_{problem()};
};
INSTANTIATE_TEST_SUITE_P(Pages, FmhaBadPages, testing::Values(FmhaPages::table, FmhaPages::list),
                         [](const auto& row) { return std::string(to_string(row.param)); });

TEST_P(FmhaBadPages, NoneIsRight) { EXPECT_EQ(c_.verify().message, ""); }

TEST_P(FmhaBadPages, TheFirstIsRefused) {
  c_.store("page_table", 3 * 5 + 1, -7);
  c_.store("page_table", 2 * 5 + 4, 20);
  const bool is_table = GetParam() == FmhaPages::table;
  expect_error(ErrorCode::invalid_argument,
               std::string("fmha: page_table[") + (is_table ? "2, 4" : "14") +
                   "] must be from 0 to 19, got 20",
               [&] { c_.verify(); });
}

// Entries behind the last key, and without a check all of them, may hold anything.
TEST_P(FmhaBadPages, UnusedOnesDoNotMatter) {
  c_.store("seqlens_k", 2, 16);
  c_.compute();
  c_.store("page_table", 2 * 5 + 4, 1 << 30);
  EXPECT_EQ(c_.verify().message, "");
}

TEST_P(FmhaBadPages, AWrongReportIsNoticed) {
  c_.store("bad_page", 2, 3);
  const Mismatch mismatch = c_.verify();
  EXPECT_FALSE(mismatch.ok);
  EXPECT_EQ(mismatch.message,
            "fmha: bad_page is 0 -1 3 -1, but all pages are in range: it must be 0 -1 -1 -1");
}

TEST_P(FmhaBadPages, AreTheNearestPagesWithoutACheck) {
  c_.problem.check_pages = c_.p.check_pages = false;
  c_.store("page_table", 7, 19);
  c_.store("page_table", 12, 0);
  c_.compute();
  c_.store("page_table", 7, 20);
  c_.store("page_table", 12, -1);
  EXPECT_EQ(c_.verify().message, "");
  c_.store("page_table", 7, 18);
  EXPECT_GT(c_.verify().bad, 0);
}

// Kernels that read pages are listed where a wish names pages, and have problems to run.
TEST(FmhaPages, KernelsAreListedWhereAskedFor) {
  for (const char* name : {"avx2", "sm90a"}) {
    const Target target = load_target(name);
    const auto count = [&](std::vector<Wish> wishes) {
      return family().enumerate(target, wishes).size();
    };
    const std::size_t all = count({});
    EXPECT_EQ(count({{"pages", "none"}}), all);
    EXPECT_GT(count({{"pages", "*"}}), all);
    const std::vector<Wish> wishes = {{"pages", "list"}, {"cache_layout", "*"}, {"lse", "true"}};
    const std::vector<KernelSpec> specs = family().enumerate(target, wishes);
    EXPECT_GT(specs.size(), 0U);
    for (const KernelSpec& spec : specs) {
      const std::vector<Problem> problems = samples(spec, target);
      // tmaws needs a key.
      EXPECT_EQ(problems.size(), spec.algorithm.pipeline == Pipeline::tmaws ? 12U : 13U)
          << name_of(spec);
      for (const Problem& problem : problems) {
        family().validate(problem);
        EXPECT_EQ(family().supports(spec, problem, target).reason, "") << to_string(problem);
      }
    }
  }
}

// A checked launch has a step of its own, and one where there is nothing to compute.
TEST(FmhaPages, TheCheckIsAStepOfItsOwn) {
  for (const char* target : {"avx2", "sm90a"}) {
    const auto steps = [&](const std::string& fields) {
      const Problem p =
          parse_problem("fmha batch=2 heads=3 hdim=8 seqlen_k=9 pages=table page_size=4 " + fields);
      const Target row = load_target(target);
      const KernelSpec spec = family().general(p, row);
      EXPECT_EQ(family().emit(spec, row).entries, (std::vector<std::string>{"", "_check"}));
      std::vector<int> entries;
      for (const Step& step : fmha::bind(spec, p, row, FmhaOperands{}).steps) {
        entries.push_back(step.entry);
      }
      return entries;
    };
    EXPECT_EQ(steps("seqlen_q=4"), (std::vector<int>{0})) << target;
    EXPECT_EQ(steps("seqlen_q=4 check_pages=1"), (std::vector<int>{1, 0})) << target;
    EXPECT_EQ(steps("seqlen_q=0 check_pages=1"), (std::vector<int>{1})) << target;
  }
}

// The check finds its report where there is nothing else to compute, by every pipeline.
TEST(FmhaPages, ACheckWithoutQueriesHasItsArguments) {
  const Target target = load_target("sm90a");
  std::array<std::int32_t, 4> report{};
  const auto* const address = report.data();
  const std::string bytes(reinterpret_cast<const char*>(&address), sizeof address);
  std::set<Pipeline> seen;
  for (const char* kind : {"forward", "extend"}) {
    const Problem p = parse_problem(fmt::format(
        "fmha kind={} batch=2 heads=3 hdim=64 seqlen_q=0 seqlen_k=90 pages=table page_size=16 "
        "dtype=bf16 check_pages=1",
        kind));
    for (const KernelSpec& spec : family().candidates(p, target)) {
      if (!family().is_legal(spec, target) || !family().supports(spec, p, target)) continue;
      const Launch launch = fmha::bind(spec, p, target, FmhaOperands{.bad_page = report.data()});
      const std::string block(reinterpret_cast<const char*>(launch.arguments.data()),
                              launch.arguments.size());
      EXPECT_NE(block.find(bytes), std::string::npos) << name_of(spec);
      EXPECT_EQ(launch.steps.size(), 1U) << name_of(spec);
      seen.insert(spec.algorithm.pipeline);
    }
  }
  EXPECT_EQ(seen, (std::set{Pipeline::direct, Pipeline::tmaws, Pipeline::splitkv}));
}

}  // namespace
}  // namespace tessera::fmha
