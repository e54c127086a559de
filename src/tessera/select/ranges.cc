#include "tessera/select/ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <tuple>
#include <type_traits>

#include "tessera/base/error.h"
#include "tessera/base/parallel.h"
#include "tessera/base/text.h"
#include "tessera/spec/fields_internal.h"

namespace tessera {
namespace {

constexpr std::int64_t kAskedAll = 256;  // ranges of so many values are asked at each
constexpr std::int64_t kDense = 64;      // so are the values up to this one
constexpr std::int64_t kLeastEdge = 16;  // the narrowest tile whose multiples are asked
constexpr std::int64_t kEdgesOfOctave = 16;
constexpr std::string_view kBetween = "..";

[[noreturn]] void refuse_range(ErrorCode code, const std::string& sentence) {
  throw Error(code, "range: " + sentence);
}

std::int64_t read_end(std::string_view text, std::string_view which, std::string_view field) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec == std::errc{} && result.ptr == end) return value;
  refuse_range(ErrorCode::parse_error,
               fmt::format("the {} value of {} must be a whole number of 64 bits, got '{}'", which,
                           field, text));
}

// The place of ".." in a word's value; none where it has none.
std::size_t between_of(std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) return std::string_view::npos;
  return word.find(kBetween, equals + 1);
}

// A field that was looked for. No text is made, because launches look for fields, too.
struct FoundField {
  bool found = false;
  std::int64_t* integer = nullptr;  // null: the field is no whole number
};

void note(std::int64_t& value, FoundField& field) { field = {true, &value}; }
template <class T>
void note(T&, FoundField& field) {
  field = {true, nullptr};
}

template <class Row, class Value>
void look_at(const Row& row, Value& value, std::string_view key, FoundField& field) {
  if constexpr (kIsArray<Value>) {
    if (!key.starts_with(row.key)) return;
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (key.substr(row.key.size()) == row.ends[i]) note(value[i], field);
    }
  } else {
    if (key == row.key) note(value, field);
  }
}

FoundField find_field(Problem& problem, std::string_view key) {
  FoundField field;
  const auto in = [&]<class P>(P& object) {
    const auto each = [&](const auto&... rows) {
      (look_at(rows, object.*rows.member, key, field), ...);
    };
    Fields<P>::kAll(each);
  };
  std::visit(in, problem);
  return field;
}

std::vector<std::string> integer_fields(const Problem& problem) {
  std::vector<std::string> keys;
  const auto add = [&](const std::string& key, const auto& value, const auto&, const Rule&) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::int64_t>) {
      keys.push_back(key);
    }
  };
  std::visit([&](const auto& object) { for_each_field(object, add); }, problem);
  return keys;
}

[[noreturn]] void refuse_field(const Problem& problem, const std::string& field, bool found) {
  const std::string_view op = to_string(op_of(problem));
  const std::vector<std::string> integers = integer_fields(problem);
  if (found) {
    refuse_range(ErrorCode::invalid_argument,
                 fmt::format("{} of {} is no whole number, and can have no range; these can: {}",
                             field, op, join(integers, ", ")));
  }
  const std::string hint = did_you_mean(field, integers);
  refuse_range(
      ErrorCode::not_found,
      fmt::format("{} has no field '{}'{}", op, field,
                  hint.empty() ? "; these can have a range: " + join(integers, ", ") : hint));
}

}  // namespace

std::int64_t count_of(const FieldRange& range) {
  const auto& [field, first, last] = range;
  if (first < 1) {
    refuse_range(ErrorCode::invalid_argument,
                 fmt::format("{} must begin at 1 or more, got {}", field, first));
  }
  if (last < first) {
    refuse_range(ErrorCode::invalid_argument,
                 fmt::format("{} must not end before it begins, got first {} and last {}", field,
                             first, last));
  }
  if (last - first >= kMostRangeValues) {
    refuse_range(
        ErrorCode::invalid_argument,
        fmt::format("{} must have at most {} values, got {} (from {} to {})", field,
                    kMostRangeValues, static_cast<std::uint64_t>(last - first) + 1, first, last));
  }
  return last - first + 1;
}

void check_value(const FieldRange& range, std::int64_t value) {
  if (value >= range.first && value <= range.last) return;
  refuse_range(
      ErrorCode::invalid_argument,
      fmt::format("{} must be from {} to {}, got {}", range.field, range.first, range.last, value));
}

FieldRange read_range(std::string_view text) {
  const std::size_t equals = text.find('=');
  const std::size_t between = between_of(text);
  if (equals == 0 || between == std::string_view::npos) {
    refuse_range(ErrorCode::parse_error,
                 fmt::format("expected field=first..last such as m=1..8192, got '{}'", text));
  }
  FieldRange range;
  range.field = text.substr(0, equals);
  const std::string_view first = text.substr(equals + 1, between - equals - 1);
  const std::string_view last = text.substr(between + kBetween.size());
  if (first.empty() || last.empty()) {
    refuse_range(ErrorCode::parse_error,
                 fmt::format("'{}' has no {}; a range has both, as in {}=1..8192", text,
                             first.empty() ? "first value" : "end", range.field));
  }
  range.first = read_end(first, "first", range.field);
  range.last = read_end(last, "last", range.field);
  count_of(range);
  return range;
}

std::string to_string(const FieldRange& range) {
  return fmt::format("{}={}{}{}", range.field, range.first, kBetween, range.last);
}

bool has_range(std::string_view line) {
  const auto words = split_words(line);
  return std::any_of(words.begin(), words.end(), [](std::string_view word) {
    return between_of(word) != std::string_view::npos;
  });
}

RangedProblem read_ranged_problem(std::string_view line) {
  std::string plain;
  std::vector<std::string> ranges;
  FieldRange range;
  for (const std::string_view word : split_words(line)) {
    const bool is_range = between_of(word) != std::string_view::npos;
    if (is_range) {
      ranges.emplace_back(word);
      range = read_range(word);
    }
    const std::string first = fmt::format("{}={}", range.field, range.first);
    plain += fmt::format("{}{}", plain.empty() ? "" : " ", is_range ? first : word);
  }
  if (ranges.size() != 1) {
    refuse_range(
        ErrorCode::parse_error,
        fmt::format("the line must give one field a range, as in 'gemm m=1..8192 n=4096 k=4096 "
                    "dtype=bf16', got {} ranges{}",
                    ranges.size(), ranges.empty() ? "" : ": " + join(ranges, ", ")));
  }
  return {problem_at(parse_problem(plain), range, range.first), range};
}

std::string to_string(const RangedProblem& ranged) {
  const std::string line = to_string(ranged.problem);
  std::vector<std::string> words;
  bool found = false;
  for (const std::string_view word : split_words(line)) {
    const bool is_field = word.starts_with(ranged.range.field + "=");
    words.emplace_back(is_field ? to_string(ranged.range) : std::string(word));
    found = found || is_field;
  }
  if (!found) words.push_back(to_string(ranged.range));
  return join(words, " ");
}

Problem problem_at(const Problem& problem, const FieldRange& range, std::int64_t value) {
  check_value(range, value);
  Problem made = problem;
  const FoundField field = find_field(made, range.field);
  if (field.integer == nullptr) refuse_field(problem, range.field, field.found);
  *field.integer = value;
  return made;
}

std::vector<std::int64_t> grid_of(const FieldRange& range) {
  std::vector<std::int64_t> grid;
  const bool all = count_of(range) <= kAskedAll;
  const std::int64_t dense = all ? range.last : std::min(range.last, kDense);
  // No loop counts past the last value, which may be the last number of 64 bits.
  for (std::int64_t i = 0; i <= dense - range.first; ++i) grid.push_back(range.first + i);
  if (all) return grid;
  const auto add = [&](std::int64_t value) {
    if (value > dense && value >= range.first && value <= range.last) grid.push_back(value);
  };
  add(range.first);
  add(range.last);
  const auto from = std::bit_floor(static_cast<std::uint64_t>(std::max(range.first, kDense)));
  for (auto octave = static_cast<std::int64_t>(from); octave <= range.last; octave *= 2) {
    const std::int64_t edge = std::max(kLeastEdge, octave / kEdgesOfOctave);
    for (std::int64_t i = 0; i < octave / edge; ++i) {
      const std::int64_t at = octave + i * edge;
      for (const std::int64_t value : {at - 1, at, at + 1, at + edge / 2}) add(value);
    }
    if (octave > range.last / 2) break;  // twice as much may not be a number of 64 bits
  }
  std::sort(grid.begin(), grid.end());
  grid.erase(std::unique(grid.begin(), grid.end()), grid.end());
  return grid;
}

namespace {

// A value that was asked, and its kernel.
struct Asked {
  std::int64_t value;
  std::string kernel;
};

// Asks between two values with different kernels, and appends what was asked in order.
void bisect(const Asked& low, const Asked& high, const KernelOf& kernel_of,
            std::vector<Asked>& asked) {
  if (low.kernel == high.kernel || high.value - low.value < 2) return;
  const std::int64_t value = low.value + (high.value - low.value) / 2;
  const Asked middle{value, kernel_of(value)};
  bisect(low, middle, kernel_of, asked);
  asked.push_back(middle);
  bisect(middle, high, kernel_of, asked);
}

// Joins a value, or a run of values with one kernel, to the parts before it.
void append(std::vector<RangePart>& parts, std::int64_t last, const std::string& kernel) {
  if (!parts.empty() && parts.back().kernel == kernel) {
    parts.back().last = last;
  } else {
    parts.push_back({parts.empty() ? last : parts.back().last + 1, last, kernel});
  }
}

}  // namespace

std::vector<RangePart> parts_of(const FieldRange& range, const KernelOf& kernel_of, int jobs) {
  const std::vector<std::int64_t> grid = grid_of(range);
  std::vector<Asked> asked(grid.size());
  in_parallel(grid.size(), jobs, [&](std::size_t i) { asked[i] = {grid[i], kernel_of(grid[i])}; });
  std::vector<std::vector<Asked>> between(grid.size());
  in_parallel(grid.size() - 1, jobs,
              [&](std::size_t i) { bisect(asked[i], asked[i + 1], kernel_of, between[i]); });
  std::vector<RangePart> parts;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    append(parts, asked[i].value, asked[i].kernel);
    for (const Asked& one : between[i]) append(parts, one.value, one.kernel);
  }
  return parts;
}

std::vector<RangePart> with_served(const std::vector<RangePart>& parts, const Serves& serves,
                                   const KernelOf& kernel_of, int jobs) {
  std::vector<std::vector<RangePart>> made(parts.size());
  in_parallel(parts.size(), jobs, [&](std::size_t i) {
    const RangePart& part = parts[i];
    for (std::int64_t at = 0; at <= part.last - part.first; ++at) {
      const std::int64_t value = part.first + at;
      const bool served = serves(value, part.kernel);
      append(made[i], value, served ? part.kernel : kernel_of(value));
    }
  });
  std::vector<RangePart> all;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (const RangePart& part : made[i]) {
      if (all.empty()) {
        all.push_back({parts.front().first, part.last, part.kernel});
      } else {
        append(all, part.last, part.kernel);
      }
    }
  }
  return all;
}

}  // namespace tessera
