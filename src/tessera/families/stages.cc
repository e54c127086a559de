#include "tessera/families/stages.h"

#include "tessera/families/family.h"

namespace tessera {

// The last step is the one whose sums a kernel cuts.
std::vector<Stage> stages_of(const KernelSpec& spec, const Problem& problem, const Target& target) {
  const Family& family = family_of(spec);
  const Launch launch = family.bind(spec, problem, no_operands(problem));
  const std::vector<std::string> entries = emit_legal(spec, target).entries;
  const std::string name = name_of(spec);
  std::vector<Stage> stages;
  for (const Step& step : launch.steps) {
    const std::string& entry = entries.at(step.entry);
    stages.push_back({family.stage(spec, entry), name + entry});
  }
  if (!stages.empty()) stages.back().parts = launch.parts;
  return stages;
}

}  // namespace tessera
