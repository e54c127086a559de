// Text with a defect, and what reading it says.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tessera/base/error.h"

namespace tessera::testing_support {

inline std::string message_of(const std::function<void()>& work) {
  try {
    work();
    return "no error";
  } catch (const Error& error) {
    return error.what();
  }
}

// The text with `instead` for the first `what`.
inline std::string with(std::string text, const std::string& what, const std::string& instead) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), instead);
}

}  // namespace tessera::testing_support
