// The smallest program: a kernel that is declared, and a product with the right numbers.
#include <ck_tile/dispatcher.hpp>

#include "check.h"

using namespace ck_tile::dispatcher;

DECL_KERNEL_SET(declared, .add("fp32", "rcr", 128, 128, 32));

int main() {
  Registry registry;
  CHECK(REGISTER_GENERATED_KERNELS(registry, "gfx942") == 1);
  const Problem problem(7, 5, 3);
  utils::GpuBuffer<float> a(21), b(15), c(35);
  std::vector<float> host_a(21), host_b(15), host_c(35, -1.0F);
  for (std::size_t i = 0; i < 21; ++i) host_a[i] = static_cast<float>(i);
  for (std::size_t i = 0; i < 15; ++i) host_b[i] = static_cast<float>(i % 4);
  a.copy_from_host(host_a.data()), b.copy_from_host(host_b.data()), c.copy_from_host(host_c.data());
  CHECK(Dispatcher(&registry).run(a.get(), b.get(), c.get(), problem) > 0);
  c.copy_to_host(host_c.data());
  for (std::size_t i = 0; i < 35; ++i) {  // A is row-major, B column-major
    float sum = 0;
    for (std::size_t k = 0; k < 3; ++k) sum += host_a[i / 5 * 3 + k] * host_b[i % 5 * 3 + k];
    CHECK(host_c[i] == sum);
  }
  return finish("small");
}
