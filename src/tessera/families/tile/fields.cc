// A kernel's name holds every field of its algorithm. A field without effect must stay at its
// default, or one kernel would have two names.
#include "tessera/families/tile/fields.h"

#include <fmt/format.h>

#include <initializer_list>
#include <type_traits>

#include "tessera/spec/fields_internal.h"

namespace tessera::tile {
namespace {

// One bit for each row of Fields<Algorithm>. A key that is not in the table does not compile.
using FieldMask = std::uint32_t;

consteval FieldMask bit_of(std::string_view key) {
  FieldMask bit = 1, found = 0;
  Fields<Algorithm>::kAll(
      [&](const auto&... row) { ((found |= row.key == key ? bit : 0, bit <<= 1), ...); });
  if (found == 0) throw "there is no such field";
  return found;
}
consteval FieldMask mask_of(std::initializer_list<std::string_view> keys) {
  FieldMask mask = 0;
  for (const std::string_view key : keys) mask |= bit_of(key);
  return mask;
}

constexpr FieldMask kShapes = mask_of({"pipeline", "tile", "wave", "warp_tile"});
constexpr FieldMask kTmaws =
    mask_of({"scheduler", "store", "split_k", "splits", "slices", "streamk", "stages", "cluster_m",
             "cluster_n", "swap_ab", "repack"});
constexpr FieldMask kCpasync = mask_of({"split_k", "slices", "stages"});
// Of AMD's kernels. Some of these fields have one value for our kernels and others for CK Tile's.
constexpr FieldMask kMfma = mask_of(
    {"scheduler", "store", "split_k", "splits", "slices", "streamk", "stages", "persistent"});

constexpr FieldMask kNorm = mask_of({"slices", "cluster_n"});
constexpr FieldMask kDepthwise = mask_of({"split_k", "slices"});
constexpr FieldMask kGrouped = mask_of({"stages"});
constexpr FieldMask kSplitkv = mask_of({"slices", "stages"});

constexpr FieldMask used_by(Pipeline pipeline) {
  switch (pipeline) {
    case Pipeline::tmaws:
      return kShapes | kTmaws;
    case Pipeline::cpasync:
      return kShapes | kCpasync;
    case Pipeline::compv3:
    case Pipeline::compv4:
    case Pipeline::compv5:
    case Pipeline::mem:
    case Pipeline::async:
      return kShapes | kMfma;
    case Pipeline::rows:
      return kShapes | kNorm;
    case Pipeline::depthwise:
      return kShapes | kDepthwise;
    case Pipeline::splitkv:
      return kShapes | kSplitkv;
    case Pipeline::grouped:
      return kShapes | kGrouped;
    default:  // the pipelines of CPUs
      return kShapes;
  }
}

constexpr Algorithm kDefault = {};

// Every candidate passes here, so only the fields that the pipeline does not use are compared.
template <Pipeline kPipeline>
bool at_default(const Algorithm& a) {
  return Fields<Algorithm>::kAll([&](const auto&... rows) {
    return [&]<std::size_t... kBits>(std::index_sequence<kBits...>) {
      return (((used_by(kPipeline) >> kBits & 1) != 0 || a.*rows.member == kDefault.*rows.member) &&
              ...);
    }
    (std::make_index_sequence<sizeof...(rows)>());
  });
}

template <class Value>
std::string word(const Value& value) {
  if constexpr (std::is_same_v<Value, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_integral_v<Value>) {
    return std::to_string(value);
  } else {
    return std::string(to_string(value));
  }
}

}  // namespace

bool unused_at_default(const Algorithm& a) {
  if (a.pipeline == Pipeline::tmaws) return at_default<Pipeline::tmaws>(a);
  if (a.pipeline == Pipeline::cpasync) return at_default<Pipeline::cpasync>(a);
  if (a.pipeline == Pipeline::rows) return at_default<Pipeline::rows>(a);
  if (a.pipeline == Pipeline::depthwise) return at_default<Pipeline::depthwise>(a);
  if (a.pipeline == Pipeline::splitkv) return at_default<Pipeline::splitkv>(a);
  if (a.pipeline == Pipeline::grouped) return at_default<Pipeline::grouped>(a);
  const bool is_mfma = (a.pipeline >= Pipeline::compv3 && a.pipeline <= Pipeline::mem) ||
                       a.pipeline == Pipeline::async;
  return is_mfma ? at_default<Pipeline::compv3>(a) : at_default<Pipeline::packab>(a);
}

std::string unused_field(const Algorithm& a) {
  FieldMask used = used_by(a.pipeline);
  std::string sentence;
  const auto look = [&](const auto& row) {
    const bool is_used = (used & 1) != 0;
    used >>= 1;
    if (is_used || !sentence.empty() || a.*row.member == kDefault.*row.member) return;
    sentence = fmt::format("{} must be {} with {}, got {}", row.key, word(kDefault.*row.member),
                           to_string(a.pipeline), word(a.*row.member));
  };
  Fields<Algorithm>::kAll([&](const auto&... row) { (look(row), ...); });
  return sentence;
}

}  // namespace tessera::tile
