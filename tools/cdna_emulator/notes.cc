#include "notes.h"

#include "machine.h"

namespace tessera::cdna_emulator {

namespace {

struct Reader {
  std::span<const u8> bytes;
  std::size_t at = 0;
};

constexpr int kDeepest = 16;

[[noreturn]] void damaged(const Reader& r) {
  throw Finding{Finding::Kind::object, "The code object's notes are damaged at byte " +
                                           std::to_string(r.at) + " of " +
                                           std::to_string(r.bytes.size()) + "."};
}

u64 take(Reader& r, int count) {  // big-endian
  u64 value = 0;
  for (int n = 0; n < count; ++n) {
    if (r.at >= r.bytes.size()) damaged(r);
    value = value << 8 | r.bytes[r.at++];
  }
  return value;
}

std::string take_text(Reader& r, u64 size) {
  if (size > r.bytes.size() - r.at) damaged(r);
  const auto from = r.bytes.subspan(r.at, size);
  r.at += size;
  return std::string(from.begin(), from.end());
}

Note read(Reader& r, int depth);

Note read_items(Reader& r, u64 count, bool map, int depth) {
  Note note;
  if (depth > kDeepest) damaged(r);
  for (u64 n = 0; n < count; ++n) {
    if (map) note.keys.push_back(read(r, depth).text);
    note.items.push_back(read(r, depth));
  }
  return note;
}

Note read(Reader& r, int depth) {
  const u64 tag = take(r, 1);
  if (tag <= 0x7f || tag >= 0xe0) return {.number = static_cast<u64>(static_cast<i8>(tag))};
  if (tag <= 0x8f) return read_items(r, tag & 15, true, depth + 1);
  if (tag <= 0x9f) return read_items(r, tag & 15, false, depth + 1);
  if (tag <= 0xbf) return {.text = take_text(r, tag & 31)};
  if (tag == 0xc0) return {};
  if (tag <= 0xc3) return {.number = tag & 1};
  if (tag >= 0xcc && tag <= 0xcf) return {.number = take(r, 1 << (tag - 0xcc))};
  if (tag >= 0xd0 && tag <= 0xd3) return {.number = take(r, 1 << (tag - 0xd0))};
  if (tag >= 0xd9 && tag <= 0xdb) {
    const u64 size = take(r, 1 << (tag - 0xd9));
    return {.text = take_text(r, size)};
  }
  if (tag == 0xdc || tag == 0xdd) {
    const u64 count = take(r, tag == 0xdc ? 2 : 4);
    return read_items(r, count, false, depth + 1);
  }
  if (tag == 0xde || tag == 0xdf) {
    const u64 count = take(r, tag == 0xde ? 2 : 4);
    return read_items(r, count, true, depth + 1);
  }
  damaged(r);
}

}  // namespace

const Note* Note::find(std::string_view key) const {
  for (std::size_t n = 0; n < keys.size(); ++n) {
    if (keys[n] == key) return &items[n];
  }
  return nullptr;
}

Note read_message_pack(std::span<const u8> bytes) {
  Reader r{bytes};
  return read(r, 0);
}

}  // namespace tessera::cdna_emulator
