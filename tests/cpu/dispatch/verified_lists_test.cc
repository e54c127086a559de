// Launches of lists are compared by the sizes of each group, behind which nobody may read or write;
// kernels that are wrong on purpose are found.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "cpu/broken_compiler.h"
#include "cpu/dispatch/dispatcher_fixture.h"
#include "cpu/guarded_lists.h"
#include "grouped.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"

namespace tessera {
namespace {

using testing_support::Breakage;

struct VerifiedLists : DispatcherTest, testing::WithParamInterface<const char*> {
  std::mt19937_64 random{seed};
  Problem problem = parse_problem(GetParam());
  GemmProblem p = std::get<GemmProblem>(problem);
  measure::OwnedOperands owned = measure::random_operands(problem, seed);

  VerifiedLists() {
    set_log_sink([](LogLevel, std::string_view) {});
    grouped::fill_numbers(p, owned.operands, random);
    grouped::fill_group(owned.operands, 1);  // one group has an output
  }
  ~VerifiedLists() override { set_log_sink({}); }

  DispatcherOptions sampled() const {
    DispatcherOptions o = options();
    o.build.cache.folder = fs::current_path() / "sampling_kernels";
    o.build.use_shipped_packs = false;
    o.verify_every = 1;
    return o;
  }
  DispatcherOptions wrong() const {
    DispatcherOptions o = sampled();
    const Breakage all[] = {
        {Dispatcher(options()).explain(problem).name, testing_support::kWritesNothing}};
    o.build.cache.folder = folder / "cache";
    o.build.compiler = testing_support::broken_compiler(folder, all).string();
    return o;
  }
};

TEST_P(VerifiedLists, AreReadByTheGroupsSizes) {
  Dispatcher dispatcher(sampled());
  for (const Edge edge : {Edge::begin, Edge::end}) {
    const ListsAtEdges there(p, owned, edge);
    dispatcher.run(problem, there.operands());
    EXPECT_NO_THROW(dispatcher.run(problem, there.operands(), verified()));
    dispatcher.sampling();  // waits for the comparison
  }
  const SamplingReport report = dispatcher.sampling();
  EXPECT_EQ(report.compared, 2U);
  EXPECT_EQ(report.wrong, 0U);
  EXPECT_EQ(report.failed, 0U);
}

TEST_P(VerifiedLists, OfAWrongKernelAreFound) {
  Dispatcher dispatcher(wrong());
  const ListsAtEdges there(p, owned, Edge::end);
  EXPECT_THROW(dispatcher.run(problem, there.operands(), verified()), Error);
  dispatcher.run(problem, there.operands());
  EXPECT_EQ(dispatcher.sampling().wrong, 1U);
}

INSTANTIATE_TEST_SUITE_P(
    Lists, VerifiedLists,
    testing::Values("gemm m=40 n=30 k=50 groups=7 grouping=lists",
                    "gemm m=40 n=30 k=50 groups=7 grouping=lists layout=crr beta=0.5 epilogue=bias "
                    "group_strides=1",
                    "gemm m=9 n=33 k=21 groups=20 grouping=lists layout=rrr dtype=bf16 "
                    "epilogue=add+relu group_strides=1"));

}  // namespace
}  // namespace tessera
