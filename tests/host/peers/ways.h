// The ways of peers in tests: what they write, and a cuDNN that is none (fake_peers/fake_cudnn.cc).
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "peers/peers.h"

namespace tessera::peers {

// The ways of a peer to compute a problem with random operands.
class Ways {
 public:
  Ways(const Peer& peer, const Problem& problem, const runtime::Place& place, std::uint64_t seed)
      : problem_(problem),
        place_(place),
        owned_(measure::random_operands(problem, seed)),
        placed_(measure::place_operands(owned_, place)),
        calls_(peer.calls(problem, placed_.operands)) {}

  std::size_t size() const { return calls_.size(); }
  void check(std::size_t i) {
    SCOPED_TRACE(fmt::format("{} {}: {}", calls_[i].group, calls_[i].how, to_string(problem_)));
    measure::reset_outputs(owned_);
    measure::send_outputs(owned_, placed_, place_);
    calls_[i].call();
    measure::fetch_outputs(owned_, placed_, place_);
    const Mismatch mismatch = family_of(problem_).verify(problem_, owned_.operands);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
    EXPECT_EQ(measure::gaps_intact(owned_), "");
  }
  const PeerCall& operator[](std::size_t i) const { return calls_[i]; }

 private:
  Problem problem_;
  runtime::Place place_;
  measure::OwnedOperands owned_;
  measure::PlacedOperands placed_;
  std::vector<PeerCall> calls_;
};

// With the driver that is none, too.
class CuDnnTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("TESSERA_CUDA_DRIVER", FAKE_CUDA, 1);
    setenv("LD_LIBRARY_PATH", folder().c_str(), 1);
    unsetenv("FAKE_PEER");
    peer_ = load_cudnn(1);
    ASSERT_NE(peer_, nullptr);
    ASSERT_TRUE(peer_->version().starts_with("9.12.3 ")) << peer_->version();
  }

  static std::string folder() { return fmt::format("{}/fake_cudnn", FAKE_PEERS); }

  static int runs(int engine) {
    void* const library = dlopen((folder() + "/libcudnn.so.9").c_str(), RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<int (*)(int)>(dlsym(library, "fake_cudnn_runs"))(engine);
  }

  std::string error_of(const Problem& problem) {
    try {
      Ways ways(*peer_, problem, place_of_peer("cudnn"), 1);
      ways[0].call();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  std::unique_ptr<Peer> peer_;
};

}  // namespace tessera::peers
