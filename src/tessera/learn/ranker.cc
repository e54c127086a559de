#include "tessera/learn/ranker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tessera/base/enums.h"
#include "tessera/base/per_thread.h"

namespace tessera {
namespace {

// Features are computed for the machine that the model was trained for, because its trees know no
// other caches.
const Target& machine_of(const Model& model, const RankInput& input) {
  return model.machine ? *model.machine : input.target;
}

bool knows_types(const Model& model, const Problem& problem) {
  return std::ranges::count(model.manifest.dtypes, model_key(problem)) > 0;
}

Verdict can_judge(const Model& model, ExtractFeatures extract, const RankInput& input) {
  const Manifest& manifest = model.manifest;
  if (manifest.op != to_string(op_of(input.problem)) || manifest.target != input.target.name) {
    return {fmt::format("it is for {} on {}", manifest.op, manifest.target)};
  }
  if (Verdict same = is_same_core(machine_of(model, input), input.target); !same) return same;
  if (manifest.threads > 0 && input.threads != manifest.threads) {
    return {fmt::format("it was trained with {} threads, allowed are {}", manifest.threads,
                        input.threads)};
  }
  if (Verdict fits = family_of(input.problem).features_fit(input.problem); !fits) return fits;
  if (input.legal.empty()) return {"it has no candidates"};
  if (!knows_types(model, input.problem)) {
    return {fmt::format("it is for {}, not for kernels such as {}",
                        fmt::join(manifest.dtypes, ", "), name_of(input.legal.front()))};
  }
  std::vector<double> row(model.shared.size());
  extract(input.problem, machine_of(model, input), input.threads, input.legal.first(1), row,
          model.judged);
  return in_range(model, row);
}

// The question for a model: the problem, or a similar one with types and an epilogue that the model
// learned.
struct Question {
  Problem problem;
  std::string in_place;  // a clause for Decision::why that says what was changed; empty: nothing
  Verdict fits;

  RankInput input(const RankInput& given) const {
    return {problem, given.target, given.threads, given.legal};
  }
};

Question question_for(const Model& model, ExtractFeatures extract, const RankInput& input) {
  const Family& family = family_of(input.problem);
  Question question = {input.problem, "", {}};
  if (!knows_types(model, input.problem)) {
    question.problem = family.twin(input.problem, input.target);
    question.in_place = ", asked as if for " + model_key(question.problem);
  }
  question.fits = can_judge(model, extract, question.input(input));
  const Problem plain = family.plain(question.problem);
  if (question.fits || plain == question.problem) return question;
  question.problem = plain;
  question.in_place += ", asked about the plain problem, with the rest by the estimate";
  question.fits = can_judge(model, extract, question.input(input));
  return question;
}

// Which of the kernels the features describe on this problem.
std::vector<bool> described_kernels(const RankInput& input) {
  const Family& family = family_of(input.problem);
  std::vector<bool> described;
  described.reserve(input.legal.size());
  for (const KernelSpec& spec : input.legal) {
    described.push_back(family.is_described(spec));
  }
  return described;
}

// The described kernel that the model likes best; the number of kernels if there is none.
std::size_t best_described(const std::vector<bool>& described, std::span<const double> seconds) {
  std::size_t best = seconds.size();
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    if (!std::isfinite(seconds[i]) || !described[i]) continue;
    if (best == seconds.size() || seconds[i] < seconds[best]) best = i;
  }
  return best;
}

// A ranker passes the fastest kernel over for one that is slower by a smaller share than this.
constexpr double kMayWin = 1.1;

// For a model that was asked about another problem (the plain one, or the twin in other
// types): multiplies each kernel's time by how many times longer the problem itself takes according
// to the estimate. No factor is below 1. The rows of a twin are narrower and may begin at odd
// addresses although the problem's rows do not; the estimate would then call the problem faster.
// Where only the best kernel is wanted, one that is slower without a factor than another one with
// its factor needs no estimates: it gets an infinite time.
void scale_to_problem(const RankInput& input, const Problem& asked,
                      const std::vector<bool>& described, std::span<double> seconds) {
  const Family& family = family_of(input.problem);
  const auto estimated = [&](const KernelSpec& spec, const Problem& problem) {
    return family.estimate(spec, problem, input.target, input.threads).seconds;
  };
  KernelSpec bare;
  bare.signature = signature_of(asked);
  const auto scale = [&](std::size_t i) {
    const KernelSpec& spec = input.legal[i];
    bare.algorithm = spec.algorithm;
    bare.target = spec.target;
    seconds[i] *= std::max(1.0, estimated(spec, input.problem) / estimated(bare, asked));
  };
  const std::size_t first = best_described(described, seconds);
  if (first == seconds.size()) return;
  scale(first);
  double limit = kMayWin * seconds[first];
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    if (i == first || !described[i]) continue;
    if (input.only_best && seconds[i] > limit) {
      seconds[i] = std::numeric_limits<double>::infinity();
      continue;
    }
    scale(i);
    limit = std::min(limit, kMayWin * seconds[i]);
  }
}

// Estimates of kernels of different kinds have different errors. A kernel that the model does not
// know must be faster by more than this share.
constexpr double kDoubt = 1.05;

// Places kernels that no feature describes beside the model's best kernel: its time, times the
// ratio of both estimates. Scores have no unit, so that only the side of the best counts there.
bool place_undescribed(const RankInput& input, bool is_score, const std::vector<bool>& described,
                       std::span<double> seconds) {
  const Family& family = family_of(input.problem);
  const auto estimated = [&](std::size_t i) {
    return family.estimate(input.legal[i], input.problem, input.target, input.threads).seconds;
  };
  const std::size_t best = best_described(described, seconds);
  if (best == seconds.size()) return false;
  const double time = seconds[best];
  double known = 0;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    if (described[i]) continue;
    if (known == 0) known = estimated(best);
    const double ratio = kDoubt * estimated(i) / known;
    seconds[i] = is_score ? time + std::log(ratio) : time * ratio;
  }
  return true;
}

double work_of(const Manifest& manifest, const Problem& problem) {
  const Family& family = family_of(problem);
  return manifest.quantity == ModelQuantity::bandwidth ? family.bytes(problem)
                                                       : family.flops(problem);
}

}  // namespace

Verdict is_same_core(const Target& trained, const Target& here) {
  if (is_gpu(trained)) return {};
  if (trained.features != here.features) {
    return {fmt::format("it was trained on a core with {}, this one has {}",
                        fmt::join(trained.features, " "), fmt::join(here.features, " "))};
  }
  if (trained.instructions != here.instructions) {
    return {"it was trained on a core with other rates of instructions"};
  }
  for (std::size_t i = 0; i < std::min(trained.caches.size(), here.caches.size()); ++i) {
    const CacheLevel& cache = trained.caches[i];
    if (cache.shared || cache.bytes == here.caches[i].bytes) continue;
    return {fmt::format("it was trained on a core with {} bytes of {}, this one has {}",
                        cache.bytes, cache.name, here.caches[i].bytes)};
  }
  return {};
}

Verdict has_opinion(const Model& model, ExtractFeatures extract, const RankInput& input) {
  return question_for(model, extract, input).fits;
}

LearnedValue learned_value(ModelQuantity quantity) {
  check_enum("quantity", quantity, ModelQuantity::rank);
  if (gives_times(quantity)) return LearnedValue::seconds;
  return quantity == ModelQuantity::efficiency ? LearnedValue::ratio : LearnedValue::score;
}

// The columns have megabytes. The thread keeps them, because new pages at every call would cost
// time.
struct Columns {
  std::vector<double> values;
};

bool predict_seconds(const Model& model, ExtractFeatures extract, const RankInput& input,
                     std::span<double> seconds) {
  const Question question = question_for(model, extract, input);
  if (!question.fits) return false;
  std::vector<double>& columns = per_thread<Columns>().values;
  const std::size_t count = input.legal.size();
  const std::size_t size = model.shared.size() * count;
  if (columns.size() < size) columns.resize(size);
  const std::span<double> used = std::span(columns).first(size);
  const Problem& problem = question.problem;
  extract(problem, machine_of(model, input), input.threads, input.legal, used, model.wanted);
  predict(model.forest, {used, count, model.shared}, seconds);
  to_seconds(model.manifest, work_of(model.manifest, problem), seconds);
  const bool is_score = learned_value(model.manifest.quantity) == LearnedValue::score;
  const std::vector<bool> described = described_kernels(input);
  if (!question.in_place.empty() && !is_score) {
    scale_to_problem(input, problem, described, seconds);
  }
  return place_undescribed(input, is_score, described, seconds);
}

std::shared_ptr<const Ranker> make_model_ranker(std::shared_ptr<const Model> model,
                                                ExtractFeatures extract) {
  LearnedModel learned;
  learned.value = learned_value(model->manifest.quantity);
  learned.predict = [model, extract](const RankInput& input, std::span<double> seconds) {
    return predict_seconds(*model, extract, input, seconds);
  };
  learned.why_not = [model, extract](const RankInput& input) {
    const Verdict verdict = has_opinion(*model, extract, input);
    return verdict ? "" : "the learned model has no opinion: " + verdict.reason;
  };
  learned.how = [model, extract](const RankInput& input) {
    return question_for(*model, extract, input).in_place;
  };
  return make_learned_ranker(std::move(learned));
}

}  // namespace tessera
