#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {
namespace {

constexpr int kAny = -1;

bool is_any(std::string_view word) { return word.empty() || word == "*"; }

template <class Value, class Parse>
std::vector<Value> read_words(const std::vector<std::string>& words, Parse parse) {
  std::vector<Value> values;
  for (const std::string& word : words) {
    if (is_any(word)) return {};
    values.push_back(parse(word));
  }
  return values;
}

std::string parse_variant(const std::string& word) {
  const std::vector<std::string> known = {"standard", "preshuffle", "multi_d"};
  if (std::find(known.begin(), known.end(), word) != known.end()) return word;
  throw Error(ErrorCode::parse_error, fmt::format("unknown gemm variant '{}'{}; there are {}", word,
                                                  did_you_mean(word, known), join(known, ", ")));
}

template <class Value>
bool accepts_any_or_listed(const std::vector<Value>& list, const Value& value) {
  return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

Filter::Filter(const SpecFilter& filter)
    : dtypes_(read_words<DType>(filter.dtypes, parse_dtype)),
      layouts_(read_words<GemmLayout>(filter.layouts, parse_gemm_layout)),
      variants_(read_words<std::string>(filter.variants, parse_variant)),
      tile_(read_shape("tile", filter.tile)),
      wave_(read_shape("wave", filter.wave)),
      warp_tile_(read_shape("warp_tile", filter.warp_tile)),
      name_(is_any(filter.name) ? "" : filter.name) {
  if (!is_any(filter.pipeline)) pipeline_ = parse_pipeline(filter.pipeline);
}

Filter::ShapePattern Filter::read_shape(std::string_view field, std::string_view text) {
  ShapePattern pattern = {kAny, kAny, kAny};
  if (is_any(text)) return pattern;
  const auto parts = split(text, 'x');
  bool good = parts.size() == pattern.size();
  for (std::size_t i = 0; good && i < pattern.size(); ++i) {
    if (parts[i] == "*") continue;
    const char* end = parts[i].data() + parts[i].size();
    const auto [rest, error] = std::from_chars(parts[i].data(), end, pattern[i]);
    good = error == std::errc() && rest == end && pattern[i] >= 0;
  }
  if (good) return pattern;
  throw Error(ErrorCode::parse_error,
              fmt::format("{} must be three numbers or '*' joined by 'x', such as 128x*x64, got "
                          "'{}'",
                          field, text));
}

bool Filter::matches(const ShapePattern& pattern, const Shape3& shape) {
  const auto fits = [](int wanted, int got) { return wanted == kAny || wanted == got; };
  return fits(pattern[0], shape.m) && fits(pattern[1], shape.n) && fits(pattern[2], shape.k);
}

bool Filter::accepts(const GemmSignature& s) const {
  return accepts_any_or_listed(dtypes_, s.a) && accepts_any_or_listed(layouts_, s.layout) &&
         accepts_any_or_listed(variants_, std::string(variant_of(s)));
}

bool Filter::accepts(const Algorithm& a) const {
  return (!pipeline_ || *pipeline_ == a.pipeline) && matches(tile_, a.tile) &&
         matches(wave_, a.wave) && matches(warp_tile_, a.warp_tile);
}

bool Filter::accepts_name(std::string_view name) const {
  return name_.empty() || matches_wildcard(name_, name);
}

}  // namespace tessera::gemm
