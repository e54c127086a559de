// The memo: finds the kernel for a problem that was seen before, without a lock.
#pragma once

#include <array>
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
#include "tessera/spec/problem_bytes.h"

namespace tessera {

// Everything that a choice depends on within one dispatcher. All of it but `force` is also there as
// bytes, which are hashed and compared.
struct MemoKey {
  MemoKey(const Problem& of, int most_threads, int on_device, std::string_view forced);
  MemoKey(const MemoKey&) = delete;
  MemoKey& operator=(const MemoKey&) = delete;
  std::string_view bytes() const;

  const Problem& problem;
  int threads;
  int device;
  std::string_view force;
  std::size_t size;
  std::array<char, 2 * sizeof(int) + 1 + kMostProblemBytes> all;  // the first `size` are written
};
std::uint64_t hash_of(const MemoKey& key);

// Readers follow one atomic pointer to a table of atomic pointers to entries. Nothing that a reader
// can reach is ever freed, and only the pointers change. Writers take a mutex. Entries live as long
// as the memo, so references stay valid. Outgrown tables live as long too; together they are as
// large as the last one.
class Memo {
 public:
  Memo();
  // Null when the key is not there. `hash` is hash_of(key).
  const ReadyKernel* find(const MemoKey& key, std::uint64_t hash) const;
  // Adds an entry unless the key has one already. Returns the entry of the key.
  const ReadyKernel& insert(const MemoKey& key, std::uint64_t hash, ReadyKernel kernel);
  std::size_t size() const;
  // Makes find() miss all keys without `force` whose kernel has this name. References to the
  // kernels stay valid.
  void forget(std::string_view kernel);

 private:
  struct Entry {
    std::uint64_t hash;
    std::string bytes;
    std::string force;
    ReadyKernel kernel;
    bool is_forgotten = false;  // guarded by mutex_, never read by readers
  };
  struct Table {
    explicit Table(std::size_t slots);
    std::size_t mask;
    std::vector<std::atomic<const Entry*>> slots;
  };
  static bool matches(const Entry& entry, const MemoKey& key, std::uint64_t hash);
  static void place(Table& table, const Entry& entry);
  void take_out(const Entry& entry);
  void grow();

  std::atomic<const Table*> table_ = nullptr;
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Table>> tables_;  // the last one is table_
  std::deque<Entry> entries_;
};

}  // namespace tessera
