// The receipts of AITER by their numbers: which kernels each of them asks for on a GPU that need
// not be here. Receipts of equal sequences and receipts of any length have no kernel in common.
#include <tessera/tessera.hpp>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>

namespace {

std::set<std::string> aiter_names(std::string_view receipt) {
  std::set<std::string> names;
  for (const tessera::KernelSpec& spec :
       tessera::KernelSetBuilder("aiter", "sm90a").receipt(receipt).build().specs) {
    names.insert(name_of(spec));
  }
  return names;
}

bool holds(const std::set<std::string>& all, const std::set<std::string>& some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

}  // namespace

int main() {
  for (const tessera::Receipt& receipt : tessera::all_receipts()) {
    if (!receipt.name.starts_with("aiter")) continue;
    std::printf("%-16s %3s  %s: ", std::string(receipt.name).c_str(),
                std::string(receipt.number).c_str(), std::string(receipt.about).c_str());
    const std::size_t count = aiter_names(receipt.name).size();
    std::printf("%zu kernels\n", count);
    if (count == 0) return 1;
  }
  const std::set<std::string> batch = aiter_names("100"), group = aiter_names("200");
  const std::set<std::string> both = aiter_names("600");
  for (const std::string& name : batch) {
    if (group.contains(name)) return 1;
  }
  const std::set<std::string> gradients = aiter_names("400");
  for (const std::string& name : aiter_names("300")) {
    if (gradients.contains(name)) return 1;
  }
  std::printf("600 holds %zu and %zu kernels: %zu\n", batch.size(), group.size(), both.size());
  return holds(both, batch) && holds(both, group) && both.size() == batch.size() + group.size() ? 0
                                                                                                : 1;
}
