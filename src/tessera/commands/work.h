// Running one problem on random operands: the common part of run, demo, verify and bench.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "tessera/commands/console.h"
#include "tessera/tools.hpp"

namespace tessera::commands {

// Calls `each` for the problems in turn. The first failure ends it: it is thrown when nothing was
// done before, and else returned, so that the caller shows what is done and then the error. Where
// there are several problems it names the one that failed. Throws Error{cancelled} between two
// problems when the command shall end.
std::optional<Error> run_through(const Console& console, const std::vector<Problem>& problems,
                                 const std::function<void(const Problem&)>& each);

// Options of the commands that run kernels.
struct RunSettings {
  int threads = 0;  // 0: as many as OpenMP allows
  int device = 0;   // of the GPUs
  int repeat = 5;
  bool verify = false;
  std::uint64_t seed = 1;
  std::string force;  // a kernel name
};

RunOptions run_options(const RunSettings& settings);

// A problem with operands of its own, where the kernel can reach them. B is packed by the kernel
// when the problem wants it packed.
class Workload {
 public:
  // Chooses, builds and loads the kernel.
  Workload(Dispatcher& dispatcher, const Problem& problem, const RunSettings& settings);

  const Problem& problem() const { return problem_; }
  const ReadyKernel& kernel() const { return *kernel_; }
  const runtime::Place& place() const { return place_; }
  // As the user has them: B not packed.
  const Operands& operands() const { return placed_.operands; }

  void run();
  // Poisons the outputs, calls, and compares with the reference; also looks for writes outside the
  // outputs.
  Mismatch verify(const std::function<void()>& call);
  Mismatch verify();

 private:
  Dispatcher& dispatcher_;
  Problem problem_;
  RunOptions options_;
  const ReadyKernel* kernel_;
  runtime::Place place_;
  measure::OwnedOperands owned_;
  measure::PlacedOperands placed_;
  std::optional<Reference> reference_;  // of the first verification, and kept
  Operands operands_;                   // B packed if need be
  runtime::DeviceBuffer packed_;
};

// What one problem's run came to.
struct RunReport {
  Problem problem;
  std::string kernel;
  ChoiceSource source = ChoiceSource::first_legal;
  std::string why;
  double seconds = 0;
  double spread = 0;
  double gflops = 0;
  std::optional<Mismatch> verified;  // unset unless asked for
};
RunReport run_and_time(Dispatcher& dispatcher, const Problem& problem, const RunSettings& settings);

// Error{verification_failed} that names the kernel, when the report holds a mismatch.
void require_verified(const RunReport& report);

Json to_json(const Problem& problem, const Target& target, const Decision& decision);
Json to_json(const Mismatch& mismatch);
Json to_json(const RunReport& report);

// Gigaflops per second of useful operations.
double gflops_of(const Problem& problem, double seconds);

}  // namespace tessera::commands
