// Lists of groups are copied by each group's own sizes, and by nothing of the problem's.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "cpu/guarded_lists.h"
#include "grouped.h"
#include "host/measure/copying_place.h"
#include "tessera/base/error.h"
#include "tessera/spec/problem.h"

namespace tessera::measure {
namespace {

constexpr const char* kLists[] = {
    "gemm m=40 n=30 k=50 groups=7 grouping=lists",
    "gemm m=40 n=30 k=50 groups=7 grouping=lists layout=crr beta=0.5 epilogue=bias group_strides=1",
    "gemm m=9 n=33 k=21 groups=20 grouping=lists layout=rrr dtype=bf16 epilogue=row_scale",
    "gemm m=31 n=12 k=9 groups=5 grouping=lists layout=ccr epilogue=add+relu group_strides=1",
    "gemm m=5 n=6 k=0 groups=3 grouping=lists"};

struct ListOperands : testing::TestWithParam<const char*> {
  std::mt19937_64 random{testing_support::seed_of_run()};
  Problem problem = parse_problem(GetParam());
  GemmProblem p = std::get<GemmProblem>(problem);
  OwnedOperands owned = random_operands(problem, random());

  ListOperands() { grouped::fill_numbers(p, owned.operands, random); }

  // Whether both have the bytes of every group.
  void expect_equal(const Tensor& tensor, const Operands& left, const Operands& right) {
    const GemmProblem q = with_strides(p);
    const device::GroupArguments x = gemm::group_arguments(q, std::get<GemmOperands>(left));
    for (std::int64_t group = 0; group < p.groups; ++group) {
      const std::size_t bytes =
          grouped::bytes_of_list(q, tensor, device::product_of_list(x, group));
      EXPECT_EQ(owned.family->batch_bytes(problem, left, tensor, group), bytes);
      if (bytes == 0) continue;
      const void* const one = device::listed(owned.family->pointer(left, tensor.operand), group);
      const void* const two = device::listed(owned.family->pointer(right, tensor.operand), group);
      EXPECT_NE(one, two);
      EXPECT_EQ(std::memcmp(one, two, bytes), 0) << tensor.name << " of group " << group;
    }
  }
};

TEST_P(ListOperands, AreCopiedByTheGroupsSizes) {
  for (const Edge edge : {Edge::begin, Edge::end}) {
    const ListsAtEdges there(p, owned, edge);
    HostOperands host = fetch_inputs(*owned.family, problem, there.operands(), copying_place());
    for (const Tensor& tensor : owned.tensors) {
      if (tensor.in_array && tensor.is_read() && !tensor.is_empty()) {
        expect_equal(tensor, there.operands(), host.operands);
      }
    }
    fetch_results(*owned.family, there.operands(), copying_place(), host);
    const HostOperands results =
        copy_results(*owned.family, there.operands(), copying_place(), host);
    const Tensor& out = owned.tensors[owned.outputs.front()];
    expect_equal(out, there.operands(), host.operands);
    expect_equal(out, there.operands(), results.operands);
  }
}

INSTANTIATE_TEST_SUITE_P(Lists, ListOperands, testing::ValuesIn(kLists));

TEST(ListDistances, BelowZeroAreRefused) {
  const Problem problem = parse_problem("gemm m=4 n=4 k=4 groups=3 grouping=lists group_strides=1");
  const OwnedOperands owned = random_operands(problem, 1);
  const auto& o = std::get<GemmOperands>(owned.operands);
  grouped::fill_group(owned.operands, 2);
  const_cast<std::int32_t*>(o.group_lds[1])[2] = -5;
  std::string sentence;
  try {
    fetch_inputs(*owned.family, problem, owned.operands, copying_place());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    sentence = error.what();
  }
  EXPECT_EQ(sentence,
            "gemm: group_ld_b[2] must be at least 0, with a last byte below 2^63, so that the "
            "group can be compared, got -5");
}

}  // namespace
}  // namespace tessera::measure
