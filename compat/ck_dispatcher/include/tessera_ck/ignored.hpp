// What is accepted and changes nothing here. Who asks for it is told on stderr, once for each; the
// README of the folder lists it all.
#pragma once

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

namespace tessera_ck {

namespace detail {

struct Told {
  std::mutex mutex;
  std::vector<std::string> sentences;
};

inline Told& told() {
  static Told all;
  return all;
}

// Says a sentence that was not said before.
inline void tell(const std::string& sentence) {
  Told& all = told();
  const std::lock_guard lock(all.mutex);
  if (std::find(all.sentences.begin(), all.sentences.end(), sentence) != all.sentences.end()) {
    return;
  }
  all.sentences.push_back(sentence);
  std::fprintf(stderr, "%s\n", sentence.c_str());
}

inline constexpr const char* kOwn = "Tessera's kernels decide it by themselves";
inline constexpr const char* kAnySize = "every kernel takes every size";
inline constexpr const char* kNoScheduler = "kernels of CPUs have no scheduler";
inline constexpr const char* kSums = "sums have the type that goes with the operands'";

inline void changes_nothing(const char* hint, bool is_asked, const char* why = kOwn) {
  if (is_asked) tell(std::string(hint) + " changes nothing: " + why);
}

}  // namespace detail

// What was said so far in this process: hints that change nothing, and declarations whose pipeline
// the target does not have.
inline std::vector<std::string> ignored_hints() {
  detail::Told& all = detail::told();
  const std::lock_guard lock(all.mutex);
  return all.sentences;
}

}  // namespace tessera_ck
