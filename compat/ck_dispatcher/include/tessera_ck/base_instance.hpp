// What kernels of all operations share: a key, a spec, a machine.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tessera_ck/machine.hpp"

namespace tessera_ck {

// Key has `kernel`, Tessera's name, which has all fields.
template <class Key>
class BaseKernelInstance {
 public:
  const Key& get_key() const { return key_; }
  const std::string& get_name() const { return key_.kernel; }
  const tessera::KernelSpec& spec() const { return spec_; }
  const Machine& machine() const { return *machine_; }

 protected:
  BaseKernelInstance(Key key, const tessera::KernelSpec& spec, std::shared_ptr<Machine> machine)
      : key_(std::move(key)), spec_(spec), machine_(std::move(machine)) {}

  // Whether the rules let it compute the problem, with equal bits each time where that is wanted;
  // builds nothing.
  bool computes(const tessera::Problem& problem, bool is_deterministic = false) const {
    const auto found = decision(problem, is_deterministic);
    return found.has_value() && found->name == get_name();
  }
  // The time that it is predicted to take; 0 where nothing predicts it.
  double seconds_of(const tessera::Problem& problem) const {
    const auto found = decision(problem, false);
    return found.has_value() ? found->predicted_seconds : 0;
  }

 private:
  // The decision for this kernel, without a look at any other; nothing where it cannot compute the
  // problem.
  std::optional<tessera::Decision> decision(const tessera::Problem& problem,
                                            bool is_deterministic) const {
    const tessera::Target& target = machine_->dispatcher->target();
    tessera::ChooseOptions options;
    options.pinned = get_name();
    options.deterministic = is_deterministic;
    if (machine_->refusal.empty() && !tessera::is_gpu(target)) {
      options.threads = tessera::runtime::thread_limit({});  // those of a run
    }
    try {
      return tessera::choose(problem, target, options);
    } catch (const tessera::Error&) {
      return std::nullopt;
    }
  }

  Key key_;
  tessera::KernelSpec spec_;
  std::shared_ptr<Machine> machine_;
};

// The hash of a key that is told by its kernel's name.
struct KernelNameHash {
  template <class Key>
  std::size_t operator()(const Key& key) const {
    return std::hash<std::string>()(key.kernel);
  }
};

}  // namespace tessera_ck
