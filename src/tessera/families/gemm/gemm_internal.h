// What the parts of the GEMM family share among themselves.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/device/gemm/gemm_arguments.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/families/tile/epilogue.h"
#include "tessera/families/tile/rules.h"
#include "tessera/families/tile/space.h"

namespace tessera::gemm {

// Tiles of the output's rows, one after the other, that share the columns of B they read. Within 2%
// of the best on every shape that was measured.
constexpr int kRasterGroup = 8;

// What addresses and strides that TMA reads are multiples of, in bytes.
constexpr std::int64_t kTmaBytes = 16;

inline std::int64_t tiles(std::int64_t size, std::int64_t tile) { return (size + tile - 1) / tile; }

// The operands of a problem with strides; add_d: all that the epilogue reads.
void add_a(const GemmProblem& p, Tensors& all);
void add_b(const GemmProblem& p, Tensors& all);
void add_c(const GemmProblem& p, Tensors& all);
void add_d(const GemmProblem& p, Tensors& all);
void add_out(const GemmProblem& p, Tensors& all);

// Which operand, accumulator and output types go together; the reason names the nearest that do.
Verdict types_fit(const GemmSignature& signature);

// The rules that hold for an epilogue and its output type.
Verdict epilogue_fits(const GemmSignature& signature);

// Whether a CPU kernel packs an operand into panels; else it reads the operand in place.
inline bool packs_a(Pipeline p) { return p == Pipeline::packab || p == Pipeline::packa; }
inline bool packs_b(Pipeline p) { return p == Pipeline::packab || p == Pipeline::packb; }

// The parts of CPU kernels that other kernels share, and the declarations that a source with these
// objects is compiled behind.
struct CpuTypes {
  std::string_view a, b, out, math;  // as src/tessera/device/cpu/ calls them
};
void add_cpu_objects(const KernelSpec& spec, const CpuTypes& types, int vector_bytes,
                     Source& source);

// Whether elements are stored as fp32 (tf32 is a way to multiply them).
inline bool is_fp32(DType dtype) { return dtype == DType::fp32 || dtype == DType::tf32; }

// The type that a CPU kernel multiplies after packing: int8, bf16 (two products per lane) or fp32.
DType word_type(const GemmSignature& signature, int products_per_lane);

// The instruction of a CPU target for `products_per_lane` products, or null.
const Instruction* find_word_instruction(const GemmSignature& signature, int products_per_lane,
                                         const Target& target);

// A spec as the rules look at it.
struct Case {
  const GemmSignature& signature;
  const Algorithm& algorithm;
  const Target& target;
};

using Rule = tile::Rule<Case>;

// The rules of each kind of machine; cpu is in legality.cc, the others in legality_gpu.cc.
std::span<const Rule> cpu_rules();
std::span<const Rule> gpu_rules(Pipeline pipeline);

// is_legal() without the sentence: what enumeration filters by.
bool is_legal_quick(const Case& c);

// What a GPU kernel asks of a problem's sizes and strides.
Verdict gpu_supports(const KernelSpec& spec, const GemmProblem& problem);

// Hopper kernels: bytes of shared memory for the pipeline, its barriers and the store buffers.
std::int64_t tmaws_shared_bytes(const GemmSignature& signature, const Algorithm& algorithm);
std::int64_t cpasync_shared_bytes(const GemmSignature& signature, const Algorithm& algorithm);

// What a tmaws kernel keeps of an operand in shared memory for one stage. See
// src/tessera/device/cuda/tma_tile.h.
inline constexpr int kTmawsLineBytes = 128;
struct TmawsOperand {
  DType dtype = DType::bf16;
  bool k_contiguous = true;
  bool transposed = false;  // by repacking
  int rows = 0;             // of a tile
  int parts = 1;            // blocks of a cluster that fetch it together
  std::int64_t bytes = 0;
};
TmawsOperand tmaws_a(const GemmSignature& signature, const Algorithm& algorithm);
TmawsOperand tmaws_b(const GemmSignature& signature, const Algorithm& algorithm);

// The columns that a block of a split stores, those of them that go out at a time, and the blocks
// of 64 rows of a consumer (0: tile_m does not divide).
struct TmawsStore {
  int columns = 0;
  int chunk = 0;
  int row_blocks = 0;
};
TmawsStore tmaws_store(const Algorithm& algorithm);

// The D tensors of an epilogue: as d_roles() in src/tessera/device/cuda/epilogue.h.
inline constexpr int kTmawsMatrices = 2;
struct TmawsDRoles {
  int biases = 0;
  int matrices = 0;
  std::array<int, kTmawsMatrices> matrix{};
  bool others = false;  // scales, a second bias, a third matrix
};
TmawsDRoles tmaws_d_roles(const Epilogue& epilogue);

// The columns that the copy engine writes at a time, or with swap_ab the rows.
int tmaws_out_chunk(const GemmSignature& signature, const Algorithm& algorithm);

// Whether a kernel runs before this one (<name>_prepare) for some problems.
bool tmaws_prepares(const Algorithm& algorithm);

// Groups of 128 threads of a tile that add up slices of K, and the bytes of a group's sums.
int tmaws_slice_groups(const Algorithm& algorithm);
std::int64_t tmaws_slice_bytes(const Algorithm& algorithm);

// Whether the copy engine can read rows at these distances. Of one batch the stride is 0.
bool tmaws_reads(DType dtype, std::int64_t ld, std::int64_t batch_stride);

// Which operands of the problem need repacking, wherever they lie. Strides may be packed ones.
struct TmawsCopies {
  bool a, b;
};
TmawsCopies tmaws_copies(const GemmProblem& problem);

// Whether the copy engine may write this output; else the kernel's threads do. In short: what only
// the signature says, without swap_ab, for algorithms that leave a bias or a function registers.
bool tmaws_copies_out(const GemmSignature& signature, const Algorithm& algorithm);
bool tmaws_copies_out(const GemmSignature& signature, bool has_room);
bool tmaws_has_room(const Algorithm& algorithm);

using tile::warp_tiles_for;

// ---- emission and binding ----

// The comment that leads every emitted file; `folder` of src/tessera/device/ holds its template.
std::string banner(const KernelSpec& spec, std::string_view folder);

std::string_view yes_no(bool value);

// The entries of a kernel's binary: itself, and at these places those that some kernels bring.
std::vector<std::string> entries_of(const KernelSpec& spec);
inline constexpr std::uint8_t kPackEntry = 1;
std::uint8_t prepare_entry(const KernelSpec& spec);

Source emit_cpu(const KernelSpec& spec, const Target& target);
Source emit_cuda(const KernelSpec& spec, const Target& target);

// The arguments that kernels of every backend take. The problem's strides are filled in.
device::GemmArguments gemm_arguments(const GemmProblem& problem, const GemmOperands& operands);

// emit_tmaws.cc: the specialisation of Wgmma, and the kernels that pack a preshuffled B and prepare
// operands.
std::string wgmma_text(const KernelSpec& spec);
std::string pack_kernel_text(const KernelSpec& spec);
std::string prepare_kernel_text(const KernelSpec& spec);

Launch bind_tmaws(const KernelSpec& spec, const GemmProblem& problem,
                  const device::GemmArguments& arguments);
Launch bind_cpasync(const KernelSpec& spec, const GemmProblem& problem,
                    const device::GemmArguments& arguments);

using tile::Bounded;
using tile::DValues;
using tile::tolerance_of;
using tile::within_tolerance;
inline Bounded apply_epilogue(const GemmProblem& p, const DValues& d, Bounded x) {
  return tile::apply_epilogue({p.epilogue, p.clamp_lo, p.clamp_hi}, d, x);
}

// facts.cc: what decides the side of the split.
std::uint64_t shape_hash(std::int64_t m, std::int64_t n, std::int64_t k);

}  // namespace tessera::gemm
