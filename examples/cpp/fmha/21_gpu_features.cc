// Features by the setters of the problem builder, each verified: a soft cap, the log-sum-exp,
// dropout with its random bytes, groups of heads, sequences of any lengths. TESSERA_TARGET=sm90a
// runs them on a GPU.
#include <tessera/tools.hpp>

#include <cstdio>

namespace {

struct FeatureCase {
  const char* what;
  void (*set)(tessera::FmhaProblemBuilder&);
};
using FeatureBuilder = tessera::FmhaProblemBuilder;
constexpr FeatureCase kFeatureCases[] = {
    {"a soft cap", [](FeatureBuilder& b) { b.logits_soft_cap(true, 4); }},
    {"the log-sum-exp", [](FeatureBuilder& b) { b.lse(true); }},
    {"dropout", [](FeatureBuilder& b) { b.dropout(true, 0.25F).bwd_flags(false, true, false); }},
    {"groups of heads", [](FeatureBuilder& b) { b.nheads(4, 1); }},
    {"values by columns", [](FeatureBuilder& b) { b.v_rowmajor(false); }},
    {"sequences of any length",
     [](FeatureBuilder& b) { b.dims(40, 40, 3, 84, 105).group_mode(true).max_seqlen(28, 35); }},
    {"short ones left out", [](FeatureBuilder& b) {
       b.dims(40, 40, 3, 84, 105).group_mode(true).max_seqlen(28, 35).skip_min_seqlen_q(true, 6);
     }}};

}  // namespace

int main() {
  tessera::Dispatcher dispatcher;
  const tessera::runtime::Place place{&tessera::runtime::backend_for(dispatcher.target()), {}};
  int verified = 0;
  for (const auto& [what, set] : kFeatureCases) {
    FeatureBuilder builder;
    builder.data_type("fp32").dims(40, 40, 3, 28, 35).nheads(4, 4);
    set(builder);
    const tessera::FmhaProblem problem = builder.build();
    const auto owned = tessera::measure::random_operands(problem, 42);
    const auto placed = tessera::measure::place_operands(owned, place);
    dispatcher.run(problem, placed.operands, {.verify = true});  // throws unless it is right
    std::printf("%-24s %s\n", what, dispatcher.kernel_for(problem).name.c_str());
    ++verified;
  }
  return verified == int(std::size(kFeatureCases)) ? 0 : 1;
}
