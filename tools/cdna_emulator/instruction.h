// One decoded instruction: what runs it, its operands and its modifiers as numbers.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "numbers.h"

namespace tessera::cdna_emulator {

inline constexpr int kLanes = 64;
// Scalar registers with names. They are numbered as the machine code numbers them.
inline constexpr int kFlatScratch = 102, kVcc = 106, kTrap = 108, kM0 = 124, kExec = 126,
                     kNull = 128, kScalars = 130;
// a0 is register 256 of the vector registers.
inline constexpr int kAccumulators = 256, kVectors = 512;

struct Wave;
struct Instruction;
using Run = void (*)(Wave&, const Instruction&);

// A row of the tables of instructions. `operands` has one letter an operand, as the text lists
// them:
//   d D   a vector register that is written, 32 or 64 bits a lane
//   x X   a scalar register that is written, 32 or 64 bits
//   u U   a source of a vector instruction, 32 or 64 bits of any meaning
//   f F   a float or double;  h  a half, or two in one register;  P  two floats in two registers
//   m      a float or a half (v_fma_mix);  s S  a scalar source;  k  a number of 16 bits in the
//   instruction;  b  the way of a branch
//   *     whatever follows is the function's matter
struct Row {
  std::string_view name;  // without _e32, _e64, _dpp and _sdwa
  std::string_view operands;
  Run run;
};

// What of a register a source reads, or where in a register a result goes (SDWA, op_sel).
struct Part {
  u8 shift = 0, width = 32;
  bool sign = false;  // extended with its sign
};

struct Operand {
  enum class Kind : u8 { none, vector, scalar, constant } kind = Kind::none;
  bool plain = false;  // a vector register as it is
  bool moved = false;  // other lanes' values, as the instruction's `dpp` says
  u8 count = 1;        // registers
  i16 reg = 0;
  Part part;
  u32 keep = ~0U, flip = 0;  // masks that make absolute and negated values
  u64 bits = 0;              // of a constant, as the instruction reads it
};

// Which lane a source comes from (DPP).
struct Dpp {
  enum class Kind : u8 {
    none,
    quad_perm,
    row_shl,
    row_shr,
    row_ror,
    wave_shl,
    wave_shr,
    row_mirror,
    row_half_mirror,
    row_bcast15,
    row_bcast31,
    row_newbcast,
  } kind = Kind::none;
  u8 count = 0, row_mask = 15, bank_mask = 15;
  bool zeros = false;  // bound_ctrl: lanes without a source read 0
  std::array<u8, 4> quad{0, 1, 2, 3};
};

struct MemoryRow;
struct MfmaRow;

struct Instruction {
  Run run = nullptr;
  u8 num_operands = 0;
  bool special = false;  // the result takes DPP, SDWA or op_sel
  bool clamp = false;
  i8 scale = 0;  // omod: the result times 2 to this power
  std::array<Operand, 6> operands;
  i32 offset = 0, offset0 = 0, offset1 = 0;
  u32 op_sel = 0, op_sel_hi = 7, neg_lo = 0, neg_hi = 0;
  bool lds = false, offen = false, idxen = false, returns = false, has_op_sel_hi = false;
  u8 cbsz = 0, blgp = 0;
  u32 immediate = 0;                 // a truth table, a register of the hardware
  i32 vm_left = -1, lgkm_left = -1;  // of s_waitcnt; -1: any number
  i32 target = -1;                   // index that a branch goes to
  Part to;                           // SDWA: the part of the result's register
  enum class Rest : u8 { zeros, sign, kept } rest = Rest::zeros;
  Dpp dpp;
  const MemoryRow* memory = nullptr;
  const MfmaRow* mfma = nullptr;
  std::shared_ptr<const std::array<Instruction, 2>> both;  // of a pair (v_dual_)
  u64 address = 0;                                         // in the code object
  std::string name, text;
};

}  // namespace tessera::cdna_emulator
