// Lines of equations.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/spec/einsum.h"
#include "tessera/spec/problem.h"

namespace tessera {
namespace {

constexpr std::string_view kEinsumExample =
    "einsum bqhd,bkhd->bhqk sizes=b:2,q:128,h:8,d:64,k:128 dtype=bf16";

[[noreturn]] void refuse_line(const std::string& message) {
  throw Error(ErrorCode::parse_error, "problem: " + message);
}

std::int64_t einsum_number(std::string_view key, std::string_view text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec == std::errc{} && read.ptr == end) return value;
  refuse_line(fmt::format("{} takes integers, got '{}'", key, text));
}

std::map<char, std::int64_t> sizes_of(std::string_view text) {
  std::map<char, std::int64_t> sizes;
  for (const std::string_view word : split(text, ',')) {
    if (word.size() < 3 || word[1] != ':') {
      refuse_line(fmt::format("sizes are such as b:2,q:128, got '{}'", word));
    }
    if (!sizes.emplace(word[0], einsum_number("sizes", word.substr(2))).second) {
      refuse_line(fmt::format("sizes has {} twice", word[0]));
    }
  }
  return sizes;
}

class EinsumLine {
 public:
  explicit EinsumLine(std::string_view line) : words_(split_words(line)) {
    if (words_.size() < 2)
      refuse_line(fmt::format("einsum needs an equation, as in '{}'", kEinsumExample));
    einsum_.equation = words_[1];
    std::string rest = "gemm m=0 n=0 k=0";
    for (std::size_t i = 2; i < words_.size(); ++i) {
      if (!take(words_[i])) rest += fmt::format(" {}", words_[i]);
    }
    if (sizes_.empty()) refuse_line(fmt::format("einsum needs sizes, as in '{}'", kEinsumExample));
    einsum_.like = std::get<GemmProblem>(parse_problem(rest));
    const std::size_t comma = einsum_.equation.find(','), arrow = einsum_.equation.find("->");
    if (comma >= arrow || arrow == std::string::npos) return;  // is refused later
    set_operand(einsum_.equation.substr(0, comma), einsum_.a);
    set_operand(einsum_.equation.substr(comma + 1, arrow - comma - 1), einsum_.b);
    for (const auto& [letter, size] : sizes_) {
      if (einsum_.equation.find(letter) != std::string::npos) continue;
      refuse_line(fmt::format("sizes has {}, which '{}' lacks", letter, einsum_.equation));
    }
  }
  const Einsum& einsum() const { return einsum_; }

 private:
  std::vector<std::int64_t>* strides_of(std::string_view operand) {
    if (operand == "a") return &einsum_.a.strides;
    if (operand == "b") return &einsum_.b.strides;
    if (operand == "out") return &einsum_.out;
    if (operand == "c") return &einsum_.c;
    for (std::size_t i = 0; i < kMaxD; ++i) {
      if (operand == fmt::format("d{}", i)) return &einsum_.d.at(i);
    }
    return nullptr;
  }

  bool take(std::string_view word) {
    constexpr std::string_view kSizes = "sizes=", kStrides = "strides_";
    if (word.starts_with(kSizes)) {
      sizes_ = sizes_of(word.substr(kSizes.size()));
      return true;
    }
    const std::size_t equals = word.find('=');
    if (!word.starts_with(kStrides) || equals == std::string_view::npos) return false;
    const std::string_view key = word.substr(0, equals);
    auto* const strides = strides_of(key.substr(kStrides.size()));
    if (strides == nullptr) refuse_line(fmt::format("unknown key '{}' for einsum", key));
    for (const std::string_view one : split(word.substr(equals + 1), ',')) {
      strides->push_back(einsum_number(key, one));
    }
    return true;
  }

  void set_operand(const std::string& letters, EinsumTensor& tensor) const {
    for (const char letter : letters) {
      const auto found = sizes_.find(letter);
      if (found == sizes_.end()) {
        refuse_line(fmt::format("sizes lacks {}, as in '{}'", letter, kEinsumExample));
      }
      tensor.sizes.push_back(found->second);
    }
  }

  std::vector<std::string_view> words_;
  std::map<char, std::int64_t> sizes_;
  Einsum einsum_;
};

}  // namespace

GemmProblem parse_einsum(std::string_view line) {
  return einsum_problem(EinsumLine(line).einsum());
}

}  // namespace tessera
