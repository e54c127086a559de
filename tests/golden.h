// Texts that a test compares with a file of tests/golden. With TESSERA_WRITE_GOLDEN set in the
// environment the file is written instead, and the test fails so that nobody forgets to unset it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tessera/base/files.h"

namespace tessera {

inline void expect_golden(const std::string& name, const std::string& text) {
  const fs::path file = fs::path(TESSERA_SOURCE) / "tests" / "golden" / name;
  if (std::getenv("TESSERA_WRITE_GOLDEN") != nullptr) {
    write_file(file, text);
    ADD_FAILURE() << file << " was written";
    return;
  }
  EXPECT_EQ(text, read_file(file)) << name;
}

}  // namespace tessera
