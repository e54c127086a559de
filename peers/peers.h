// Other libraries' kernels, found on the machine with dlopen and never needed to build.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/tools.hpp"

namespace tessera::peers {

// One way in which a peer computes a problem. The fastest call of a group represents the group.
struct PeerCall {
  std::string group;  // "onednn", "onednn_packed", "openblas", "cudnn"
  std::string how;    // "sgemm", "matmul"; the same in every process
  std::function<void()> call;
};

class Peer {
 public:
  virtual ~Peer() = default;
  virtual std::string name() const = 0;     // "onednn"
  virtual std::string version() const = 0;  // "2.6.3 (libdnnl.so.2)"
  // The ways to compute the problem from `operands` into their output; none when the peer cannot.
  // The operands must outlive the calls. They lie in memory that the peer's machine reads. A GPU
  // peer enqueues on the default stream of device 0.
  virtual std::vector<PeerCall> calls(const Problem& problem, const Operands& operands) const = 0;
};

struct PeerSearch {
  std::vector<std::unique_ptr<Peer>> found;
  std::vector<std::string> notes;  // a sentence for each peer that is missing
};

// The names of peers: all of them, or only those for the backend's kernels.
std::vector<std::string> peer_names(std::string_view backend = {});

// Whether a known peer has the operation at all.
bool peer_computes(std::string_view peer, Op op);

// The memory in which a peer's operands lie: "cpu" or "cuda", and a place of that kind.
std::string_view backend_of_peer(std::string_view peer);
runtime::Place place_of_peer(std::string_view peer);

// Loads the named peers and tells them to use `threads`. Throws Error{not_found} with the nearest
// name for an unknown peer.
PeerSearch load_peers(const std::vector<std::string>& names, int threads);

// Each returns null when the library is not installed, and throws Error{unsupported} when it cannot
// be used. See onednn.cc, openblas.cc, cublaslt.cc and cudnn.cc.
std::unique_ptr<Peer> load_onednn(int threads);
std::unique_ptr<Peer> load_openblas(int threads);
std::unique_ptr<Peer> load_cublaslt(int threads);
std::unique_ptr<Peer> load_cudnn(int threads);

// The first of the libraries that dlopen finds; `found` gets its name.
void* open_library(const std::vector<std::string>& names, std::string& found);

// Throws Error{unsupported} with the names of required functions that the library lacks.
void require_functions(const std::string& peer, const std::string& library,
                       const std::vector<std::string>& missing);

}  // namespace tessera::peers
