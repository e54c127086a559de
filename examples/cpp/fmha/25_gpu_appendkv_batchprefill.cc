// The two calls of a server by the setters of the problem builder: new keys and values go into the
// pages of a cache, turned by their positions, then packed queries of several prompts attend to
// the pages. Both are verified. TESSERA_TARGET=sm90a runs them on a GPU.
#include <tessera/tools.hpp>

#include <cstdio>

namespace {

void serve_step(tessera::Dispatcher& dispatcher, const tessera::FmhaProblem& problem) {
  const tessera::runtime::Place place{&tessera::runtime::backend_for(dispatcher.target()), {}};
  const auto owned = tessera::measure::random_operands(problem, 42);
  const auto placed = tessera::measure::place_operands(owned, place);
  dispatcher.run(problem, placed.operands, {.verify = true});  // throws unless it is right
  std::printf("%s\n ", to_string(tessera::Problem(problem)).c_str());
  for (const tessera::Stage& stage : dispatcher.plan(problem).stages) {
    std::printf(" %s (%s)", stage.name.c_str(), stage.entry.c_str());
  }
  std::printf("\n");
}

}  // namespace

int main() {
  tessera::Dispatcher dispatcher;
  tessera::FmhaProblemBuilder append;
  append.api_family("fwd_appendkv").data_type("fp32").dims(32, 32, 3, 7, 7).nheads(8, 2);
  append.max_seqlen(7, 48).rope_type("half_rotated");  // 48: the room of each text
  append.paged_kv(true).kv_cache("linear", "vllm_2d", 16);
  serve_step(dispatcher, append.build());

  tessera::FmhaProblemBuilder prefill;
  prefill.api_family("batch_prefill").data_type("fp32").dims(32, 32, 3, 28, 48).nheads(8, 2);
  prefill.group_mode(true).max_seqlen(20, 48).mask_type("bottom_right");
  prefill.paged_kv(true).kv_cache("linear", "vllm_2d", 16);
  tessera::FmhaProblem problem = prefill.build();
  serve_step(dispatcher, problem);

  problem.check_pages = true;  // a stage more
  const std::size_t stages = dispatcher.plan(problem).stages.size();
  std::printf("with a check of the pages: %zu stages\n", stages);
  try {
    prefill.kv_cache("linear", "vllm_2d", 48).build();
    return 1;
  } catch (const tessera::Error& refused) {
    std::printf("%s\n", refused.what());
  }
  return stages == 2 ? 0 : 1;
}
