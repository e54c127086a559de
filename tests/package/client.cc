// A client of the installed package: includes one header, links one library, checks its result.
#include <tessera/tessera.hpp>

#include <array>
#include <cstdio>

int main() {
  const std::array<float, 6> a = {1, 2, 3, 4, 5, 6};  // 2 x 3
  const std::array<float, 6> b = {1, 0, 0, 1, 1, 1};  // 3 x 2
  std::array<float, 4> out = {};
  const auto problem =
      tessera::gemm_problem(tessera::DType::fp32, tessera::GemmLayout::rrr, 2, 2, 3);
  tessera::Dispatcher dispatcher;
  const tessera::GemmOperands operands = {.a = a.data(), .b = b.data(), .out = out.data()};
  dispatcher.run(problem, operands);
  const std::array<float, 4> expected = {4, 5, 10, 11};
  std::printf("%g %g %g %g\n", out[0], out[1], out[2], out[3]);
  return out == expected && tessera::verify(problem, operands).ok ? 0 : 1;
}
