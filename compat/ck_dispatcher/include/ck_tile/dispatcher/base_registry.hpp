// What the registries share: kernels by key, with priorities, merging and automatic export.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ck_tile::dispatcher {

enum class Priority { Low = 0, Normal = 1, High = 2 };

// Derived has export_json_to_file(path, include_statistics). Thread-safe. Kernels keep the order in
// which they were registered, so that the first fit is the same in every run.
template <class Derived, class Key, class Instance, class Hash = std::hash<Key>>
class BaseRegistry {
 public:
  using InstancePtr = std::shared_ptr<Instance>;
  struct Entry {
    InstancePtr instance;
    Priority priority;
  };

  BaseRegistry() = default;
  virtual ~BaseRegistry() = default;
  BaseRegistry(BaseRegistry&& other) noexcept { take(other); }
  BaseRegistry& operator=(BaseRegistry&& other) noexcept {
    if (this != &other) take(other);
    return *this;
  }
  BaseRegistry(const BaseRegistry&) = delete;
  BaseRegistry& operator=(const BaseRegistry&) = delete;

  // A kernel replaces one of the same key where its priority is strictly higher. Whether it is in.
  bool register_kernel(const Key& key, InstancePtr instance, Priority priority = Priority::Normal) {
    if (instance == nullptr || !insert(key, std::move(instance), priority, false)) return false;
    export_each();
    return true;
  }

  std::size_t size() const {
    return locked([this] { return held_.entries.size(); });
  }
  bool empty() const { return size() == 0; }
  void clear() {
    locked([this] { held_.entries.clear(), held_.places.clear(); });
  }
  std::string get_name() const {
    return locked([this] { return held_.name; });
  }
  void set_name(const std::string& name) {
    locked([&] { held_.name = name; });
  }
  std::vector<InstancePtr> get_all_instances() const {
    std::vector<InstancePtr> all;
    for (const auto& [key, entry] : copy()) all.push_back(entry.instance);
    return all;
  }
  // Takes the other registry's kernels with this priority; of two with one key the other's stays
  // where this priority is at least as high as the own one's. Returns how many came in.
  std::size_t merge_from(const BaseRegistry& other, Priority priority = Priority::Normal) {
    std::size_t count = 0;
    for (const auto& [key, entry] : other.copy()) {
      count += insert(key, entry.instance, priority, true) ? 1 : 0;
    }
    if (count > 0) export_each();
    return count;
  }

  // Writes the JSON to `path`: with `each` after each change, else when the registry ends.
  void enable_auto_export(const std::string& path, bool include_statistics = true,
                          bool each = true) {
    locked([&] { held_.exported = {path, include_statistics, each}; });
  }
  void disable_auto_export() {
    locked([this] { held_.exported = {}; });
  }
  bool is_auto_export_enabled() const { return !exported().path.empty(); }
  void perform_auto_export() {
    const Export wanted = exported();
    if (wanted.path.empty()) return;
    static_cast<Derived&>(*this).export_json_to_file(wanted.path, wanted.statistics);
  }

 protected:
  // What the destructors of registries call: an export that fails has nobody to tell.
  void export_at_end() noexcept {
    try {
      perform_auto_export();
    } catch (...) {
    }
  }
  // Whether the kernel is in; `also_equal`: it replaces one of the same priority, too.
  bool insert(const Key& key, InstancePtr instance, Priority priority, bool also_equal) {
    return locked([&] {
      const auto [place, is_new] = held_.places.emplace(key, held_.entries.size());
      if (is_new) {
        held_.entries.push_back({key, {std::move(instance), priority}});
        return true;
      }
      Entry& entry = held_.entries[place->second].second;
      if (priority < entry.priority || (priority == entry.priority && !also_equal)) return false;
      entry = {std::move(instance), priority};
      return true;
    });
  }
  void export_each() {
    if (exported().each) perform_auto_export();
  }
  InstancePtr find_key(const Key& key) const {
    return locked([&]() -> InstancePtr {
      const auto place = held_.places.find(key);
      return place == held_.places.end() ? nullptr : held_.entries[place->second].second.instance;
    });
  }
  // Kernels by falling priority, those of one priority as they were registered.
  std::vector<std::pair<Priority, std::vector<InstancePtr>>> grouped() const {
    std::vector<std::pair<Priority, std::vector<InstancePtr>>> groups;
    const std::vector<std::pair<Key, Entry>> entries = copy();
    for (const Priority priority : {Priority::High, Priority::Normal, Priority::Low}) {
      groups.emplace_back(priority, std::vector<InstancePtr>());
      for (const auto& [key, entry] : entries) {
        if (entry.priority == priority) groups.back().second.push_back(entry.instance);
      }
    }
    return groups;
  }
  std::vector<InstancePtr> by_priority() const {
    std::vector<InstancePtr> all;
    for (const auto& [priority, kernels] : grouped()) {
      all.insert(all.end(), kernels.begin(), kernels.end());
    }
    return all;
  }
  // Removes what `keep` refuses, and returns how many that were.
  template <class Keep>
  std::size_t keep_if(const Keep& keep) {
    return locked([&] {
      const std::size_t before = held_.entries.size();
      std::vector<std::pair<Key, Entry>> kept;
      for (auto& each : held_.entries) {
        if (keep(*each.second.instance)) kept.push_back(std::move(each));
      }
      held_.entries = std::move(kept);
      held_.places.clear();
      for (std::size_t i = 0; i < held_.entries.size(); ++i) {
        held_.places.emplace(held_.entries[i].first, i);
      }
      return before - held_.entries.size();
    });
  }

 private:
  struct Export {
    std::string path;  // empty: none
    bool statistics = true, each = true;
  };
  struct Held {
    std::vector<std::pair<Key, Entry>> entries;
    std::unordered_map<Key, std::size_t, Hash> places;
    std::string name = "default";
    Export exported;
  };

  template <class Work>
  auto locked(const Work& work) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return work();
  }
  std::vector<std::pair<Key, Entry>> copy() const {
    return locked([this] { return held_.entries; });
  }
  void take(BaseRegistry& other) {
    Held moved = other.locked([&other] { return std::exchange(other.held_, Held()); });
    locked([&] { held_ = std::move(moved); });
  }
  Export exported() const {
    return locked([this] { return held_.exported; });
  }
  mutable std::mutex mutex_;
  Held held_;
};

}  // namespace ck_tile::dispatcher
