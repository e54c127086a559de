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
  bool is_building = false;  // true: building kernels; false: measuring
  std::size_t done = 0;      // kernels built, or problems measured
  std::size_t total = 0;
  std::string what;
  double seconds_left = 0;  // seconds of measuring, by the pace so far; 0: not known
};

struct SweepOptions {
  double budget_seconds = 0;  // after it no problem is started; 0: no budget
  int shard = 1;              // which one of `shards` equal parts of the problems, from 1
  int shards = 1;
  int threads = 0;         // threads of CPU kernels; 0: OpenMP's own limit
  int device = 0;          // the GPU's number
  int jobs = 0;            // builds at a time; 0: one for each core
  std::uint64_t seed = 1;  // seed of operands and random orders
  int finalists = 5;       // how many of a problem's best kernels are measured again
  double kernel_timeout_seconds = 10;
  bool retry = false;   // measure again what is stored with another outcome than ok
  std::string worker;   // the worker program; empty: the one installed with the library
  std::string version;  // the library's version, to be stored
  jit::BuildOptions build;
  std::function<bool()> stop;  // asked several times a second; true: end soon
  std::function<void(const SweepProgress&)> progress;
};

struct SweepReport {
  std::string run;            // SweepRun::id
  std::size_t problems = 0;   // problems of this shard
  std::size_t measured = 0;   // of these, measured by this call
  std::size_t stored = 0;     // of these, complete before this call
  std::size_t unserved = 0;   // problems that none of the kernels supports
  std::size_t remaining = 0;  // of the shard's, left for another call
  std::size_t rows = 0;
  std::map<Outcome, std::size_t> outcomes;
  std::vector<std::string> unmeasured;  // a sentence for each problem that could not be prepared
  bool stopped = false;                 // `stop` ended it
  bool out_of_time = false;
  double build_seconds = 0;
  double measure_seconds = 0;
};

// Whether a problem belongs to shard `shard` of `shards`: by a hash of its text, which is the same
// on every machine.
bool in_shard(const std::string& problem, int shard, int shards);

// The kernels of the target's space that support at least one of the problems and whose names
// match, sorted by name.
std::vector<KernelSpec> kernels_for(std::span<const Problem> problems, const Target& target,
                                    std::string_view wildcard);

// Builds the kernels and measures each one on every problem of the shard that it supports, except
// for rows that the store already has. A worker process runs the kernels. A kernel that crashes,
// hangs, is wrong or cannot be built is recorded with that outcome. After each problem all its rows
// are stored at once. The first problem's best kernel is measured again every few seconds, to see
// the clock drift. Throws Error{invalid_argument} for an impossible shard and when no kernel
// supports any problem, Error{unsupported} when this machine cannot run the target's kernels, and
// Error{io_error} when the store cannot be written; rows that are stored already stay.
SweepReport sweep(std::span<const Problem> problems, std::span<const KernelSpec> kernels,
                  const Target& target, SweepStore& store, const SweepOptions& options);

}  // namespace tessera::measure
