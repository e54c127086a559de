// Receipts: what frameworks ask of an operation, as named lists of signatures.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/spec/kernel_spec.h"

#pragma GCC visibility push(default)
namespace tessera {

struct Family;

struct Receipt {
  std::string_view name;    // "flash_fwd"
  std::string_view number;  // by which CK Tile's kernel sets know it; empty for several in one
  std::string_view about;   // a clause: "PyTorch's scaled_dot_product_attention"
};

// A receipt, and the family that has it.
struct FoundReceipt {
  const Family* family = nullptr;
  const Receipt* receipt = nullptr;
};
// By name or number, in whichever family has it. Throws Error{not_found} with the nearest name.
FoundReceipt find_receipt(std::string_view name);

// The receipts of all families.
std::vector<Receipt> all_receipts();

// The signatures that the receipt asks for, each once. Throws what find_receipt() and
// Family::receipt_problems throw.
std::vector<Signature> receipt_signatures(std::string_view name);

}  // namespace tessera
#pragma GCC visibility pop
