// Plans by the lines of their problems, each made once, over Tessera's C ABI alone.
#pragma once

#include <tessera/tessera.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace tessera_plugs {

// What a launch expects at one place: the operand's name, its type's word and its bytes.
struct Operand {
  std::string name, dtype;
  int64_t bytes = 0;
};

struct Plan {
  tsr_plan_t* handle = nullptr;
  std::vector<Operand> operands;  // in the order of tsr_launch()

  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() { tsr_plan_destroy(handle); }
};

using SharedPlan = std::shared_ptr<const Plan>;

// A dispatcher and the plans that it made. Threads may share it.
struct Plans {
  tsr_dispatcher_t* dispatcher = nullptr;
  std::mutex mutex;
  std::unordered_map<std::string, SharedPlan> by_line;
};

// More lines than these are forgotten, all at once: a program whose shapes never repeat must not
// grow.
constexpr size_t kMostPlans = 4096;

inline void check(tsr_status_t status) {
  if (status != TSR_OK) {
    throw std::runtime_error(tsr_error());
  }
}

// The text between the next quotes behind `key`, from `at` on, which is moved behind it.
inline std::string text_of(const std::string& json, const char* key, size_t& at) {
  at = json.find(key, at) + std::string(key).size();
  const size_t begin = json.find('"', json.find(':', at)) + 1;
  at = json.find('"', begin);
  return json.substr(begin, at - begin);
}

inline int64_t number_of(const std::string& json, const char* key, size_t& at) {
  at = json.find(':', json.find(key, at)) + 1;
  return std::strtoll(json.c_str() + at, nullptr, 10);
}

// The list of operands that tsr_problem_describe() gives.
inline std::vector<Operand> operands_of(const std::string& json) {
  std::vector<Operand> found;
  size_t at = json.find("\"operands\"");
  while (at != std::string::npos && json.find("\"name\"", at) != std::string::npos) {
    Operand operand;
    operand.name = text_of(json, "\"name\"", at);
    operand.dtype = text_of(json, "\"dtype\"", at);
    operand.bytes = number_of(json, "\"bytes\"", at);
    found.push_back(operand);
  }
  return found;
}

inline SharedPlan make_plan(tsr_dispatcher_t* dispatcher, const std::string& line) {
  tsr_problem_t* parsed = nullptr;
  check(tsr_problem_parse(line.c_str(), &parsed));
  const std::unique_ptr<tsr_problem_t, void (*)(tsr_problem_t*)> problem(parsed,
                                                                         tsr_problem_destroy);
  char* json = nullptr;
  check(tsr_problem_describe(parsed, &json));
  auto plan = std::make_shared<Plan>();
  plan->operands = operands_of(json);
  tsr_free(json);
  check(tsr_plan(dispatcher, parsed, nullptr, &plan->handle));
  return plan;
}

// Two threads that ask for a new line at once may both make its plan; one of them is kept.
inline SharedPlan plan_of(Plans& plans, const std::string& line) {
  {
    const std::lock_guard<std::mutex> lock(plans.mutex);
    const auto found = plans.by_line.find(line);
    if (found != plans.by_line.end()) {
      return found->second;
    }
  }
  SharedPlan made = make_plan(plans.dispatcher, line);
  const std::lock_guard<std::mutex> lock(plans.mutex);
  if (plans.by_line.size() >= kMostPlans) {
    plans.by_line.clear();
  }
  return plans.by_line.emplace(line, made).first->second;
}

}  // namespace tessera_plugs
