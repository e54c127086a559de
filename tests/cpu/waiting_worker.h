// A worker program that measures only when it is told to, so that a measurement lasts as long as a
// test wants it to.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "tessera/base/files.h"

namespace tessera::testing_support {

class WaitingWorker {
 public:
  // A script in `folder` that stands for `worker` and waits where its request has `words`.
  WaitingWorker(const fs::path& folder, const std::string& worker, const std::string& words = {})
      : program_(folder / "waiting-worker"), begun_(folder / "begun"), go_(folder / "go") {
    write_file(program_,
               "#!/bin/sh\n"
               "case \"$*\" in *'" +
                   words +
                   "'*)\n"
                   "  touch '" +
                   begun_.string() +
                   "'\n"
                   "  while [ ! -e '" +
                   go_.string() +
                   "' ]; do sleep 0.02; done ;;\n"
                   "esac\n"
                   "exec '" +
                   worker + "' \"$@\"\n");
    fs::permissions(program_, fs::perms::owner_all);
  }

  std::string program() const { return program_.string(); }

  void wait_until_begun() const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (!fs::exists(begun_) && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_TRUE(fs::exists(begun_)) << "nothing was measured";
  }

  void go_on() const { write_file(go_, ""); }

 private:
  fs::path program_, begun_, go_;
};

}  // namespace tessera::testing_support
