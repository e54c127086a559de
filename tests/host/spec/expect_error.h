// Compares the whole message of an expected Error.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tessera/base/error.h"

namespace tessera {

template <class Function>
void expect_error(ErrorCode code, const std::string& message, Function&& function) {
  try {
    function();
    ADD_FAILURE() << "no error, expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), message);
    EXPECT_EQ(error.code(), code);
  }
}

}  // namespace tessera
