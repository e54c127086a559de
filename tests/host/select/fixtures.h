// Problems, kernels and rankers for the tests of the choice.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/select/select.h"

namespace tessera {

// "code: message" of what the action throws.
inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "no error";
}

inline std::vector<KernelSpec> parse_names(const std::vector<std::string>& names) {
  std::vector<KernelSpec> specs;
  for (const std::string& name : names) specs.push_back(parse_name(name));
  return specs;
}

// A ranker that gives the kernels named in a table their times, in the order of the times.
class FakeRanker final : public Ranker {
 public:
  FakeRanker(ChoiceSource source, std::map<std::string, double> times)
      : source_(source), times_(std::move(times)) {}
  ChoiceSource source() const override { return source_; }
  std::string why(const RankInput&, const Ranked&) const override { return "the test says so"; }
  std::vector<Ranked> rank(const RankInput& input) const override {
    ++asked;
    std::multimap<double, std::size_t> order;
    for (std::size_t i = 0; i < input.legal.size(); ++i) {
      const auto found = times_.find(name_of(input.legal[i]));
      if (found != times_.end()) order.emplace(found->second, i);
    }
    std::vector<Ranked> ranked;
    for (const auto& [time, index] : order) ranked.push_back({index, time});
    return ranked;
  }

  mutable int asked = 0;

 private:
  ChoiceSource source_;
  std::map<std::string, double> times_;
};

inline std::shared_ptr<const FakeRanker> fake(ChoiceSource source,
                                              std::map<std::string, double> times) {
  return std::make_shared<const FakeRanker>(source, std::move(times));
}

}  // namespace tessera
