// The receipts of single types: fp32 with every feature and with hardly any, and fp8 with its
// factors. One problem of each is run among their kernels and verified.
#include <tessera/tools.hpp>

#include <cstdio>
#include <memory>

namespace {

struct TypeProfile {
  const char* receipt;
  const char* line;
};
constexpr TypeProfile kTypeProfiles[] = {
    {"fp32_all", "fmha batch=2 heads=4 seqlen_q=20 seqlen_k=30 hdim=64 mask=bottom_right lse=1"},
    {"fp32_min", "fmha batch=2 heads=4 seqlen_q=20 seqlen_k=30 hdim=48"},
    {"fp8_test",
     "fmha batch=2 heads=4 seqlen_q=20 seqlen_k=30 hdim=128 dtype=fp8 out=bf16 qscale=per_tensor"}};

}  // namespace

int main() {
  const tessera::Target target = tessera::host_target();
  const tessera::runtime::Place place{&tessera::runtime::backend_for(target), {}};
  for (const auto& [receipt, line] : kTypeProfiles) {
    auto registry = std::make_shared<tessera::Registry>(receipt);
    registry->declare(tessera::KernelSetBuilder(receipt, target).receipt(receipt).build());
    tessera::Dispatcher dispatcher({.target = target.name}, registry);
    const tessera::Problem problem = tessera::parse_problem(line);
    const auto owned = tessera::measure::random_operands(problem, 42);
    const auto placed = tessera::measure::place_operands(owned, place);
    dispatcher.run(problem, placed.operands, {.verify = true});  // throws unless it is right
    std::printf("%-9s %3zu kernels, %s\n", receipt, registry->size(),
                dispatcher.kernel_for(problem).name.c_str());
    if (registry->filtered_by_receipt(receipt).size() != registry->size()) return 1;
  }
  return 0;
}
