// There is no global registry. One for single tokens and one for whole batches live side by side,
// each with its own dispatcher; then both are merged, and one target is filtered out of the union.
#include <tessera/tessera.hpp>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace {

// Runs and verifies one multiplication; false when the kernel is not the registry's own.
bool serve(tessera::Dispatcher& dispatcher, int m) {
  const tessera::GemmProblem problem =
      tessera::gemm_problem(tessera::DType::fp32, tessera::GemmLayout::rcr, m, 768, 768);
  const std::vector<float> a(m * 768, 0.5F), b(768 * 768, 0.25F);
  std::vector<float> out(m * 768);
  const tessera::GemmOperands operands{.a = a.data(), .b = b.data(), .out = out.data()};
  dispatcher.run(problem, operands, {.verify = true});

  const std::string& chosen = dispatcher.kernel_for(problem).name;
  std::printf("%-7s  m=%-4d %s\n", dispatcher.registry().name().c_str(), m, chosen.c_str());
  return dispatcher.registry().contains(chosen);
}

}  // namespace

int main() {
  auto tokens = std::make_shared<tessera::Registry>("tokens");
  auto batches = std::make_shared<tessera::Registry>("batches");
  tessera::Dispatcher for_tokens({}, tokens);
  tessera::Dispatcher for_batches({}, batches);

  // Sets that come with the library: kernels bound by memory, and kernels bound by arithmetic. They
  // are built when they are first needed, in the cache that all registries share.
  const tessera::Target& target = for_tokens.target();  // this machine
  const auto set = [&target](const std::string& name) {
    return tessera::KernelSetBuilder(name, target).preselected(name).build();
  };
  tokens->declare(set("fp32_rcr_memory"));
  batches->declare(set("fp32_rcr_compute"));
  if (!serve(for_tokens, 1) || !serve(for_batches, 160)) return 1;

  // The union: where both have loaded a kernel of one name, the left one keeps its own.
  auto all = std::make_shared<tessera::Registry>("all");
  all->merge(*tokens);
  all->merge(*batches);
  tessera::Dispatcher for_all({}, all);
  if (!serve(for_all, 1) || !serve(for_all, 160)) return 1;

  // Declarations for a machine that is elsewhere may live in the same registry.
  all->declare(tessera::KernelSetBuilder("gpu", "sm90a").preselected("bf16_rcr_essential").build());
  const tessera::Registry here = all->filtered(target.name);
  const tessera::Registry gpu = all->filtered("sm90a");
  std::printf("%zu kernels: %zu for %s, %zu for sm90a\n", all->size(), here.size(),
              target.name.c_str(), gpu.size());
  return here.size() + gpu.size() == all->size() ? 0 : 1;
}
