// Texts are stored once and rows refer to them by number, so a row takes about 40 bytes. The rows
// of one problem on one machine are neighbours, because sweeps read them together.
#include "tessera/measure/sweep_store.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <random>
#include <system_error>
#include <tuple>

#include "tessera/base/enums.h"
#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/measure/database_internal.h"

namespace tessera::measure {
namespace {

constexpr Schema kSchema = {
    "sweep store", 2001,
    "CREATE TABLE machines(id INTEGER PRIMARY KEY, device TEXT NOT NULL, target TEXT NOT NULL,"
    " threads INTEGER NOT NULL, UNIQUE(device, target, threads));"
    "CREATE TABLE runs(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,"
    " machine INTEGER NOT NULL REFERENCES machines, version TEXT NOT NULL, abi INTEGER NOT NULL,"
    " compiler TEXT NOT NULL, protocol TEXT NOT NULL, seed INTEGER NOT NULL,"
    " clock_mhz REAL NOT NULL, started INTEGER NOT NULL);"
    "CREATE TABLE problems(id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);"
    "CREATE TABLE kernels(id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);"
    "CREATE TABLE rows(machine INTEGER NOT NULL, problem INTEGER NOT NULL, kernel INTEGER NOT NULL,"
    " run INTEGER NOT NULL, outcome TEXT NOT NULL, seconds REAL NOT NULL, spread REAL NOT NULL,"
    " min_seconds REAL NOT NULL, readings INTEGER NOT NULL, finalist INTEGER NOT NULL,"
    " at REAL NOT NULL, note TEXT NOT NULL, PRIMARY KEY(machine, problem, kernel)) WITHOUT ROWID;"
    "CREATE TABLE clock(run INTEGER NOT NULL, problem INTEGER NOT NULL, kernel INTEGER NOT NULL,"
    " at REAL NOT NULL, seconds REAL NOT NULL, PRIMARY KEY(run, at)) WITHOUT ROWID;"};

constexpr const char* kRowColumns =
    "run, problem, kernel, outcome, seconds, spread, min_seconds, readings, finalist, at, note";

std::int64_t only_integer(Statement& query) {
  query.step();
  const std::int64_t value = query.integer(0);
  query.reset();
  return value;
}

std::int64_t machine_of(const Connection& db, const SweepRun& run) {
  const char* const steps[] = {
      "INSERT OR IGNORE INTO machines(device, target, threads) VALUES(?,?,?)",
      "SELECT id FROM machines WHERE device = ? AND target = ? AND threads = ?"};
  std::int64_t id = 0;
  for (const char* sql : steps) {
    Statement statement(db, sql);
    statement.bind(1, run.device);
    statement.bind(2, run.target);
    statement.bind(3, run.threads);
    if (statement.step()) id = statement.integer(0);
  }
  return id;
}

std::vector<SweepRun> read_runs(const Connection& db, std::map<std::int64_t, int>& places) {
  Statement query(db,
                  "SELECT runs.id, name, device, target, threads, version, abi, compiler, protocol,"
                  " seed, clock_mhz, started FROM runs JOIN machines ON machine = machines.id"
                  " ORDER BY runs.id");
  std::vector<SweepRun> runs;
  while (query.step()) {
    places[query.integer(0)] = static_cast<int>(runs.size());
    runs.push_back({query.text(1), query.text(2), query.text(3), query.count(4), query.text(5),
                    query.count(6), query.text(7), query.text(8), query.integer(9),
                    query.quantity(10), query.integer(11)});
  }
  return runs;
}

// Runs with the same id are the same run.
std::int64_t run_of(const Connection& db, const SweepRun& run) {
  Statement insert(db,
                   "INSERT OR IGNORE INTO runs(name, machine, version, abi, compiler, protocol,"
                   " seed, clock_mhz, started) VALUES(?,?,?,?,?,?,?,?,?)");
  insert.bind(1, run.id);
  insert.bind(2, machine_of(db, run));
  insert.bind(3, run.version);
  insert.bind(4, run.abi);
  insert.bind(5, run.compiler);
  insert.bind(6, run.protocol);
  insert.bind(7, run.seed);
  insert.bind(8, run.clock_mhz);
  insert.bind(9, run.started);
  insert.step();
  Statement query(db, "SELECT id FROM runs WHERE name = ?");
  query.bind(1, run.id);
  return only_integer(query);
}

// The numbers of texts; new texts get new numbers.
class Texts {
 public:
  Texts(const Connection& db, const std::string& table)
      : insert_(db, fmt::format("INSERT OR IGNORE INTO {}(text) VALUES(?)", table)),
        query_(db, fmt::format("SELECT id FROM {} WHERE text = ?", table)) {}
  std::int64_t id_of(const std::string& text) {
    insert_.bind(1, text);
    insert_.step();
    insert_.reset();
    query_.bind(1, text);
    return only_integer(query_);
  }

 private:
  Statement insert_;
  Statement query_;
};

// The numbers of a list's texts.
std::vector<std::int64_t> ids_of(const Connection& db, const std::string& table,
                                 std::span<const std::string> texts) {
  Texts known(db, table);
  std::vector<std::int64_t> ids;
  for (const std::string& text : texts) ids.push_back(known.id_of(text));
  return ids;
}

// The numbers that stand for a row's texts in this file.
struct RowKey {
  std::int64_t machine, run, problem, kernel;
};

class RowWriter {
 public:
  explicit RowWriter(const Connection& db)
      : insert_(db, fmt::format("INSERT OR REPLACE INTO rows(machine, {}) VALUES("
                                "?,?,?,?,?,?,?,?,?,?,?,?)",
                                kRowColumns)) {}
  void write(const RowKey& key, const SweepRow& row) {
    insert_.bind(1, key.machine);
    insert_.bind(2, key.run);
    insert_.bind(3, key.problem);
    insert_.bind(4, key.kernel);
    insert_.bind(5, to_string(row.outcome));
    insert_.bind(6, row.seconds);
    insert_.bind(7, row.spread);
    insert_.bind(8, row.min_seconds);
    insert_.bind(9, row.readings);
    insert_.bind(10, row.finalist ? 1 : 0);
    insert_.bind(11, row.at);
    insert_.bind(12, row.note);
    insert_.step();
    insert_.reset();
  }

 private:
  Statement insert_;
};

// Columns in the order of kRowColumns; run, problem and kernel stay 0.
SweepRow read_row(const Statement& query) {
  SweepRow row;
  try {
    row.outcome = parse_outcome(query.text(3));
  } catch (const Error& error) {
    throw Damage{error.what()};
  }
  row.seconds = query.quantity(4);
  row.spread = query.quantity(5);
  row.min_seconds = query.quantity(6);
  row.readings = query.count(7);
  row.finalist = query.integer(8) != 0;
  row.at = query.quantity(9);
  row.note = query.text(10);
  return row;
}

std::vector<std::string> read_texts(const Connection& db, const std::string& table,
                                    std::map<std::int64_t, int>& places) {
  Statement query(db, fmt::format("SELECT id, text FROM {} ORDER BY id", table));
  std::vector<std::string> texts;
  while (query.step()) {
    places[query.integer(0)] = static_cast<int>(texts.size());
    texts.push_back(query.text(1));
  }
  return texts;
}

int place_of(const std::map<std::int64_t, int>& places, std::int64_t id) {
  const auto found = places.find(id);
  if (found == places.end()) throw Damage{fmt::format("a row refers to text {}, not there", id)};
  return found->second;
}

// ---- merging ----

class Merger {
 public:
  Merger(const Connection& db, const SweepData& data, Conflict conflict, const std::string& source,
         MergeCount& count)
      : db_(db),
        count_(count),
        data_(data),
        conflict_(conflict),
        source_(source),
        problems_(ids_of(db, "problems", data.problems)),
        kernels_(ids_of(db, "kernels", data.kernels)),
        find_(db,
              fmt::format("SELECT {} FROM rows WHERE machine = ? AND problem = ? AND kernel = ?",
                          kRowColumns)),
        writer_(db) {
    for (const SweepRun& run : data.runs) {
      runs_.push_back(run_of(db, run));
      machines_.push_back(machine_of(db, run));
    }
    std::map<std::int64_t, int> places;
    const std::vector<SweepRun> known = read_runs(db, places);
    for (const auto& [id, place] : places) by_id_[id] = known[static_cast<std::size_t>(place)];
    for (std::size_t i = 0; i < data.runs.size(); ++i) require_same_run(i);
  }

  void run() {
    for (const SweepRow& row : data_.rows) add(row);
    for (const ClockReading& reading : data_.clock) add(reading);
  }

 private:
  void require_same_run(std::size_t i) const {
    if (by_id_.at(runs_[i]) == data_.runs[i]) return;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("sweep store '{}' and '{}' describe run {} differently (device '{}' "
                            "and '{}'): one of them was edited; leave it out",
                            db_.file.string(), source_, data_.runs[i].id,
                            by_id_.at(runs_[i]).device, data_.runs[i].device));
  }

  void add(const SweepRow& row) {
    const auto run = static_cast<std::size_t>(row.run);
    const RowKey key = {machines_[run], runs_[run],
                        problems_[static_cast<std::size_t>(row.problem)],
                        kernels_[static_cast<std::size_t>(row.kernel)]};
    find_.bind(1, key.machine);
    find_.bind(2, key.problem);
    find_.bind(3, key.kernel);
    if (!find_.step()) {
      find_.reset();
      writer_.write(key, row);
      ++count_.added;
      return;
    }
    const std::int64_t run_there = find_.integer(0);
    SweepRow there = read_row(find_);
    find_.reset();
    there.run = row.run;
    there.problem = row.problem;
    there.kernel = row.kernel;
    if (run_there == key.run && there == row) {
      ++count_.identical;
    } else if (conflict_ == Conflict::refuse) {
      refuse(row, there);
    } else if (is_newer(data_.runs[run], row, by_id_.at(run_there), there)) {
      writer_.write(key, row);
      ++count_.replaced;
    } else {
      ++count_.older;
    }
  }

  // The row that was measured last is newer. The other fields only make the result independent of
  // the order of merging.
  static bool is_newer(const SweepRun& a_run, const SweepRow& a, const SweepRun& b_run,
                       const SweepRow& b) {
    const auto rank = [](const SweepRun& run, const SweepRow& row) {
      return std::tuple(static_cast<double>(run.started) + row.at, run.id, row.seconds,
                        to_string(row.outcome), row.spread, row.min_seconds, row.readings,
                        row.note);
    };
    return rank(a_run, a) > rank(b_run, b);
  }

  [[noreturn]] void refuse(const SweepRow& row, const SweepRow& there) const {
    const SweepRun& run = data_.runs[static_cast<std::size_t>(row.run)];
    const auto words = [](const SweepRow& r) {
      return fmt::format("{} {:.9g} s", to_string(r.outcome), r.seconds);
    };
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("'{}' and '{}' measured {} on '{}' ({}, {} threads) differently: {} "
                    "and {}: say which to believe with --prefer newest",
                    db_.file.string(), source_, data_.kernels[static_cast<std::size_t>(row.kernel)],
                    data_.problems[static_cast<std::size_t>(row.problem)], run.device, run.threads,
                    words(there), words(row)));
  }

  void add(const ClockReading& reading) {
    Statement insert(db_,
                     "INSERT OR REPLACE INTO clock(run, problem, kernel, at, seconds)"
                     " VALUES(?,?,?,?,?)");
    insert.bind(1, runs_[static_cast<std::size_t>(reading.run)]);
    insert.bind(2, problems_[static_cast<std::size_t>(reading.problem)]);
    insert.bind(3, kernels_[static_cast<std::size_t>(reading.kernel)]);
    insert.bind(4, reading.at);
    insert.bind(5, reading.seconds);
    insert.step();
  }

  const Connection& db_;
  MergeCount& count_;
  const SweepData& data_;
  Conflict conflict_;
  std::string source_;
  std::vector<std::int64_t> problems_, kernels_, runs_, machines_;
  std::map<std::int64_t, SweepRun> by_id_;
  Statement find_;
  RowWriter writer_;
};

// ---- sorting ----

// Sorts the texts that are used, and returns the new index for each old one.
std::vector<int> sort_texts(std::vector<std::string>& texts, std::vector<bool> used) {
  std::vector<int> order;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (used[i]) order.push_back(static_cast<int>(i));
  }
  const auto text = [&](int i) -> std::string& { return texts[static_cast<std::size_t>(i)]; };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return text(a) < text(b); });
  std::vector<int> places(texts.size(), 0);
  std::vector<std::string> result;
  for (const int i : order) {
    if (result.empty() || result.back() != text(i)) result.push_back(text(i));
    places[static_cast<std::size_t>(i)] = static_cast<int>(result.size()) - 1;
  }
  texts = std::move(result);
  return places;
}

std::vector<int> sort_runs(std::vector<SweepRun>& runs, const std::vector<bool>& used) {
  std::vector<int> order;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (used[i]) order.push_back(static_cast<int>(i));
  }
  const auto rank = [&](int i) {
    const SweepRun& run = runs[static_cast<std::size_t>(i)];
    return std::tie(run.started, run.id);
  };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return rank(a) < rank(b); });
  std::vector<int> places(runs.size());
  std::vector<SweepRun> result;
  for (const int i : order) {
    places[static_cast<std::size_t>(i)] = static_cast<int>(result.size());
    result.push_back(runs[static_cast<std::size_t>(i)]);
  }
  runs = std::move(result);
  return places;
}

template <typename Each>
void refer(Each& row, const std::vector<int>& runs, const std::vector<int>& problems,
           const std::vector<int>& kernels) {
  row.run = runs[static_cast<std::size_t>(row.run)];
  row.problem = problems[static_cast<std::size_t>(row.problem)];
  row.kernel = kernels[static_cast<std::size_t>(row.kernel)];
}

}  // namespace

SweepData sorted(SweepData data) {
  std::vector<bool> problems(data.problems.size(), false);
  std::vector<bool> kernels(data.kernels.size(), false);
  std::vector<bool> runs(data.runs.size(), false);
  const auto use = [&](const auto& row) {
    runs[static_cast<std::size_t>(row.run)] = true;
    problems[static_cast<std::size_t>(row.problem)] = true;
    kernels[static_cast<std::size_t>(row.kernel)] = true;
  };
  for (const SweepRow& row : data.rows) use(row);
  for (const ClockReading& reading : data.clock) use(reading);
  const std::vector<int> run_places = sort_runs(data.runs, runs);
  const std::vector<int> problem_places = sort_texts(data.problems, problems);
  const std::vector<int> kernel_places = sort_texts(data.kernels, kernels);
  for (SweepRow& row : data.rows) refer(row, run_places, problem_places, kernel_places);
  for (ClockReading& reading : data.clock) {
    refer(reading, run_places, problem_places, kernel_places);
  }
  std::sort(data.rows.begin(), data.rows.end(), [](const SweepRow& a, const SweepRow& b) {
    return std::tie(a.run, a.problem, a.kernel, a.at) < std::tie(b.run, b.problem, b.kernel, b.at);
  });
  std::sort(data.clock.begin(), data.clock.end(), [](const auto& a, const auto& b) {
    return std::tie(a.run, a.at) < std::tie(b.run, b.at);
  });
  return data;
}

struct SweepStore::State {
  Database database;
};

SweepStore::SweepStore(const fs::path& file, OpenMode mode) {
  check_enum("sweep store: mode", mode, OpenMode::existing);
  state_.reset(new State{{kSchema, file, mode == OpenMode::create ? Access::write : Access::read}});
}

SweepStore::~SweepStore() = default;

void SweepStore::record(const SweepRun& run, const std::string& problem,
                        std::span<const std::string> kernels, std::span<const SweepRow> rows) {
  state_->database.with([&](const Connection& db) {
    Transaction transaction(db);
    RowKey key = {machine_of(db, run), run_of(db, run), Texts(db, "problems").id_of(problem), 0};
    Texts names(db, "kernels");
    RowWriter writer(db);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      key.kernel = names.id_of(kernels[i]);
      writer.write(key, rows[i]);
    }
    transaction.commit();
    return 0;
  });
}

void SweepStore::record_clock(const SweepRun& run, const std::string& problem,
                              const std::string& kernel, double at, double seconds) {
  SweepData data;
  data.runs = {run};
  data.problems = {problem};
  data.kernels = {kernel};
  data.clock = {{0, 0, 0, at, seconds}};
  const SweepPart part{std::move(data), "this sweep"};
  add(std::span(&part, 1), Conflict::refuse);
}

std::map<std::string, Outcome> SweepStore::find(const std::string& device,
                                                const std::string& target, int threads,
                                                const std::string& problem) const {
  return state_->database.with([&](const Connection& db) {
    Statement query(db,
                    "SELECT kernels.text, outcome FROM rows JOIN machines ON machines.id = machine"
                    " JOIN problems ON problems.id = problem JOIN kernels ON kernels.id = kernel"
                    " WHERE device = ? AND target = ? AND threads = ? AND problems.text = ?");
    query.bind(1, device);
    query.bind(2, target);
    query.bind(3, threads);
    query.bind(4, problem);
    std::map<std::string, Outcome> found;
    while (query.step()) {
      try {
        found[query.text(0)] = parse_outcome(query.text(1));
      } catch (const Error& error) {
        throw Damage{error.what()};
      }
    }
    return found;
  });
}

SweepData SweepStore::read() const {
  return state_->database.with([&](const Connection& db) {
    SweepData data;
    std::map<std::int64_t, int> runs, problems, kernels;
    data.runs = read_runs(db, runs);
    data.problems = read_texts(db, "problems", problems);
    data.kernels = read_texts(db, "kernels", kernels);
    Statement query(
        db, fmt::format("SELECT {} FROM rows ORDER BY machine, problem, kernel", kRowColumns));
    while (query.step()) {
      SweepRow row = read_row(query);
      row.run = place_of(runs, query.integer(0));
      row.problem = place_of(problems, query.integer(1));
      row.kernel = place_of(kernels, query.integer(2));
      data.rows.push_back(std::move(row));
    }
    Statement clock(db, "SELECT run, problem, kernel, at, seconds FROM clock ORDER BY run, at");
    while (clock.step()) {
      data.clock.push_back({place_of(runs, clock.integer(0)), place_of(problems, clock.integer(1)),
                            place_of(kernels, clock.integer(2)), clock.quantity(3),
                            clock.quantity(4)});
    }
    return data;
  });
}

MergeCount SweepStore::add(std::span<const SweepPart> parts, Conflict conflict) {
  check_enum("sweep store: conflict", conflict, Conflict::prefer_newest);
  return state_->database.with([&](const Connection& db) {
    Transaction transaction(db);
    MergeCount count;
    for (const SweepPart& part : parts) {
      Merger(db, part.data, conflict, part.source, count).run();
    }
    transaction.commit();
    return count;
  });
}

namespace {

// A file's name until the file is whole; unless it has been given its own, the destructor removes
// the file and SQLite's journal.
class NewStore {
 public:
  explicit NewStore(const fs::path& file)
      : file_(file), part_(fmt::format("{}.part-{:08x}", file.string(), std::random_device{}())) {}
  ~NewStore() {
    std::error_code gone;
    fs::remove(part_, gone);
    fs::remove(part_ + "-journal", gone);
  }
  NewStore(const NewStore&) = delete;
  NewStore& operator=(const NewStore&) = delete;
  const std::string& part() const { return part_; }

  void give_name() const {
    const int refused =
        renameat2(AT_FDCWD, part_.c_str(), AT_FDCWD, file_.c_str(), RENAME_NOREPLACE);
    // Some file systems do not know the flag.
    if (refused != 0 && (errno != EINVAL || rename(part_.c_str(), file_.c_str()) != 0)) {
      throw Error(
          ErrorCode::io_error,
          fmt::format("sweep store '{}': the new store cannot get this name: {}: if another "
                      "process made one meanwhile, run this again",
                      file_.string(), std::generic_category().message(errno)));
    }
    fsync_folder(file_.has_parent_path() ? file_.parent_path() : fs::path("."));
  }

 private:
  fs::path file_;
  std::string part_;
};

}  // namespace

MergeCount add_to_store(const fs::path& file, std::span<const SweepPart> parts, Conflict conflict) {
  std::error_code unknown;  // the store that is made says why
  if (fs::exists(fs::symlink_status(file, unknown))) return SweepStore(file).add(parts, conflict);
  const NewStore made(file);
  try {
    const MergeCount count = SweepStore(made.part()).add(parts, conflict);
    made.give_name();
    return count;
  } catch (const Error& error) {  // the caller knows the store's own name only
    std::string words = error.what();
    for (std::size_t at = 0; (at = words.find(made.part(), at)) != words.npos;) {
      words.replace(at, made.part().size(), file.string());
      at += file.string().size();
    }
    throw Error(error.code(), words, error.context());
  }
}

}  // namespace tessera::measure
