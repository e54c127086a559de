#include "world.h"

#include <elf.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace tessera::cdna_emulator {

World& world() {
  static World* const made = [] {
    auto* w = new World;
    const char* name = std::getenv("TESSERA_EMULATED_TARGET");
    w->target = find_target(std::string_view(name == nullptr ? "" : name));
    if (w->target == nullptr) {
      w->finding = std::string(
                       "TESSERA_EMULATED_TARGET names the emulated device: gfx90a, gfx942 or "
                       "gfx950; it is '") +
                   (name == nullptr ? "" : name) + "'.";
    }
    return w;
  }();
  return *made;
}

u64 allocate(World& w, u64 bytes) {
  constexpr u64 kRoom = u64{1} << 20, kPage = 4096;
  const u64 inside = (std::max<u64>(bytes, 1) + kPage - 1) / kPage * kPage;
  void* mapped = mmap(nullptr, inside + 2 * kRoom, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return 0;
  const u64 address = reinterpret_cast<u64>(mapped) + kRoom;
  if (mprotect(reinterpret_cast<void*>(address), inside, PROT_READ | PROT_WRITE) != 0) {
    munmap(mapped, inside + 2 * kRoom);
    return 0;
  }
  w.regions[address] = {reinterpret_cast<u64>(mapped), inside + 2 * kRoom};
  w.memory.add(address, bytes);
  return address;
}

bool release(World& w, u64 address) {
  const auto found = w.regions.find(address);
  if (found == w.regions.end()) return false;
  munmap(reinterpret_cast<void*>(found->second.mapped), found->second.mapped_bytes);
  w.regions.erase(found);
  w.memory.remove(address);
  return true;
}

bool holds(const World& w, u64 address, u64 bytes) {
  const Allocation* a = w.memory.find(address);
  return bytes == 0 || (a != nullptr && address + bytes <= a->end);
}

LoadedModule* load(World& w, const void* image) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    throw Finding{Finding::Kind::object, "The module is no ELF file."};
  }
  const u64 size = header.e_shoff + u64{header.e_shnum} * header.e_shentsize;
  const std::span<const u8> file(static_cast<const u8*>(image), size);
  auto loaded = std::make_unique<LoadedModule>();
  CodeObject object = read_code_object(file);
  if (object.target != w.target) {
    throw Finding{Finding::Kind::object, "The module is for " + std::string(object.target->name) +
                                             ", but the device is a " +
                                             std::string(w.target->name) + "."};
  }
  loaded->program = make_program(std::move(object), disassemble(file));
  loaded->image = load_image(loaded->program.object, w.memory);
  for (const Kernel& k : loaded->program.object.kernels) {
    loaded->kernels[k.name] = {loaded.get(), &k};
  }
  LoadedModule* const key = loaded.get();
  w.modules[key] = std::move(loaded);
  return key;
}

}  // namespace tessera::cdna_emulator
