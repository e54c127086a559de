#include "npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <cstring>

namespace tessera::cli {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

// The element types that both sides know, in NumPy's spelling.
struct DescrRow {
  std::string_view descr;
  DType dtype;
};
constexpr std::array kDescrs = {DescrRow{"<f4", DType::fp32}, DescrRow{"<f2", DType::fp16},
                                DescrRow{"|i1", DType::int8}, DescrRow{"<i4", DType::int32}};

[[noreturn]] void malformed(const fs::path& path, const std::string& what) {
  throw Error(ErrorCode::parse_error,
              fmt::format("{}: not a valid .npy file: {}", path.string(), what));
}

// The text after 'key': in the header's dictionary.
std::string_view value_of(const fs::path& path, std::string_view header, std::string_view key) {
  const std::string quoted = fmt::format("'{}'", key);
  std::size_t at = header.find(quoted);
  if (at != std::string_view::npos) at = header.find(':', at + quoted.size());
  if (at == std::string_view::npos) {
    malformed(path, fmt::format("its header has no '{}'", key));
  }
  std::string_view value = header.substr(at + 1);
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return value;
}

DType parse_descr(const fs::path& path, std::string_view value) {
  const std::size_t end = value.find('\'', 1);
  if (value.empty() || value.front() != '\'' || end == std::string_view::npos) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{}: structured arrays cannot be multiplied", path.string()));
  }
  const std::string_view descr = value.substr(1, end - 1);
  for (const DescrRow& row : kDescrs) {
    if (row.descr == descr) return row.dtype;
  }
  throw Error(
      ErrorCode::unsupported,
      fmt::format("{}: element type '{}' is not supported: it must be float32, float16, int8 or "
                  "int32 in little-endian order; convert it with array.astype(numpy.float32)",
                  path.string(), descr));
}

std::vector<std::int64_t> parse_shape(const fs::path& path, std::string_view value) {
  const std::size_t end = value.find(')');
  if (value.empty() || value.front() != '(' || end == std::string_view::npos) {
    malformed(path, "its shape is no tuple");
  }
  std::vector<std::int64_t> shape;
  for (std::string_view part : split(value.substr(1, end - 1), ',')) {
    const std::vector<std::string_view> words = split_words(part);
    if (words.empty()) continue;  // after the last comma
    std::int64_t size = -1;
    const char* last = words[0].data() + words[0].size();
    const auto [stop, error] = std::from_chars(words[0].data(), last, size);
    if (error != std::errc() || stop != last || size < 0 || words.size() != 1) {
      malformed(path, fmt::format("its shape holds '{}'", part));
    }
    shape.push_back(size);
  }
  return shape;
}

struct Preamble {
  std::string_view header;
  std::size_t data_offset;
};

// Magic, two version bytes, the header's length in 2 (version 1) or 4 bytes, the header.
Preamble split_preamble(const fs::path& path, std::string_view content) {
  if (content.substr(0, kMagic.size()) != kMagic) {
    malformed(path, "it does not start with \\x93NUMPY");
  }
  if (content.size() < 10) {
    malformed(path, fmt::format("its header needs 10 bytes, the file has {}", content.size()));
  }
  const int version = content[6];
  if (version < 1 || version > 3) malformed(path, fmt::format("unknown version {}", version));
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  const std::size_t start = 8 + length_bytes;
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes && 8 + i < content.size(); ++i) {
    length |= static_cast<std::size_t>(static_cast<unsigned char>(content[8 + i])) << (8 * i);
  }
  if (content.size() < start + length) {
    malformed(path, fmt::format("its header needs {} bytes, the file has {}", start + length,
                                content.size()));
  }
  return {content.substr(start, length), start + length};
}

std::size_t byte_count(const fs::path& path, const NpyArray& array) {
  std::int64_t bytes = size_of(array.dtype);
  for (std::int64_t size : array.shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) {
      malformed(path,
                fmt::format("its shape ({}) overflows 64 bits", fmt::join(array.shape, ", ")));
    }
  }
  return static_cast<std::size_t>(bytes);
}

}  // namespace

NpyArray read_npy(const fs::path& path) {
  const std::string content = read_file(path);
  const Preamble preamble = split_preamble(path, content);
  NpyArray array;
  array.dtype = parse_descr(path, value_of(path, preamble.header, "descr"));
  array.column_major = value_of(path, preamble.header, "fortran_order").substr(0, 4) == "True";
  array.shape = parse_shape(path, value_of(path, preamble.header, "shape"));

  const std::size_t bytes = byte_count(path, array);
  const std::size_t there = content.size() - preamble.data_offset;
  if (there < bytes) {
    throw Error(ErrorCode::parse_error,
                fmt::format("{}: the file is cut short: shape ({}) of {} needs {} bytes of data, "
                            "it holds {}",
                            path.string(), fmt::join(array.shape, ", "), to_string(array.dtype),
                            bytes, there));
  }
  array.data = runtime::AlignedBuffer(bytes);
  if (bytes > 0) std::memcpy(array.data.data(), content.data() + preamble.data_offset, bytes);
  return array;
}

NpyArray to_row_major(const NpyArray& array) {
  NpyArray turned{.dtype = array.dtype, .shape = array.shape};
  turned.data = runtime::AlignedBuffer(array.data.size());
  const std::size_t size = static_cast<std::size_t>(size_of(array.dtype));
  const std::size_t count = array.data.size() / size;
  for (std::size_t from = 0; from < count; ++from) {
    // `from` counts with the first index fastest, `to` with the last one.
    std::size_t rest = from;
    std::size_t to = 0;
    std::size_t stride = count;
    for (const std::int64_t extent : array.shape) {
      stride /= static_cast<std::size_t>(extent);
      to += rest % static_cast<std::size_t>(extent) * stride;
      rest /= static_cast<std::size_t>(extent);
    }
    std::memcpy(static_cast<std::byte*>(turned.data.data()) + to * size,
                static_cast<const std::byte*>(array.data.data()) + from * size, size);
  }
  return turned;
}

void write_npy(const fs::path& path, DType dtype, const std::vector<std::int64_t>& shape,
               const void* data) {
  std::string_view descr;
  for (const DescrRow& row : kDescrs) {
    if (row.dtype == dtype) descr = row.descr;
  }
  if (descr.empty()) {
    throw Error(ErrorCode::unsupported, fmt::format("{}: NumPy has no element type for {}",
                                                    path.string(), to_string(dtype)));
  }
  std::int64_t bytes = size_of(dtype);
  for (std::int64_t size : shape) bytes *= size;

  // Spaces and a newline end the header, so that the data starts at a multiple of 64.
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({},), }}",
                                   descr, fmt::join(shape, ", "));
  const std::size_t unpadded = kMagic.size() + 4 + header.size() + 1;
  header += std::string((64 - unpadded % 64) % 64, ' ') + "\n";
  std::string content(kMagic);
  content +=
      {'\1', '\0', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  content += header;
  content.append(static_cast<const char*>(data), static_cast<std::size_t>(bytes));
  write_file_atomic(path, content);
}

}  // namespace tessera::cli
