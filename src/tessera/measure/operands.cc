#include "tessera/measure/operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/base/hash.h"
#include "tessera/base/parallel.h"
#include "tessera/families/family.h"
#include "tessera/measure/planes_internal.h"
#include "tessera/spec/numeric.h"

namespace tessera::measure {
namespace {

constexpr int kTableBits = 12;
constexpr std::size_t kTableSize = 1 << kTableBits;

// xorshift64*: the upper bits are good enough for test data, and cheap.
struct Random {
  std::uint64_t state;
  explicit Random(std::uint64_t seed) : state(hash_combine(seed, 0x7e55e7a) | 1) {}
  std::uint64_t next() {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1dULL;
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
};

void poison(DType dtype, const runtime::AlignedBuffer& buffer) {
  std::memset(buffer.data(), poison_byte(dtype), buffer.size());
}

double random_value(DType dtype, Random& random) {
  if (!is_integer(dtype)) {
    const double magnitude = 0.0625 + 0.9375 * random.uniform();
    return (random.next() >> 63) != 0 ? -magnitude : magnitude;
  }
  const double limit = dtype == DType::int8 ? 128 : 1000;
  const double value = std::floor((2 * random.uniform() - 1) * limit);
  return value == 0 ? limit - 1 : value;
}

// Rounding to the type is slow, so elements are drawn from a table of rounded values, four with one
// random number. Each row has a sequence of its own, whichever thread fills it.
template <typename Word>
void fill(const Plane& plane, Word* first, std::uint64_t seed, int threads) {
  std::array<Word, kTableSize> table;
  Random random(seed);
  for (std::size_t i = 0; i < kTableSize; ++i) {
    store_element(plane.dtype, table.data(), static_cast<std::int64_t>(i),
                  random_value(plane.dtype, random));
  }
  const std::int64_t batches = plane.batch_stride == 0 ? 1 : plane.batch;
  const auto fill_rows = [&](std::size_t, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const auto row = static_cast<std::int64_t>(i);
      Random own(hash_combine(seed, i));
      Word* to = first + row / plane.rows * plane.batch_stride + row % plane.rows * plane.stride;
      std::uint64_t bits = 0;
      for (std::int64_t c = 0; c < plane.columns; ++c) {
        bits = c % 4 == 0 ? own.next() : bits << kTableBits;
        to[c] = table[bits >> (64 - kTableBits)];
      }
    }
  };
  share_work(threads, static_cast<std::size_t>(batches * plane.rows), fill_rows);
}

void* operand_start(const runtime::AlignedBuffer& buffer) {
  return static_cast<std::byte*>(buffer.data()) + kGuardBytes;
}

// A poisoned operand with guard bytes around it.
void* allocate(const Plane& plane, std::vector<runtime::AlignedBuffer>& storage) {
  storage.emplace_back(plane.bytes() + 2 * kGuardBytes);
  poison(plane.dtype, storage.back());
  return operand_start(storage.back());
}

const void* allocate_random(const Plane& plane, std::uint64_t seed, int threads,
                            std::vector<runtime::AlignedBuffer>& storage) {
  void* data = allocate(plane, storage);
  if (plane.empty()) return data;
  seed = hash_combine(seed, storage.size());
  switch (size_of(plane.dtype)) {
    case 1:
      fill(plane, static_cast<std::uint8_t*>(data), seed, threads);
      break;
    case 2:
      fill(plane, static_cast<std::uint16_t*>(data), seed, threads);
      break;
    default:
      fill(plane, static_cast<std::uint32_t*>(data), seed, threads);
  }
  return data;
}

// An array of pointers to the batches of a plane at `data`, which lie in it in a random order.
void* allocate_array(const Plane& plane, const void* data, Random& random, OwnedOperands& owned) {
  const auto count = static_cast<std::size_t>(plane.batch);
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[(random.next() >> 32) % i]);
  owned.arrays.push_back(owned.storage.size());
  owned.storage.emplace_back(std::max<std::size_t>(count, 1) * sizeof(void*));
  auto* const pointers = static_cast<const void**>(owned.storage.back().data());
  const auto bytes = static_cast<std::size_t>(plane.batch_stride * size_of(plane.dtype));
  for (std::size_t i = 0; i < count; ++i) {
    pointers[i] = static_cast<const std::byte*>(data) + order[i] * bytes;
  }
  return pointers;
}

void put_in_arrays(const GemmProblem& p, std::uint64_t seed, OwnedOperands& owned,
                   GemmOperands& o) {
  Random random(hash_combine(seed, 0xa44a75));
  o.a = allocate_array(plane_a(p), o.a, random, owned);
  o.b = allocate_array(plane_b(p), o.b, random, owned);
  if (p.beta != 0) o.c = allocate_array(plane_c(p), o.c, random, owned);
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
    o.d[i] = allocate_array(plane_d(p, i), o.d[i], random, owned);
  }
  o.out = allocate_array(plane_out(p), o.out, random, owned);
}

// One byte per element of the span: whether a window covers it.
std::vector<char> window_mask(const Plane& plane) {
  std::vector<char> mask(static_cast<std::size_t>(plane.elements()), 0);
  for (std::int64_t b = 0; b < plane.batch; ++b) {
    for (std::int64_t r = 0; r < plane.rows; ++r) {
      auto row = mask.begin() + b * plane.batch_stride + r * plane.stride;
      std::fill(row, row + plane.columns, char{1});
    }
  }
  return mask;
}

// Counts the bytes that no longer hold the poison, and remembers the first one.
struct Overrun {
  std::int64_t count = 0;
  std::int64_t first = 0;  // relative to the output's first byte
  void look(const std::byte* bytes, std::int64_t at, std::int64_t size, int expected) {
    for (std::int64_t i = 0; i < size; ++i) {
      if (bytes[at + i] == static_cast<std::byte>(expected)) continue;
      if (count++ == 0) first = at + i;
    }
  }
};

}  // namespace

OwnedOperands random_operands(const Problem& problem, std::uint64_t seed, int threads) {
  const GemmProblem p = with_strides(gemm_of(problem));
  OwnedOperands owned;
  GemmOperands operands;
  operands.a = allocate_random(plane_a(p), seed, threads, owned.storage);
  operands.b = allocate_random(plane_b(p), seed, threads, owned.storage);
  if (p.beta != 0) operands.c = allocate_random(plane_c(p), seed, threads, owned.storage);
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
    operands.d[i] = allocate_random(plane_d(p, i), seed, threads, owned.storage);
  }
  operands.out = allocate(plane_out(p), owned.storage);
  owned.output = owned.storage.size() - 1;
  if (p.pointer_arrays) put_in_arrays(p, seed, owned, operands);
  owned.operands = operands;
  return owned;
}

void poison_output(const Problem& problem, OwnedOperands& owned) {
  poison(gemm_of(problem).out, owned.storage.at(owned.output));
}

std::string gaps_intact(const Problem& problem, const OwnedOperands& owned) {
  const Plane plane = plane_out(with_strides(gemm_of(problem)));
  const int expected = poison_byte(plane.dtype);
  const auto* bytes = static_cast<const std::byte*>(operand_start(owned.storage.at(owned.output)));
  const auto guard = static_cast<std::int64_t>(kGuardBytes);
  const auto size = static_cast<std::int64_t>(plane.bytes());

  Overrun overrun;
  overrun.look(bytes, -guard, guard, expected);
  if (plane.has_gaps()) {
    const std::vector<char> mask = window_mask(plane);
    const int width = size_of(plane.dtype);
    for (std::int64_t i = 0; i < plane.elements(); ++i) {
      if (mask[static_cast<std::size_t>(i)] == 0) overrun.look(bytes, i * width, width, expected);
    }
  }
  overrun.look(bytes, size, guard, expected);
  if (overrun.count == 0) return {};
  return fmt::format(
      "output: {} bytes outside the {} x {} window were written, the first at byte "
      "{} of an output of {} bytes",
      overrun.count, plane.rows, plane.columns, overrun.first, size);
}

Problem unpacked(const Problem& problem) {
  GemmProblem gemm = gemm_of(problem);
  gemm.preshuffled_b = false;
  return gemm;
}

}  // namespace tessera::measure
