// Ways: how the kernels of one pipeline on one backend are made. A family has a table of ways, and
// a file for each of them. The functions below make the family's functions of the table.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/families/family.h"
#include "tessera/families/tile/algorithm_space.h"
#include "tessera/families/tile/candidates.h"
#include "tessera/families/tile/rules.h"

namespace tessera::tile {

// The first members of `Types` below, for a family that has nothing special there.
template <Op op, class SignatureOfOp, class ProblemOfOp, class OperandsOfOp>
struct UsualTypes {
  static constexpr Op kOp = op;
  static constexpr bool kHasPointwise = false;
  using Signature = SignatureOfOp;
  using Problem = ProblemOfOp;
  using Arguments = OperandsOfOp;
  using Case = tile::SpecCase<Signature>;
  static const Arguments& arguments(const Problem&, const Operands& operands) {
    return std::get<OperandsOfOp>(operands);
  }
};

// A row of the table. `Types` says what a family's ways work on:
//   struct Types {
//     static constexpr Op kOp = Op::conv;
//     static constexpr bool kHasPointwise = true;  // whether a way may be pointwise
//     using Signature = ConvSignature;
//     using Problem = ConvProblem;
//     using Arguments = ConvOperands;  // what bind() gets of the operands
//     using Case = conv::Case;         // what rules look at: {signature, algorithm, target}
//     struct Own {};                   // what only this family's rows hold
//     static std::span<const Way<Types>* const> ways();
//     // The rules of every kernel. They come before those of the way, and refuse a kernel that
//     // has none.
//     static std::span<const Rule<Case>> common_rules();
//     // The sentence about a kernel that has no way and is to be emitted all the same.
//     static std::string no_way(const KernelSpec&, const Target&);
//     static Arguments arguments(const Problem&, const Operands&);
//     // The problem that functions of ways get: with its strides, and simpler where that is equal.
//     // A family whose problems are never simpler leaves this out.
//     static Problem for_ways(const Problem&);
//     // Whether the kernels of a row compute such signatures. A family whose rows all compute all
//     // signatures leaves this out.
//     static bool makes(const Own&, const Signature&);
//     // Whether an algorithm of its pipeline is of this row. A family with one row for each
//     pipeline
//     // leaves this out.
//     static bool takes(const Own&, const Algorithm&);
//     // The signatures that enumeration lists.
//     static std::vector<tessera::Signature> signatures();
//     // The algorithms that may serve a problem.
//     static std::vector<Algorithm> algorithms_for(const tessera::Problem&, const Target&);
//   };
template <class Types>
struct Way {
  using Problem = typename Types::Problem;
  std::string_view backend;
  Pipeline pipeline = {};
  // What the target can run, besides the rules of every kernel.
  std::span<const Rule<typename Types::Case>> rules = {};
  // Whether a kernel serves a problem of its signature; null: any.
  Verdict (*serves)(const KernelSpec&, const Problem&, const Target&) = nullptr;
  // The algorithms of the target's space, whatever the signature; null: none.
  std::vector<Algorithm> (*algorithms)(const Target&) = nullptr;
  Source (*emit)(const KernelSpec&, const Target&) = nullptr;
  Launch (*bind)(const KernelSpec&, const Problem&, const Target&,
                 const typename Types::Arguments&) = nullptr;
  Estimate (*estimate)(const KernelSpec&, const Problem&, const Target&, int threads) = nullptr;
  // Kernels of products of matrices that serve another operation. Their pipelines are not compared.
  bool pointwise = false;
  // Whether the space of a target has the kernels without listing their pipeline.
  bool is_unlisted = pointwise;
  typename Types::Own own = {};
};

template <class Types>
concept TellsSignatures = requires(const typename Types::Own& own,
                                   const typename Types::Signature& signature) {
  Types::makes(own, signature);
};

template <class Types>
concept TellsAlgorithms = requires(const typename Types::Own& own, const Algorithm& algorithm) {
  Types::takes(own, algorithm);
};

template <class Types>
typename Types::Problem for_ways(const Problem& problem) {
  const auto& given = std::get<typename Types::Problem>(problem);
  if constexpr (requires { Types::for_ways(given); }) return Types::for_ways(given);
  return with_strides(given);
}

// Null where the backend has no such kernels.
template <class Types>
const Way<Types>* find_way(const typename Types::Case& c) {
  for (const Way<Types>* way : Types::ways()) {
    const bool pointwise = Types::kHasPointwise && c.algorithm.pointwise;
    if (way->pointwise != pointwise) continue;
    if (way->pipeline != c.algorithm.pipeline && !pointwise) continue;
    if constexpr (TellsSignatures<Types>) {
      if (!Types::makes(way->own, c.signature)) continue;
    }
    if constexpr (TellsAlgorithms<Types>) {
      if (!Types::takes(way->own, c.algorithm)) continue;
    }
    if (way->backend == c.target.backend) return way;
  }
  return nullptr;
}

template <class Types>
const Way<Types>* find_way(const KernelSpec& spec, const Target& target) {
  const auto& signature = std::get<typename Types::Signature>(spec.signature);
  return find_way<Types>({signature, spec.algorithm, target});
}

// The row of a legal kernel.
template <class Types>
const Way<Types>& way_of(const KernelSpec& spec, const Target& target) {
  if (const Way<Types>* const way = find_way<Types>(spec, target)) return *way;
  throw Error(ErrorCode::unsupported, Types::no_way(spec, target));
}

// The first broken rule, or null.
template <class Types>
const Rule<typename Types::Case>* broken_rule(const typename Types::Case& c) {
  if (const auto* rule = first_broken<typename Types::Case>(Types::common_rules(), c)) return rule;
  const Way<Types>* const way = find_way<Types>(c);
  return way == nullptr ? nullptr : first_broken<typename Types::Case>(way->rules, c);
}

// Calls visit(way) for each row whose kernels the target's space has.
template <class Types, class Visit>
void for_each_way(const Target& target, const Visit& visit) {
  for (const Way<Types>* way : Types::ways()) {
    if (way->backend != target.backend) continue;
    if (way->is_unlisted || has_pipeline(Types::kOp, target, way->pipeline)) visit(*way);
  }
}

// The algorithms of the rows that `wants` accepts. Throws Error{unsupported} where the target has
// no space.
template <class Types, class Wants>
std::vector<Algorithm> algorithms_of(const Target& target, const Wants& wants) {
  space_of(Types::kOp, target);
  std::vector<Algorithm> all;
  for_each_way<Types>(target, [&](const Way<Types>& way) {
    if (way.algorithms == nullptr || !wants(way)) return;
    for (const Algorithm& a : way.algorithms(target)) all.push_back(a);
  });
  return all;
}
template <class Types>
std::vector<Algorithm> algorithms_of(const Target& target) {
  return algorithms_of<Types>(target, [](const Way<Types>&) { return true; });
}

// ---- functions of a family's table ----

template <class Types>
Verdict is_legal(const KernelSpec& spec, const Target& target) {
  if (std::string why = foreign_reason(Types::kOp, spec, target); !why.empty()) return {why};
  const auto& signature = std::get<typename Types::Signature>(spec.signature);
  const typename Types::Case c = {signature, spec.algorithm, target};
  const auto* rule = broken_rule<Types>(c);
  return {rule == nullptr ? std::string() : rule->sentence(c)};
}

// Whether a kernel serves a problem of its signature.
template <class Types>
Verdict serves(const KernelSpec& spec, const Problem& problem, const Target& target) {
  const Way<Types>* const way = find_way<Types>(spec, target);
  if (way == nullptr || way->serves == nullptr) return {};
  return way->serves(spec, for_ways<Types>(problem), target);
}

template <class Types>
Verdict supports(const KernelSpec& spec, const Problem& problem, const Target& target) {
  if (std::string why = signature_mismatch(spec, problem); !why.empty()) return {why};
  return serves<Types>(spec, problem, target);
}

template <class Types>
std::vector<KernelSpec> combinations(const Target& target, std::span<const Wish> wishes,
                                     std::size_t most) {
  return product(family_of(Types::kOp), target, wishes, Types::signatures(),
                 algorithms_of<Types>(target), most);
}

template <class Types>
std::vector<KernelSpec> enumerate(const Target& target, std::span<const Wish> wishes) {
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  const Family& family = family_of(Types::kOp);
  return legal_by_name(family, target, family.combinations(target, wishes, kAll));
}

template <class Types>
std::vector<KernelSpec> candidates(const Problem& problem, const Target& target) {
  return specs_for(problem, target, Types::algorithms_for(problem, target));
}

template <class Types>
std::vector<KernelSpec> legal_candidates(const Problem& problem, const Target& target) {
  return legal_specs_for(family_of(Types::kOp), problem, target,
                         Types::algorithms_for(problem, target));
}

template <class Types>
Source emit(const KernelSpec& spec, const Target& target) {
  return way_of<Types>(spec, target).emit(spec, target);
}

template <class Types>
Launch bind(const KernelSpec& spec, const Problem& problem, const Target& target,
            const Operands& operands) {
  const auto p = for_ways<Types>(problem);
  return way_of<Types>(spec, target).bind(spec, p, target, Types::arguments(p, operands));
}

template <class Types>
Estimate estimate(const KernelSpec& spec, const Problem& problem, const Target& target,
                  int threads) {
  const auto p = for_ways<Types>(problem);
  return way_of<Types>(spec, target).estimate(spec, p, target, units_used(threads, target));
}

}  // namespace tessera::tile
