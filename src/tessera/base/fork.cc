#include "tessera/base/fork.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <new>
#include <string>

#include "tessera/base/error.h"
#include "tessera/base/forever.h"

namespace tessera {
namespace {

// How long a fork waits. A thread that holds a Mutex may wait for a thread that this fork keeps
// waiting. Without a limit, all three would wait for ever.
constexpr auto kPatience = std::chrono::seconds(1);

// A thread passes this gate before it takes a Mutex, and a fork closes the gate. One gate serves
// all Mutexes, because a fork concerns the whole process.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0;  // Mutexes that are held
  bool closed = false;
  std::atomic<unsigned> generation = 0;
  std::array<std::atomic<void (*)()>, 8> actions{};
};

thread_local int t_inside = 0;  // those that this thread holds

Gate& gate();

void before_fork() {
  Gate& g = gate();
  std::unique_lock lock(g.mutex);
  g.changed.wait(lock, [&] { return !g.closed; });
  g.closed = true;
  g.changed.wait_for(lock, kPatience, [&] { return g.inside == t_inside; });
  static_cast<void>(lock.release());  // held during the fork
}

void after_fork_in_parent() {
  Gate& g = gate();
  g.closed = false;
  g.mutex.unlock();
  g.changed.notify_all();
}

// Threads that waited for the gate do not exist in the child, so its queue is made anew.
void after_fork_in_child() {
  Gate& g = gate();
  g.closed = false;
  g.inside = t_inside;
  ::new (&g.changed) std::condition_variable;
  ++g.generation;
  g.mutex.unlock();
  for (const auto& action : g.actions) {
    if (action.load() != nullptr) action.load()();
  }
}

Gate& gate() {
  static Forever<Gate> instance;
  static const int kRegistered =
      pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  static_cast<void>(kRegistered);
  return *instance;
}

// A thread that is inside already may continue, because the fork waits for it.
void enter() {
  Gate& g = gate();
  std::unique_lock lock(g.mutex);
  if (t_inside == 0) g.changed.wait(lock, [&] { return !g.closed; });
  ++g.inside;
  ++t_inside;
}

void leave() {
  Gate& g = gate();
  const std::lock_guard lock(g.mutex);
  --g.inside;
  --t_inside;
  if (g.closed) g.changed.notify_all();
}

}  // namespace

void Mutex::lock() {
  enter();
  mutex_.lock();
}

bool Mutex::try_lock() {
  enter();
  if (mutex_.try_lock()) return true;
  leave();
  return false;
}

void Mutex::unlock() {
  mutex_.unlock();
  leave();
}

unsigned fork_generation() { return gate().generation.load(std::memory_order_relaxed); }

void at_fork_in_child(void (*action)()) {
  for (auto& place : gate().actions) {
    void (*none)() = nullptr;
    if (place.load() == action || place.compare_exchange_strong(none, action)) return;
  }
  throw Error(ErrorCode::internal,
              "forks: at most " + std::to_string(gate().actions.size()) +
                  " actions are called in a child, one more was named; make room in base/fork.cc");
}

void WorkMutex::lock() {
  {
    const std::lock_guard renewal(renewal_);
    if (generation_ != fork_generation()) ::new (&mutex_) std::mutex;
    generation_ = fork_generation();
  }
  mutex_.lock();
}

void WorkMutex::unlock() { mutex_.unlock(); }

}  // namespace tessera
