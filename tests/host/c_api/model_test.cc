#include "c_handles.h"

namespace tessera {
namespace {

using testing_support::CModel;
using testing_support::CProblem;
using testing_support::CText;
using testing_support::failure;
using testing_support::ok;
using testing_support::parsed;

const std::string kModel = std::string(TESSERA_SOURCE) +
                           "/models"
                           "/gemm_sm90a_bf16";

TEST(CModel, RanksAndPredictsAlike) {
  CModel model;
  ASSERT_TRUE(ok(tsr_model_load(kModel.c_str(), &model)));
  CProblem problem;
  ASSERT_TRUE(ok(tsr_problem_parse("gemm m=4096 n=4096 k=4096 dtype=bf16", &problem)));
  CText json;
  ASSERT_TRUE(ok(tsr_model_rank(model, problem, 0, 3, &json)));
  const auto kernels = parsed(json)["kernels"];
  ASSERT_EQ(kernels.size(), 3);
  for (const auto& row : kernels) {
    const std::string name = row["kernel"];
    double predicted = 0;
    ASSERT_TRUE(ok(tsr_model_predict(model, problem, name.c_str(), 0, &predicted)));
    EXPECT_EQ(predicted, row["predicted"].get<double>()) << name;
  }
  EXPECT_LE(kernels[1]["predicted"], kernels[2]["predicted"]);
}

TEST(CModel, IsFoundByItsForestsFile) {
  CModel model;
  ASSERT_TRUE(ok(tsr_model_load((kModel + "/model.txt.gz").c_str(), &model)));
  CText json;
  ASSERT_TRUE(ok(tsr_model_json(model, &json)));
  EXPECT_EQ(parsed(json)["target"], "sm90a");
}

TEST(CModel, RefusesWhatItDidNotLearn) {
  CModel model;
  ASSERT_TRUE(ok(tsr_model_load(kModel.c_str(), &model)));
  CProblem problem;
  ASSERT_TRUE(ok(tsr_problem_parse("norm kind=softmax rows=4 columns=4", &problem)));
  CText json;
  EXPECT_EQ(tsr_model_rank(model, problem, 0, 3, &json), TSR_UNSUPPORTED);
  double predicted = 0;
  EXPECT_EQ(tsr_model_predict(model, problem, "norm", 0, &predicted), TSR_UNSUPPORTED);
  CProblem product;
  ASSERT_TRUE(ok(tsr_problem_parse("gemm m=512 n=512 k=512 dtype=bf16", &product)));
  for (const char* kernel :
       {"nothing", "gemm_nothing", "gemm_bf16_rcr_mem_128x128x64_2x2x1_32x32x8_intrawave_gfx942",
        "gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_cooperative_s99_sm90a"}) {
    EXPECT_EQ(tsr_model_predict(model, product, kernel, 0, &predicted), TSR_NOT_FOUND) << kernel;
  }
  CModel none;
  EXPECT_EQ(tsr_model_load("/nowhere/model", &none), TSR_IO_ERROR);
  EXPECT_EQ(none.it, nullptr);
}

}  // namespace
}  // namespace tessera
