#include "npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

namespace tessera::cli {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

// The element types that NumPy and Tessera share, in NumPy's spelling.
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

constexpr std::string_view kBlank = " \n";

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  return text.substr(0, text.find_last_not_of(kBlank) + 1);
}

DType parse_descr(const fs::path& path, std::string_view descr) {
  for (const DescrRow& row : kDescrs) {
    if (row.descr == descr) return row.dtype;
  }
  throw Error(
      ErrorCode::unsupported,
      fmt::format("{}: element type '{}' is not supported: it must be float32, float16, int8 or "
                  "int32 in little-endian order; convert it with array.astype(numpy.float32)",
                  path.string(), descr));
}

// The text between the parentheses of a tuple of sizes: "", "4,", "4, 4" or "4, 4,".
std::vector<std::int64_t> parse_shape(const fs::path& path, std::string_view inner) {
  std::vector<std::int64_t> shape;
  if (trimmed(inner).empty()) return shape;
  std::vector<std::string_view> parts = split(inner, ',');
  if (parts.size() == 1) {
    malformed(path, fmt::format("its shape ({}) is no tuple: one size is written ({},)", inner,
                                trimmed(inner)));
  }
  if (trimmed(parts.back()).empty()) parts.pop_back();  // after the last comma
  for (const std::string_view part : parts) {
    const std::string_view size = trimmed(part);
    const char* const last = size.data() + size.size();
    std::int64_t number = -1;
    const auto [stop, error] = std::from_chars(size.data(), last, number);
    const bool is_plain = size.size() == 1 || !size.starts_with('0');  // because Python refuses 04
    if (error != std::errc() || stop != last || number < 0 || size.starts_with('-') || !is_plain) {
      malformed(path, fmt::format("its shape holds '{}'", size));
    }
    shape.push_back(number);
  }
  return shape;
}

struct Header {
  std::optional<DType> dtype;
  std::optional<bool> column_major;
  std::optional<std::vector<std::int64_t>> shape;
};

// The dictionary that NumPy writes, a literal of Python: each of three keys once, in any order.
class HeaderReader {
 public:
  HeaderReader(const fs::path& path, std::string_view text) : path_(path), text_(text) {}

  Header read() {
    take('{', "before its dictionary");
    while (!finds('}')) {
      const std::string_view key = read_quoted("a key");
      take(':', fmt::format("after '{}'", key));
      read_value(key);
      if (!finds('}')) take(',', fmt::format("after the value of '{}'", key));
    }
    take('}', "after its dictionary");
    if (const std::string_view rest = trimmed(text_); !rest.empty()) {
      malformed(path_, fmt::format("after its header's dictionary comes '{}'", rest));
    }
    return header_;
  }

 private:
  bool finds(char wanted) {
    text_.remove_prefix(std::min(text_.find_first_not_of(kBlank), text_.size()));
    return text_.starts_with(wanted);
  }
  std::string found() const {
    return text_.empty() ? "its end" : fmt::format("'{}'", text_.substr(0, 1));
  }
  void take(char wanted, const std::string& where) {
    if (!finds(wanted)) {
      malformed(path_, fmt::format("its header has no '{}' {}, but {}", wanted, where, found()));
    }
    text_.remove_prefix(1);
  }
  // Reads up to one of `ends`, which is not consumed.
  std::string_view read_until(std::string_view ends) {
    const std::string_view word = text_.substr(0, text_.find_first_of(ends));
    text_.remove_prefix(word.size());
    return word;
  }
  std::string_view read_quoted(std::string_view what) {
    if (!finds('\'') && !finds('"')) {
      malformed(path_,
                fmt::format("its header has {} where {} in quotes is wanted", found(), what));
    }
    const char quote = text_.front();
    text_.remove_prefix(1);
    const std::string_view word = read_until(std::string_view(&quote, 1));
    take(quote, fmt::format("after '{}'", word));
    return word;
  }

  // A list describes fields, a tuple describes subarrays; both are refused.
  void read_descr() {
    if (finds('[') || finds('(')) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("{}: structured arrays cannot be multiplied", path_.string()));
    }
    header_.dtype = parse_descr(path_, read_quoted("its descr"));
  }
  void read_order() {
    const std::string_view word = trimmed(read_until(",}"));
    if (word != "True" && word != "False") {
      malformed(path_, fmt::format("its fortran_order must be True or False, got {}",
                                   word.empty() ? "nothing" : word));
    }
    header_.column_major = word == "True";
  }
  void read_shape() {
    const bool is_open = finds('(');
    const std::string_view inner = read_until(")").substr(is_open ? 1 : 0);
    if (!is_open || text_.empty()) malformed(path_, "its shape is no tuple");
    text_.remove_prefix(1);
    header_.shape = parse_shape(path_, inner);
  }
  void read_value(std::string_view key) {
    const bool is_there = (key == "descr" && header_.dtype) ||
                          (key == "fortran_order" && header_.column_major) ||
                          (key == "shape" && header_.shape);
    if (is_there) malformed(path_, fmt::format("its header has '{}' twice", key));
    if (key == "descr") return read_descr();
    if (key == "fortran_order") return read_order();
    if (key == "shape") return read_shape();
    malformed(path_, fmt::format("its header has the key '{}', which is none of descr, "
                                 "fortran_order and shape",
                                 key));
  }

  const fs::path& path_;
  std::string_view text_;
  Header header_;
};

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
  Header header = HeaderReader(path, preamble.header).read();
  const auto require = [&](bool is_there, std::string_view key) {
    if (!is_there) malformed(path, fmt::format("its header has no '{}'", key));
  };
  require(header.dtype.has_value(), "descr");
  require(header.column_major.has_value(), "fortran_order");
  require(header.shape.has_value(), "shape");
  NpyArray array{.dtype = *header.dtype,
                 .shape = std::move(*header.shape),
                 .column_major = *header.column_major};

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
    // In `from` the first index varies fastest, in `to` the last one.
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
