// Reads the ELF file of a code object: its image, its kernels' descriptors, and the notes, which
// are MessagePack.
#include <elf.h>

#include <algorithm>
#include <cstring>

#include "notes.h"
#include "program.h"

namespace tessera::cdna_emulator {

namespace {

constexpr u32 kMachineAmdgpu = 224, kMachineMask = 0xff;
constexpr u32 kRelocationAbsolute64 = 3, kRelocationRelative64 = 13;  // R_AMDGPU_*

constexpr Target kTargets[] = {
    {"gfx90a", 0x3f, Fp8::e4m3_fnuz, Fp8::e5m2_fnuz, 65536, 0xffffU, false},
    {"gfx942", 0x4c, Fp8::e4m3_fnuz, Fp8::e5m2_fnuz, 65536, 0xffffU, false},
    {"gfx950", 0x4f, Fp8::e4m3_ocp, Fp8::e5m2_ocp, 163840, 0x3ffffU, true},
    {"gfx1100", 0x41, Fp8::e4m3_ocp, Fp8::e5m2_ocp, 65536, 0xffffU, false, 32, 11},
    {"gfx1201", 0x4e, Fp8::e4m3_ocp, Fp8::e5m2_ocp, 65536, 0xffffU, false, 32, 12},
};

[[noreturn]] void refuse_object(const std::string& what) {
  throw Finding{Finding::Kind::object, "The code object cannot be used: " + what + "."};
}

// The bytes of a file, with every access checked.
struct File {
  std::span<const u8> bytes;
  std::span<const u8> part(u64 offset, u64 size) const {
    if (offset > bytes.size() || size > bytes.size() - offset) {
      refuse_object("it ends at byte " + std::to_string(bytes.size()) +
                    ", but a part of it ends at byte " + std::to_string(offset + size));
    }
    return bytes.subspan(offset, size);
  }
  template <class T>
  T at(u64 offset) const {
    T value;
    std::memcpy(&value, part(offset, sizeof value).data(), sizeof value);
    return value;
  }
  std::string text(u64 offset) const {
    constexpr u64 kMost = 65536;  // bytes of a name: many names may share one long text
    const auto rest = part(offset, bytes.size() - std::min<u64>(offset, bytes.size()));
    const auto end = std::find(rest.begin(), rest.begin() + std::min(rest.size(), kMost), u8{0});
    if (static_cast<u64>(end - rest.begin()) == kMost) {
      refuse_object("a name is longer than " + std::to_string(kMost) + " bytes");
    }
    return std::string(rest.begin(), end);
  }
};

u64 aligned(u64 x) { return (x + 3) / 4 * 4; }

void read_segments(const File& file, const Elf64_Ehdr& header, CodeObject& object) {
  constexpr u64 kMostBytes = u64{1} << 30;
  for (u32 n = 0; n < header.e_phnum; ++n) {
    const auto s = file.at<Elf64_Phdr>(header.e_phoff + n * sizeof(Elf64_Phdr));
    if (s.p_type != PT_LOAD) continue;
    if (s.p_vaddr > kMostBytes || s.p_memsz > kMostBytes - s.p_vaddr || s.p_filesz > s.p_memsz)
      refuse_object("a segment is too large");
    object.image.resize(std::max<std::size_t>(object.image.size(), s.p_vaddr + s.p_memsz));
    const auto from = file.part(s.p_offset, s.p_filesz);
    std::copy(from.begin(), from.end(), object.image.begin() + static_cast<i64>(s.p_vaddr));
    object.segments.push_back({s.p_vaddr, s.p_memsz, (s.p_flags & PF_W) != 0});
  }
}

void read_symbols(const File& file, const Elf64_Shdr& table, const Elf64_Shdr& strings,
                  CodeObject& object) {
  for (u64 n = 0; n < table.sh_size / sizeof(Elf64_Sym); ++n) {
    const auto s = file.at<Elf64_Sym>(table.sh_offset + n * sizeof(Elf64_Sym));
    object.symbols.push_back({file.text(strings.sh_offset + s.st_name), s.st_value, s.st_size});
  }
}

void read_relocations(const File& file, const Elf64_Shdr& table, CodeObject& object) {
  for (u64 n = 0; n < table.sh_size / sizeof(Elf64_Rela); ++n) {
    const auto r = file.at<Elf64_Rela>(table.sh_offset + n * sizeof(Elf64_Rela));
    const u64 type = ELF64_R_TYPE(r.r_info), symbol = ELF64_R_SYM(r.r_info);
    u64 value = static_cast<u64>(r.r_addend);
    if (type == kRelocationAbsolute64 && symbol < object.symbols.size()) {
      value += object.symbols[symbol].address;
    } else if (type != kRelocationRelative64) {
      refuse_object("it has a relocation of type " + std::to_string(type));
    }
    const u64 size = object.image.size();
    if (size < 8 || r.r_offset > size - 8) refuse_object("a relocation is outside of the image");
    object.relocations.push_back({r.r_offset, value});
  }
}

void read_descriptor(const CodeObject& object, const Symbol& symbol, Kernel& k) {
  const File image{object.image};
  k.lds_bytes = image.at<u32>(symbol.address);
  k.scratch_bytes = image.at<u32>(symbol.address + 4);
  k.entry = symbol.address + image.at<u64>(symbol.address + 16);
  k.rsrc2 = image.at<u32>(symbol.address + 52);
  k.properties = image.at<u16>(symbol.address + 56);
  k.preload = image.at<u16>(symbol.address + 58);
}

void read_note(const Note& note, Kernel& k) {
  const auto number = [&](std::string_view key) {
    const Note* found = note.find(key);
    return found == nullptr ? 0U : static_cast<u32>(found->number);
  };
  k.argument_bytes = number(".kernarg_segment_size");
  k.max_threads = number(".max_flat_workgroup_size");
  k.vgprs = number(".vgpr_count");
  k.agprs = number(".agpr_count");
  k.sgprs = number(".sgpr_count");
  k.vgpr_spills = number(".vgpr_spill_count");
  k.sgpr_spills = number(".sgpr_spill_count");
  const Note* arguments = note.find(".args");
  if (arguments == nullptr) return;
  for (const Note& a : arguments->items) {
    const Note* kind = a.find(".value_kind");
    const Note* offset = a.find(".offset");
    const Note* size = a.find(".size");
    if (kind == nullptr || offset == nullptr || size == nullptr) continue;
    if (kind->text.compare(0, 7, "hidden_") != 0) continue;
    k.hidden.push_back(
        {kind->text, static_cast<u32>(offset->number), static_cast<u32>(size->number)});
  }
}

// Every kernel of the notes has a descriptor, the symbol ".symbol".
void read_kernels(const File& file, const Elf64_Shdr& section, CodeObject& object) {
  constexpr u32 kMetadata = 32;  // NT_AMDGPU_METADATA
  for (u64 at = section.sh_offset;
       at + sizeof(Elf64_Nhdr) <= section.sh_offset + section.sh_size;) {
    const auto header = file.at<Elf64_Nhdr>(at);
    const u64 data = at + sizeof header + aligned(header.n_namesz);
    at = data + aligned(header.n_descsz);
    if (header.n_type != kMetadata) continue;
    const Note root = read_message_pack(file.part(data, header.n_descsz));
    const Note* kernels = root.find("amdhsa.kernels");
    if (kernels == nullptr) continue;
    for (const Note& note : kernels->items) {
      const Note* name = note.find(".name");
      const Note* symbol = note.find(".symbol");
      if (name == nullptr || symbol == nullptr) continue;
      const auto found = std::find_if(object.symbols.begin(), object.symbols.end(),
                                      [&](const Symbol& s) { return s.name == symbol->text; });
      if (found == object.symbols.end()) refuse_object("it has no symbol " + symbol->text);
      Kernel& k = object.kernels.emplace_back();
      k.name = name->text;
      read_descriptor(object, *found, k);
      read_note(note, k);
    }
  }
}

}  // namespace

const Target* find_target(std::string_view name) {
  for (const Target& t : kTargets) {
    if (t.name == name) return &t;
  }
  return nullptr;
}
const Target* find_target(u32 machine) {
  for (const Target& t : kTargets) {
    if (t.machine == machine) return &t;
  }
  return nullptr;
}

const Kernel* find_kernel(const CodeObject& object, std::string_view name) {
  for (const Kernel& k : object.kernels) {
    if (k.name == name) return &k;
  }
  return nullptr;
}

CodeObject read_code_object(std::span<const u8> bytes) {
  const File file{bytes};
  const auto header = file.at<Elf64_Ehdr>(0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) refuse_object("it is no ELF file");
  if (header.e_machine != kMachineAmdgpu) {
    refuse_object("it is for machine " + std::to_string(header.e_machine) +
                  " of ELF, and AMD's GPUs are " + std::to_string(kMachineAmdgpu));
  }
  CodeObject object;
  object.target = find_target(header.e_flags & kMachineMask);
  if (object.target == nullptr) {
    refuse_object("it is for processor number " + std::to_string(header.e_flags & kMachineMask) +
                  ", and the emulator knows gfx90a, gfx942, gfx950, gfx1100 and gfx1201");
  }
  for (const u32 count : {u32{header.e_phnum}, u32{header.e_shnum}}) {
    constexpr u32 kMost = 1024;  // a linker makes about 20; each may name all of the file
    if (count > kMost) {
      refuse_object("it has " + std::to_string(count) + " segments or sections, of which " +
                    std::to_string(kMost) + " are the most");
    }
  }
  read_segments(file, header, object);
  std::vector<Elf64_Shdr> sections;
  for (u32 n = 0; n < header.e_shnum; ++n) {
    sections.push_back(file.at<Elf64_Shdr>(header.e_shoff + n * sizeof(Elf64_Shdr)));
  }
  for (const Elf64_Shdr& s : sections) {
    if (s.sh_type == SHT_DYNSYM && s.sh_link < sections.size()) {
      read_symbols(file, s, sections[s.sh_link], object);
    }
  }
  for (const Elf64_Shdr& s : sections) {
    if (s.sh_type == SHT_RELA) read_relocations(file, s, object);
    if (s.sh_type == SHT_NOTE) read_kernels(file, s, object);
  }
  return object;
}

}  // namespace tessera::cdna_emulator
