// The part of oneDNN's C API that the peer uses, declared by hand: the library is loaded with
// dlopen and its headers are not needed. Versions 2 and 3 make descriptors in different ways; this
// interface hides the difference.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tessera::peers::onednn {

// Values of the C API's enumerations that versions 2 and 3 share.
enum class Type : int { f16 = 1, bf16 = 2, f32 = 3, s32 = 4, s8 = 5 };
enum class Argument : int {
  source = 1,
  source_1 = 2,
  destination = 17,
  weights = 33,
  bias = 41,
  source_gradient = 129,
  destination_gradient = 145,
  weights_gradient = 161
};
enum class Binary : int { add = 0x1fff0, multiply = 0x1fff1 };
enum class Eltwise { relu, tanh, linear, clip, logistic, gelu_tanh, gelu_erf, swish };

// An object of oneDNN that has a destructor.
using Handle = std::shared_ptr<void>;

// A description of memory. No strides: the library may choose its own format.
struct Tensor {
  std::vector<std::int64_t> dims;
  Type type = Type::f32;
  std::vector<std::int64_t> strides;
};

struct Operand {
  Argument argument;
  Handle memory;
};

// What becomes of each element of a result.
struct PostOp {
  Eltwise eltwise;
  float alpha = 0;
};

// A product's primitive, the format that it wants its weights in, and what oneDNN calls its code.
struct Matmul {
  Handle primitive;
  Handle weights;
  std::string code;
};

// What a convolution computes from the other two of its tensors.
enum class ConvResult { destination, source, weights };
// All descriptors; those without strides are left to the library. The bias may be null.
struct Convolution {
  ConvResult result = ConvResult::destination;
  Handle source, weights, destination, bias;
  std::vector<std::int64_t> strides, dilations, pads, pads_right;  // a dilation of 0 has no gaps
  bool relu = false;
};
// A convolution's primitive, the formats that it wants, and what oneDNN calls the code in it.
struct ConvPrimitive {
  Handle primitive;
  Handle source, weights, destination;
  std::string code;
};

// A primitive with its operands bound.
struct Step {
  Handle primitive;
  std::vector<Operand> operands;
};

// One loaded library with its engine and stream. Functions return empty handles when oneDNN
// refuses.
class Library {
 public:
  // Null when oneDNN is not installed.
  static std::unique_ptr<Library> load();
  ~Library();

  std::string version() const;  // "2.6.3 (libdnnl.so.2)"
  // Limits the library's OpenMP threads. When it was built for another threading library: whether
  // it may use no more processors anyway.
  bool set_threads(int threads) const;

  Handle describe(const Tensor& tensor) const;
  Handle memory(const Handle& descriptor, void* data) const;
  std::size_t bytes(const Handle& descriptor) const;
  bool are_equal(const Handle& descriptor, const Handle& other) const;

  // source x weights = destination, all descriptors.
  std::optional<Matmul> matmul(const Handle& source, const Handle& weights,
                               const Handle& destination,
                               std::span<const PostOp> post_ops = {}) const;
  // Along the last dimension.
  Handle softmax(const Handle& source, const Handle& destination, int rank) const;
  Handle eltwise(Eltwise op, const Handle& data, float alpha, float beta) const;
  Handle binary(Binary op, const Handle& source_0, const Handle& source_1) const;
  Handle reorder(const Handle& from, const Handle& to) const;

  std::optional<ConvPrimitive> convolution(const Convolution& convolution) const;

  // Runs the steps in order and waits; false when one fails.
  bool run(std::span<const Step> steps) const;

  // dnnl_sgemm and dnnl_gemm_s8s8s32, row-major; false when they refuse.
  struct Gemm {
    bool transpose_a, transpose_b;
    std::int64_t m, n, k;
    const void* a;
    std::int64_t ld_a;
    const void* b;
    std::int64_t ld_b;
    void* c;
    std::int64_t ld_c;
  };
  bool sgemm(const Gemm& gemm) const;
  bool gemm_s8s8s32(const Gemm& gemm) const;

 private:
  struct Api;
  explicit Library(std::unique_ptr<Api> api);
  Handle create_primitive(void* primitive_desc) const;
  // A copy of a descriptor that a primitive descriptor owns.
  Handle format_of(const void* primitive_desc, int query) const;
  // `hint` is the forward convolution, to whose gradient it belongs; null for a forward one.
  Handle conv_primitive_desc(const Convolution& convolution, int propagation,
                             const Handle& attributes, const Handle& hint) const;
  Handle attributes_of(std::span<const PostOp> post_ops) const;
  std::string code_of(const void* primitive_desc) const;
  std::unique_ptr<Api> api_;
};

}  // namespace tessera::peers::onednn
