// A code object as the emulator runs it: its image, its kernels, and its decoded instructions.
#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "machine.h"

namespace tessera::cdna_emulator {

// An argument that the caller does not give, such as the number of workgroups.
struct HiddenArgument {
  std::string kind;  // as the notes call it: "hidden_block_count_x"
  u32 offset = 0, bytes = 0;
};

// A kernel, by its descriptor and the code object's notes.
struct Kernel {
  std::string name;
  u64 entry = 0;  // address in the code object
  u32 lds_bytes = 0, scratch_bytes = 0, argument_bytes = 0, max_threads = 0;
  u32 rsrc2 = 0, properties = 0, preload = 0;
  u32 vgprs = 0, agprs = 0, sgprs = 0, vgpr_spills = 0, sgpr_spills = 0;
  std::vector<HiddenArgument> hidden;
};

struct Symbol {
  std::string name;
  u64 address = 0, bytes = 0;
};

struct CodeObject {
  const Target* target = nullptr;
  std::vector<u8> image;  // as it lies in memory
  std::vector<Kernel> kernels;
  std::vector<Symbol> symbols;
  struct Relocation {
    u64 place = 0, value = 0;  // value: an address in the image
  };
  std::vector<Relocation> relocations;
  struct Segment {
    u64 address = 0, bytes = 0;
    bool writable = false;
  };
  std::vector<Segment> segments;
};
// Throws Finding{object} for what is no code object of a known target.
CodeObject read_code_object(std::span<const u8> file);

struct Program {
  CodeObject object;
  std::vector<Instruction> instructions;
  std::unordered_map<u64, i32> at;  // address to index
  bool has_global_atomics = false;  // so that workgroups may wait for each other
};
const Kernel* find_kernel(const CodeObject& object, std::string_view name);
// The index of the instruction at an address, or -1.
i32 find_instruction(const Program& program, u64 address);

// Decodes a line of llvm-objdump such as "v_add_u32_e32 v0, 1, v0". An instruction that no table
// has gets a function that throws Finding{uncovered}.
Instruction decode(const std::string& text, u64 address);
// A code object with its disassembly by llvm-objdump.
Program read_program(std::span<const u8> file);
// The same with the text of the disassembly given.
Program make_program(CodeObject object, const std::string& disassembly);

// llvm-objdump: TESSERA_LLVM_OBJDUMP, or what lies in PATH, beside clang++ or in ROCm's folder.
// Empty where none is.
std::string find_objdump();
// Throws Finding{object} where it has not ended after so many seconds; a damaged file may make it
// endless.
std::string disassemble(std::span<const u8> file, double seconds = 60);
// The same of several files by one process, whose start takes as long as a kernel's text.
std::vector<std::string> disassemble_all(std::span<const std::span<const u8>> files,
                                         double seconds = 60);

// Throws Finding{outside} unless the kernel may touch these bytes.
void check_memory(Wave& wave, u64 address, u64 bytes, bool write, const Instruction& instruction);

}  // namespace tessera::cdna_emulator
