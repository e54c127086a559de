// Ways to choose among the kernels of attention: by predicted times, by the lengths that kernels
// are tuned for, and by a ranker of one's own. Choosing needs no GPU; one choice is run here.
#include <tessera/tools.hpp>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace {

// Takes the kernels with the longest tiles.
class LongestTile final : public tessera::Ranker {
 public:
  tessera::ChoiceSource source() const override { return tessera::ChoiceSource::first_legal; }
  std::string why(const tessera::RankInput&, const tessera::Ranked&) const override {
    return "its tile is the longest";
  }
  std::vector<tessera::Ranked> rank(const tessera::RankInput& input) const override {
    std::size_t best = 0;
    for (std::size_t i = 0; i < input.legal.size(); ++i) {
      if (input.legal[i].algorithm.tile.m > input.legal[best].algorithm.tile.m) best = i;
    }
    return {{best, 0}};
  }
};

struct Way {
  const char* name;
  std::shared_ptr<const tessera::Ranker> ranker;
};

}  // namespace

int main() {
  const Way ways[] = {{"predicted time", tessera::make_analytic_ranker()},
                      {"tuned length", tessera::make_length_ranker()},
                      {"longest tile", std::make_shared<LongestTile>()}};
  const std::string heads = "fmha batch=4 heads=16 heads_kv=16 hdim=64 seqlen_k=4096 dtype=bf16 ";
  for (const std::string queries : {"1", "100", "4096"}) {
    const tessera::Problem problem = tessera::parse_problem(heads + "seqlen_q=" + queries);
    std::printf("%s queries on sm90a\n", queries.c_str());
    for (const auto& [name, ranker] : ways) {
      tessera::ChooseOptions options;
      options.rankers = {ranker, tessera::make_analytic_ranker()};
      const auto decision = tessera::choose(problem, tessera::load_target("sm90a"), options);
      std::printf("  %-14s %s\n                 %s\n", name, decision.name.c_str(),
                  decision.why.c_str());
      if (decision.source != ranker->source()) return 1;
    }
  }
  const tessera::Target here = tessera::host_target();
  tessera::Dispatcher dispatcher(
      {.target = here.name, .rankers = {ways[1].ranker, ways[0].ranker}});
  const tessera::Problem problem =
      tessera::parse_problem("fmha batch=2 heads=4 seqlen_q=5 seqlen_k=60 hdim=64");
  const auto owned = tessera::measure::random_operands(problem, 42);
  const auto placed =
      tessera::measure::place_operands(owned, {&tessera::runtime::backend_for(here), {}});
  dispatcher.run(problem, placed.operands, {.verify = true});  // throws unless it is right
  std::printf("here: %s\n", dispatcher.kernel_for(problem).name.c_str());
  return 0;
}
