// oneDNN's ways to compute a convolution.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "peers/onednn_api.h"
#include "peers/peers.h"

namespace tessera::peers::onednn {

std::optional<Type> type_of(DType dtype);

// None where oneDNN refuses, or has only its plain loops.
std::vector<PeerCall> conv_calls(const std::shared_ptr<const Library>& library,
                                 const ConvProblem& problem, const ConvOperands& operands);

}  // namespace tessera::peers::onednn
