// The fastest kernel for a problem: by a model or a measurement that there is, else measured now.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera_ck/machine.hpp"

namespace tessera_ck {

// Among `names`; empty: all that the machine has. What is measured now are the best by estimate;
// the winner is remembered in the tuning store, as `tessera tune` does.
inline std::string fastest_kernel(const Machine& machine, const tessera::Problem& problem,
                                  const std::vector<std::string>& names) {
  tessera::DispatcherOptions options = machine.options;
  options.without_model = tessera::WithoutModel::measure;
  options.without_model_top = options.autotune_top;
  std::string best;
  translated([&] {
    std::unique_ptr<tessera::Dispatcher> dispatcher;
    if (names.empty()) {
      dispatcher = std::make_unique<tessera::Dispatcher>(options);
    } else {
      const auto declared = std::make_shared<tessera::Registry>("declared");
      for (const std::string& name : names) declared->declare(tessera::parse_name(name));
      dispatcher = std::make_unique<tessera::Dispatcher>(options, declared);
    }
    best = machine.refusal.empty() ? dispatcher->kernel_for(problem).name
                                   : dispatcher->explain(problem).name;
  });
  return best;
}

}  // namespace tessera_ck
