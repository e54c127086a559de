// A problem of attention with operands of its own, filled at random.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "host/fmha/fmha_problems.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/spec/numeric.h"

namespace tessera::fmha {

// The sizes or strides of a tensor, innermost dimension first.
using Sizes = std::vector<std::int64_t>;
inline Sizes sizes(const Tensor& t) {
  return {t.sizes.begin(), t.sizes.begin() + static_cast<std::ptrdiff_t>(t.rank)};
}
inline Sizes strides(const Tensor& t) {
  return {t.strides.begin(), t.strides.begin() + static_cast<std::ptrdiff_t>(t.rank)};
}

// A problem with operands in memory of its own.
struct PlainCase {
  FmhaProblem problem;  // as given
  FmhaProblem p;        // with its strides
  Tensors list;
  std::vector<std::vector<std::byte>> memory;  // of each tensor
  Operands operands;

  explicit PlainCase(const FmhaProblem& given)
      : problem(given), p(with_strides(given)), list(tensors(given)), operands(FmhaOperands{}) {
    for (const Tensor& tensor : list) {
      memory.emplace_back(tensor.bytes() + 16, std::byte{0});
      family().set_pointer(operands, tensor.operand, memory.back().data());
    }
  }

  std::size_t index_of(std::string_view name) const {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].name == name) return i;
    }
    return list.size();
  }
  double load(std::size_t tensor, std::int64_t at) const {
    return load_element(list[tensor].dtype, memory[tensor].data(), at);
  }
  double load(std::string_view name, std::int64_t at) const { return load(index_of(name), at); }
  void store(std::size_t tensor, std::int64_t at, double value) {
    store_element(list[tensor].dtype, memory[tensor].data(), at, value);
  }
  void store(std::string_view name, std::int64_t at, double value) {
    store(index_of(name), at, value);
  }

  void fill(RandomFmhas& random);
  void set_lengths(RandomFmhas& random, const Tensor& tensor, std::size_t index);
  void set_pages(RandomFmhas& random, const Tensor& tensor, std::size_t index);
  // Fills the outputs with what every query should have. Those that are not written keep NaN.
  void compute();
  Mismatch verify() const { return family().verify(problem, operands); }
};

inline void PlainCase::set_lengths(RandomFmhas& random, const Tensor& tensor, std::size_t index) {
  const bool is_q = tensor.name == "seqlens_q";
  const std::int64_t longest = is_q ? p.seqlen_q : p.seqlen_k;
  const std::int64_t tokens = is_q ? p.tokens_q : p.tokens_k;
  const bool are_sums = p.lengths == FmhaLengths::packed && (is_q || p.pages == FmhaPages::none);
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < tensor.sizes[0]; ++i) {
    const std::int64_t length = random.integer(0, 3) == 0 ? 0 : random.integer(0, longest);
    if (!are_sums) {
      store(index, i, static_cast<double>(length));
      continue;
    }
    store(index, i, static_cast<double>(sum));
    sum += std::min(length, tokens - sum);
  }
}

// Any pages, and as many for each sequence of a list as its keys need, as far as there are entries.
inline void PlainCase::set_pages(RandomFmhas& random, const Tensor& tensor, std::size_t index) {
  if (tensor.name == "page_table") {
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      store(index, i, static_cast<double>(random.integer(0, p.num_pages - 1)));
    }
    return;
  }
  std::int64_t sum = 0;
  for (std::int64_t b = 0; b <= p.batch; ++b) {
    store(index, b, static_cast<double>(sum));
    if (b == p.batch) break;
    const std::int64_t keys = p.lengths == FmhaLengths::equal
                                  ? p.seqlen_k
                                  : static_cast<std::int64_t>(load("seqlens_k", b));
    sum = std::min(p.page_entries, sum + (keys + p.page_size - 1) / p.page_size);
  }
}

inline void PlainCase::fill(RandomFmhas& random) {
  for (std::size_t t = 0; t < list.size(); ++t) {
    const Tensor& tensor = list[t];
    if (tensor.name.starts_with("seqlens")) {
      set_lengths(random, tensor, t);
      continue;
    }
    if (tensor.name.starts_with("page")) {
      set_pages(random, tensor, t);
      continue;
    }
    if (tensor.is_report) {
      for (std::int64_t i = 0; i < 4; ++i) store(t, i, i == 0 ? 0 : -1);
      continue;
    }
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      const bool is_random = tensor.name == "dropout_rng";
      const double value =
          is_random ? double(random.integer(-(1LL << 31), (1LL << 31) - 1)) : random.normal();
      store(t, i, tensor.is_written() ? std::nan("") : value);
    }
  }
}

}  // namespace tessera::fmha
