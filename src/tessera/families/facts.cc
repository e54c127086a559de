#include "tessera/families/facts.h"

#include "tessera/families/family.h"

namespace tessera {

bool is_unseen(const Problem& problem) {
  return side_of(family_of(problem).facts(problem).shape_hash) == ProblemSide::unseen;
}

std::string model_key(const Problem& problem) {
  return family_of(problem).model_key(signature_of(problem));
}

std::string model_key(const KernelSpec& spec) { return family_of(spec).model_key(spec.signature); }

double peak_of(const Instruction& instruction, const Target& target, int units) {
  const Shape3& s = instruction.shape;
  const double macs = instruction.per_cycle * s.m * s.n * s.k;
  return 2 * macs * units * target.clock_ghz * 1e9;
}

}  // namespace tessera
