#include "tessera/commands/tune_learning.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

namespace tessera::commands {
namespace {

constexpr std::size_t kLeastProblems = 100;  // with fewer problems, cross-validation says little

// The order of a ranker as seconds: its predictions, made monotonic along the order.
train::Predict predict_by(const std::shared_ptr<const Ranker>& ranker) {
  return [ranker](const RankInput& input, std::span<double> seconds) {
    const std::vector<Ranked> ranked =
        ranker == nullptr ? std::vector<Ranked>{} : ranker->rank(input);
    std::fill(seconds.begin(), seconds.end(), std::numeric_limits<double>::infinity());
    for (std::size_t i = 0; i < ranked.size(); ++i) {
      seconds[ranked[i].index] = 1 + static_cast<double>(i);
    }
    return !ranked.empty();
  };
}

Learned train_one(const Console& console, const train::Dataset& data, const Target& target,
                  const std::string& types, const fs::path& models) {
  const auto library = shared_model_library(fs::path());
  const bool is_shipped = library->count(op_of(data), target.name, types) > 0;
  const auto old = is_shipped ? make_library_ranker(library) : nullptr;
  const train::Evaluation before =
      train::evaluate(data.problems, train::score(data, target, predict_by(old)));
  train::TrainOptions options;
  options.version = kVersion;
  options.on_forest = [&](int, int, const train::Split&) { console.check_stop(); };
  const train::TrainResult result = train::train(data, target, options);

  Learned learned{types, false, "", before.summary, result.evaluation.value().summary};
  const train::Summary& was = learned.before;
  const train::Summary& is = learned.after;
  learned.installed = is.mean > was.mean && is.p10 >= was.p10;
  const fs::path folder = models / model_name(op_of(data), target.name, types);
  if (learned.installed) save_model(folder, result.manifest, result.forest, ModelFile::gzip);
  learned.outcome = fmt::format(
      "{} problems not seen in training: {:.2f}% of the fastest in the mean and {:.2f}% in the "
      "tenth part, {} had {:.2f}% and {:.2f}%; {}",
      is.problems, 100 * is.mean, 100 * is.p10,
      is_shipped ? "the shipped model" : "the analytic estimate", 100 * was.mean, 100 * was.p10,
      learned.installed ? "the model is in " + folder.string() : "the model is not kept");
  return learned;
}

}  // namespace

std::vector<Learned> learn(const Console& console, const measure::SweepData& data,
                           const Target& target, int threads,
                           const std::vector<KernelSpec>& kernels, const fs::path& models) {
  std::set<std::pair<Op, std::string>> kinds;
  for (const KernelSpec& spec : kernels) kinds.emplace(op_of(spec), model_key(spec));
  std::vector<Learned> all;
  for (const auto& [op, types] : kinds) {
    train::DatasetFilter filter;
    filter.op = op;
    filter.target = target.name;
    filter.dtypes = {types};
    filter.threads = {threads};
    filter.least_problems = kLeastProblems;
    try {
      lightgbm::load();
      all.push_back(train_one(console, train::make_dataset(data, filter), target, types, models));
    } catch (const Error& error) {
      const bool cannot =
          error.code() == ErrorCode::not_found || error.code() == ErrorCode::load_failed ||
          error.code() == ErrorCode::cancelled || error.code() == ErrorCode::invalid_argument;
      if (!cannot) throw;
      all.push_back({types, false, error.what(), {}, {}});
    }
  }
  return all;
}

}  // namespace tessera::commands
