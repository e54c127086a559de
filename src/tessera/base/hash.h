// Content hashes. 64 bits for tables in memory, 128 bits for names of files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// XXH3 of the bytes; stable across machines and releases.
std::uint64_t hash64(std::string_view bytes, std::uint64_t seed = 0);

// XXH3-128 of the bytes as 32 lower-case hexadecimal digits.
std::string hash_hex(std::string_view bytes);

// Mixes `value` into `seed`; for hashing structs field by field without touching padding.
constexpr std::uint64_t hash_combine(std::uint64_t seed, std::uint64_t value) {
  std::uint64_t x = seed ^ (value + 0x9e3779b97f4a7c15ULL + (seed << 6) + (seed >> 2));
  x *= 0xff51afd7ed558ccdULL;
  return x ^ (x >> 32);
}

}  // namespace tessera
