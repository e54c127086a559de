// What is said on stderr of choices: CK_DISPATCHER_LOG_LEVEL 1 names the chosen kernel, 2 also the
// others.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace ck_tile::dispatcher {

inline int get_log_level() {
  static const int level = [] {
    const char* text = std::getenv("CK_DISPATCHER_LOG_LEVEL");
    return text == nullptr ? 0 : std::atoi(text);
  }();
  return level;
}

namespace detail {

inline void log_at(int level, const std::string& sentence) {
  if (get_log_level() >= level) std::fprintf(stderr, "dispatcher: %s\n", sentence.c_str());
}

}  // namespace detail

inline void log_kernel_selected(const std::string& kernel, const std::string& problem) {
  detail::log_at(1, kernel + " was chosen for " + problem);
}
inline void log_kernel_candidate(const std::string& kernel, bool accepted,
                                 const std::string& reason) {
  detail::log_at(2, kernel + (accepted ? " is a candidate" : " is no candidate") +
                        (reason.empty() ? "" : ": " + reason));
}
inline void log_no_kernel_found(const std::string& problem) {
  detail::log_at(1, "no kernel was found for " + problem);
}

}  // namespace ck_tile::dispatcher
