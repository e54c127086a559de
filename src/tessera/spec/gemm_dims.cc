#include "tessera/spec/gemm_dims.h"

#include <fmt/format.h>

#include <charconv>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/spec/words_internal.h"

namespace tessera {
namespace {

template <class Dim, class Number>
struct DimStrides {
  std::array<Number*, 4 + kMaxD> all{};
  std::size_t count = 0;
  std::size_t required = 0;  // a text must have so many

  // Those that a dimension of this kind has, in the order of the text.
  explicit DimStrides(Dim& dim) {
    using enum GemmDimKind;
    if (dim.kind != n) add(dim.a);
    if (dim.kind != m) add(dim.b);
    if (dim.kind != k) add(dim.out);
    required = count;
    if (dim.kind == k) return;
    add(dim.c);
    for (auto& stride : dim.d) add(stride);
  }
  void add(Number& stride) { all.at(count++) = &stride; }
};

std::string text_of_dim(const GemmDim& dim) {
  const DimStrides<const GemmDim, const std::int64_t> strides(dim);
  std::size_t count = strides.count;
  while (count > strides.required && *strides.all.at(count - 1) == kPacked) --count;
  std::string text = fmt::format("{}{}", to_string(dim.kind), dim.size);
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t stride = *strides.all.at(i);
    text += stride == kPacked ? ":-" : fmt::format(":{}", stride);
  }
  return text;
}

[[noreturn]] void refuse_dim(std::string_view word, const std::string& why) {
  throw Error(ErrorCode::parse_error,
              fmt::format("'{}' is no dimension such as m128:512:64: {}", word, why));
}

std::int64_t number_of(std::string_view text, std::string_view word) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec == std::errc{} && read.ptr == end) return value;
  refuse_dim(word, fmt::format("expected a number, got '{}'", text));
}

GemmDim dim_of(std::string_view word) {
  const std::vector<std::string_view> parts = split(word, ':');
  GemmDim dim;
  if (parts[0].empty() || !read_word(parts[0].substr(0, 1), dim.kind)) {
    refuse_dim(word, "it begins with g, m, n or k");
  }
  dim.size = number_of(parts[0].substr(1), word);
  const DimStrides<GemmDim, std::int64_t> strides(dim);
  const std::size_t given = parts.size() - 1;
  if (given < strides.required || given > strides.count) {
    refuse_dim(word, fmt::format("kind {} has {} to {} strides, got {}", to_string(dim.kind),
                                 strides.required, strides.count, given));
  }
  for (std::size_t i = 0; i < given; ++i) {
    const bool is_packed = parts[i + 1] == "-" && i >= strides.required;
    *strides.all.at(i) = is_packed ? kPacked : number_of(parts[i + 1], word);
  }
  return dim;
}

}  // namespace

std::string to_string(const GemmDims& dims) {
  if (dims.count == 0) return "none";
  std::vector<std::string> words;
  for (const GemmDim& dim : dims) words.push_back(text_of_dim(dim));
  return join(words, ",");
}

GemmDims parse_gemm_dims(std::string_view text) {
  GemmDims dims;
  if (text == "none") return dims;
  for (const std::string_view word : split(text, ',')) {
    if (dims.count == kMostDims) {
      throw Error(ErrorCode::parse_error, fmt::format("there are at most {} dimensions, got {}",
                                                      kMostDims, split(text, ',').size()));
    }
    dims.all.at(dims.count++) = dim_of(word);
  }
  return dims;
}

}  // namespace tessera
