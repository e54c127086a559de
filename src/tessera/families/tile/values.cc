#include "tessera/families/tile/values.h"

#include <cstring>

#include "tessera/spec/numeric.h"

namespace tessera::tile {
namespace {

constexpr double kReadsForTable = 0x1p16;  // fewer reads are made one by one

template <class T>
T stored(const void* data, std::int64_t at) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + at * std::int64_t{sizeof(T)}, sizeof(T));
  return value;
}

}  // namespace

Values::Values(DType dtype, const void* data, double reads)
    : dtype_(dtype == DType::tf32 ? DType::fp32 : dtype), bytes_(size_of(dtype)), data_(data) {
  if (bytes_ > 2 || reads < kReadsForTable) return;
  table_.resize(std::size_t{1} << (8 * bytes_));
  for (std::size_t bits = 0; bits < table_.size(); ++bits) {
    const auto word = static_cast<std::uint16_t>(bits);  // little-endian
    table_[bits] = static_cast<float>(load_element(dtype_, &word, 0));
  }
}

void Values::read(std::int64_t at, std::int64_t step, std::int64_t count, double* to) const {
  const auto* const end = to + count;
  if (dtype_ == DType::fp32) {
    for (; to != end; at += step) *to++ = stored<float>(data_, at);
  } else if (table_.empty()) {
    for (; to != end; at += step) *to++ = load_element(dtype_, data_, at);
  } else if (bytes_ == 2) {
    for (; to != end; at += step) *to++ = table_[stored<std::uint16_t>(data_, at)];
  } else {
    for (; to != end; at += step) *to++ = table_[stored<std::uint8_t>(data_, at)];
  }
}

}  // namespace tessera::tile
