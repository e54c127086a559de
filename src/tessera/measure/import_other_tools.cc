#include "tessera/measure/import_other_tools.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/hash.h"
#include "tessera/base/text.h"
#include "tessera/families/family.h"
#include "tessera/measure/import_other_tools_internal.h"
#include "tessera/measure/sweep_exchange.h"

namespace tessera::measure {
namespace {

constexpr std::size_t kLongestNote = 1000;

const std::string* find_field(const ForeignRow& row, const std::string& key) {
  const auto found = row.fields.find(key);
  return found == row.fields.end() ? nullptr : &found->second;
}

double positive(const ForeignRow& row, const std::string& key) {
  const std::string& text = row.fields.at(key);
  const char* const end = text.data() + text.size();
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end && std::isfinite(value) && value > 0) return value;
  refuse_foreign(row, fmt::format("'{}' must be a number above 0", key));
}

double seconds_of(const ForeignRow& row, const Problem& problem) {
  if (find_field(row, "latency_ms") != nullptr) return 1e-3 * positive(row, "latency_ms");
  if (find_field(row, "tflops") == nullptr) {
    refuse_foreign(row, "has neither 'latency_ms' nor 'tflops'");
  }
  return family_of(problem).flops(problem) / (1e12 * positive(row, "tflops"));
}

// The dispatcher's files say that a run failed by is_valid, or by a time of 0.
bool has_failed(const ForeignRow& row) {
  const std::string* const valid = find_field(row, "is_valid");
  if (valid != nullptr && (*valid == "false" || *valid == "0")) return true;
  const std::string* const time = find_field(row, "latency_ms");
  return time != nullptr && !time->empty() && time->find_first_not_of("0.") == std::string::npos;
}

std::string note_of(const ForeignRow& row) {
  return row.error.empty() ? "failed, as its file says" : shortened(row.error, kLongestNote);
}

// ---- which operation and kernel ----

// A row's kernel in our words. `source` is null for a kernel whose name stays as it is.
struct ReadKernel {
  const Family* family = nullptr;
  const InstanceSource* source = nullptr;
  std::optional<KernelSpec> ours;  // for a name of our own
};

std::optional<KernelSpec> own_name(const std::string& name) {
  if (find_family(name) == nullptr) return std::nullopt;
  try {
    return parse_name(name);
  } catch (const Error&) {
    return std::nullopt;
  }
}

const Family& family_in_words(const ForeignRow& row, const std::string& word) {
  if (const SourceOfName found = find_source_of(word); found.family != nullptr) {
    return *found.family;
  }
  try {
    return family_of(parse_op(word));
  } catch (const Error& error) {
    refuse_foreign(row, error.what());
  }
}

const InstanceSource* source_with_rows(const Family& family) {
  for (const InstanceSource& source : family.instances()) {
    if (source.from_row != nullptr) return &source;
  }
  return nullptr;
}

ReadKernel kernel_of(const ForeignRow& row, const ForeignRun& run) {
  if (row.kernel.empty()) refuse_foreign(row, "has no 'kernel'");
  ReadKernel kernel;
  kernel.ours = own_name(row.kernel);
  const std::string* const op = find_field(row, "op");
  const SourceOfName named = kernel.ours ? SourceOfName{} : find_source_of(row.fields.at("kernel"));
  if (op != nullptr) {
    kernel.family = &family_in_words(row, *op);
  } else if (kernel.ours) {
    kernel.family = &family_of(*kernel.ours);
  } else if (named.family != nullptr) {
    kernel.family = named.family;
  } else if (run.op.empty()) {
    refuse_foreign(row, "has no 'op'");
  } else {
    kernel.family = &family_in_words(row, in_lower_case(run.op));
  }
  if (kernel.ours) return kernel;
  kernel.source = named.source;
  const bool has_fields = row.fields.count("pipeline") > 0 && row.fields.count("tile_m") > 0;
  if (kernel.source == nullptr && has_fields) {
    kernel.source = source_with_rows(*kernel.family);
  }
  return kernel;
}

Problem problem_of(const ForeignRow& row, const Family& family) {
  try {
    return family.from_words(row.fields);
  } catch (const Error& error) {
    refuse_foreign(row, error.what());
  }
}

void check_machine(const ForeignRow& row, const ForeignRun& run, const ReadKernel& kernel) {
  const std::string* const arch = find_field(row, "arch");
  const std::string own = kernel.ours ? kernel.ours->target : arch != nullptr ? *arch : "";
  if (own.empty() || own == run.target) return;
  refuse_foreign(row,
                 fmt::format("was measured on {}, but the target given is {}", own, run.target));
}

// ---- the whole ----

struct Conversion {
  SweepData data;
  ForeignNotes notes;
  std::map<std::string, int> problems, kernels;
  std::map<std::pair<int, int>, std::size_t> places;  // of rows by problem and kernel
  std::set<std::string> mended, unpadded;             // names as files have them
};

int place_of(std::map<std::string, int>& places, std::vector<std::string>& texts,
             const std::string& text) {
  const auto [found, is_new] = places.emplace(text, static_cast<int>(texts.size()));
  if (is_new) texts.push_back(text);
  return found->second;
}

// The name of our spec of the kernel; the row gets what it says of the problem.
std::string name_in_our_words(ForeignRow& row, const ForeignRun& run, const ReadKernel& kernel,
                              Conversion& all, std::optional<Problem>& problem) {
  InstanceRow read;
  try {
    read = kernel.source->from_row(row.fields);
  } catch (const Error& error) {
    refuse_foreign(row, error.what());
  }
  if (read.is_mended) all.mended.insert(row.kernel);
  if (!read.is_padded) all.unpadded.insert(row.kernel);
  problem = problem_of(row, *kernel.family);
  return name_of(KernelSpec{signature_of(*problem), read.algorithm, run.target});
}

void check_own_kernel(const ForeignRow& row, const KernelSpec& kernel, const Problem& problem) {
  if (kernel.signature == signature_of(problem)) return;
  refuse_foreign(row, fmt::format("has the kernel {}, which does not compute '{}'", row.kernel,
                                  to_string(problem)));
}

bool is_faster(const SweepRow& a, const SweepRow& b) {
  if (a.outcome != b.outcome) return a.outcome == Outcome::ok;
  return a.seconds < b.seconds;
}

void add_row(ForeignRow row, const ForeignRun& run, Conversion& all) {
  for (const auto& [key, value] : run.fields) row.fields.emplace(key, in_lower_case(value));
  const ReadKernel kernel = kernel_of(row, run);
  check_machine(row, run, kernel);
  std::optional<Problem> problem;
  const bool is_read = kernel.source != nullptr;
  const std::string name = is_read ? name_in_our_words(row, run, kernel, all, problem) : row.kernel;
  if (!problem) problem = problem_of(row, *kernel.family);
  if (kernel.ours) check_own_kernel(row, *kernel.ours, *problem);
  SweepRow measured{.problem = place_of(all.problems, all.data.problems, to_string(*problem)),
                    .kernel = place_of(all.kernels, all.data.kernels, name)};
  if (has_failed(row)) {
    measured.outcome = Outcome::failed;
    measured.note = note_of(row);
  } else {
    measured.seconds = measured.min_seconds = seconds_of(row, *problem);
    measured.readings = 1;
  }
  const auto [place, is_new] =
      all.places.emplace(std::pair(measured.problem, measured.kernel), all.data.rows.size());
  if (is_new || !is_read) {
    all.data.rows.push_back(measured);
    return;
  }
  ++all.notes.merged;
  SweepRow& other = all.data.rows[place->second];
  if (is_faster(measured, other)) other = measured;
}

bool is_wanted(const ForeignRow& row, const ForeignRun& run) {
  return run.kernels.empty() || matches_wildcard(run.kernels, row.kernel);
}

Imported imported(std::vector<ForeignRow> rows, const ForeignRun& run, const std::string& id) {
  Conversion all;
  all.data.runs.push_back(
      {id, run.device, run.target, run.threads, "", 0, "", "imported", 0, 0, 0});
  for (ForeignRow& row : rows) {
    if (is_wanted(row, run)) add_row(std::move(row), run, all);
  }
  for (const SweepRow& row : all.data.rows) {
    if (row.outcome != Outcome::ok) ++all.notes.failed;
  }
  all.notes.mended = static_cast<std::int64_t>(all.mended.size());
  all.notes.unpadded = static_cast<std::int64_t>(all.unpadded.size());
  return {sorted(std::move(all.data)), all.notes};
}

std::string id_of(std::string_view text, const ForeignRun& run) {
  std::string all = std::string(text) + run.device + run.target + run.kernels;
  for (const auto& [key, value] : run.fields) all += fmt::format("\n{}={}", key, value);
  return hash_hex(all);
}

void require_machine(const ForeignRun& run, const std::string& source) {
  if (!run.device.empty() && !run.target.empty()) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("'{}': rows of another tool do not say where they were measured: give "
                          "--device-name and --target",
                          source));
}

}  // namespace

Imported from_foreign(std::string_view text, const ForeignRun& run, const std::string& source) {
  return imported(foreign_rows(text, source), run, id_of(text, run));
}

Imported read_import(const fs::path& file, const ForeignRun& run) {
  const std::string source = file.string();
  if (file.extension() == ".parquet") {
    const ColumnTable table = read_parquet(file);
    if (!is_foreign(table)) return {from_columns(table, source), {}};
    require_machine(run, source);
    return imported(foreign_rows(table, source), run, id_of(read_file(file), run));
  }
  const std::string text = read_file(file);
  if (file.extension() == ".csv" && is_table(text)) {
    const ColumnTable table = from_csv(text, source);
    if (!is_foreign(table)) return {from_columns(table, source), {}};
    require_machine(run, source);
    return imported(foreign_rows(table, source), run, id_of(text, run));
  }
  require_machine(run, source);
  return from_foreign(text, run, source);
}

}  // namespace tessera::measure
