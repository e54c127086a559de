// Named lists of problems to learn from, and the lists that learning never sees.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tessera/spec/problem.h"
#include "tessera/spec/target.h"

namespace tessera::measure {

// "wide": sides log-uniform over what the target computes in a moment, and layers of models.
// "edge": sides of 1, primes, tiny, huge, next to powers of 2, no multiples of 8.
// "models": layers of common networks for many numbers of tokens and images.
std::span<const std::string_view> problem_set_names();

// The problems of a set, without repetition and in an order in which every prefix is a fair sample.
// The lists are frozen: they follow from the name, the kind of target (CPU or GPU), its peak and
// the type, and from nothing else. On CPUs a problem has at most 10 Gflop and 256 MB, on GPUs what
// takes 1 ms at the target's peak and 1.5 GB. Throws Error{not_found} with the nearest name, and
// what the family's validate() throws for types that no kernel multiplies.
std::vector<Problem> problem_set(std::string_view name, const Target& target, DType dtype,
                                 GemmLayout layout);

// The same for scoring what was learned. Sizes decide which side a problem is on: no m, n, k of any
// of these lists is in any list of problem_set(), whatever the set, target, type or layout.
std::vector<Problem> unseen_problems(std::string_view name, const Target& target, DType dtype,
                                     GemmLayout layout);

// On which side a problem is, also one of no list: an m, n, k that learning must not see.
bool is_unseen(const Problem& problem);

}  // namespace tessera::measure
