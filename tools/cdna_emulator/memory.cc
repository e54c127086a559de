#include <algorithm>

#include "program.h"

namespace tessera::cdna_emulator {

namespace {

std::string hexadecimal(u64 value) {
  std::string text;
  do {
    text.insert(text.begin(), "0123456789abcdef"[value % 16]);
    value /= 16;
  } while (value != 0);
  return "0x" + text;
}

// How far away the nearest allocation is, for the sentence.
std::string nearest(const Memory& memory, u64 address, u64 bytes) {
  std::string text;
  u64 least = ~u64{0};
  for (const Allocation& a : memory.allocations) {
    if (address >= a.begin && address - a.begin < least) {
      least = address - a.begin;
      text = ", " + std::to_string(address + bytes - a.begin) + " bytes after the begin of the " +
             std::to_string(a.end - a.begin) + " bytes at " + hexadecimal(a.begin);
    } else if (address < a.begin && a.begin - address < least) {
      least = a.begin - address;
      text = ", " + std::to_string(a.begin - address) + " bytes before the " +
             std::to_string(a.end - a.begin) + " bytes at " + hexadecimal(a.begin);
    }
  }
  return text;
}

}  // namespace

void Memory::add(u64 begin, u64 bytes, bool writable) {
  const Allocation a{begin, begin + bytes, writable};
  const auto at =
      std::upper_bound(allocations.begin(), allocations.end(), a,
                       [](const Allocation& x, const Allocation& y) { return x.begin < y.begin; });
  allocations.insert(at, a);
}

void Memory::remove(u64 begin) {
  std::erase_if(allocations, [&](const Allocation& a) { return a.begin == begin; });
}

const Allocation* Memory::find(u64 address) const {
  auto at = std::upper_bound(allocations.begin(), allocations.end(), address,
                             [](u64 x, const Allocation& a) { return x < a.begin; });
  if (at == allocations.begin()) return nullptr;
  --at;
  return address < at->end ? &*at : nullptr;
}

void check_memory(Wave& w, u64 address, u64 bytes, bool write, const Instruction& i) {
  const Memory& memory = *w.group->memory;
  const Allocation* a = memory.find(address);
  if (a != nullptr && address + bytes <= a->end && (a->writable || !write)) return;
  const std::string what = write ? "A write of " : "A read of ";
  if (a != nullptr && write && !a->writable) {
    throw Finding{Finding::Kind::outside,
                  what + std::to_string(bytes) + " bytes at " + hexadecimal(address) +
                      " goes to memory that is only read: '" + i.text + "'."};
  }
  throw Finding{Finding::Kind::outside,
                what + std::to_string(bytes) + " bytes at " + hexadecimal(address) +
                    " is outside of all allocations" + nearest(memory, address, bytes) + ": '" +
                    i.text + "'."};
}

}  // namespace tessera::cdna_emulator
