/* Starts a program on glibc 2.28 that was linked with a newer glibc's start file: with old_glibc.c,
 * for the worker of a wheel. Before 2.34 a program called its own constructors. */
#include <stddef.h>

typedef int Main(int count, char** words, char** environment);
typedef void Constructor(int count, char** words, char** environment);

__asm__(".symver first_start_main, __libc_start_main@GLIBC_2.2.5");
int first_start_main(Main* main, int count, char** words, Constructor* begin, void (*end)(void),
                     void (*loader_end)(void), void* stack);

/* The linker's names of the program's list of constructors. */
extern Constructor* __init_array_start[] __attribute__((visibility("hidden")));
extern Constructor* __init_array_end[] __attribute__((visibility("hidden")));

static void construct(int count, char** words, char** environment) {
  for (Constructor** each = __init_array_start; each != __init_array_end; ++each) {
    (*each)(count, words, environment);
  }
}

__attribute__((visibility("hidden"))) int __libc_start_main(Main* main, int count, char** words,
                                                            Constructor* begin, void (*end)(void),
                                                            void (*loader_end)(void), void* stack) {
  (void)begin; /* NULL, as is `end`, from such a start file */
  return first_start_main(main, count, words, construct, end, loader_end, stack);
}
