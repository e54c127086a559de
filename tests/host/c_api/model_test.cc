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

TEST(CModel, PredictsManyKernelsAsItPredictsOne) {
  CModel model;
  ASSERT_TRUE(ok(tsr_model_load(kModel.c_str(), &model)));
  CProblem problem;
  ASSERT_TRUE(ok(tsr_problem_parse("gemm m=777 n=1030 k=2048 dtype=bf16", &problem)));
  CText json;
  ASSERT_TRUE(ok(tsr_model_rank(model, problem, 0, 20, &json)));
  std::vector<std::string> names;
  const auto kernels = parsed(json)["kernels"];
  ASSERT_EQ(kernels.size(), 20);
  for (const auto& row : kernels) names.insert(names.begin(), row["kernel"].get<std::string>());
  names.push_back(names.front());
  std::vector<const char*> asked;
  for (const std::string& name : names) asked.push_back(name.c_str());
  std::vector<double> seconds(asked.size() + 1, -1.0);
  ASSERT_TRUE(
      ok(tsr_model_predict_all(model, problem, asked.data(), asked.size(), 0, seconds.data())));
  for (std::size_t i = 0; i < asked.size(); ++i) {
    double one = 0;
    ASSERT_TRUE(ok(tsr_model_predict(model, problem, asked[i], 0, &one)));
    EXPECT_EQ(seconds[i], one) << asked[i];
  }
  EXPECT_EQ(seconds.back(), -1.0);  // nothing is written behind them
  asked[3] = "nothing";
  const tsr_status_t status =
      tsr_model_predict_all(model, problem, asked.data(), asked.size(), 0, seconds.data());
  EXPECT_EQ(status, TSR_NOT_FOUND);
  EXPECT_NE(failure(status).find("'nothing' is none of the "), std::string::npos);
  EXPECT_EQ(tsr_model_predict_all(model, problem, nullptr, 2, 0, seconds.data()),
            TSR_INVALID_ARGUMENT);
  EXPECT_TRUE(ok(tsr_model_predict_all(model, problem, nullptr, 0, 0, nullptr)));
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
