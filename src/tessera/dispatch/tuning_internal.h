// What the dispatcher learns from measurements: winners and refused kernels in the store, and
// autotuning.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <vector>

#include "tessera/base/fork.h"
#include "tessera/dispatch/memo_internal.h"
#include "tessera/tune/store.h"

namespace tessera {

// Adds kernels that were left out of the choice to the decision's refused ones, which stay sorted
// by name.
void add_refused(Decision& decision, const std::vector<Considered>& refused);

// What measurements say about the choice for one problem. The store is read once for it.
struct Advice {
  // Kernels that were wrong, crashed or hung on this problem here, with what happened; by name.
  std::vector<Considered> refused;
  // The kernels that may be chosen: the declared ones, or else the target's whole space, without
  // the refused ones. Unset when it is the whole space.
  std::optional<std::vector<KernelSpec>> pool;
  // The caller's rankers, or else tuned, learned, analytic, first legal. With autotuning, the tuned
  // ranker comes first in both cases. It is left out where nothing was measured.
  std::vector<std::shared_ptr<const Ranker>> rankers;
};

// Thread-safe. The store is opened at its first use. Only autotuning creates it.
class Tuning {
 public:
  // The references must outlive the object.
  Tuning(const DispatcherOptions& options, const Target& target, Registry& registry,
         bool declared_only);
  Tuning(const Tuning&) = delete;
  Tuning& operator=(const Tuning&) = delete;

  // A caller who forces a kernel may have a refused one.
  Advice advice(const MemoKey& key) const;
  // Whether the store has a measurement of this problem.
  bool is_measured(const MemoKey& key) const { return !known(key).empty(); }

  // With autotuning on, or where the caller wants measurements in place of a model that has no
  // opinion, measures the problem on the key's device, unless the store has a winner for it or
  // `hash`, the key's, was tried before. A device measures one problem at a time, because
  // measurements would disturb each other. Only problems that need a measurement wait for it.
  void tune_once(const MemoKey& key, std::uint64_t hash);

  // From now on the kernel counts as refused for the problem, or with batch_invariant for all
  // batches of it; see sampling_internal.h.
  void set_aside(const Problem& problem, Considered kernel);

 private:
  // What tune_once() has to measure for a problem: nothing, the most promising kernels, or all.
  enum class Wanted { nothing, best, all };
  Wanted wanted(const MemoKey& key, std::uint64_t hash) const;
  void measure(const MemoKey& key, Wanted what) const;
  std::vector<Considered> aside(const Problem& problem) const;  // what was set aside for it
  std::string aside_key(const Problem& problem) const;
  bool was_tried(std::uint64_t hash) const;
  void remember(std::uint64_t hash);         // that it was tried
  WorkMutex& device_of(const MemoKey& key);  // is held by whoever measures on the key's device
  bool has_model(const MemoKey& key) const;
  std::filesystem::path store_file() const;  // empty: in memory, as the cache is
  tune::Store* open(bool create) const;
  std::vector<tune::Measurement> known(const MemoKey& key) const;
  std::optional<TunedEntry> winner_of(const std::vector<tune::Measurement>& known) const;
  std::optional<std::vector<KernelSpec>> pool(const Problem& problem,
                                              const std::vector<Considered>& refused) const;
  std::vector<KernelSpec> most_promising(const MemoKey& key,
                                         const std::vector<tune::Measurement>& known) const;

  const DispatcherOptions& options_;
  const Target& target_;
  Registry& registry_;
  bool declared_only_;
  // rankers for kernels that were not measured here
  std::vector<std::shared_ptr<const Ranker>> predictors_;
  std::vector<std::shared_ptr<const Ranker>> rankers_;  // the rankers after the tuned one
  bool asks_store_;                                     // whether there is a tuned ranker
  mutable Mutex mutex_;                                 // guards what follows
  mutable std::unique_ptr<tune::Store> store_;
  std::unordered_set<std::uint64_t> tried_;
  std::map<int, WorkMutex> devices_;
  std::map<std::string, std::vector<Considered>> aside_;
  std::atomic<bool> has_aside_ = false;  // not guarded
};

}  // namespace tessera
