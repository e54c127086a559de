// Learned models: predicting and ranking.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/c_api/handles_internal.h"
#include "tessera/learn/ranker.h"

namespace tessera::c_api {
namespace {

// A model's folder, which may be named by the forest's file.
std::filesystem::path folder_of(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const bool is_forest = name.ends_with(".txt") || name.ends_with(".txt.gz");
  return is_forest ? path.parent_path() : path;
}

// The decision by the model alone.
Decision rank(const tsr_model_t& model, const Problem& problem, int threads) {
  check_least("threads", threads, 0);
  ChooseOptions options;
  options.threads = threads > 0 ? threads : model.model->manifest.threads;
  options.rankers = {make_model_ranker(model.model, family_of(problem).extract)};
  options.explain = true;
  Decision decision = choose(problem, model.target, options);
  if (decision.source == ChoiceSource::learned) return decision;
  throw Error(ErrorCode::unsupported,
              fmt::format("model: '{}': {}", to_string(problem), decision.why));
}

// The kernel of a name, if the target can run it: as a kernel of ours, or of a library for whose
// templates we write instances.
std::optional<KernelSpec> known_kernel(std::string_view name, const Problem& problem,
                                       const Target& target) {
  const Family& family = family_of(problem);
  if (find_family(name) != &family) return std::nullopt;
  try {
    const KernelSpec spec = parse_name(name);
    const auto has = [&](const InstanceSource& source) {
      return static_cast<bool>(source.is_legal(spec, target));
    };
    const auto sources = family.instances();
    const bool is_known =
        family.is_legal(spec, target) || std::any_of(sources.begin(), sources.end(), has);
    if (is_known && spec.signature == signature_of(problem)) return spec;
  } catch (const Error&) {  // no name of a kernel
  }
  return std::nullopt;
}

// Kernels that are not in the target's own list, such as those of CK Tile's that were measured
// elsewhere. Nothing for other names, and for a model of relative times.
std::vector<double> predict_others(const tsr_model_t& model, const Problem& problem,
                                   std::span<const std::string> kernels, int threads) {
  if (learned_value(model.model->manifest.quantity) != LearnedValue::seconds) return {};
  std::vector<KernelSpec> specs;
  for (const std::string& kernel : kernels) {
    const std::optional<KernelSpec> spec = known_kernel(kernel, problem, model.target);
    if (!spec || !family_of(*spec).is_described(*spec)) return {};
    specs.push_back(*spec);
  }
  const int units = threads > 0 ? threads : model.model->manifest.threads;
  std::vector<double> seconds(specs.size());
  const RankInput input = {problem, model.target, units, specs};
  const bool known = predict_seconds(*model.model, family_of(problem).extract, input, seconds);
  return known ? seconds : std::vector<double>();
}

// The place of each kernel that was ranked. Throws for a kernel that the target or the problem
// refuses.
using Places = std::unordered_map<std::string_view, const Considered*>;

const Considered* find_ranked(const Places& places, std::string_view kernel) {
  const auto found = places.find(kernel);
  if (found == places.end()) return nullptr;
  const Considered& each = *found->second;
  if (each.refusal.empty()) return &each;
  throw Error(ErrorCode::illegal_spec, fmt::format("model: {}: {}", kernel, each.refusal));
}

// All kernels are ranked once, because a model of relative times needs the others.
void predict(const tsr_model_t& model, const Problem& problem, std::span<const std::string> kernels,
             int threads, std::span<double> seconds) {
  const Decision decision = rank(model, problem, threads);
  Places places;
  for (const Considered& each : decision.considered) places.emplace(each.name, &each);
  std::vector<std::string> others;
  std::vector<std::size_t> of_others;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (const Considered* ranked = find_ranked(places, kernels[i])) {
      seconds[i] = ranked->predicted_seconds;
    } else {
      others.push_back(kernels[i]);
      of_others.push_back(i);
    }
  }
  if (others.empty()) return;
  const std::vector<double> predicted = predict_others(model, problem, others, threads);
  for (std::size_t i = 0; i < predicted.size(); ++i) seconds[of_others[i]] = predicted[i];
  if (!predicted.empty()) return;
  throw Error(ErrorCode::not_found,
              fmt::format("model: '{}' is none of the {} kernels of {} with the types of '{}'",
                          fmt::join(others, "', '"), decision.considered.size(), model.target.name,
                          to_string(problem)));
}

std::vector<std::string> names_of(const char* const* kernels, std::size_t count) {
  if (kernels == nullptr && count > 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("model: {} kernels are asked for, and their names are NULL", count));
  }
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) names.emplace_back(text_of(kernels[i], "kernel's name"));
  return names;
}

Json to_json(const Decision& decision, std::size_t top) {
  Json kernels = Json::array();
  for (const Considered& each : decision.considered) {
    if (!each.refusal.empty() || (top > 0 && kernels.size() == top)) break;
    kernels.push_back({{"kernel", each.name}, {"predicted", each.predicted_seconds}});
  }
  return {{"kernels", kernels}};
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

tsr_status_t tsr_model_load(const char* path, tsr_model_t** model) {
  return guarded([&] {
    result_of(model, "model");
    auto made = std::make_unique<tsr_model_t>();
    Model loaded = load_model(folder_of(text_of(path, "model's path")));
    made->target = loaded.machine ? *loaded.machine : load_target(loaded.manifest.target);
    made->model = std::make_shared<const Model>(std::move(loaded));
    hand_out(*model, made.release());
  });
}

tsr_status_t tsr_model_json(const tsr_model_t* model, char** json) {
  return guarded([&] {
    result_of(json, "JSON");
    *json = copy_of(to_json(object_of(model, "model").model->manifest));
  });
}

tsr_status_t tsr_model_predict(const tsr_model_t* model, const tsr_problem_t* problem,
                               const char* kernel, int threads, double* seconds) {
  return guarded([&] {
    const std::string name(text_of(kernel, "kernel's name"));
    predict(object_of(model, "model"), problem_of(problem), {&name, 1}, threads,
            {&result_of(seconds, "prediction"), 1});
  });
}

tsr_status_t tsr_model_predict_all(const tsr_model_t* model, const tsr_problem_t* problem,
                                   const char* const* kernels, size_t count, int threads,
                                   double* seconds) {
  return guarded([&] {
    const std::vector<std::string> names = names_of(kernels, count);
    const tsr_model_t& asked = object_of(model, "model");
    const Problem& whole = problem_of(problem);
    if (count == 0) return;
    predict(asked, whole, names, threads, {&result_of(seconds, "prediction"), count});
  });
}

tsr_status_t tsr_model_rank(const tsr_model_t* model, const tsr_problem_t* problem, int threads,
                            size_t top, char** json) {
  return guarded([&] {
    result_of(json, "JSON");
    const tsr_model_t& ranker = object_of(model, "model");
    *json = json_copy(to_json(rank(ranker, problem_of(problem), threads), top));
  });
}

void tsr_model_destroy(tsr_model_t* model) { destroy(model); }

}  // extern "C"
#pragma GCC visibility pop

}  // namespace tessera::c_api
