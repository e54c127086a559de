#include "tessera/measure/sweep_worker.h"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/foreign_error.h"
#include "tessera/measure/worker_json_internal.h"

namespace tessera::measure {
namespace {

using nlohmann::json;

constexpr double kSetupSeconds = 120;  // the most for filling operands and computing the reference
constexpr double kLookSeconds = 0.1;   // between two calls of `stop`

SweepRow row_from_json(const json& row) {
  SweepRow result;
  result.kernel = row.at(0).get<int>();
  result.outcome = parse_outcome(row.at(1).get<std::string>());
  result.seconds = row.at(2).get<double>();
  result.spread = row.at(3).get<double>();
  result.min_seconds = row.at(4).get<double>();
  result.readings = row.at(5).get<int>();
  result.finalist = row.at(6).get<bool>();
  result.note = row.at(7).get<std::string>();
  return result;
}

SweepReply reply_from_json(const std::string& line, std::size_t expected) {
  try {
    const json object = json::parse(line);
    SweepReply reply;
    if (object.contains("error")) {
      reply.outcome = parse_outcome(object.value("outcome", "failed"));
      reply.culprit = object.value("kernel", -1);
      reply.note = object.at("error").get<std::string>();
      return reply;
    }
    for (const json& row : object.at("rows")) reply.rows.push_back(row_from_json(row));
    if (reply.rows.size() == expected) return reply;
    return {{},
            -1,
            Outcome::failed,
            fmt::format("the worker answered for {} kernels, asked about {}", reply.rows.size(),
                        expected)};
  } catch (const std::exception& error) {
    return {{},
            -1,
            Outcome::failed,
            fmt::format("the worker's answer is broken: {}", error_of(error).what())};
  }
}

}  // namespace

std::string to_json(const SweepSetup& setup) {
  const RoundRules& rules = setup.rules;
  return json{{"target", json::parse(to_json(setup.target))},
              {"kernels", setup.kernels},
              {"threads", setup.threads},
              {"device", setup.device},
              {"device_name", setup.device_name},
              {"seed", setup.seed},
              {"rules",
               {rules.least, rules.most, rules.tight, rules.hopeless, rules.slower,
                rules.budget_seconds, rules.hopeless_after}},
              {"finalists", setup.finalists},
              {"final_rounds", setup.final_rounds},
              {"min_seconds", setup.min_seconds}}
      .dump();
}

SweepSetup sweep_setup_from_json(std::string_view text) {
  try {
    const json object = json::parse(text);
    SweepSetup setup;
    setup.target = target_from_json(object.at("target").dump());
    setup.kernels = object.at("kernels").get<std::vector<WorkerKernel>>();
    setup.threads = object.at("threads").get<int>();
    setup.device = object.at("device").get<int>();
    setup.device_name = object.at("device_name").get<std::string>();
    setup.seed = object.at("seed").get<std::uint64_t>();
    const json& rules = object.at("rules");
    setup.rules.least = rules.at(0).get<int>();
    setup.rules.most = rules.at(1).get<int>();
    setup.rules.tight = rules.at(2).get<double>();
    setup.rules.hopeless = rules.at(3).get<double>();
    setup.rules.slower = rules.at(4).get<double>();
    setup.rules.budget_seconds = rules.at(5).get<double>();
    setup.rules.hopeless_after = rules.at(6).get<int>();
    setup.finalists = object.at("finalists").get<int>();
    setup.final_rounds = object.at("final_rounds").get<int>();
    setup.min_seconds = object.at("min_seconds").get<double>();
    return setup;
  } catch (const json::exception& error) {
    throw Error(ErrorCode::parse_error, fmt::format("sweep setup: {}", error_of(error).what()));
  }
}

std::string to_json(const SweepRequest& request) {
  return json{{"problem", request.problem}, {"kernels", request.kernels}, {"next", request.next}}
      .dump();
}

SweepRequest sweep_request_from_json(std::string_view text) {
  try {
    const json object = json::parse(text);
    return {object.at("problem").get<std::string>(), object.at("kernels").get<std::vector<int>>(),
            object.at("next").get<std::string>()};
  } catch (const json::exception& error) {
    throw Error(ErrorCode::parse_error, fmt::format("sweep request: {}", error_of(error).what()));
  }
}

SweepWorker::SweepWorker(std::filesystem::path worker, SweepSetup setup, double silence_seconds,
                         std::function<bool()> stop)
    : worker_(std::move(worker)),
      setup_(std::move(setup)),
      silence_seconds_(silence_seconds),
      stop_(std::move(stop)) {}

void SweepWorker::start() {
  process_ = std::make_unique<PipedProcess>(std::vector<std::string>{worker_.string(), "sweep"});
  send(to_json(setup_));
}

// A failed write is ignored here; a dead worker is noticed when no answer comes.
bool SweepWorker::send(const std::string& line) { return process_->write_line(line); }

LineResult SweepWorker::wait_for_line(std::string& line, double seconds, bool& stopped) {
  for (double waited = 0; waited < seconds; waited += kLookSeconds) {
    if (stop_ && stop_()) {
      stopped = true;
      return LineResult::timeout;
    }
    const LineResult result = process_->read_line(line, kLookSeconds);
    if (result != LineResult::timeout) return result;
  }
  return LineResult::timeout;
}

SweepReply SweepWorker::describe_loss(LineResult how, int running) {
  SweepReply reply;
  reply.culprit = running;
  const int signal = process_->end();
  if (how == LineResult::timeout) {
    reply.outcome = Outcome::timeout;
    reply.note = fmt::format("it ran past its limit of {:g} s",
                             running < 0 ? kSetupSeconds : silence_seconds_);
  } else if (signal != 0) {
    reply.outcome = Outcome::crashed;
    reply.note = fmt::format("it died on signal {} ({})", signal, strsignal(signal));
  } else {
    reply.outcome = running < 0 ? Outcome::failed : Outcome::crashed;
    reply.note = "the worker ended and gave no answer";
  }
  return reply;
}

bool SweepWorker::receive(std::string& line, SweepReply& lost) {
  int running = -1;
  for (;;) {
    bool stopped = false;
    const double limit = running < 0 ? kSetupSeconds : silence_seconds_;
    const LineResult result = wait_for_line(line, limit, stopped);
    if (stopped) {
      lost.stopped = true;
    } else if (result != LineResult::line) {
      lost = describe_loss(result, running);
    }
    if (stopped || result != LineResult::line) {
      process_.reset();
      return false;
    }
    if (line.rfind("b ", 0) != 0) return true;
    running = std::atoi(line.c_str() + 2);
  }
}

SweepReply SweepWorker::measure(const SweepRequest& request) {
  if (!process_) start();
  send(to_json(request));
  SweepReply reply;
  std::string line;
  if (!receive(line, reply)) return reply;
  reply = reply_from_json(line, request.kernels.size());
  // A kernel that broke the device's context also ends the worker.
  if (reply.culprit >= 0 || !reply.is_answer()) process_.reset();
  return reply;
}

double SweepWorker::read_clock(const std::string& problem, int kernel) {
  if (!process_) start();
  send(json{{"clock", problem}, {"kernel", kernel}}.dump());
  SweepReply lost;
  std::string line;
  if (!receive(line, lost)) return 0;
  const json reply = json::parse(line, nullptr, false);
  if (reply.is_object() && reply.contains("seconds")) return reply.at("seconds").get<double>();
  process_.reset();
  return 0;
}

}  // namespace tessera::measure
