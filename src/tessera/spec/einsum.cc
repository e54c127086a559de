#include "tessera/spec/einsum.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/spec/contraction.h"

namespace tessera {
namespace {

using Strides = std::vector<std::int64_t>;

template <class... Args>
[[noreturn]] void refuse_einsum(fmt::format_string<Args...> sentence, Args&&... args) {
  throw Error(ErrorCode::invalid_argument,
              "einsum: " + fmt::format(sentence, std::forward<Args>(args)...));
}

struct Letters {
  std::string a, b, out;
};

bool has(const std::string& letters, char letter) {
  return letters.find(letter) != std::string::npos;
}

void check_letters(const std::string& name, const std::string& letters) {
  for (std::size_t i = 0; i < letters.size(); ++i) {
    const char letter = letters[i];
    const bool is_letter = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
    if (!is_letter) refuse_einsum("{} has '{}', and dimensions are letters", name, letter);
    if (letters.find(letter) != i) {
      refuse_einsum("{} has {} twice, and a diagonal is no product", name, letter);
    }
  }
}

Letters letters_of(const std::string& equation) {
  const std::size_t comma = equation.find(','), arrow = equation.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || comma > arrow) {
    refuse_einsum("expected an equation such as 'mk,kn->mn', got '{}'", equation);
  }
  const Letters all = {equation.substr(0, comma), equation.substr(comma + 1, arrow - comma - 1),
                       equation.substr(arrow + 2)};
  check_letters("a", all.a), check_letters("b", all.b), check_letters("out", all.out);
  for (const char letter : all.out) {
    if (!has(all.a, letter) && !has(all.b, letter)) {
      refuse_einsum("out has {}, which neither a nor b has", letter);
    }
  }
  for (const auto& [name, own, other] :
       {std::tuple{"a", &all.a, &all.b}, std::tuple{"b", &all.b, &all.a}}) {
    for (const char letter : *own) {
      if (has(*other, letter) || has(all.out, letter)) continue;
      refuse_einsum("only {} has {}; add up over it first", name, letter);
    }
  }
  return all;
}

Strides packed_strides(const Strides& sizes) {
  Strides strides(sizes.size());
  std::int64_t step = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    if (__builtin_mul_overflow(step, std::max<std::int64_t>(sizes[i], 1), &step)) {
      refuse_einsum("the sizes of an operand must have a product below 2^63");
    }
  }
  return strides;
}

void check_count(std::string_view name, std::string_view what, std::size_t got,
                 const std::string& letters) {
  if (got == letters.size()) return;
  refuse_einsum("{} must have {} {} for '{}', got {}", name, letters.size(), what, letters, got);
}

// A letter with its size and all strides.
struct Named {
  char letter;
  GemmDim dim;
};

class Reading {
 public:
  explicit Reading(const Einsum& einsum) : einsum_(einsum), letters_(letters_of(einsum.equation)) {
    check_count("a", "sizes", einsum.a.sizes.size(), letters_.a);
    check_count("b", "sizes", einsum.b.sizes.size(), letters_.b);
  }

  std::vector<Named> run() const {
    std::vector<Named> all;
    for (const char letter : letters_.a + letters_.b) {
      if (std::any_of(all.begin(), all.end(),
                      [&](const Named& one) { return one.letter == letter; })) {
        continue;
      }
      all.push_back({letter, {.size = size_of(letter), .kind = kind_of(letter)}});
    }
    set(all, "a", letters_.a, strides_or(einsum_.a.strides, einsum_.a.sizes),
        [](GemmDim& dim) -> std::int64_t& { return dim.a; });
    set(all, "b", letters_.b, strides_or(einsum_.b.strides, einsum_.b.sizes),
        [](GemmDim& dim) -> std::int64_t& { return dim.b; });
    Strides sizes;
    for (const char letter : letters_.out) sizes.push_back(size_of(letter));
    set(all, "out", letters_.out, strides_or(einsum_.out, sizes),
        [](GemmDim& dim) -> std::int64_t& { return dim.out; });
    if (!einsum_.c.empty()) {
      set(all, "c", letters_.out, einsum_.c, [](GemmDim& dim) -> std::int64_t& { return dim.c; });
    }
    for (std::size_t i = 0; i < kMaxD; ++i) {
      if (einsum_.d.at(i).empty()) continue;
      set(all, fmt::format("d{}", i), letters_.out, einsum_.d.at(i),
          [i](GemmDim& dim) -> std::int64_t& { return dim.d.at(i); });
    }
    return all;
  }

 private:
  static Strides strides_or(const Strides& given, const Strides& sizes) {
    return given.empty() ? packed_strides(sizes) : given;
  }

  std::int64_t size_of(char letter) const {
    const std::size_t a = letters_.a.find(letter), b = letters_.b.find(letter);
    const std::int64_t of_a = a == std::string::npos ? 0 : einsum_.a.sizes[a];
    const std::int64_t of_b = b == std::string::npos ? 0 : einsum_.b.sizes[b];
    if (a == std::string::npos) return of_b;
    if (b != std::string::npos && of_a != of_b) {
      refuse_einsum("{} must be of one size in a and b, got {} and {}", letter, of_a, of_b);
    }
    return of_a;
  }

  GemmDimKind kind_of(char letter) const {
    if (!has(letters_.out, letter)) return GemmDimKind::k;
    if (!has(letters_.b, letter)) return GemmDimKind::m;
    return has(letters_.a, letter) ? GemmDimKind::g : GemmDimKind::n;
  }

  template <class Member>
  static void set(std::vector<Named>& all, const std::string& name, const std::string& letters,
                  const Strides& strides, const Member& member) {
    check_count(name, "strides", strides.size(), letters);
    for (std::size_t i = 0; i < letters.size(); ++i) {
      const auto one = std::find_if(all.begin(), all.end(),
                                    [&](const Named& named) { return named.letter == letters[i]; });
      if (strides[i] < 0) {
        refuse_einsum("the stride of {} along {} must be at least 0, got {}", name, letters[i],
                      strides[i]);
      }
      member(one->dim) = strides[i];
    }
  }

  const Einsum& einsum_;
  const Letters letters_;
};

// ---- the order that copies least ----

using Stride = std::int64_t GemmDim::*;
constexpr Stride kOrders[] = {&GemmDim::out, &GemmDim::a, &GemmDim::b};

bool is_packed_or(std::int64_t outer, std::int64_t inner, std::int64_t size) {
  return outer == kPacked ? inner == kPacked : inner != kPacked && outer == inner * size;
}

bool merge_into_one(const GemmDim& outer, const GemmDim& inner) {
  bool fits = outer.kind == inner.kind && outer.a == inner.a * inner.size &&
              outer.b == inner.b * inner.size && outer.out == inner.out * inner.size &&
              is_packed_or(outer.c, inner.c, inner.size);
  for (std::size_t i = 0; i < kMaxD; ++i) {
    fits = fits && is_packed_or(outer.d.at(i), inner.d.at(i), inner.size);
  }
  return fits;
}

// Dimensions of a kind by their strides in one operand, neighbours made one where they fit.
std::vector<GemmDim> merged(std::vector<GemmDim> dims, const std::array<Stride, 4>& order) {
  std::stable_sort(dims.begin(), dims.end(), [&](const GemmDim& x, const GemmDim& y) {
    if (x.kind != y.kind) return x.kind < y.kind;
    const Stride stride = order.at(static_cast<std::size_t>(x.kind));
    return x.*stride > y.*stride;
  });
  std::vector<GemmDim> kept;
  for (const GemmDim& dim : dims) {
    if (dim.size == 1) continue;
    if (!kept.empty() && merge_into_one(kept.back(), dim)) {
      const std::int64_t size = kept.back().size;
      kept.back() = dim;
      kept.back().size *= size;
    } else {
      kept.push_back(dim);
    }
  }
  return kept;
}

void set_sizes(GemmProblem& p) {
  p.batch = p.m = p.n = p.k = 1;
  std::int64_t* const sizes[] = {&p.batch, &p.m, &p.n, &p.k};
  for (const GemmDim& dim : p.dims) {
    std::int64_t& size = *sizes[static_cast<std::size_t>(dim.kind)];
    if (!__builtin_mul_overflow(size, dim.size, &size)) continue;
    refuse_einsum("the sizes of kind {} must have a product below 2^63", to_string(dim.kind));
  }
}

GemmProblem without_strides(GemmProblem p) {
  const GemmProblem none;
  p.ld_a = p.ld_b = p.ld_c = p.ld_out = kPacked;
  p.batch_stride_a = p.batch_stride_b = p.batch_stride_c = p.batch_stride_out = kPacked;
  p.ld_d = none.ld_d, p.batch_stride_d = none.batch_stride_d;
  return p;
}

// Strides that say no more than the sizes are left out.
GemmProblem tidy(const GemmProblem& given) {
  const GemmProblem packed = with_strides(without_strides(given));
  GemmProblem p = given;
  const auto settle = [](std::int64_t& stride, std::int64_t without_gaps, bool is_used) {
    if (stride == without_gaps || !is_used) stride = kPacked;
  };
  settle(p.ld_a, packed.ld_a, true), settle(p.ld_b, packed.ld_b, true);
  settle(p.ld_out, packed.ld_out, true), settle(p.ld_c, packed.ld_c, p.beta != 0);
  const bool has_batches = p.batch > 1;
  GemmProblem rows = p;
  rows.batch_stride_a = rows.batch_stride_b = rows.batch_stride_c = rows.batch_stride_out = kPacked;
  rows.batch_stride_d.fill(kPacked);
  rows = with_strides(rows);
  settle(p.batch_stride_a, rows.batch_stride_a, has_batches);
  settle(p.batch_stride_b, rows.batch_stride_b, has_batches);
  settle(p.batch_stride_out, rows.batch_stride_out, has_batches);
  settle(p.batch_stride_c, rows.batch_stride_c, has_batches && p.beta != 0);
  for (std::size_t i = 0; i < kMaxD; ++i) {
    const bool is_used = i < p.epilogue.num_d;
    settle(p.ld_d.at(i), packed.ld_d.at(i), is_used);
    settle(p.batch_stride_d.at(i), rows.batch_stride_d.at(i), is_used && has_batches);
  }
  return p;
}

struct Choice {
  GemmProblem problem;
  std::int64_t copied = 0;  // bytes
  std::size_t count = 0;    // dimensions
};

// Sources of the operands are merged in any case.
std::optional<Choice> choice_of(const GemmProblem& like, GemmLayout layout,
                                const std::vector<GemmDim>& dims) {
  if (dims.size() > kMostDims) return std::nullopt;
  Choice choice{.problem = without_strides(like), .count = dims.size()};
  GemmProblem& p = choice.problem;
  p.layout = layout;
  std::copy(dims.begin(), dims.end(), p.dims.all.begin());
  p.dims.count = static_cast<std::uint8_t>(dims.size());
  if (dims.empty()) p.dims.all[0] = {}, p.dims.count = 1;
  set_sizes(p);
  const DenseProduct dense = dense_product(with_strides(p));
  choice.copied = dense.bytes;
  const bool has_sources = p.merge_a != GemmMerge::none || p.merge_b != GemmMerge::none;
  if (dense.bytes == 0 && !has_sources) choice.problem = tidy(dense.problem);
  return choice;
}

// Looks at every layout and order of the dimensions.
void look_at_orders(const GemmProblem& like, const std::vector<GemmDim>& dims,
                    std::optional<Choice>& best) {
  const auto look = [&](GemmLayout layout, const std::array<Stride, 4>& order) {
    const auto found = choice_of(like, layout, merged(dims, order));
    if (!found) return;
    const bool is_less = !best || found->copied < best->copied ||
                         (found->copied == best->copied && found->count < best->count);
    if (is_less) best = found;
  };
  for (const GemmLayout layout :
       {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::crr, GemmLayout::ccr}) {
    for (const Stride of_g : kOrders) {
      for (const Stride of_m : {&GemmDim::out, &GemmDim::a}) {
        for (const Stride of_n : {&GemmDim::out, &GemmDim::b}) {
          for (const Stride of_k : {&GemmDim::a, &GemmDim::b}) {
            look(layout, {of_g, of_m, of_n, of_k});
          }
        }
      }
    }
  }
}

}  // namespace

// A dimension that one of A and B lacks may also be a batch, which the other repeats.
GemmProblem einsum_problem(const Einsum& einsum) {
  std::vector<GemmDim> dims;
  for (const Named& one : Reading(einsum).run()) dims.push_back(one.dim);
  std::optional<Choice> best;
  look_at_orders(einsum.like, dims, best);
  for (std::size_t i = 0; i < dims.size() && best && best->copied > 0; ++i) {
    if (dims[i].kind != GemmDimKind::m && dims[i].kind != GemmDimKind::n) continue;
    std::vector<GemmDim> other = dims;
    other[i].kind = GemmDimKind::g;
    look_at_orders(einsum.like, other, best);
  }
  if (best) return best->problem;
  refuse_einsum("at most {} dimensions may be left when neighbours are one, got {} letters",
                kMostDims, dims.size());
}

}  // namespace tessera
