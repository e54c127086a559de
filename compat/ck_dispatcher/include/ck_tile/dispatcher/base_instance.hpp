// What kernels of all operations share: a key, a spec, a machine.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "ck_tile/dispatcher/machine.hpp"

namespace ck_tile::dispatcher {

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

  // Whether the rules let it compute the problem; builds nothing.
  bool computes(const tessera::Problem& problem, bool is_deterministic = false) const {
    return is_able(*machine_, get_name(), problem, is_deterministic);
  }
  double seconds_of(const tessera::Problem& problem) const {
    return dispatcher::predicted_seconds(*machine_, get_name(), problem);
  }

 private:
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

}  // namespace ck_tile::dispatcher
