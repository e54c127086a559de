// The memo: from what was asked to the kernel that answers it, without a lock on the way.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/fork.h"
#include "tessera/dispatch/dispatcher.h"

namespace tessera {

// Everything that a choice depends on within one dispatcher.
struct MemoKey {
  const Problem& problem;
  int threads;
  int device;
  std::string_view force;
};
std::uint64_t hash_of(const MemoKey& key);

// Readers follow one atomic pointer to a table of atomic pointers to entries; nothing they can
// reach is ever changed or freed. Writers take a mutex. Entries are kept for the memo's lifetime,
// so references stay valid, and so are outgrown tables: together they are as large as the last.
class Memo {
 public:
  Memo();
  // Null when the key is not there. `hash` is hash_of(key).
  const ReadyKernel* find(const MemoKey& key, std::uint64_t hash) const;
  // The entry that is there afterwards: an earlier one of the same key stays.
  const ReadyKernel& insert(const MemoKey& key, std::uint64_t hash, ReadyKernel kernel);
  std::size_t size() const;

 private:
  struct Entry {
    std::uint64_t hash;
    Problem problem;
    int threads;
    int device;
    std::string force;
    ReadyKernel kernel;
  };
  struct Table {
    explicit Table(std::size_t slots);
    std::size_t mask;
    std::vector<std::atomic<const Entry*>> slots;
  };
  static bool matches(const Entry& entry, const MemoKey& key, std::uint64_t hash);
  static void place(Table& table, const Entry& entry);
  void grow();

  std::atomic<const Table*> table_ = nullptr;
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Table>> tables_;  // the last one is table_
  std::deque<Entry> entries_;
};

}  // namespace tessera
