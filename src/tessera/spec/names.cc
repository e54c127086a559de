// Kernel names: the tables of name_parts_internal.h, walked by name_of and by parse_name. The
// grammar is in docs/vocabulary.md.
#include <fmt/format.h>

#include <charconv>

#include "tessera/spec/epilogue_internal.h"
#include "tessera/spec/name_parts_internal.h"
#include "tessera/spec/words_internal.h"

namespace tessera {
namespace {

constexpr std::string_view kDigits = "0123456789";

// Words of names hold no '_': "gelu_tanh" is written "gelutanh".
void add_squeezed(std::string_view word, std::string& name) {
  for (const char letter : word) {
    if (letter != '_') name += letter;
  }
}

bool is_squeezed(std::string_view word, std::string_view text) {
  std::size_t at = 0;
  for (const char letter : word) {
    if (letter == '_') continue;
    if (at == text.size() || text[at++] != letter) return false;
  }
  return at == text.size();
}

// ---- values ----

// A C identifier has no sign, so a spec with a negative number has no name.
template <class Value>
requires std::is_integral_v<Value>
void add_value(Value value, std::string& name) {
  const int number = static_cast<int>(value);
  if (number < 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("kernel name: numbers must not be negative, got {}", number));
  }
  char text[16];
  const auto end = std::to_chars(text, text + sizeof(text), number).ptr;
  name.append(text, end);
}
template <Worded Enum>
void add_value(Enum value, std::string& name) {
  add_squeezed(word_of(value), name);
}
void add_value(const Shape3& shape, std::string& name) {
  add_value(shape.m, name);
  add_value(shape.n, name += 'x');
  add_value(shape.k, name += 'x');
}

template <class Value>
requires std::is_integral_v<Value>
bool read_value(std::string_view text, Value& value) {
  int number = 0;
  const char* end = text.data() + text.size();
  if (text.empty() || text[0] < '0' || text[0] > '9') return false;
  const auto result = std::from_chars(text.data(), end, number);
  if (result.ec != std::errc{} || result.ptr != end) return false;
  value = number;
  return true;
}
template <Worded Enum>
bool read_value(std::string_view text, Enum& value) {
  const auto& all = Words<Enum>::kAll;
  const auto found = std::find_if(all.begin(), all.end(), [&](std::string_view candidate) {
    return is_squeezed(candidate, text);
  });
  if (found == all.end()) return false;
  value = static_cast<Enum>(found - all.begin());
  return true;
}
bool read_value(std::string_view text, Shape3& shape) { return read_shape(text, shape); }

bool read_step(std::string_view word, EpilogueStep& step) {
  const std::size_t end = word.find_last_not_of(kDigits) + 1;
  EpilogueOp op{};
  if (!read_value(word.substr(0, end), op)) return false;
  return read_epilogue_word(fmt::format("{}{}", to_string(op), word.substr(end)), step);
}

// ---- parts ----

void add_epilogue(const Epilogue& epilogue, std::string& name) {
  if (epilogue == Epilogue{}) return;
  const std::string reason = invalid_reason(epilogue);
  if (!reason.empty()) throw Error(ErrorCode::invalid_argument, reason);
  for (const std::string& word : epilogue_words(epilogue)) add_squeezed(word, name += '_');
}

template <class Struct, class Value>
void add_part(const NamePart<Struct, Value>& part, const Struct& object, std::string& name) {
  static constexpr Struct kStandard{};
  const Value& value = object.*part.member;
  if constexpr (std::is_same_v<Value, Epilogue>) {
    add_epilogue(value, name);
  } else {
    const auto& [source, value_of] = part.follows;
    if (!part.is_required) {
      const bool is_standard =
          source == nullptr ? value == kStandard.*part.member : value == value_of(object.*source);
      if (is_standard) return;
    }
    name.append(1, '_').append(part.prefix);
    if constexpr (!std::is_same_v<Value, bool>) add_value(value, name);
    name.append(part.suffix);
  }
}

template <class Struct, class First, class Second>
void add_part(const NamePair<Struct, First, Second>& part, const Struct& object,
              std::string& name) {
  static constexpr Struct kStandard{};
  const First first = object.*part.first;
  const Second second = object.*part.second;
  if (first == kStandard.*part.first && second == kStandard.*part.second) return;
  add_value(first, name.append(1, '_').append(part.prefix));
  add_value(second, name.append(part.separator));
}

// False when the word belongs to another part.
template <class Struct, class Value>
bool read_part(const NamePart<Struct, Value>& part, std::string_view word, Struct& object,
               std::vector<EpilogueStep>& steps) {
  if constexpr (std::is_same_v<Value, Epilogue>) {
    EpilogueStep step{};
    if (!read_step(word, step)) return false;
    steps.push_back(step);
  } else if constexpr (std::is_same_v<Value, bool>) {
    if (word != part.prefix) return false;
    object.*part.member = true;
  } else {
    if (!word.starts_with(part.prefix) || !word.ends_with(part.suffix)) return false;
    word.remove_prefix(part.prefix.size());
    if (word.size() < part.suffix.size()) return false;
    word.remove_suffix(part.suffix.size());
    Value value{};
    if (!read_value(word, value)) return false;
    set_with_followers(object, part.member, value);
  }
  return true;
}

template <class Struct, class First, class Second>
bool read_part(const NamePair<Struct, First, Second>& part, std::string_view word, Struct& object,
               std::vector<EpilogueStep>&) {
  if (!word.starts_with(part.prefix)) return false;
  word.remove_prefix(part.prefix.size());
  // Digits end the word, and without a separator they begin the second value.
  const std::size_t middle = word.find_last_not_of(kDigits) + 1;
  if (middle < part.separator.size() || !word.substr(0, middle).ends_with(part.separator)) {
    return false;
  }
  return read_value(word.substr(0, middle - part.separator.size()), object.*part.first) &&
         read_value(word.substr(middle), object.*part.second);
}

// All possible words, to suggest the nearest: none of parts that end in numbers.
template <class Value>
void add_words_of(std::string_view prefix, std::vector<std::string>& words) {
  if constexpr (Worded<Value>) {
    for (const std::string_view word : Words<Value>::kAll) {
      add_squeezed(word, words.emplace_back(prefix));
    }
  } else if constexpr (std::is_same_v<Value, Epilogue>) {
    add_words_of<EpilogueOp>(prefix, words);
  } else if constexpr (std::is_same_v<Value, bool>) {
    words.emplace_back(prefix);
  }
}
template <class Struct, class Value>
void add_words(const NamePart<Struct, Value>& part, std::vector<std::string>& words) {
  add_words_of<Value>(part.prefix, words);
}
template <class Struct, class First, class Second>
void add_words(const NamePair<Struct, First, Second>& part, std::vector<std::string>& words) {
  add_words_of<First>(part.prefix, words);
}

bool is_target_name(std::string_view word) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  return !word.empty() && word.find_first_not_of(kLetters) == std::string_view::npos;
}

// ---- reading ----

// Whether a visitor returns true for one of the rows; those behind it are not visited.
template <class Rows, class Visit>
bool any_of(const Rows& rows, Visit&& visit) {
  return rows([&](const auto&... row) { return (visit(row) || ...); });
}

// The words of a name, and the place that has been reached.
class Walker {
 public:
  explicit Walker(std::string_view name) : name_(name), words_(split(name, '_')) {}

  KernelSpec parse() {
    Op op{};
    if (!read_word(words_[0], op)) fail("an operation", known_words<Op>());
    ++next_;
    spec_.signature = blank_signature(op);
    std::visit([&](auto& signature) { read_fields(signature); }, spec_.signature);
    return spec_;
  }

 private:
  template <class Signature>
  void read_fields(Signature& signature) {
    read_in_order(NameParts<Signature>::kHead, signature);
    read_in_order(NameParts<Algorithm>::kHead, spec_.algorithm);
    while (next_ + 1 < words_.size()) read_option(signature);
    if (next_ == words_.size() || !is_target_name(words_[next_])) fail("a target", {});
    spec_.target = words_[next_];
    finish(signature);
  }

  // Parts that may be left out are named in the message about the part after them.
  template <class Parts, class Struct>
  void read_in_order(const Parts& parts, Struct& object) {
    std::string expected;
    std::vector<std::string> known;
    any_of(parts, [&](const auto& part) {
      if (next_ < words_.size() && read_part(part, words_[next_], object, steps_)) {
        ++next_;
        expected.clear();
        known.clear();
        return false;
      }
      expected += (expected.empty() ? "" : " or ") + std::string(part.what);
      add_words(part, known);
      if (part.is_required) fail(expected, known);
      return false;
    });
  }

  template <class Signature>
  void read_option(Signature& signature) {
    constexpr const auto& kOwn = NameParts<Signature>::kOptions;
    constexpr const auto& kCommon = NameParts<Algorithm>::kOptions;
    const std::string_view word = words_[next_];
    const auto reads = [&](auto& object) {
      return [&](const auto& part) { return read_part(part, word, object, steps_); };
    };
    if (any_of(kOwn, reads(signature)) || any_of(kCommon, reads(spec_.algorithm))) {
      ++next_;
      return;
    }
    std::vector<std::string> known;
    const auto add = [&](const auto& part) { return add_words(part, known), false; };
    any_of(kOwn, add);
    any_of(kCommon, add);
    refuse(fmt::format("expected an option or the target as word {}, got '{}'{}", next_ + 1, word,
                       did_you_mean(word, known)));
  }

  // Options may be parsed in any order, but only one spelling is the name.
  template <class Signature>
  void finish(Signature& signature) {
    try {
      const Epilogue epilogue = epilogue_of(steps_);
      if constexpr (requires { signature.epilogue; }) signature.epilogue = epilogue;
    } catch (const Error& error) {
      refuse(error.what());
    }
    const std::string name = name_of(spec_);
    if (name == name_) return;
    refuse(fmt::format("options have one order and defaults are left out, the name is '{}'", name));
  }

  [[noreturn]] void fail(std::string_view expected, const std::vector<std::string>& known) const {
    const std::string all = known.empty() ? "" : fmt::format(" ({})", fmt::join(known, ", "));
    if (next_ >= words_.size()) {
      refuse(fmt::format("expected {}{} as word {}, but the name ends there", expected, all,
                         next_ + 1));
    }
    const std::string hint = did_you_mean(words_[next_], known);
    refuse(fmt::format("expected {}{} as word {}, got '{}'{}", expected, hint.empty() ? all : "",
                       next_ + 1, words_[next_], hint));
  }

  [[noreturn]] void refuse(const std::string& message) const {
    throw Error(ErrorCode::parse_error, fmt::format("kernel name '{}': {}", name_, message));
  }

  std::string_view name_;
  std::vector<std::string_view> words_;
  std::size_t next_ = 0;
  KernelSpec spec_;
  std::vector<EpilogueStep> steps_;  // of the epilogue, which they make when all are known
};

}  // namespace

std::string name_of(const KernelSpec& spec) {
  std::string name(to_string(op_of(spec)));
  name.reserve(96);
  const auto add = [&](const auto& parts, const auto& object) {
    parts([&](const auto&... part) { (add_part(part, object, name), ...); });
  };
  const Algorithm& how = spec.algorithm;
  std::visit(
      [&](const auto& signature) {
        using Parts = NameParts<std::remove_cvref_t<decltype(signature)>>;
        add(Parts::kHead, signature);
        add(NameParts<Algorithm>::kHead, how);
        add(Parts::kOptions, signature);
        add(NameParts<Algorithm>::kOptions, how);
      },
      spec.signature);
  if (!is_target_name(spec.target)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("kernel name: target must be lower-case letters and digits, got '{}'",
                            spec.target));
  }
  return name.append(1, '_').append(spec.target);
}

KernelSpec parse_name(std::string_view name) { return Walker(name).parse(); }

}  // namespace tessera
