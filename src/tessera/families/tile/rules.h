// Tables of rules. A rule is one row: a function that says whether the rule holds for a case, and a
// function that makes the sentence when it does not.
#pragma once

#include <span>
#include <string>
#include <type_traits>

#include "tessera/spec/kernel_spec.h"
#include "tessera/spec/target.h"

namespace tessera::tile {

// What the rules of a family look at. In a way's rules the signature is valid.
template <class Signature>
struct SpecCase {
  const Signature& signature;
  const Algorithm& algorithm;
  const Target& target;
};

template <class Case>
struct Rule {
  bool (*holds)(const Case&);
  std::string (*sentence)(const Case&);
};

// A rule about the algorithm alone, and the row that it is in a table of any family.
struct AlgorithmRule {
  bool (*holds)(const Algorithm&);
  std::string (*sentence)(const Algorithm&);
};
template <class Case, const AlgorithmRule& kRule>
inline constexpr Rule<Case> kRowOf = {[](const Case& c) { return kRule.holds(c.algorithm); },
                                      [](const Case& c) { return kRule.sentence(c.algorithm); }};

// The first broken rule, or null.
template <class Case>
const Rule<Case>* first_broken(std::type_identity_t<std::span<const Rule<Case>>> rules,
                               const Case& c) {
  for (const Rule<Case>& rule : rules) {
    if (!rule.holds(c)) return &rule;
  }
  return nullptr;
}

// What it says; empty where all hold.
template <class Case>
std::string broken_sentence(std::type_identity_t<std::span<const Rule<Case>>> rules,
                            const Case& c) {
  const Rule<Case>* rule = first_broken(rules, c);
  return rule == nullptr ? std::string() : rule->sentence(c);
}

}  // namespace tessera::tile
