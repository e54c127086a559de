#include "tessera/commands/record_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/commands/format.h"

namespace tessera::commands {
namespace {

[[noreturn]] void refuse_bench(const std::string& file, const std::string& why) {
  throw Error(ErrorCode::parse_error,
              fmt::format("'{}' is not what 'tessera bench OP --shapes FILE --json' prints: {}",
                          file, why));
}

double seconds_in(const Json& value, const std::string& file) {
  const double seconds = value.at("seconds").get<double>();
  if (seconds > 0 && seconds < kMostCallSeconds) return seconds;
  refuse_bench(
      file, fmt::format("seconds must be above 0 and below {}, got {}", kMostCallSeconds, seconds));
}

BenchedProblem benched_of(const Json& row, const std::string& file) {
  BenchedProblem problem{.seconds = seconds_in(row, file), .kernel = row.at("kernel"), .peer = {}};
  for (const Json& peer : row.at("peers")) {
    const double seconds = seconds_in(peer, file);
    if (problem.peer_seconds > 0 && problem.peer_seconds <= seconds) continue;
    problem.peer_seconds = seconds;
    problem.peer = peer.at("peer").get<std::string>();
  }
  return problem;
}

void read_bench(const std::string& file, Benched& benched) {
  const std::string text = read_file(file);
  check_json_depth(text, file);
  try {
    const Json json = Json::parse(text);
    benched.machine = json.at("machine").get<std::string>();
    for (const Json& row : json.at("cases")) {
      const std::string line = to_string(parse_problem(row.at("problem").get<std::string>()));
      benched.problems[line] = benched_of(row, file);
    }
  } catch (const Json::exception& error) {
    refuse_bench(file, error_of(error).what());
  }
}

// ---- text of the page ----

std::string html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const std::string_view special = "&<>\"'";
    if (special.find(c) == std::string_view::npos) {
      out += c;
    } else {
      out += fmt::format("&#{};", static_cast<int>(c));
    }
  }
  return out;
}

constexpr std::string_view kOwnStyle =
    ".share { display: inline-block; height: 0.7em; background: var(--learned); }\n"
    "#problems td.word { white-space: normal; overflow-wrap: anywhere; max-width: 22rem; }\n"
    "#problems td.name { text-align: left; }\n";

std::string fact(std::string_view name, const std::string& value) {
  return fmt::format("<dt>{}</dt><dd>{}</dd>\n", html(name), html(value));
}

std::string joined(const std::set<std::string>& words) {
  return join(std::vector<std::string>(words.begin(), words.end()), ", ");
}

std::string facts(const Record& record, const std::vector<TimedProblem>& problems,
                  const Benched& benched, double total) {
  std::set<std::string> versions, machines, targets;
  for (const RecordRun& run : record.runs) versions.insert(run.version);
  for (const RecordRow& row : record.rows) machines.insert(row.machine);
  for (const Target& target : record.targets) targets.insert(target.name);
  std::int64_t calls = 0;
  std::size_t measured = 0;
  for (const TimedProblem& timed : problems) {
    calls += timed.problem->calls;
    measured += timed.is_measured ? 1 : 0;
  }
  std::string text = "<dl>\n";
  text += fact("processes", fmt::format("{}", record.runs.size()));
  text += fact("machines", joined(machines));
  text += fact("targets", joined(targets));
  text += fact("versions", joined(versions));
  text += fact("calls", fmt::format("{} of {} problems", calls, problems.size()));
  text += fact("time of all calls", format_seconds(total));
  text += fact("measured", measured == 0
                               ? "nothing; all times are predicted"
                               : fmt::format("{} problems, on {}", measured, benched.machine));
  return text + "</dl>\n";
}

// Ours and the peer's over the problems that both have.
std::string beside_peer(const std::vector<TimedProblem>& problems) {
  double ours = 0, theirs = 0;
  std::size_t count = 0, faster = 0;
  for (const TimedProblem& timed : problems) {
    if (timed.peer_seconds <= 0) continue;
    const auto calls = static_cast<double>(timed.problem->calls);
    ours += calls * timed.seconds;
    theirs += calls * timed.peer_seconds;
    ++count;
    faster += timed.seconds <= timed.peer_seconds ? 1 : 0;
  }
  if (count == 0) {
    return "<p>No peer was measured: 'tessera record show --shapes' prints the problems, 'tessera "
           "bench OP --shapes FILE --json' times them beside peers, and '--bench' brings that "
           "here.</p>\n";
  }
  return fmt::format(
      "<p>Over the {} problems that a peer computes too, the calls take {} with Tessera and {} "
      "with "
      "the fastest peer of each, {:.2f} times as long. Tessera is as fast or faster on {}.</p>\n",
      count, html(format_seconds(ours)), html(format_seconds(theirs)),
      ours > 0 ? theirs / ours : 0.0, faster);
}

std::string row_of(const TimedProblem& timed, double total) {
  const AskedProblem& problem = *timed.problem;
  const Taken& taken = problem.taken.front();
  const double share = total > 0 ? timed.total() / total : 0;
  std::string text = "<tr>";
  text += fmt::format("<td class=\"word\">{}</td>", html(problem.asked.line));
  text += fmt::format("<td>{}</td>", problem.calls);
  text +=
      fmt::format("<td>{}{}</td>", timed.seconds > 0 ? html(format_seconds(timed.seconds)) : "?",
                  timed.is_measured ? "" : " *");
  text += fmt::format(
      "<td>{:.1f}%</td><td class=\"word\"><span class=\"share\" "
      "style=\"width:{:.2f}rem\"></span></td>",
      100 * share, 10 * share);
  text += timed.peer_seconds > 0 ? fmt::format("<td>{:.2f}</td><td class=\"name\">{}</td>",
                                               timed.peer_seconds / timed.seconds, html(timed.peer))
                                 : std::string("<td></td><td></td>");
  text += fmt::format("<td class=\"word\">{}</td><td class=\"name\">{}</td></tr>\n",
                      html(taken.row.kernel.empty() ? "none" : taken.row.kernel),
                      html(to_string(taken.row.source)));
  return text;
}

}  // namespace

Benched read_benches(const std::vector<std::string>& files) {
  Benched benched;
  for (const std::string& file : files) read_bench(file, benched);
  return benched;
}

std::vector<TimedProblem> timed_problems(const std::vector<AskedProblem>& problems,
                                         const Benched& benched) {
  std::vector<TimedProblem> timed;
  for (const AskedProblem& problem : problems) {
    TimedProblem one{.problem = &problem, .peer = {}};
    if (problem.calls > 0) {
      one.seconds = problem.predicted_seconds / static_cast<double>(problem.calls);
    }
    const auto found = benched.problems.find(problem.asked.line);
    if (found != benched.problems.end()) {
      one.seconds = found->second.seconds;
      one.is_measured = true;
      one.peer_seconds = found->second.peer_seconds;
      one.peer = found->second.peer;
    }
    timed.push_back(std::move(one));
  }
  std::stable_sort(timed.begin(), timed.end(), [](const TimedProblem& a, const TimedProblem& b) {
    return a.total() > b.total();
  });
  return timed;
}

std::string record_page(const std::string& title, const Record& record,
                        const std::vector<TimedProblem>& problems, const Benched& benched) {
  double total = 0;
  for (const TimedProblem& timed : problems) total += timed.total();
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n"
      "<title>{0}</title>\n<style>\n{1}{2}</style>\n</head>\n<body>\n<main>\n<h1>{0}</h1>\n",
      html(title), train::report_style(), kOwnStyle);
  page += facts(record, problems, benched, total);
  page += "<section id=\"peers\">\n<h2>Beside other libraries</h2>\n" + beside_peer(problems) +
          "</section>\n<section id=\"problems\">\n<h2>Where the time goes</h2>\n"
          "<p>Calls times the time of one. Times with a star are predicted, the others were "
          "measured. A peer's number is its time over Tessera's.</p>\n<div class=\"wide\"><table>\n"
          "<thead><tr><th class=\"word\">problem</th><th>calls</th><th>a call</th><th>share</th>"
          "<th></th><th>peer</th><th class=\"word\"></th><th class=\"word\">kernel</th>"
          "<th class=\"word\">by</th></tr></thead>\n<tbody>\n";
  for (const TimedProblem& timed : problems) page += row_of(timed, total);
  return page + "</tbody>\n</table></div>\n</section>\n</main>\n</body>\n</html>\n";
}

}  // namespace tessera::commands
