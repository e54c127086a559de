// The attention kernels that a dispatcher chooses from.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ck_tile/dispatcher/base_registry.hpp"
#include "ck_tile/dispatcher/fmha_kernel_instance.hpp"
#include "ck_tile/dispatcher/registry_json.hpp"

namespace ck_tile::dispatcher {

class FmhaRegistry
    : public BaseRegistry<FmhaRegistry, FmhaKernelKey, FmhaKernelInstance, FmhaKernelKeyHash> {
  using Base = BaseRegistry<FmhaRegistry, FmhaKernelKey, FmhaKernelInstance, FmhaKernelKeyHash>;

 public:
  using Priority = ck_tile::dispatcher::Priority;
  using Base::register_kernel;

  FmhaRegistry() = default;
  explicit FmhaRegistry(const std::string& name) { set_name(name); }
  FmhaRegistry(FmhaRegistry&&) noexcept = default;
  FmhaRegistry& operator=(FmhaRegistry&&) noexcept = default;
  ~FmhaRegistry() override { export_at_end(); }
  static FmhaRegistry& instance() {
    static FmhaRegistry registry;
    return registry;
  }

  // False for null, and where a kernel of the key has no lower priority.
  bool register_kernel(FmhaKernelInstancePtr instance, Priority priority = Priority::Normal) {
    if (instance == nullptr) return false;
    const FmhaKernelKey key = instance->get_key();
    return register_kernel(key, std::move(instance), priority);
  }
  // The kernels of a declared set; returns how many are new.
  template <class Set>
  std::size_t register_set(const Set& set, Priority priority = Priority::Normal) {
    std::size_t count = 0;
    for (const auto& wanted : set.declarations()) {
      for (FmhaKernelInstancePtr& one : kernels_of(wanted)) {
        count += register_kernel(std::move(one), priority) ? 1 : 0;
      }
    }
    return count;
  }

  // By identifier, or else by the kernel's name; null where there is none.
  FmhaKernelInstancePtr lookup(const std::string& identifier) const {
    FmhaKernelInstancePtr named;
    for (const FmhaKernelInstancePtr& one : by_priority()) {
      if (one->get_key().encode_identifier() == identifier) return one;
      if (named == nullptr && one->get_name() == identifier) named = one;
    }
    return identifier.empty() ? nullptr : named;
  }
  FmhaKernelInstancePtr lookup(const FmhaKernelKey& key) const { return find_key(key); }
  // By falling priority, then by rank, head sizes, tile and name.
  std::vector<FmhaKernelInstancePtr> get_all() const {
    std::vector<FmhaKernelInstancePtr> all;
    const auto place = [](const FmhaKernelInstancePtr& one) {
      const FmhaKernelKey& key = one->get_key();
      return std::make_tuple(key.algorithm.selection_rank, key.signature.hdim_q,
                             key.signature.hdim_v, key.algorithm.tile_shape.m0, one->get_name());
    };
    for (auto& [priority, kernels] : grouped()) {
      std::stable_sort(kernels.begin(), kernels.end(),
                       [&](const auto& a, const auto& b) { return place(a) < place(b); });
      all.insert(all.end(), kernels.begin(), kernels.end());
    }
    return all;
  }
  std::vector<FmhaKernelInstancePtr> all_kernels() const { return get_all(); }
  std::vector<FmhaKernelInstancePtr> filter(
      std::function<bool(const FmhaKernelInstance&)> keep) const {
    std::vector<FmhaKernelInstancePtr> kept;
    for (const FmhaKernelInstancePtr& one : get_all()) {
      if (keep(*one)) kept.push_back(one);
    }
    return kept;
  }

  // Keeps the kernels of one target, and those that name none; returns how many were removed.
  std::size_t filter_by_arch(const std::string& arch) {
    return keep_if([&](const FmhaKernelInstance& one) {
      const std::string& its = one.get_key().gfx_arch;
      return its.empty() || its == arch;
    });
  }
  // The same for a receipt's number.
  std::size_t filter_by_receipt(int number) {
    return keep_if([&](const FmhaKernelInstance& one) {
      const int its = one.get_key().signature.receipt;
      return its < 0 || its == number;
    });
  }
  std::vector<int> available_receipts() const {
    std::set<int> numbers;
    for (const FmhaKernelInstancePtr& one : by_priority()) {
      if (one->get_key().signature.receipt >= 0) numbers.insert(one->get_key().signature.receipt);
    }
    return {numbers.begin(), numbers.end()};
  }

  std::string export_json(bool include_statistics = true) const {
    detail::Counts counts;
    std::vector<std::string> rows;
    for (const FmhaKernelInstancePtr& one : get_all()) {
      const FmhaKernelKey& key = one->get_key();
      counts["by_family"][to_string(key.signature.family)]++;
      counts["by_dtype"][key.signature.data_type]++;
      counts["by_pipeline"][key.algorithm.pipeline]++;
      detail::JsonObject row;
      row.text("name", one->get_name()).text("identifier", key.encode_identifier());
      row.text("family", to_string(key.signature.family)).text("dtype", key.signature.data_type);
      row.text("pipeline", key.algorithm.pipeline).text("gfx_arch", key.gfx_arch);
      rows.push_back(row.str());
    }
    return detail::registry_json(get_name(), include_statistics, counts, rows);
  }
  // Whether it was written.
  bool export_json_to_file(const std::string& path, bool include_statistics = true) const {
    return detail::write_text(path, export_json(include_statistics));
  }
};

using FmhaRegistryPtr = std::shared_ptr<FmhaRegistry>;
inline FmhaRegistryPtr make_fmha_registry(const std::string& name = "") {
  auto made = std::make_shared<FmhaRegistry>();
  if (!name.empty()) made->set_name(name);
  return made;
}

}  // namespace ck_tile::dispatcher
