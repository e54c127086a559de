// A declaration with wildcards, and products of several sizes, none of which need be round.
#include "product.h"

using namespace ck_tile::dispatcher;

DECL_KERNEL_SET(wild,
                .add(decl::Signature().dtype("fp16").layout("rcr"),
                     decl::Algorithm().tile(128, 128, 32).wave(ANY_INT, ANY_INT, 1).pipeline("*"),
                     "gfx942"));

int main() {
  Registry registry;
  REGISTER_GENERATED_KERNELS(registry, "gfx942");
  std::printf("%zu kernels\n", registry.size());
  const Dispatcher dispatcher(registry);
  bool right = true;
  for (const Problem& problem :
       {Problem(64, 64, 64), Problem(333, 127, 65), Problem(17, 512, 256)}) {
    right = show(dispatcher, problem) && right;
  }
  return right ? 0 : 1;
}
