// A process to which the system refuses something, such as descriptors or large files.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace tessera {

// The sanitizer of undefined behaviour looks at objects through a pipe of its own. Without
// descriptors it takes every object for a broken one.
#if defined(__has_feature)
#if __has_feature(undefined_behavior_sanitizer)
inline constexpr bool kSanitizerNeedsDescriptors = true;
#else
inline constexpr bool kSanitizerNeedsDescriptors = false;
#endif
#else
inline constexpr bool kSanitizerNeedsDescriptors = false;
#endif

// One of this process's limits (RLIMIT_NOFILE, RLIMIT_FSIZE, ...) while this lives.
class ResourceLimit {
 public:
  ResourceLimit(decltype(RLIMIT_NOFILE) resource, rlim_t limit) : resource_(resource) {
    EXPECT_EQ(getrlimit(resource_, &before_), 0);
    const rlimit lower = {limit, before_.rlim_max};
    EXPECT_EQ(setrlimit(resource_, &lower), 0);
  }
  ~ResourceLimit() { EXPECT_EQ(setrlimit(resource_, &before_), 0); }
  ResourceLimit(const ResourceLimit&) = delete;
  ResourceLimit& operator=(const ResourceLimit&) = delete;

 private:
  decltype(RLIMIT_NOFILE) resource_;
  rlimit before_{};
};

}  // namespace tessera
