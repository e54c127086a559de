// What the checks of all kinds of attention problems share.
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
void check_counts(std::span<const Count> counts);
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
// The factors' product must be below 2^63.
void check_product(std::string_view what, std::initializer_list<std::int64_t> factors);
// Packed sequences have no distance between batches.
void check_batch_stride(std::string_view name, std::int64_t stride);
// The fields of pages, which must be left out without them.
void check_pages(const FmhaProblem& given, const FmhaProblem& p);
void check_tensors(const Problem& problem);

}  // namespace tessera::fmha
