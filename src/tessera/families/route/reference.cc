// The slow obvious answer: scores in fp64, and how far a correct kernel may be from them. Where
// scores are closer than that, either expert may come first; all that follows from the experts is
// compared with what follows from the kernel's own.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/parallel.h"
#include "tessera/device/route.h"
#include "tessera/families/route/route.h"
#include "tessera/families/tile/row_reference.h"
#include "tessera/spec/numeric.h"

namespace tessera::route {
namespace {

using tile::Bounded;

constexpr double kCost = 64;           // of one logit, in multiplications
constexpr double kUnit = 0x1p-24;      // half an ulp of fp32
constexpr double kFlushed = 0x1p-125;  // below it some machines read and write zero
constexpr double kChain = 160;         // numbers that are added one after the other, at most
constexpr double kMost = std::numeric_limits<double>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One token. choices: by what experts are compared, a NaN as more than any number; logits and
// biases tell which of them are computed from equal numbers.
struct TokenReference {
  std::int64_t token = 0;
  std::vector<Bounded> scores, choices;
  std::vector<double> logits, biases;
};

struct RouteReference {
  std::vector<TokenReference> tokens;
  // scoring=given: the operand as it was.
  std::vector<std::int32_t> given;
};

std::vector<Bounded> softmax_scores(const std::vector<double>& x) {
  double most = -kInfinity;
  for (const double value : x) most = value > most ? value : most;
  double sum = 0, distance = 0;
  for (const double value : x) {
    sum += std::exp(value - most);
    if (value > -kInfinity) distance += std::exp(value - most) * (most - value);
  }
  const double share = kUnit * (2 * kChain + 32 + 8 * distance / sum);
  std::vector<Bounded> scores;
  for (const double value : x) {
    const double y = std::exp(value - most) / sum;
    const double own = y > 0 ? kUnit * 4 * (most - value) : 0;
    scores.push_back({y, y * (share + own) + kFlushed});
  }
  return scores;
}

std::vector<Bounded> sigmoid_scores(const std::vector<double>& x) {
  std::vector<Bounded> scores;
  for (const double value : x) {
    const double y = 1 / (1 + std::exp(-value));
    const double own = y > 0 && std::isfinite(value) ? 4 * std::abs(value) : 0;
    scores.push_back({y, y * kUnit * (16 + own) + kFlushed});
  }
  return scores;
}

// Numbers that can be subtracted; those that are no numbers have an order, too.
Bounded comparable(Bounded x) {
  if (std::isnan(x.value)) return {kInfinity, 0};
  if (std::isinf(x.value)) return {x.value > 0 ? kMost : -kMost, 0};
  return x;
}

TokenReference token_reference(const RouteProblem& p, const RouteOperands& o, std::int64_t token) {
  TokenReference t;
  t.token = token;
  for (std::int64_t e = 0; e < p.experts; ++e) {
    t.logits.push_back(load_element(p.in, o.logits, token * p.ld_logits + e));
    t.biases.push_back(p.bias ? load_element(DType::fp32, o.bias, e) : 0);
  }
  t.scores =
      p.scoring == RouteScoring::softmax ? softmax_scores(t.logits) : sigmoid_scores(t.logits);
  for (std::size_t e = 0; e < t.logits.size(); ++e) {
    Bounded choice = {t.logits[e], 0};
    if (p.bias) {
      choice.value = t.scores[e].value + t.biases[e];
      choice.error = t.scores[e].error + 2 * kUnit * std::abs(choice.value) + kFlushed;
    }
    t.choices.push_back(comparable(choice));
  }
  return t;
}

// ---- which experts may be chosen ----

bool surely_more(const Bounded& a, const Bounded& b) {
  return a.value - a.error > b.value + b.error;
}

// Whether every correct kernel takes expert a before b.
bool surely_before(const TokenReference& t, std::size_t a, std::size_t b) {
  const bool is_alike = t.logits[a] == t.logits[b] && t.biases[a] == t.biases[b];
  const bool are_nan = t.choices[a].value == kInfinity && t.choices[b].value == kInfinity;
  if (is_alike || are_nan) return a < b;
  return surely_more(t.choices[a], t.choices[b]);
}

Bounded group_choice(const RouteProblem& p, const Bounded* choices, std::int64_t count) {
  Bounded best = {-kInfinity, 0}, second = best;
  double error = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    error = std::max(error, choices[i].error);
    if (choices[i].value > best.value) {
      second = best, best = choices[i];
    } else if (choices[i].value > second.value) {
      second = choices[i];
    }
  }
  if (!p.bias || count == 1) return best;
  const double sum = best.value + second.value;
  return comparable({sum, 2 * error + 2 * kUnit * std::abs(sum) + kFlushed});
}

// For each expert: whether its group may be among the best, and whether it must be.
struct Allowed {
  std::vector<bool> may, must;
};
Allowed allowed_experts(const RouteProblem& p, const TokenReference& t) {
  const std::int64_t each = p.experts / p.num_groups;
  std::vector<Bounded> groups;
  for (std::int64_t i = 0; i < p.num_groups; ++i) {
    groups.push_back(group_choice(p, t.choices.data() + i * each, each));
  }
  const auto before = [&](std::size_t a, std::size_t b) {
    const bool is_exact = groups[a].error == 0 && groups[a].value == groups[b].value;
    return is_exact && groups[b].error == 0 ? a < b : surely_more(groups[a], groups[b]);
  };
  Allowed allowed;
  for (std::size_t a = 0; a < groups.size(); ++a) {
    std::int64_t better = 0, perhaps_better = 0;
    for (std::size_t b = 0; b < groups.size(); ++b) {
      if (b == a) continue;
      better += before(b, a);
      perhaps_better += !before(a, b);
    }
    allowed.may.insert(allowed.may.end(), static_cast<std::size_t>(each), better < p.top_groups);
    allowed.must.insert(allowed.must.end(), static_cast<std::size_t>(each),
                        perhaps_better < p.top_groups);
  }
  return allowed;
}

// Why no correct kernel chooses these experts; empty where one may.
std::string wrong_choice(const RouteProblem& p, const TokenReference& t,
                         const std::vector<std::int32_t>& ids) {
  const Allowed allowed = allowed_experts(p, t);
  std::vector<bool> is_chosen(t.choices.size()), is_used(static_cast<std::size_t>(p.num_groups));
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= p.experts) return fmt::format("{} is no expert", id);
    const auto e = static_cast<std::size_t>(id);
    if (is_chosen[e]) return fmt::format("expert {} comes twice", id);
    if (!allowed.may[e]) return fmt::format("expert {} is in none of the best groups", id);
    is_chosen[e] = true;
    is_used[static_cast<std::size_t>(id / (p.experts / p.num_groups))] = true;
  }
  if (std::count(is_used.begin(), is_used.end(), true) > p.top_groups) {
    return fmt::format("experts come from more than {} groups", p.top_groups);
  }
  for (std::size_t j = 1; j < ids.size(); ++j) {
    const auto first = static_cast<std::size_t>(ids[j - 1]);
    const auto second = static_cast<std::size_t>(ids[j]);
    if (surely_before(t, second, first)) {
      return fmt::format("expert {} comes before {}, which is better", first, second);
    }
  }
  const auto last = static_cast<std::size_t>(ids.back());
  for (std::size_t e = 0; e < t.choices.size(); ++e) {
    if (!is_chosen[e] && allowed.must[e] && surely_before(t, e, last)) {
      return fmt::format("expert {} is chosen and not {}, which is better", last, e);
    }
  }
  return {};
}

// What weights of these experts are.
std::vector<Bounded> weights_of(const RouteProblem& p, const TokenReference& t,
                                const std::vector<std::int32_t>& ids) {
  Bounded sum;
  for (const std::int32_t id : ids) {
    const Bounded& score = t.scores[static_cast<std::size_t>(id)];
    sum.value += score.value, sum.error += score.error;
  }
  sum.error += kUnit * (kChain + double(ids.size())) * sum.value;
  const double least = double{device::kLeastSum};
  const double divisor = p.renormalize ? (sum.value < least ? least : sum.value) : 1;
  const double share = p.renormalize ? sum.error / divisor : 0;
  std::vector<Bounded> weights;
  for (const std::int32_t id : ids) {
    const Bounded& score = t.scores[static_cast<std::size_t>(id)];
    const double factor = double{p.scaling_factor} / divisor;
    const double weight = score.value * factor;
    const double error = std::abs(weight) * (2 * share + 8 * kUnit) +
                         (score.error + kFlushed) * std::abs(factor) + kFlushed;
    const bool may_overflow = std::abs(weight) + error > max_finite(DType::fp32);
    weights.push_back({weight, may_overflow ? kInfinity : error});
  }
  return weights;
}

// ---- comparing ----

// Counts elements, and keeps the first sentence.
struct Verifier {
  Mismatch result;
  template <class Sentence>
  void add(bool is_right, const Sentence& sentence) {
    ++result.checked;
    if (is_right) return;
    result.ok = false;
    if (result.bad++ == 0) result.message = "route: " + sentence();
  }
};

void compare_token(const RouteProblem& p, const RouteOperands& o, const TokenReference& t,
                   Verifier& verifier) {
  const auto* const from = static_cast<const std::int32_t*>(o.ids) + t.token * p.top_k;
  const std::vector<std::int32_t> ids(from, from + p.top_k);
  const std::string why = wrong_choice(p, t, ids);
  verifier.add(why.empty(), [&] { return fmt::format("ids of token {}: {}", t.token, why); });
  if (!why.empty()) return;
  const std::vector<Bounded> weights = weights_of(p, t, ids);
  for (std::size_t j = 0; j < weights.size(); ++j) {
    const double got =
        load_element(DType::fp32, o.weights, t.token * p.top_k + static_cast<std::int64_t>(j));
    const double tolerance = tile::tolerance_of(DType::fp32, weights[j]);
    const double ratio = std::abs(got - weights[j].value) / tolerance;
    if (std::isfinite(ratio)) {
      verifier.result.worst_ratio = std::max(verifier.result.worst_ratio, ratio);
    }
    verifier.add(tile::within_tolerance(DType::fp32, got, weights[j]), [&] {
      return fmt::format("weights[{}, {}] is {:.9g}, the reference is {:.9g} with tolerance {:.3g}",
                         t.token, j, got, weights[j].value, tolerance);
    });
  }
}

// The order by experts of the ids that the kernel read or wrote itself.
void compare_order(const RouteProblem& p, const RouteOperands& o, const std::int32_t* ids,
                   Verifier& verifier) {
  const int experts = static_cast<int>(p.experts);
  const std::int64_t slots = p.tokens * p.top_k;
  std::vector<std::int64_t> next(static_cast<std::size_t>(experts) + 2);
  const auto place = [&](std::int64_t slot) {
    return static_cast<std::size_t>(device::place_of_id(ids[slot], experts));
  };
  for (std::int64_t slot = 0; slot < slots; ++slot) ++next[place(slot) + 1];
  const auto at = [](const void* data, std::int64_t i) {
    return std::int64_t{static_cast<const std::int32_t*>(data)[i]};
  };
  const auto look = [&](std::string_view name, const void* data, std::int64_t i,
                        std::int64_t wanted) {
    verifier.add(at(data, i) == wanted, [&] {
      return fmt::format("{}[{}] is {}, the reference is {}", name, i, at(data, i), wanted);
    });
  };
  for (int e = 0; e < experts; ++e) {
    next[static_cast<std::size_t>(e) + 1] += next[static_cast<std::size_t>(e)];
    look("group_ends", o.group_ends, e, next[static_cast<std::size_t>(e) + 1]);
  }
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    const std::int64_t row = next[place(slot)]++;
    look("slots", o.slots, row, slot);
    look("row_index", o.row_index, row, slot / p.top_k);
  }
}

// With an order all of ids are looked at, else those of the tokens of the reference.
std::vector<Reference::Run> runs_of(const RouteProblem& p,
                                    const std::vector<TokenReference>& tokens) {
  constexpr std::int64_t kBytes = 4;  // of every output's element
  std::vector<Reference::Run> runs;
  const Tensors all = tensors(p);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Tensor& tensor = all[i];
    if (!tensor.is_written() || tensor.is_empty()) continue;
    if (tensor.rank == 1 || (p.order && tensor.name == "ids")) {
      runs.push_back({i, 0, 0, tensor.elements() * kBytes});
      continue;
    }
    for (const TokenReference& t : tokens) {
      runs.push_back({i, 0, t.token * p.top_k * kBytes, p.top_k * kBytes});
    }
  }
  return runs;
}

}  // namespace

Reference reference(const Problem& problem, const Operands& operands,
                    const ReferenceLimits& limits) {
  const RouteProblem p = with_strides(std::get<RouteProblem>(problem));
  const auto& o = std::get<RouteOperands>(operands);
  auto found = std::make_shared<RouteReference>();
  if (chooses(p)) {
    const std::vector<std::int64_t> rows = tile::spread_rows(tensors(p)[0], limits, kCost);
    found->tokens.resize(rows.size());
    share_work(limits.threads, rows.size(), [&](std::size_t, std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) found->tokens[i] = token_reference(p, o, rows[i]);
    });
  } else {
    const auto* const ids = static_cast<const std::int32_t*>(o.ids);
    found->given.assign(ids, ids + p.tokens * p.top_k);
  }
  Reference all;
  all.runs = runs_of(p, found->tokens);
  all.elements = std::move(found);
  return all;
}

Mismatch compare(const Problem& problem, const Operands& operands, const Reference& reference) {
  const RouteProblem p = with_strides(std::get<RouteProblem>(problem));
  const auto& o = std::get<RouteOperands>(operands);
  const auto& wanted = *static_cast<const RouteReference*>(reference.elements.get());
  Verifier verifier;
  for (const TokenReference& t : wanted.tokens) compare_token(p, o, t, verifier);
  if (p.order) {
    const auto* const ids =
        chooses(p) ? static_cast<const std::int32_t*>(o.ids) : wanted.given.data();
    compare_order(p, o, ids, verifier);
  }
  if (!verifier.result.ok) {
    verifier.result.message +=
        fmt::format(" ({} of {} elements checked {} outside)", verifier.result.bad,
                    verifier.result.checked, verifier.result.bad == 1 ? "is" : "are");
  }
  return verifier.result;
}

Mismatch verify(const Problem& problem, const Operands& operands) {
  tile::require_unchanged_inputs(family(), problem, operands);
  return compare(problem, operands, reference(problem, operands, {}));
}

}  // namespace tessera::route
