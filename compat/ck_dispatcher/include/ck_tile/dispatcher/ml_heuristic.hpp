// A learned model of Tessera's as a dispatcher's heuristic. Files ending in .gz are read as they
// are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ck_tile/dispatcher/dispatcher.hpp"

namespace ck_tile::dispatcher {

// A model of Tessera's holds the machine that it was trained for, so that these change nothing.
struct HardwareProfile {
  int num_cus = 256, simds_per_cu = 4, shader_engines = 32, max_clock_mhz = 2400;
  int max_waves_per_cu = 32, wavefront_size = 64, lds_capacity = 65536, l1_cache_kb = 32;
  int l2_cache_kb = 4096, l3_cache_kb = 262144, num_xcd = 8;
  int total_simds() const { return num_cus * simds_per_cu; }
};

class MLHeuristic {
 public:
  // path: a model's folder, or its file in there. registry: the kernels that are ranked; it must
  // outlive the heuristic. A model that cannot be loaded is not an exception: is_loaded() is false,
  // and error() a sentence.
  MLHeuristic(const std::string& path, const Registry* registry, const HardwareProfile& = {},
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
    const auto one = std::dynamic_pointer_cast<backends::TesseraGemm>(registry_->lookup(key));
    if (model_ == nullptr || one == nullptr || !one->supports(problem)) return 0;
    const backends::ProblemHandle parsed = backends::problem_of(one->line(problem));
    double seconds = 0;
    const tsr_status_t status = tsr_model_predict(model_.get(), parsed.get(),
                                                  one->kernel_for(problem).c_str(), 0, &seconds);
    return status == TSR_OK ? tflops_in(problem, seconds) : 0;
  }

  // The identifiers of the registry's kernels that compute the problem, best first; those that the
  // model has no opinion on come last.
  std::vector<std::string> operator()(const Problem& problem) const {
    const std::vector<KernelInstancePtr> able =
        registry_->filter([&](const KernelInstance& one) { return one.supports(problem); });
    const std::vector<double> tflops = predict_all(problem, able);
    std::vector<std::pair<double, std::string>> found;
    for (std::size_t i = 0; i < able.size(); ++i) {
      found.emplace_back(-tflops[i], able[i]->get_key().encode_identifier());
    }
    std::sort(found.begin(), found.end());
    std::vector<std::string> identifiers;
    for (auto& [negative, identifier] : found) identifiers.push_back(std::move(identifier));
    return identifiers;
  }

 private:
  // Kernels for the same types are asked for together, because that costs as much as one. Where the
  // model has no opinion on one of them, each is asked for alone.
  std::vector<double> predict_all(const Problem& problem,
                                  const std::vector<KernelInstancePtr>& kernels) const {
    std::map<std::string, std::vector<std::size_t>> places;
    std::vector<double> tflops(kernels.size());
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      const auto one = std::dynamic_pointer_cast<backends::TesseraGemm>(kernels[i]);
      if (one != nullptr && model_ != nullptr) places[one->line(problem)].push_back(i);
    }
    for (const auto& [line, mine] : places) {
      std::vector<std::string> names;
      std::vector<const char*> texts;
      std::vector<double> seconds(mine.size());
      for (const std::size_t i : mine) {
        names.push_back(static_cast<const backends::TesseraGemm&>(*kernels[i]).kernel_for(problem));
      }
      for (const std::string& name : names) texts.push_back(name.c_str());
      const backends::ProblemHandle parsed = backends::problem_of(line);
      const bool all_known = tsr_model_predict_all(model_.get(), parsed.get(), texts.data(),
                                                   texts.size(), 0, seconds.data()) == TSR_OK;
      for (std::size_t i = 0; i < mine.size(); ++i) {
        tflops[mine[i]] = all_known ? tflops_in(problem, seconds[i])
                                    : predict_tflops(problem, kernels[mine[i]]->get_key());
      }
    }
    return tflops;
  }
  static double tflops_in(const Problem& problem, double seconds) {
    return seconds > 0 ? static_cast<double>(problem.num_ops()) / seconds / 1e12 : 0;
  }

  const Registry* registry_;
  std::shared_ptr<tsr_model_t> model_;
  std::string error_;
};

}  // namespace ck_tile::dispatcher
