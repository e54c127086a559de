// The list of ways, and what those of a backend have in common.
#include "tessera/families/gemm/ways.h"

#include <fmt/format.h>

#include <array>

namespace tessera::gemm {

std::span<const Way* const> Types::ways() {
  static constexpr std::array kAll = {&kPackab,   &kPacka,  &kPackb,    &kDirectCpu,  &kStreamCpu,
                                      &kSmallWay, &kAmxWay, &kTmawsWay, &kCpasyncWay, &kStreamGpu,
                                      &kCompv3,   &kCompv4, &kMem,      &kAsync,      &kDirectHip};
  return kAll;
}

std::string Types::no_way(const KernelSpec& spec, const Target& target) {
  return fmt::format(
      "{}: this build emits GEMM kernels for cpu, cuda and hip targets, {} is a {} target",
      name_of(spec), target.name, target.backend);
}

// The algorithms of CPUs differ in their shapes only. AMD's GPUs have so many types and algorithms
// that few epilogues are listed for them.
const BackendFacts& backend_facts(const Target& target) {
  using enum tile::ListOrder;
  static constexpr BackendFacts kAll[] = {{"hip", "AMD GPUs", true, 4, any, false},
                                          {"cuda", "CUDA targets", true, 8, any, false},
                                          {"cpu", "CPUs", false, 8, by_name, true}};
  for (const BackendFacts& machine : kAll) {
    if (machine.backend == target.backend) return machine;
  }
  return kAll[0];
}

}  // namespace tessera::gemm
