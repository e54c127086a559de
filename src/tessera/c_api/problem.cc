// Problems: lines, JSON, fields.
#include "tessera/base/text.h"
#include "tessera/c_api/handles_internal.h"
#include "tessera/spec/json_depth.h"

namespace tessera::c_api {
namespace {

// The line of the fields that were set. zero: what is required and missing is 0.
std::string line_of(const tsr_problem_t& problem, bool zero) {
  std::string line(to_string(problem.op));
  for (const auto& [field, value] : problem.fields) line += fmt::format(" {}={}", field, value);
  if (!zero) return line;
  for (const std::string& field : required_fields(problem.op)) {
    if (!problem.fields.contains(field)) line += " " + field + "=0";
  }
  return line;
}

// Goes back from a whole problem to its fields, so that one of them can be set.
void open_fields(tsr_problem_t& problem) {
  if (!problem.whole) return;
  const std::string line = to_string(*problem.whole);
  for (const std::string_view word : split_words(line)) {
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) continue;  // the operation
    problem.fields[std::string(word.substr(0, equals))] = word.substr(equals + 1);
  }
  problem.op = op_of(*problem.whole);
  problem.whole.reset();
}

// The field and its value are checked at once, the rules between fields when the problem is used.
void set_field(tsr_problem_t& problem, std::string_view field, const std::string& value) {
  if (value.empty() || value.find_first_of(" \t\r\n") != std::string::npos) {
    refuse(fmt::format("problem: {} must be one word, got '{}'", field, value));
  }
  tsr_problem_t changed = problem;
  open_fields(changed);
  changed.fields[std::string(field)] = value;
  parse_problem(line_of(changed, true));
  problem = std::move(changed);
}

void hand_out_problem(const Problem& problem, tsr_problem_t** place, ChoiceSettings choice = {}) {
  auto made = std::make_unique<tsr_problem_t>();
  made->op = op_of(problem);
  made->whole = problem;
  made->choice = std::move(choice);
  hand_out(*place, made.release());
}

// A setter's argument as a word of a line.
std::string word_of(const Json& value, std::string_view setter) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  if (value.is_number_float()) return fmt::format("{}", value.get<float>());
  if (value.is_number()) return value.dump();
  refuse(fmt::format("problem: {} takes words, numbers, true or false, got {}", setter,
                     shortened(value.dump(), 40)));
}

// The setters in the order of their names: which one is called first makes no difference.
std::vector<Setting> settings_of(std::string_view text) {
  check_json_depth(text, "problem: the setters");
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) {
    throw Error(ErrorCode::parse_error,
                fmt::format("problem: the setters must be a JSON object such as {{\"lse\": true}}, "
                            "got '{}'",
                            shortened(text, 40)));
  }
  std::vector<Setting> settings;
  for (const auto& [setter, value] : json.items()) {
    Setting& setting = settings.emplace_back();
    setting.setter = setter;
    for (const Json& each : value.is_array() ? value : Json::array({value})) {
      setting.arguments.push_back(word_of(each, setter));
    }
  }
  return settings;
}

Json to_json(const Tensor& tensor) {
  constexpr std::array<const char*, 3> kAccess = {"read", "write", "update"};
  Json sizes = Json::array();
  Json strides = Json::array();
  for (std::size_t i = 0; i < tensor.rank; ++i) {
    sizes.push_back(tensor.sizes[i]);
    strides.push_back(tensor.strides[i]);
  }
  return {{"name", tensor.name},
          {"access", kAccess[static_cast<std::size_t>(tensor.access)]},
          {"dtype", to_string(tensor.dtype)},
          {"sizes", sizes},
          {"strides", strides},
          {"batches", tensor.batches},
          {"batch_stride", tensor.batch_stride},
          {"bytes", tensor.bytes()},
          {"in_array", tensor.in_array}};
}

Json description_of(const Problem& problem) {
  const Family& family = family_of(problem);
  family.validate(problem);
  Json operands = Json::array();
  for (const Tensor& tensor : family.tensors(problem)) operands.push_back(to_json(tensor));
  return {
      {"flops", family.flops(problem)}, {"bytes", family.bytes(problem)}, {"operands", operands}};
}

}  // namespace

Problem problem_of(const tsr_problem_t* handle) {
  const tsr_problem_t& problem = object_of(handle, "problem");
  return problem.whole ? *problem.whole : parse_problem(line_of(problem, false));
}

Problem problem_for(const tsr_dispatcher_t& dispatcher, const tsr_problem_t* handle) {
  Problem problem = problem_of(handle);
  const ChoiceSettings& choice = object_of(handle, "problem").choice;
  if (choice.deterministic && !dispatcher.options.deterministic) {
    refuse(
        "problem: its setters ask for deterministic kernels, and the dispatcher was made without "
        "deterministic");
  }
  const std::string& target = dispatcher.dispatcher->target().name;
  const bool is_named = choice.target == target || choice.target == dispatcher.options.target;
  if (!choice.target.empty() && !is_named) {
    refuse(
        fmt::format("problem: its setters ask for the target '{}', and the dispatcher is for "
                    "'{}'",
                    choice.target, target));
  }
  return problem;
}

#pragma GCC visibility push(default)
extern "C" {

tsr_status_t tsr_problem_parse(const char* line, tsr_problem_t** problem) {
  return guarded([&] {
    result_of(problem, "problem");
    hand_out_problem(parse_problem(text_of(line, "problem's line")), problem);
  });
}

tsr_status_t tsr_problem_from_json(const char* json, tsr_problem_t** problem) {
  return guarded([&] {
    result_of(problem, "problem");
    hand_out_problem(problem_from_json(text_of(json, "problem's JSON")), problem);
  });
}

tsr_status_t tsr_problem_create(const char* op, tsr_problem_t** problem) {
  return guarded([&] {
    result_of(problem, "problem");
    auto made = std::make_unique<tsr_problem_t>();
    made->op = parse_op(text_of(op, "operation"));
    family_of(made->op);  // refuses an operation without kernels
    hand_out(*problem, made.release());
  });
}

tsr_status_t tsr_problem_set(tsr_problem_t* problem, const char* field, const char* value) {
  return guarded([&] {
    set_field(object_of(problem, "problem"), text_of(field, "field's name"),
              std::string(text_of(value, "field's value")));
  });
}

tsr_status_t tsr_problem_set_integer(tsr_problem_t* problem, const char* field, int64_t value) {
  return guarded([&] {
    set_field(object_of(problem, "problem"), text_of(field, "field's name"), std::to_string(value));
  });
}

tsr_status_t tsr_problem_set_number(tsr_problem_t* problem, const char* field, double value) {
  return guarded([&] {
    set_field(object_of(problem, "problem"), text_of(field, "field's name"),
              fmt::format("{}", static_cast<float>(value)));
  });
}

tsr_status_t tsr_problem_get(const tsr_problem_t* problem, const char* field, char** value) {
  return guarded([&] {
    result_of(value, "value");
    const Problem whole = problem_of(problem);
    const std::string_view key = text_of(field, "field's name");
    *value = copy_of(field_of(whole, key));
  });
}

tsr_status_t tsr_problem_line(const tsr_problem_t* problem, char** line) {
  return guarded([&] {
    result_of(line, "line");
    *line = copy_of(to_string(problem_of(problem)));
  });
}

tsr_status_t tsr_problem_json(const tsr_problem_t* problem, char** json) {
  return guarded([&] {
    result_of(json, "JSON");
    *json = copy_of(to_json(problem_of(problem)));
  });
}

tsr_status_t tsr_problem_validate(const tsr_problem_t* problem) {
  return guarded([&] {
    const Problem whole = problem_of(problem);
    family_of(whole).validate(whole);
  });
}

tsr_status_t tsr_problem_describe(const tsr_problem_t* problem, char** json) {
  return guarded([&] {
    result_of(json, "JSON");
    *json = json_copy(description_of(problem_of(problem)));
  });
}

tsr_status_t tsr_problem_build(const char* op, const char* json, tsr_problem_t** problem) {
  return guarded([&] {
    result_of(problem, "problem");
    const Family& family = family_of(parse_op(text_of(op, "operation")));
    SettledProblem made = family.from_settings(settings_of(text_of(json, "setters' JSON")));
    hand_out_problem(made.problem, problem, std::move(made.choice));
  });
}

void tsr_problem_destroy(tsr_problem_t* problem) { destroy(problem); }

}  // extern "C"
#pragma GCC visibility pop

}  // namespace tessera::c_api
