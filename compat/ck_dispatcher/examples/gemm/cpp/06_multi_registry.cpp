// Two registries with a set of kernels each, and a dispatcher for each of them.
#include "product.h"

using namespace ck_tile::dispatcher;

DECL_KERNEL_SET(compute_optimized, .add("fp16", "rcr", 256, 256, 32));
DECL_KERNEL_SET(latency_optimized, .add("fp16", "rcr", 64, 64, 32));

int main() {
  Registry compute("compute"), latency("latency");
  REGISTER_KERNEL_SET(compute_optimized, compute);
  REGISTER_KERNEL_SET(latency_optimized, latency);
  const bool first = show(Dispatcher(compute), Problem(512, 256, 128));
  const bool second = show(Dispatcher(latency), Problem(48, 64, 96));
  return first && second ? 0 : 1;
}
