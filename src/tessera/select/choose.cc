// The choice: screen the candidates with the family's rules, ask the rankers in order.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/families/family.h"
#include "tessera/select/select_internal.h"

namespace tessera {
namespace {

constexpr std::size_t kNearestMisses = 3;

struct Request {
  const Problem& problem;
  const Target& target;
  const Family& family;
  const ChooseOptions& options;
  int threads;
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

// Why a legal kernel does not serve the problem; empty when it does.
std::string unsuitable_reason(const Request& request, const KernelSpec& spec) {
  Verdict verdict = request.family.supports(spec, request.problem, request.target);
  if (!verdict || !request.options.deterministic) return std::move(verdict.reason);
  return request.family.is_deterministic(spec, request.target).reason;
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
      decision.why = ranker->why(input, ranked.front()) + passed_over;
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
  if (!options.pinned.empty()) return choose_pinned(request);
  if (!options.explain && !options.pool) {
    if (const Screened quick = {legal_of(request), {}}; !quick.legal.empty()) {
      return choose_ranked(request, quick);
    }
  }
  Screened screened = screen(request);
  if (screened.legal.empty()) return choose_general(request, std::move(screened));
  return choose_ranked(request, screened);
}

}  // namespace tessera
