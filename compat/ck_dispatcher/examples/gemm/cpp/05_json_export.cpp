// Writes a registry as JSON: gemm_05_json_export [--output kernels.json].
#include <fstream>

#include "product.h"

using namespace ck_tile::dispatcher;

DECL_KERNEL_SET(exported, .add("fp16", "rcr", 128, 128, 32).add("bf16", "rcr", 128, 128, 32));

int main(int argc, char* argv[]) {
  utils::ExampleArgs args("gemm_05_json_export", "a registry as JSON");
  args.add_option("--output", "kernels.json", "the file");
  if (!args.parse(argc, argv)) return 0;
  Registry registry("exported");
  REGISTER_GENERATED_KERNELS(registry, "gfx942");
  const std::string path = args.get("--output", "kernels.json");
  std::ofstream file(path);
  file << registry.to_json();
  std::printf("%zu kernels in %s\n", registry.get_kernel_count(), path.c_str());
  return file ? 0 : 1;
}
