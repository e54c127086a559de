// cuDNN's graph of one convolution.
#pragma once

#include "peers/cudnn_graph.h"

namespace tessera::peers::cudnn {

// Empty where cuDNN has no such convolution.
std::optional<Graph> conv_graph(std::shared_ptr<const Library> library, const ConvProblem& problem,
                                const ConvOperands& operands);

}  // namespace tessera::peers::cudnn
