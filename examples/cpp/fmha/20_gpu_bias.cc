// Biases by the setters of the problem builder, verified and timed: element-wise ones with their
// own strides, and ALiBi. TESSERA_TARGET=sm90a runs them on a GPU.
#include <tessera/tools.hpp>

#include <cstdio>

int main() {
  tessera::Dispatcher dispatcher;
  dispatcher.set_timing(1, 3);
  const bool on_gpu = tessera::is_gpu(dispatcher.target());
  const std::int64_t length = on_gpu ? 2048 : 48;
  const tessera::runtime::Place place{&tessera::runtime::backend_for(dispatcher.target()), {}};
  struct BiasCase {
    const char *what, *word;
    bool is_shared;  // by all sequences and heads
  };
  for (const auto& [what, word, is_shared] :
       {BiasCase{"no bias", "no", false}, BiasCase{"for each head", "elementwise", false},
        BiasCase{"one for all heads", "elementwise", true}, BiasCase{"ALiBi", "alibi", false}}) {
    tessera::FmhaProblemBuilder builder;
    builder.data_type(on_gpu ? "bf16" : "fp32").dims(64, 64, 2, length, length).nheads(4, 4);
    tessera::FmhaProblem problem = builder.bias_type(word).build();
    if (is_shared) problem.bias_strides = {0, 0, length, 1};
    const auto owned = tessera::measure::random_operands(problem, 42);
    const auto placed = tessera::measure::place_operands(owned, place);
    dispatcher.run(problem, placed.operands, {.verify = true});  // throws unless it is right
    const double seconds = dispatcher.time(problem, placed.operands).median_seconds;
    std::printf("%-18s %8.1f us  %s\n", what, seconds * 1e6,
                dispatcher.kernel_for(problem).name.c_str());
    if (!(seconds > 0)) return 1;
  }
  return 0;
}
