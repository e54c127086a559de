// The worker process of a sweep. It is started once, keeps its kernels loaded, and measures one
// problem after the other. Requests and replies are one line of JSON each. In addition the worker
// writes "b 12" before it runs kernel 12, so that the parent knows the culprit when the worker is
// lost. This file declares both sides.
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

// The settings that stay the same through a sweep.
struct SweepSetup {
  Target target;
  std::vector<WorkerKernel> kernels;  // requests refer to them by index
  int threads = 1;
  int device = 0;
  std::string device_name;  // the model that the parent means by this number
  std::uint64_t seed = 1;
  RoundRules rules;
  int finalists = 5;
  int final_rounds = 11;
  double min_seconds = 0.001;  // of a reading, when caches are not flushed
};

struct SweepRequest {
  std::string problem;  // to_string(problem)
  std::vector<int> kernels;
  std::string next;  // the next problem, which the worker prepares meanwhile; may be empty
};

// The result of one request. The rows' `kernel` is an index into SweepSetup::kernels.
struct SweepReply {
  std::vector<SweepRow> rows;
  int culprit = -1;               // the kernel that was running when the worker was lost
  Outcome outcome = Outcome::ok;  // of the culprit, or of all kernels when none was running
  std::string note;
  bool stopped = false;  // `stop` ended the request
  bool is_answer() const { return outcome == Outcome::ok && !stopped; }
};

class SweepWorker {
 public:
  // A kernel that runs longer than `silence_seconds` is a timeout. `stop` is called several times a
  // second while the worker is busy.
  SweepWorker(std::filesystem::path worker, SweepSetup setup, double silence_seconds,
              std::function<bool()> stop);

  // Starts the worker if there is none. After the worker is lost, the next call starts a new one.
  // Throws Error{not_found} when it cannot be started.
  SweepReply measure(const SweepRequest& request);
  // Measures one kernel on a problem whose operands the worker keeps. Returns the median of five
  // readings in seconds, or 0 when that failed.
  double read_clock(const std::string& problem, int kernel);

 private:
  void start();
  bool send(const std::string& line);
  // Reads the next line that does not begin with "b ". False when the worker is lost; `lost` then
  // says how.
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

// The child's side: answers the requests from `in` until `in` ends. Returns an exit status.
int serve_sweep(int in, int out);

}  // namespace tessera::measure
