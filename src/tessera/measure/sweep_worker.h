// The worker process of a sweep: started once, it keeps its kernels loaded and measures one problem
// after the other. Both ends of the conversation, which is JSON, a line each way, except that the
// worker says "b 12" before it runs kernel 12: whoever hears no more knows the culprit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/piped_process.h"
#include "tessera/measure/child.h"
#include "tessera/measure/sweep_rounds.h"
#include "tessera/measure/sweep_store.h"

namespace tessera::measure {

// What does not change through a sweep.
struct SweepSetup {
  Target target;
  std::vector<WorkerKernel> kernels;  // requests name them by their place
  int threads = 1;
  int device = 0;
  std::uint64_t seed = 1;
  RoundRules rules;
  int finalists = 5;
  int final_rounds = 11;
  double min_seconds = 0.001;  // of a reading, where caches are not flushed
};

struct SweepRequest {
  std::string problem;  // to_string(problem)
  std::vector<int> kernels;
  std::string next;  // the problem after this one, to be prepared meanwhile; may be empty
};

// What one request came to. The rows' `kernel` is a place in SweepSetup::kernels.
struct SweepReply {
  std::vector<SweepRow> rows;
  int culprit = -1;               // the kernel that was running when the worker was lost
  Outcome outcome = Outcome::ok;  // of the culprit; or of all kernels, when none was running
  std::string note;
  bool stopped = false;  // the caller wanted no more
  bool is_answer() const { return outcome == Outcome::ok && !stopped; }
};

class SweepWorker {
 public:
  // `silence_seconds`: a kernel that runs longer is a timeout. `stop` is asked several times a
  // second while the worker is busy.
  SweepWorker(std::filesystem::path worker, SweepSetup setup, double silence_seconds,
              std::function<bool()> stop);

  // Starts the worker if there is none. A worker that is lost is started again by the next call.
  // Throws Error{not_found} when it cannot be started.
  SweepReply measure(const SweepRequest& request);
  // Seconds of one kernel on a problem whose operands the worker keeps: the median of five
  // readings; 0 when it could not be had.
  double read_clock(const std::string& problem, int kernel);

 private:
  void start();
  bool send(const std::string& line);
  // The next line that is no "b ..."; false when the worker is lost, and `lost` says how.
  bool receive(std::string& line, SweepReply& lost);
  LineResult wait_for_line(std::string& line, double seconds, bool& stopped);
  SweepReply describe_loss(LineResult how, int running);

  std::filesystem::path worker_;
  SweepSetup setup_;
  double silence_seconds_;
  std::function<bool()> stop_;
  std::unique_ptr<PipedProcess> process_;
};

std::string to_json(const SweepSetup& setup);
SweepSetup sweep_setup_from_json(std::string_view text);
std::string to_json(const SweepRequest& request);
SweepRequest sweep_request_from_json(std::string_view text);

// The child's end: answers requests read from `in` until it ends. Returns an exit status.
int serve_sweep(int in, int out);

}  // namespace tessera::measure
