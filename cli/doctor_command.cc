// tessera doctor: what the library finds, and the libraries that benchmarks compare with.
#include <fmt/format.h>

#include "command.h"
#include "peer_trial.h"
#include "tessera/commands/doctor.h"

namespace tessera::cli {
namespace {

std::vector<Finding> find_all_peers() {
  std::vector<Finding> findings;
  for (const std::string& name : peers::peer_names()) {
    const peers::PeerSearch search = find_peers({name}, 1);
    const bool found = !search.found.empty();
    findings.push_back({fmt::format("peer {}", name), found, false,
                        found ? search.found.front()->version() : search.notes.front()});
  }
  return findings;
}

}  // namespace

Action declare_doctor(CLI::App&) {
  return [](const Console& console) { return doctor(console, find_all_peers); };
}

}  // namespace tessera::cli
