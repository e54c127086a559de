// Support for fork(): a child finds consistent data and free mutexes, and can tell which work its
// parent's other threads had begun.
#pragma once

#include <mutex>

namespace tessera {

// A mutex that guards data in memory for a moment. A fork waits, at most a second, until no other
// thread holds one, so that in the child the mutex is free and the data are consistent.
class Mutex {
 public:
  void lock();
  bool try_lock();
  void unlock();

 private:
  std::mutex mutex_;
};

// The number of forks between the first process and this one. Work that was begun under another
// number belongs to a thread of a parent, which does not exist here.
unsigned fork_generation();

// Registers `action` to be called in every later child, before fork() returns there. The action
// must not fail, and may use only what the C library allows after a fork. Throws Error{internal}
// when eight actions are registered already.
void at_fork_in_child(void (*action)());

// A mutex for work that takes long. It guards no data, so a fork does not wait for it. In a child
// it is free, even when a thread of the parent held it.
class WorkMutex {
 public:
  void lock();
  void unlock();

 private:
  Mutex renewal_;
  std::mutex mutex_;
  unsigned generation_ = fork_generation();
};

}  // namespace tessera
