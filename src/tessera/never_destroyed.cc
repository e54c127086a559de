// Threads of a program may use the library while the program ends, so that the library's statics
// are never destroyed. Its own code has none with a destructor. Some come with headers of other
// libraries, whose registration goes here instead of to the C++ runtime: the symbol is hidden, and
// part of libtessera.so alone.
extern "C" [[gnu::visibility("hidden")]] int __cxa_atexit(void (*destroy)(void*), void* object,
                                                          void* library) noexcept;

int __cxa_atexit(void (*)(void*), void*, void*) noexcept { return 0; }
