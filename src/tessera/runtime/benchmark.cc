// Background: when two kernels are timed one after the other, their times also differ because of
// clock drift, other programs on the machine, and the order. Approach: all candidates take turns in
// random order, round by round. They are compared by the median of the ratios within rounds, so
// that drift slower than a round cancels out.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/interruption.h"
#include "tessera/base/seconds.h"
#include "tessera/runtime/benchmark_internal.h"

namespace tessera::runtime {
namespace {

constexpr int kLeastRounds = 3;

// A reading looks at the clock about this often: seldom enough not to count, often enough not to
// run far past min_seconds.
constexpr double kBatchesPerReading = 4;

// A longer reading looks at the clock once in so many seconds, to be ended by its caller.
constexpr double kLongestBatch = 0.1;

void check_candidates(const std::vector<Candidate>& candidates, const Protocol& protocol) {
  if (protocol.rounds < 1) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("benchmark: rounds must be at least 1, got {}", protocol.rounds));
  }
  check_seconds("benchmark: min_seconds", protocol.min_seconds);
  check_seconds("benchmark: budget_seconds", protocol.budget_seconds);
  check_seconds("benchmark: soak_seconds", protocol.soak_seconds);
  for (const Candidate& candidate : candidates) {
    if (candidate.call) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("benchmark: candidate '{}' has no call", candidate.name));
  }
}

// Writes more than the caches hold, so that nothing read before is still in them.
class HostMeter final : public Meter {
 public:
  HostMeter(Clock clock, bool flushes) : clock_(clock) {
    if (flushes) buffer_.resize(static_cast<std::size_t>(flush_bytes()));
  }
  void flush() override {
    if (!buffer_.empty()) std::memset(buffer_.data(), ++value_, buffer_.size());
  }
  double time(const std::function<void()>& work) override {
    const double begin = clock_();
    work();
    return clock_() - begin;
  }
  double now() override { return clock_(); }

 private:
  Clock clock_;
  std::vector<unsigned char> buffer_;
  unsigned char value_ = 0;
};

class DeviceMeter final : public Meter {
 public:
  DeviceMeter(const Place& place, bool flushes)
      : place_(place),
        begin_(place.backend->make_event(place.options)),
        end_(place.backend->make_event(place.options)) {
    if (flushes) buffer_ = DeviceBuffer(place, 2 * place.backend->cache_bytes(place.options));
  }
  void flush() override {
    if (buffer_.size() == 0) return;
    place_.backend->fill(buffer_.data(), ++value_, buffer_.size(), place_.options);
  }
  double time(const std::function<void()>& work) override {
    begin_->record(place_.options);
    work();
    end_->record(place_.options);
    return end_->seconds_since(*begin_);
  }
  double now() override { return steady_seconds(); }

 private:
  Place place_;
  std::unique_ptr<Event> begin_;
  std::unique_ptr<Event> end_;
  DeviceBuffer buffer_;
  unsigned char value_ = 0;
};

// How many calls make a reading, given the seconds of one call.
std::int64_t batch_of(double once, const Protocol& protocol) {
  if (protocol.flush_caches) return 1;
  const double seconds = std::min(protocol.min_seconds / kBatchesPerReading, kLongestBatch);
  const double batch = seconds / std::max(once, 1e-9);
  return std::max<std::int64_t>(1, std::llround(batch));
}

struct Runner {
  const Candidate* candidate;
  std::int64_t batch = 1;  // calls between two readings of the clock
};

// The last warm-up call, timed alone, tells how many calls make a reading.
Runner warm_up(const Candidate& candidate, const Protocol& protocol, Meter& meter) {
  for (int i = 1; i < protocol.warmup; ++i) {
    check_interruption();
    candidate.call();
  }
  if (protocol.warmup < 1) return {&candidate, 1};
  return {&candidate, batch_of(meter.time(candidate.call), protocol)};
}

void soak(const std::vector<Runner>& runners, const Protocol& protocol, Meter& meter) {
  const double begin = meter.now();
  while (meter.now() - begin < protocol.soak_seconds) {
    check_interruption();
    for (const Runner& runner : runners) meter.time(runner.candidate->call);
  }
}

// Seconds of one call.
double read_once(const Runner& runner, const Protocol& protocol, Meter& meter) {
  const double least = protocol.flush_caches ? 0 : protocol.min_seconds;
  std::int64_t calls = 0;
  double elapsed = 0;
  do {
    check_interruption();
    elapsed += meter.time([&runner] {
      for (std::int64_t i = 0; i < runner.batch; ++i) runner.candidate->call();
    });
    calls += runner.batch;
  } while (elapsed < least);
  return elapsed / static_cast<double>(calls);
}

// Fisher-Yates, spelled out: std::shuffle differs between standard libraries.
void shuffle(std::vector<std::size_t>& order, std::mt19937_64& random) {
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
}

void summarise(Timing& timing) {
  timing.median_seconds = quantile(timing.seconds, 0.5);
  timing.min_seconds = *std::min_element(timing.seconds.begin(), timing.seconds.end());
  const double range = quantile(timing.seconds, 0.75) - quantile(timing.seconds, 0.25);
  timing.spread = timing.median_seconds > 0 ? range / timing.median_seconds : 0;
}

// In sysfs, Linux writes 256 KB as "256K".
std::int64_t parse_cache_size(std::string_view text) {
  std::int64_t value = 0;
  for (const char c : text) {
    if (c >= '0' && c <= '9') {
      value = value * 10 + (c - '0');
    } else if (c == 'K') {
      value <<= 10;
    } else if (c == 'M') {
      value <<= 20;
    }
  }
  return value;
}

}  // namespace

double steady_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

Stopwatch::Stopwatch(const Place& place, const Protocol& protocol) : protocol_(protocol) {
  if (place.backend->uses_host_memory()) {
    meter_ = std::make_unique<HostMeter>(steady_seconds, protocol.flush_caches);
  } else {
    meter_ = std::make_unique<DeviceMeter>(place, protocol.flush_caches);
  }
}

Stopwatch::~Stopwatch() = default;

double Stopwatch::read(const std::function<void()>& call, double once) {
  const Candidate candidate{{}, call};
  meter_->flush();
  return read_once({&candidate, batch_of(once, protocol_)}, protocol_, *meter_);
}

double quantile(std::vector<double> values, double fraction) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double place = fraction * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  const double weight = place - static_cast<double>(below);
  return values[below] + weight * (values[above] - values[below]);
}

std::vector<Timing> measure(const std::vector<Candidate>& candidates, const Protocol& protocol,
                            Meter& meter) {
  check_candidates(candidates, protocol);
  std::vector<Runner> runners;
  std::vector<Timing> timings;
  std::vector<std::size_t> order;
  for (const Candidate& candidate : candidates) {
    runners.push_back(warm_up(candidate, protocol, meter));
    timings.emplace_back().name = candidate.name;
    order.push_back(order.size());
  }

  soak(runners, protocol, meter);
  std::mt19937_64 random(protocol.seed);
  const double begin = meter.now();
  for (int round = 0; round < protocol.rounds; ++round) {
    const bool spent = protocol.budget_seconds > 0 && meter.now() - begin > protocol.budget_seconds;
    if (spent && round >= kLeastRounds) break;
    shuffle(order, random);
    for (const std::size_t i : order) {
      meter.flush();
      timings[i].seconds.push_back(read_once(runners[i], protocol, meter));
    }
  }
  for (Timing& timing : timings) summarise(timing);
  return timings;
}

std::vector<Timing> measure(const std::vector<Candidate>& candidates, const Protocol& protocol,
                            Clock now) {
  HostMeter meter(now, protocol.flush_caches);
  return measure(candidates, protocol, meter);
}

std::vector<Timing> measure(const std::vector<Candidate>& candidates, const Protocol& protocol) {
  return measure(candidates, protocol, steady_seconds);
}

std::vector<Timing> measure(const std::vector<Candidate>& candidates, const Protocol& protocol,
                            const Place& place) {
  if (place.backend->uses_host_memory()) return measure(candidates, protocol);
  DeviceMeter meter(place, protocol.flush_caches);
  return measure(candidates, protocol, meter);
}

Ratio paired_ratio(const Timing& a, const Timing& b) {
  if (a.seconds.empty() || a.seconds.size() != b.seconds.size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("benchmark: a ratio needs the same rounds of both, at least 1, got {} "
                            "of '{}' and {} of '{}'",
                            a.seconds.size(), a.name, b.seconds.size(), b.name));
  }
  std::vector<double> ratios;
  for (std::size_t i = 0; i < a.seconds.size(); ++i) {
    ratios.push_back(b.seconds[i] / a.seconds[i]);
  }
  Ratio ratio;
  ratio.median = quantile(ratios, 0.5);
  ratio.low = quantile(ratios, 0.25);
  ratio.high = quantile(ratios, 0.75);
  ratio.tie = ratio.low <= 1 && 1 <= ratio.high;
  return ratio;
}

// sysfs is asked first, because sysconf() reports one core's share of the cache on some machines
// and nothing on others.
std::int64_t last_level_cache_bytes() {
  constexpr std::int64_t kFallback = 32 << 20;
  for (const char* index : {"index3", "index2"}) {
    const fs::path file = fs::path("/sys/devices/system/cpu/cpu0/cache") / index / "size";
    const std::int64_t bytes = parse_cache_size(try_read_file(file).value_or(""));
    if (bytes > 0) return bytes;
  }
  const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? bytes : kFallback;
}

double flush_bytes() { return 2.0 * static_cast<double>(last_level_cache_bytes()); }

}  // namespace tessera::runtime
