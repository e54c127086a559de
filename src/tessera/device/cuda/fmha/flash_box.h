// How blocks of keys are made of boxes of pages, for host and device.
#pragma once

namespace tessera::device {

// The copy engine writes swizzled lines, whose pattern repeats after so many. Boxes of fewer tokens
// would begin within it.
inline constexpr int kFlashLeastBox = 8;

// Tokens of a box: the largest power of two that divides a page and a block of keys, so that no box
// is in two pages.
constexpr int flash_box(long long page_size, int keys) {
  const long long both = page_size | keys;
  return static_cast<int>(both & -both);
}

}  // namespace tessera::device
