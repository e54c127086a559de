// The kernels that PyTorch's scaled_dot_product_attention needs: the receipt "pytorch" as a kernel
// set, a dispatcher that chooses among these alone, and two calls of it, verified.
#include <tessera/tools.hpp>

#include <cstdio>
#include <memory>

namespace {

// What F.scaled_dot_product_attention asks for in inference and in training.
constexpr const char* kTorchCalls[] = {
    "fmha batch=2 heads=4 seqlen_q=40 seqlen_k=40 hdim=64 mask=top_left dtype=bf16",
    "fmha batch=2 heads=4 seqlen_q=40 seqlen_k=40 hdim=64 mask=top_left lse=1 dtype=bf16"};

}  // namespace

int main() {
  const tessera::Target target = tessera::host_target();
  const tessera::KernelSet set =
      tessera::KernelSetBuilder("pytorch", target).receipt("pytorch").build();
  std::size_t with_bias = 0;
  for (const tessera::KernelSpec& spec : set.specs) {
    const auto& signature = std::get<tessera::FmhaSignature>(spec.signature);
    with_bias += signature.bias == tessera::FmhaBias::elementwise ? 1 : 0;
    if (signature.bias == tessera::FmhaBias::alibi || signature.soft_cap) return 1;
  }
  std::printf("pytorch on %s: %zu kernels, %zu of them with an element-wise bias\n",
              target.name.c_str(), set.specs.size(), with_bias);

  auto registry = std::make_shared<tessera::Registry>("pytorch");
  registry->declare(set);
  tessera::Dispatcher dispatcher({.target = target.name}, registry);
  const tessera::runtime::Place place{&tessera::runtime::backend_for(dispatcher.target()), {}};
  for (const char* const line : kTorchCalls) {
    const tessera::Problem problem = tessera::parse_problem(line);
    const auto owned = tessera::measure::random_operands(problem, 42);
    const auto placed = tessera::measure::place_operands(owned, place);
    dispatcher.run(problem, placed.operands, {.verify = true});  // throws unless it is right
    const std::string& chosen = dispatcher.kernel_for(problem).name;
    std::printf("  %s\n", chosen.c_str());
    if (!registry->contains(chosen)) return 1;
  }
  return 0;
}
