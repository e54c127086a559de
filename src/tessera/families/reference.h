// What a correct kernel writes, and how far a kernel's output is from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/spec/dtype.h"

namespace tessera {

// Part of the reference result, kept to compare many outputs with. Only the family reads
// `elements`; `runs` says which bytes of the outputs are compared.
struct Reference {
  struct Run {
    std::size_t tensor = 0;  // index into the problem's tensors
    std::int64_t batch = 0;
    std::int64_t offset = 0;  // in bytes from the start of the tensor; in_array: of the batch
    std::int64_t bytes = 0;
  };
  std::vector<Run> runs;
  std::shared_ptr<const void> elements;
};

// How much of an output a reference covers, and at what price.
struct ReferenceLimits {
  double multiplications = 0x1p28;  // about a quarter of a second on one thread
  std::int64_t elements = 1 << 22;  // the most elements that are kept
  std::int64_t rows = 0;   // the most rows, of all batches together; 0: only the other limits hold
  std::uint64_t seed = 0;  // another seed selects other rows and columns
  int threads = 1;
  Fp8Encoding fp8 = Fp8Encoding::ocp;  // of the operands, as the target that runs the kernel has it
};

}  // namespace tessera
