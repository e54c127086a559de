// Other libraries may crash, hang or end the process: they are tried in one of their own first.
#pragma once

#include "peers/peers.h"
#include "work.h"

namespace tessera::cli {

struct PeerTrial {
  bool is_usable = false;          // it was loaded and said how it computes the problem
  std::vector<std::string> good;   // the ways that came to an end: "onednn sgemm"
  std::vector<std::string> notes;  // a sentence for each that did not
};

// Runs every way of a peer to compute the problem once, in child processes; without a problem the
// peer is only loaded. A way that takes longer than the limit does not come to an end.
PeerTrial try_peer(const std::string& peer, const Problem* problem, const RunSettings& run,
                   double limit_seconds);

// Loads the named peers as load_peers() does, each one after a process of its own has loaded it:
// what crashes there or hangs is left out with a note.
peers::PeerSearch find_peers(const std::vector<std::string>& names, int threads);

// The child's end ('tessera bench peers'): tells on standard output what it is about to run, from
// the first-th way on.
int serve_peer_trial(const std::string& peer, const std::vector<Problem>& problems,
                     const RunSettings& run, int first);

}  // namespace tessera::cli
