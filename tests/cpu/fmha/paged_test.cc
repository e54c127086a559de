// Attention over pages of a cache on CPUs: the bits of contiguous keys and values, tables that hold
// anything, checked launches.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "cpu/kernel_folder.h"
#include "host/fmha/plain_fmha.h"
#include "tessera/measure/operands.h"
#include "tessera/registry/registry.h"
#include "tessera/runtime/runtime.h"
#include "tessera/targets/targets.h"

namespace tessera::fmha {
namespace {

class FmhaPagedKernels : public testing::Test {
 protected:
  const Target target_ = testing_support::targets_here().front();
  const std::uint64_t seed_ = std::random_device{}();
  RandomFmhas random_{seed_};

  void launch(const Problem& problem, const Operands& operands) const {
    family().validate(problem);
    const KernelSpec spec = family().general(problem, target_);
    runtime::LaunchOptions options;
    options.threads = 2;
    testing_support::registry_in("fmha_test")
        .get(spec)
        ->launch(family().bind(spec, problem, load_target(spec.target), operands), options);
  }

  // Sequences of up to 150 keys.
  FmhaProblem contiguous() {
    FmhaProblem p = fmha_problem(random_.one_of(kTypes), 3, 4, 2, 5, 150, 16);
    p.hdim_v = 24;
    p.lengths = FmhaLengths::padded;
    p.mask = FmhaMask::bottom_right;
    p.lse = true;
    return p;
  }
};

// Gives each sequence pages of its own, in any order, and copies the keys and values there.
void move_to_pages(RandomFmhas& random, const PlainCase& from, PlainCase& to) {
  const FmhaProblem& p = to.p;
  std::vector<std::int64_t> pages(static_cast<std::size_t>(p.num_pages));
  std::iota(pages.begin(), pages.end(), 0);
  for (std::int64_t i = p.num_pages; i > 1; --i) {
    std::swap(pages[static_cast<std::size_t>(i - 1)],
              pages[static_cast<std::size_t>(random.integer(0, i - 1))]);
  }
  const std::int64_t needed = pages_needed(p);
  for (std::int64_t i = 0; i < p.batch * needed; ++i) {
    to.store("page_table", i, static_cast<double>(pages[static_cast<std::size_t>(i)]));
  }
  for (std::int64_t b = 0; b <= p.batch && p.pages == FmhaPages::list; ++b) {
    to.store("page_starts", b, static_cast<double>(b * needed));
  }
  for (std::int64_t at = 0; at < p.batch * p.heads_kv * p.seqlen_k; ++at) {
    const std::int64_t b = at / p.seqlen_k / p.heads_kv, j = at % p.seqlen_k;
    const std::int64_t h = at / p.seqlen_k % p.heads_kv * (p.heads / p.heads_kv);
    const PlainRow old{from, b, h, 0, 0, 0, 0, 0}, now{to, b, h, 0, 0, 0, 0, b * needed};
    for (const bool of_k : {true, false}) {
      const std::string_view name = of_k ? "k" : "v";
      for (std::int64_t d = 0; d < (of_k ? p.hdim : p.hdim_v); ++d) {
        to.store(name, now.key_place(of_k, j, d), from.load(name, old.key_place(of_k, j, d)));
      }
    }
  }
}

TEST_F(FmhaPagedKernels, PagesGiveTheBitsOfContiguousKeys) {
  PlainCase flat(contiguous());
  SCOPED_TRACE(fmt::format("seed {}: {}", seed_, to_string(Problem(flat.problem))));
  flat.fill(random_);
  launch(flat.problem, flat.operands);
  for (int kind = 0; kind < 4; ++kind) {
    for (const std::int64_t page_size : {1, 16, 64, 1024}) {
      FmhaProblem p = flat.problem;
      p.pages = kind % 2 == 0 ? FmhaPages::table : FmhaPages::list;
      p.cache_layout = kind / 2 == 0 ? FmhaCacheLayout::linear : FmhaCacheLayout::vectorized;
      const bool in_runs = p.cache_layout == FmhaCacheLayout::vectorized;
      p.page_size = in_runs ? std::max<std::int64_t>(page_size, 8) : page_size;
      p.num_pages = p.batch * pages_needed(p) + 2;
      PlainCase paged(p);
      paged.fill(random_);
      for (const char* name : {"q", "seqlens_q", "seqlens_k"}) {
        const auto& from = flat.memory[flat.index_of(name)];
        std::copy(from.begin(), from.end(), paged.memory[paged.index_of(name)].begin());
      }
      move_to_pages(random_, flat, paged);
      launch(p, paged.operands);
      for (const char* name : {"out", "lse"}) {
        EXPECT_EQ(paged.memory[paged.index_of(name)], flat.memory[flat.index_of(name)])
            << name << " of " << to_string(Problem(p));
      }
    }
  }
}

// Tables, prefix sums and lengths that no caller should pass: the nearest page, and no key without
// an entry. Around the operands lies NaN.
TEST_F(FmhaPagedKernels, AnyNumbersLeadIntoTheCache) {
  for (const FmhaPages pages : {FmhaPages::table, FmhaPages::list}) {
    for (int i = 0; i < 6; ++i) {
      FmhaProblem p = contiguous();
      p.pages = pages;
      p.page_size = random_.integer(1, 40);
      p.num_pages = random_.integer(1, 20);
      SCOPED_TRACE(fmt::format("seed {}: {}", seed_, to_string(Problem(p))));
      measure::OwnedOperands owned = measure::random_operands(p, seed_);
      for (const Tensor& tensor : owned.tensors) {
        if (tensor.dtype != DType::int32) continue;
        auto* const to = static_cast<std::int32_t*>(
            const_cast<void*>(family().pointer(owned.operands, tensor.operand)));
        for (std::int64_t x = 0; x < tensor.elements(); ++x) {
          const std::int64_t most = random_.coin() ? 30 : (1LL << 31) - 1;
          to[x] = static_cast<std::int32_t>(random_.integer(-most - 1, most));
        }
      }
      launch(p, owned.operands);
      EXPECT_EQ(measure::gaps_intact(owned), "");
      EXPECT_EQ(family().verify(p, owned.operands).message, "");
    }
  }
}

TEST_F(FmhaPagedKernels, ABadPageStopsACheckedLaunch) {
  for (const FmhaPages pages : {FmhaPages::table, FmhaPages::list}) {
    FmhaProblem p = contiguous();
    p.pages = pages;
    p.page_size = 16;
    p.check_pages = true;
    SCOPED_TRACE(fmt::format("seed {}: {}", seed_, to_string(Problem(p))));
    PlainCase c(p);
    c.fill(random_);
    for (int b = 0; b < 3; ++b) c.store("seqlens_k", b, 150), c.store("seqlens_q", b, 5);
    for (int b = 0; b < 4 && pages == FmhaPages::list; ++b) c.store("page_starts", b, b * 10);
    c.store("page_table", 2 * 10, -1);
    c.store("page_table", 1 * 10 + 9, 30);
    const auto untouched = c.memory[c.index_of("out")];
    launch(p, c.operands);
    const int bad[] = {1, 1, 9, 30};
    for (int i = 0; i < 4; ++i) EXPECT_EQ(c.load("bad_page", i), bad[i]) << i;
    EXPECT_EQ(c.memory[c.index_of("out")], untouched);
    c.store("page_table", 2 * 10, 0), c.store("page_table", 1 * 10 + 9, 29);
    launch(p, c.operands);
    EXPECT_EQ(c.verify().message, "");
  }
}

}  // namespace
}  // namespace tessera::fmha
