// MessagePack, as far as the notes of code objects use it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "numbers.h"

namespace tessera::cdna_emulator {

struct Note {
  u64 number = 0;  // of integers and booleans
  std::string text;
  std::vector<Note> items;  // of an array; of a map the values, with `keys`
  std::vector<std::string> keys;
  const Note* find(std::string_view key) const;
};

// Throws Finding{object} for what is damaged.
Note read_message_pack(std::span<const u8> bytes);

}  // namespace tessera::cdna_emulator
