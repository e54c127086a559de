// Appending to a cache and attending to it on CPUs: fresh random problems over all fields and
// samples against the fp64 reference of what was there before, and the bits of two launches. To
// repeat a failure: --gtest_filter=... --gtest_random_seed=<the seed printed>.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cpu/guarded.h"
#include "cpu/kernel_folder.h"
#include "host/fmha/extend_problems.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/operands.h"
#include "tessera/registry/registry.h"
#include "tessera/targets/targets.h"

namespace tessera::fmha {
namespace {

using testing_support::targets_here;
using testing_support::targets_of_run;

Registry& extend_registry() { return testing_support::registry_in("fmha_extend_test"); }

class FmhaExtend : public testing::Test {
 protected:
  const Family& family_ = family_of(Op::fmha);
  std::uint64_t seed_ = testing_support::seed_of_run();
  RandomFmhas random_{seed_};

  void launch(const Target& target, const Problem& problem, const Operands& operands, int threads) {
    const KernelSpec spec = family_.general(problem, target);
    testing_support::launch(extend_registry(), spec, problem, operands, threads);
  }

  void check(const Target& target, const Problem& problem, int threads) {
    SCOPED_TRACE(fmt::format("seed {}: '{}' on {}, {} threads", seed_, to_string(problem),
                             target.name, threads));
    measure::OwnedOperands owned =
        measure::random_operands(problem, static_cast<std::uint64_t>(random_.integer(0, 1 << 30)));
    const Reference before = family_.reference(problem, owned.operands, {});
    testing_support::launch_at_edges(extend_registry(), family_.general(problem, target), problem,
                                     owned, threads);
    testing_support::expect_compared(problem, owned, before);
  }
};

TEST_F(FmhaExtend, RandomProblemsAreCorrect) {
  fmt::print("seed {}\n", seed_);
  for (const Target& target : targets_of_run(seed_)) {
    for (int i = 0; i < 5; ++i) {
      const FmhaProblem p = random_extend(random_, i % 4 == 0 ? 150 : 30, i % 5 == 0 ? 200 : 70);
      ASSERT_NO_THROW(family_.validate(p)) << to_string(Problem(p));
      check(target, p, static_cast<int>(random_.integer(1, 5)));
    }
  }
}

TEST_F(FmhaExtend, SamplesAreCorrect) {
  fmt::print("seed {}\n", seed_);
  const Target target = targets_here().front();
  for (const char* fields : {"dtype=bf16 rotary=half rotate_q=1 lengths=padded lse=1",
                             "dtype=fp16 pages=table page_size=4 lengths=packed",
                             "rotary=interleaved pages=list page_size=8 cache_layout=vectorized"}) {
    const Problem any = parse_problem(fmt::format(
        "fmha kind=extend heads=1 seqlen_q=1 seqlen_k=1 hdim=8 mask=bottom_right {}", fields));
    for (const Problem& p : family_.samples(family_.general(any, target), target)) {
      check(target, p, 2);
    }
  }
}

// One launch does what an appending and then an attending one do, to the bit.
TEST_F(FmhaExtend, GivesTheBitsOfTwoLaunches) {
  const Target target = targets_here().front();
  const FmhaProblem p = std::get<FmhaProblem>(parse_problem(
      "fmha kind=extend batch=3 heads=6 heads_kv=2 seqlen_q=5 seqlen_k=70 hdim=32 lengths=padded "
      "mask=bottom_right rotary=half rotate_q=1 dtype=bf16 lse=1"));
  measure::OwnedOperands both = measure::random_operands(p, seed_);
  measure::OwnedOperands one = measure::random_operands(p, seed_);
  launch(target, p, one.operands, 2);
  const auto& of_one = std::get<FmhaOperands>(one.operands);
  auto o = std::get<FmhaOperands>(both.operands);
  std::vector<std::int32_t> before;
  for (std::int64_t b = 0; b < p.batch; ++b) before.push_back(o.seqlens_k[b] - o.seqlens_q[b]);
  FmhaOperands first = o;
  first.seqlens_k = before.data(), first.out = o.q_turned;
  launch(target, append_part(with_strides(p)), first, 2);
  FmhaOperands second = o;
  second.q = o.q_turned;
  launch(target, attention_part(with_strides(p)), second, 2);
  for (const std::size_t output : one.outputs) {
    const Tensor& tensor = one.tensors[output];
    const void* const a = family_.pointer(one.operands, tensor.operand);
    const void* const b = family_.pointer(both.operands, tensor.operand);
    EXPECT_EQ(std::memcmp(a, b, tensor.bytes()), 0) << tensor.name << " seed " << seed_;
  }
  EXPECT_NE(of_one.q_turned, of_one.q);
}

// The first page out of range is reported, and nothing else is written: no key either.
TEST_F(FmhaExtend, ABadPageStopsACheckedLaunch) {
  const Target target = targets_here().front();
  const Problem p = parse_problem(
      "fmha kind=extend batch=2 heads=2 seqlen_q=2 seqlen_k=12 hdim=16 page_size=4 pages=table "
      "check_pages=1");
  measure::OwnedOperands owned = measure::random_operands(p, seed_);
  const auto& o = std::get<FmhaOperands>(owned.operands);
  const_cast<std::int32_t*>(o.page_table)[4] = 77;
  std::vector<std::vector<std::byte>> was;
  for (const std::size_t output : owned.outputs) {
    const auto* const bytes = static_cast<const std::byte*>(owned.storage.at(output).data());
    was.emplace_back(bytes, bytes + owned.storage.at(output).size());
  }
  launch(target, p, owned.operands, 2);
  EXPECT_EQ(std::vector<std::int32_t>(o.bad_page, o.bad_page + 4),
            (std::vector<std::int32_t>{1, 1, 1, 77}));
  for (std::size_t i = 0; i < owned.outputs.size(); ++i) {
    if (owned.tensors[owned.outputs[i]].is_report) continue;
    const auto& now = owned.storage.at(owned.outputs[i]);
    EXPECT_EQ(std::memcmp(now.data(), was[i].data(), was[i].size()), 0)
        << owned.tensors[owned.outputs[i]].name;
  }
}

}  // namespace
}  // namespace tessera::fmha
