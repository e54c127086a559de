// Compares some launches with the reference in the background.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "tessera/base/fork.h"
#include "tessera/dispatch/dispatcher.h"
#include "tessera/families/launch.h"
#include "tessera/measure/operands.h"

namespace tessera {

// Draws one launch of every `every`, copies its operands, and compares its outputs with the
// reference on a thread of its own. At most one comparison is in flight, and its copies have at
// most kMostSampledBytes: launches that come meanwhile or are larger are counted and not compared.
// Nothing is compared while a stream is captured. Thread-safe.
class Sampler {
 public:
  // `wrong` is called on the sampler's thread with the sentence of each mismatch.
  using Wrong = std::function<void(const Problem&, const KernelSpec&, const std::string& sentence)>;

  Sampler(int every, const Target& target, Wrong wrong);
  ~Sampler();  // waits for the comparison in flight
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Launches the kernel. A launch that is compared waits until it has run.
  void launch(const ReadyKernel& kernel, const Problem& problem, const Operands& operands,
              const Launch& launch, const runtime::LaunchOptions& options);
  // What happened so far. Waits for the comparison in flight.
  SamplingReport report();

 private:
  struct Sample;
  struct Flight {
    std::thread thread;
    unsigned generation = fork_generation();  // in a child of fork() the thread does not exist
  };
  bool is_drawn(std::uint64_t call) const;
  // Counts why not, where it returns false.
  bool may_compare(const Problem& problem, const Operands& operands, const runtime::Place& place);
  bool take_off();
  void fly(std::unique_ptr<Sample> sample);
  void compare(const Sample& sample);
  void land(std::unique_ptr<Flight> flight);

  const std::uint64_t every_;
  const Target& target_;
  const Wrong wrong_;
  const std::uint64_t seed_;
  std::atomic<std::uint64_t> calls_ = 0, compared_ = 0, busy_ = 0, refused_ = 0, large_ = 0,
                             failed_ = 0, wrong_count_ = 0;
  Mutex mutex_;  // guards what follows
  bool is_flying_ = false;
  unsigned flying_since_ = 0;  // the fork_generation() of is_flying_
  std::unique_ptr<Flight> flight_;
};

inline constexpr std::size_t kMostSampledBytes = std::size_t{1} << 28;

// Null where neither the options nor TESSERA_VERIFY_EVERY ask for it. Throws
// Error{invalid_argument} for a number that is none.
std::unique_ptr<Sampler> make_sampler(const DispatcherOptions& options, const Target& target,
                                      Sampler::Wrong wrong);

}  // namespace tessera
