// The operations of which graphs of attention consist, each computed plainly as cuDNN's manual
// defines it. Tensors have four dimensions; one of size 1 is the same for all indices of it.
#include <immintrin.h>

#include <array>
#include <cmath>
#include <functional>
#include <memory>

#include "fake_cudnn.h"

namespace fake_cudnn {
namespace {

using Index = std::array<std::int64_t, 4>;

// clang has no _Float16 on every machine.
[[gnu::target("f16c")]] float from_fp16(std::uint16_t bits) { return _cvtsh_ss(bits); }
[[gnu::target("f16c")]] std::uint16_t to_fp16(float value) {
  return static_cast<std::uint16_t>(
      _mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(value), _MM_FROUND_TO_NEAREST_INT)));
}

float from_bf16(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

std::uint16_t to_bf16(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  if (std::isnan(value)) return 0x7fc0;
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// The numbers of cuDNN's types.
enum Type { kFp32 = 0, kFp16 = 2, kInt32 = 4, kBf16 = 9, kBoolean = 11 };

float rounded(int type, float value) {
  if (type == kFp16) return from_fp16(to_fp16(value));
  return type == kBf16 ? from_bf16(to_bf16(value)) : value;
}

float read(int type, const void* memory, std::int64_t at) {
  switch (type) {
    case kFp16:
      return from_fp16(static_cast<const std::uint16_t*>(memory)[at]);
    case kBf16:
      return from_bf16(static_cast<const std::uint16_t*>(memory)[at]);
    case kInt32:
      return static_cast<float>(static_cast<const std::int32_t*>(memory)[at]);
    default:
      return static_cast<const float*>(memory)[at];
  }
}

void write(int type, void* memory, std::int64_t at, float value) {
  if (type == kFp16) {
    static_cast<std::uint16_t*>(memory)[at] = to_fp16(value);
  } else if (type == kBf16) {
    static_cast<std::uint16_t*>(memory)[at] = to_bf16(value);
  } else {
    static_cast<float*>(memory)[at] = value;
  }
}

// A tensor with all its elements in fp32, dense.
struct Values {
  std::vector<std::int64_t> dims;
  std::vector<float> elements;

  std::size_t place(Index index) const {
    std::int64_t at = 0;
    for (std::size_t i = 0; i < 4; ++i) at = at * dims[i] + (dims[i] == 1 ? 0 : index[i]);
    return static_cast<std::size_t>(at);
  }
  float at(const Index& index) const { return elements[place(index)]; }
  float& at(const Index& index) { return elements[place(index)]; }
};

void for_each(const std::vector<std::int64_t>& dims, const std::function<void(const Index&)>& f) {
  Index i;
  for (i[0] = 0; i[0] < dims[0]; ++i[0]) {
    for (i[1] = 0; i[1] < dims[1]; ++i[1]) {
      for (i[2] = 0; i[2] < dims[2]; ++i[2]) {
        for (i[3] = 0; i[3] < dims[3]; ++i[3]) f(i);
      }
    }
  }
}

class Fusion {
 public:
  explicit Fusion(const Descriptor& pack) : pack_(pack) {}

  void run(const Descriptor& operation) {
    if (operation.kind == 19) multiply(operation);
    if (operation.kind == 13) point(operation);
    if (operation.kind == 22) reduce(operation);
  }

 private:
  static int type_of(const Descriptor& tensor) { return tensor.get<int>(901).at(0); }

  // Where an element is in memory, from where its batch begins.
  std::int64_t place(const Descriptor& tensor, const Index& index) const {
    const auto strides = tensor.get<std::int64_t>(903);
    std::int64_t at = index[0] * strides[0];
    if (tensor.has(913)) {
      const auto* const offsets =
          static_cast<const std::int32_t*>(pointer_of(tensor.part(913), pack_));
      at = offsets[index[0]];
    }
    for (std::size_t i = 1; i < 4; ++i) at += index[i] * strides[i];
    return at;
  }

  // How much of a dimension counts in each batch: all of it without a tensor of counts.
  std::int64_t count(const Descriptor& operation, int attribute, std::int64_t batch,
                     std::int64_t all) const {
    if (!operation.has(attribute)) return all;
    const Descriptor& counts = operation.part(attribute);
    return static_cast<const std::int32_t*>(pointer_of(counts, pack_))[batch];
  }

  // An inner tensor's values were computed before.
  const Values& values_of(const Descriptor& tensor) {
    std::unique_ptr<Values>& all = values_[tensor.one(906)];
    if (all != nullptr) return *all;
    all = std::make_unique<Values>(empty(tensor));
    const void* const memory = pointer_of(tensor, pack_);
    for_each(all->dims,
             [&](const Index& i) { all->at(i) = read(type_of(tensor), memory, place(tensor, i)); });
    return *all;
  }

  static Values empty(const Descriptor& tensor) {
    Values values{tensor.get<std::int64_t>(902), {}};
    std::int64_t size = 1;
    for (const std::int64_t dim : values.dims) size *= dim;
    values.elements.resize(static_cast<std::size_t>(size));
    return values;
  }

  void store(const Descriptor& tensor, Values values) {
    for (float& value : values.elements) value = rounded(type_of(tensor), value);
    values_[tensor.one(906)] = std::make_unique<Values>(std::move(values));
  }

  // Reads no element that does not count: it may lie in no tensor at all.
  void multiply(const Descriptor& operation) {
    const Descriptor &a = operation.part(1520), &b = operation.part(1521);
    const Descriptor& c = operation.part(1522);
    Values product = empty(c);
    const auto a_dims = a.get<std::int64_t>(902), b_dims = b.get<std::int64_t>(902);
    const Values* const inner = pointer_of(a, pack_) == nullptr ? &values_of(a) : nullptr;
    void* const out = pointer_of(c, pack_);
    const auto head_of = [&](const std::vector<std::int64_t>& dims, std::int64_t head) {
      return head * dims[1] / product.dims[1];
    };
    for_each(product.dims, [&](const Index& i) {
      if (i[2] >= count(operation, 1525, i[0], product.dims[2])) return;
      if (i[3] >= count(operation, 1526, i[0], product.dims[3])) return;
      double sum = 0;
      for (std::int64_t k = 0; k < count(operation, 1527, i[0], a_dims[3]); ++k) {
        const Index ai = {i[0], head_of(a_dims, i[1]), i[2], k};
        const Index bi = {i[0], head_of(b_dims, i[1]), k, i[3]};
        const float left =
            inner != nullptr ? inner->at(ai) : read(type_of(a), pointer_of(a, pack_), place(a, ai));
        sum += double(left) * read(type_of(b), pointer_of(b, pack_), place(b, bi));
      }
      product.at(i) = static_cast<float>(sum);
      if (out != nullptr) write(type_of(c), out, place(c, i), product.at(i));
    });
    store(c, std::move(product));
  }

  // A row without keys is of minus infinity and sums up to 0, and shall not become NaN.
  static float computed(int mode, float x, float b, float condition) {
    switch (mode) {
      case 0:
        return x + b;
      case 1:
        return x * b;
      case 6:
        return x == 0 && b == 0 ? 0 : x / b;
      case 9:
        return x == -INFINITY ? x : x - b;
      case 13:
        return std::exp(x);
      case 15:
        return std::log(x);
      case 101:
        return std::tanh(x);
      case 302:
        return x > b ? 1 : 0;
      case 303:
        return x >= b ? 1 : 0;
      case 304:
        return x < b ? 1 : 0;
      case 400:
        return x != 0 && b != 0 ? 1 : 0;
      case 601:
        return condition != 0 ? x : b;
      default:
        return std::nanf("");
    }
  }

  void point(const Descriptor& operation) {
    const Descriptor &numbers = operation.part(750), &y = operation.part(753);
    const int mode = numbers.get<int>(0).at(0);
    Values result = empty(y);
    const Values& x = values_of(operation.part(751));
    const Values* const b = operation.has(752) ? &values_of(operation.part(752)) : nullptr;
    const Values* const condition = operation.has(758) ? &values_of(operation.part(758)) : nullptr;
    for_each(result.dims, [&](const Index& i) {
      if (mode == 501) {
        result.at(i) = static_cast<float>(i[static_cast<std::size_t>(numbers.one(9))]);
        return;
      }
      result.at(i) = computed(mode, x.at(i), b != nullptr ? b->at(i) : 0,
                              condition != nullptr ? condition->at(i) : 0);
    });
    void* const out = pointer_of(y, pack_);
    if (out != nullptr) {
      for_each(result.dims,
               [&](const Index& i) { write(type_of(y), out, place(y, i), result.at(i)); });
    }
    store(y, std::move(result));
  }

  void reduce(const Descriptor& operation) {
    const Descriptor& y = operation.part(1611);
    const bool is_max = operation.part(1612).get<int>(1600).at(0) == 3;
    const Values& x = values_of(operation.part(1610));
    Values result = empty(y);
    for (float& value : result.elements) value = is_max ? -INFINITY : 0;
    for_each(x.dims, [&](const Index& i) {
      float& value = result.at(i);
      value = is_max ? std::max(value, x.at(i)) : value + x.at(i);
    });
    store(y, std::move(result));
  }

  const Descriptor& pack_;
  std::map<std::int64_t, std::unique_ptr<Values>> values_;
};

}  // namespace

void compute_fusion(const std::vector<const Descriptor*>& operations, const Descriptor& pack) {
  Fusion fusion(pack);
  for (const Descriptor* const operation : operations) fusion.run(*operation);
}

}  // namespace fake_cudnn
