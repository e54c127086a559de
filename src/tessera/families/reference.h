// What a kernel should have written, and how far it is from that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera {

// The largest error a correct kernel may make, element by element.
struct Mismatch {
  bool ok = true;
  std::int64_t bad = 0;  // elements outside their tolerance
  std::int64_t checked = 0;
  double worst_ratio = 0;  // largest error / tolerance
  std::string message;     // a sentence about the worst element; empty when ok
};

// Part of what the reference gives, kept to compare many outputs with. `elements` is the family's
// own; `runs` says which bytes of the outputs it looks at.
struct Reference {
  struct Run {
    std::size_t tensor = 0;  // which of the problem's tensors
    std::int64_t batch = 0;
    std::int64_t offset = 0;  // bytes from where the tensor begins; in_array: where the batch does
    std::int64_t bytes = 0;
  };
  std::vector<Run> runs;
  std::shared_ptr<const void> elements;
};

// How much of an output a reference covers, and at what price.
struct ReferenceLimits {
  double multiplications = 0x1p28;  // about a quarter of a second of one thread
  std::int64_t elements = 1 << 22;  // that it keeps
  std::int64_t rows = 0;            // of all batches together; 0: as many as the others let it
  std::uint64_t seed = 0;           // other rows and columns for another seed
  int threads = 1;
};

}  // namespace tessera
