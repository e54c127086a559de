// The learned ranker: a model asked for the time of every legal candidate.
#pragma once

#include <memory>

#include "tessera/learn/model.h"
#include "tessera/select/select.h"

namespace tessera {

// A family's extractor: fills columns[f * specs.size() + i] with feature f of kernel i.
using ExtractFeatures = void (*)(const Problem&, const Target&, int threads,
                                 std::span<const KernelSpec> specs, std::span<double> columns);

// Has no opinion, and says why, on problems outside of the training range, of another operation or
// type, and on targets other than the model's.
std::shared_ptr<const Ranker> make_model_ranker(std::shared_ptr<const Model> model,
                                                ExtractFeatures extract);

}  // namespace tessera
