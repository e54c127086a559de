// Teams of OpenMP and fork(): the team's threads do not exist in a child, but OpenMP's run-time
// library waits for them there.
#pragma once

#include <atomic>

namespace tessera::runtime {

struct OpenMpForks {
  std::atomic<bool> ran_team = false;  // whether a kernel of this library ran on a team
  // Whether this process must run none, because a parent ran one: this library, or other code in
  // the thread that forked.
  std::atomic<bool> is_alone = false;
};
extern OpenMpForks g_openmp;

}  // namespace tessera::runtime
