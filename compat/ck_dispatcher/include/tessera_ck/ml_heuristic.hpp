// A learned model of Tessera's as a dispatcher's heuristic. Files ending in .gz are read as they
// are.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/tessera.h>

#include "tessera_ck/dispatcher.hpp"

namespace tessera_ck {

// A model holds the machine that it was trained for, so that nothing has to be said here.
struct HardwareProfile {};

class MLHeuristic {
 public:
  // path: a model's folder, or its file in there. registry: the kernels that are ranked; it must
  // outlive the heuristic. A model that cannot be loaded is not an exception: is_loaded() is false,
  // and error() a sentence. Whether a model's values are logarithms, its folder says.
  MLHeuristic(const std::string& path, Registry* registry, const HardwareProfile& = {},
              bool log_transform = false)
      : registry_(registry) {
    detail::changes_nothing("log_transform", log_transform, "the model's folder says it");
    tsr_model_t* made = nullptr;
    if (tsr_model_load(path.c_str(), &made) != TSR_OK) {
      error_ = tsr_error();
    } else {
      model_.reset(made, tsr_model_destroy);
    }
  }

  bool is_loaded() const { return model_ != nullptr; }
  const std::string& error() const { return error_; }

  // 0 where the model has no opinion.
  double predict_tflops(const Problem& problem, const KernelKey& key) const {
    const KernelInstancePtr one = registry_->lookup(key);
    if (model_ == nullptr || one == nullptr || !problem.is_valid()) return 0;
    tsr_problem_t* parsed = nullptr;
    if (tsr_problem_parse(one->line(problem).c_str(), &parsed) != TSR_OK) return 0;
    double seconds = 0;
    const tsr_status_t status =
        tsr_model_predict(model_.get(), parsed, one->get_name().c_str(), 0, &seconds);
    tsr_problem_destroy(parsed);
    return status == TSR_OK && seconds > 0 ? problem.num_ops() / seconds / 1e12 : 0;
  }

  // The names of the registry's kernels that compute the problem, best first; those that the model
  // has no opinion on come last.
  std::vector<std::string> operator()(const Problem& problem) const {
    std::vector<std::pair<double, std::string>> found;
    for (const KernelInstancePtr& one : registry_->get_all()) {
      if (!one->supports(problem)) continue;
      found.emplace_back(-predict_tflops(problem, one->get_key()), one->get_name());
    }
    std::sort(found.begin(), found.end());
    std::vector<std::string> names;
    for (auto& [negative, name] : found) names.push_back(std::move(name));
    return names;
  }

 private:
  Registry* registry_;
  std::shared_ptr<tsr_model_t> model_;
  std::string error_;
};

}  // namespace tessera_ck
