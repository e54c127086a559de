// gemm_09_ml_heuristic --model PATH: a learned model as a dispatcher's heuristic, and the limits of
// targets.
#include <ck_tile/dispatcher/arch_filter.hpp>
#include <ck_tile/dispatcher/declared_kernels.hpp>
#include <ck_tile/dispatcher/ml_heuristic.hpp>

#include <cstring>

#include "check.h"

using namespace ck_tile::dispatcher;

namespace {

void choosing(const char* model) {
  Registry registry("avx512");
  registry.register_set(KernelSet().add(
      decl::Signature().dtype("fp32"),
      decl::Algorithm().tile(192, 1920, 256).wave(-1, -1, -1).pipeline("packab"), "avx512"));
  MLHeuristic heuristic(model, &registry);
  CHECK(heuristic.is_loaded());
  Dispatcher dispatcher(&registry, "avx512");
  dispatcher.set_heuristic(heuristic);
  std::printf("%zu kernels\n", registry.size());
  for (const Problem& problem :
       {Problem(128, 128, 64), Problem(512, 512, 256), Problem(1024, 1024, 512)}) {
    const std::vector<std::string> names = heuristic(problem);
    CHECK(!names.empty());
    const KernelInstancePtr chosen = dispatcher.select_kernel(problem);
    CHECK(chosen != nullptr && chosen->get_name() == names.front());
    const double best = heuristic.predict_tflops(problem, chosen->get_key());
    CHECK(best > 0);
    for (const std::string& name : names) {
      CHECK(heuristic.predict_tflops(problem, registry.lookup(name)->get_key()) <= best);
    }
  }
  const MLHeuristic missing("/nowhere/model", &registry);
  CHECK(!missing.is_loaded() && missing.error().find("/nowhere/model") != std::string::npos);
  CHECK(missing.predict_tflops(Problem(8, 8, 8), KernelKey()) == 0);
}

void specs() {
  CHECK(string_to_arch("gfx942") == GpuArch::GFX_942 &&
        arch_to_string(GpuArch::GFX_950) == "gfx950");
  CHECK(string_to_arch("gfx1") == GpuArch::UNKNOWN);
  CHECK(get_lds_capacity(Pipeline::CompV3) == 65536 && get_lds_capacity(Pipeline::CompV4) == 32768);
  CHECK(element_size(DataType::FP16) == 2 && element_size(DataType::FP8) == 1);
  CHECK(get_supported_warp_configs(GpuArch::GFX_942).size() == 7);
  CHECK(is_trait_unsupported(Pipeline::CompV3, Epilogue::CShuffle, Scheduler::Interwave));
  CHECK(!is_trait_unsupported(Pipeline::Mem, Epilogue::CShuffle, Scheduler::Interwave));
  KernelKey key;
  key.algorithm.pipeline = Pipeline::CompV3, key.gfx_arch = "gfx942";
  const ArchFilter filter("gfx942");
  CHECK(filter.is_valid(key) && filter.validate(key).warnings.empty());
  CHECK(ArchFilter("gfx90a").validate(key).warnings.size() == 1);
  key.algorithm.wave_shape = {3, 1, 1};
  CHECK(filter.validate(key).errors.size() == 2);  // 96 does not divide 128, either
  key.algorithm.wave_shape = {2, 2, 1}, key.algorithm.tile_shape = {512, 512, 64};
  CHECK(filter.validate(key).errors.size() == 1);
}

// A tile of 96 KiB fits where a unit has 160, once and not twice.
void memory() {
  CHECK(get_lds_total_capacity(GpuArch::GFX_950) == 163840 &&
        get_lds_total_capacity(GpuArch::GFX_1250) == 327680 &&
        get_lds_total_capacity(GpuArch::UNKNOWN) == 65536);
  CHECK(get_lds_capacity(GpuArch::GFX_950, Pipeline::CompV3) == 163840 &&
        get_lds_capacity(GpuArch::GFX_950, Pipeline::CompV3, true) == 81920 &&
        get_lds_capacity(GpuArch::GFX_950, Pipeline::PreShuffleV2) == 81920);
  KernelKey key;
  key.algorithm.pipeline = Pipeline::CompV3, key.algorithm.double_buffer = false;
  key.algorithm.tile_shape = {128, 256, 128};
  CHECK(ArchFilter("gfx950").is_valid(key));
  const ValidationResult refused = ArchFilter("gfx942").validate(key);
  CHECK(refused.errors.size() == 1 &&
        refused.errors[0].find("LDS capacity exceeded: the tiles take 98304 bytes, and gfx942 has "
                               "65536") != std::string::npos);
  key.algorithm.double_buffer = true;
  CHECK(ArchFilter("gfx950").validate(key).errors.size() == 1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || std::strcmp(argv[1], "--model") != 0) {
    std::fprintf(stderr, "usage: %s --model PATH\n", argv[0]);
    return 1;
  }
  choosing(argv[2]);
  specs();
  memory();
  return finish("ml_heuristic");
}
