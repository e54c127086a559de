#include "tessera/base/inline_vector.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tessera/base/error.h"

namespace tessera {
namespace {

TEST(InlineVector, HoldsWhatWasPushedInOrder) {
  InlineVector<int, 3> list;
  EXPECT_TRUE(list.empty());
  for (const int item : {7, 8, 9}) list.push(item);
  EXPECT_EQ(list.size(), 3U);
  EXPECT_EQ(list[0], 7);
  EXPECT_EQ(list[2], 9);
  EXPECT_EQ(std::accumulate(list.begin(), list.end(), 0), 24);
}

TEST(InlineVector, AddsBlankItemsToBeFilledIn) {
  InlineVector<int, 2> list = {7, 8};
  list = {};
  EXPECT_EQ(list.add(), 0) << "what lay there before is gone";
  list.add() = 9;
  EXPECT_EQ(list.size(), 2U);
  EXPECT_EQ(list[1], 9);
  EXPECT_THROW(list.add(), Error);
  EXPECT_EQ(list.size(), 2U);
}

TEST(InlineVector, CopiesAreLists) {
  const InlineVector<int, 4> list = {1, 2};
  InlineVector<int, 4> copy = list;
  copy.push(3);
  EXPECT_EQ(list.size(), 2U);
  EXPECT_EQ(copy.size(), 3U);
  copy = list;
  EXPECT_EQ(copy.size(), 2U);
  EXPECT_EQ(copy[1], 2);
}

TEST(InlineVector, RefusesOneMoreThanItTakes) {
  InlineVector<int, 2> list = {1, 2};
  try {
    list.push(3);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::internal);
    EXPECT_STREQ(error.what(), "a list takes at most 2 items, got 3");
  }
  EXPECT_EQ(list.size(), 2U);
  EXPECT_EQ(list[1], 2);
}

}  // namespace
}  // namespace tessera
