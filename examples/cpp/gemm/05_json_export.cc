// Everything declared is data: kernel sets, problems, targets and registries travel as JSON without
// loss, and a set's sources can be written to a folder for another build system.
#include <tessera/tools.hpp>

#include <cstdio>
#include <filesystem>

namespace {

// Writes the sources of the set, one file per kernel, and says whether all of them are there.
bool generates(const tessera::KernelSet& set, const tessera::Target& target) {
  const std::filesystem::path folder =
      tessera::make_unique_folder(std::filesystem::temp_directory_path(), "tessera-example-");
  const tessera::GenerateResult result = tessera::generate(set, target, folder, 2);
  bool complete = result.errors.empty() && result.written == set.specs.size();
  for (const tessera::KernelSpec& spec : set.specs) {
    const std::filesystem::path file = folder / (tessera::name_of(spec) + ".cc");
    std::printf("  %s\n", file.filename().c_str());
    complete = complete && std::filesystem::exists(file);
  }
  tessera::remove_tree(folder);
  return complete;
}

}  // namespace

int main() {
  const tessera::Target target = tessera::host_target();
  const tessera::Problem problem =
      tessera::parse_problem("gemm m=128 n=3072 k=768 layout=rcr epilogue=bias+gelu");
  std::printf("a problem: %s\n", tessera::to_json(problem).c_str());
  if (tessera::problem_from_json(tessera::to_json(problem)) != problem) return 1;

  // A set of the three best kernels for the problem, as JSON and back.
  const tessera::KernelSet set =
      tessera::KernelSetBuilder("feed_forward", target).for_problem(problem, 3).build();
  const std::string text = tessera::to_json(set);
  std::printf("a kernel set: %s\n", text.c_str());
  if (tessera::kernel_set_from_json(text) != set) return 1;

  // A registry exports its kernels together with the targets that were added to it.
  tessera::Registry registry("here");
  registry.add_target(target);
  registry.declare(set);
  const std::string exported = registry.export_json();
  tessera::Registry copy("there");
  copy.import_json(exported);
  std::printf("a registry: %zu kernels in %zu bytes\n", copy.size(), exported.size());
  if (copy.declared() != registry.declared()) return 1;

  std::printf("generated sources:\n");
  return generates(set, target) ? 0 : 1;
}
