#include "peers/onednn_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "peers/peers.h"

namespace tessera::peers::onednn {
namespace {

using Dims = std::array<std::int64_t, 12>;
constexpr int kCpu = 1;
constexpr unsigned kInOrder = 1;
constexpr int kForwardInference = 96;
constexpr int kTagAny = 1;
constexpr int kQueryWeights = 131;

// Version 2 describes memory and operations in plain structs that the caller provides. The room is
// for the largest ones (696 and 2800 bytes in 2.6), with some to spare.
constexpr std::size_t kDescriptorBytes = 1024;
constexpr std::size_t kOperationBytes = 4096;

struct EltwiseRow {
  Eltwise op;
  int version_2;
  int version_3;
};
constexpr std::array kEltwise = {
    EltwiseRow{Eltwise::relu, 0x1f, 0x20},      EltwiseRow{Eltwise::tanh, 0x2f, 0x21},
    EltwiseRow{Eltwise::clip, 0xff, 0x2e},      EltwiseRow{Eltwise::logistic, 0xaf, 0x29},
    EltwiseRow{Eltwise::gelu_tanh, 0xcf, 0x2b}, EltwiseRow{Eltwise::gelu_erf, 0x30, 0x31},
    EltwiseRow{Eltwise::swish, 0xdf, 0x2c},
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
    int (*primitive_desc_create)(void** primitive_desc, const void* operation,
                                 const void* attributes, void* engine, const void* hint);
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
  find(sgemm, "sgemm");
  find(gemm_s8s8s32, "gemm_s8s8s32");
  if (is_version_2()) {
    find(v2.memory_desc_init_by_strides, "memory_desc_init_by_strides");
    find(v2.memory_desc_init_by_tag, "memory_desc_init_by_tag");
    find(v2.matmul_desc_init, "matmul_desc_init");
    find(v2.eltwise_forward_desc_init, "eltwise_forward_desc_init");
    find(v2.binary_desc_init, "binary_desc_init");
    find(v2.primitive_desc_create, "primitive_desc_create");
  } else {
    find(v3.memory_desc_create_with_strides, "memory_desc_create_with_strides");
    find(v3.memory_desc_create_with_tag, "memory_desc_create_with_tag");
    find(v3.memory_desc_clone, "memory_desc_clone");
    find(v3.memory_desc_destroy, "memory_desc_destroy");
    find(v3.matmul_primitive_desc_create, "matmul_primitive_desc_create");
    find(v3.eltwise_forward_primitive_desc_create, "eltwise_forward_primitive_desc_create");
    find(v3.binary_primitive_desc_create, "binary_primitive_desc_create");
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
  return set != nullptr;
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

Handle Library::create_primitive(void* primitive_desc) const {
  void* raw = nullptr;
  if (api_->primitive_create(&raw, primitive_desc) != 0) return nullptr;
  return Handle(raw, api_->primitive_destroy);
}

Handle Library::matmul(const Handle& source, const Handle& weights, const Handle& destination,
                       Handle& weights_format, std::size_t& weights_bytes) const {
  void* raw = nullptr;
  int status = 0;
  if (api_->is_version_2()) {
    std::array<std::uint64_t, kOperationBytes / 8> operation{};
    status = api_->v2.matmul_desc_init(&operation, source.get(), weights.get(), nullptr,
                                       destination.get());
    if (status == 0) {
      status = api_->v2.primitive_desc_create(&raw, &operation, nullptr, api_->engine, nullptr);
    }
  } else {
    status = api_->v3.matmul_primitive_desc_create(&raw, api_->engine, source.get(), weights.get(),
                                                   nullptr, destination.get(), nullptr);
  }
  if (status != 0) return nullptr;
  const Handle owner(raw, api_->primitive_desc_destroy);

  // The primitive descriptor owns the descriptor, so a copy is kept.
  const void* format = api_->primitive_desc_query_md(raw, kQueryWeights, 0);
  weights_bytes = api_->memory_desc_get_size(format);
  if (api_->is_version_2()) {
    auto copy = std::make_shared<std::array<std::uint64_t, kDescriptorBytes / 8>>();
    constexpr std::size_t kVersion2Bytes = 696;
    std::memcpy(copy.get(), format, kVersion2Bytes);
    weights_format = copy;
  } else {
    void* clone = nullptr;
    if (api_->v3.memory_desc_clone(&clone, format) != 0) return nullptr;
    weights_format = Handle(clone, api_->v3.memory_desc_destroy);
  }
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
