// Memory that stays with a thread between calls.
#pragma once

#include <pthread.h>

namespace tessera {

// One T for each thread, made at its first use. It is freed after the thread's thread_local
// variables, so that their destructors may use it. If it is used even later, it is made anew and
// freed again. The main thread's T lives until the process ends.
template <class T>
T& per_thread() {
  thread_local T* mine = nullptr;
  if (mine != nullptr) return *mine;
  struct Key {
    pthread_key_t key = 0;
    bool is_good = pthread_key_create(&key, [](void* of_thread) {
                     mine = nullptr;
                     delete static_cast<T*>(of_thread);
                   }) == 0;
  };
  static const Key kKey;
  mine = new T;
  if (kKey.is_good) pthread_setspecific(kKey.key, mine);
  return *mine;
}

}  // namespace tessera
