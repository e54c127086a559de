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
#include "tessera/measure/operands_internal.h"
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

void poison(const Tensor& tensor, Fp8Encoding fp8, const runtime::AlignedBuffer& buffer) {
  std::memset(buffer.data(), poison_byte(tensor.dtype, fp8), buffer.size());
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

double random_value(const Tensor& tensor, Random& random) {
  if (tensor.fill == Fill::log_sums) {
    return std::log(double(std::max<std::int64_t>(1, tensor.most))) + random.uniform();
  }
  const double value = random_value(tensor.dtype, random);
  return tensor.fill == Fill::positive ? std::abs(value) : value;
}

// Rounding to a type is slow, so elements are drawn from a table of rounded values, four with one
// random number. Each row has its own sequence, so the number of threads does not matter.
template <typename Word>
void fill(const Tensor& tensor, Fp8Encoding fp8, Word* first, std::uint64_t seed, int threads) {
  std::array<Word, kTableSize> table;
  Random random(seed);
  for (std::size_t i = 0; i < kTableSize; ++i) {
    store_element(tensor.dtype, table.data(), static_cast<std::int64_t>(i),
                  random_value(tensor, random), fp8);
  }
  const auto fill_rows = [&](std::size_t, std::size_t begin, std::size_t end) {
    for (std::size_t row = begin; row < end; ++row) {
      Random own(hash_combine(seed, row));
      Word* to = first + tensor.row_offset(static_cast<std::int64_t>(row));
      std::uint64_t bits = 0;
      for (std::int64_t c = 0; c < tensor.sizes[0]; ++c) {
        bits = c % 4 == 0 ? own.next() : bits << kTableBits;
        to[c * tensor.strides[0]] = table[bits >> (64 - kTableBits)];
      }
    }
  };
  share_work(threads, static_cast<std::size_t>(tensor.batches * tensor.rows()), fill_rows);
}

// An eighth of all sequences is empty, and an eighth is as long as they get.
std::int64_t random_length(std::int64_t most, Random& random) {
  const std::uint64_t kind = random.next() >> 61;
  if (kind < 2) return kind == 0 ? 0 : most;
  return static_cast<std::int64_t>(random.uniform() * static_cast<double>(most + 1));
}

// Whole numbers one after the other, each in a word, or in two where a row of the tensor is one.
class Numbers {
 public:
  Numbers(const Tensor& tensor, void* to)
      : to_(static_cast<std::int32_t*>(to)),
        words_(tensor.rank == 2 ? 2 : 1),
        count_(tensor.sizes[tensor.rank - 1]) {}
  std::int64_t count() const { return count_; }
  void put(std::int64_t place, std::int64_t number) const {
    to_[place * words_] = static_cast<std::int32_t>(number);
    if (words_ == 2) to_[place * words_ + 1] = number < 0 ? -1 : 0;
  }

 private:
  std::int32_t* to_;
  std::int64_t words_, count_;
};

// Lengths, or 0 and their sums.
void fill_lengths(const Tensor& tensor, const Numbers& to, std::uint64_t seed) {
  Random random(seed);
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < to.count(); ++i) {
    const bool is_longest = tensor.fill == Fill::even_sums;
    const bool adds_up = is_longest || tensor.fill == Fill::prefix_sums;
    const std::int64_t length =
        is_longest ? tensor.most : std::max(tensor.least, random_length(tensor.most, random));
    to.put(i, adds_up ? sum : length);
    sum = std::min(tensor.total, sum + length);
  }
}

template <class T>
void shuffle(std::vector<T>& list, Random& random) {
  for (std::size_t i = list.size(); i > 1; --i) {
    std::swap(list[i - 1], list[(random.next() >> 32) % i]);
  }
}

// How much of the room each group gets, as learned routers share tokens out: one launch in four
// balanced, one in four skewed (the group of rank r gets 1 / r^1.2), the others random, where a
// quarter of the groups gets nothing.
std::vector<double> random_shares(std::int64_t groups, Random& random) {
  constexpr double kZipf = 1.2;
  const std::uint64_t kind = random.next() >> 62;
  std::vector<double> shares;
  for (std::int64_t i = 0; i < groups; ++i) {
    const double drawn = random.next() >> 62 == 0 ? 0.0 : 0.1 + random.uniform();
    shares.push_back(kind == 0   ? 1.0
                     : kind == 1 ? std::pow(static_cast<double>(i + 1), -kZipf)
                                 : drawn);
  }
  shuffle(shares, random);
  return shares;
}

// Mostly the room is full.
std::vector<std::int64_t> random_ends(std::int64_t groups, std::int64_t room, std::uint64_t seed) {
  Random random(seed);
  const std::vector<double> shares = random_shares(groups, random);
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  const double used = random.next() >> 61 == 0 ? random.uniform() : 1.0;
  std::vector<std::int64_t> ends;
  double sum = 0;
  for (const double share : shares) {
    sum += share;
    const double part = all > 0 ? std::min(1.0, sum / all) : 0.0;
    ends.push_back(static_cast<std::int64_t>(part * used * static_cast<double>(room)));
  }
  return ends;
}

// The ends themselves, or for each row the group that it is of.
void fill_groups(const Tensor& tensor, const Numbers& to, std::uint64_t seed) {
  const bool by_row = tensor.fill == Fill::runs;
  const std::int64_t count = to.count();
  const auto ends =
      random_ends(by_row ? tensor.most + 1 : count, by_row ? count : tensor.total, seed);
  const auto places = static_cast<std::int64_t>(ends.size());
  if (!by_row) {
    for (std::int64_t i = 0; i < places; ++i) to.put(i, ends[static_cast<std::size_t>(i)]);
    return;
  }
  std::int64_t row = 0;
  for (std::int64_t group = 0; group < places; ++group) {
    for (; row < ends[static_cast<std::size_t>(group)]; ++row) to.put(row, group);
  }
  for (; row < count; ++row) to.put(row, -1);
}

// One order of all indices after the other, through all rows.
void fill_indices(const Tensor& tensor, std::int32_t* to, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::int32_t> all(static_cast<std::size_t>(std::max<std::int64_t>(tensor.most, 0)) +
                                1);
  std::iota(all.begin(), all.end(), 0);
  std::size_t next = all.size();
  for (std::int64_t row = 0; row < tensor.rows() * tensor.batches; ++row) {
    for (std::int64_t c = 0; c < tensor.sizes[0]; ++c, ++next) {
      if (next == all.size()) shuffle(all, random), next = 0;
      to[tensor.row_offset(row) + c * tensor.strides[0]] = all[next];
    }
  }
}

void fill_exponents(const Tensor& tensor, std::uint8_t* to, std::uint64_t seed) {
  Random random(seed);
  const std::int64_t count = tensor.elements();
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<std::uint8_t>(120 + random.next() % 15);
  }
}

// Each element once, where a stride of 0 has one place for all indices.
Tensor without_copies(Tensor tensor) {
  for (std::size_t i = 0; i < tensor.rank; ++i) {
    if (tensor.strides[i] == 0) tensor.sizes[i] = std::min<std::int64_t>(tensor.sizes[i], 1);
  }
  if (tensor.batch_stride == 0) tensor.batches = std::min<std::int64_t>(tensor.batches, 1);
  return tensor;
}

// Where rows overlap, the last row remains whole, so that one thread fills them.
void fill_random(const Tensor& all, Fp8Encoding fp8, void* data, std::uint64_t seed, int threads) {
  const Tensor tensor = without_copies(all);
  if (tensor.fill == Fill::indices) {
    return fill_indices(tensor, static_cast<std::int32_t*>(data), seed);
  }
  if (tensor.fill == Fill::exponents) {
    return fill_exponents(tensor, static_cast<std::uint8_t*>(data), seed);
  }
  if (tensor.fill == Fill::ends || tensor.fill == Fill::runs) {
    return fill_groups(tensor, Numbers(tensor, data), seed);
  }
  const bool are_numbers = tensor.fill == Fill::numbers || tensor.fill == Fill::positive ||
                           tensor.fill == Fill::log_sums;
  if (!are_numbers) {
    return fill_lengths(tensor, Numbers(tensor, data), seed);
  }
  if (tensor.fold()) threads = 1;
  switch (size_of(tensor.dtype)) {
    case 1:
      return fill(tensor, fp8, static_cast<std::uint8_t*>(data), seed, threads);
    case 2:
      return fill(tensor, fp8, static_cast<std::uint16_t*>(data), seed, threads);
    default:
      return fill(tensor, fp8, static_cast<std::uint32_t*>(data), seed, threads);
  }
}

std::byte* operand_start(const runtime::AlignedBuffer& buffer) {
  return static_cast<std::byte*>(buffer.data()) + kGuardBytes;
}

// An operand full of NaN, with guard bytes around it. The elements are filled if the problem reads
// them.
void add_tensor(const Tensor& tensor, std::uint64_t seed, int threads, OwnedOperands& owned) {
  const runtime::AlignedBuffer& buffer =
      owned.storage.emplace_back(tensor.bytes() + 2 * kGuardBytes);
  poison(tensor, owned.fp8, buffer);
  if (tensor.is_read() && !tensor.is_empty()) {
    fill_random(tensor, owned.fp8, operand_start(buffer), hash_combine(seed, owned.storage.size()),
                threads);
  }
  owned.family->set_pointer(owned.operands, tensor.operand, operand_start(buffer));
  if (!tensor.is_written()) return;
  owned.outputs.push_back(owned.storage.size() - 1);
  owned.originals.emplace_back(tensor.is_read() ? buffer.size() : 0);
  if (!tensor.is_read()) return;
  std::memcpy(owned.originals.back().data(), buffer.data(), buffer.size());
}

// Replaces the pointer to a tensor by an array of pointers to its batches, which have a random
// order in the tensor's memory.
void put_in_array(std::size_t index, Random& random, OwnedOperands& owned) {
  const Tensor& tensor = owned.tensors[index];
  const auto count = static_cast<std::size_t>(tensor.batches);
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  shuffle(order, random);
  owned.arrays.push_back(owned.storage.size());
  owned.storage.emplace_back(std::max<std::size_t>(count, 1) * sizeof(void*));
  auto* const pointers = static_cast<void**>(owned.storage.back().data());
  const auto bytes = static_cast<std::size_t>(tensor.batch_stride * size_of(tensor.dtype));
  for (std::size_t i = 0; i < count; ++i) {
    pointers[i] = operand_start(owned.storage[index]) + order[i] * bytes;
  }
  owned.family->set_pointer(owned.operands, tensor.operand, pointers);
}

// One flag for each place from the first element to the last: whether it holds an element of the
// tensor.
std::vector<char> element_mask(const Tensor& tensor) {
  std::vector<char> mask(static_cast<std::size_t>(tensor.elements()), 0);
  for (std::int64_t row = 0; row < tensor.rows() * tensor.batches; ++row) {
    const std::int64_t first = tensor.row_offset(row);
    for (std::int64_t c = 0; c < tensor.sizes[0]; ++c) {
      mask[static_cast<std::size_t>(first + c * tensor.strides[0])] = 1;
    }
  }
  return mask;
}

// Counts the bytes that no longer have their poison value, and remembers the first one.
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

// "5 x 7", the innermost size last.
std::string window_of(const Tensor& tensor) {
  std::string text;
  for (std::size_t i = tensor.rank; i > 0; --i) {
    text += fmt::format("{}{}", text.empty() ? "" : " x ", tensor.sizes[i - 1]);
  }
  return text;
}

Overrun overrun_of(const Tensor& tensor, Fp8Encoding fp8, const std::byte* bytes) {
  const int expected = poison_byte(tensor.dtype, fp8);
  const auto guard = static_cast<std::int64_t>(kGuardBytes);
  Overrun overrun;
  overrun.look(bytes, -guard, guard, expected);
  if (tensor.has_gaps()) {
    const std::vector<char> mask = element_mask(tensor);
    const int width = size_of(tensor.dtype);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      if (mask[static_cast<std::size_t>(i)] == 0) overrun.look(bytes, i * width, width, expected);
    }
  }
  overrun.look(bytes, static_cast<std::int64_t>(tensor.bytes()), guard, expected);
  return overrun;
}

}  // namespace

OwnedOperands random_operands(const Problem& problem, std::uint64_t seed, int threads,
                              Fp8Encoding fp8) {
  return random_operands(family_of(problem), problem, seed, threads, fp8);
}

OwnedOperands random_operands(const Family& family, const Problem& problem, std::uint64_t seed,
                              int threads, Fp8Encoding fp8) {
  OwnedOperands owned;
  owned.family = &family;
  owned.fp8 = fp8;
  owned.operands = no_operands(problem);
  owned.tensors = family.tensors(family.unpacked(problem));
  for (const Tensor& tensor : owned.tensors) add_tensor(tensor, seed, threads, owned);
  Random random(hash_combine(seed, 0xa44a75));
  for (std::size_t i = 0; i < owned.tensors.size(); ++i) {
    if (owned.tensors[i].in_array) put_in_array(i, random, owned);
  }
  return owned;
}

void reset_outputs(OwnedOperands& owned) {
  for (std::size_t i = 0; i < owned.outputs.size(); ++i) {
    const runtime::AlignedBuffer& buffer = owned.storage[owned.outputs[i]];
    const runtime::AlignedBuffer& original = owned.originals[i];
    if (original.size() == 0) {
      poison(owned.tensors[owned.outputs[i]], owned.fp8, buffer);
    } else {
      std::memcpy(buffer.data(), original.data(), original.size());
    }
  }
}

std::string gaps_intact(const OwnedOperands& owned) {
  for (const std::size_t i : owned.outputs) {
    const Tensor& tensor = owned.tensors[i];
    const Overrun overrun = overrun_of(tensor, owned.fp8, operand_start(owned.storage[i]));
    if (overrun.count == 0) continue;
    const bool is_only_one = owned.outputs.size() == 1;
    return fmt::format(
        "output{}{}: {} bytes outside the {} window were written, the first at byte {} of an "
        "output of {} bytes",
        is_only_one ? "" : " ", is_only_one ? "" : tensor.name, overrun.count, window_of(tensor),
        overrun.first, tensor.bytes());
  }
  return {};
}

}  // namespace tessera::measure
