// The memo: finds the kernel for a problem that was seen before, without a lock.
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

// Readers follow one atomic pointer to a table of atomic pointers to entries. Nothing that a reader
// can reach is ever changed or freed. Writers take a mutex. Entries live as long as the memo, so
// references stay valid. Outgrown tables live as long too; together they are as large as the last
// one.
class Memo {
 public:
  Memo();
  // Null when the key is not there. `hash` is hash_of(key).
  const ReadyKernel* find(const MemoKey& key, std::uint64_t hash) const;
  // Adds an entry unless the key has one already. Returns the entry of the key.
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
