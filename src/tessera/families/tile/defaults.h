// Members of a family's table as most families fill them in.
#pragma once

#include "tessera/base/error.h"
#include "tessera/families/draw.h"
#include "tessera/families/family.h"

namespace tessera::tile {

inline Verdict always(const KernelSpec&, const Target&) { return {}; }
// Where no kernel is known to add up as another one does.
inline std::string order_by_name(const KernelSpec& spec, const Problem&, const Target&) {
  return name_of(spec);
}
// Where problems that differ in their batch choose alike.
inline AnyBatch no_batch(const Problem& problem) { return {problem, {problem}, {}}; }
inline Verdict features_fit(const Problem&) { return {}; }
inline bool is_described(const KernelSpec&) { return true; }
inline Problem same(const Problem& problem) { return problem; }

// "_check": "check"; the kernel itself: the verb.
std::string stage_of(std::string_view verb, std::string_view entry);

// A problem from another program's row, of these keys of a problem's line.
Problem from_words(Op op, const ProblemWords& words, std::span<const std::string_view> keys);

// How large the problems of a list may be. A GPU computes no longer than 4.4 ms at the peak of
// `best`, which is fp32's instruction where it is null.
struct DrawBounds {
  double flops, bytes;
};
DrawBounds draw_bounds(const Target& target, const Instruction* best, double gpu_bytes);

// The first `count` problems of draw(0), draw(1), ... that lie on the side, without repetition;
// nothing where draw() finds none that fits.
std::vector<Problem> draw_problems(
    std::size_t count, ProblemSide side,
    const std::function<std::optional<Problem>(std::uint64_t index)>& draw);

}  // namespace tessera::tile
