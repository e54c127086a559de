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
  double seconds = 0;  // median; 0 unless ok, and for a correct kernel that was not a finalist
  double spread = 0;
  std::string note;  // why it was refused
  std::string protocol;
  friend bool operator==(const Measurement&, const Measurement&) = default;
};

// The fastest kernel among the measurements, given oldest first, that `allowed` admits: the latest
// reading of each counts, and a kernel with any outcome but ok is out. Equal times go by name.
std::optional<TunedEntry> best_of(std::span<const Measurement> measurements,
                                  const std::function<bool(const std::string& kernel)>& allowed);

// The store that the dispatcher looks into, unless told otherwise.
std::filesystem::path tuning_store_in(const std::filesystem::path& cache_folder);

// Safe for many threads and processes at once; a damaged file is set aside as
// <file>.damaged-<n> and a new one begun.
class Store {
 public:
  // Opens or creates the file and its folder. Throws Error{io_error} when it cannot be opened, and
  // Error{unsupported} when it was written by another version or is a database of something else.
  explicit Store(const std::filesystem::path& file);
  ~Store();
  void record(const Measurement& measurement);
  // All of them or none.
  void record(std::span<const Measurement> measurements);
  // The fastest ok kernel measured for the problem on this device; kernels with any outcome but ok
  // are never returned.
  std::optional<TunedEntry> best(const std::string& device, const std::string& target,
                                 const std::string& problem, int threads) const;
  // What this version of the library measured for the problem on this device, oldest first.
  std::vector<Measurement> find(const std::string& device, const std::string& target,
                                const std::string& problem, int threads) const;
  std::vector<Measurement> all() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::tune
