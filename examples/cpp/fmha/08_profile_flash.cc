// The kernels of flash-attention's interface: forward, decoding, caches, appending and gradients,
// for this machine and for a GPU that need not be here; a step of training among them.
#include <tessera/tools.hpp>

#include <cstdio>
#include <map>
#include <memory>
#include <string>

namespace {

// How many kernels of each kind a receipt has.
std::map<std::string, std::size_t> flash_kernels(const char* receipt, const char* target) {
  std::map<std::string, std::size_t> count;
  for (const tessera::KernelSpec& spec :
       tessera::KernelSetBuilder("flash", target).receipt(receipt).build().specs) {
    const auto& signature = std::get<tessera::FmhaSignature>(spec.signature);
    ++count[std::string(to_string(signature.kind))];
  }
  return count;
}

}  // namespace

int main() {
  for (const char* const target : {"avx512", "avx2", "generic", "sm90a"}) {
    auto all = flash_kernels("flash", target);
    std::printf("flash on %-8s %4zu kernels attend, %2zu append, %3zu compute gradients\n", target,
                all["forward"], all["append"], all["backward"]);
    if (all["forward"] == 0 || all["append"] == 0 || all["backward"] == 0) return 1;
    if (flash_kernels("flash_bwd", target)["backward"] != all["backward"]) return 1;
  }

  // A causal call with its log-sum-exp, as training makes it, and its gradients, among the kernels
  // of both receipts.
  const tessera::Target target = tessera::host_target();
  auto registry = std::make_shared<tessera::Registry>("flash");
  registry->declare(tessera::KernelSetBuilder("flash", target).receipt("2").build());
  registry->declare(tessera::KernelSetBuilder("flash", target).receipt("3").build());
  tessera::Dispatcher dispatcher({.target = target.name}, registry);
  const tessera::runtime::Place place{&tessera::runtime::backend_for(target), {}};
  for (const char* const kind : {"forward lse=1", "backward"}) {
    const tessera::Problem problem = tessera::parse_problem(
        "fmha batch=2 heads=4 heads_kv=2 seqlen_q=33 seqlen_k=47 hdim=64 mask=bottom_right "
        "dtype=fp16 kind=" +
        std::string(kind));
    const auto owned = tessera::measure::random_operands(problem, 42);
    const auto placed = tessera::measure::place_operands(owned, place);
    dispatcher.run(problem, placed.operands, {.verify = true});  // throws unless it is right
    std::printf("%s\n", dispatcher.kernel_for(problem).name.c_str());
    if (!registry->contains(dispatcher.kernel_for(problem).name)) return 1;
  }
  return 0;
}
