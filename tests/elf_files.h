// Files that pass for compiled kernels where nothing is loaded.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstring>
#include <string>

namespace tessera {

// The headers of an ELF file with one segment and one section, themselves. What follows them is
// anything: a test's binary is these and a text.
inline std::string elf_headers(unsigned type, unsigned machine) {
  struct {
    Elf64_Ehdr header{};
    Elf64_Phdr segment{};
    Elf64_Shdr sections[2]{};
  } file;
  std::memcpy(file.header.e_ident, ELFMAG, SELFMAG);
  file.header.e_ident[EI_CLASS] = ELFCLASS64;
  file.header.e_ident[EI_DATA] = ELFDATA2LSB;
  file.header.e_type = static_cast<Elf64_Half>(type);
  file.header.e_machine = static_cast<Elf64_Half>(machine);
  file.header.e_phoff = offsetof(decltype(file), segment);
  file.header.e_phentsize = sizeof(Elf64_Phdr);
  file.header.e_phnum = 1;
  file.header.e_shoff = offsetof(decltype(file), sections);
  file.header.e_shentsize = sizeof(Elf64_Shdr);
  file.header.e_shnum = 2;
  file.segment.p_type = PT_LOAD;
  file.segment.p_filesz = sizeof(file);
  file.sections[1].sh_type = SHT_PROGBITS;
  file.sections[1].sh_size = sizeof(file);
  return {reinterpret_cast<const char*>(&file), sizeof(file)};
}

#if defined(__aarch64__)
inline constexpr unsigned kMachine = EM_AARCH64;
#else
inline constexpr unsigned kMachine = EM_X86_64;
#endif
inline constexpr unsigned kCudaMachine = 190;
inline constexpr unsigned kAmdMachine = 224;

inline std::string library_of(const std::string& text) {
  return elf_headers(ET_DYN, kMachine) + text;
}
inline std::string object_of(const std::string& text) {
  return elf_headers(ET_REL, kMachine) + text;
}
inline std::string cubin_of(const std::string& text) {
  return elf_headers(ET_EXEC, kCudaMachine) + text;
}
// `flag` is the processor in the header's flags: 0x4c is gfx942.
inline std::string code_object_of(const std::string& text, unsigned flag = 0x4c) {
  std::string headers = elf_headers(ET_DYN, kAmdMachine);
  const Elf64_Word flags = 0x500 | flag;
  std::memcpy(headers.data() + offsetof(Elf64_Ehdr, e_flags), &flags, sizeof(flags));
  return headers + text;
}
inline const std::size_t kHeaderBytes = library_of("").size();

}  // namespace tessera
