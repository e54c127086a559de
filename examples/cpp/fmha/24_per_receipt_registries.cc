// One registry for each receipt, and the way back: which receipts the kernels of a registry serve,
// and a part of it by a receipt.
#include <tessera/tessera.hpp>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

int main() {
  const tessera::Target target = tessera::host_target();
  std::map<std::string, tessera::Registry> registries;
  tessera::Registry all("all");
  for (const char* const receipt : {"pytorch", "flash", "aiter", "fp32", "fp8"}) {
    const auto set = tessera::KernelSetBuilder(receipt, target).receipt(receipt).build();
    tessera::Registry& registry =
        registries.emplace(receipt, tessera::Registry(receipt)).first->second;
    registry.declare(set);
    all.merge(registry);
    std::printf("%-8s %4zu kernels, which serve", receipt, registry.size());
    const std::vector<std::string> served = registry.receipts();
    for (const std::string& name : served) std::printf(" %s", name.c_str());
    std::printf("\n");
    if (std::find(served.begin(), served.end(), receipt) == served.end()) return 1;
  }

  // A receipt's part of all kernels holds its own, and those that others share with it.
  for (const auto& [receipt, registry] : registries) {
    const tessera::Registry part = all.filtered_by_receipt(receipt);
    std::printf("of all %zu: %zu serve %s\n", all.size(), part.size(), receipt.c_str());
    for (const tessera::KernelSpec& spec : registry.declared()) {
      if (!part.contains(name_of(spec))) return 1;
    }
  }

  // The registries go to other machines as JSON.
  tessera::Registry copy("copy");
  copy.import_json(registries.at("pytorch").export_json());
  return copy.declared() == registries.at("pytorch").declared() ? 0 : 1;
}
