#include "tessera/base/sha1.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>

namespace tessera {
namespace {

using Sha1State = std::array<std::uint32_t, 5>;

void add_block(std::string_view block, Sha1State& state) {
  std::array<std::uint32_t, 80> words{};
  for (std::size_t i = 0; i < 64; ++i) {
    words[i / 4] = words[i / 4] << 8 | static_cast<unsigned char>(block[i]);
  }
  for (std::size_t i = 16; i < 80; ++i) {
    words[i] = std::rotl(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
  }
  auto [a, b, c, d, e] = state;
  for (std::size_t i = 0; i < 80; ++i) {
    std::uint32_t mixed = 0;
    if (i < 20) {
      mixed = ((b & c) | (~b & d)) + 0x5a827999U;
    } else if (i < 40) {
      mixed = (b ^ c ^ d) + 0x6ed9eba1U;
    } else if (i < 60) {
      mixed = ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdcU;
    } else {
      mixed = (b ^ c ^ d) + 0xca62c1d6U;
    }
    const std::uint32_t next = std::rotl(a, 5) + mixed + e + words[i];
    e = d, d = c, c = std::rotl(b, 30), b = a, a = next;
  }
  state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e;
}

}  // namespace

std::string sha1_hex(std::string_view text) {
  std::string padded(text);
  padded.push_back('\x80');
  while (padded.size() % 64 != 56) padded.push_back('\0');
  const std::uint64_t bits = std::uint64_t{text.size()} * 8;
  for (int shift = 56; shift >= 0; shift -= 8) padded.push_back(static_cast<char>(bits >> shift));
  Sha1State state = {0x67452301U, 0xefcdab89U, 0x98badcfeU, 0x10325476U, 0xc3d2e1f0U};
  for (std::size_t at = 0; at < padded.size(); at += 64) {
    add_block(std::string_view(padded).substr(at, 64), state);
  }
  std::string digits;
  for (const std::uint32_t word : state) digits += fmt::format("{:08x}", word);
  return digits;
}

}  // namespace tessera
