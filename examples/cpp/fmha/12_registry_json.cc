// Kernels of attention declared by fields with wildcards and for problems, exported as JSON,
// imported elsewhere, built, and chosen among.
#include <tessera/tessera.hpp>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr const char* kPrompt =
    "fmha batch=2 heads=4 heads_kv=2 seqlen_q=40 seqlen_k=40 hdim=64 mask=top_left dtype=bf16";
constexpr const char* kStep =
    "fmha batch=2 heads=4 heads_kv=2 seqlen_q=1 seqlen_k=41 hdim=64 dtype=bf16";

// All kernels for packed sequences with a mask, whatever their tiles: none of them is built here.
bool declares_wildcards(const tessera::Target& target) {
  tessera::KernelSetBuilder builder("prompts", target);
  builder.op(tessera::Op::fmha).dtype("bf16").where("mode", "group").where("lengths", "packed");
  builder.where("mask", "generic").where("bias", "none").where("logits", "false").tile("*x*x*");
  const tessera::KernelSet set = builder.build();
  std::printf("a set of %zu kernels, the first is %s\n", set.specs.size(),
              name_of(set.specs.front()).c_str());
  return tessera::kernel_set_from_json(tessera::to_json(set)) == set;
}

}  // namespace

int main() {
  const tessera::Target target = tessera::host_target();
  if (!declares_wildcards(target)) return 1;

  // The best kernel for prompts, and the best for single tokens.
  std::vector<tessera::Problem> problems;
  tessera::Registry declared("attention");
  declared.add_target(target);
  for (const char* const line : {kPrompt, kStep}) {
    problems.push_back(tessera::parse_problem(line));
    if (tessera::problem_from_json(tessera::to_json(problems.back())) != problems.back()) return 1;
    declared.declare(
        tessera::KernelSetBuilder("attention", target).for_problem(problems.back(), 1).build());
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
  return 0;
}
