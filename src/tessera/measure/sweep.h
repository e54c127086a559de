// Measuring a list of kernels on a list of problems, to learn from.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tessera/jit/build.h"
#include "tessera/measure/sweep_store.h"

namespace tessera::measure {

struct SweepProgress {
  bool is_building = false;  // kernels; else measuring
  std::size_t done = 0;      // kernels built, or problems measured
  std::size_t total = 0;
  std::string what;
  double seconds_left = 0;  // of measuring, by the pace so far; 0: not known
};

struct SweepOptions {
  double budget_seconds = 0;  // past it no problem is started; 0: none
  int shard = 1;              // this one of `shards` equal parts of the problems, from 1
  int shards = 1;
  int threads = 0;         // of CPU kernels; 0: OpenMP's own limit
  int device = 0;          // of the GPUs
  int jobs = 0;            // builds at a time; 0: one per core
  std::uint64_t seed = 1;  // of operands and orders
  int finalists = 5;       // of a problem
  double kernel_timeout_seconds = 10;
  bool retry = false;   // measure again what is stored with another outcome than ok
  std::string worker;   // the helper program; empty: the one installed with the library
  std::string version;  // of the library, for the record
  jit::BuildOptions build;
  std::function<bool()> stop;  // asked several times a second; true: end soon
  std::function<void(const SweepProgress&)> progress;
};

struct SweepReport {
  std::string run;            // SweepRun::id
  std::size_t problems = 0;   // of this shard
  std::size_t measured = 0;   // of them, by this call
  std::size_t stored = 0;     // of them, complete before
  std::size_t unserved = 0;   // problems that none of the kernels serves
  std::size_t remaining = 0;  // of them, for another call
  std::size_t rows = 0;
  std::map<Outcome, std::size_t> outcomes;
  std::vector<std::string> unmeasured;  // a sentence for each problem that could not be set up
  bool stopped = false;                 // by `stop`
  bool out_of_time = false;
  double build_seconds = 0;
  double measure_seconds = 0;
};

// Whether a problem belongs to shard `shard` of `shards`: by a hash of its text, the same on every
// machine.
bool in_shard(const std::string& problem, int shard, int shards);

// The kernels of the target's space that can serve one of the problems and whose names match,
// sorted by name.
std::vector<KernelSpec> kernels_for(std::span<const Problem> problems, const Target& target,
                                    std::string_view wildcard);

// Builds the kernels and measures each on every problem of the shard that it supports, leaving out
// what the store has. A worker process runs them; one that crashes, hangs, is wrong or cannot be
// built is recorded so. After each problem all its rows are stored at once. The first problem's
// best kernel is read again every few seconds, to see the clock drift. Throws
// Error{invalid_argument} for a shard that is none or when no kernel serves any problem,
// Error{unsupported} when this machine cannot run the target's kernels, Error{io_error} when the
// store cannot be written; what was stored before stays.
SweepReport sweep(std::span<const Problem> problems, std::span<const KernelSpec> kernels,
                  const Target& target, SweepStore& store, const SweepOptions& options);

}  // namespace tessera::measure
