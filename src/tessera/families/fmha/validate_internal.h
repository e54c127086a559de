// What the checks of all kinds of attention problems share. `given` is a problem as it was given,
// `p` the same with its strides.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <span>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/spec/fmha_fields_internal.h"

namespace tessera::fmha {

// Kernels count tokens in int32, and so do prefix sums. Sums of a few such numbers fit in int64.
inline constexpr std::int64_t kMostCount = (std::int64_t{1} << 31) - 1;

// Parts of the keys that a caller may ask for, as many as kernels may choose by themselves.
inline constexpr std::int64_t kMostSplits = 512;

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> sentence, Args&&... args) {
  throw Error(ErrorCode::invalid_argument,
              "fmha: " + fmt::format(sentence, std::forward<Args>(args)...));
}

struct Count {
  std::string_view name;
  std::int64_t value, least, most;
};
void check_counts(std::initializer_list<Count> counts);
// `p` has its strides, and with them the numbers of heads and tokens.
void check_sizes(const FmhaProblem& p);
// Tokens of all sequences are counted where these lie one behind the other; elsewhere the sizes say
// how many there are. `given`: the count as it was given; of: "q" or "k".
void check_token_count(std::string_view of, std::int64_t given, std::int64_t longest,
                       const FmhaProblem& p);
// The same of the keys, of which pages have no count.
void check_key_count(const FmhaProblem& given, const FmhaProblem& p);
// Strides that a problem does not have: q_stride_b and so on.
struct Strides {
  std::string_view name;
  const FmhaStrides& values;
  const std::array<std::string_view, 4>& ends = kOfTokens;
};
void check_left_out(const Strides& strides, std::string_view with);
// Fields that must have their standard value.
struct Standard {
  std::string_view name;
  std::int64_t value, standard;
};
void check_standard(std::initializer_list<Standard> fields, std::string_view with);
void check_no_window(const FmhaProblem& p, std::string_view with);
// The factors' product must be below 2^63.
void check_product(std::string_view what, std::initializer_list<std::int64_t> factors);
// Packed sequences have no distance between batches.
void check_batch_stride(std::string_view name, std::int64_t stride);
// The fields of pages, which must be left out without them.
void check_pages(const FmhaProblem& given, const FmhaProblem& p);
void check_tensors(const Problem& problem);

// append_validate.cc
void validate_append(const FmhaProblem& given);
// Throws where attention itself is asked for with a field that only append has.
void refuse_append_fields(const FmhaProblem& given);
// Throw where a kind that appends has wrong fields of the rotary embedding, or wrong sizes of what
// is appended. `p` is the problem with its strides.
void check_rotary(const FmhaProblem& given, const FmhaProblem& p);
void check_new_tokens(const FmhaProblem& given, const FmhaProblem& p);
// Why no kernel appends with such a signature, or attends with what only append has; empty: some
// do.
std::string append_signature_reason(const FmhaSignature& signature);
// What attention's own checks leave.
void check_extended(const FmhaProblem& given, const FmhaProblem& p);

}  // namespace tessera::fmha
