// The tables of instructions, one a group, as data: name, operands, function.
#pragma once

#include <span>
#include <string_view>

#include "instruction.h"

namespace tessera::cdna_emulator {

std::span<const Row> scalar_rows();
std::span<const Row> control_rows();
std::span<const Row> integer_rows();
std::span<const Row> wide_rows();
std::span<const Row> float_rows();
std::span<const Row> half_rows();
std::span<const Row> convert_rows();
std::span<const Row> compare_rows();
std::span<const Row> lane_rows();
// Instructions that RDNA alone has; `older_name` has those that it only calls another name.
std::span<const Row> rdna_rows();
std::span<const Row> rdna_scalar_rows();
// The name that an instruction, or a memory instruction behind its prefix, has in the tables.
std::string_view older_name(std::string_view name);
// Both instructions of a pair.
void run_both(Wave& wave, const Instruction& instruction);

// A load, store or atomic of the global, flat, buffer or scratch instructions, by what follows the
// prefix; or of the LDS instructions.
struct MemoryRow {
  enum class Kind : u8 { load, store, atomic } kind = Kind::load;
  // low, high: d16, whose byte may have a sign
  enum class Extend : u8 { none, sign, low, high, sign_low, sign_high } extend = Extend::none;
  std::string_view name;
  u8 bytes = 4;  // of one access
  u8 parts = 1;  // 2: two offsets, 64: both times 64
  void (*update)(const Instruction& instruction, u8* at, const u32* data, u32* old) = nullptr;
  u8 transposed = 0;  // 16 lanes exchange what they read: bytes of an element
};
// A loaded value of less than 32 bits as the register `old` gets it.
u32 extended(u32 old, u32 loaded, const MemoryRow& row);
std::span<const MemoryRow> global_memory_rows();              // "load_dwordx2", "atomic_add_f32"
std::span<const MemoryRow> lds_rows();                        // "ds_read_b128"
void run_global(Wave& wave, const Instruction& instruction);  // global_ and flat_
void run_buffer(Wave& wave, const Instruction& instruction);
void run_lds(Wave& wave, const Instruction& instruction);

// A matrix instruction with one block of side x side sums.
enum class MatrixType : u8 { half, bfloat, single, xf32, int8, fp8, bf8 };
struct MfmaRow {
  std::string_view name;
  int side, k;
  MatrixType a, b;
  bool formats = false;  // cbsz and blgp choose the types
  bool wmma = false;
  bool scaled = false;  // by two more sources
};
std::span<const MfmaRow> mfma_rows();
std::span<const MfmaRow> wmma_rows();
void run_mfma(Wave& wave, const Instruction& instruction);
void run_wmma(Wave& wave, const Instruction& instruction);

// The row of a name, or null.
const Row* find_row(std::string_view name);
const MfmaRow* find_mfma_row(std::string_view name);
const MemoryRow* find_lds_row(std::string_view name);
const MemoryRow* find_global_memory_row(std::string_view name_without_prefix);

}  // namespace tessera::cdna_emulator
