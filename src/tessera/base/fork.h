// What a child of fork() finds: whole data, free mutexes, and how to tell what its parent's other
// threads had begun.
#pragma once

#include <mutex>

namespace tessera {

// A mutex that guards data in memory for a moment. A fork waits (a second at most) until no other
// thread holds one, so that the child finds it free and the data whole.
class Mutex {
 public:
  void lock();
  bool try_lock();
  void unlock();

 private:
  std::mutex mutex_;
};

// How many forks lie between this process and the one that was started. Work that was begun under
// another number was begun by a thread of a parent, which does not exist here.
unsigned fork_generation();

// Has `action` called in every child that is forked from now on, before fork() returns there. It
// must not fail, and may use what the C library allows after a fork. Throws Error{internal} when
// eight others are called already.
void at_fork_in_child(void (*action)());

// A mutex for work that takes long, which no fork waits for; it guards no data. In a child it is
// free, whoever held it in the parent.
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
