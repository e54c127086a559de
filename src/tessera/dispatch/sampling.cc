#include "tessera/dispatch/sampling_internal.h"

#include <fmt/format.h>

#include <charconv>
#include <exception>
#include <limits>
#include <mutex>
#include <random>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/hash.h"
#include "tessera/base/log.h"
#include "tessera/families/family.h"

namespace tessera {
namespace {

// About a twentieth of a second of one thread; the reference then covers this many rows at most.
constexpr double kMultiplications = 0x1p26;
constexpr std::int64_t kRows = 64;

std::size_t bytes_of(const Tensors& tensors) {
  std::size_t bytes = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.is_empty()) continue;
    const std::size_t one = tensor.in_array
                                ? static_cast<std::size_t>(tensor.batches) * tensor.batch_bytes()
                                : tensor.bytes();
    bytes += (tensor.is_read() ? one : 0) + (tensor.is_written() ? one : 0);
  }
  return bytes;
}

[[noreturn]] void refuse_every(std::string_view what, std::string_view got) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} must be a whole number from 0, which compares no launch, to {}, got "
                          "'{}'",
                          what, std::numeric_limits<int>::max(), got));
}

int every_of_environment() {
  const std::string text = environment("TESSERA_VERIFY_EVERY");
  if (text.empty()) return 0;
  int every = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), every);
  if (error != std::errc{} || end != text.data() + text.size() || every < 0) {
    refuse_every("TESSERA_VERIFY_EVERY", text);
  }
  return every;
}

}  // namespace

struct Sampler::Sample {
  const Family* family;
  Problem problem;
  KernelSpec spec;
  std::string kernel;
  std::uint64_t seed;
  measure::HostOperands inputs, results;
};

Sampler::Sampler(int every, const Target& target, Wrong wrong)
    : every_(static_cast<std::uint64_t>(every)),
      target_(target),
      wrong_(std::move(wrong)),
      seed_(std::random_device{}() | std::uint64_t{std::random_device{}()} << 32U) {}

Sampler::~Sampler() { land(std::exchange(flight_, nullptr)); }

// One call of each `every` that follow one another, at another place each time, so that calls that
// come in turns are all drawn.
bool Sampler::is_drawn(std::uint64_t call) const {
  return hash_combine(seed_, call / every_) % every_ == call % every_;
}

bool Sampler::may_compare(const Problem& problem, const Operands& operands,
                          const runtime::Place& place) {
  const Family& family = family_of(problem);
  if (family.unpacked(problem) != problem || place.backend->is_capturing(place.options)) {
    ++refused_;
    return false;
  }
  const Tensors tensors = family.tensors(problem);
  if (writes_nothing(tensors) || operands.index() != problem.index()) return false;
  if (bytes_of(tensors) <= kMostSampledBytes) return true;
  ++large_;
  return false;
}

bool Sampler::take_off() {
  const std::lock_guard lock(mutex_);
  if (is_flying_ && flying_since_ == fork_generation()) {
    ++busy_;
    return false;
  }
  is_flying_ = true;
  flying_since_ = fork_generation();
  return true;
}

// A kernel runs also where its operands cannot be copied.
void Sampler::launch(const ReadyKernel& kernel, const Problem& problem, const Operands& operands,
                     const Launch& launch, const runtime::LaunchOptions& options) {
  const std::uint64_t call = calls_++;
  const runtime::Place place{&runtime::backend_for(target_), options};
  if (!is_drawn(call) || !may_compare(problem, operands, place) || !take_off()) {
    return kernel.loaded->launch(launch, options);
  }
  const auto end = [this] {
    const std::lock_guard lock(mutex_);
    is_flying_ = false;
  };
  std::unique_ptr<Sample> sample;
  try {
    sample = std::make_unique<Sample>(
        Sample{kernel.family,
               problem,
               kernel.spec,
               kernel.name,
               hash_combine(seed_, call),
               measure::copy_inputs(*kernel.family, problem, operands, place),
               {}});
  } catch (const std::exception&) {
    ++failed_;
  }
  try {
    kernel.loaded->launch(launch, options);
    if (sample) {
      sample->results = measure::copy_results(*kernel.family, operands, place, sample->inputs);
    }
  } catch (...) {
    end();
    throw;
  }
  if (!sample) return end();
  fly(std::move(sample));
}

void Sampler::fly(std::unique_ptr<Sample> sample) {
  std::unique_ptr<Flight> last;
  {
    const std::lock_guard lock(mutex_);
    last = std::exchange(flight_, nullptr);
  }
  land(std::move(last));  // it has ended, or is about to
  const std::lock_guard lock(mutex_);
  try {
    auto flight = std::make_unique<Flight>();
    flight->thread = std::thread([this, held = std::shared_ptr<Sample>(std::move(sample))] {
      compare(*held);
      const std::lock_guard ended(mutex_);
      is_flying_ = false;
    });
    flight_ = std::move(flight);
  } catch (const std::exception&) {  // no thread, or no memory for it
    ++failed_;
    is_flying_ = false;
  }
}

// Nothing waits for a thread of a parent process; its description is given up.
void Sampler::land(std::unique_ptr<Flight> flight) {
  if (!flight) return;
  if (flight->generation == fork_generation()) {
    flight->thread.join();
  } else {
    static_cast<void>(flight.release());
  }
}

void Sampler::compare(const Sample& sample) try {
  const ReferenceLimits limits{.multiplications = kMultiplications,
                               .rows = kRows,
                               .seed = sample.seed,
                               .fp8 = target_.fp8_encoding};
  const Family& family = *sample.family;
  const Reference reference = family.reference(sample.problem, sample.inputs.operands, limits);
  const Mismatch mismatch = family.compare(sample.problem, sample.results.operands, reference);
  ++compared_;
  if (mismatch.ok) return;
  ++wrong_count_;
  wrong_(sample.problem, sample.spec,
         fmt::format("a launch of '{}' that was drawn at random was wrong: {}; the reference's "
                     "seed was {}",
                     to_string(sample.problem), mismatch.message, sample.seed));
} catch (const std::exception& error) {
  ++failed_;
  try {
    warn_once(fmt::format("a launch of {} could not be compared: {}", sample.kernel, error.what()));
  } catch (const std::exception&) {
    // The program's sink has failed. There is nobody left to tell.
  }
}

SamplingReport Sampler::report() {
  std::unique_ptr<Flight> flight;
  {
    const std::lock_guard lock(mutex_);
    flight = std::exchange(flight_, nullptr);
  }
  land(std::move(flight));
  return {.launches = calls_,
          .compared = compared_,
          .wrong = wrong_count_,
          .busy = busy_,
          .too_large = large_,
          .not_comparable = refused_,
          .failed = failed_};
}

std::unique_ptr<Sampler> make_sampler(const DispatcherOptions& options, const Target& target,
                                      Sampler::Wrong wrong) {
  if (options.verify_every < 0) {
    refuse_every("dispatcher: verify_every", std::to_string(options.verify_every));
  }
  const int every = options.verify_every > 0 ? options.verify_every : every_of_environment();
  if (every == 0) return nullptr;
  return std::make_unique<Sampler>(every, target, std::move(wrong));
}

}  // namespace tessera
