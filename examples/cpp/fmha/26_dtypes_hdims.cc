// Types and heads of many lengths, each verified. TESSERA_TARGET=sm90a runs them on a GPU.
#include <tessera/tools.hpp>

#include <cstdio>
#include <utility>

int main() {
  tessera::Dispatcher dispatcher;
  const tessera::runtime::Place place{&tessera::runtime::backend_for(dispatcher.target()), {}};
  constexpr std::pair<int, int> kHeadLengths[] = {{32, 32},   {48, 48},   {64, 64},   {80, 96},
                                                  {96, 128},  {128, 128}, {160, 160}, {192, 128},
                                                  {192, 192}, {256, 256}};
  int verified = 0;
  for (const char* const dtype : {"fp32", "fp16", "bf16"}) {
    std::printf("%s:", dtype);
    for (const auto& [hdim_q, hdim_v] : kHeadLengths) {
      const tessera::FmhaProblem problem = tessera::FmhaProblemBuilder()
                                               .data_type(dtype)
                                               .dims(hdim_q, hdim_v, 1, 9, 21)
                                               .nheads(2, 1)
                                               .build();
      const auto owned = tessera::measure::random_operands(problem, 42);
      const auto placed = tessera::measure::place_operands(owned, place);
      dispatcher.run(problem, placed.operands, {.verify = true});  // throws unless it is right
      std::printf(" %d/%d", hdim_q, hdim_v);
      ++verified;
    }
    std::printf("\n");
  }
  std::printf("%d of 30 verified\n", verified);
  return verified == 30 ? 0 : 1;
}
