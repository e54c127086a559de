// What the parts of the GEMM family share among themselves.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/device/gemm/gemm_arguments.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/families/tile/epilogue.h"
#include "tessera/families/tile/mfma.h"
#include "tessera/families/tile/rules.h"
#include "tessera/families/tile/space.h"
#include "tessera/families/tile/tmaws.h"

namespace tessera::gemm {

// How many tiles run one after the other down the output's rows, so that they share the columns of
// B that they read. On every measured shape the time is within 2% of the best group.
constexpr int kRasterGroup = 8;

// Tiles with no more columns are for problems with few rows or columns.
constexpr int kSkinnyTile = 64;

inline std::int64_t tiles(std::int64_t size, std::int64_t tile) { return (size + tile - 1) / tile; }

// Each adds an operand of a problem whose strides are filled in; add_d adds every D tensor that the
// epilogue reads.
void add_a(const GemmProblem& p, Tensors& all);
void add_b(const GemmProblem& p, Tensors& all);
void add_c(const GemmProblem& p, Tensors& all);
void add_d(const GemmProblem& p, Tensors& all);
void add_out(const GemmProblem& p, Tensors& all);

// Which operand, accumulator and output types go together; the reason names the nearest that do.
Verdict types_fit(const GemmSignature& signature);

// The rules that hold for an epilogue and its output type.
Verdict epilogue_fits(const GemmSignature& signature);

// Whether a CPU kernel packs an operand into panels; otherwise it reads the operand in place.
inline bool packs_both(Pipeline p) { return p == Pipeline::packab || p == Pipeline::amx; }
inline bool packs_a(Pipeline p) { return packs_both(p) || p == Pipeline::packa; }
inline bool packs_b(Pipeline p) { return packs_both(p) || p == Pipeline::packb; }

// The side that a CPU's blocked kernel multiplies as unsigned, with 128 added, where a word holds
// four int8 (VNNI): A where A is packed, otherwise B.
enum class BiasedSide { none, a, b };
inline BiasedSide biased_side(DType a, const Algorithm& x) {
  if (a != DType::int8 || x.warp_tile.k != 4) return BiasedSide::none;
  return x.pipeline == Pipeline::packb ? BiasedSide::b : BiasedSide::a;
}

// Adds to the source the objects that CPU kernels share, and the declarations that go with them.
struct CpuTypes {
  std::string_view a, b, out, math;  // as src/tessera/device/cpu/ calls them
};
void add_cpu_objects(const KernelSpec& spec, const CpuTypes& types, int vector_bytes,
                     Source& source);

// Whether elements are stored as fp32 (tf32 is a way to multiply them).
inline bool is_fp32(DType dtype) { return dtype == DType::fp32 || dtype == DType::tf32; }

// The CPU target's instruction that adds `products_per_lane` products in each lane, or null.
const Instruction* find_word_instruction(const GemmSignature& signature, int products_per_lane,
                                         const Target& target);

// A spec as the rules look at it.
struct Case {
  const GemmSignature& signature;
  const Algorithm& algorithm;
  const Target& target;
  bool by_cktile = false;  // the kernel is made from CK Tile's headers
};

using Rule = tile::Rule<Case>;

// The rules of each kind of machine; cpu is in legality.cc, the others in legality_*.cc.
std::span<const Rule> cpu_rules();
std::span<const Rule> cuda_rules(Pipeline pipeline);
std::span<const Rule> hip_rules(Pipeline pipeline);
std::span<const Rule> cktile_rules();

// is_legal() without the sentence. Enumeration filters by it.
bool is_legal_quick(const Case& c);

// Whether a GPU's kernel can run the problem's sizes and strides.
Verdict cuda_supports(const KernelSpec& spec, const GemmProblem& problem);
Verdict hip_supports(const KernelSpec& spec, const GemmProblem& problem);

// Sizes of GPU kernels that do not depend on the signature.
using tile::kTmaBytes;
using tile::kTmawsLineBytes;
using tile::tmaws_d_roles;
using tile::tmaws_has_room;
using tile::tmaws_prepares;
using tile::tmaws_reads;
using tile::tmaws_slice_bytes;
using tile::tmaws_slice_groups;
using tile::tmaws_store;
using tile::TmawsDRoles;
using tile::TmawsOperand;
using tile::TmawsStore;

// The functions of tile/tmaws.h for a GEMM's signature.
inline tile::Product product_of(const GemmSignature& s) {
  return {s.a,
          s.b,
          s.out,
          s.d,
          a_is_row_major(s.layout),
          !b_is_row_major(s.layout),
          s.preshuffled_b,
          s.epilogue};
}
inline TmawsOperand tmaws_a(const GemmSignature& s, const Algorithm& a) {
  return tile::tmaws_a(product_of(s), a);
}
inline TmawsOperand tmaws_b(const GemmSignature& s, const Algorithm& a) {
  return tile::tmaws_b(product_of(s), a);
}
inline int tmaws_out_chunk(const GemmSignature& s, const Algorithm& a) {
  return tile::tmaws_out_chunk(product_of(s), a);
}
inline bool tmaws_copies_out(const GemmSignature& s, const Algorithm& a) {
  return tile::tmaws_copies_out(product_of(s), a);
}
inline tile::SharedMemory shared_memory(const GemmSignature& s, const Algorithm& a) {
  return tile::shared_memory(product_of(s), a);
}

// Which operands of the problem need repacking at any address. Strides may be left out when they
// are packed.
struct TmawsCopies {
  bool a, b;
};
TmawsCopies tmaws_copies(const GemmProblem& problem);

using tile::warp_tiles_for;

// What the sizes of AMD's MFMA kernels depend on besides the algorithm.
inline tile::MfmaOperands mfma_operands(const GemmSignature& s) {
  return {size_of(s.a), size_of(s.b), !a_is_row_major(s.layout),
          b_is_row_major(s.layout) && !s.preshuffled_b};
}

// The kernel for AMD GPUs that takes every valid problem.
inline constexpr Algorithm kGeneralOnHip = {
    .pipeline = Pipeline::direct, .tile = {64, 64, 16}, .wave = {2, 2, 1}, .warp_tile = {4, 4, 1}};

// ---- emission and binding ----

// The comment at the head of every emitted file. `folder` is the folder of src/tessera/device/ that
// holds the template.
std::string banner(const KernelSpec& spec, std::string_view folder);

std::string_view yes_no(bool value);

// The entries of a kernel's binary: the kernel itself first, then, for some kernels, _pack and
// _prepare at the places below.
std::vector<std::string> entries_of(const KernelSpec& spec);
inline constexpr std::uint8_t kPackEntry = 1;
std::uint8_t prepare_entry(const KernelSpec& spec);

Source emit_cpu(const KernelSpec& spec, const Target& target);
Source emit_cuda(const KernelSpec& spec, const Target& target);
Source emit_hip(const KernelSpec& spec, const Target& target);

// The arguments that kernels of every backend take. The problem's strides must be filled in.
device::GemmArguments gemm_arguments(const GemmProblem& problem, const GemmOperands& operands);

// A stride that is never multiplied by a nonzero index cannot misalign a read.
void drop_unused_strides(device::GemmArguments& g);

// In emit_tmaws.cc: the text of the Wgmma specialisation, of the kernel that packs a preshuffled B,
// and of the kernel that prepares operands.
std::string wgmma_text(const KernelSpec& spec);
std::string pack_kernel_text(const KernelSpec& spec);
std::string prepare_kernel_text(const KernelSpec& spec);

Launch bind_tmaws(const KernelSpec& spec, const GemmProblem& problem,
                  const device::GemmArguments& arguments);
Launch bind_cpasync(const KernelSpec& spec, const GemmProblem& problem,
                    const device::GemmArguments& arguments);
Launch bind_stream(const KernelSpec& spec, const GemmProblem& problem,
                   const device::GemmArguments& arguments);
Launch bind_hip(const KernelSpec& spec, const GemmProblem& problem,
                const device::GemmArguments& arguments);

// Whether a kernel's algorithm is one of AMD's GPUs. CPUs have `direct`, too, with other fields.
bool runs_on_hip(const Algorithm& algorithm);

// Whether a kernel of the pipeline stream is one of GPUs, with several warps. On CPUs it has one
// thread or all of them.
bool streams_on_gpu(const Algorithm& algorithm);

using tile::Bounded;
using tile::DValues;
using tile::tolerance_of;
using tile::within_tolerance;

// In facts.cc: the hash that decides the side of the split.
std::uint64_t shape_hash(std::int64_t m, std::int64_t n, std::int64_t k);

}  // namespace tessera::gemm
