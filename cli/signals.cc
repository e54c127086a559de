#include "signals.h"

#include <atomic>
#include <csignal>

#include "tessera/tools.hpp"

namespace tessera::cli {
namespace {

std::atomic<bool> interrupted{false};

void on_interrupt(int signal) {
  interrupted = true;
  std::signal(signal, end_by_signal);  // for the second ^C
}

}  // namespace

void prepare_for_signals() {
  std::signal(SIGXFSZ, SIG_IGN);
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE}) {
    // A signal that is ignored stays ignored, as under nohup.
    if (std::signal(signal, end_by_signal) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

void end_by_signal(int signal) {
  end_children();
  std::signal(signal, SIG_DFL);
  sigset_t this_one;
  sigemptyset(&this_one);
  sigaddset(&this_one, signal);
  pthread_sigmask(SIG_UNBLOCK, &this_one, nullptr);
  std::raise(signal);
}

void take_interrupts() {
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
}

bool is_interrupted() { return interrupted.load(); }

}  // namespace tessera::cli
