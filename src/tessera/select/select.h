// Choosing a kernel: a pure function that can explain itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/families/family.h"

namespace tessera {

// Where a decision came from, in the order in which the sources are asked.
enum class ChoiceSource : std::uint8_t { pinned, tuned, learned, analytic, first_legal };
std::string_view to_string(ChoiceSource source);

// A candidate as it was looked at: a predicted time, or the rule that refused it.
struct Considered {
  KernelSpec spec;
  std::string name;
  double predicted_seconds = 0;  // 0 when refused or when the ranker does not predict
  std::string refusal;
  ChoiceSource source = ChoiceSource::first_legal;  // the ranker that placed an accepted one
};

struct Decision {
  KernelSpec spec;
  std::string name;
  ChoiceSource source = ChoiceSource::first_legal;
  double predicted_seconds = 0;
  int threads = 0;                     // that the times are for
  std::string why;                     // one sentence
  std::vector<Considered> considered;  // accepted ones best first, then refused ones by name
};

// What a ranker may look at: no device, no clock, no environment.
struct RankInput {
  const Problem& problem;
  const Target& target;
  int threads;
  std::span<const KernelSpec> legal;  // sorted by name
  // The caller looks at the first alone: a ranker may leave out what comes later.
  bool only_best = false;
};
struct Ranked {
  std::size_t index;  // into legal
  double predicted_seconds = 0;
};

// One way of ordering legal candidates. rank() returns the best first, or nothing when it has no
// opinion on this problem; the next ranker is then asked. Predictions equal to within one part in
// a million are ordered by name.
class Ranker {
 public:
  virtual ~Ranker() = default;
  virtual ChoiceSource source() const = 0;
  virtual std::string why(const RankInput& input, const Ranked& best) const = 0;
  virtual std::vector<Ranked> rank(const RankInput& input) const = 0;
  // Why rank() returned nothing, when that is worth a clause of Decision::why; empty otherwise.
  virtual std::string why_not(const RankInput&) const { return {}; }
};

std::shared_ptr<const Ranker> make_analytic_ranker();
std::shared_ptr<const Ranker> make_first_legal_ranker();
// Looks a winner up by problem; `find` returns a kernel name and its measured seconds.
struct TunedEntry {
  std::string kernel;
  double seconds = 0;
};
std::shared_ptr<const Ranker> make_tuned_ranker(
    std::function<std::optional<TunedEntry>(const Problem&, const Target&, int threads)> find);
// What a learned model says of the candidates.
enum class LearnedValue : std::uint8_t {
  seconds,
  ratio,  // how many times longer than another a kernel takes
  score,  // only the order means something, the least being the best
};
struct LearnedModel {
  // Fills one value per candidate, or returns false when the problem is outside its range. Values
  // that are not finite, and seconds and ratios that are not positive, are no opinion on that
  // candidate.
  std::function<bool(const RankInput&, std::span<double> values)> predict;
  // Why the problem is outside; may be empty.
  std::function<std::string(const RankInput&)> why_not = {};
  // What to add to the sentence that says why a candidate is best.
  std::function<std::string(const RankInput&)> how = {};
  LearnedValue value = LearnedValue::seconds;
};
std::shared_ptr<const Ranker> make_learned_ranker(LearnedModel model);

struct ChooseOptions {
  int threads = 0;             // 0: all units of the target
  std::string pinned;          // a kernel name: that one or an error that says why not
  bool deterministic = false;  // refuse kernels whose bits depend on thread count or order
  std::vector<std::shared_ptr<const Ranker>> rankers;  // empty: analytic, then first legal
  // Unset: the target's whole space, and its general kernel when nothing there is legal.
  std::optional<std::vector<KernelSpec>> pool;
  bool explain = false;  // fill Decision::considered
};

// Throws Error{invalid_argument} for an invalid problem, Error{not_found} for an unknown pinned
// name, Error{illegal_spec} when the pinned kernel cannot serve, and Error{unsupported} listing the
// nearest misses when nothing is legal and no general kernel exists. A pool is never left: neither
// a pinned nor a general kernel comes from outside of it.
Decision choose(const Problem& problem, const Target& target, const ChooseOptions& options = {});

// How much explain() tells: the next five kernels and the refused ones counted by rule, or all of
// them one by one.
enum class ExplainDetail : std::uint8_t { summary, everything };

// The text of `tessera explain`: the chosen kernel, the next ones with what they lost by, and the
// refused ones with their rules.
std::string explain(const Problem& problem, const Target& target, const Decision& decision,
                    ExplainDetail detail = ExplainDetail::summary);

}  // namespace tessera
