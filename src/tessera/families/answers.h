// What an operation answers about a problem or a kernel: plain structs, equal for every operation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/spec/problem.h"

namespace tessera {
struct Headers;  // families/headers.h, which only the library includes
}

#pragma GCC visibility push(default)
namespace tessera {

// Yes, or no with the rule and both numbers.
struct Verdict {
  std::string reason;  // empty: yes
  explicit operator bool() const { return reason.empty(); }
};

// Text to compile: a pure function of (spec, target).
struct Source {
  std::string name;                        // the kernel's name, which is also its symbol
  std::string extension;                   // ".cc", ".cu", ".hip"
  std::string text;                        // compiles with `headers` and nothing else
  std::shared_ptr<const Headers> headers;  // headers that text and declarations include; null: none
  // Code that kernels share. Each object is compiled once and linked into every kernel that lists
  // it. The `declarations` are put before the kernel's text, so that the compiler does not make the
  // same code again.
  std::vector<Source> objects = {};
  std::string declarations = {};
  bool is_object = false;
  // Counts the changes of the contract between the operation's kernels and their callers.
  int abi = 0;
  // The entries that the binary exports, as suffixes of the kernel's name; "" is the kernel itself.
  // A step runs one. On GPUs each is a kernel of its own, on CPUs a row of the kernel's table.
  std::vector<std::string> entries = {""};
};

// A predicted time and its parts, in seconds.
struct Estimate {
  double seconds = 0;
  double compute_seconds = 0;
  double memory_seconds = 0;
  double overhead_seconds = 0;
  double utilisation = 1;  // share of the issued operations that are useful
};

// One step of a launch, for people.
struct Stage {
  std::string name;        // "check pages"
  std::string entry;       // the function that it runs: the kernel's name and a suffix
  std::int64_t parts = 1;  // into which it cuts the longest sums, which it then merges
};

// The result of comparing outputs with the reference. Each element has its own tolerance: the
// largest error that a correct kernel may make.
struct Mismatch {
  bool ok = true;
  std::int64_t bad = 0;  // elements outside their tolerance
  std::int64_t checked = 0;
  double worst_ratio = 0;  // largest error / tolerance
  std::string message;     // a sentence about the worst element; empty when ok
};

// A problem whose results must not depend on the batch, and what to choose kernels for then.
struct AnyBatch {
  // The same problem, where need be with cuts of sums that follow each sequence alone.
  Problem own;
  // The same with usual batches, and with unusual ones; equal for problems that differ in their
  // batch alone. An order of sums is chosen that is fast for the usual ones. A kernel that serves
  // each of them, and the unusual ones, serves any batch.
  std::vector<Problem> usual, unusual;
};

// What a framework asks of an operation: a named list of signatures.
struct Receipt {
  std::string_view name;    // "flash_fwd"
  std::string_view number;  // by which CK Tile's kernel sets know it; empty for several in one
  std::string_view about;   // a clause: "PyTorch's scaled_dot_product_attention"
};

}  // namespace tessera
#pragma GCC visibility pop
