// The tuning store: measured winners per device, in SQLite.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/measure/outcome.h"
#include "tessera/select/select.h"

namespace tessera::tune {

// One measurement of one kernel on one problem.
struct Measurement {
  std::string device;  // host_info().cpu_model, or the GPU's name
  std::string target;
  std::string problem;  // to_string(problem)
  std::string kernel;
  int threads = 1;
  measure::Outcome outcome = measure::Outcome::ok;
  double seconds = 0;  // median; 0 unless ok, and for ok kernels that were not finalists
  double spread = 0;
  std::string note;  // why it was refused
  std::string protocol;
  friend bool operator==(const Measurement&, const Measurement&) = default;
};

// The fastest kernel among the measurements (oldest first) that `allowed` accepts. The latest
// measurement of each kernel counts, and kernels with an outcome other than ok are left out. Equal
// times are ordered by name.
std::optional<TunedEntry> best_of(std::span<const Measurement> measurements,
                                  const std::function<bool(const std::string& kernel)>& allowed);

// The default path of the dispatcher's store.
std::filesystem::path tuning_store_in(const std::filesystem::path& cache_folder);

// Safe for many threads and processes at once; a damaged file is set aside as
// <file>.damaged-<n> and a new one begun.
class Store {
 public:
  // Opens or creates the file and its folder. Throws Error{io_error} when it cannot be opened, and
  // Error{unsupported} when it was written by another version or is a database of something else.
  explicit Store(const std::filesystem::path& file);
  // In memory, for as long as the object lives.
  Store();
  ~Store();
  void record(const Measurement& measurement);
  // Stores all measurements, or none when it throws.
  void record(std::span<const Measurement> measurements);
  // The fastest kernel for the problem on this device. Kernels with an outcome other than ok are
  // never returned.
  std::optional<TunedEntry> best(const std::string& device, const std::string& target,
                                 const std::string& problem, int threads) const;
  // The measurements of this version of the library for the problem on this device, oldest first.
  std::vector<Measurement> find(const std::string& device, const std::string& target,
                                const std::string& problem, int threads) const;
  std::vector<Measurement> all() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::tune
