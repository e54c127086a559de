// Ranges: problems that differ in one number, and the kernels over all of its values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/spec/problem.h"

#pragma GCC visibility push(default)
namespace tessera {

// The values of one integer field of a problem, both ends included.
struct FieldRange {
  std::string field;
  std::int64_t first = 1;
  std::int64_t last = 1;
  friend bool operator==(const FieldRange&, const FieldRange&) = default;
};
// The most values that a range may have.
inline constexpr std::int64_t kMostRangeValues = 131'072;

// How many values the range has. Throws Error{invalid_argument} where the range is reversed, begins
// below 1, or has more than kMostRangeValues values.
std::int64_t count_of(const FieldRange& range);
// Throws Error{invalid_argument} with both ends unless the range holds the value.
void check_value(const FieldRange& range, std::int64_t value);

// Reads "m=1..8192". Throws Error{parse_error} for other text, and what count_of() throws.
FieldRange read_range(std::string_view text);
std::string to_string(const FieldRange& range);

// A problem whose field has the range's first value, and the range.
struct RangedProblem {
  Problem problem;
  FieldRange range;
};
// Whether a problem's line gives a range for one of its fields.
bool has_range(std::string_view line);
// Reads "gemm m=1..8192 n=4096 k=4096 dtype=bf16". Throws what parse_problem() and read_range()
// throw, Error{parse_error} unless exactly one field has a range, and Error{invalid_argument} for a
// field that is no whole number.
RangedProblem read_ranged_problem(std::string_view line);
std::string to_string(const RangedProblem& ranged);

// The problem with this value in the range's field. Strides that are packed follow the sizes, and
// others stay. Throws Error{invalid_argument} for a value outside of the range and for a field that
// is no whole number, and Error{not_found} for an unknown field, with the nearest one. Whether the
// problem is valid is validate()'s to say.
Problem problem_at(const Problem& problem, const FieldRange& range, std::int64_t value);

// Values next to each other with one kernel.
struct RangePart {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::string kernel;
  friend bool operator==(const RangePart&, const RangePart&) = default;
};

// What parts_of() asks before it looks between them, in their order. A range of at most 256 values
// has all of them. A longer one has its ends, the values up to 64, and from each power of two p to
// the next the multiples of max(16, p / 16), the values one below and one above them, and those in
// the middle between two multiples.
std::vector<std::int64_t> grid_of(const FieldRange& range);

// The parts of a range, in their order and without gaps; neighbours have different kernels.
// `kernel_of(value)` names the kernel of a value. It is asked at the values of grid_of(). Where two
// neighbours of the grid differ, values between them are asked by bisection until each change lies
// between two values that were asked and have no value between them.
//
// Promised: every value that was asked is in a part with the kernel that kernel_of() named, and the
// first and the last value of every part were asked. Not promised: what kernel_of() would say about
// a value that was not asked. Such a value lies between two values of the same part that were asked
// and have the part's kernel, and gets this kernel too. A kernel that would be named nowhere but
// between two such values is not seen.
//
// With several jobs (0: one for each processor) kernel_of() is called by as many threads at once.
// The result does not depend on the number of jobs. Throws what kernel_of() throws.
using KernelOf = std::function<std::string(std::int64_t value)>;
std::vector<RangePart> parts_of(const FieldRange& range, const KernelOf& kernel_of, int jobs = 1);

// The parts where each value has a kernel that serves it. `serves(value, kernel)` is asked at every
// value of every part. A value that its part's kernel does not serve gets the kernel that
// kernel_of() names for it, which is then taken as it is.
using Serves = std::function<bool(std::int64_t value, const std::string& kernel)>;
std::vector<RangePart> with_served(const std::vector<RangePart>& parts, const Serves& serves,
                                   const KernelOf& kernel_of, int jobs = 1);

}  // namespace tessera
#pragma GCC visibility pop
