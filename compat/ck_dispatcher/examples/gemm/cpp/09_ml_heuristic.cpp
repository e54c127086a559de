// A learned model of Tessera's chooses among this target's kernels:
// gemm_09_ml_heuristic --model models/gemm_avx512_fp32 --arch avx512 --dtype fp32.
#include "ck_tile/dispatcher/ml_heuristic.hpp"
#include "product.h"

using namespace ck_tile::dispatcher;

int main(int argc, char* argv[]) {
  utils::ExampleArgs args("gemm_09_ml_heuristic", "a learned model chooses");
  args.add_option("--model", "", "a model's folder");
  args.add_option("--arch", "", "the target");
  args.add_option("--dtype", "fp32", "what the model is for");
  if (!args.parse(argc, argv)) return 0;
  Registry registry;
  registry.register_set(KernelSet().add(decl::Signature().dtype(args.get("--dtype", "fp32")),
                                        decl::Algorithm()
                                            .tile(ANY_INT, ANY_INT, ANY_INT)
                                            .wave(ANY_INT, ANY_INT, ANY_INT)
                                            .pipeline("*"),
                                        args.get("--arch", "")));
  const MLHeuristic model(args.get("--model", ""), &registry);
  if (!model.is_loaded()) {
    std::fprintf(stderr, "%s\n", model.error().c_str());
    return 1;
  }
  Dispatcher dispatcher(registry);
  dispatcher.set_heuristic(model);
  for (const Problem& problem : {Problem(128, 128, 64), Problem(1024, 512, 256)}) {
    const KernelInstancePtr chosen = dispatcher.select_kernel(problem);
    std::printf("%lld x %lld x %lld: %s, %.4f TFLOPS\n", static_cast<long long>(problem.M),
                static_cast<long long>(problem.N), static_cast<long long>(problem.K),
                chosen == nullptr ? "none" : chosen->get_name().c_str(),
                chosen == nullptr ? 0 : model.predict_tflops(problem, chosen->get_key()));
    if (chosen == nullptr) return 1;
  }
  return 0;
}
