// Choosing is a pure function of (problem, target): it needs no device, so a laptop can say what a
// GPU would run. It explains itself, and it can be overruled by name.
#include <tessera/tessera.hpp>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

int main() {
  const tessera::Problem problem =
      tessera::parse_problem("gemm m=64 n=256 k=512 dtype=bf16 layout=rcr");

  // The same question for every shipped target with kernels of GEMM, this machine or not.
  for (const std::string& name : tessera::target_names()) {
    const tessera::Target target = tessera::load_target(name);
    if (!target.spaces.contains(tessera::Op::gemm)) continue;
    const tessera::Decision decision = tessera::choose(problem, target);
    std::printf("%-8s %s\n", name.c_str(), decision.name.c_str());
    if (decision.spec.target != name) return 1;
  }

  // For this machine, with the reasons: the chosen kernel, the next five, then what each rule
  // refuses.
  tessera::Dispatcher dispatcher;
  const tessera::Decision decision = dispatcher.explain(problem);
  const std::string text = tessera::explain(problem, dispatcher.target(), decision);
  std::printf("\n%s\n...\n\n", text.substr(0, text.find("\nrefused")).c_str());

  // Overrule it: run the second best by name, verified. What cannot run says why.
  if (decision.considered.size() < 2) return 1;
  const std::string& second = decision.considered[1].name;
  const std::vector<std::uint16_t> a(64 * 512, 0x3f80), b(256 * 512, 0x4000);  // 1 and 2 in bf16
  std::vector<std::uint16_t> out(64 * 256);
  const tessera::GemmOperands operands{.a = a.data(), .b = b.data(), .out = out.data()};
  dispatcher.run(problem, operands, {.force = second, .verify = true});
  std::printf("forced   %s: verified\n", second.c_str());
  try {
    dispatcher.run(problem, operands, {.force = second + "x"});
  } catch (const tessera::Error& error) {
    std::printf("refused  %s\n", error.what());
    return 0;
  }
  return 1;  // a kernel for an unknown machine must not run
}
