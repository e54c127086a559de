// Kernels of all three directions declared in one registry, exported as JSON, imported elsewhere,
// built, and chosen among.
#include <tessera/tessera.hpp>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

int main() {
  const tessera::Target target = tessera::host_target();
  const std::string sizes = " n=2 c=8 k=16 g=2 h=12 w=10 y=3 x=3 pad_h=1 pad_w=1";
  std::vector<tessera::Problem> problems;
  for (const char* const direction : {"forward", "backward_data", "backward_weight"}) {
    problems.push_back(tessera::parse_problem("conv direction=" + std::string(direction) + sizes));
    if (tessera::problem_from_json(tessera::to_json(problems.back())) != problems.back()) return 1;
  }
  std::printf("a problem: %s\n", tessera::to_json(problems[2]).c_str());

  // The best kernel for each problem; a layer that trains needs all three.
  tessera::Registry declared("training");
  declared.add_target(target);
  for (const tessera::Problem& problem : problems) {
    declared.declare(tessera::KernelSetBuilder("training", target).for_problem(problem, 1).build());
  }
  const std::string exported = declared.export_json();
  std::printf("a registry: %zu kernels in %zu bytes\n", declared.size(), exported.size());

  auto imported = std::make_shared<tessera::Registry>("copy");
  imported->import_json(exported);
  if (imported->declared() != declared.declared()) return 1;
  for (const tessera::jit::BuildResult& result : imported->build(0, nullptr)) {
    std::printf("  %s %s\n", result.name.c_str(), result.error.c_str());
    if (!result.error.empty()) return 1;
  }

  // A dispatcher over the copy chooses among its kernels and no others.
  tessera::Dispatcher dispatcher({}, imported);
  for (const tessera::Problem& problem : problems) {
    if (!imported->contains(dispatcher.kernel_for(problem).name)) return 1;
  }
  return declared.size() == problems.size() ? 0 : 1;
}
