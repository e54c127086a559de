#include "tessera/base/fork.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string_view>

#include "tessera/base/error.h"

namespace tessera {
namespace {

template <int number>
void action() {}

// Which of nine actions is refused, each named twice; -1 for another refusal.
int first_refused() {
  void (*const actions[])() = {action<0>, action<1>, action<2>, action<3>, action<4>,
                               action<5>, action<6>, action<7>, action<8>};
  int accepted = 0;
  try {
    for (auto* const each : actions) {
      at_fork_in_child(each);
      at_fork_in_child(each);
      ++accepted;
    }
  } catch (const Error& error) {
    return std::string_view(error.what()).starts_with("forks: at most 8 actions") ? accepted : -1;
  }
  return accepted;
}

// In a child, since nobody can take an action back.
TEST(AtForkInChild, RefusesTheNinthAction) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(first_refused());
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 8);
}

}  // namespace
}  // namespace tessera
