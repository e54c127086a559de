// Declares kernels, registers them and runs one product.
#include "product.h"

using namespace ck_tile::dispatcher;
using decl::Algorithm;
using decl::Signature;

DECL_KERNEL_SET(basic,
                .add(Signature().dtype("fp16").layout("rcr"), Algorithm(), "gfx942")
                    .add(Signature().dtype("fp16").layout("rcr"),
                         Algorithm().tile(256, 256, 32).wave(2, 2, 1).warp(32, 32, 16), "gfx942"));

int main(int argc, char* argv[]) {
  utils::ExampleArgs args("gemm_01_basic", "one product by declared kernels");
  args.add_option("--size", "256", "m, n and k");
  args.add_option("--arch", "gfx942", "the target");
  if (!args.parse(argc, argv)) return 0;
  Registry registry;
  REGISTER_GENERATED_KERNELS(registry, args.get("--arch", "gfx942"));
  utils::print_registered_kernels(registry);
  const int size = args.get_int("--size", 256);
  return show(Dispatcher(registry), Problem(size, size, size)) ? 0 : 1;
}
