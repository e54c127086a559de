// What the registries of Tessera's kernels share: sets, names, targets, JSON.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera_ck/base_instance.hpp"
#include "tessera_ck/base_registry.hpp"
#include "tessera_ck/json_text.hpp"

namespace tessera_ck {

// Instance is a BaseKernelInstance<Key> that is made of a spec and a machine.
template <class Derived, class Key, class Instance, class Hash>
class KernelRegistry : public BaseRegistry<Derived, Key, Instance, Hash> {
 public:
  using Base = BaseRegistry<Derived, Key, Instance, Hash>;
  using Base::register_kernel;
  using typename Base::InstancePtr;

  bool register_kernel(InstancePtr instance, Priority priority = Priority::Normal) {
    const Key key = instance->get_key();
    return register_kernel(key, std::move(instance), priority);
  }
  // These two return how many kernels are new.
  std::size_t register_specs(const std::vector<tessera::KernelSpec>& specs,
                             const std::shared_ptr<Machine>& machine,
                             Priority priority = Priority::Normal) {
    std::size_t count = 0;
    for (const tessera::KernelSpec& spec : specs) {
      count += register_kernel(std::make_shared<Instance>(spec, machine), priority) ? 1 : 0;
    }
    return count;
  }
  template <class Set>
  std::size_t register_set(const Set& set, Priority priority = Priority::Normal) {
    std::size_t count = 0;
    for (const auto& wanted : set.declarations()) {
      const std::shared_ptr<Machine> machine = machine_for(wanted.arch);
      count += register_specs(kernels_of(wanted), machine, priority);
    }
    return count;
  }

  // By Tessera's name; null where it is not here.
  InstancePtr lookup(const std::string& identifier) const {
    return first([&](const Instance& one) { return one.get_name() == identifier; });
  }
  InstancePtr lookup(const Key& key) const { return this->find_key(key); }
  // By falling priority.
  std::vector<InstancePtr> get_all() const { return this->by_priority(); }
  std::vector<InstancePtr> filter(const std::function<bool(const Instance&)>& keep) const {
    std::vector<InstancePtr> kept;
    for (const InstancePtr& one : get_all()) {
      if (keep(*one)) kept.push_back(one);
    }
    return kept;
  }
  // The first of get_all() that is kept; null where there is none.
  InstancePtr first(const std::function<bool(const Instance&)>& keep) const {
    for (const InstancePtr& one : get_all()) {
      if (keep(*one)) return one;
    }
    return nullptr;
  }
  // Keeps the kernels of one target, and returns how many were removed.
  std::size_t filter_by_arch(const std::string& arch) {
    const std::string name = machine_for(arch)->name;
    return this->keep_if([&](const Instance& one) { return one.spec().target == name; });
  }

  static Derived& instance() {
    static Derived registry("instance");
    return registry;
  }

 protected:
  KernelRegistry() = default;
  ~KernelRegistry() = default;

  // `row`: a kernel's JSON between the braces; it counts the kernel.
  std::string json_of(
      bool include_statistics,
      const std::function<std::string(const Instance&, detail::Counts&)>& row) const {
    detail::Counts counts;
    std::string rows;
    for (const InstancePtr& one : get_all()) {
      rows += (rows.empty() ? "\n    {" : ",\n    {") + row(*one, counts) + "}";
    }
    return detail::registry_json(this->get_name(), this->size(), include_statistics, counts, rows);
  }
};

}  // namespace tessera_ck
