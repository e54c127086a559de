// Problems as lines of key=value words and as JSON. Both go through one list of (key, text) pairs.
#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "tessera/spec/einsum.h"
#include "tessera/spec/json_internal.h"

namespace tessera {
namespace {

// One field as it was given. Quoted: it was a JSON string.
struct Given {
  std::string key;
  std::string text;
  bool quoted = false;
};
using GivenFields = std::vector<Given>;

[[noreturn]] void refuse_problem(const std::string& message) {
  throw Error(ErrorCode::parse_error, "problem: " + message);
}

template <class Number>
bool read_number(std::string_view text, Number& value) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc{} && result.ptr == end;
}

// The text of one value, and its reading: false when the text is none.
std::string text_of(bool value) { return value ? "1" : "0"; }
std::string text_of(std::int64_t value) { return std::to_string(value); }
std::string text_of(float value) { return fmt::format("{}", value == 0 ? 0.0F : value); }
std::string text_of(const Epilogue& value) { return to_string(value); }
std::string text_of(const GemmDims& value) { return to_string(value); }
template <Worded Enum>
std::string text_of(Enum value) {
  return std::string(word_of(value));
}

bool read_text(std::string_view text, bool& value) {
  value = text == "1" || text == "true";
  return value || text == "0" || text == "false";
}
bool read_text(std::string_view text, std::int64_t& value) { return read_number(text, value); }
bool read_text(std::string_view text, float& value) { return read_number(text, value); }
bool read_text(std::string_view text, Epilogue& value) {
  value = parse_epilogue(text);
  return true;
}
bool read_text(std::string_view text, GemmDims& value) {
  value = parse_gemm_dims(text);
  return true;
}
template <Worded Enum>
bool read_text(std::string_view text, Enum& value) {
  return read_word(text, value);
}

template <class T>
std::string expected() {
  if constexpr (Worded<T>) return one_of<T>();
  if constexpr (std::is_same_v<T, bool>) return "0 or 1";
  if constexpr (std::is_same_v<T, float>) return "a number";
  return "an integer";
}

template <class T>
void read_given(const Given& given, T& value) {
  const bool is_number = std::is_same_v<T, bool> || std::is_integral_v<T>;
  bool ok = false;
  try {
    ok = !(given.quoted && is_number) && read_text(given.text, value);
  } catch (const Error& error) {
    refuse_problem(given.key + ": " + error.what());
  }
  if (ok) return;
  std::string hint;
  if constexpr (Worded<T>) hint = did_you_mean(given.text, known_words<T>());
  refuse_problem(
      fmt::format("{} must be {}, got '{}'{}", given.key, expected<T>(), given.text, hint));
}

// The keys of the types that dtype=... stands for, and the defaults of a struct of these types.
template <class P>
struct TypeKeys;

template <>
struct TypeKeys<GemmProblem> {
  static constexpr std::string_view kFirst = "a";
  static constexpr std::string_view kSecond = "b";
  static constexpr std::string_view kExample = "gemm m=128 n=3072 k=768 dtype=bf16";
  static DType first(const GemmProblem& p) { return p.a; }
  static DType second(const GemmProblem& p) { return p.b; }
  static GemmProblem standard(DType a, DType b, DType out) {
    GemmProblem problem = gemm_problem(a, GemmLayout::rcr, 0, 0, 0);
    problem.b = b;
    problem.d = out;
    return problem;
  }
};

template <>
struct TypeKeys<NormProblem> {
  static constexpr std::string_view kFirst = "in";
  static constexpr std::string_view kSecond = "weight";
  static constexpr std::string_view kExample = "norm kind=softmax rows=512 columns=4096 dtype=bf16";
  static DType first(const NormProblem& p) { return p.in; }
  static DType second(const NormProblem& p) { return p.weight; }
  static NormProblem standard(DType in, DType weight, DType) {
    return {.in = in, .weight = weight, .out = default_output(in)};
  }
};

template <>
struct TypeKeys<ConvProblem> {
  static constexpr std::string_view kFirst = "in";
  static constexpr std::string_view kSecond = "weight";
  static constexpr std::string_view kExample =
      "conv direction=forward n=32 c=64 k=64 h=56 w=56 y=3 x=3 pad_h=1 pad_w=1 dtype=bf16";
  static DType first(const ConvProblem& p) { return p.in; }
  static DType second(const ConvProblem& p) { return p.weight; }
  static ConvProblem standard(DType in, DType weight, DType out) {
    ConvProblem problem;
    problem.in = in;
    problem.weight = weight;
    problem.acc = default_accumulator(in);
    problem.out = default_output(in);
    problem.d = out;
    return problem;
  }
};

template <>
struct TypeKeys<FmhaProblem> {
  static constexpr std::string_view kFirst = "in";
  static constexpr std::string_view kSecond = "dtype_bias";
  static constexpr std::string_view kExample =
      "fmha batch=2 heads=16 seqlen_q=512 seqlen_k=512 hdim=128 dtype=bf16";
  static DType first(const FmhaProblem& p) { return p.in; }
  static DType second(const FmhaProblem& p) { return p.dtype_bias; }
  static FmhaProblem standard(DType in, DType dtype_bias, DType) {
    return {.in = in, .out = default_output(in), .dtype_bias = dtype_bias};
  }
};

// A router has one type, that of the logits.
template <>
struct TypeKeys<RouteProblem> {
  static constexpr std::string_view kFirst = "in";
  static constexpr std::string_view kSecond = "in";
  static constexpr std::string_view kExample = "route tokens=512 experts=128 top_k=8 dtype=bf16";
  static DType first(const RouteProblem& p) { return p.in; }
  static DType second(const RouteProblem& p) { return p.in; }
  static RouteProblem standard(DType in, DType, DType) { return {.in = in}; }
};

template <class P>
DType out_of(const P& problem) {
  if constexpr (requires { problem.out; }) return problem.out;
  return DType::fp32;
}

const Given* find(const GivenFields& fields, std::string_view key) {
  for (const Given& given : fields) {
    if (given.key == key) return &given;
  }
  return nullptr;
}

std::optional<DType> given_type(const GivenFields& fields, std::string_view key) {
  const Given* given = find(fields, key);
  if (given == nullptr) return std::nullopt;
  DType dtype{};
  read_given(*given, dtype);
  return dtype;
}

// dtype=bf16 sets every type, dtype=fp8,bf8 the types of two operands; a=, b=, out= ... go before
// it.
template <class P>
P start_with_types(const GivenFields& fields) {
  using Keys = TypeKeys<P>;
  const P plain;
  DType first = Keys::first(plain);
  std::optional<DType> second;
  if (const Given* dtype = find(fields, "dtype")) {
    const auto words = split(dtype->text, ',');
    const std::size_t most = Keys::kFirst == Keys::kSecond ? 1 : 2;
    if (words.size() > most) {
      refuse_problem(fmt::format("dtype takes at most {} dtype{}, got {}", most,
                                 most == 1 ? "" : "s", words.size()));
    }
    read_given({"dtype", std::string(words[0])}, first);
    if (words.size() == 2) read_given({"dtype", std::string(words[1])}, second.emplace());
  }
  first = given_type(fields, Keys::kFirst).value_or(first);
  const DType b = given_type(fields, Keys::kSecond).value_or(second.value_or(first));
  return Keys::standard(first, b, given_type(fields, "out").value_or(default_output(first)));
}

template <class P>
void check_given(Op op, const GivenFields& fields) {
  std::vector<std::string> known = {"dtype"};
  const P plain;
  for_each_field(plain, [&](const std::string& key, const auto&, const auto&, const Rule& rule) {
    known.push_back(key);
    if (rule.required && find(fields, key) == nullptr) {
      refuse_problem(
          fmt::format("{} needs {}, as in '{}'", to_string(op), key, TypeKeys<P>::kExample));
    }
  });
  for (const Given& given : fields) {
    if (find(fields, given.key) != &given) refuse_problem(given.key + " is given twice");
    if (std::find(known.begin(), known.end(), given.key) != known.end()) continue;
    const std::string hint = did_you_mean(given.key, known);
    refuse_problem(fmt::format("unknown key '{}' for {}{}", given.key, to_string(op),
                               hint.empty() ? ": known are " + join(known, ", ") : hint));
  }
}

template <class P>
Problem problem_from(Op op, const GivenFields& fields) {
  check_given<P>(op, fields);
  P problem = start_with_types<P>(fields);
  for_each_field(problem, [&](const std::string& key, auto& value, const auto&, const Rule&) {
    if (const Given* given = find(fields, key)) read_given(*given, value);
  });
  return problem;
}

Problem problem_of(Op op, const GivenFields& fields) {
  if (op == Op::gemm) return problem_from<GemmProblem>(op, fields);
  if (op == Op::norm) return problem_from<NormProblem>(op, fields);
  if (op == Op::conv) return problem_from<ConvProblem>(op, fields);
  if (op == Op::fmha) return problem_from<FmhaProblem>(op, fields);
  return problem_from<RouteProblem>(op, fields);
}

// Compares every field with the default that goes with the problem's types.
template <class P>
std::string line_of(const P& problem) {
  using Keys = TypeKeys<P>;
  const DType first = Keys::first(problem);
  const DType second = Keys::second(problem);
  const P standard = Keys::standard(first, second, out_of(problem));
  GivenFields defaults;
  for_each_field(standard,
                 [&](const std::string& key, const auto& value, const auto&, const Rule&) {
                   defaults.push_back({key, text_of(value)});
                 });
  std::string line;
  std::size_t index = 0;
  for_each_field(
      problem, [&](const std::string& key, const auto& value, const auto& plain, const Rule& rule) {
        const std::string text = text_of(value);
        const bool is_default = text == defaults[index++].text;
        if (key == Keys::kFirst && !(value == plain && first == second)) {
          line += fmt::format(" dtype={}", text);
          if (first != second) line += fmt::format(",{}", word_of(second));
        }
        if (rule.required || !is_default) line += fmt::format(" {}={}", key, text);
      });
  return line;
}

template <class P>
std::vector<std::string> required_of() {
  std::vector<std::string> keys;
  const P plain;
  for_each_field(plain, [&](const std::string& key, const auto&, const auto&, const Rule& rule) {
    if (rule.required) keys.push_back(key);
  });
  return keys;
}

bool is_packed(const std::int64_t& value) { return value == kPacked; }
template <class T>
bool is_packed(const T&) {
  return false;
}

}  // namespace

std::string to_string(const Problem& problem) {
  const auto line = [](const auto& fields) { return line_of(fields); };
  return std::string(to_string(op_of(problem))) + std::visit(line, problem);
}

Problem parse_problem(std::string_view line) {
  const auto words = split_words(line);
  if (words.empty()) {
    refuse_problem("the line is empty, expected such as 'gemm m=128 n=3072 k=768 dtype=bf16'");
  }
  if (words[0] == "einsum") return parse_einsum(line);
  Op op{};
  if (!read_word(words[0], op)) {
    refuse_problem(unknown_word(Words<Op>::kNoun, words[0], known_words<Op>()));
  }
  GivenFields fields;
  for (const std::string_view word : std::span(words).subspan(1)) {
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      refuse_problem(fmt::format("expected key=value, got '{}'", word));
    }
    fields.push_back({std::string(word.substr(0, equals)), std::string(word.substr(equals + 1))});
  }
  return problem_of(op, fields);
}

std::vector<std::string> required_fields(Op op) {
  if (op == Op::gemm) return required_of<GemmProblem>();
  if (op == Op::norm) return required_of<NormProblem>();
  if (op == Op::conv) return required_of<ConvProblem>();
  if (op == Op::fmha) return required_of<FmhaProblem>();
  return required_of<RouteProblem>();
}

std::string field_of(const Problem& problem, std::string_view key) {
  std::vector<std::string> known;
  std::optional<std::string> found;
  std::visit(
      [&](const auto& fields) {
        for_each_field(fields,
                       [&](const std::string& name, const auto& value, const auto&, const Rule&) {
                         known.push_back(name);
                         if (name == key) found = is_packed(value) ? "packed" : text_of(value);
                       });
      },
      problem);
  if (found) return *found;
  throw Error(ErrorCode::not_found,
              fmt::format("problem: {} has no field '{}'{}", to_string(op_of(problem)), key,
                          did_you_mean(key, known)));
}

std::string to_json(const Problem& problem) {
  auto object = nlohmann::ordered_json::object();
  object["op"] = to_string(op_of(problem));
  std::visit(
      [&](const auto& fields) {
        for_each_field(fields,
                       [&](const std::string& key, const auto& value, const auto&, const Rule&) {
                         if (!is_packed(value)) object[key] = write_json(value, Defaults::write);
                       });
      },
      problem);
  return dump_json(object);
}

Problem problem_from_json(std::string_view text) {
  const nlohmann::json object = parse_json(text, "problem");
  const JsonPlace place{"problem", ""};
  if (!object.is_object()) refuse_json(place, "an object", object);
  if (!object.contains("op")) missing_json(place.key("op"));
  const Op op = read_json_word<Op>(object["op"], place.key("op"));
  GivenFields fields;
  for (const auto& [key, value] : object.items()) {
    if (key == "op") continue;
    if (value.is_structured() || value.is_null()) {
      refuse_json(place.key(key), "a number or a word", value);
    }
    const bool quoted = value.is_string();
    fields.push_back({key, quoted ? value.get<std::string>() : value.dump(), quoted});
  }
  return problem_of(op, fields);
}

}  // namespace tessera
