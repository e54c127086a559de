// The learned ranker: a model asked for the time of every legal candidate.
#pragma once

#include <memory>

#include "tessera/learn/model.h"
#include "tessera/select/select.h"

namespace tessera {

// A family's extractor: fills columns[f * specs.size() + i] with feature f of kernel i.
using ExtractFeatures = void (*)(const Problem&, const Target&, int threads,
                                 std::span<const KernelSpec> specs, std::span<double> columns,
                                 std::span<const FeatureUse> wanted);

// Whether trees that were trained with one row hold on a machine with another: a CPU's hold for one
// kind of core, the one whose times they learned. Trained on an Emerald Rapids, they choose kernels
// of bf16 for a Zen 4 that reach 64% of its best, the estimate 93%.
Verdict is_same_core(const Target& trained, const Target& here);

// The model's seconds for every legal candidate (of a rank: minus its score). Where it learned no
// such types it is asked about the problem's twin, where it learned no such epilogue without one,
// and its seconds are multiplied by what the estimate says that the problem itself takes longer.
// False where it has no opinion: outside of the training range, for another operation, type,
// target, kind of core or number of CPU threads. Features are those of the machine that the model
// was trained for.
bool predict_seconds(const Model& model, ExtractFeatures extract, const RankInput& input,
                     std::span<double> seconds);

// What predict_seconds() fills in.
LearnedValue learned_value(ModelQuantity quantity);

// Says why where it has no opinion.
std::shared_ptr<const Ranker> make_model_ranker(std::shared_ptr<const Model> model,
                                                ExtractFeatures extract);

}  // namespace tessera
