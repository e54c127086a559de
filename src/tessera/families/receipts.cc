#include "tessera/families/receipts.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/families/family.h"

namespace tessera {

FoundReceipt find_receipt(std::string_view name) {
  std::vector<std::string> known;
  for (const Family* family : all_families()) {
    for (const Receipt& receipt : family->receipts()) {
      if (receipt.name == name) return {family, &receipt};
      if (!receipt.number.empty() && receipt.number == name) return {family, &receipt};
      known.emplace_back(receipt.name);
    }
  }
  throw Error(ErrorCode::not_found, fmt::format("unknown receipt '{}'{} (known: {})", name,
                                                did_you_mean(name, known), join(known, ", ")));
}

std::vector<Receipt> all_receipts() {
  std::vector<Receipt> all;
  for (const Family* family : all_families()) {
    const auto receipts = family->receipts();
    all.insert(all.end(), receipts.begin(), receipts.end());
  }
  return all;
}

std::vector<Signature> receipt_signatures(std::string_view name) {
  const FoundReceipt found = find_receipt(name);
  std::vector<Signature> all;
  for (const Problem& problem : found.family->receipt_problems(*found.receipt)) {
    const Signature signature = signature_of(problem);
    if (std::find(all.begin(), all.end(), signature) == all.end()) all.push_back(signature);
  }
  return all;
}

}  // namespace tessera
