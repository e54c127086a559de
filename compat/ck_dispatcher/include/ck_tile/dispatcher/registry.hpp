// The GEMM kernels that a dispatcher chooses from.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ck_tile/dispatcher/backends/tessera_gemm_sets.hpp"
#include "ck_tile/dispatcher/base_registry.hpp"
#include "ck_tile/dispatcher/registry_json.hpp"

namespace ck_tile::dispatcher {

class Registry : public BaseRegistry<Registry, KernelKey, KernelInstance, KernelKeyHash> {
  using Base = BaseRegistry<Registry, KernelKey, KernelInstance, KernelKeyHash>;

 public:
  using Priority = ck_tile::dispatcher::Priority;
  using Base::register_kernel;

  Registry() = default;
  explicit Registry(const std::string& name) { set_name(name); }
  Registry(Registry&&) noexcept = default;
  Registry& operator=(Registry&&) noexcept = default;
  ~Registry() override { export_at_end(); }

  // False for null, and where a kernel of the key has no lower priority.
  bool register_kernel(KernelInstancePtr instance, Priority priority = Priority::Normal) {
    if (instance == nullptr) return false;
    const KernelKey key = instance->get_key();
    return register_kernel(key, std::move(instance), priority);
  }
  // Tessera's kernel of a key, such as that of a KernelConfig.
  bool register_kernel(const KernelKey& key, const std::string& name,
                       Priority priority = Priority::Normal) {
    return register_kernel(key, backends::gemm_kernel_of(key, name), priority);
  }
  // The kernels of a declared set; returns how many are new.
  template <class Set>
  std::size_t register_set(const Set& set, Priority priority = Priority::Normal) {
    std::size_t count = 0;
    for (const auto& wanted : set.declarations()) {
      for (KernelInstancePtr& one : kernels_of(wanted)) {
        count += register_kernel(std::move(one), priority) ? 1 : 0;
      }
    }
    return count;
  }

  // By identifier, or else by the kernel's name; null where there is none.
  KernelInstancePtr lookup(const std::string& identifier) const {
    KernelInstancePtr named;
    for (const KernelInstancePtr& one : get_all()) {
      if (one->get_key().encode_identifier() == identifier) return one;
      if (named == nullptr && one->get_name() == identifier) named = one;
    }
    return identifier.empty() ? nullptr : named;
  }
  KernelInstancePtr lookup(const KernelKey& key) const { return find_key(key); }
  // By falling priority, those of one priority as they were registered.
  std::vector<KernelInstancePtr> get_all() const { return by_priority(); }
  std::vector<KernelInstancePtr> filter(std::function<bool(const KernelInstance&)> keep) const {
    std::vector<KernelInstancePtr> kept;
    for (const KernelInstancePtr& one : get_all()) {
      if (keep(*one)) kept.push_back(one);
    }
    return kept;
  }
  // Keeps the kernels of one target, and returns how many were removed.
  std::size_t filter_by_arch(const std::string& arch) {
    return keep_if([&](const KernelInstance& one) { return one.get_key().gfx_arch == arch; });
  }

  std::size_t get_kernel_count() const { return size(); }

  std::string export_json(bool include_statistics = true) const {
    detail::Counts counts;
    std::vector<std::string> rows;
    for (const KernelInstancePtr& one : get_all()) {
      detail::count_kernel(one->get_key(), counts);
      rows.push_back(export_kernel_json(*one));
    }
    return detail::registry_json(get_name(), include_statistics, counts, rows);
  }
  std::string to_json() const { return export_json(); }
  // Whether it was written.
  bool export_json_to_file(const std::string& path, bool include_statistics = true) const {
    return detail::write_text(path, export_json(include_statistics));
  }

  static Registry& instance() {
    static Registry registry;
    return registry;
  }
};

using RegistryPtr = std::shared_ptr<Registry>;
inline RegistryPtr make_registry(const std::string& name = "") {
  auto made = std::make_shared<Registry>();
  if (!name.empty()) made->set_name(name);
  return made;
}

// The kernels that come with Tessera for fp16 and rcr, as the original's generated function
// registers what was generated.
inline std::size_t register_all_tile_gemm_kernels(const std::string& gfx_arch = {},
                                                  Priority priority = Priority::Normal,
                                                  Registry& registry = Registry::instance()) {
  std::size_t count = 0;
  for (const std::string& name :
       backends::shipped_kernels(*backends::machine_for(gfx_arch), "fp16_rcr_essential")) {
    count += registry.register_kernel(backends::named_gemm_kernel(name), priority) ? 1 : 0;
  }
  return count;
}
inline std::size_t get_tile_gemm_kernel_count(const std::string& gfx_arch = {}) {
  return backends::shipped_kernels(*backends::machine_for(gfx_arch), "fp16_rcr_essential").size();
}

}  // namespace ck_tile::dispatcher
