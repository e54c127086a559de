// The worker's side of a sweep. Everything here runs kernels that nobody has run before, many
// times.
//
// Verification must be cheap, because a problem has hundreds of kernels. The fp64 reference is
// computed once for each problem. On a CPU, every output is compared with as many elements as
// verify() would check, at most 65536. On a GPU, copying an output takes longer than computing it.
// So for every kernel only a few whole rows are copied (the first, the last, and random ones for
// each problem), with the guard bytes on both sides. The finalists, among which the dispatcher
// chooses, are copied and compared whole. A slow kernel that is wrong only in rows that no problem
// drew may therefore be stored as ok, but a finalist may not.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "tessera/base/error.h"
#include "tessera/base/foreign_error.h"
#include "tessera/base/hash.h"
#include "tessera/base/timer.h"
#include "tessera/families/family.h"
#include "tessera/jit/build.h"
#include "tessera/measure/operands.h"
#include "tessera/measure/sweep_worker.h"
#include "tessera/measure/worker_json_internal.h"
#include "tessera/runtime/benchmark.h"
#include "tessera/targets/targets.h"

namespace tessera::measure {
namespace {

using nlohmann::json;

constexpr std::int64_t kThoroughElements = 1 << 16;
constexpr std::int64_t kQuickElements = 1 << 12;
constexpr std::int64_t kQuickRows = 8;
constexpr std::size_t kSmallOutputs = 64 << 10;  // bytes that are fetched whole, at one go
constexpr int kClockReadings = 5;

// A problem's operands and its reference.
struct Prepared {
  std::string text;
  Problem problem;
  OwnedOperands owned;
  Reference thorough, quick;
};

Prepared prepare(const std::string& text, std::uint64_t seed, Fp8Encoding fp8, bool on_host) {
  const Problem problem = parse_problem(text);
  const std::uint64_t own_seed = hash_combine(seed, hash64(text));
  const Family& family = family_of(problem);
  const Problem plain = family.unpacked(problem);
  const int threads = host_info().cores;
  Prepared prepared{text, problem, random_operands(problem, own_seed, threads, fp8), {}, {}};
  ReferenceLimits limits;
  limits.fp8 = fp8;
  limits.elements = kThoroughElements;
  limits.seed = own_seed;
  limits.threads = threads;
  prepared.thorough = family.reference(plain, prepared.owned.operands, limits);
  if (on_host) return prepared;
  limits.elements = kQuickElements;
  limits.rows = kQuickRows;
  prepared.quick = family.reference(plain, prepared.owned.operands, limits);
  return prepared;
}

bool is_small(const OwnedOperands& owned) {
  std::size_t bytes = 0;
  for (const std::size_t i : owned.outputs) bytes += owned.storage[i].size();
  return bytes <= kSmallOutputs;
}

// Whether the gaps are intact can be checked only in bytes that were fetched.
bool has_gaps(const OwnedOperands& owned) {
  return std::ranges::any_of(owned.outputs,
                             [&](std::size_t i) { return owned.tensors[i].has_gaps(); });
}

// A kernel with a problem's arguments.
struct SweptKernel {
  std::shared_ptr<const runtime::LoadedKernel> kernel;
  runtime::DeviceBuffer packed;
  Launch launch;
  double once = 0;  // seconds of the first call
  SweepRow row;
};

runtime::Place place_of(const SweepSetup& setup) {
  runtime::Place place{&runtime::backend_for(setup.target), {}};
  place.options.threads = setup.threads;
  place.options.device = setup.device;
  return place;
}

class SweepServer {
 public:
  SweepServer(SweepSetup setup, std::FILE* out)
      : setup_(std::move(setup)),
        out_(out),
        place_(place_of(setup_)),
        stopwatch_(place_, protocol()),
        loaded_(setup_.kernels.size()),
        specs_(setup_.kernels.size()) {
    check_device(setup_.target, setup_.device, setup_.device_name);
    runtime::set_default_threads(setup_.threads);  // the parent has limited them already
  }

  std::string measure(const SweepRequest& request) {
    running_ = -1;
    current_ = take(request.problem);
    if (!on_host() && !request.next.empty()) prefetch(request.next);
    placed_ = place_operands(current_->owned, place_);
    std::vector<SweptKernel> bound;
    for (const int kernel : request.kernels) bound.push_back(check(kernel));
    time(bound);
    json rows = json::array();
    for (const SweptKernel& b : bound) {
      const SweepRow& row = b.row;
      rows.push_back({row.kernel, to_string(row.outcome), row.seconds, row.spread, row.min_seconds,
                      row.readings, row.finalist, row.note});
    }
    return line_of({{"rows", rows}});
  }

  // The problem of the clock readings is kept from the first reading on.
  std::string read_clock(const std::string& problem, int kernel) {
    running_ = -1;
    if (!clock_ || clock_->text != problem) {
      clock_ = std::make_unique<Prepared>(prepare(problem, setup_.seed, fp8(), on_host()));
      clock_placed_ = place_operands(clock_->owned, place_);
      clock_bound_ = bind(kernel, *clock_, clock_placed_.operands);
      clock_bound_.once = seconds_of(clock_bound_);
    }
    std::vector<double> readings;
    for (int i = 0; i < kClockReadings; ++i) readings.push_back(read(clock_bound_));
    return json{{"seconds", runtime::quantile(readings, 0.5)}}.dump();
  }

  int running() const { return running_; }

 private:
  bool on_host() const { return place_.backend->uses_host_memory(); }
  Fp8Encoding fp8() const { return setup_.target.fp8_encoding; }

  // On a CPU the caches are warm, as they are after the work that produced the operands. On a GPU
  // they are cold, as in `tessera bench`.
  runtime::Protocol protocol() const {
    runtime::Protocol protocol;
    protocol.min_seconds = setup_.min_seconds;
    protocol.flush_caches = !on_host();
    return protocol;
  }

  // When no thread can be started, the problem is prepared when it is its turn.
  void prefetch(const std::string& problem) {
    next_text_ = problem;
    try {
      next_ = std::async(std::launch::async, [problem, seed = setup_.seed, encoding = fp8()] {
        return std::make_unique<Prepared>(prepare(problem, seed, encoding, false));
      });
    } catch (const std::system_error&) {
      next_ = {};
    }
  }

  std::unique_ptr<Prepared> take(const std::string& problem) {
    if (next_.valid() && next_text_ == problem) return next_.get();
    if (next_.valid()) next_.wait();
    next_ = {};
    return std::make_unique<Prepared>(prepare(problem, setup_.seed, fp8(), on_host()));
  }

  void say_running(int kernel) {
    running_ = kernel;
    fmt::print(out_, "b {}\n", kernel);
    std::fflush(out_);
  }

  SweptKernel bind(int kernel, const Prepared& prepared, Operands operands) {
    const auto place = static_cast<std::size_t>(kernel);
    if (!loaded_[place]) {
      specs_[place] = parse_name(setup_.kernels[place].name);
      const Source source = family_of(specs_[place]).emit(specs_[place], setup_.target);
      loaded_[place] = place_.backend->load(jit::artifact_of(source, setup_.kernels[place].binary),
                                            setup_.target);
    }
    SweptKernel bound;
    bound.kernel = loaded_[place];
    bound.row.kernel = kernel;
    bound.packed = pack_operand(*bound.kernel, specs_[place], prepared.problem, setup_.target,
                                operands, place_);
    bound.launch =
        family_of(prepared.problem).bind(specs_[place], prepared.problem, setup_.target, operands);
    return bound;
  }

  void enqueue(const SweptKernel& bound) const {
    bound.kernel->launch(bound.launch, place_.options);
  }

  double seconds_of(const SweptKernel& bound) const {
    const Timer timer;
    enqueue(bound);
    place_.backend->synchronize(place_.options);
    return timer.seconds();
  }

  double read(const SweptKernel& bound) {
    return stopwatch_.read([&] { enqueue(bound); }, bound.once);
  }

  // Checks one kernel. Errors of the kernel become its outcome. A lost context or a broken device
  // ends this process instead.
  SweptKernel check(int kernel) {
    say_running(kernel);
    try {
      SweptKernel bound = bind(kernel, *current_, placed_.operands);
      verify(bound, !on_host());
      return bound;
    } catch (const Error& error) {
      const ErrorCode code = error.code();
      if (code == ErrorCode::launch_failed || code == ErrorCode::unsupported) throw;
      SweptKernel refused;
      refused.row.kernel = kernel;
      refused.row.outcome = Outcome::refused;
      refused.row.note = error.what();
      return refused;
    }
  }

  // Runs the kernel on outputs full of NaN and compares what it wrote.
  void verify(SweptKernel& bound, bool quick) {
    reset();
    bound.once = seconds_of(bound);
    const Reference& reference = quick ? current_->quick : current_->thorough;
    fetch(quick ? &reference : nullptr);
    std::string wrong = gaps_intact(current_->owned);
    if (wrong.empty()) {
      const Family& family = *current_->owned.family;
      const Problem plain = family.unpacked(current_->problem);
      wrong = family.compare(plain, current_->owned.operands, reference).message;
    }
    if (wrong.empty()) return;
    bound.row.outcome = Outcome::wrong;
    bound.row.note = wrong;
  }

  // The host's copy of the outputs need not be reset, because every byte that is compared is
  // fetched.
  void reset() {
    if (on_host()) {
      reset_outputs(current_->owned);
    } else {
      reset_placed(placed_, current_->owned, place_);
    }
  }

  void fetch(const Reference* quick) {
    if (quick == nullptr || is_small(current_->owned) || has_gaps(current_->owned)) {
      fetch_outputs(current_->owned, placed_, place_);
    } else {
      fetch_runs(current_->owned, placed_, place_, quick->runs);
    }
  }

  void time(std::vector<SweptKernel>& all) {
    std::vector<SweptKernel*> good;
    for (SweptKernel& bound : all) {
      if (bound.row.outcome == Outcome::ok) good.push_back(&bound);
    }
    const auto read_one = [&](const std::vector<SweptKernel*>& from) {
      return [this, &from](std::size_t i) {
        say_running(from[i]->row.kernel);
        return read(*from[i]);
      };
    };
    RoundRules rules = setup_.rules;
    rules.seed = hash_combine(setup_.seed, hash64(current_->text));
    Readings readings = read_in_rounds(good.size(), read_one(good), rules);
    read_doubted(good, readings, rules);
    for (std::size_t i = 0; i < good.size(); ++i) settle(good[i]->row, readings[i]);

    std::vector<SweptKernel*> best = finalists(good);
    if (!on_host()) {
      std::erase_if(best, [&](SweptKernel* bound) { return !passes_thorough_check(*bound); });
    }
    const Readings again =
        read_paired(best.size(), read_one(best), setup_.final_rounds, rules.seed + 1);
    for (std::size_t i = 0; i < best.size(); ++i) {
      settle(best[i]->row, again[i]);
      best[i]->row.finalist = true;
    }
  }

  // Reads those again that one reading dropped against the estimate. A reading below zero says that
  // the kernel failed, which its row then has.
  void read_doubted(const std::vector<SweptKernel*>& good, Readings& readings,
                    const RoundRules& rules) {
    const Family& family = *current_->owned.family;
    std::vector<double> expected;
    for (const SweptKernel* bound : good) {
      expected.push_back(family
                             .estimate(specs_[static_cast<std::size_t>(bound->row.kernel)],
                                       current_->problem, setup_.target, setup_.threads)
                             .seconds);
    }
    for (const std::size_t i : doubted(readings, expected, rules)) {
      say_running(good[i]->row.kernel);
      for (int more = 1; more < rules.least; ++more) {
        const double seconds = read(*good[i]);
        if (seconds < 0) break;
        readings[i].push_back(seconds);
      }
    }
  }

  bool passes_thorough_check(SweptKernel& bound) {
    say_running(bound.row.kernel);
    verify(bound, false);
    if (bound.row.outcome == Outcome::ok) return true;
    settle(bound.row, {});
    return false;
  }

  std::vector<SweptKernel*> finalists(std::vector<SweptKernel*> good) const {
    std::sort(good.begin(), good.end(), [](const SweptKernel* a, const SweptKernel* b) {
      return std::pair(a->row.seconds, a->row.kernel) < std::pair(b->row.seconds, b->row.kernel);
    });
    const auto most = static_cast<std::size_t>(std::max(setup_.finalists, 0));
    if (good.size() > most) good.resize(most);
    return good;
  }

  static void settle(SweepRow& row, const std::vector<double>& readings) {
    row.readings = static_cast<int>(readings.size());
    row.seconds = runtime::quantile(readings, 0.5);
    const double range = runtime::quantile(readings, 0.75) - runtime::quantile(readings, 0.25);
    row.spread = row.seconds > 0 ? range / row.seconds : 0;
    row.min_seconds = readings.empty() ? 0 : *std::min_element(readings.begin(), readings.end());
  }

  SweepSetup setup_;
  std::FILE* out_;
  runtime::Place place_;
  runtime::Stopwatch stopwatch_;
  std::vector<std::shared_ptr<const runtime::LoadedKernel>> loaded_;
  std::vector<KernelSpec> specs_;
  int running_ = -1;
  std::unique_ptr<Prepared> current_;
  PlacedOperands placed_;
  std::string next_text_;
  std::future<std::unique_ptr<Prepared>> next_;
  std::unique_ptr<Prepared> clock_;
  PlacedOperands clock_placed_;
  SweptKernel clock_bound_;
};

// False at the end of the input.
bool read_line(std::FILE* in, std::string& line) {
  line.clear();
  for (int c = std::fgetc(in); c != EOF; c = std::fgetc(in)) {
    if (c == '\n') return true;
    line.push_back(static_cast<char>(c));
  }
  return false;
}

std::string answer(SweepServer& server, const std::string& line) {
  const json object = json::parse(line, nullptr, false);
  if (object.is_object() && object.contains("clock")) {
    return server.read_clock(object.at("clock").get<std::string>(), object.at("kernel").get<int>());
  }
  return server.measure(sweep_request_from_json(line));
}

std::string describe(const Error& error, int running) {
  const bool by_kernel = error.code() == ErrorCode::launch_failed;
  return line_of({{"error", error.what()},
                  {"outcome", by_kernel ? "crashed" : "failed"},
                  {"kernel", by_kernel ? running : -1}});
}

}  // namespace

int serve_sweep(int in, int out) {
  std::FILE* const input = fdopen(in, "r");
  std::FILE* const output = fdopen(out, "w");
  if (input == nullptr || output == nullptr) return 1;
  std::unique_ptr<SweepServer> server;
  std::string line;
  const auto say = [&](const std::string& text) {
    fmt::print(output, "{}\n", text);
    std::fflush(output);
  };
  std::string setup;
  if (!read_line(input, setup)) return 1;
  while (read_line(input, line)) {
    try {
      if (!server) server = std::make_unique<SweepServer>(sweep_setup_from_json(setup), output);
      say(answer(*server, line));
    } catch (const Error& error) {
      say(describe(error, server ? server->running() : -1));
    } catch (const std::exception& error) {
      say(line_of({{"error", error_of(error).what()}}));
    }
  }
  return 0;
}

}  // namespace tessera::measure
