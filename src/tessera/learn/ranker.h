// The learned ranker: a model predicts the time of every legal candidate.
#pragma once

#include <memory>

#include "tessera/learn/model.h"
#include "tessera/select/select.h"

namespace tessera {

// A family's extractor: fills columns[f * specs.size() + i] with feature f of kernel i.
using ExtractFeatures = void (*)(const Problem&, const Target&, int threads,
                                 std::span<const KernelSpec> specs, std::span<double> columns,
                                 std::span<const FeatureUse> wanted);

// Whether a model that was trained with one target's row may be used on a machine with another row.
// A CPU's model holds only for the kind of core that it learned from. Example: a bf16 model trained
// on an Emerald Rapids chooses kernels for a Zen 4 that reach 64% of the best; the estimate reaches
// 93%.
Verdict is_same_core(const Target& trained, const Target& here);

// The model's seconds for every legal candidate (for a rank: minus its score). For types that the
// model did not learn, it predicts the problem's twin; for an epilogue that it did not learn, the
// problem without an epilogue. Each time is then multiplied by how many times longer the problem
// itself takes according to the estimate. Kernels that no feature describes (Family::is_described)
// are placed beside the best of the others by the ratio of both estimates. Returns false when the
// model has no opinion: outside of its training range, and for another operation, type, target,
// kind of core or number of CPU threads. Features are computed for the machine that the model was
// trained for.
bool predict_seconds(const Model& model, ExtractFeatures extract, const RankInput& input,
                     std::span<double> seconds);

// Whether predict_seconds() has an opinion, apart from problems for which no feature describes any
// kernel.
Verdict has_opinion(const Model& model, ExtractFeatures extract, const RankInput& input);

// The meaning of the values that predict_seconds() fills in.
LearnedValue learned_value(ModelQuantity quantity);

// Its why_not() says why the model has no opinion.
std::shared_ptr<const Ranker> make_model_ranker(std::shared_ptr<const Model> model,
                                                ExtractFeatures extract);

}  // namespace tessera
