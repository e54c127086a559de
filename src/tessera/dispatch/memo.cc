#include <cstring>

#include "tessera/base/forever.h"
#include "tessera/base/hash.h"
#include "tessera/dispatch/memo_internal.h"

namespace tessera {
namespace {

constexpr std::size_t kFirstSlots = 64;

}  // namespace

MemoKey::MemoKey(const Problem& of, int most_threads, int on_device, std::string_view forced)
    : problem(of), threads(most_threads), device(on_device), force(forced) {
  const std::array numbers = {threads, device};
  std::memcpy(all.data(), numbers.data(), sizeof(numbers));
  all[sizeof(numbers)] = static_cast<char>(problem.index());
  constexpr std::size_t kBefore = sizeof(numbers) + 1;
  size = kBefore + write_bytes(problem, all.data() + kBefore);
}

std::string_view MemoKey::bytes() const { return {all.data(), size}; }

std::uint64_t hash_of(const MemoKey& key) {
  const std::uint64_t hash = hash64(key.bytes());
  return key.force.empty() ? hash : hash64(key.force, hash);
}

Memo::Table::Table(std::size_t count) : mask(count - 1), slots(count) {}

Memo::Memo() { grow(); }

const ReadyKernel* Memo::find(const MemoKey& key, std::uint64_t hash) const {
  const Table& table = *table_.load(std::memory_order_acquire);
  for (std::size_t i = hash & table.mask;; i = (i + 1) & table.mask) {
    const Entry* entry = table.slots[i].load(std::memory_order_acquire);
    if (entry == nullptr) return nullptr;
    if (matches(*entry, key, hash)) return &entry->kernel;
  }
}

const ReadyKernel& Memo::insert(const MemoKey& key, std::uint64_t hash, ReadyKernel kernel) {
  const std::lock_guard lock(mutex_);
  if (const ReadyKernel* known = find(key, hash)) return *known;
  if (2 * (entries_.size() + 1) > tables_.back()->slots.size()) grow();
  entries_.push_back(
      Entry{hash, std::string(key.bytes()), std::string(key.force), std::move(kernel), false});
  place(*tables_.back(), entries_.back());
  return entries_.back().kernel;
}

std::size_t Memo::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

void Memo::forget(std::string_view kernel) {
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) {
    if (entry.is_forgotten || !entry.force.empty() || entry.kernel.name != kernel) continue;
    entry.is_forgotten = true;
    take_out(entry);
  }
}

// No key has an empty text, so an entry with one matches none, and readers look on behind it.
void Memo::take_out(const Entry& entry) {
  static const Forever<Entry> nobody(Entry{0, {}, {}, {}, false});
  Table& table = *tables_.back();
  for (std::size_t i = entry.hash & table.mask;; i = (i + 1) & table.mask) {
    if (table.slots[i].load(std::memory_order_relaxed) != &entry) continue;
    table.slots[i].store(&*nobody, std::memory_order_release);
    return;
  }
}

bool Memo::matches(const Entry& entry, const MemoKey& key, std::uint64_t hash) {
  return entry.hash == hash && entry.bytes == key.bytes() && entry.force == key.force;
}

// There is always a free slot, because tables are at most half full.
void Memo::place(Table& table, const Entry& entry) {
  std::size_t i = entry.hash & table.mask;
  while (table.slots[i].load(std::memory_order_relaxed) != nullptr) i = (i + 1) & table.mask;
  table.slots[i].store(&entry, std::memory_order_release);
}

// The table is published after it is filled. Readers of the old table miss newer entries only.
void Memo::grow() {
  const std::size_t count = tables_.empty() ? kFirstSlots : 2 * tables_.back()->slots.size();
  auto table = std::make_unique<Table>(count);
  for (const Entry& entry : entries_) {
    if (!entry.is_forgotten) place(*table, entry);
  }
  table_.store(table.get(), std::memory_order_release);
  tables_.push_back(std::move(table));
}

}  // namespace tessera
