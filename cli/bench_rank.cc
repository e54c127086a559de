// tessera bench rank. Features, trees, the whole ranking and LightGBM's predictor are measured in
// turns in one run. LightGBM uses one thread and reads the same numbers row by row, the order that
// suits it.
#include "bench_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <optional>

#include "tessera/commands/format.h"
#include "tessera/commands/learning.h"

namespace tessera::cli {
namespace {

constexpr int kLoads = 21;

struct RankCase {
  std::string model_name;
  std::function<Model()> load;
  Model model;
  Target target;
  Problem problem;
  std::vector<KernelSpec> specs;
  std::size_t different = 0;  // how many different specs
  std::vector<std::string> notes;
};

struct RankTimes {
  std::vector<runtime::Timing> timings;  // of features, forest, ranking, and of LightGBM if found
  std::optional<runtime::Ratio> ratio;   // LightGBM's time over the forest's
  double load_seconds = 0;               // median
  double memo_seconds = 0;               // 0: not measured
  double kernels_seconds = 0;            // one run of each different kernel, as the estimate has it
};

// The name of the first shipped model that learned from such a core; where none did, of the first.
std::string shipped_name(Op op, const Target& target, const std::string& key) {
  const std::vector<std::string> found = shipped_model_names(op, target.name, key);
  for (const std::string& name : found) {
    const Model model = load_shipped_model(name);
    if (!model.machine || is_same_core(*model.machine, target)) return name;
  }
  if (!found.empty()) return found.front();
  std::vector<std::string> names;
  for (const EmbeddedFile& file : shipped_models()) {
    if (!file.path.ends_with("/manifest.json")) continue;
    names.emplace_back(file.path.substr(0, file.path.find('/')));
  }
  throw Error(ErrorCode::not_found,
              fmt::format("bench rank: no model {} is shipped (there are: {}); give --model "
                          "FOLDER, or a --target and --dtype of these",
                          model_name(op, target.name, key), join(names, ", ")));
}

// The default problem has odd sizes, so that most features vary over its kernels.
Problem problem_of(ProblemOptions options, std::string_view op, const std::string& dtype) {
  if (options.words.empty() && options.shapes.empty()) {
    const Problem usual = usual_problem("rank");
    if (op != to_string(op_of(usual))) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("bench rank: the model is for '{}'; give a problem of it", op));
    }
    const std::string& wanted = options.dtype.empty() ? dtype : options.dtype;
    return family_of(usual).retyped(usual, {wanted, options.layout});
  }
  const std::vector<Problem> problems = read_problems(options);
  if (problems.size() == 1) return problems.front();
  throw Error(ErrorCode::invalid_argument,
              fmt::format("bench rank: expected one problem, got {}", problems.size()));
}

std::vector<KernelSpec> legal_kernels(const Problem& problem, const Target& target) {
  const Family& family = family_of(problem);
  std::vector<KernelSpec> legal;
  for (KernelSpec& spec : family.candidates(problem, target)) {
    if (family.is_legal(spec, target) && family.supports(spec, problem, target)) {
      legal.push_back(std::move(spec));
    }
  }
  if (!legal.empty()) return legal;
  throw Error(ErrorCode::not_found, fmt::format("bench rank: {} has no legal kernel for '{}'",
                                                target.name, to_string(problem)));
}

RankCase make_case(const RankBench& bench) {
  RankCase c;
  if (!bench.model.empty()) {
    c.model_name = bench.model;
    c.load = [folder = bench.model] { return load_model(folder); };
    c.model = c.load();
    c.target = c.model.machine ? *c.model.machine : load_target(c.model.manifest.target);
    c.problem = problem_of(bench.problem, c.model.manifest.op, c.model.manifest.dtypes.front());
  } else {
    c.target = resolve_target(bench.target);
    c.problem = problem_of(bench.problem, usual_op(), "bf16");
    c.model_name = shipped_name(op_of(c.problem), c.target, model_key(c.problem));
    c.load = [name = c.model_name] { return load_shipped_model(name); };
    c.model = c.load();
  }
  c.specs = legal_kernels(c.problem, c.target);
  const auto wanted = static_cast<std::size_t>(bench.candidates);
  c.different = std::min(c.specs.size(), wanted);
  c.specs.reserve(wanted);
  while (c.specs.size() < wanted) c.specs.push_back(c.specs[c.specs.size() - c.different]);
  c.specs.resize(wanted);
  return c;
}

// Which of today's features the model was trained on, in its own order, which LightGBM takes.
std::vector<std::size_t> trained_features(const Model& model) {
  const std::vector<std::string>& today = model.forest.feature_names;
  std::vector<std::size_t> places;
  for (const std::string& name : model.manifest.features) {
    places.push_back(
        static_cast<std::size_t>(std::find(today.begin(), today.end(), name) - today.begin()));
  }
  return places;
}

// The buffers of the timed calls. `columns` has today's features, `rows` those of the model's file.
struct Buffers {
  std::vector<double> columns, rows, predictions;
};

Buffers fill_buffers(const RankCase& c, const RankInput& input) {
  const std::size_t count = c.specs.size();
  Buffers b;
  b.columns.resize(c.model.shared.size() * count);
  b.predictions.resize(count);
  family_of(c.problem).extract(input.problem, input.target, input.threads, c.specs, b.columns, {});
  const std::vector<std::size_t> trained = trained_features(c.model);
  b.rows.reserve(trained.size() * count);
  for (std::size_t i = 0; i < count; ++i) {
    for (const std::size_t f : trained) b.rows.push_back(b.columns[f * count + i]);
  }
  return b;
}

std::vector<double> ask_lightgbm(const lightgbm::Booster& booster, const Buffers& b) {
  const std::size_t count = b.predictions.size();
  return lightgbm::predict(booster, b.rows, count, b.rows.size() / count, lightgbm::Order::by_row,
                           "num_threads=1");
}

std::string forest_text(const RankBench& bench, const RankCase& c) {
  const std::string& file = c.model.manifest.file;
  if (!bench.model.empty()) return model_text(read_file(fs::path(bench.model) / file));
  for (const EmbeddedFile& each : shipped_models()) {
    if (each.path == c.model_name + "/" + file) return model_text(each.content);
  }
  throw Error(ErrorCode::not_found, fmt::format("{}: {} was not shipped", c.model_name, file));
}

// The model in LightGBM; empty, with a note, when LightGBM is missing.
lightgbm::Booster find_lightgbm(const RankBench& bench, RankCase& c, Buffers& b) {
  try {
    lightgbm::load();
  } catch (const Error& error) {
    c.notes.emplace_back(error.what());
    return nullptr;
  }
  lightgbm::Booster booster = lightgbm::load_booster(forest_text(bench, c));
  const std::vector<double> expected = ask_lightgbm(booster, b);
  predict(c.model.forest, {b.columns, b.predictions.size(), c.model.shared}, b.predictions);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::bit_cast<std::uint64_t>(expected[i]) == std::bit_cast<std::uint64_t>(b.predictions[i]))
      continue;
    throw Error(ErrorCode::verification_failed,
                fmt::format("bench rank: {}: LightGBM predicts {}, this program {}",
                            name_of(c.specs[i]), expected[i], b.predictions[i]));
  }
  return booster;
}

double median_load(const RankCase& c) {
  std::vector<double> seconds;
  for (int i = 0; i < kLoads; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const Model model = c.load();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return runtime::quantile(seconds, 0.5);
}

// What measuring every kernel would take at the very least: one run of each, without compiling,
// checking and repeating.
double estimated_runs(const RankCase& c, int threads) {
  const Family& family = family_of(c.problem);
  double seconds = 0;
  for (std::size_t i = 0; i < c.different; ++i) {
    seconds += family.estimate(c.specs[i], c.problem, c.target, threads).seconds;
  }
  return seconds;
}

// The ranking's time by the time of running every kernel that it ranked once. Specs are repeated
// where there are fewer different ones than are ranked.
double share_of_runs(const RankCase& c, const RankTimes& times) {
  const double repeats = double(c.specs.size()) / double(c.different);
  return times.timings[2].median_seconds / (times.kernels_seconds * repeats);
}

RankTimes time_case(const RankBench& bench, RankCase& c) {
  const auto model = std::make_shared<const Model>(c.model);
  const auto extract = family_of(c.problem).extract;
  const RankInput input{c.problem, c.target, model->manifest.threads, c.specs, true};
  const auto ranker = make_model_ranker(model, extract);
  if (ranker->rank(input).empty()) {
    throw Error(ErrorCode::unsupported,
                fmt::format("bench rank: '{}': {}", to_string(c.problem), ranker->why_not(input)));
  }
  Buffers b = fill_buffers(c, input);
  const lightgbm::Booster booster = find_lightgbm(bench, c, b);
  std::vector<runtime::Candidate> calls = {
      {"features",
       [&] { extract(c.problem, c.target, input.threads, c.specs, b.columns, model->wanted); }},
      {"forest",
       [&] {
         predict(model->forest, {b.columns, c.specs.size(), model->shared}, b.predictions);
       }},
      {"ranking", [&] { ranker->rank(input); }}};
  if (booster) calls.push_back({"lightgbm", [&] { ask_lightgbm(booster, b); }});
  RankTimes times;
  times.timings = runtime::measure(calls, bench.protocol);
  if (booster) times.ratio = runtime::paired_ratio(times.timings[1], times.timings[3]);
  times.load_seconds = median_load(c);
  times.kernels_seconds = estimated_runs(c, input.threads);
  try {
    times.memo_seconds = bench.memo_hit();
  } catch (const Error& error) {
    c.notes.push_back(fmt::format("memo hit not measured: {}", error.what()));
  }
  return times;
}

Json to_json(const RankCase& c, const RankTimes& times) {
  Json json = {{"model", c.model_name},
               {"target", c.target.name},
               {"problem", to_string(c.problem)},
               {"candidates", c.specs.size()},
               {"different", c.different},
               {"trees", c.model.forest.roots.size()},
               {"leaves", c.model.forest.leaves.size()}};
  for (const runtime::Timing& timing : times.timings) {
    json[timing.name] = {{"median_s", timing.median_seconds},
                         {"min_s", timing.min_seconds},
                         {"spread", timing.spread}};
  }
  if (times.ratio) {
    json["lightgbm_over_forest"] = {
        {"median", times.ratio->median}, {"low", times.ratio->low}, {"high", times.ratio->high}};
  }
  json["load_median_s"] = times.load_seconds;
  json["estimated_runs_s"] = times.kernels_seconds;
  json["ranking_over_runs"] = share_of_runs(c, times);
  if (times.memo_seconds > 0) json["memo_hit_median_s"] = times.memo_seconds;
  json["notes"] = c.notes;
  return json;
}

void print_text(const Console& console, const RankCase& c, const RankTimes& times) {
  console.write_out("{} candidates ({} different) of '{}' on {}\n", c.specs.size(), c.different,
                    to_string(c.problem), c.target.name);
  console.write_out("{}: {} trees, {} leaves\n\n", c.model_name, c.model.forest.roots.size(),
                    c.model.forest.leaves.size());
  Table table({"what", "median", "least", "spread"});
  for (const runtime::Timing& timing : times.timings) {
    table.add({timing.name, format_seconds(timing.median_seconds),
               format_seconds(timing.min_seconds), fmt::format("{:.1f}%", 100 * timing.spread)});
  }
  console.write_out("{}\n", table.text());
  if (times.ratio) {
    console.write_out("LightGBM takes {:.1f} ({:.1f} to {:.1f}) times the forest's time\n",
                      times.ratio->median, times.ratio->low, times.ratio->high);
  }
  console.write_out(
      "the ranking takes {:.3g} of the time of one run of each kernel that it ranks, which is {} "
      "for the {} different ones by the estimate, without compiling and checking them\n",
      share_of_runs(c, times), format_seconds(times.kernels_seconds), c.different);
  console.write_out("loading the model: {}\n", format_seconds(times.load_seconds));
  if (times.memo_seconds > 0)
    console.write_out("memo hit: {}\n", format_seconds(times.memo_seconds));
  for (const std::string& note : c.notes) console.write_out("note: {}\n", note);
}

}  // namespace

int run_rank_bench(const RankBench& bench, const Console& console) {
  RankCase c = make_case(bench);
  const RankTimes times = time_case(bench, c);
  if (console.json) {
    console.print_json(to_json(c, times));
  } else {
    print_text(console, c, times);
  }
  return 0;
}

}  // namespace tessera::cli
