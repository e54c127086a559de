// A small evaluator of hipDNN's expressions (its RFC 0018), and of a launch that they describe.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace tessera::hipdnn {

using Json = nlohmann::json;

// The RFC has checked 64-bit integers; hipDNN's interpreter computes in doubles.
enum class Arithmetic { checked, doubles };

// The tensors, attributes and facts that a graph, a kernel and a device publish, by their full
// references: {"$a.rank": 2, "$a.dims[0]": 70}. What is not there is unknown.
using Environment = std::map<std::string, Json>;

// Null stands for unknown, which every operator but `and`, `or` and `if` passes on. Overflows and
// zero divisors are unknown, too.
class Evaluator {
 public:
  Evaluator(const Environment& environment, Arithmetic arithmetic)
      : environment_(environment), arithmetic_(arithmetic) {}

  Json value(const Json& expression) const {
    if (expression.is_string()) return reference(expression.get<std::string>());
    if (!expression.is_object()) return expression;
    if (expression.size() != 1) throw std::runtime_error("one operator each: " + expression.dump());
    const std::string& op = expression.begin().key();
    const Json& arguments = expression.begin().value();
    if (op == "and" || op == "or") return connected(op == "and", arguments);
    if (op == "if") return chosen(arguments);
    std::vector<Json> values;
    for (const Json& argument : arguments) values.push_back(value(argument));
    for (const Json& each : values) {
      if (each.is_null()) return nullptr;
    }
    return computed(op, values);
  }
  // A criterion that is unknown declines.
  bool accepts(const Json& criteria) const {
    const Json decided = value(criteria);
    return decided.is_boolean() && decided.get<bool>();
  }
  std::int64_t integer(const Json& expression) const {
    const Json number = value(expression);
    if (number.is_null()) throw std::runtime_error("no value: " + expression.dump());
    return arithmetic_ == Arithmetic::doubles ? static_cast<std::int64_t>(number.get<double>())
                                              : number.get<std::int64_t>();
  }

 private:
  Json reference(const std::string& text) const {
    if (text.empty() || text[0] != '$') return text;
    const auto found = environment_.find(text);
    return found == environment_.end() ? Json() : found->second;
  }
  Json connected(bool is_and, const Json& arguments) const {
    bool unknown = false;
    for (const Json& argument : arguments) {
      const Json each = value(argument);
      if (each.is_null()) {
        unknown = true;
      } else if (each.get<bool>() != is_and) {
        return !is_and;
      }
    }
    return unknown ? Json() : Json(is_and);
  }
  Json chosen(const Json& arguments) const {
    std::size_t i = 0;
    for (; i + 1 < arguments.size(); i += 2) {
      const Json condition = value(arguments[i]);
      if (condition.is_null()) return nullptr;
      if (condition.get<bool>()) return value(arguments[i + 1]);
    }
    return value(arguments.at(i));
  }
  Json computed(const std::string& op, const std::vector<Json>& v) const {
    if (op == "==") return v[0] == v[1];
    if (op == "in") return std::find(v[1].begin(), v[1].end(), v[0]) != v[1].end();
    if (op == "<=") return v[0] <= v[1];
    if (op == ">=") return v[0] >= v[1];
    Json sum = v[0];
    for (std::size_t i = 1; i < v.size() && !sum.is_null(); ++i) sum = combined(op, sum, v[i]);
    return sum;
  }
  Json combined(const std::string& op, const Json& left, const Json& right) const {
    if (arithmetic_ == Arithmetic::doubles) {
      return in_doubles(op, left.get<double>(), right.get<double>());
    }
    const auto a = left.get<std::int64_t>(), b = right.get<std::int64_t>();
    std::int64_t result = 0;
    if (op == "+") return __builtin_add_overflow(a, b, &result) ? Json() : Json(result);
    if (op == "-") return __builtin_sub_overflow(a, b, &result) ? Json() : Json(result);
    if (op == "*") return __builtin_mul_overflow(a, b, &result) ? Json() : Json(result);
    if (op == "min") return std::min(a, b);
    if (op == "max") return std::max(a, b);
    if (op == "ceil_div") return b == 0 ? Json() : Json(a / b + (a % b > 0 ? 1 : 0));
    throw std::runtime_error("unknown operator " + op);
  }
  static Json in_doubles(const std::string& op, double a, double b) {
    if (op == "+") return a + b;
    if (op == "-") return a - b;
    if (op == "*") return a * b;
    if (op == "min") return std::min(a, b);
    if (op == "max") return std::max(a, b);
    if (op == "ceil_div") return b == 0 ? Json() : Json(std::ceil(a / b));
    throw std::runtime_error("unknown operator " + op);
  }

  const Environment& environment_;
  Arithmetic arithmetic_;
};

// What a dispatch descriptor launches. Arguments lie one after the other, each at a multiple of its
// size, as the kernels' parameters do.
struct DescribedLaunch {
  std::vector<std::int64_t> grid, block;
  std::vector<std::byte> arguments;
};

inline void append_argument(const void* bytes, std::size_t size, std::vector<std::byte>& all) {
  all.resize((all.size() + size - 1) / size * size);
  const auto* const first = static_cast<const std::byte*>(bytes);
  all.insert(all.end(), first, first + size);
}

// `addresses` are those of the graph's tensors: {"$a": ...}.
inline DescribedLaunch launch_of(const Json& dispatch, const Evaluator& evaluator,
                                 const std::map<std::string, const void*>& addresses) {
  DescribedLaunch launch;
  for (const char* const axis : {"x", "y", "z"}) {
    launch.grid.push_back(evaluator.integer(dispatch["grid"][axis]));
    launch.block.push_back(evaluator.integer(dispatch["block"][axis]));
  }
  for (const Json& argument : dispatch["args_signature"]) {
    if (argument["kind"] == "pointer") {
      const void* const address = addresses.at(argument["source"]["ref"]);
      append_argument(&address, sizeof address, launch.arguments);
      continue;
    }
    const std::int64_t value = evaluator.integer(argument["source"]["expr"]);
    const std::size_t size = argument["type"] == "i32" ? 4 : 8;
    append_argument(&value, size, launch.arguments);  // little-endian, as AMD's GPUs are
  }
  return launch;
}

}  // namespace tessera::hipdnn
