#include "peers/onednn_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "peers/peers.h"
#include "tessera/tessera.hpp"

namespace tessera::peers::onednn {
namespace {

using Dims = std::array<std::int64_t, 12>;
constexpr int kCpu = 1;
constexpr unsigned kInOrder = 1;
constexpr int kForwardTraining = 64, kForwardInference = 96;
constexpr int kConvolutionDirect = 1;
constexpr int kSoftmaxAccurate = 0x30000;
constexpr int kTagAny = 1;
constexpr int kQueryCode = 8;
constexpr int kQuerySource = 129, kQuerySourceGradient = 130;
constexpr int kQueryWeights = 131, kQueryWeightsGradient = 132;
constexpr int kQueryDestination = 133, kQueryDestinationGradient = 134;

// Version 2 describes memory and operations in plain structs that the caller provides. The room is
// for the largest ones (696 and 5976 bytes in 2.6), with some to spare.
constexpr std::size_t kDescriptorBytes = 1024;
constexpr std::size_t kOperationBytes = 8192;

struct EltwiseRow {
  Eltwise op;
  int version_2;
  int version_3;
};
constexpr std::array kEltwise = {
    EltwiseRow{Eltwise::relu, 0x1f, 0x20},     EltwiseRow{Eltwise::tanh, 0x2f, 0x21},
    EltwiseRow{Eltwise::linear, 0x7f, 0x26},   EltwiseRow{Eltwise::clip, 0xff, 0x2e},
    EltwiseRow{Eltwise::logistic, 0xaf, 0x29}, EltwiseRow{Eltwise::gelu_tanh, 0xcf, 0x2b},
    EltwiseRow{Eltwise::gelu_erf, 0x30, 0x31}, EltwiseRow{Eltwise::swish, 0xdf, 0x2c},
};

Dims to_dims(const std::vector<std::int64_t>& values) {
  Dims dims{};
  std::copy(values.begin(), values.end(), dims.begin());
  return dims;
}

}  // namespace

struct Version {
  int major, minor, patch;
};
struct ExecutionArgument {
  int argument;
  void* memory;
};

// Functions by their C name without "dnnl_"; the blocks marked 2 and 3 exist in that version only.
struct Library::Api {
  void* handle = nullptr;
  std::string file;
  void* engine = nullptr;
  void* stream = nullptr;
  std::vector<std::string> missing;

  const Version* (*version)();
  int (*engine_create)(void** engine, int kind, std::size_t index);
  int (*engine_destroy)(void* engine);
  int (*stream_create)(void** stream, void* engine, unsigned flags);
  int (*stream_destroy)(void* stream);
  int (*stream_wait)(void* stream);
  int (*memory_create)(void** memory, const void* descriptor, void* engine, void* data);
  int (*memory_destroy)(void* memory);
  int (*primitive_create)(void** primitive, const void* primitive_desc);
  int (*primitive_destroy)(void* primitive);
  int (*primitive_desc_destroy)(void* primitive_desc);
  const void* (*primitive_desc_query_md)(const void* primitive_desc, int what, int index);
  int (*primitive_execute)(const void* primitive, void* stream, int count,
                           const ExecutionArgument* arguments);
  int (*reorder_primitive_desc_create)(void** primitive_desc, const void* source,
                                       void* source_engine, const void* destination,
                                       void* destination_engine, const void* attributes);
  std::size_t (*memory_desc_get_size)(const void* descriptor);
  int (*memory_desc_equal)(const void* descriptor, const void* other);
  int (*primitive_desc_query)(const void* primitive_desc, int what, int index, void* result);
  int (*primitive_attr_create)(void** attributes);
  int (*primitive_attr_destroy)(void* attributes);
  int (*primitive_attr_set_post_ops)(void* attributes, const void* post_ops);
  int (*post_ops_create)(void** post_ops);
  int (*post_ops_destroy)(void* post_ops);
  int (*sgemm)(char trans_a, char trans_b, std::int64_t m, std::int64_t n, std::int64_t k,
               float alpha, const float* a, std::int64_t ld_a, const float* b, std::int64_t ld_b,
               float beta, float* c, std::int64_t ld_c);
  int (*gemm_s8s8s32)(char trans_a, char trans_b, char offset_c, std::int64_t m, std::int64_t n,
                      std::int64_t k, float alpha, const std::int8_t* a, std::int64_t ld_a,
                      std::int8_t offset_a, const std::int8_t* b, std::int64_t ld_b,
                      std::int8_t offset_b, float beta, std::int32_t* c, std::int64_t ld_c,
                      const std::int32_t* offsets_c);

  struct {
    int (*memory_desc_init_by_strides)(void*, int, const Dims*, int type, const Dims*);
    int (*memory_desc_init_by_tag)(void*, int, const Dims*, int type, int tag);
    int (*matmul_desc_init)(void*, const void* source, const void* weights, const void* bias,
                            const void* destination);
    int (*eltwise_forward_desc_init)(void*, int propagation, int op, const void*, float, float);
    int (*binary_desc_init)(void*, int op, const void*, const void*, const void*);
    int (*softmax_v2_forward_desc_init)(void*, int propagation, int op, const void* source,
                                        const void* destination, int axis);
    int (*primitive_desc_create)(void** primitive_desc, const void* operation,
                                 const void* attributes, void* engine, const void* hint);
    int (*post_ops_append_eltwise)(void* post_ops, float scale, int op, float alpha, float beta);
    int (*dilated_convolution_forward_desc_init)(void*, int propagation, int algorithm,
                                                 const void* source, const void* weights,
                                                 const void* bias, const void* destination,
                                                 const Dims* strides, const Dims* dilations,
                                                 const Dims* pads, const Dims* pads_right);
    int (*dilated_convolution_backward_data_desc_init)(void*, int algorithm, const void* source,
                                                       const void* weights, const void* destination,
                                                       const Dims*, const Dims*, const Dims*,
                                                       const Dims*);
    int (*dilated_convolution_backward_weights_desc_init)(void*, int algorithm, const void* source,
                                                          const void* weights, const void* bias,
                                                          const void* destination, const Dims*,
                                                          const Dims*, const Dims*, const Dims*);
  } v2;
  struct {
    int (*memory_desc_create_with_strides)(void**, int, const Dims*, int type, const Dims*);
    int (*memory_desc_create_with_tag)(void**, int, const Dims*, int type, int tag);
    int (*memory_desc_clone)(void**, const void*);
    int (*memory_desc_destroy)(void*);
    int (*matmul_primitive_desc_create)(void** primitive_desc, void* engine, const void* source,
                                        const void* weights, const void* bias,
                                        const void* destination, const void* attributes);
    int (*eltwise_forward_primitive_desc_create)(void** primitive_desc, void* engine,
                                                 int propagation, int op, const void*, const void*,
                                                 float, float, const void* attributes);
    int (*binary_primitive_desc_create)(void** primitive_desc, void* engine, int op, const void*,
                                        const void*, const void*, const void* attributes);
    int (*softmax_forward_primitive_desc_create)(void** primitive_desc, void* engine,
                                                 int propagation, int op, const void* source,
                                                 const void* destination, int axis,
                                                 const void* attributes);
    int (*post_ops_append_eltwise)(void* post_ops, int op, float alpha, float beta);
    int (*convolution_forward_primitive_desc_create)(
        void** primitive_desc, void* engine, int propagation, int algorithm, const void* source,
        const void* weights, const void* bias, const void* destination, const Dims* strides,
        const Dims* dilations, const Dims* pads, const Dims* pads_right, const void* attributes);
    int (*convolution_backward_data_primitive_desc_create)(
        void** primitive_desc, void* engine, int algorithm, const void* source, const void* weights,
        const void* destination, const Dims*, const Dims*, const Dims*, const Dims*,
        const void* hint, const void* attributes);
    int (*convolution_backward_weights_primitive_desc_create)(
        void** primitive_desc, void* engine, int algorithm, const void* source, const void* weights,
        const void* bias, const void* destination, const Dims*, const Dims*, const Dims*,
        const Dims*, const void* hint, const void* attributes);
  } v3;

  bool is_version_2() const { return version()->major == 2; }

  template <class Function>
  void find(Function& function, const char* name) {
    const std::string symbol = fmt::format("dnnl_{}", name);
    function = reinterpret_cast<Function>(dlsym(handle, symbol.c_str()));
    if (function == nullptr) missing.push_back(symbol);
  }

  void find_all();
};

void Library::Api::find_all() {
  find(version, "version");
  if (!missing.empty()) return;
  find(engine_create, "engine_create");
  find(engine_destroy, "engine_destroy");
  find(stream_create, "stream_create");
  find(stream_destroy, "stream_destroy");
  find(stream_wait, "stream_wait");
  find(memory_create, "memory_create");
  find(memory_destroy, "memory_destroy");
  find(primitive_create, "primitive_create");
  find(primitive_destroy, "primitive_destroy");
  find(primitive_desc_destroy, "primitive_desc_destroy");
  find(primitive_desc_query_md, "primitive_desc_query_md");
  find(primitive_execute, "primitive_execute");
  find(reorder_primitive_desc_create, "reorder_primitive_desc_create");
  find(memory_desc_get_size, "memory_desc_get_size");
  find(memory_desc_equal, "memory_desc_equal");
  find(primitive_desc_query, "primitive_desc_query");
  find(primitive_attr_create, "primitive_attr_create");
  find(primitive_attr_destroy, "primitive_attr_destroy");
  find(primitive_attr_set_post_ops, "primitive_attr_set_post_ops");
  find(post_ops_create, "post_ops_create");
  find(post_ops_destroy, "post_ops_destroy");
  find(sgemm, "sgemm");
  find(gemm_s8s8s32, "gemm_s8s8s32");
  if (is_version_2()) {
    find(v2.memory_desc_init_by_strides, "memory_desc_init_by_strides");
    find(v2.memory_desc_init_by_tag, "memory_desc_init_by_tag");
    find(v2.matmul_desc_init, "matmul_desc_init");
    find(v2.eltwise_forward_desc_init, "eltwise_forward_desc_init");
    find(v2.binary_desc_init, "binary_desc_init");
    find(v2.softmax_v2_forward_desc_init, "softmax_v2_forward_desc_init");
    find(v2.primitive_desc_create, "primitive_desc_create");
    find(v2.post_ops_append_eltwise, "post_ops_append_eltwise");
    find(v2.dilated_convolution_forward_desc_init, "dilated_convolution_forward_desc_init");
    find(v2.dilated_convolution_backward_data_desc_init,
         "dilated_convolution_backward_data_desc_init");
    find(v2.dilated_convolution_backward_weights_desc_init,
         "dilated_convolution_backward_weights_desc_init");
  } else {
    find(v3.memory_desc_create_with_strides, "memory_desc_create_with_strides");
    find(v3.memory_desc_create_with_tag, "memory_desc_create_with_tag");
    find(v3.memory_desc_clone, "memory_desc_clone");
    find(v3.memory_desc_destroy, "memory_desc_destroy");
    find(v3.matmul_primitive_desc_create, "matmul_primitive_desc_create");
    find(v3.eltwise_forward_primitive_desc_create, "eltwise_forward_primitive_desc_create");
    find(v3.binary_primitive_desc_create, "binary_primitive_desc_create");
    find(v3.softmax_forward_primitive_desc_create, "softmax_forward_primitive_desc_create");
    find(v3.post_ops_append_eltwise, "post_ops_append_eltwise");
    find(v3.convolution_forward_primitive_desc_create, "convolution_forward_primitive_desc_create");
    find(v3.convolution_backward_data_primitive_desc_create,
         "convolution_backward_data_primitive_desc_create");
    find(v3.convolution_backward_weights_primitive_desc_create,
         "convolution_backward_weights_primitive_desc_create");
  }
}

Library::Library(std::unique_ptr<Api> api) : api_(std::move(api)) {}

// The shared object stays mapped: its thread pool cannot be unloaded safely.
Library::~Library() {
  api_->stream_destroy(api_->stream);
  api_->engine_destroy(api_->engine);
}

std::unique_ptr<Library> Library::load() {
  auto api = std::make_unique<Api>();
  api->handle = open_library({"libdnnl.so.3", "libdnnl.so.2"}, api->file);
  if (api->handle == nullptr) return nullptr;
  api->find_all();
  require_functions("onednn", api->file, api->missing);
  const auto start = [&](int status, const char* what) {
    if (status == 0) return;
    throw Error(ErrorCode::unsupported,
                fmt::format("onednn is left out: {} cannot make its {} (status {})", api->file,
                            what, status));
  };
  start(api->engine_create(&api->engine, kCpu, 0), "engine");
  start(api->stream_create(&api->stream, api->engine, kInOrder), "stream");
  return std::unique_ptr<Library>(new Library(std::move(api)));
}

std::string Library::version() const {
  const Version* version = api_->version();
  return fmt::format("{}.{}.{} ({})", version->major, version->minor, version->patch, api_->file);
}

bool Library::set_threads(int threads) const {
  auto set = reinterpret_cast<void (*)(int)>(dlsym(api_->handle, "omp_set_num_threads"));
  if (set != nullptr) set(threads);
  return set != nullptr || host_target().units <= threads;
}

Handle Library::describe(const Tensor& tensor) const {
  const Dims dims = to_dims(tensor.dims);
  const Dims strides = to_dims(tensor.strides);
  const int rank = static_cast<int>(tensor.dims.size());
  const int type = static_cast<int>(tensor.type);
  const bool any = tensor.strides.empty();
  if (api_->is_version_2()) {
    Handle bytes = std::make_shared<std::array<std::uint64_t, kDescriptorBytes / 8>>();
    const int status =
        any ? api_->v2.memory_desc_init_by_tag(bytes.get(), rank, &dims, type, kTagAny)
            : api_->v2.memory_desc_init_by_strides(bytes.get(), rank, &dims, type, &strides);
    return status == 0 ? bytes : nullptr;
  }
  void* raw = nullptr;
  const int status =
      any ? api_->v3.memory_desc_create_with_tag(&raw, rank, &dims, type, kTagAny)
          : api_->v3.memory_desc_create_with_strides(&raw, rank, &dims, type, &strides);
  return status == 0 ? Handle(raw, api_->v3.memory_desc_destroy) : nullptr;
}

Handle Library::memory(const Handle& descriptor, void* data) const {
  void* raw = nullptr;
  if (api_->memory_create(&raw, descriptor.get(), api_->engine, data) != 0) return nullptr;
  return Handle(raw, api_->memory_destroy);
}

std::size_t Library::bytes(const Handle& descriptor) const {
  return api_->memory_desc_get_size(descriptor.get());
}

bool Library::are_equal(const Handle& descriptor, const Handle& other) const {
  return api_->memory_desc_equal(descriptor.get(), other.get()) != 0;
}

Handle Library::format_of(const void* primitive_desc, int query) const {
  const void* format = api_->primitive_desc_query_md(primitive_desc, query, 0);
  if (format == nullptr) return nullptr;
  if (api_->is_version_2()) {
    auto copy = std::make_shared<std::array<std::uint64_t, kDescriptorBytes / 8>>();
    constexpr std::size_t kVersion2Bytes = 696;
    std::memcpy(copy.get(), format, kVersion2Bytes);
    return copy;
  }
  void* clone = nullptr;
  if (api_->v3.memory_desc_clone(&clone, format) != 0) return nullptr;
  return Handle(clone, api_->v3.memory_desc_destroy);
}

Handle Library::create_primitive(void* primitive_desc) const {
  void* raw = nullptr;
  if (api_->primitive_create(&raw, primitive_desc) != 0) return nullptr;
  return Handle(raw, api_->primitive_destroy);
}

std::string Library::code_of(const void* primitive_desc) const {
  const char* code = nullptr;
  api_->primitive_desc_query(primitive_desc, kQueryCode, 0, static_cast<void*>(&code));
  return code == nullptr ? "" : code;
}

std::optional<Matmul> Library::matmul(const Handle& source, const Handle& weights,
                                      const Handle& destination,
                                      std::span<const PostOp> post_ops) const {
  const Handle attributes = post_ops.empty() ? nullptr : attributes_of(post_ops);
  if (!post_ops.empty() && attributes == nullptr) return std::nullopt;
  void* raw = nullptr;
  int status = 0;
  if (api_->is_version_2()) {
    std::array<std::uint64_t, kOperationBytes / 8> operation{};
    status = api_->v2.matmul_desc_init(&operation, source.get(), weights.get(), nullptr,
                                       destination.get());
    if (status == 0) {
      status =
          api_->v2.primitive_desc_create(&raw, &operation, attributes.get(), api_->engine, nullptr);
    }
  } else {
    status = api_->v3.matmul_primitive_desc_create(&raw, api_->engine, source.get(), weights.get(),
                                                   nullptr, destination.get(), attributes.get());
  }
  if (status != 0) return std::nullopt;
  const Handle owner(raw, api_->primitive_desc_destroy);
  Matmul made{create_primitive(raw), format_of(raw, kQueryWeights), code_of(raw)};
  const bool is_whole = made.primitive != nullptr && made.weights != nullptr;
  return is_whole ? std::optional(made) : std::nullopt;
}

Handle Library::softmax(const Handle& source, const Handle& destination, int rank) const {
  void* raw = nullptr;
  int status = 0;
  if (api_->is_version_2()) {
    std::array<std::uint64_t, kOperationBytes / 8> operation{};
    status = api_->v2.softmax_v2_forward_desc_init(&operation, kForwardInference, kSoftmaxAccurate,
                                                   source.get(), destination.get(), rank - 1);
    if (status == 0) {
      status = api_->v2.primitive_desc_create(&raw, &operation, nullptr, api_->engine, nullptr);
    }
  } else {
    status = api_->v3.softmax_forward_primitive_desc_create(&raw, api_->engine, kForwardInference,
                                                            kSoftmaxAccurate, source.get(),
                                                            destination.get(), rank - 1, nullptr);
  }
  if (status != 0) return nullptr;
  const Handle owner(raw, api_->primitive_desc_destroy);
  return create_primitive(raw);
}

Handle Library::eltwise(Eltwise op, const Handle& data, float alpha, float beta) const {
  const EltwiseRow& row = kEltwise[static_cast<std::size_t>(op)];
  void* raw = nullptr;
  int status = 0;
  if (api_->is_version_2()) {
    std::array<std::uint64_t, kOperationBytes / 8> operation{};
    status = api_->v2.eltwise_forward_desc_init(&operation, kForwardInference, row.version_2,
                                                data.get(), alpha, beta);
    if (status == 0) {
      status = api_->v2.primitive_desc_create(&raw, &operation, nullptr, api_->engine, nullptr);
    }
  } else {
    status = api_->v3.eltwise_forward_primitive_desc_create(&raw, api_->engine, kForwardInference,
                                                            row.version_3, data.get(), data.get(),
                                                            alpha, beta, nullptr);
  }
  if (status != 0) return nullptr;
  const Handle owner(raw, api_->primitive_desc_destroy);
  return create_primitive(raw);
}

Handle Library::binary(Binary op, const Handle& source_0, const Handle& source_1) const {
  void* raw = nullptr;
  int status = 0;
  if (api_->is_version_2()) {
    std::array<std::uint64_t, kOperationBytes / 8> operation{};
    status = api_->v2.binary_desc_init(&operation, static_cast<int>(op), source_0.get(),
                                       source_1.get(), source_0.get());
    if (status == 0) {
      status = api_->v2.primitive_desc_create(&raw, &operation, nullptr, api_->engine, nullptr);
    }
  } else {
    status = api_->v3.binary_primitive_desc_create(&raw, api_->engine, static_cast<int>(op),
                                                   source_0.get(), source_1.get(), source_0.get(),
                                                   nullptr);
  }
  if (status != 0) return nullptr;
  const Handle owner(raw, api_->primitive_desc_destroy);
  return create_primitive(raw);
}

Handle Library::reorder(const Handle& from, const Handle& to) const {
  void* raw = nullptr;
  if (api_->reorder_primitive_desc_create(&raw, from.get(), api_->engine, to.get(), api_->engine,
                                          nullptr) != 0) {
    return nullptr;
  }
  const Handle owner(raw, api_->primitive_desc_destroy);
  return create_primitive(raw);
}

Handle Library::attributes_of(std::span<const PostOp> post_ops) const {
  void* raw = nullptr;
  if (api_->primitive_attr_create(&raw) != 0) return nullptr;
  Handle attributes(raw, api_->primitive_attr_destroy);
  if (api_->post_ops_create(&raw) != 0) return nullptr;
  const Handle all(raw, api_->post_ops_destroy);
  for (const PostOp& op : post_ops) {
    const EltwiseRow& row = kEltwise[static_cast<std::size_t>(op.eltwise)];
    const int status =
        api_->is_version_2()
            ? api_->v2.post_ops_append_eltwise(raw, 1.0F, row.version_2, op.alpha, 0.0F)
            : api_->v3.post_ops_append_eltwise(raw, row.version_3, op.alpha, 0.0F);
    if (status != 0) return nullptr;
  }
  // The attributes keep a copy.
  if (api_->primitive_attr_set_post_ops(attributes.get(), raw) != 0) return nullptr;
  return attributes;
}

Handle Library::conv_primitive_desc(const Convolution& c, int propagation, const Handle& attributes,
                                    const Handle& hint) const {
  const Dims strides = to_dims(c.strides), dilations = to_dims(c.dilations);
  const Dims pads = to_dims(c.pads), pads_right = to_dims(c.pads_right);
  const void *x = c.source.get(), *w = c.weights.get(), *y = c.destination.get();
  const void* const bias = c.bias.get();
  void* const engine = api_->engine;
  void* raw = nullptr;
  int status = 0;
  if (api_->is_version_2()) {
    std::array<std::uint64_t, kOperationBytes / 8> operation{};
    const auto& v2 = api_->v2;
    if (c.result == ConvResult::destination) {
      status = v2.dilated_convolution_forward_desc_init(&operation, propagation, kConvolutionDirect,
                                                        x, w, bias, y, &strides, &dilations, &pads,
                                                        &pads_right);
    } else if (c.result == ConvResult::source) {
      status = v2.dilated_convolution_backward_data_desc_init(
          &operation, kConvolutionDirect, x, w, y, &strides, &dilations, &pads, &pads_right);
    } else {
      status = v2.dilated_convolution_backward_weights_desc_init(&operation, kConvolutionDirect, x,
                                                                 w, nullptr, y, &strides,
                                                                 &dilations, &pads, &pads_right);
    }
    if (status == 0) {
      status = v2.primitive_desc_create(&raw, &operation, attributes.get(), engine, hint.get());
    }
  } else {
    const auto& v3 = api_->v3;
    if (c.result == ConvResult::destination) {
      status = v3.convolution_forward_primitive_desc_create(
          &raw, engine, propagation, kConvolutionDirect, x, w, bias, y, &strides, &dilations, &pads,
          &pads_right, attributes.get());
    } else if (c.result == ConvResult::source) {
      status = v3.convolution_backward_data_primitive_desc_create(
          &raw, engine, kConvolutionDirect, x, w, y, &strides, &dilations, &pads, &pads_right,
          hint.get(), attributes.get());
    } else {
      status = v3.convolution_backward_weights_primitive_desc_create(
          &raw, engine, kConvolutionDirect, x, w, nullptr, y, &strides, &dilations, &pads,
          &pads_right, hint.get(), attributes.get());
    }
  }
  return status == 0 ? Handle(raw, api_->primitive_desc_destroy) : nullptr;
}

std::optional<ConvPrimitive> Library::convolution(const Convolution& c) const {
  // A gradient wants to know the forward convolution that it belongs to.
  const bool is_forward = c.result == ConvResult::destination;
  Handle hint, attributes;
  if (!is_forward) {
    Convolution forward = c;
    forward.result = ConvResult::destination;
    hint = conv_primitive_desc(forward, kForwardTraining, nullptr, nullptr);
    if (hint == nullptr) return std::nullopt;
  }
  const std::array kRelu = {PostOp{.eltwise = Eltwise::relu}};
  if (c.relu && (attributes = attributes_of(kRelu)) == nullptr) return std::nullopt;
  const Handle described = conv_primitive_desc(c, kForwardInference, attributes, hint);
  if (described == nullptr) return std::nullopt;

  const void* const raw = described.get();
  ConvPrimitive made;
  made.code = code_of(raw);
  made.source =
      format_of(raw, c.result == ConvResult::source ? kQuerySourceGradient : kQuerySource);
  made.weights =
      format_of(raw, c.result == ConvResult::weights ? kQueryWeightsGradient : kQueryWeights);
  made.destination = format_of(raw, is_forward ? kQueryDestination : kQueryDestinationGradient);
  made.primitive = create_primitive(described.get());
  const bool is_whole = made.source != nullptr && made.weights != nullptr &&
                        made.destination != nullptr && made.primitive != nullptr;
  return is_whole ? std::optional(made) : std::nullopt;
}

bool Library::run(std::span<const Step> steps) const {
  bool ok = true;
  for (const Step& step : steps) {
    std::array<ExecutionArgument, 4> arguments{};
    int count = 0;
    for (const Operand& operand : step.operands) {
      arguments[static_cast<std::size_t>(count++)] = {static_cast<int>(operand.argument),
                                                      operand.memory.get()};
    }
    ok = ok &&
         api_->primitive_execute(step.primitive.get(), api_->stream, count, arguments.data()) == 0;
  }
  return api_->stream_wait(api_->stream) == 0 && ok;
}

bool Library::sgemm(const Gemm& gemm) const {
  return api_->sgemm(gemm.transpose_a ? 'T' : 'N', gemm.transpose_b ? 'T' : 'N', gemm.m, gemm.n,
                     gemm.k, 1.0F, static_cast<const float*>(gemm.a), gemm.ld_a,
                     static_cast<const float*>(gemm.b), gemm.ld_b, 0.0F,
                     static_cast<float*>(gemm.c), gemm.ld_c) == 0;
}

bool Library::gemm_s8s8s32(const Gemm& gemm) const {
  const std::int32_t no_offset = 0;
  return api_->gemm_s8s8s32(gemm.transpose_a ? 'T' : 'N', gemm.transpose_b ? 'T' : 'N', 'F', gemm.m,
                            gemm.n, gemm.k, 1.0F, static_cast<const std::int8_t*>(gemm.a),
                            gemm.ld_a, 0, static_cast<const std::int8_t*>(gemm.b), gemm.ld_b, 0,
                            0.0F, static_cast<std::int32_t*>(gemm.c), gemm.ld_c, &no_offset) == 0;
}

}  // namespace tessera::peers::onednn
