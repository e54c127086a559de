#include "cpu/gemm/tile_emulator.h"

#include <signal.h>
#include <ucontext.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <bit>
#include <cstdlib>
#include <cstring>

#include "tessera/runtime/cpu_features_internal.h"
#include "tessera/targets/targets.h"

namespace tessera::tile_emulator {
namespace {

// The tiles of a thread.
struct State {
  bool is_configured = false;
  std::array<Tile, 8> tiles;
};
thread_local State state;

// A handler of signals may neither throw nor print by the C++ library.
[[noreturn]] void stop(std::string_view why) {
  (void)!::write(STDERR_FILENO, why.data(), why.size());
  std::abort();
}

// ---- the operands of an instruction ----

struct Registers {
  greg_t* all;
  std::int64_t operator[](int number) const {
    static constexpr int kOrder[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                     REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                     REG_R12, REG_R13, REG_R14, REG_R15};
    return all[kOrder[number]];
  }
};

// An instruction with a VEX prefix of three bytes, its ModRM byte, and its place in memory.
struct Instruction {
  int opcode, prefix;  // prefix 0 to 3: none, 66, F3, F2
  bool is_register;
  int reg, rm, vvvv;
  std::int64_t address, stride;
  int bytes;
};

std::int64_t displacement(const std::uint8_t* p, int bytes) {
  if (bytes == 0) return 0;
  if (bytes == 1) return static_cast<std::int8_t>(*p);
  std::int32_t value = 0;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Intel 64 and IA-32 SDM vol. 2, chapter 2: base + index * scale + displacement.
void read_memory_operand(const std::uint8_t* p, const Registers& registers, Instruction& i) {
  const int mod = p[4] >> 6;
  const bool has_sib = (p[4] & 7) == 4;
  const std::uint8_t* next = p + 5 + (has_sib ? 1 : 0);
  const int base = (has_sib ? p[5] & 7 : p[4] & 7);
  const bool has_base = mod != 0 || base != 5;
  const int size = mod == 1 ? 1 : mod == 2 || !has_base ? 4 : 0;
  i.bytes = static_cast<int>(next - p) + size;
  i.address = displacement(next, size);
  if (has_base) i.address += registers[base + ((p[1] & 0x20) == 0 ? 8 : 0)];
  if (!has_base && !has_sib) i.address += registers.all[REG_RIP] + i.bytes;
  if (!has_sib) return;
  const int index = (p[5] >> 3 & 7) + ((p[1] & 0x40) == 0 ? 8 : 0);
  i.stride = index == 4 ? 0 : registers[index] * (1 << (p[5] >> 6));
}

// Instructions on tiles are VEX.128.0F38.W0; their opcodes tell them from all others.
bool decode(const std::uint8_t* p, const Registers& registers, Instruction& i) {
  if (p[0] != 0xc4 || (p[1] & 0x1f) != 2 || (p[2] & 0x84) != 0) return false;
  i = {};
  i.opcode = p[3], i.prefix = p[2] & 3;
  i.vvvv = ~(p[2] >> 3) & 15;
  i.reg = p[4] >> 3 & 7, i.rm = p[4] & 7;
  i.is_register = p[4] >> 6 == 3;
  i.bytes = 5;
  if (!i.is_register) read_memory_operand(p, registers, i);
  return true;
}

// ---- the instructions ----

struct Configuration {
  std::uint8_t palette, start_row, reserved[14];
  std::uint16_t row_bytes[16];
  std::uint8_t rows[16];
};

void configure(const void* from) {
  Configuration shapes;
  std::memcpy(&shapes, from, sizeof shapes);
  if (shapes.palette != 1 || shapes.start_row != 0) stop("tiles: not palette 1 from row 0\n");
  for (int i = 0; i < 8; ++i) {
    if (shapes.row_bytes[i] != 64 || shapes.rows[i] != 16) stop("tiles: not whole tiles\n");
  }
  state.is_configured = true;
  state.tiles = {};
}

void load_rows(const Instruction& i) {
  for (int row = 0; row < 16; ++row) {
    std::memcpy(state.tiles[i.reg][row].data(),
                reinterpret_cast<const void*>(i.address + row * i.stride), 64);
  }
}
void store_rows(const Instruction& i) {
  for (int row = 0; row < 16; ++row) {
    std::memcpy(reinterpret_cast<void*>(i.address + row * i.stride), state.tiles[i.reg][row].data(),
                64);
  }
}

bool multiply(const Instruction& i) {
  enum { kSignedBytes = 0x5e, kBf16 = 0x5c, kF3 = 2, kF2 = 3 };
  if (!i.is_register || i.vvvv > 7) return false;
  Tile& sum = state.tiles[i.reg];
  const Tile &a = state.tiles[i.rm], &b = state.tiles[i.vvvv];
  if (&sum == &a || &sum == &b || &a == &b) stop("tiles: operands must be three tiles\n");
  if (i.opcode == kSignedBytes && i.prefix == kF2) {
    add_int8(sum, a, b);
  } else if (i.opcode == kBf16 && i.prefix == kF3) {
    add_bf16(sum, a, b);
  } else {
    return false;
  }
  return true;
}

bool execute(const Instruction& i) {
  enum { kControl = 0x49, kMemory = 0x4b, kNone = 0, kF3 = 2, kF2 = 3 };
  if (i.opcode == kControl && i.prefix == kNone) {
    if (i.is_register) {
      state.is_configured = false;
    } else {
      configure(reinterpret_cast<const void*>(i.address));
    }
    return true;
  }
  if (!state.is_configured) stop("tiles: used before they were configured\n");
  if (i.opcode == kControl && i.prefix == kF2 && i.is_register) {
    state.tiles[i.reg] = {};
    return true;
  }
  if (i.opcode == kMemory && !i.is_register && (i.prefix == kF2 || i.prefix == kF3)) {
    i.prefix == kF2 ? load_rows(i) : store_rows(i);
    return true;
  }
  return multiply(i);
}

void on_illegal_instruction(int, siginfo_t*, void* context) {
  const Registers registers{static_cast<ucontext_t*>(context)->uc_mcontext.gregs};
  Instruction i;
  const auto* code = reinterpret_cast<const std::uint8_t*>(registers.all[REG_RIP]);
  if (!decode(code, registers, i) || !execute(i)) stop("tiles: an instruction is unknown\n");
  registers.all[REG_RIP] += i.bytes;
}

void install() {
  struct sigaction action {};
  action.sa_sigaction = on_illegal_instruction;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGILL, &action, nullptr);
}

}  // namespace

void add_int8(Tile& sum, const Tile& a, const Tile& b) {
  const auto signed_byte = [](std::uint32_t word, int byte) {
    return static_cast<std::int32_t>(word << (24 - 8 * byte)) >> 24;
  };
  for (std::size_t m = 0; m < 16; ++m) {
    for (std::size_t k = 0; k < 16; ++k) {
      for (int byte = 0; byte < 4; ++byte) {
        for (std::size_t n = 0; n < 16; ++n) {
          const int product = signed_byte(a[m][k], byte) * signed_byte(b[k][n], byte);
          sum[m][n] += static_cast<std::uint32_t>(product);
        }
      }
    }
  }
}

// The products of even and of odd k are summed apart, from zero, by fused multiply-adds; then both
// sums are added, and the result is added to the tile. Subnormal operands and results are zero.
[[gnu::target("fma")]] void add_bf16(Tile& sum, const Tile& a, const Tile& b) {
  constexpr unsigned kFlushed = 0x9fc0;  // of MXCSR: all exceptions masked, zeros for subnormals
  const unsigned before = _mm_getcsr();
  _mm_setcsr(kFlushed);
  const auto even_of = [](std::uint32_t word) { return std::bit_cast<float>(word << 16); };
  const auto odd_of = [](std::uint32_t word) { return std::bit_cast<float>(word & 0xffff0000U); };
  for (std::size_t m = 0; m < 16; ++m) {
    std::array<float, 16> even{}, odd{};
    for (std::size_t k = 0; k < 16; ++k) {
      for (std::size_t n = 0; n < 16; ++n) {
        even[n] = __builtin_fmaf(even_of(a[m][k]), even_of(b[k][n]), even[n]);
        odd[n] = __builtin_fmaf(odd_of(a[m][k]), odd_of(b[k][n]), odd[n]);
      }
    }
    for (std::size_t n = 0; n < 16; ++n) {
      const float total = std::bit_cast<float>(sum[m][n]) + (even[n] + odd[n]);
      sum[m][n] = std::bit_cast<std::uint32_t>(total);
    }
  }
  _mm_setcsr(before);
}

bool has_tiles() {
  return runtime::cpu_has("amxtile") && runtime::cpu_has("amxint8") && runtime::cpu_has("amxbf16");
}

Target target(const Target& machine) {
  static const bool installed = [] {
    if (!has_tiles()) install();
    return true;
  }();
  (void)installed;
  Target made = machine;
  made.name = kName;
  const Target row = load_target("avx512");
  made.instructions = row.instructions;
  made.spaces = {{Op::gemm, row.spaces.at(Op::gemm)}};
  made.spaces.at(Op::gemm).pipelines = {Pipeline::amx};
  return made;
}

}  // namespace tessera::tile_emulator
