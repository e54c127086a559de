// Vector comparisons. Every relation exists for every type; the rows are made of both.
#include <cmath>
#include <deque>
#include <string>
#include <vector>

#include "lanes.h"
#include "tables.h"

namespace tessera::cdna_emulator {

namespace {

template <class F>
constexpr Run compare_halves(F) {
  return [](Wave& w, const Instruction& i) {
    Room ra, rb;
    const u32* a = source(w, i, 1, ra);
    const u32* b = source(w, i, 2, rb);
    u64 mask = 0;
    for (int l = 0; l < kLanes; ++l) {
      mask |= u64{F{}(half_to_float(a[l] & 0xffffU), half_to_float(b[l] & 0xffffU))} << l;
    }
    set_mask(w, i, 0, mask & w.exec());
  };
}

struct Type {
  std::string_view name, operands;
};
constexpr Type kTypes[] = {{"u32", "Xuu"}, {"i32", "Xuu"}, {"u64", "XUU"},
                           {"i64", "XUU"}, {"u16", "Xuu"}, {"i16", "Xuu"},
                           {"f32", "Xff"}, {"f64", "XFF"}, {"f16", "Xhh"}};

struct Relation {
  std::string_view name;
  std::array<Run, std::size(kTypes)> runs;
};
template <class F>
constexpr Relation relation(std::string_view name, F f) {
  return {name,
          {compare<u32>(f), compare<i32>(f), compare64<u64>(f), compare64<i64>(f), compare<u16>(f),
           compare<i16>(f), compare<float>(f), compare64<double>(f), compare_halves(f)}};
}
constexpr Relation kRelations[] = {
    relation("eq", [](auto a, auto b) { return a == b; }),
    relation("ne", [](auto a, auto b) { return a != b; }),
    relation("lg", [](auto a, auto b) { return a < b || a > b; }),
    relation("lt", [](auto a, auto b) { return a < b; }),
    relation("le", [](auto a, auto b) { return a <= b; }),
    relation("gt", [](auto a, auto b) { return a > b; }),
    relation("ge", [](auto a, auto b) { return a >= b; }),
    relation("neq", [](auto a, auto b) { return !(a == b); }),
    relation("nlg", [](auto a, auto b) { return !(a < b || a > b); }),
    relation("nlt", [](auto a, auto b) { return !(a < b); }),
    relation("nle", [](auto a, auto b) { return !(a <= b); }),
    relation("ngt", [](auto a, auto b) { return !(a > b); }),
    relation("nge", [](auto a, auto b) { return !(a >= b); }),
    relation("u", [](auto a, auto b) { return a != a || b != b; }),
    relation("o", [](auto a, auto b) { return a == a && b == b; }),
};

// The classes of a float, as v_cmp_class_f32 numbers them: bit n of its second source asks for n.
u32 class_of(float x) {
  const u32 bits = as_bits(x);
  if (x != x) return (bits & 0x400000U) != 0 ? 1U << 1 : 1U << 0;  // quiet, signalling
  const bool negative = bits >> 31 != 0;
  if (std::isinf(x)) return negative ? 1U << 2 : 1U << 9;
  if (x == 0) return negative ? 1U << 5 : 1U << 6;
  const bool tiny = (bits & 0x7f800000U) == 0;
  if (negative) return tiny ? 1U << 4 : 1U << 3;
  return tiny ? 1U << 7 : 1U << 8;
}
void compare_class(Wave& w, const Instruction& i) {
  Room ra, rb;
  const u32* a = source(w, i, 1, ra);
  const u32* b = source(w, i, 2, rb);
  u64 mask = 0;
  for (int l = 0; l < kLanes; ++l) mask |= u64{(class_of(as_float(a[l])) & b[l]) != 0} << l;
  set_mask(w, i, 0, mask & w.exec());
}

}  // namespace

std::span<const Row> compare_rows() {
  static const std::deque<std::string>* const names = [] {
    auto* made = new std::deque<std::string>;
    for (const Relation& r : kRelations) {
      for (const Type& t : kTypes) {
        made->push_back("v_cmp_" + std::string(r.name) + "_" + std::string(t.name));
      }
    }
    return made;
  }();
  static const std::vector<Row>* const rows = [] {
    auto* made = new std::vector<Row>;
    for (std::size_t n = 0; n < names->size(); ++n) {
      const std::size_t type = n % std::size(kTypes);
      made->push_back(
          {(*names)[n], kTypes[type].operands, kRelations[n / std::size(kTypes)].runs[type]});
    }
    made->push_back({"v_cmp_class_f32", "Xfu", compare_class});
    return made;
  }();
  return *rows;
}

}  // namespace tessera::cdna_emulator
