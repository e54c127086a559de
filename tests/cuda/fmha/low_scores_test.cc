// Attention on a GPU whose bias hides keys by finfo.min, which fp32 does not hold in powers of 2.
#include "host/fmha/low_scores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cuda/fmha/pipelines.h"

namespace tessera {
namespace {

class GpuFmhaLowScores : public GpuFmhaPipeline {
 protected:
  // Every kernel of the pipeline that serves the problem.
  void attend(Pipeline pipeline, const std::string& fields) {
    const Problem problem = parse_problem("fmha bias=elementwise lse=1 " + fields);
    const std::vector<KernelSpec> specs = kernels(pipeline, problem);
    ASSERT_FALSE(specs.empty()) << fields;
    ASSERT_NO_FATAL_FAILURE(build(specs));
    for (const KernelSpec& spec : specs) {
      SCOPED_TRACE(name_of(spec) + " on '" + to_string(problem) + "'");
      say(name_of(spec));
      measure::OwnedOperands owned = measure::random_operands(problem, random_());
      const auto& p = std::get<FmhaProblem>(problem);
      const fmha::LowScores scores(p, owned, -max_finite(p.dtype_bias));
      scores.hide_keys();
      run_at(Edge::first, name_of(spec), problem, owned);
      scores.expect_means();
    }
  }

  // Ten kernels of the pipeline, drawn anew: all of them would take minutes to compile.
  void differentiate(Pipeline pipeline, const std::string& fields, double low) {
    const Problem problem = parse_problem("fmha kind=backward " + fields);
    std::vector<KernelSpec> specs = kernels(pipeline, problem);
    ASSERT_FALSE(specs.empty()) << fields;
    std::shuffle(specs.begin(), specs.end(), random_);
    if (specs.size() > 10) specs.resize(10);
    ASSERT_NO_FATAL_FAILURE(build(specs));
    for (const KernelSpec& spec : specs) {
      SCOPED_TRACE(name_of(spec) + " on '" + to_string(problem) + "'");
      say(name_of(spec));
      measure::OwnedOperands owned = measure::random_operands(problem, random_());
      const auto& p = std::get<FmhaProblem>(problem);
      const fmha::LowScores scores(p, owned, low);
      p.bias == FmhaBias::none ? scores.level_products() : scores.hide_keys();
      scores.put_results();
      run_at(Edge::first, name_of(spec), problem, owned);
      scores.expect_gradients();
    }
  }
};

TEST_F(GpuFmhaLowScores, KeysAreHiddenFromFewQueries) {
  for (const char* fields : {"heads=4 seqlen_q=1 seqlen_k=1025 hdim=64 dtype=bf16",
                             "heads=8 heads_kv=2 seqlen_q=3 seqlen_k=2000 hdim=128 dtype=bf16",
                             "heads=16 heads_kv=1 seqlen_q=1 seqlen_k=1025 hdim=576 hdim_v=512 "
                             "dtype=bf16"}) {
    attend(Pipeline::splitkv, fields);
  }
  attend(Pipeline::direct, "heads=4 seqlen_q=3 seqlen_k=1025 hdim=64 dtype=bf16");
}

TEST_F(GpuFmhaLowScores, KeysAreHiddenFromManyQueries) {
  for (const char* fields : {"heads=4 seqlen_q=300 seqlen_k=700 hdim=64 dtype=bf16",
                             "heads=4 heads_kv=2 seqlen_q=150 seqlen_k=300 hdim=128 dtype=bf16",
                             "heads=2 seqlen_q=130 seqlen_k=300 hdim=256 dtype=bf16"}) {
    attend(Pipeline::tmaws, fields);
  }
}

TEST_F(GpuFmhaLowScores, GradientsOfHiddenRows) {
  const std::string direct = "heads=4 heads_kv=2 seqlen_q=13 seqlen_k=77 hdim=64 ";
  for (const char* dtype : {"fp32", "bf16"}) {
    const std::string fields = direct + "bias=elementwise dtype=" + dtype;
    differentiate(Pipeline::direct, fields, -1e9);
    differentiate(Pipeline::direct, fields, -max_finite(DType::bf16));
  }
}

TEST_F(GpuFmhaLowScores, GradientsOfLowProducts) {
  for (const char* hdim : {"64", "128"}) {
    const std::string fields =
        std::string("heads=4 heads_kv=2 seqlen_q=200 seqlen_k=300 scale=1 dtype=bf16 hdim=") + hdim;
    differentiate(Pipeline::tmaws, fields, -std::stod(hdim) * 0x1p20);
  }
}

}  // namespace
}  // namespace tessera
