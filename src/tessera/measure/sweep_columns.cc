#include "tessera/measure/sweep_columns.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <map>

#include "tessera/base/error.h"

namespace tessera::measure {
namespace {

using enum ColumnType;

constexpr std::size_t kLongestText = 4096;
constexpr std::array kColumns = {
    ColumnRow{"kind", text, "row, or clock for a reading of the run's clock"},
    ColumnRow{"problem", text, "as one types it after tessera run"},
    ColumnRow{"kernel", text, "its name"},
    ColumnRow{"outcome", text, "ok, wrong, crashed, timeout, failed or refused"},
    ColumnRow{"seconds", real, "median of the readings, 0 unless ok"},
    ColumnRow{"spread", real, "interquartile range / median"},
    ColumnRow{"min_seconds", real, "lowest reading"},
    ColumnRow{"readings", integer, "how many"},
    ColumnRow{"finalist", integer, "1: measured again against the problem's best"},
    ColumnRow{"at", real, "seconds since the run started"},
    ColumnRow{"note", text, "why it is not ok"},
    ColumnRow{"run", text, "the run's id"},
    ColumnRow{"device", text, "processor or GPU"},
    ColumnRow{"target", text, "the machine's row"},
    ColumnRow{"threads", integer, "of CPU kernels"},
    ColumnRow{"version", text, "of the library"},
    ColumnRow{"abi", integer, "of its kernels"},
    ColumnRow{"compiler", text, "of the kernels"},
    ColumnRow{"protocol", text, "how times were taken"},
    ColumnRow{"seed", integer, "of operands and orders"},
    ColumnRow{"clock_mhz", real, "highest that the machine states, 0: none"},
    ColumnRow{"started", integer, "seconds since 1970, UTC"},
};
constexpr std::string_view kRow = "row";
constexpr std::string_view kClock = "clock";

// ---- to columns ----

// Fills the columns of one row, in the order of kColumns.
class Writer {
 public:
  Writer() {
    for (const ColumnRow& row : kColumns)
      table_.columns.push_back({std::string(row.name), row.type, {}, {}, {}, {}});
    places_.resize(kColumns.size());
  }
  void begin() {
    at_ = 0;
    ++table_.rows;
  }
  Writer& add(std::string_view value) {
    Column& column = table_.columns[at_];
    const auto [found, is_new] =
        places_[at_].emplace(value, static_cast<std::int32_t>(column.words.size()));
    if (is_new) column.words.emplace_back(value);
    column.codes.push_back(found->second);
    ++at_;
    return *this;
  }
  Writer& add(double value) {
    table_.columns[at_++].reals.push_back(value);
    return *this;
  }
  Writer& add(std::int64_t value) {
    table_.columns[at_++].integers.push_back(value);
    return *this;
  }
  void add(const SweepRun& run) {
    add(run.id).add(run.device).add(run.target).add(std::int64_t{run.threads}).add(run.version);
    add(std::int64_t{run.abi}).add(run.compiler).add(run.protocol).add(run.seed);
    add(run.clock_mhz).add(run.started);
  }
  ColumnTable take() { return std::move(table_); }

 private:
  ColumnTable table_;
  std::vector<std::map<std::string, std::int32_t, std::less<>>> places_;
  std::size_t at_ = 0;
};

// ---- from columns ----

[[noreturn]] void refuse_column(const std::string& source, const std::string& words) {
  throw Error(ErrorCode::parse_error, fmt::format("'{}': {}", source, words));
}

class Reader {
 public:
  Reader(const ColumnTable& table, const std::string& source) : table_(table), source_(source) {
    for (const ColumnRow& row : kColumns) columns_.push_back(&find(row));
  }

  SweepData read() {
    for (row_ = 0; row_ < static_cast<std::size_t>(table_.rows); ++row_) {
      const std::string& kind = text("kind");
      if (kind == kRow) {
        data_.rows.push_back(read_row());
      } else if (kind == kClock) {
        const SweepRow row = read_row();
        data_.clock.push_back({row.run, row.problem, row.kernel, row.at, row.seconds});
      } else {
        refuse_row("kind", fmt::format("must be row or clock, got '{}'", kind));
      }
    }
    return std::move(data_);
  }

 private:
  const Column& find(const ColumnRow& wanted) const {
    for (const Column& column : table_.columns) {
      if (column.name != wanted.name) continue;
      const bool fits =
          column.type == wanted.type || (column.type == integer && wanted.type == real);
      if (!fits) refuse_column(source_, fmt::format("column '{}' has the wrong type", wanted.name));
      const std::size_t rows = column.type == ColumnType::text ? column.codes.size()
                               : column.type == real           ? column.reals.size()
                                                               : column.integers.size();
      if (rows == static_cast<std::size_t>(table_.rows)) return column;
      refuse_column(source_, fmt::format("column '{}' has {} values for {} rows", wanted.name, rows,
                                         table_.rows));
    }
    refuse_column(source_, fmt::format("column '{}' is missing ({})", wanted.name, wanted.meaning));
  }

  [[noreturn]] void refuse_row(std::string_view column, const std::string& words) const {
    refuse_column(source_, fmt::format("row {}, column '{}': {}", row_ + 1, column, words));
  }

  const Column& column(std::string_view name) const {
    std::size_t i = 0;
    while (kColumns[i].name != name) ++i;
    return *columns_[i];
  }
  const std::string& text(std::string_view name) const {
    const Column& c = column(name);
    const auto code = static_cast<std::size_t>(c.codes[row_]);
    if (code >= c.words.size()) refuse_row(name, "a text that is not there");
    if (c.words[code].size() > kLongestText) {
      refuse_row(name, fmt::format("texts have at most {} letters, got {}", kLongestText,
                                   c.words[code].size()));
    }
    return c.words[code];
  }
  double number(std::string_view name) const {
    const Column& c = column(name);
    const double value = c.type == real ? c.reals[row_] : static_cast<double>(c.integers[row_]);
    if (std::isfinite(value) && value >= 0) return value;
    refuse_row(name, fmt::format("must be finite and at least 0, got {}", value));
  }
  std::int64_t whole(std::string_view name) const { return column(name).integers[row_]; }
  int small(std::string_view name) const {
    const std::int64_t value = whole(name);
    if (value >= 0 && value <= 1'000'000) return static_cast<int>(value);
    refuse_row(name, fmt::format("must be from 0 to 1000000, got {}", value));
  }

  SweepRow read_row() {
    SweepRow row;
    row.run = run();
    row.problem = problem();
    row.kernel = place(kernels_, data_.kernels, text("kernel"));
    if (text("kernel").empty()) refuse_row("kernel", "must not be empty");
    row.outcome = outcome();
    row.seconds = number("seconds");
    if ((row.outcome == Outcome::ok) != (row.seconds > 0)) {
      refuse_row("seconds", fmt::format("must be above 0 for ok and 0 otherwise, got {} for {}",
                                        row.seconds, to_string(row.outcome)));
    }
    row.spread = number("spread");
    row.min_seconds = number("min_seconds");
    row.readings = small("readings");
    row.finalist = whole("finalist") != 0;
    row.at = number("at");
    row.note = text("note");
    return row;
  }

  Outcome outcome() const {
    try {
      return parse_outcome(text("outcome"));
    } catch (const Error& error) {
      refuse_row("outcome", error.what());
    }
  }

  static int place(std::map<std::string, int, std::less<>>& places, std::vector<std::string>& texts,
                   const std::string& text) {
    const auto [found, is_new] = places.emplace(text, static_cast<int>(texts.size()));
    if (is_new) texts.push_back(text);
    return found->second;
  }

  // The problem's index. Different texts of one problem get the same index.
  int problem() {
    const std::string& given = text("problem");
    if (const auto known = problems_.find(given); known != problems_.end()) return known->second;
    try {
      const std::string own = to_string(parse_problem(given));
      const int result = place(canonical_, data_.problems, own);
      problems_.emplace(given, result);
      return result;
    } catch (const Error& error) {
      refuse_row("problem", error.what());
    }
  }

  int run() {
    SweepRun run;
    run.id = text("run");
    run.device = text("device");
    run.target = text("target");
    run.threads = small("threads");
    run.version = text("version");
    run.abi = small("abi");
    run.compiler = text("compiler");
    run.protocol = text("protocol");
    run.seed = whole("seed");
    run.clock_mhz = number("clock_mhz");
    run.started = whole("started");
    if (run.id.empty()) refuse_row("run", "must not be empty");
    const auto [found, is_new] = runs_.emplace(run.id, static_cast<int>(data_.runs.size()));
    if (is_new) data_.runs.push_back(run);
    if (data_.runs[static_cast<std::size_t>(found->second)] == run) return found->second;
    refuse_row("run", fmt::format("run '{}' is described differently than before", run.id));
  }

  const ColumnTable& table_;
  const std::string& source_;
  std::vector<const Column*> columns_;
  std::size_t row_ = 0;
  SweepData data_;
  std::map<std::string, int, std::less<>> runs_, problems_, canonical_, kernels_;
};

}  // namespace

std::vector<ColumnRow> sweep_columns() { return {kColumns.begin(), kColumns.end()}; }

ColumnTable to_columns(const SweepData& data) {
  Writer writer;
  const auto at = [](const auto& list, int i) -> const auto& {
    return list[static_cast<std::size_t>(i)];
  };
  for (const SweepRow& row : data.rows) {
    writer.begin();
    writer.add(kRow).add(at(data.problems, row.problem)).add(at(data.kernels, row.kernel));
    writer.add(to_string(row.outcome)).add(row.seconds).add(row.spread).add(row.min_seconds);
    writer.add(std::int64_t{row.readings}).add(std::int64_t{row.finalist ? 1 : 0});
    writer.add(row.at).add(row.note).add(at(data.runs, row.run));
  }
  for (const ClockReading& reading : data.clock) {
    writer.begin();
    writer.add(kClock).add(at(data.problems, reading.problem));
    writer.add(at(data.kernels, reading.kernel)).add(to_string(Outcome::ok));
    writer.add(reading.seconds).add(0.0).add(0.0).add(std::int64_t{0}).add(std::int64_t{0});
    writer.add(reading.at).add(std::string_view{}).add(at(data.runs, reading.run));
  }
  return writer.take();
}

SweepData from_columns(const ColumnTable& table, const std::string& source) {
  return Reader(table, source).read();
}

}  // namespace tessera::measure
