#include "tessera/base/interruption.h"

#include <chrono>

#include "tessera/base/error.h"

namespace tessera {
namespace {

constexpr auto kBetweenQuestions = std::chrono::milliseconds(50);

constinit thread_local Interruption t_interruption;
constinit thread_local std::chrono::steady_clock::time_point t_asked;

}  // namespace

void set_interruption(const Interruption& interruption) {
  t_interruption = interruption;
  t_asked = {};
}

void check_interruption() {
  if (t_interruption.stop == nullptr) return;
  const std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
  if (now - t_asked < kBetweenQuestions) return;
  t_asked = now;
  if (t_interruption.stop(t_interruption.user) == 0) return;
  throw Error(ErrorCode::cancelled, "the call-back ended it");
}

}  // namespace tessera
