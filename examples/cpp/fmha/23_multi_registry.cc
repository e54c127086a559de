// Registries side by side: one for prompts and one for single tokens, each with a dispatcher of its
// own, then their union with kernels for a GPU that need not be here.
#include <tessera/tools.hpp>

#include <cstdio>
#include <memory>

namespace {

constexpr const char* kLongCall =
    "fmha batch=2 heads=4 seqlen_q=96 seqlen_k=96 hdim=64 mask=top_left";
constexpr const char* kTokenCall = "fmha batch=2 heads=4 seqlen_q=1 seqlen_k=96 hdim=64";

// Runs and verifies one call; false when the kernel is not one of the registry's.
bool serve_call(const std::shared_ptr<tessera::Registry>& registry, const tessera::Target& target,
                const char* line) {
  tessera::Dispatcher dispatcher({.target = target.name}, registry);
  const tessera::Problem problem = tessera::parse_problem(line);
  const auto owned = tessera::measure::random_operands(problem, 42);
  const auto placed =
      tessera::measure::place_operands(owned, {&tessera::runtime::backend_for(target), {}});
  dispatcher.run(problem, placed.operands, {.verify = true});
  const std::string& chosen = dispatcher.kernel_for(problem).name;
  std::printf("%-8s %s\n", registry->name().c_str(), chosen.c_str());
  return registry->contains(chosen);
}

}  // namespace

int main() {
  const tessera::Target target = tessera::host_target();
  auto prompts = std::make_shared<tessera::Registry>("prompts");
  auto tokens = std::make_shared<tessera::Registry>("tokens");
  const auto best_for = [&](const char* line) {
    return tessera::KernelSetBuilder("best", target)
        .for_problem(tessera::parse_problem(line), 1)
        .build();
  };
  prompts->declare(best_for(kLongCall));
  tokens->declare(best_for(kTokenCall));
  if (!serve_call(prompts, target, kLongCall) || !serve_call(tokens, target, kTokenCall)) return 1;

  auto all = std::make_shared<tessera::Registry>("all");
  all->merge(*prompts);
  all->merge(*tokens);
  all->declare(tessera::KernelSetBuilder("gpu", "sm90a").receipt("fp32_min").build());
  if (!serve_call(all, target, kLongCall) || !serve_call(all, target, kTokenCall)) return 1;
  const tessera::Registry here = all->filtered(target.name), gpu = all->filtered("sm90a");
  std::printf("%zu kernels: %zu for %s, %zu for sm90a\n", all->size(), here.size(),
              target.name.c_str(), gpu.size());
  return here.size() + gpu.size() == all->size() && here.size() == 2 ? 0 : 1;
}
