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

#include "tessera/spec/kernel_spec.h"
#include "tessera/spec/target.h"

#pragma GCC visibility push(default)
namespace tessera {

// Where a decision came from, in the order in which the sources are asked.
enum class ChoiceSource : std::uint8_t { pinned, tuned, learned, analytic, first_legal };
std::string_view to_string(ChoiceSource source);

// A candidate and what became of it: a predicted time, or the sentence of the rule that refused it.
struct Considered {
  KernelSpec spec;
  std::string name;
  double predicted_seconds = 0;  // 0 when refused or when the ranker does not predict
  std::string refusal;
  ChoiceSource source = ChoiceSource::first_legal;  // the ranker that placed an accepted candidate
};

struct Decision {
  KernelSpec spec;
  std::string name;
  ChoiceSource source = ChoiceSource::first_legal;
  double predicted_seconds = 0;
  int threads = 0;                     // the number of threads that the times are for
  std::string why;                     // one sentence
  std::vector<Considered> considered;  // accepted candidates, best first, then refused ones by name
};

// All that a ranker may look at. It reads no device, no clock and no environment.
struct RankInput {
  const Problem& problem;
  const Target& target;
  int threads;
  std::span<const KernelSpec> legal;  // sorted by name
  // The caller uses only the first result, so a ranker may leave out the others.
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
// Chooses by the lengths that kernels are tuned for: the shortest that reaches the problem's
// length, and behind those the others, the longest first. Among kernels for one length the
// estimate decides. No opinion on operations whose kernels are not told apart by length. The
// source is first_legal.
std::shared_ptr<const Ranker> make_length_ranker();
// The ranker that looks up a problem's measured winner. `find` returns the kernel's name and its
// measured seconds.
struct TunedEntry {
  std::string kernel;
  double seconds = 0;
};
std::shared_ptr<const Ranker> make_tuned_ranker(
    std::function<std::optional<TunedEntry>(const Problem&, const Target&, int threads)> find);
// The meaning of the values that a learned model predicts for candidates.
enum class LearnedValue : std::uint8_t {
  seconds,
  ratio,  // times up to a common factor: only quotients of two kernels' values mean something
  score,  // only the order means something; the least value is the best
};
struct LearnedModel {
  // Fills in one value for each candidate, or returns false when the problem is outside the model's
  // range. A value that is not finite, and a time or ratio that is not positive, means that the
  // model has no opinion on that candidate.
  std::function<bool(const RankInput&, std::span<double> values)> predict;
  // A clause that says why the problem is outside the range; may be empty.
  std::function<std::string(const RankInput&)> why_not = {};
  // A clause that is appended to Decision::why when this ranker decides, such as how it predicts.
  std::function<std::string(const RankInput&)> how = {};
  LearnedValue value = LearnedValue::seconds;
};
std::shared_ptr<const Ranker> make_learned_ranker(LearnedModel model);

struct ChooseOptions {
  int threads = 0;     // 0: all units of the target
  std::string pinned;  // a kernel name: choose this kernel or throw an error that says why not
  bool deterministic = false;  // refuse kernels whose bits depend on thread count or order
  // Choose so that a row, an image or a sequence has the same bits in every batch. The order of
  // sums is chosen for any batch, then the best kernel with that order for the problem. The problem
  // is understood as any_batch(problem).own.
  bool batch_invariant = false;
  std::vector<std::shared_ptr<const Ranker>> rankers;  // empty: analytic, then first legal
  // The kernels to choose among. Unset: the target's whole space, and its general kernel when
  // nothing in the space is legal.
  std::optional<std::vector<KernelSpec>> pool;
  bool explain = false;  // fill Decision::considered
  bool says_why = true;  // fill Decision::why, which takes time
};

// Chooses a kernel. Throws Error{invalid_argument} for an invalid problem, Error{not_found} for an
// unknown pinned name, Error{illegal_spec} when the pinned kernel cannot run the problem, and
// Error{unsupported} with the nearest misses when nothing is legal and there is no general kernel.
// When a pool is given, the result is always in the pool, also when it is pinned.
Decision choose(const Problem& problem, const Target& target, const ChooseOptions& options = {});

// How many threads of a CPU a call with this kernel is worth by the estimate, from 1 to `limit`:
// short calls are faster on the calling thread alone, and fewer threads than there are may be best.
int worth_threads(const KernelSpec& spec, const Problem& problem, const Target& target, int limit);

// How much explain() prints. `summary` is the next five kernels and the refused ones counted by
// rule. `everything` is every kernel, one by one.
enum class ExplainDetail : std::uint8_t { summary, everything };

// The text of `tessera explain`: the chosen kernel, the next ones with the reasons why they lost,
// and the refused ones with the rules that refused them.
std::string explain(const Problem& problem, const Target& target, const Decision& decision,
                    ExplainDetail detail = ExplainDetail::summary);

}  // namespace tessera
#pragma GCC visibility pop
