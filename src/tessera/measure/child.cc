#include "tessera/measure/child.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/foreign_error.h"
#include "tessera/base/subprocess.h"
#include "tessera/base/text.h"
#include "tessera/jit/worker_program.h"
#include "tessera/measure/worker_json_internal.h"

namespace tessera::measure {
namespace {

using nlohmann::json;

// The reply for a process that was lost: the same outcome for every kernel of the request.
WorkerReply lost(const WorkerRequest& request, Outcome outcome, std::string note) {
  WorkerReply reply;
  reply.lost = true;
  reply.readings.assign(request.kernels.size(), {outcome, 0, 0, std::move(note)});
  return reply;
}

// The last line that looks like a reply: a kernel may have written to standard output before it.
std::string_view last_object(std::string_view output) {
  std::string_view found;
  for (const std::string_view line : split(output, '\n')) {
    if (!line.empty() && line.front() == '{') found = line;
  }
  return found;
}

WorkerReply parse_reply(const WorkerRequest& request, const SubprocessResult& child) {
  try {
    const json reply = json::parse(last_object(child.output));
    if (reply.contains("error")) {
      return lost(request, parse_outcome(reply.value("outcome", "failed")),
                  reply.at("error").get<std::string>());
    }
    WorkerReply parsed;
    for (const json& reading : reply.at("readings")) {
      parsed.readings.push_back({parse_outcome(reading.at("outcome").get<std::string>()),
                                 reading.at("seconds").get<double>(),
                                 reading.at("spread").get<double>(),
                                 reading.at("note").get<std::string>()});
    }
    if (parsed.readings.size() == request.kernels.size()) return parsed;
    return lost(request, Outcome::failed,
                fmt::format("the worker answered for {} kernels, asked about {}",
                            parsed.readings.size(), request.kernels.size()));
  } catch (const std::exception&) {
    return lost(request, Outcome::failed,
                fmt::format("the worker ended with status {} and no answer", child.exit_code));
  }
}

}  // namespace

std::string to_json(const WorkerRequest& request) {
  const json object = {{"problem", request.problem},
                       {"target", json::parse(to_json(request.target))},
                       {"kernels", request.kernels},
                       {"threads", request.threads},
                       {"device", request.device},
                       {"device_name", request.device_name},
                       {"seed", request.seed},
                       {"measure", request.measure},
                       {"budget_seconds", request.budget_seconds},
                       {"timeout_seconds", request.timeout_seconds}};
  return line_of(object);
}

WorkerRequest worker_request_from_json(std::string_view text) {
  try {
    const json object = json::parse(text);
    WorkerRequest request;
    request.problem = object.at("problem").get<std::string>();
    request.target = target_from_json(object.at("target").dump());
    request.kernels = object.at("kernels").get<std::vector<WorkerKernel>>();
    request.threads = object.at("threads").get<int>();
    request.device = object.at("device").get<int>();
    request.device_name = object.at("device_name").get<std::string>();
    request.seed = object.at("seed").get<std::uint64_t>();
    request.measure = object.at("measure").get<bool>();
    request.budget_seconds = object.at("budget_seconds").get<double>();
    request.timeout_seconds = object.at("timeout_seconds").get<double>();
    return request;
  } catch (const json::exception& error) {
    throw Error(ErrorCode::parse_error, fmt::format("worker request: {}", error_of(error).what()));
  }
}

fs::path find_worker(const std::string& wanted) {
  if (fs::path found = jit::find_worker_program(wanted); !found.empty()) return found;
  std::vector<std::string> names;
  for (const fs::path& place : jit::worker_places(wanted)) {
    names.push_back(fmt::format("'{}'", place.lexically_normal().string()));
  }
  throw Error(
      ErrorCode::not_found,
      fmt::format("autotune: the worker program is not an executable file at {}: install it "
                  "there, or name it in tune::AutotuneOptions::worker",
                  join(names, " or ")));
}

std::string path_for_child(const std::string& path) {
  const std::string self = "/proc/self/";
  if (path.rfind(self, 0) != 0) return path;
  return fmt::format("/proc/{}/{}", getpid(), path.substr(self.size()));
}

WorkerReply ask_worker(const fs::path& worker, const WorkerRequest& request) {
  SubprocessOptions options;
  options.timeout_seconds = request.timeout_seconds;
  options.merge_stderr = false;
  options.is_interruptible = true;
  const SubprocessResult child = run_subprocess({worker.string(), to_json(request)}, options);
  if (!child.started) {
    return lost(request, Outcome::failed, fmt::format("'{}' cannot be started", worker.string()));
  }
  if (child.timed_out || child.signal == SIGALRM) {
    return lost(request, Outcome::timeout,
                fmt::format("it ran past its limit of {:g} s", request.timeout_seconds));
  }
  if (child.signal != 0) {
    return lost(request, Outcome::crashed,
                fmt::format("it died on signal {} ({})", child.signal, strsignal(child.signal)));
  }
  return parse_reply(request, child);
}

}  // namespace tessera::measure
