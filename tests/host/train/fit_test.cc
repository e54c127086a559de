#include "tessera/train/fit.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace tessera::train {
namespace {

TEST(Fit, ByHand) {
  const std::array measured = {1.0, 2.0, 3.0, 6.0};
  const std::array predicted = {1.0, 3.0, 3.0, 4.0};
  const std::optional<Fit> fit = fit_of(measured, predicted, "us");
  ASSERT_TRUE(fit);
  EXPECT_EQ(fit->rows, 4U);
  EXPECT_EQ(fit->unit, "us");
  EXPECT_DOUBLE_EQ(fit->r2, 1 - 5.0 / 14.0);
  EXPECT_DOUBLE_EQ(fit->rmse, std::sqrt(5.0 / 4.0));
}

TEST(Fit, PerfectPredictionsAndTheMean) {
  const std::array measured = {0.5, 2.5, 3.0};
  const std::array mean = {2.0, 2.0, 2.0};
  EXPECT_EQ(fit_of(measured, measured, "")->r2, 1);
  EXPECT_EQ(fit_of(measured, measured, "")->rmse, 0);
  EXPECT_DOUBLE_EQ(fit_of(measured, mean, "")->r2, 0);
}

TEST(Fit, NothingToDetermine) {
  const std::array one = {1.0};
  const std::array equal = {2.0, 2.0};
  EXPECT_FALSE(fit_of(one, one, ""));
  EXPECT_FALSE(fit_of(equal, equal, ""));
}

}  // namespace
}  // namespace tessera::train
