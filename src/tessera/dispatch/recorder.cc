#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/foreign_error.h"
#include "tessera/base/forever.h"
#include "tessera/base/log.h"
#include "tessera/base/version.h"
#include "tessera/dispatch/recorder_internal.h"

namespace tessera {

std::atomic<int> recordings = 0;

namespace {

constexpr std::int64_t kFlushSeconds = 1;

// Steps of some milliseconds are enough here, and reading this clock takes a few nanoseconds.
std::int64_t coarse_seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec;
}

std::string random_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

// All files of this process, and those that were begun and not ended yet, the last one at the end.
struct AllRecorders {
  Mutex mutex;
  std::map<std::filesystem::path, std::unique_ptr<Recorder>> of;
  std::vector<Recorder*> begun;
  std::atomic<Recorder*> last = nullptr;
};

AllRecorders& all_recorders() {
  static Forever<AllRecorders> instance;
  return *instance;
}

// The same name before and after the file is made, and wherever the program goes meanwhile.
std::filesystem::path whole_path(const std::filesystem::path& file) {
  std::error_code refused;
  const std::filesystem::path absolute = std::filesystem::absolute(file, refused);
  if (refused) return file;
  std::filesystem::path whole = std::filesystem::weakly_canonical(absolute, refused);
  return refused ? absolute : whole;
}

// Whether there is a recorder, so that the end of other programs does nothing.
std::atomic<bool> has_recorders = false;

// What the file tells rows by, as one text. None of its parts holds a line's end.
std::string key_of(int target, const RecordRow& row) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}{}\n{}\n{}\n{}", target, row.machine, row.problem,
                     row.threads, row.device, row.deterministic ? 1 : 0,
                     row.batch_invariant ? 1 : 0, row.kernel, to_string(row.source),
                     to_string(row.origin));
}

// The program ends: what waits is written. The sink may be gone already.
[[gnu::destructor]] void write_records_at_exit() {
  if (!has_recorders) return;
  std::vector<Recorder*> written;
  {
    AllRecorders& all = all_recorders();
    const std::lock_guard lock(all.mutex);
    for (const auto& [file, recorder] : all.of) written.push_back(recorder.get());
  }
  set_log_sink({});
  for (Recorder* recorder : written) recorder->flush();
}

}  // namespace

Recorder& Recorder::of(const std::filesystem::path& file) {
  AllRecorders& all = all_recorders();
  const std::filesystem::path whole = whole_path(file);
  Recorder* recorder = nullptr;
  {
    const std::lock_guard lock(all.mutex);
    std::unique_ptr<Recorder>& kept = all.of[whole];
    if (kept == nullptr) kept = std::make_unique<Recorder>(whole);
    recorder = kept.get();
    has_recorders = true;
  }
  recorder->open();
  return *recorder;
}

Recorder::Recorder(std::filesystem::path file)
    : file_(std::move(file)), generation_(fork_generation()) {
  begin_run();
}

void Recorder::begin_run() { run_ = {random_name(), std::string(kVersion), std::time(nullptr)}; }

void Recorder::open() {
  const std::lock_guard lock(work_);
  if (database_ == nullptr) {
    database_ = std::make_unique<measure::Database>(kRecordSchema, file_, measure::Access::write);
  }
}

void Recorder::close() {
  flush();
  const std::lock_guard lock(work_);
  database_.reset();
}

Tally& Recorder::tally(const Target& target, const RecordRow& row) {
  follow_fork();
  const std::string text = to_json(target);
  const std::lock_guard lock(mutex_);
  auto place = std::find(targets_.begin(), targets_.end(), text);
  if (place == targets_.end()) place = targets_.insert(place, text);
  const int index = static_cast<int>(place - targets_.begin());
  const auto [found, is_new] = tallies_.try_emplace(key_of(index, row));
  if (is_new) {
    found->second.owner = this;
    found->second.row = row;
    found->second.row.target = index;
  }
  return found->second;
}

Tally& Recorder::add_miss(const Target& target, const RecordRow& row) {
  Tally& tally = this->tally(target, row);
  bool is_new = false;
  {
    const std::lock_guard lock(mutex_);
    is_new = tally.is_new;
    tally.misses += row.misses;
    tally.choose_seconds += row.choose_seconds;
    tally.ready_seconds += row.ready_seconds;
  }
  is_new ? flush() : flush_if_due();
  return tally;
}

void Recorder::count(Tally& tally) {
  if (generation_.load(std::memory_order_relaxed) != fork_generation()) follow_fork();
  tally.calls.fetch_add(1, std::memory_order_relaxed);
  flush_if_due();
}

void Recorder::flush_if_due() {
  const std::int64_t now = coarse_seconds();
  std::int64_t due = next_flush_.load(std::memory_order_relaxed);
  if (now < due) return;
  if (next_flush_.compare_exchange_strong(due, now + kFlushSeconds)) flush();
}

// What waits in a child of fork() is the parent's, which writes it. The child is a process of its
// own.
void Recorder::follow_fork() {
  const std::lock_guard lock(mutex_);
  if (generation_.load() == fork_generation()) return;
  for (auto& [key, tally] : tallies_) {
    tally.written = tally.calls.load();
    tally.misses = 0;
    tally.choose_seconds = tally.ready_seconds = 0;
    tally.is_new = false;  // a row of the parent's, until this process asks for it
  }
  begin_run();
  generation_.store(fork_generation());
}

RecordPart Recorder::waiting() {
  const std::lock_guard lock(mutex_);
  RecordPart part{run_, targets_, {}};
  writing_.clear();
  for (auto& [key, tally] : tallies_) {
    const std::int64_t calls = tally.calls.load(std::memory_order_relaxed) - tally.written;
    if (calls == 0 && tally.misses == 0 && !tally.is_new) continue;
    RecordRow row = tally.row;
    row.calls = calls;
    row.misses = tally.misses;
    row.choose_seconds = tally.choose_seconds;
    row.ready_seconds = tally.ready_seconds;
    part.rows.push_back(std::move(row));
    writing_.push_back(&tally);
  }
  return part;
}

void Recorder::written(const RecordPart& part) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < part.rows.size(); ++i) {
    Tally& tally = *writing_[i];
    const RecordRow& row = part.rows[i];
    tally.written += row.calls;
    tally.misses -= row.misses;
    tally.choose_seconds = tally.misses == 0 ? 0 : tally.choose_seconds - row.choose_seconds;
    tally.ready_seconds = tally.misses == 0 ? 0 : tally.ready_seconds - row.ready_seconds;
    tally.is_new = false;
  }
}

void Recorder::write(const RecordPart& part) {
  if (database_ == nullptr) {
    database_ = std::make_unique<measure::Database>(kRecordSchema, file_, measure::Access::write);
  }
  database_->with([&](const measure::Connection& db) {
    write_parts(db, {&part, 1}, RecordSum::add);
    return 0;
  });
}

void Recorder::flush() noexcept try {
  follow_fork();
  const std::lock_guard lock(work_);
  next_flush_.store(coarse_seconds() + kFlushSeconds);
  const RecordPart part = waiting();
  if (part.rows.empty()) return;
  write(part);
  written(part);
} catch (const std::exception& error) {
  try {
    warn_once(fmt::format("nothing was added to the record; its numbers are kept: {}",
                          error_of(error).what()));
  } catch (const std::exception&) {  // a record ends no call
    return;
  }
}

void MissReport::chosen(const Decision& decision, const Registry& registry) {
  decision_ = decision;
  was_loaded_ = registry.find(decision.name) != nullptr;
  chosen_ = Clock::now();
}

RecordRow MissReport::timed(RecordRow row) const {
  const auto seconds = [](Clock::duration time) {
    return std::chrono::duration<double>(time).count();
  };
  const Clock::time_point now = Clock::now();
  row.misses = 1;
  row.choose_seconds = seconds((decision_ ? chosen_ : now) - start_);
  row.ready_seconds = decision_ ? seconds(now - chosen_) : 0;
  if (!decision_) return row;
  row.kernel = decision_->name;
  row.source = decision_->source;
  row.why = decision_->why;
  row.predicted_seconds = decision_->predicted_seconds;
  return row;
}

RecordRow MissReport::ready(RecordRow row, const Registry& registry) const {
  row = timed(std::move(row));
  const std::optional<jit::Artifact> artifact = registry.artifact(row.kernel);
  const jit::ArtifactFrom from = artifact ? artifact->from : jit::ArtifactFrom::cache;
  row.origin = was_loaded_                           ? KernelOrigin::loaded
               : from == jit::ArtifactFrom::pack     ? KernelOrigin::pack
               : from == jit::ArtifactFrom::compiler ? KernelOrigin::compiled
                                                     : KernelOrigin::cache;
  return row;
}

RecordRow MissReport::failed(RecordRow row, const Error& error) const {
  row = timed(std::move(row));
  row.origin = KernelOrigin::none;
  row.why = error.what();
  return row;
}

RecordRow row_earlier(RecordRow row, const ReadyKernel& kernel, const Decision& now) {
  row.kernel = kernel.name;
  row.source = kernel.source;
  row.predicted_seconds = kernel.predicted_seconds;
  row.origin = KernelOrigin::earlier;
  row.why = now.name == kernel.name ? now.why : "it was chosen before the record began";
  return row;
}

Recording::Recording(const std::string& option) {
  const std::string environments = environment("TESSERA_RECORD");
  if (!option.empty()) {
    own_ = &Recorder::of(option);
  } else if (!environments.empty()) {
    try {
      environments_ = &Recorder::of(environments);
    } catch (const Error& error) {
      warn_once(fmt::format("TESSERA_RECORD: nothing is recorded: {}", error.what()));
    }
  }
  if (own_ != nullptr || environments_ != nullptr) ++recordings;
}

Recording::~Recording() {
  if (own_ == nullptr && environments_ == nullptr) return;
  --recordings;
  (own_ != nullptr ? own_ : environments_)->flush();
}

Recorder* Recording::active() const {
  if (own_ != nullptr) return own_;
  Recorder* const begun = all_recorders().last.load(std::memory_order_acquire);
  return begun != nullptr ? begun : environments_;
}

void begin_record(const std::filesystem::path& file) {
  Recorder& recorder = Recorder::of(file);
  AllRecorders& all = all_recorders();
  const std::lock_guard lock(all.mutex);
  all.begun.push_back(&recorder);
  all.last = &recorder;
  ++recordings;
}

void end_record(const std::filesystem::path& file) {
  AllRecorders& all = all_recorders();
  const std::filesystem::path whole = whole_path(file);
  Recorder* ended = nullptr;
  bool is_left = false;
  {
    const std::lock_guard lock(all.mutex);
    const auto last = std::find_if(all.begun.rbegin(), all.begun.rend(),
                                   [&](const Recorder* r) { return r->file() == whole; });
    if (last == all.begun.rend()) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("record: '{}' was not begun, or has ended; {} others are being "
                              "written",
                              file.string(), all.begun.size()));
    }
    ended = *last;
    all.begun.erase(std::next(last).base());
    all.last = all.begun.empty() ? nullptr : all.begun.back();
    is_left = std::find(all.begun.begin(), all.begun.end(), ended) != all.begun.end();
    --recordings;
  }
  if (is_left) ended->flush();
  if (!is_left) ended->close();
}

}  // namespace tessera
