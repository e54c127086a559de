// What ways for CPUs share: the text around a kernel's configuration, and launches.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tessera/families/gemm/groups.h"
#include "tessera/families/gemm/ways.h"
#include "tessera/families/tile/objects.h"

namespace tessera::gemm {

// Whether a CPU kernel packs an operand into panels; otherwise it reads the operand in place.
constexpr bool packs_both(Pipeline p) { return p == Pipeline::packab || p == Pipeline::amx; }
constexpr bool packs_a(Pipeline p) { return packs_both(p) || p == Pipeline::packa; }
constexpr bool packs_b(Pipeline p) { return packs_both(p) || p == Pipeline::packb; }

// The side that a CPU's blocked kernel multiplies as unsigned, with 128 added, where a word holds
// four int8 (VNNI): A where A is packed, otherwise B.
enum class BiasedSide { none, a, b };
inline BiasedSide biased_side(DType a, const Algorithm& x) {
  if (a != DType::int8 || x.warp_tile.k != 4) return BiasedSide::none;
  return x.pipeline == Pipeline::packb ? BiasedSide::b : BiasedSide::a;
}

// Types as src/tessera/device/cpu/ calls them.
struct CpuTypes {
  std::string_view a, b, out, math;
};
CpuTypes cpu_types(const KernelSpec& spec);
// The same in a configuration.
std::string cpu_types_text(const GemmSignature& signature, std::string_view math);

// The template of a kernel: the beginning of its header's name, and of its own.
struct CpuTemplate {
  std::string_view file, name;
};
// The source of a kernel and the objects that it shares with others.
Source cpu_source(const KernelSpec& spec, const Target& target, const CpuTemplate& kernel,
                  const CpuTypes& types, std::span<const tile::CpuObject> objects);
// The same around a configuration of another form.
Source cpu_source_around(const std::string& config, const KernelSpec& spec,
                         const CpuTemplate& kernel, std::span<const tile::CpuObject> objects);

// The driver of blocked kernels in a header, and the function that packs a panel of an operand.
tile::CpuObject packed_driver(std::string_view header, const CpuTypes& types,
                              const GemmSignature& signature);
// The same of dense kernels, of those for groups, and of those with outputs of another form.
struct CpuDrivers {
  std::string_view dense, grouped, outputs;
  std::string_view shape = "Packed";  // of groups and outputs: the type's name, less "Shape"
};
tile::CpuObject blocked_driver(const CpuDrivers& headers, const CpuTypes& types,
                               const GemmSignature& signature);
tile::CpuObject packed_panel(std::string_view header, std::string_view function,
                             std::string_view type, std::string arguments);

Launch bind_cpu(const KernelSpec& spec, const GemmProblem& problem, const Target& target,
                const device::GemmArguments& arguments);

Launch bind_groups_on_cpu(const KernelSpec& spec, const GemmProblem& problem, const Target& target,
                          const GemmOperands& operands);

Launch bind_outputs_on_cpu(const KernelSpec& spec, const GemmProblem& problem, const Target& target,
                           const GemmOperands& operands);
Launch bind_scaled_on_cpu(const KernelSpec& spec, const GemmProblem& problem, const Target& target,
                          const GemmOperands& operands);

// The bytes of a packed B of one batch. A step of k takes so many words of a column.
std::int64_t cpu_packed_bytes(const KernelSpec& spec, const GemmProblem& problem,
                              int words_of_step);
Launch pack_on_cpu(const GemmProblem& problem, const void* b, void* packed, std::int64_t bytes);

}  // namespace tessera::gemm
