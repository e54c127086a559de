#include "tessera/jit/elf_internal.h"

#include <elf.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <optional>

namespace tessera::jit {
namespace {

bool lies_within(std::uint64_t offset, std::uint64_t bytes, std::uint64_t size) {
  return offset <= size && bytes <= size - offset;
}

// The T at the offset; nothing when the content ends before the T does.
template <class T>
std::optional<T> read_at(std::string_view content, std::uint64_t offset) {
  if (!lies_within(offset, sizeof(T), content.size())) return std::nullopt;
  T value;
  std::memcpy(&value, content.data() + offset, sizeof(T));
  return value;
}

std::string outside(std::string_view content, std::string_view what, std::uint64_t offset,
                    std::uint64_t bytes) {
  return fmt::format("has {} bytes, but its {} has {} at byte {}", content.size(), what, bytes,
                     offset);
}

std::string header_damage(const Elf64_Ehdr& header, const BinaryKind& kind) {
  const bool is_elf = std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0;
  if (!is_elf || header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB) {
    return "is not a 64-bit little-endian ELF file";
  }
  if (header.e_type != kind.elf_type) {
    return fmt::format("must be an ELF file of type {}, got type {}", kind.elf_type, header.e_type);
  }
  if (kind.elf_machine != EM_NONE && header.e_machine != kind.elf_machine) {
    return fmt::format("must be for ELF machine {}, got machine {}", kind.elf_machine,
                       header.e_machine);
  }
  if (header.e_phnum > 0 && header.e_phentsize != sizeof(Elf64_Phdr)) {
    return fmt::format("must have program headers of {} bytes, got {}", sizeof(Elf64_Phdr),
                       header.e_phentsize);
  }
  if (header.e_shnum > 0 && header.e_shentsize != sizeof(Elf64_Shdr)) {
    return fmt::format("must have section headers of {} bytes, got {}", sizeof(Elf64_Shdr),
                       header.e_shentsize);
  }
  return {};
}

std::string segments_damage(std::string_view content, const Elf64_Ehdr& header) {
  bool has_load = false;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    const auto segment = read_at<Elf64_Phdr>(content, header.e_phoff + i * sizeof(Elf64_Phdr));
    if (!segment) {
      return outside(content, "table of program headers", header.e_phoff,
                     header.e_phnum * sizeof(Elf64_Phdr));
    }
    has_load |= segment->p_type == PT_LOAD;
    if (!lies_within(segment->p_offset, segment->p_filesz, content.size())) {
      return outside(content, fmt::format("segment {}", i), segment->p_offset, segment->p_filesz);
    }
  }
  return header.e_type == ET_DYN && !has_load ? "has no segment to load" : "";
}

// Linkers and assemblers write the section table last, so a truncated file lacks it.
std::string sections_damage(std::string_view content, const Elf64_Ehdr& header) {
  if (header.e_shnum == 0) return "has no sections";
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    const auto section = read_at<Elf64_Shdr>(content, header.e_shoff + i * sizeof(Elf64_Shdr));
    if (!section) {
      return outside(content, "table of section headers", header.e_shoff,
                     header.e_shnum * sizeof(Elf64_Shdr));
    }
    const bool takes_bytes = section->sh_type != SHT_NOBITS && section->sh_type != SHT_NULL;
    if (takes_bytes && !lies_within(section->sh_offset, section->sh_size, content.size())) {
      return outside(content, fmt::format("section {}", i), section->sh_offset, section->sh_size);
    }
  }
  return {};
}

}  // namespace

std::string elf_damage(const BinaryKind& kind, std::string_view content) {
  const auto header = read_at<Elf64_Ehdr>(content, 0);
  if (!header) {
    return fmt::format("has {} bytes, but an ELF header has {}", content.size(),
                       sizeof(Elf64_Ehdr));
  }
  if (std::string damage = header_damage(*header, kind); !damage.empty()) return damage;
  if (std::string damage = segments_damage(content, *header); !damage.empty()) return damage;
  return sections_damage(content, *header);
}

}  // namespace tessera::jit
