/* Lets what a newer glibc's headers compiled run on glibc 2.28: linked into the library and the
 * worker of a wheel, where these symbols are found before the system's. x86-64 alone.
 *
 * A function that has got a new version since, or has moved from libpthread or libdl to libc, is
 * called by its first version, which every glibc keeps. One that is younger is written here.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#define HIDDEN __attribute__((visibility("hidden")))
/* `name` calls `old` of the version `version`. Each stands in a section of its own, which the linker
 * leaves out where nobody calls it. */
#define OLD(name, old, version)                                                                   \
  __asm__(".symver first_" #old ", " #old "@GLIBC_" version "\n.section .text." #name             \
          ",\"ax\",@progbits\n.globl " #name "\n.hidden " #name "\n.type " #name                  \
          ", @function\n" #name ":\njmp first_" #old "@PLT\n.size " #name ", .-" #name "\n.text")

OLD(exp, exp, "2.2.5");
OLD(log, log, "2.2.5");
OLD(log2, log2, "2.2.5");
OLD(pow, pow, "2.2.5");
OLD(dlclose, dlclose, "2.2.5");
OLD(dlerror, dlerror, "2.2.5");
OLD(dlopen, dlopen, "2.2.5");
OLD(dlsym, dlsym, "2.2.5");
OLD(dladdr1, dladdr1, "2.3.3");
OLD(pthread_create, pthread_create, "2.2.5");
OLD(pthread_join, pthread_join, "2.2.5");
OLD(pthread_key_create, pthread_key_create, "2.2.5");
OLD(__pthread_key_create, __pthread_key_create, "2.2.5");
OLD(pthread_mutex_trylock, pthread_mutex_trylock, "2.2.5");
OLD(pthread_mutexattr_init, pthread_mutexattr_init, "2.2.5");
OLD(pthread_mutexattr_destroy, pthread_mutexattr_destroy, "2.2.5");
OLD(pthread_mutexattr_settype, pthread_mutexattr_settype, "2.2.5");
OLD(pthread_once, pthread_once, "2.2.5");
OLD(pthread_setspecific, pthread_setspecific, "2.2.5");
OLD(pthread_sigmask, pthread_sigmask, "2.2.5");

/* What the system's headers made of these before 2.33: the first argument is the struct's form. */
struct stat;
enum { kForm = 1 };
__asm__(".symver first_xstat, __xstat@GLIBC_2.2.5");
__asm__(".symver first_lxstat, __lxstat@GLIBC_2.2.5");
__asm__(".symver first_fxstat, __fxstat@GLIBC_2.2.5");
__asm__(".symver first_fxstatat, __fxstatat@GLIBC_2.4");
int first_xstat(int form, const char* path, struct stat* out);
int first_lxstat(int form, const char* path, struct stat* out);
int first_fxstat(int form, int file, struct stat* out);
int first_fxstatat(int form, int folder, const char* path, struct stat* out, int flags);
#define SAME(name) __attribute__((visibility("hidden"), alias(#name)))

HIDDEN int stat(const char* path, struct stat* out) { return first_xstat(kForm, path, out); }
HIDDEN int lstat(const char* path, struct stat* out) { return first_lxstat(kForm, path, out); }
HIDDEN int fstat(int file, struct stat* out) { return first_fxstat(kForm, file, out); }
HIDDEN int fstatat(int folder, const char* path, struct stat* out, int flags) {
  return first_fxstatat(kForm, folder, path, out, flags);
}
SAME(stat) int stat64(const char* path, struct stat* out);
SAME(lstat) int lstat64(const char* path, struct stat* out);
SAME(fstat) int fstat64(int file, struct stat* out);

/* Says that threads may run, so that counts of references are always atomic. */
HIDDEN char __libc_single_threaded = 0;

/* std::random_device reads it. A process that gets no randomness from Linux cannot go on. */
HIDDEN uint32_t arc4random(void) {
  uint32_t number = 0;
  if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number)) abort();
  return number;
}

enum { kBillion = 1000000000 };

static int64_t nanoseconds(const struct timespec* time) {
  return (int64_t)time->tv_sec * kBillion + time->tv_nsec;
}

/* A wait for a point in time of any clock, as one of the same length by the calendar's. Who waits
 * looks at the clock again afterwards. */
HIDDEN int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                  clockid_t clock, const struct timespec* until) {
  struct timespec now, calendar;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &calendar);
  const int64_t left = nanoseconds(until) - nanoseconds(&now);
  const int64_t end = nanoseconds(&calendar) + (left > 0 ? left : 0);
  const struct timespec point = {.tv_sec = end / kBillion, .tv_nsec = end % kBillion};
  return pthread_cond_timedwait(condition, mutex, &point);
}
