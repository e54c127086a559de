// Kernels for AMD GPUs: what the ways of mfma.cc, direct_hip.cc and stream_hip.cc share.
#pragma once

#include "tessera/device/hip/tile_sizes.h"
#include "tessera/families/gemm/ways.h"

namespace tessera::gemm {

// ---- text: hip_text.cc ----

// The template of src/tessera/device/hip/gemm/ that a kernel comes from.
struct HipTemplate {
  std::string_view header, name;
};
// `config` is the whole configuration, `more_kernels` stands behind the kernel.
Source hip_source(const KernelSpec& spec, const HipTemplate& from, const std::string& config,
                  const std::string& more_kernels);
// The kernels of tiles, with what their signatures ask for.
Source emit_hip(const KernelSpec& spec, const Target& target);
// The place of an entry besides the kernel: _check, _gather or _finish.
std::uint8_t hip_entry(const GemmSignature& signature, std::string_view suffix);

// ---- MFMA on operands with scales of blocks: mfma_scaled.cc ----

// Whether gfx950's instruction multiplies by scales itself. Its warp tiles have 32 bytes of k in a
// lane, twice as many as others.
bool multiplies_by_mx(const Algorithm& algorithm);
// The rules of such kernels, besides those of all.
std::span<const Rule> mfma_scale_rules();
bool mx_warp_tile_fits(const Case& c);
// Registers of a lane for scales and for the sums of all blocks.
int scale_registers(const Case& c, const device::MfmaShape& shape);
// Own::add_own: the algorithms whose instruction multiplies by scales.
void add_mx(const OwnQuery& query, std::vector<Algorithm>& all);

// ---- launches of kernels of tiles ----

// mfma.cc: of batches.
Launch bind_hip(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                const device::GemmArguments& g);
// grouped_hip.cc: of groups of unequal sizes.
Launch bind_groups_on_hip(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                          const GemmOperands& operands);
// direct_hip.cc: with scales of blocks, outputs_hip.cc: with a gate, rows by index or outputs of 8
// bits; with groups or without.
Launch bind_scaled_on_hip(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                          const GemmOperands& operands);
Launch bind_outputs_on_hip(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                           const GemmOperands& operands);

}  // namespace tessera::gemm
