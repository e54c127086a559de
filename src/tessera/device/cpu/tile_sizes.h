// Sizes of tiles that the host also uses.
#pragma once

namespace tessera::device {

inline constexpr int kTileRows = 16;
inline constexpr int kTileWords = 16;             // of 32 bits, in a row
inline constexpr int kTileBlock = 2 * kTileRows;  // rows, and columns, of a register block

}  // namespace tessera::device
