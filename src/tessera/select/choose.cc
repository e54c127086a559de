// The choice: screen the candidates with the family's rules, ask the rankers in order.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/families/family.h"
#include "tessera/select/select_internal.h"

namespace tessera {
namespace {

constexpr std::size_t kNearestMisses = 3;

// What was chosen for any batch of a problem: its order of sums is the order of all batches.
struct AnyBatchChoice {
  KernelSpec spec;
  std::string name, order;
  Problem problem;  // that stood for all of them
};

struct Request {
  const Problem& problem;
  const Target& target;
  const Family& family;
  const ChooseOptions& options;
  int threads;
  const AnyBatchChoice* any_batch = nullptr;  // where another order of sums is refused
};

// How many checks a refused candidate passed. The more it passed, the nearer a miss it is.
enum class Refusal : std::uint8_t { unsuitable, illegal, foreign };
struct Refused {
  KernelSpec spec;
  Refusal kind;
  std::string reason;
};
struct Screened {
  std::vector<KernelSpec> legal;  // sorted by name
  std::vector<Refused> refused;   // sorted by name
};

// Why a kernel adds up in another way than all batches do; empty when it does not.
std::string other_order_reason(const Request& request, const KernelSpec& spec) {
  const AnyBatchChoice* const any = request.any_batch;
  if (any == nullptr || spec == any->spec) return {};
  if (request.family.order_of_sums(spec, request.problem, request.target) == any->order) return {};
  return fmt::format(
      "batch invariant kernels must add up as {} does, which was chosen for any batch, got another "
      "order of sums",
      any->name);
}

// Why a kernel that serves the problem does not give the bits that the caller asks for.
std::string bits_reason(const Request& request, const KernelSpec& spec) {
  Verdict verdict = request.family.is_deterministic(spec, request.target);
  if (!verdict || !request.options.batch_invariant) return std::move(verdict.reason);
  verdict = request.family.is_batch_invariant(spec, request.target);
  return verdict ? other_order_reason(request, spec) : std::move(verdict.reason);
}

// Why a legal kernel does not serve the problem; empty when it does.
std::string unsuitable_reason(const Request& request, const KernelSpec& spec) {
  Verdict verdict = request.family.supports(spec, request.problem, request.target);
  if (!verdict || !request.options.deterministic) return std::move(verdict.reason);
  return bits_reason(request, spec);
}

// Empty when the kernel may run.
std::pair<Refusal, std::string> refusal_of(const Request& request, const KernelSpec& spec) {
  if (spec.target != request.target.name) {
    return {Refusal::foreign, fmt::format("the kernel is for target '{}', the problem is for '{}'",
                                          spec.target, request.target.name)};
  }
  if (op_of(spec) != request.family.op) {
    return {Refusal::foreign, fmt::format("the kernel computes {}, the problem is {}",
                                          to_string(op_of(spec)), to_string(request.family.op))};
  }
  if (Verdict verdict = request.family.is_legal(spec, request.target); !verdict) {
    return {Refusal::illegal, std::move(verdict.reason)};
  }
  return {Refusal::unsuitable, unsuitable_reason(request, spec)};
}

// A family returns sorted candidates. A pool comes from the caller: it may be unsorted and may hold
// a kernel twice.
std::vector<KernelSpec> sorted_by_name(const std::vector<KernelSpec>& pool) {
  std::vector<std::pair<std::string, const KernelSpec*>> named;
  named.reserve(pool.size());
  for (const KernelSpec& spec : pool) named.emplace_back(name_of(spec), &spec);
  const auto by_name = [](const auto& a, const auto& b) { return a.first < b.first; };
  std::sort(named.begin(), named.end(), by_name);

  std::vector<KernelSpec> sorted;
  sorted.reserve(named.size());
  for (std::size_t i = 0; i < named.size(); ++i) {
    if (i == 0 || named[i].first != named[i - 1].first) sorted.push_back(*named[i].second);
  }
  return sorted;
}

std::vector<KernelSpec> candidates_of(const Request& request) {
  if (request.options.pool) return sorted_by_name(*request.options.pool);
  return request.family.candidates(request.problem, request.target);
}

Screened screen(const Request& request) {
  Screened screened;
  for (KernelSpec& spec : candidates_of(request)) {
    auto [kind, reason] = refusal_of(request, spec);
    if (reason.empty()) {
      screened.legal.push_back(std::move(spec));
    } else {
      screened.refused.push_back({std::move(spec), kind, std::move(reason)});
    }
  }
  return screened;
}

// The legal kernels only. Why the others are refused is not worth the time of a first call.
std::vector<KernelSpec> legal_of(const Request& request) {
  std::vector<KernelSpec> legal = request.family.legal_candidates(request.problem, request.target);
  std::erase_if(legal,
                [&](const KernelSpec& spec) { return !unsuitable_reason(request, spec).empty(); });
  return legal;
}

// A family's candidates for one batch may leave out the kernel that was chosen for any. A pool has
// it.
void add_choice_of_any(const Request& request, std::vector<KernelSpec>& legal) {
  if (request.options.pool) return;
  const AnyBatchChoice& any = *request.any_batch;
  const auto place = std::lower_bound(
      legal.begin(), legal.end(), any.name,
      [](const KernelSpec& spec, const std::string& name) { return name_of(spec) < name; });
  if (place != legal.end() && *place == any.spec) return;
  if (unsuitable_reason(request, any.spec).empty()) legal.insert(place, any.spec);
}

std::vector<std::shared_ptr<const Ranker>> rankers_of(const ChooseOptions& options) {
  if (!options.rankers.empty()) return options.rankers;
  return {make_analytic_ranker(), make_first_legal_ranker()};
}

void check_indices(const std::vector<Ranked>& ranked, std::size_t count, const Ranker& ranker) {
  for (const Ranked& entry : ranked) {
    if (entry.index < count) continue;
    throw Error(ErrorCode::internal,
                fmt::format("the {} ranker must return indices below {}, got {}",
                            to_string(ranker.source()), count, entry.index));
  }
}

// Every candidate: the chosen one, then the other legal ones in the order of the first ranker with
// an opinion on each, then the refused ones.
std::vector<Considered> considered_of(const RankInput& input, const Decision& decision,
                                      const Request& request, const Screened& screened) {
  std::vector<Considered> considered = {
      {decision.spec, decision.name, decision.predicted_seconds, "", decision.source}};
  std::vector<bool> placed(input.legal.size(), false);
  const auto place = [&](const Ranked& entry, ChoiceSource source) {
    if (placed[entry.index]) return;
    placed[entry.index] = true;
    const KernelSpec& spec = input.legal[entry.index];
    if (spec == decision.spec) return;
    considered.push_back({spec, name_of(spec), entry.predicted_seconds, "", source});
  };
  for (const auto& ranker : rankers_of(request.options)) {
    const std::vector<Ranked> ranked = ranker->rank(input);
    check_indices(ranked, input.legal.size(), *ranker);
    for (const Ranked& entry : ranked) place(entry, ranker->source());
  }
  for (std::size_t i = 0; i < placed.size(); ++i) place({i, 0}, ChoiceSource::first_legal);
  for (const Refused& refused : screened.refused) {
    considered.push_back({refused.spec, name_of(refused.spec), 0, refused.reason});
  }
  return considered;
}

Decision finish(Decision decision, const Request& request, const Screened& screened) {
  decision.name = name_of(decision.spec);
  decision.threads = request.threads;
  if (request.options.explain) {
    const RankInput input{request.problem, request.target, request.threads, screened.legal};
    decision.considered = considered_of(input, decision, request, screened);
  }
  return decision;
}

double estimated_seconds(const Request& request, const KernelSpec& spec) {
  return request.family.estimate(spec, request.problem, request.target, request.threads).seconds;
}

std::vector<std::string> names_of(const std::vector<KernelSpec>& specs) {
  std::vector<std::string> names;
  names.reserve(specs.size());
  for (const KernelSpec& spec : specs) names.push_back(name_of(spec));
  return names;
}

// The spec of a pinned name. Throws Error{not_found} for text that is no kernel name and for a name
// that is not in the pool. Without a pool, a legal kernel outside the enumerated space is allowed.
KernelSpec find_pinned(const Request& request) {
  const std::string& pinned = request.options.pinned;
  const auto unknown = [&](const std::string& why) {
    const std::string near = did_you_mean(pinned, names_of(candidates_of(request)));
    return Error(ErrorCode::not_found,
                 fmt::format("unknown kernel '{}'{}", pinned, near.empty() ? ": " + why : near),
                 why);
  };
  const auto is_pinned = [&](const KernelSpec& spec) { return name_of(spec) == pinned; };
  const auto& pool = request.options.pool;
  if (pool && std::none_of(pool->begin(), pool->end(), is_pinned)) {
    throw unknown(fmt::format("it is not among the {} kernels of the pool", pool->size()));
  }
  try {
    return parse_name(pinned);
  } catch (const Error& error) {
    throw unknown(error.what());
  }
}

Decision choose_pinned(const Request& request) {
  Decision decision;
  decision.spec = find_pinned(request);
  const std::string reason = refusal_of(request, decision.spec).second;
  if (!reason.empty()) {
    throw Error(ErrorCode::illegal_spec,
                fmt::format("kernel '{}' cannot run '{}' on '{}': {}", request.options.pinned,
                            to_string(request.problem), request.target.name, reason));
  }
  decision.source = ChoiceSource::pinned;
  decision.predicted_seconds = estimated_seconds(request, decision.spec);
  decision.why = "pinned by name";
  return finish(std::move(decision), request,
                request.options.explain ? screen(request) : Screened{});
}

// The candidates that passed most checks come first, then by name. One candidate stands for each
// rule, because further ones of the same rule add nothing.
std::string nearest_misses(const Screened& screened) {
  std::vector<const Refused*> order;
  for (const Refused& refused : screened.refused) order.push_back(&refused);
  std::stable_sort(order.begin(), order.end(),
                   [](const Refused* a, const Refused* b) { return a->kind < b->kind; });
  std::set<std::string_view> rules;
  std::string text;
  for (const Refused* refused : order) {
    if (rules.size() == kNearestMisses) break;
    if (!rules.insert(refused->reason).second) continue;
    text +=
        fmt::format("{}{} ({})", text.empty() ? "" : "; ", name_of(refused->spec), refused->reason);
  }
  return text;
}

[[noreturn]] void throw_nothing_legal(const Request& request, const Screened& screened) {
  const std::string problem = to_string(request.problem);
  if (screened.refused.empty()) {
    throw Error(ErrorCode::unsupported,
                fmt::format("no kernel can run '{}' on '{}': {}", problem, request.target.name,
                            request.options.pool
                                ? "the pool is empty"
                                : "the target's space holds no kernel with its signature"));
  }
  throw Error(
      ErrorCode::unsupported,
      fmt::format("no kernel can run '{}' on '{}': all {} candidates are refused; nearest "
                  "misses: {}",
                  problem, request.target.name, screened.refused.size(), nearest_misses(screened)));
}

// A family without a general kernel throws. The list of nearest misses says more than its error.
std::optional<KernelSpec> general_of(const Request& request) {
  try {
    return request.family.general(request.problem, request.target);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return std::nullopt;
  }
}

Decision choose_general(const Request& request, Screened screened) {
  if (request.options.pool) throw_nothing_legal(request, screened);
  const std::optional<KernelSpec> general = general_of(request);
  if (!general) throw_nothing_legal(request, screened);
  auto [kind, reason] = refusal_of(request, *general);
  if (!reason.empty()) {
    screened.refused.push_back({*general, kind, std::move(reason)});
    throw_nothing_legal(request, screened);
  }
  Decision decision;
  decision.spec = *general;
  decision.predicted_seconds = estimated_seconds(request, decision.spec);
  decision.why = fmt::format("the family's general kernel: none of {} candidates serves",
                             screened.refused.size());
  return finish(std::move(decision), request, screened);
}

// A clause about the order of sums.
std::string why_this_order(const Request& request) {
  if (request.any_batch == nullptr) return {};
  return fmt::format("; it adds up as {} does, which was chosen for any batch, such as '{}'",
                     request.any_batch->name, to_string(request.any_batch->problem));
}

Decision choose_ranked(const Request& request, const Screened& screened) {
  const RankInput input{request.problem, request.target, request.threads, screened.legal, true};
  std::string passed_over;
  for (const auto& ranker : rankers_of(request.options)) {
    const std::vector<Ranked> ranked = ranker->rank(input);
    if (ranked.empty()) {
      const std::string reason = request.options.says_why ? ranker->why_not(input) : "";
      if (!reason.empty()) passed_over += "; " + reason;
      continue;
    }
    check_indices(ranked, input.legal.size(), *ranker);
    Decision decision;
    decision.spec = input.legal[ranked.front().index];
    decision.source = ranker->source();
    decision.predicted_seconds = ranked.front().predicted_seconds;
    if (request.options.says_why) {
      decision.why = ranker->why(input, ranked.front()) + passed_over + why_this_order(request);
    }
    return finish(std::move(decision), request, screened);
  }
  // None of the caller's rankers has an opinion; a legal kernel is still better than an error.
  Decision decision;
  decision.spec = input.legal.front();
  decision.why = fmt::format("first by name of {} legal candidates: no ranker has an opinion{}",
                             input.legal.size(), passed_over);
  return finish(std::move(decision), request, screened);
}

// ---- any batch ----

bool serves_any(const Request& request, const KernelSpec& spec, const AnyBatch& any) {
  const auto serves = [&](const Problem& problem) {
    return static_cast<bool>(request.family.supports(spec, problem, request.target));
  };
  return std::all_of(any.usual.begin(), any.usual.end(), serves) &&
         std::all_of(any.unusual.begin(), any.unusual.end(), serves);
}

// The kernels that may run a usual batch and serve any.
std::vector<KernelSpec> legal_for_any(const Request& request, const AnyBatch& any) {
  std::vector<KernelSpec> legal = request.options.pool ? screen(request).legal : legal_of(request);
  std::erase_if(legal, [&](const KernelSpec& spec) { return !serves_any(request, spec, any); });
  return legal;
}

[[noreturn]] void refuse_any_batch(const Request& request, const std::string& nearest) {
  throw Error(ErrorCode::unsupported,
              fmt::format("no batch invariant kernel can run '{}' on '{}': none of {} candidates "
                          "serves any batch with the same order of sums{}",
                          to_string(request.problem), request.target.name,
                          candidates_of(request).size(), nearest));
}

// The general kernel, where nothing in the space serves any batch.
KernelSpec general_for_any(const Request& request, const AnyBatch& any) {
  if (request.options.pool) refuse_any_batch(request, "");
  KernelSpec spec = request.family.general(request.problem, request.target);
  const std::string reason = unsuitable_reason(request, spec);
  if (reason.empty() && serves_any(request, spec, any)) return spec;
  refuse_any_batch(request, fmt::format("; the general kernel {}: {}", name_of(spec),
                                        reason.empty() ? "it does not serve any batch" : reason));
}

// The best kernel of each order of sums, with its time.
struct Timed {
  double seconds;
  KernelSpec spec;
};
using OrderTimes = std::map<std::string, Timed>;

OrderTimes times_of_orders(const Request& request, const std::vector<KernelSpec>& legal) {
  const RankInput input{request.problem, request.target, request.threads, legal};
  OrderTimes times;
  for (const auto& ranker : rankers_of(request.options)) {
    const std::vector<Ranked> ranked = ranker->rank(input);
    if (ranked.empty()) continue;
    check_indices(ranked, legal.size(), *ranker);
    for (const auto& [index, seconds] : ranked) {
      if (seconds <= 0) continue;
      const KernelSpec& spec = legal[index];
      std::string order = request.family.order_of_sums(spec, request.problem, request.target);
      const auto [place, is_new] = times.try_emplace(std::move(order), Timed{seconds, spec});
      if (!is_new && seconds < place->second.seconds) place->second = {seconds, spec};
    }
    break;
  }
  return times;
}

// Adds the logarithm of each order's time over the least one. Orders that are not among `times`, or
// were missing before, are dropped.
void add_losses(const OrderTimes& times, bool is_first, std::map<std::string, double>& losses) {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [order, timed] : times) {
    least = std::min(least, timed.seconds);
    if (is_first) losses[order] = 0;
  }
  std::erase_if(losses, [&](const auto& entry) { return !times.contains(entry.first); });
  for (auto& [order, loss] : losses) loss += std::log(times.at(order).seconds / least);
}

// What was measured for one batch must not decide for all of them.
ChooseOptions options_for_any(const ChooseOptions& options) {
  ChooseOptions without = options;
  without.explain = without.says_why = false;
  std::erase_if(without.rankers,
                [](const auto& ranker) { return ranker->source() == ChoiceSource::tuned; });
  return without;
}

// The order that loses least over the usual batches, by the geometric mean of its best kernels'
// times. Where the rankers know no times, the first ranker's choice for the first usual batch.
AnyBatchChoice choose_for_any(const Request& asked, const AnyBatch& any) {
  const ChooseOptions options = options_for_any(asked.options);
  // The number of threads must not decide either: callers change it from call to call.
  const auto request_for = [&](const Problem& problem) {
    return Request{problem, asked.target, asked.family, options, units_used(0, asked.target)};
  };
  const Request first = request_for(any.usual.front());
  Screened screened = {legal_for_any(first, any), {}};
  if (screened.legal.empty()) screened.legal = {general_for_any(first, any)};
  const OrderTimes times = times_of_orders(first, screened.legal);
  std::map<std::string, double> losses;
  add_losses(times, true, losses);
  for (std::size_t i = 1; i < any.usual.size() && losses.size() > 1; ++i) {
    const Request other = request_for(any.usual[i]);
    add_losses(times_of_orders(other, legal_for_any(other, any)), false, losses);
  }
  const auto best =
      std::min_element(losses.begin(), losses.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const KernelSpec spec =
      best == losses.end() ? choose_ranked(first, screened).spec : times.at(best->first).spec;
  return {spec, name_of(spec), first.family.order_of_sums(spec, first.problem, first.target),
          first.problem};
}

Decision choose_screened(const Request& request) {
  Screened screened = screen(request);
  if (request.any_batch != nullptr) add_choice_of_any(request, screened.legal);
  if (!screened.legal.empty()) return choose_ranked(request, screened);
  if (request.any_batch == nullptr) return choose_general(request, std::move(screened));
  throw Error(
      ErrorCode::unsupported,
      fmt::format("kernel '{}', which was chosen for any batch, cannot run '{}' on '{}': {}",
                  request.any_batch->name, to_string(request.problem), request.target.name,
                  unsuitable_reason(request, request.any_batch->spec)));
}

Decision choose_batch_invariant(const Request& asked) {
  const AnyBatch any = asked.family.any_batch(asked.problem);
  ChooseOptions options = asked.options;
  options.deterministic = true;
  Request request{any.own, asked.target, asked.family, options, asked.threads};
  if (!options.pinned.empty()) return choose_pinned(request);
  const AnyBatchChoice choice = choose_for_any(request, any);
  request.any_batch = &choice;
  return choose_screened(request);
}

}  // namespace

Decision choose(const Problem& problem, const Target& target, const ChooseOptions& options) {
  if (options.threads < 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("choose: threads must be 0 (all units of the target) or more, got {}",
                            options.threads));
  }
  const Family& family = family_of(problem);
  family.validate(problem);
  const Request request{problem, target, family, options, units_used(options.threads, target)};
  if (options.batch_invariant) return choose_batch_invariant(request);
  if (!options.pinned.empty()) return choose_pinned(request);
  if (!options.explain && !options.pool) {
    if (const Screened quick = {legal_of(request), {}}; !quick.legal.empty()) {
      return choose_ranked(request, quick);
    }
  }
  return choose_screened(request);
}

}  // namespace tessera
