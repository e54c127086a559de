// NumPy's .npy files, format versions 1, 2 and 3.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tools.hpp"

namespace tessera::cli {

// An array in memory. `column_major` is set for Fortran order, first index fastest.
struct NpyArray {
  DType dtype = DType::fp32;
  std::vector<std::int64_t> shape;
  bool column_major = false;
  runtime::AlignedBuffer data{0};
};

// Reads float32, float16, int8 and int32 arrays. Throws Error{parse_error} for a file that is not a
// .npy file or is cut short, and Error{unsupported} for other element types.
NpyArray read_npy(const std::filesystem::path& path);

// The same array in C order.
NpyArray to_row_major(const NpyArray& array);

// Replaces `path` by a version 1 file in C order. When it throws, `path` is unchanged.
void write_npy(const std::filesystem::path& path, DType dtype,
               const std::vector<std::int64_t>& shape, const void* data);

}  // namespace tessera::cli
