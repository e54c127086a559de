// Declare a family of kernels with wildcards, build all of them in parallel ahead of time, and let
// a dispatcher choose among these and no others.
#include <tessera/tessera.hpp>

#include <cstdio>
#include <memory>
#include <vector>

int main() {
  auto registry = std::make_shared<tessera::Registry>("mine");
  tessera::Dispatcher dispatcher({}, registry);
  const tessera::Target& target = dispatcher.target();  // this machine

  // '*' is any value that this machine's row allows. What is not legal is left out by itself.
  const tessera::KernelSet set = tessera::KernelSetBuilder(registry->name(), target)
                                     .gemm()
                                     .dtype("fp32")
                                     .layout("rcr")
                                     .variant("standard")
                                     .pipeline("packb")
                                     .tile("96x*x*")
                                     .wave("0x0x1")
                                     .warp_tile("8x*x1")
                                     .build();
  std::printf("'%s' holds %zu kernels for %s\n", set.name.c_str(), set.specs.size(),
              target.name.c_str());

  registry->declare(set);
  const auto print_step = [](std::size_t done, std::size_t total,
                             const tessera::jit::BuildResult& result) {
    std::printf("  [%zu/%zu] %s %s\n", done, total, result.name.c_str(),
                result.was_cached ? "(cached)" : "");
  };
  // 0 jobs: one per core. A kernel that fails is a sentence in its result; the others go on.
  for (const tessera::jit::BuildResult& result : registry->build(0, print_step)) {
    if (result.error.empty()) continue;
    std::fprintf(stderr, "%s\n", result.error.c_str());
    return 1;
  }

  // Every run is compared with the fp64 reference; run() throws when a result is out of tolerance.
  for (const int m : {17, 96, 200}) {
    const tessera::GemmProblem problem =
        tessera::gemm_problem(tessera::DType::fp32, tessera::GemmLayout::rcr, m, 150, 64);
    const std::vector<float> a(m * 64, 0.5F), b(150 * 64, 0.25F);
    std::vector<float> out(m * 150);
    const tessera::GemmOperands operands{.a = a.data(), .b = b.data(), .out = out.data()};
    dispatcher.run(problem, operands, {.verify = true});

    const std::string& chosen = dispatcher.kernel_for(problem).name;
    std::printf("m=%-4d verified, by %s\n", m, chosen.c_str());
    if (!registry->contains(chosen)) return 1;
  }
  return registry->size() == set.specs.size() ? 0 : 1;
}
