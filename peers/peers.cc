#include "peers/peers.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tessera::peers {
namespace {

struct PeerRow {
  std::string_view name;
  std::string_view backend;
  std::unique_ptr<Peer> (*load)(int threads);
  bool (*computes)(Op op);
  std::string_view how_to_get;
};
bool is_gemm(Op op) { return op == Op::gemm; }
bool is_conv_or_fmha(Op op) { return op == Op::conv || op == Op::fmha; }
bool is_no_norm(Op op) { return is_gemm(op) || is_conv_or_fmha(op); }
constexpr std::array kPeers = {
    PeerRow{"onednn", "cpu", load_onednn, is_no_norm, "apt install libdnnl2"},
    PeerRow{"openblas", "cpu", load_openblas, is_gemm, "apt install libopenblas0"},
    PeerRow{"cublaslt", "cuda", load_cublaslt, is_gemm,
            "pip install nvidia-cublas, or a CUDA toolkit"},
    PeerRow{"cudnn", "cuda", load_cudnn, is_conv_or_fmha, "pip install nvidia-cudnn-cu13"},
};

}  // namespace

std::vector<std::string> peer_names(std::string_view backend) {
  std::vector<std::string> names;
  for (const PeerRow& row : kPeers) {
    if (backend.empty() || row.backend == backend) names.emplace_back(row.name);
  }
  return names;
}

bool peer_computes(std::string_view peer, Op op) {
  const auto* row = std::ranges::find(kPeers, peer, &PeerRow::name);
  return row != kPeers.end() && row->computes(op);
}

std::string_view backend_of_peer(std::string_view peer) {
  const auto* row = std::ranges::find(kPeers, peer, &PeerRow::name);
  return row == kPeers.end() ? std::string_view() : row->backend;
}

runtime::Place place_of_peer(std::string_view peer) {
  if (backend_of_peer(peer) == "cpu") return runtime::host_place();
  return {&runtime::backend_for(load_target("sm90a")), {}};
}

PeerSearch load_peers(const std::vector<std::string>& names, int threads) {
  PeerSearch search;
  for (const std::string& name : names) {
    const auto* row = std::find_if(kPeers.begin(), kPeers.end(),
                                   [&](const PeerRow& each) { return each.name == name; });
    if (row == kPeers.end()) {
      throw Error(ErrorCode::not_found,
                  fmt::format("unknown peer '{}'{} (known: {})", name,
                              did_you_mean(name, peer_names()), join(peer_names(), ", ")));
    }
    try {
      if (std::unique_ptr<Peer> peer = row->load(threads)) {
        search.found.push_back(std::move(peer));
      } else {
        search.notes.push_back(fmt::format("{} was not found and is left out; get it with: {}",
                                           name, row->how_to_get));
      }
    } catch (const Error& error) {
      search.notes.emplace_back(error.what());
    }
  }
  return search;
}

void require_functions(const std::string& peer, const std::string& library,
                       const std::vector<std::string>& missing) {
  if (missing.empty()) return;
  throw Error(ErrorCode::unsupported,
              fmt::format("{} is left out: {} lacks {}", peer, library, join(missing, ", ")));
}

void* open_library(const std::vector<std::string>& names, std::string& found) {
  for (const std::string& name : names) {
    if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      found = name;
      return handle;
    }
  }
  return nullptr;
}

}  // namespace tessera::peers
