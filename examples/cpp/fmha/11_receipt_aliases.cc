// Every receipt by its name and by its number: the same kernels; and names that stand for several.
#include <tessera/tessera.hpp>

#include <cstdio>
#include <string>
#include <vector>

namespace {

tessera::KernelSet alias_set(std::string_view receipt) {
  return tessera::KernelSetBuilder("alias", "avx2").receipt(receipt).build();
}

}  // namespace

int main() {
  int same = 0;
  for (const tessera::Receipt& receipt : tessera::all_receipts()) {
    const std::string name(receipt.name), number(receipt.number);
    const tessera::KernelSet set = alias_set(name);
    if (!number.empty() && alias_set(number) != set) return 1;
    const std::string json = R"({"name": "alias", "target": "avx2", "receipt": ")" + name + "\"}";
    if (tessera::kernel_set_from_json(json) != set) return 1;
    std::printf("%-16s %3s  %4zu kernels  %s\n", name.c_str(), number.c_str(), set.specs.size(),
                std::string(receipt.about).c_str());
    ++same;
  }
  try {
    alias_set("flahs");
    return 1;
  } catch (const tessera::Error& unknown) {
    std::printf("%s\n", unknown.what());
  }
  return same == 17 ? 0 : 1;
}
