#include "tables.h"

#include <algorithm>
#include <initializer_list>
#include <unordered_map>

namespace tessera::cdna_emulator {

namespace {

template <class T>
using Index = std::unordered_map<std::string_view, const T*>;

template <class T>
const Index<T>* index_of(std::initializer_list<std::span<const T>> tables) {
  auto* index = new Index<T>;
  for (const auto& table : tables) {
    for (const T& row : table) index->emplace(row.name, &row);
  }
  return index;
}
template <class T>
const T* find_in(const Index<T>& index, std::string_view name) {
  const auto found = index.find(name);
  return found == index.end() ? nullptr : found->second;
}

}  // namespace

const Row* find_row(std::string_view name) {
  static const auto* const index = index_of<Row>(
      {scalar_rows(), control_rows(), integer_rows(), wide_rows(), float_rows(), half_rows(),
       convert_rows(), compare_rows(), lane_rows(), rdna_rows(), rdna_scalar_rows()});
  return find_in(*index, older_name(name));
}
const MfmaRow* find_mfma_row(std::string_view name) {
  static const auto* const index = index_of<MfmaRow>({mfma_rows(), wmma_rows()});
  return find_in(*index, name);
}
const MemoryRow* find_lds_row(std::string_view name) {
  static const auto* const index = index_of<MemoryRow>({lds_rows()});
  return find_in(*index, older_name(name));
}
const MemoryRow* find_global_memory_row(std::string_view name) {
  static const auto* const index = index_of<MemoryRow>({global_memory_rows()});
  return find_in(*index, older_name(name));
}

u32 extended(u32 old, u32 x, const MemoryRow& row) {
  const int unused = 32 - 8 * std::min<int>(row.bytes, 4);
  const auto with_sign = static_cast<u32>(static_cast<i32>(x << unused) >> unused);
  switch (row.extend) {
    case MemoryRow::Extend::sign:
      return with_sign;
    case MemoryRow::Extend::sign_low:
      return (old & 0xffff0000U) | (with_sign & 0xffffU);
    case MemoryRow::Extend::sign_high:
      return (old & 0xffffU) | with_sign << 16;
    case MemoryRow::Extend::low:
      return (old & 0xffff0000U) | x;
    case MemoryRow::Extend::high:
      return (old & 0xffffU) | x << 16;
    default:
      return x;
  }
}

}  // namespace tessera::cdna_emulator
