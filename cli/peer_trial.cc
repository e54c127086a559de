#include "peer_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace tessera::cli {
namespace {

// The library may print too. Only lines with this prefix are ours.
constexpr std::string_view kMark = "tessera-peer ";
constexpr double kLoadSeconds = 20;

void say(std::string_view what, const std::string& rest = {}) {
  fmt::print("{}{} {}\n", kMark, what, rest);
  std::fflush(stdout);
}

std::string way_of(const peers::PeerCall& call) {
  return fmt::format("{} {}", call.group, call.how);
}

// What the child reported before it ended.
struct Told {
  int tried = 0;
  std::string running;  // the way that began and did not end
  bool is_loaded = false;
  bool is_done = false;
};

Told read_told(std::string_view output, PeerTrial& trial) {
  Told told;
  for (std::string_view line : split(output, '\n')) {
    if (!line.starts_with(kMark)) continue;
    line.remove_prefix(kMark.size());
    const std::size_t space = std::min(line.find(' '), line.size());
    const std::string_view what = line.substr(0, space);
    const std::string rest(line.substr(std::min(space + 1, line.size())));
    if (what == "loaded") told.is_loaded = true;
    if (what == "done") told.is_done = true;
    if (what == "note") trial.notes.push_back(rest);
    if (what == "begin") {
      ++told.tried;
      told.running = rest;
    }
    if (what == "good") trial.good.push_back(rest);
    if (what == "good" || what == "bad") told.running.clear();
    if (what == "bad") trial.notes.push_back(rest);
  }
  return told;
}

std::string how_it_ended(const SubprocessResult& child, double limit_seconds) {
  if (child.timed_out) return fmt::format("it did not end within {:.3g} s", limit_seconds);
  if (child.signal != 0) {
    return fmt::format("it died on signal {} ({})", child.signal, strsignal(child.signal));
  }
  return fmt::format("it ended the process with status {}", child.exit_code);
}

std::vector<std::string> child_words(const std::string& peer, const Problem* problem,
                                     const RunSettings& run, int first) {
  std::vector<std::string> words = {"/proc/self/exe",
                                    "bench",
                                    "peers",
                                    "--peers",
                                    peer,
                                    "--first",
                                    std::to_string(first),
                                    "--threads",
                                    std::to_string(run.threads),
                                    "--seed",
                                    std::to_string(run.seed),
                                    "--device",
                                    std::to_string(run.device)};
  if (problem == nullptr) return words;
  const std::string text = to_string(*problem);
  for (const std::string_view word : split_words(text)) words.emplace_back(word);
  return words;
}

void run_ways(const peers::Peer& peer, const Problem& problem, const RunSettings& run, int first) {
  runtime::Place place = peers::place_of_peer(peer.name());
  place.options = run_options(run).launch;
  const Problem plain = family_of(problem).unpacked(problem);
  const measure::OwnedOperands owned =
      measure::random_operands(plain, run.seed, runtime::thread_limit(place.options));
  const measure::PlacedOperands placed = measure::place_operands(owned, place);
  const std::vector<peers::PeerCall> calls = peer.calls(plain, placed.operands);
  say("loaded");
  for (std::size_t i = static_cast<std::size_t>(first); i < calls.size(); ++i) {
    say("begin", way_of(calls[i]));
    try {
      calls[i].call();
      place.backend->synchronize(place.options);
      say("good", way_of(calls[i]));
    } catch (const std::exception& error) {
      say("bad", fmt::format("{} is left out: {}", way_of(calls[i]), error_of(error).what()));
    }
  }
}

}  // namespace

PeerTrial try_peer(const std::string& peer, const Problem* problem, const RunSettings& run,
                   double limit_seconds) {
  PeerTrial trial;
  for (int first = 0;;) {
    const double limit = problem == nullptr ? kLoadSeconds : limit_seconds;
    SubprocessOptions options;
    options.timeout_seconds = limit;
    options.merge_stderr = false;
    const SubprocessResult child = run_subprocess(child_words(peer, problem, run, first), options);
    const Told told = read_told(child.output, trial);
    trial.is_usable = told.is_loaded;
    if (told.is_done) return trial;
    const std::string how = how_it_ended(child, limit);
    if (told.running.empty()) {
      trial.is_usable = false;
      trial.notes.push_back(fmt::format("{} is left out: {} while it was made ready", peer, how));
      return trial;
    }
    trial.notes.push_back(fmt::format("{} is left out: {}", told.running, how));
    first += told.tried;
  }
}

int serve_peer_trial(const std::string& peer, const std::vector<Problem>& problems,
                     const RunSettings& run, int first) {
  const int threads = runtime::thread_limit({.threads = run.threads});
  const peers::PeerSearch loaded = peers::load_peers({peer}, threads);
  for (const std::string& note : loaded.notes) say("note", note);
  for (const std::unique_ptr<peers::Peer>& each : loaded.found) {
    const std::string version = each->version();
    try {
      if (problems.empty()) say("loaded", version);
      for (const Problem& problem : problems) run_ways(*each, problem, run, first);
    } catch (const std::exception& error) {
      say("note", fmt::format("{} is left out: {}", peer, error_of(error).what()));
    }
  }
  say("done");
  return 0;
}

peers::PeerSearch find_peers(const std::vector<std::string>& names, int threads) {
  peers::PeerSearch search;
  for (const std::string& name : names) {
    PeerTrial trial{.is_usable = true, .good = {}, .notes = {}};
    if (!peers::backend_of_peer(name).empty())
      trial = try_peer(name, nullptr, {.threads = threads}, 0);
    peers::PeerSearch one;
    one.notes = trial.notes;
    if (trial.is_usable) one = peers::load_peers({name}, threads);
    std::ranges::move(one.found, std::back_inserter(search.found));
    std::ranges::move(one.notes, std::back_inserter(search.notes));
  }
  return search;
}

}  // namespace tessera::cli
