// What the parts of the GEMM family share among themselves.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/device/gemm/gemm_arguments.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/families/tile/algorithm_space.h"
#include "tessera/families/tile/epilogue.h"
#include "tessera/families/tile/mfma.h"
#include "tessera/families/tile/rules.h"
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

std::span<const Rule> cktile_rules();

// is_legal() without the sentence. Enumeration filters by it.
bool is_legal_quick(const Case& c);

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
// Adds the scales that a tmaws kernel keeps in shared memory; in scaled_tmaws.cc.
void add_scale_bytes(const GemmSignature& s, const Algorithm& a, tile::SharedMemory& shared);
inline tile::SharedMemory shared_memory(const GemmSignature& s, const Algorithm& a) {
  tile::SharedMemory shared = tile::shared_memory(product_of(s), a);
  if (s.scale_a != GemmScale::none) add_scale_bytes(s, a, shared);
  return shared;
}

// Which operands of the problem need repacking at any address. Strides may be left out when they
// are packed.
struct TmawsCopies {
  bool a, b;
};
TmawsCopies tmaws_copies(const GemmProblem& problem);

using tile::warp_tiles_for;

// What the sizes of AMD's MFMA kernels depend on besides the algorithm.
inline tile::MfmaOperands mfma_operands(const GemmSignature& s, Pipeline pipeline) {
  const bool by_lds = pipeline == Pipeline::async;
  return {size_of(s.a), size_of(s.b), !a_is_row_major(s.layout) && !by_lds,
          b_is_row_major(s.layout) && !s.preshuffled_b && !by_lds};
}

using tile::Bounded;
using tile::DValues;
using tile::tolerance_of;
using tile::within_tolerance;

// In facts.cc: the hash that decides the side of the split.
std::uint64_t shape_hash(std::int64_t m, std::int64_t n, std::int64_t k);

}  // namespace tessera::gemm
