// Other libraries may crash, hang or end the process, so they are first tried in a process of their
// own.
#pragma once

#include "command.h"
#include "peers/peers.h"
#include "tessera/commands/work.h"

namespace tessera::cli {

struct PeerTrial {
  bool is_usable = false;          // it was loaded and said how it computes the problem
  std::vector<std::string> good;   // the ways that ended normally: "onednn sgemm"
  std::vector<std::string> notes;  // a sentence for each way that did not
};

// Runs each of a peer's ways to compute the problem once, in child processes. Without a problem,
// the peer is only loaded. A way that exceeds the time limit counts as failed.
PeerTrial try_peer(const std::string& peer, const Problem* problem, const RunSettings& run,
                   double limit_seconds);

// Loads the named peers like load_peers(), but each one only after a child process has loaded it. A
// peer that crashes or hangs there is left out with a note.
peers::PeerSearch find_peers(const std::vector<std::string>& names, int threads);

// The child's side ('tessera bench peers'): runs the ways from number `first` on, and writes to
// standard output before each way which one it runs.
int serve_peer_trial(const std::string& peer, const std::vector<Problem>& problems,
                     const RunSettings& run, int first);

}  // namespace tessera::cli
