#include "program.h"

#include <algorithm>
#include <cstdlib>

#include "tables.h"

namespace tessera::cdna_emulator {

namespace {

// "\ts_endpgm    // 000000001234: BF810000": the text and the address; false for other lines.
bool read_line(std::string_view line, std::string& text, u64& address) {
  const std::size_t comment = line.find("//");
  if (comment == std::string_view::npos || line.empty() || line[0] != '\t') return false;
  address = std::strtoull(std::string(line.substr(comment + 2)).c_str(), nullptr, 16);
  text = line.substr(1, comment - 1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.pop_back();
  return !text.empty();
}

void set_targets(Program& program) {
  for (std::size_t n = 0; n < program.instructions.size(); ++n) {
    Instruction& i = program.instructions[n];
    if (i.name == "s_branch" || i.name.starts_with("s_cbranch")) {
      const i64 distance = i64{4} * static_cast<i16>(i.immediate) + 4;
      i.target = find_instruction(program, i.address + static_cast<u64>(distance));
    } else if (n + 1 < program.instructions.size()) {
      i.target = static_cast<i32>(n + 1);
    }
  }
}

}  // namespace

i32 find_instruction(const Program& program, u64 address) {
  const auto found = program.at.find(address);
  return found == program.at.end() ? -1 : found->second;
}

Program make_program(CodeObject object, const std::string& disassembly) {
  Program program;
  program.object = std::move(object);
  for (std::size_t begin = 0; begin < disassembly.size();) {
    const std::size_t end = std::min(disassembly.find('\n', begin), disassembly.size());
    std::string text;
    u64 address = 0;
    if (read_line(std::string_view(disassembly).substr(begin, end - begin), text, address)) {
      program.at[address] = static_cast<i32>(program.instructions.size());
      program.instructions.push_back(decode(text, address));
      const Instruction& i = program.instructions.back();
      program.has_global_atomics |= i.memory != nullptr &&
                                    i.memory->kind == MemoryRow::Kind::atomic &&
                                    !i.name.starts_with("ds_");
    }
    begin = end + 1;
  }
  set_targets(program);
  return program;
}

Program read_program(std::span<const u8> file) {
  CodeObject object = read_code_object(file);
  return make_program(std::move(object), disassemble(file));
}

}  // namespace tessera::cdna_emulator
