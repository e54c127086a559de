#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/log.h"
#include "tessera/dispatch/tuning_internal.h"
#include "tessera/families/operations.h"
#include "tessera/learn/model_library.h"
#include "tessera/tune/autotune.h"

namespace tessera {
namespace {

using Rankers = std::vector<std::shared_ptr<const Ranker>>;

// Learned, analytic, first legal: the rankers for kernels that were not measured here.
Rankers predictors(const DispatcherOptions& options, const jit::Cache& cache) {
  const std::filesystem::path models =
      options.models.empty() ? own_models(cache.folder()) : std::filesystem::path(options.models);
  return {make_library_ranker(shared_model_library(models)), make_analytic_ranker(),
          make_first_legal_ranker()};
}

std::vector<Considered> refused_of(const std::vector<tune::Measurement>& known) {
  std::map<std::string, std::string> refusals;
  for (const tune::Measurement& m : known) {
    if (!measure::is_refusal(m.outcome)) continue;
    refusals[m.kernel] = fmt::format("measured here as {}: {}", to_string(m.outcome), m.note);
  }
  std::vector<Considered> list;
  for (const auto& [kernel, refusal] : refusals) {
    try {
      list.push_back(Considered{parse_name(kernel), kernel, 0, refusal});
    } catch (const Error&) {
      // The store may hold names written by a later version. No kernel of this version has such a
      // name.
    }
  }
  return list;
}

}  // namespace

void add_refused(Decision& decision, const std::vector<Considered>& refused) {
  decision.considered.insert(decision.considered.end(), refused.begin(), refused.end());
  const auto first_refused =
      std::stable_partition(decision.considered.begin(), decision.considered.end(),
                            [](const Considered& c) { return c.refusal.empty(); });
  std::stable_sort(first_refused, decision.considered.end(),
                   [](const Considered& a, const Considered& b) { return a.name < b.name; });
}

Tuning::Tuning(const DispatcherOptions& options, const Target& target, Registry& registry,
               bool declared_only)
    : options_(options),
      target_(target),
      registry_(registry),
      declared_only_(declared_only),
      predictors_(predictors(options, registry.builder().cache())),
      rankers_(options.rankers.empty() ? predictors_ : options.rankers),
      asks_store_(options.rankers.empty() || options.autotune ||
                  options.without_model == WithoutModel::measure) {}

Advice Tuning::advice(const MemoKey& key) const {
  Advice advice;
  if (const std::vector<tune::Measurement> measured = known(key); !measured.empty()) {
    advice.refused = refused_of(measured);
    if (asks_store_) {
      advice.rankers.push_back(make_tuned_ranker(
          [winner = winner_of(measured)](const Problem&, const Target&, int) { return winner; }));
    }
  }
  for (Considered& kernel : aside(key.problem)) advice.refused.push_back(std::move(kernel));
  advice.pool = pool(key.problem, key.force.empty() ? advice.refused : std::vector<Considered>{});
  advice.rankers.insert(advice.rankers.end(), rankers_.begin(), rankers_.end());
  return advice;
}

std::optional<std::vector<KernelSpec>> Tuning::pool(const Problem& problem,
                                                    const std::vector<Considered>& refused) const {
  if (!declared_only_ && refused.empty()) return std::nullopt;
  std::vector<KernelSpec> specs;
  if (declared_only_) {
    specs = registry_.declared();
  } else {
    const Family& family = family_of(problem);
    specs = family.candidates(problem, target_);
    const KernelSpec general = family.general(problem, target_);
    if (std::find(specs.begin(), specs.end(), general) == specs.end()) specs.push_back(general);
  }
  std::erase_if(specs, [&](const KernelSpec& spec) {
    if (spec.target != target_.name) return true;
    return std::any_of(refused.begin(), refused.end(),
                       [&](const Considered& c) { return c.spec == spec; });
  });
  return specs;
}

// A problem that needs no measurement waits for no lock, and a thread that has waited asks again.
void Tuning::tune_once(const MemoKey& key, std::uint64_t hash) {
  if (wanted(key, hash) == Wanted::nothing) return;
  const std::lock_guard lock(device_of(key));
  const Wanted what = wanted(key, hash);
  if (what == Wanted::nothing) return;
  try {
    measure(key, what);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::cancelled) remember(hash);  // the next call tries again
    throw;
  }
  remember(hash);
}

Tuning::Wanted Tuning::wanted(const MemoKey& key, std::uint64_t hash) const {
  const bool replaces_model = options_.without_model == WithoutModel::measure;
  if (!options_.autotune && !replaces_model) return Wanted::nothing;
  if (was_tried(hash) || winner_of(known(key))) return Wanted::nothing;
  if (replaces_model && !has_model(key)) return Wanted::all;
  return options_.autotune ? Wanted::best : Wanted::nothing;
}

void Tuning::measure(const MemoKey& key, Wanted what) const {
  tune::AutotuneOptions tuning;
  tuning.budget_seconds = options_.autotune_seconds;
  tuning.top = options_.autotune_top;
  tuning.threads = key.threads;
  tuning.device = key.device;
  tuning.worker = options_.tuning_worker;
  tuning.all = what == Wanted::all;
  std::vector<KernelSpec> candidates = most_promising(key, known(key));
  if (!registry_.builder().no_compiler(target_).empty()) {
    std::erase_if(candidates, [&](const KernelSpec& spec) { return !registry_.is_ready(spec); });
    if (candidates.empty()) return;
  }
  const auto most = static_cast<std::size_t>(options_.without_model_top);
  if (tuning.all && most > 0 && candidates.size() > most) candidates.resize(most);
  tune::autotune(computed_of(options_, key.problem), target_, candidates, registry_, *open(true),
                 tuning);
}

bool Tuning::has_model(const MemoKey& key) const {
  ChooseOptions choice;
  choice.threads = key.threads;
  choice.deterministic = options_.deterministic;
  choice.batch_invariant = options_.batch_invariant;
  choice.rankers = predictors_;
  choice.pool = pool(key.problem, {});
  return choose(key.problem, target_, choice).source == ChoiceSource::learned;
}

bool Tuning::was_tried(std::uint64_t hash) const {
  const std::lock_guard lock(mutex_);
  return tried_.count(hash) != 0;
}

void Tuning::remember(std::uint64_t hash) {
  const std::lock_guard lock(mutex_);
  tried_.insert(hash);
}

std::string Tuning::aside_key(const Problem& problem) const {
  return to_string(options_.batch_invariant ? any_batch(problem).usual.front() : problem);
}

void Tuning::set_aside(const Problem& problem, Considered kernel) {
  std::string text = aside_key(problem);
  const std::lock_guard lock(mutex_);
  has_aside_ = true;
  std::vector<Considered>& list = aside_[std::move(text)];
  const auto is_same = [&](const Considered& c) { return c.name == kernel.name; };
  if (std::none_of(list.begin(), list.end(), is_same)) list.push_back(std::move(kernel));
}

std::vector<Considered> Tuning::aside(const Problem& problem) const {
  if (!has_aside_) return {};
  const std::string text = aside_key(problem);
  const std::lock_guard lock(mutex_);
  const auto found = aside_.find(text);
  return found == aside_.end() ? std::vector<Considered>{} : found->second;
}

// Kernels of a CPU run on the same cores, whatever number a caller gives.
WorkMutex& Tuning::device_of(const MemoKey& key) {
  const std::lock_guard lock(mutex_);
  return devices_[is_gpu(target_) ? key.device : 0];
}

std::filesystem::path Tuning::store_file() const {
  if (!options_.tuning_store.empty()) return options_.tuning_store;
  const jit::Cache& cache = registry_.builder().cache();
  const std::filesystem::path file = tune::tuning_store_in(cache.folder());
  std::error_code unknown;
  if (cache.is_memory_only() && !fs::exists(file, unknown)) return {};
  return file;
}

tune::Store* Tuning::open(bool create) const {
  const std::lock_guard lock(mutex_);
  if (store_) return store_.get();
  const std::filesystem::path file = store_file();
  std::error_code unknown;
  if (!create && !fs::exists(file, unknown)) return nullptr;
  store_ = file.empty() ? std::make_unique<tune::Store>() : std::make_unique<tune::Store>(file);
  return store_.get();
}

// A store that cannot be read costs speed, not results, because the other rankers are asked
// instead.
std::vector<tune::Measurement> Tuning::known(const MemoKey& key) const {
  try {
    const tune::Store* store = open(false);
    if (store == nullptr) return {};
    return store->find(measure::device_name(target_, key.device), target_.name,
                       to_string(computed_of(options_, key.problem)),
                       measure::filed_threads(target_, key.threads));
  } catch (const Error& error) {
    if (options_.autotune || options_.without_model == WithoutModel::measure) throw;
    warn_once(error.what());
    return {};
  }
}

std::optional<TunedEntry> Tuning::winner_of(const std::vector<tune::Measurement>& known) const {
  return tune::best_of(known, [&](const std::string& kernel) {
    return !declared_only_ || registry_.contains(kernel);
  });
}

std::vector<KernelSpec> Tuning::most_promising(const MemoKey& key,
                                               const std::vector<tune::Measurement>& known) const {
  ChooseOptions choice;
  choice.threads = key.threads;
  choice.deterministic = options_.deterministic;
  choice.batch_invariant = options_.batch_invariant;
  choice.rankers = predictors_;
  std::vector<Considered> refused = refused_of(known);
  for (Considered& kernel : aside(key.problem)) refused.push_back(std::move(kernel));
  choice.pool = pool(key.problem, refused);
  choice.explain = true;
  std::vector<KernelSpec> best;
  for (const Considered& candidate : choose(key.problem, target_, choice).considered) {
    if (candidate.refusal.empty()) best.push_back(candidate.spec);
  }
  return best;
}

}  // namespace tessera
