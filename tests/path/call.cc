// The program of tools/count_path.py: WORD PACK.
//   row:         prints the row of the machine that kernels are chosen for
//   pack:        compiles the kernel that is chosen, and writes it to PACK
//   cold, warm:  one public call between a reset and a dump of the coverage counters, the first or
//                the second one of a dispatcher; the kernel comes from PACK
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "tessera/dispatch/dispatcher.h"
#include "tessera/families/family.h"
#include "tessera/jit/pack.h"
#include "tessera/jit/toolchain.h"

// Functions of libgcov, which gcov.h declares for C only.
extern "C" void __gcov_reset();
extern "C" void __gcov_dump();

namespace tessera {
namespace {

constexpr int kM = 384, kN = 320, kK = 448;

struct Call {
  Problem problem = parse_problem("gemm m=384 n=320 k=448 layout=rrr");
  RunOptions options = {.launch = {.threads = 1}};  // models of CPUs are for one thread
  std::vector<float> a = std::vector<float>(kM * kK, 1.0F);
  std::vector<float> b = std::vector<float>(kK * kN, 1.0F);
  std::vector<float> out = std::vector<float>(kM * kN);
  Operands operands = GemmOperands{.a = a.data(), .b = b.data(), .out = out.data()};
};

// A kernel of a shipped pack has no counters.
void write_kernel(const std::string& pack) {
  DispatcherOptions options;
  options.build.use_shipped_packs = false;
  Dispatcher dispatcher(options);
  const Call call;
  const KernelSpec spec = dispatcher.kernel_for(call.problem, call.options).spec;
  const Source source = family_of(spec).emit(spec, dispatcher.target());
  const jit::Artifact built = dispatcher.registry().builder().build(source, dispatcher.target());
  const jit::PackInput input = {{.name = source.name,
                                 .source_key = jit::source_key(source, dispatcher.target()),
                                 .target = dispatcher.target().name},
                                built.binary};
  jit::write_pack(pack, {&input, 1});
}

// Nothing is left of the call afterwards: a kernel writes its counters when it is unloaded.
void count(bool is_warm, const std::string& pack) {
  DispatcherOptions options;
  options.build.packs = {pack};
  options.build.use_shipped_packs = false;
  options.build.allow_compile = false;
  Dispatcher dispatcher(options);
  const Call call;
  if (is_warm) dispatcher.run(call.problem, call.operands, call.options);
  __gcov_reset();
  dispatcher.run(call.problem, call.operands, call.options);
  __gcov_dump();
  const bool is_right = call.out.front() == kK && call.out.back() == kK;
  const Decision decision = dispatcher.explain(call.problem, call.options);
  std::printf("%s, %s, result %s: %s\n", decision.name.c_str(),
              std::string(to_string(decision.source)).c_str(), is_right ? "right" : "wrong",
              decision.why.c_str());
}

void serve(const std::string& word, const std::string& pack) {
  if (word == "row") {
    std::puts(to_json(Dispatcher().target()).c_str());
  } else if (word == "pack") {
    write_kernel(pack);
  } else {
    count(word == "warm", pack);
  }
}

}  // namespace
}  // namespace tessera

int main(int count, char** words) {
  if (count != 3) return 2;
  try {
    tessera::serve(words[1], words[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::fflush(stdout);
  _exit(0);  // without writing the counters again
}
