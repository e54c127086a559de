// What the registries share: kernels by key, with priorities, merging and automatic export.
#pragma once

#include <cstddef>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tessera_ck/dispatcher_error.hpp"

namespace tessera_ck {

enum class Priority { Low, Normal, High };

// Derived has `std::string export_json(bool include_statistics) const`. Thread-safe. Kernels keep
// the order in which they were registered, so that the first fit is the same in every run.
template <class Derived, class Key, class Instance, class Hash>
class BaseRegistry {
 public:
  using InstancePtr = std::shared_ptr<Instance>;

  // A kernel replaces one of the same key where its priority is strictly higher. Whether it is in.
  bool register_kernel(const Key& key, InstancePtr instance, Priority priority = Priority::Normal) {
    const bool is_in = insert(key, std::move(instance), priority, false);
    if (is_in && exports_each()) perform_auto_export();
    return is_in;
  }

  std::size_t size() const {
    return locked([this] { return entries_.size(); });
  }
  bool empty() const { return size() == 0; }
  void clear() {
    locked([this] { entries_.clear(), places_.clear(); });
  }
  std::string get_name() const {
    return locked([this] { return name_; });
  }
  void set_name(const std::string& name) {
    locked([&] { name_ = name; });
  }
  std::vector<InstancePtr> get_all_instances() const {
    std::vector<InstancePtr> all;
    const std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_) all.push_back(entry.instance);
    return all;
  }

  // Takes the other registry's kernels with this priority; of two with one key the other's stays
  // where this priority is at least as high as the own one's. Returns how many came in.
  std::size_t merge_from(const BaseRegistry& other, Priority priority = Priority::Normal) {
    std::size_t count = 0;
    for (const Entry& entry : other.locked([&other] { return other.entries_; })) {
      count += insert(entry.key, entry.instance, priority, true);
    }
    if (count > 0 && exports_each()) perform_auto_export();
    return count;
  }

  // Writes the JSON to `path` now and then: with `on_every_registration` after each change, else by
  // perform_auto_export() and when the registry ends.
  void enable_auto_export(const std::string& path, bool include_statistics = true,
                          bool on_every_registration = true) {
    locked([&] { export_ = {path, include_statistics, on_every_registration}; });
  }
  void disable_auto_export() {
    locked([this] { export_ = {}; });
  }
  bool is_auto_export_enabled() const { return !exported().path.empty(); }
  // Throws DispatcherError where the file cannot be written.
  void perform_auto_export() const {
    const Export wanted = exported();
    if (wanted.path.empty()) return;
    write_file(wanted.path, static_cast<const Derived&>(*this).export_json(wanted.statistics));
  }

  static void write_file(const std::string& path, const std::string& text) {
    std::ofstream file(path);
    if (!(file << text) || !file.flush()) throw DispatcherError("cannot write " + path);
  }

 protected:
  BaseRegistry() = default;
  ~BaseRegistry() = default;
  // What the destructors of registries call: an export that fails has nobody to tell.
  void export_at_end() const noexcept {
    try {
      perform_auto_export();
    } catch (...) {
    }
  }
  BaseRegistry(const BaseRegistry&) = delete;
  BaseRegistry& operator=(const BaseRegistry&) = delete;

  InstancePtr find_key(const Key& key) const {
    const std::lock_guard lock(mutex_);
    const auto place = places_.find(key);
    return place == places_.end() ? nullptr : entries_[place->second].instance;
  }

  // Kernels by falling priority, those of one priority as they were registered.
  std::vector<InstancePtr> by_priority() const {
    std::vector<InstancePtr> all;
    const std::lock_guard lock(mutex_);
    for (const Priority priority : {Priority::High, Priority::Normal, Priority::Low}) {
      for (const Entry& entry : entries_) {
        if (entry.priority == priority) all.push_back(entry.instance);
      }
    }
    return all;
  }

  // Removes what `keep` refuses, and returns how many that were.
  template <class Keep>
  std::size_t keep_if(const Keep& keep) {
    const std::lock_guard lock(mutex_);
    std::vector<Entry> kept;
    for (Entry& entry : entries_) {
      if (keep(*entry.instance)) kept.push_back(std::move(entry));
    }
    const std::size_t removed = entries_.size() - kept.size();
    entries_ = std::move(kept);
    places_.clear();
    for (std::size_t i = 0; i < entries_.size(); ++i) places_.emplace(entries_[i].key, i);
    return removed;
  }

 private:
  struct Entry {
    Key key;
    InstancePtr instance;
    Priority priority;
  };

  struct Export {
    std::string path;  // empty: none
    bool statistics = true, each = true;
  };

  template <class Work>
  auto locked(const Work& work) const {
    const std::lock_guard lock(mutex_);
    return work();
  }
  Export exported() const {
    return locked([this] { return export_; });
  }
  bool exports_each() const {
    const Export wanted = exported();
    return !wanted.path.empty() && wanted.each;
  }

  bool insert(const Key& key, InstancePtr instance, Priority priority, bool also_equal) {
    const std::lock_guard lock(mutex_);
    const auto [place, is_new] = places_.emplace(key, entries_.size());
    if (is_new) {
      entries_.push_back({key, std::move(instance), priority});
      return true;
    }
    Entry& entry = entries_[place->second];
    if (priority < entry.priority || (priority == entry.priority && !also_equal)) return false;
    entry = {key, std::move(instance), priority};
    return true;
  }

  mutable std::mutex mutex_;
  std::string name_ = "default";
  std::vector<Entry> entries_;
  std::unordered_map<Key, std::size_t, Hash> places_;
  Export export_;
};

}  // namespace tessera_ck
