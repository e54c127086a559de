// A function of the program's own chooses by size: one kernel for small products, one for large.
#include <optional>

#include "product.h"

using namespace ck_tile::dispatcher;

DECL_KERNEL_SET(sizes, .add("fp16", "rcr", 64, 64, 32).add("fp16", "rcr", 256, 256, 32));

int main() {
  Registry registry;
  REGISTER_KERNEL_SET(sizes, registry);
  const KernelKey small = registry.get_all().front()->get_key();
  const KernelKey large = registry.get_all().back()->get_key();
  Dispatcher dispatcher(registry);
  dispatcher.set_heuristic([&](const Problem& p) -> std::optional<KernelKey> {
    return p.M * p.N < 256 * 256 ? small : large;
  });
  bool right = true;
  for (const Problem& problem : {Problem(100, 100, 64), Problem(300, 300, 64)}) {
    std::printf("%s\n", dispatcher.select_kernel(problem)->get_name().c_str());
    right = show(dispatcher, problem) && right;
  }
  return right ? 0 : 1;
}
