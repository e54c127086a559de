// What tests of the wish batch_invariant on a GPU share: a large batch, then parts of it where they
// lie, and a comparison of bytes.
#pragma once

#include <algorithm>
#include <vector>

#include "cuda/gpu_test.h"
#include "tessera/families/operations.h"

namespace tessera {

class GpuBatchInvariant : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    DispatcherOptions options = dispatcher_options();
    options.batch_invariant = true;
    dispatcher_ = std::make_unique<Dispatcher>(options);
  }
  std::int64_t draw(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  // A batch that was computed, and where its operands lie.
  struct Whole {
    measure::OwnedOperands owned;
    measure::PlacedOperands placed;
    std::vector<std::byte> bytes;  // of the first output, with what is around it
    std::size_t begin = 0;         // of the output in `bytes`
  };
  Whole compute(const Problem& problem) {
    say(fmt::format("{} on '{}'", dispatcher_->explain(problem).name, to_string(problem)));
    Whole w{measure::random_operands(problem, random_(), usable_processors()), {}, {}, 0};
    return recomputed(problem, std::move(w));
  }
  Whole recomputed(const Problem& problem, Whole w) {
    w.placed = place(w.owned);
    w.bytes = run(problem, w.owned, w.placed, w.placed.operands, "");
    const std::size_t output = w.owned.outputs.front();
    const Tensor& tensor = w.owned.tensors[output];
    const auto* const data =
        static_cast<const std::byte*>(family_of(problem).pointer(w.owned.operands, tensor.operand));
    const auto* const from = static_cast<const std::byte*>(w.owned.storage.at(output).data());
    w.begin = static_cast<std::size_t>(data - from);
    return w;
  }

  // The part of the batch whose results are `count` bytes from `first` on has the same bits.
  void expect_same(const Problem& part, Whole& w, const Operands& operands, std::int64_t first,
                   std::int64_t count, const std::string& kernel = "") {
    const std::vector<std::byte> bytes = run(part, w.owned, w.placed, operands, kernel);
    const auto begin = static_cast<std::ptrdiff_t>(w.begin) + first;
    EXPECT_TRUE(
        std::equal(bytes.begin() + begin, bytes.begin() + begin + count, w.bytes.begin() + begin))
        << to_string(part) << ' ' << (kernel.empty() ? dispatcher_->explain(part).name : kernel);
  }
};

// An address so many bytes behind another one.
inline void* behind(const void* address, std::int64_t bytes) {
  return static_cast<char*>(const_cast<void*>(address)) + bytes;
}

}  // namespace tessera
