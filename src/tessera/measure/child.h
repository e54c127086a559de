// The worker process of the autotuner: its request, its reply, and both sides of the conversation.
// A request is one JSON argument. A reply is one JSON line on standard output.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/measure/outcome.h"
#include "tessera/spec/target.h"

namespace tessera::measure {

struct WorkerKernel {
  std::string name;
  std::string binary;  // a path that another process can open
};

struct WorkerRequest {
  std::string problem;  // to_string(problem)
  Target target;
  std::vector<WorkerKernel> kernels;
  int threads = 1;
  int device = 0;
  std::string device_name;  // the model that the parent means by this number
  std::uint64_t seed = 1;
  bool measure = false;         // false: check each kernel once; true: time them, interleaved
  double budget_seconds = 0;    // seconds for measuring
  double timeout_seconds = 10;  // after so many seconds the worker ends itself, in case its parent
                                // is gone
};

// The outcome for one kernel.
struct WorkerReading {
  Outcome outcome = Outcome::failed;
  double seconds = 0;  // of a single call when checking, the median when measuring
  double spread = 0;
  std::string note;  // why it was refused
  friend bool operator==(const WorkerReading&, const WorkerReading&) = default;
};

// One reading for each kernel of the request. When the process was lost, all have the same refusal.
struct WorkerReply {
  std::vector<WorkerReading> readings;
  bool lost = false;  // it crashed, hung or could not work at all
};

std::string to_json(const WorkerRequest& request);
WorkerRequest worker_request_from_json(std::string_view text);

// The executable: `wanted`, or tessera-worker beside the library or in its libexec folder. Throws
// Error{not_found}, which lists where it looked.
std::filesystem::path find_worker(const std::string& wanted);

// A path that a child process can open. A file that exists only as a descriptor of this process
// gets its path in /proc.
std::string path_for_child(const std::string& path);

// The parent's side: starts the worker and waits for it. Never throws because of what the child
// does, and Error{cancelled} when check_interruption() does.
WorkerReply ask_worker(const std::filesystem::path& worker, const WorkerRequest& request);

// The child's side: runs the kernels in this process and returns the reply's line.
std::string serve_worker(const WorkerRequest& request);

}  // namespace tessera::measure
