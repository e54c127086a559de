// oneDNN's ways to compute attention.
#pragma once

#include <memory>
#include <vector>

#include "peers/onednn_api.h"
#include "peers/peers.h"

namespace tessera::peers::onednn {

// None where oneDNN refuses, or has only its plain loops.
std::vector<PeerCall> fmha_calls(const std::shared_ptr<const Library>& library,
                                 const FmhaProblem& problem, const FmhaOperands& operands);

}  // namespace tessera::peers::onednn
