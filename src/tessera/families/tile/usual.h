// Members of a family's table as most families fill them in.
#pragma once

#include "tessera/base/error.h"
#include "tessera/families/draw.h"
#include "tessera/families/tile/sets.h"

namespace tessera::tile {

inline Verdict always(const KernelSpec&, const Target&) { return {}; }
inline Verdict features_fit(const Problem&) { return {}; }
inline bool is_described(const KernelSpec&) { return true; }
inline Problem same(const Problem& problem) { return problem; }
inline Problem no_twin(const Problem& problem, const Target&) { return problem; }
inline std::optional<Prepack> packs_nothing(const KernelSpec&, const Problem&, const Operands&,
                                            void*) {
  return std::nullopt;
}

template <Op kOp>
std::vector<KernelSpec> preselected(std::string_view set, const Target& target) {
  return preselected(kOp, set, target, family_of(kOp).is_legal);
}
template <Op kOp>
std::vector<std::string> preselected_names() {
  return preselected_names(kOp);
}
template <Op kOp>
bool is_essential(const KernelSpec& spec, const Target& target) {
  return is_essential(kOp, spec, target);
}

inline std::span<const InstanceSource> no_instances() { return {}; }

// Of operations that no framework's receipt is about, and whose kernels are not told apart by
// length.
inline std::span<const Receipt> no_receipts() { return {}; }
inline std::vector<Problem> no_receipt_problems(const Receipt&) { return {}; }
inline std::optional<TunedLength> no_tuned_length(const KernelSpec&, const Problem&) { return {}; }
template <Op kOp>
SettledProblem no_builder(std::span<const Setting>) {
  throw Error(ErrorCode::unsupported,
              std::string(to_string(kOp)) + ": there is no builder; set the problem's fields");
}
// "_check": "check"; the kernel itself: the verb.
std::string stage_of(std::string_view verb, std::string_view entry);

// A problem from another program's row, of these keys of a problem's line.
Problem from_words(Op op, const ProblemWords& words, std::span<const std::string_view> keys);

// The first `count` problems of draw(0), draw(1), ... that lie on the side, without repetition;
// nothing where draw() finds none that fits.
std::vector<Problem> draw_problems(
    std::size_t count, ProblemSide side,
    const std::function<std::optional<Problem>(std::uint64_t index)>& draw);

}  // namespace tessera::tile
