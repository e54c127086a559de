// The notes of AMD's code objects: an ELF note whose description is a MessagePack map.
#include <elf.h>

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "tessera/jit/hip_compilers_internal.h"

namespace tessera::jit {
namespace {

using nlohmann::json;

constexpr unsigned kMetadataNote = 32;  // NT_AMDGPU_METADATA
constexpr std::string_view kOwner = "AMDGPU";

struct NoteFact {
  const char* key;
  const char* fact;
};
constexpr std::array kNoteFacts = {
    NoteFact{".vgpr_count", "registers"},
    NoteFact{".agpr_count", "accumulation_registers"},
    NoteFact{".sgpr_count", "scalar_registers"},
    NoteFact{".vgpr_spill_count", "spilled_registers"},
    NoteFact{".sgpr_spill_count", "spilled_scalar_registers"},
    NoteFact{".private_segment_fixed_size", "stack_bytes"},
    NoteFact{".group_segment_fixed_size", "shared_bytes"},
};

template <class Struct>
std::optional<Struct> struct_at(std::string_view bytes, std::uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(Struct)) return std::nullopt;
  Struct value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

std::size_t padded(std::size_t bytes) { return (bytes + 3) / 4 * 4; }

// The metadata in the notes of one segment; empty when they hold none.
std::string_view metadata_in(std::string_view notes) {
  while (const auto note = struct_at<Elf64_Nhdr>(notes, 0)) {
    notes.remove_prefix(sizeof(*note));
    const std::size_t name = padded(note->n_namesz), text = padded(note->n_descsz);
    if (name > notes.size() || text > notes.size() - name) return {};
    if (note->n_type == kMetadataNote && notes.starts_with(kOwner)) {
      return notes.substr(name, note->n_descsz);
    }
    notes.remove_prefix(name + text);
  }
  return {};
}

std::string_view metadata_of(std::string_view file) {
  const auto header = struct_at<Elf64_Ehdr>(file, 0);
  for (unsigned i = 0; header && i < header->e_phnum; ++i) {
    const auto segment = struct_at<Elf64_Phdr>(file, header->e_phoff + i * sizeof(Elf64_Phdr));
    if (!segment || segment->p_type != PT_NOTE || segment->p_offset > file.size()) continue;
    const std::string_view found = metadata_in(file.substr(segment->p_offset, segment->p_filesz));
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace

std::map<std::string, std::int64_t> code_object_facts(std::string_view binary,
                                                      std::string_view name) {
  std::map<std::string, std::int64_t> facts;
  const std::string_view notes = metadata_of(binary);
  const json metadata = json::from_msgpack(notes.begin(), notes.end(), true, false);
  if (!metadata.is_object() || !metadata.contains("amdhsa.kernels")) return facts;
  for (const json& kernel : metadata.at("amdhsa.kernels")) {
    if (!kernel.is_object() || kernel.value(".name", json()) != name) continue;
    for (const NoteFact& row : kNoteFacts) {
      const auto found = kernel.find(row.key);
      if (found != kernel.end() && found->is_number_integer()) facts[row.fact] = *found;
    }
  }
  return facts;
}

}  // namespace tessera::jit
