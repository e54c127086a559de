// cuDNN's graph of fused attention.
#pragma once

#include "peers/cudnn_graph.h"

namespace tessera::peers::cudnn {

// Empty where cuDNN has no such attention.
std::optional<Graph> fmha_graph(std::shared_ptr<const Library> library, const FmhaProblem& problem,
                                const FmhaOperands& operands);

}  // namespace tessera::peers::cudnn
