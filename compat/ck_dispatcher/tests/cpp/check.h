// Checks that count their failures.
#pragma once

#include <cstdio>
#include <exception>
#include <string>

inline int failures = 0;

inline void check(bool holds, const char* what, int line) {
  if (holds) return;
  ++failures;
  std::printf("line %d: %s\n", line, what);
}

#define CHECK(condition) check(condition, #condition, __LINE__)
// The expression throws this type, with a sentence that has these words.
#define CHECK_THROWS(expression, type, words)                                                  \
  try {                                                                                        \
    (void)(expression);                                                                        \
    check(false, #expression " does not throw", __LINE__);                                     \
  } catch (const type& error) {                                                                \
    check(std::string(error.what()).find(words) != std::string::npos, error.what(), __LINE__); \
  } catch (const std::exception& error) {                                                      \
    check(false, error.what(), __LINE__);                                                      \
  }

inline int finish(const char* name) {
  std::printf("%s: %s\n", name, failures == 0 ? "*** ALL TESTS PASSED ***" : "failed");
  return failures == 0 ? 0 : 1;
}
