// oneDNN as a peer: its plain gemm functions, its matmul primitive, and separate passes over the
// result for an epilogue. Convolutions are in onednn_conv.cc, attention in onednn_fmha.cc.
#include <fmt/format.h>

#include <array>
#include <optional>

#include "peers/onednn_api.h"
#include "peers/onednn_conv.h"
#include "peers/onednn_fmha.h"
#include "peers/peers.h"

namespace tessera::peers {
namespace {

using onednn::Argument;
using onednn::Eltwise;
using onednn::Handle;
using onednn::Library;
using onednn::Step;
using onednn::Tensor;
using onednn::type_of;

struct PostOpRow {
  EpilogueOp op;
  Eltwise eltwise;
  float alpha;
};
constexpr std::array kPostOps = {PostOpRow{EpilogueOp::relu, Eltwise::relu, 0},
                                 PostOpRow{EpilogueOp::gelu, Eltwise::gelu_erf, 0},
                                 PostOpRow{EpilogueOp::gelu_tanh, Eltwise::gelu_tanh, 0},
                                 PostOpRow{EpilogueOp::silu, Eltwise::swish, 1},
                                 PostOpRow{EpilogueOp::sigmoid, Eltwise::logistic, 0},
                                 PostOpRow{EpilogueOp::tanh, Eltwise::tanh, 0}};

// A matrix, or one per batch; a batch stride of 0 is oneDNN's broadcast.
struct Matrix {
  DType dtype;
  std::int64_t rows, columns;
  std::int64_t row_stride, column_stride;
  std::int64_t batch_stride;
};

Tensor tensor_of(const GemmProblem& p, const Matrix& matrix) {
  Tensor tensor{.dims = {matrix.rows, matrix.columns},
                .type = *type_of(matrix.dtype),
                .strides = {matrix.row_stride, matrix.column_stride}};
  if (p.batch > 1) {
    const bool broadcast = matrix.batch_stride == 0;
    tensor.dims.insert(tensor.dims.begin(), broadcast ? 1 : p.batch);
    tensor.strides.insert(tensor.strides.begin(),
                          broadcast ? matrix.rows * matrix.columns : matrix.batch_stride);
  }
  return tensor;
}

Tensor tensor_a(const GemmProblem& p) {
  const bool row_major = a_is_row_major(p.layout);
  return tensor_of(
      p, {p.a, p.m, p.k, row_major ? p.ld_a : 1, row_major ? 1 : p.ld_a, p.batch_stride_a});
}
Tensor tensor_b(const GemmProblem& p) {
  const bool row_major = b_is_row_major(p.layout);
  return tensor_of(
      p, {p.b, p.k, p.n, row_major ? p.ld_b : 1, row_major ? 1 : p.ld_b, p.batch_stride_b});
}
Tensor tensor_out(const GemmProblem& p) {
  return tensor_of(p, {p.out, p.m, p.n, p.ld_out, 1, p.batch_stride_out});
}
Tensor tensor_d(const GemmProblem& p, std::size_t i) {
  switch (d_uses(p.epilogue)[i].shape) {
    case DShape::along_n:
      return tensor_of(p, {p.d, 1, p.n, p.n, 1, p.batch_stride_d[i]});
    case DShape::along_m:
      return tensor_of(p, {p.d, p.m, 1, 1, 1, p.batch_stride_d[i]});
    default:
      return tensor_of(p, {p.d, p.m, p.n, p.ld_d[i], 1, p.batch_stride_d[i]});
  }
}

// One run of the peer: a call of a gemm function for each batch, if any, then steps.
struct Program {
  std::shared_ptr<const Library> library;
  std::vector<Library::Gemm> gemms;
  bool is_int8 = false;
  std::vector<Step> steps;
  std::shared_ptr<runtime::AlignedBuffer> packed_weights;

  void operator()() const {
    bool ok = true;
    for (const Library::Gemm& gemm : gemms) {
      ok = ok && (is_int8 ? library->gemm_s8s8s32(gemm) : library->sgemm(gemm));
    }
    if (!steps.empty()) ok = library->run(steps) && ok;
    if (!ok) throw Error(ErrorCode::unsupported, "onednn refused to run a gemm it had accepted");
  }
};

// The epilogue as separate passes over the result, in place; empty when oneDNN refuses one.
std::optional<std::vector<Step>> epilogue_steps(const Library& library, const GemmProblem& p,
                                                const GemmOperands& operands) {
  const Handle out = library.describe(tensor_out(p));
  if (out == nullptr) return std::nullopt;
  const Handle out_memory = library.memory(out, operands.out);
  std::vector<Step> steps;
  std::size_t next_d = 0;
  const auto add_binary = [&](onednn::Binary op) {
    const Handle d = library.describe(tensor_d(p, next_d));
    const Handle primitive = d == nullptr ? nullptr : library.binary(op, out, d);
    const Handle memory =
        d == nullptr ? nullptr : library.memory(d, const_cast<void*>(operands.d[next_d]));
    ++next_d;
    steps.push_back({primitive,
                     {{Argument::source, out_memory},
                      {Argument::source_1, memory},
                      {Argument::destination, out_memory}}});
  };
  const auto add_eltwise = [&](Eltwise op, float alpha, float beta) {
    steps.push_back({library.eltwise(op, out, alpha, beta),
                     {{Argument::source, out_memory}, {Argument::destination, out_memory}}});
  };

  for (int i = 0; i < num_ops(p.epilogue); ++i) {
    const EpilogueOp op = p.epilogue.ops[static_cast<std::size_t>(i)];
    const bool is_add = op == EpilogueOp::add || op == EpilogueOp::multi_d_add;
    const bool is_scale = op == EpilogueOp::row_scale || op == EpilogueOp::col_scale;
    const bool is_multiply = op == EpilogueOp::multiply || op == EpilogueOp::multi_d_multiply;
    const bool takes_all = op == EpilogueOp::multi_d_add || op == EpilogueOp::multi_d_multiply;
    if (op == EpilogueOp::bias) add_binary(onednn::Binary::add);
    if (is_scale) add_binary(onednn::Binary::multiply);
    if (is_add || is_multiply) {
      do {
        add_binary(is_add ? onednn::Binary::add : onednn::Binary::multiply);
      } while (takes_all && next_d < p.epilogue.num_d);
    }
    if (op == EpilogueOp::clamp) add_eltwise(Eltwise::clip, p.clamp_lo, p.clamp_hi);
    for (const PostOpRow& row : kPostOps) {
      if (row.op == op) add_eltwise(row.eltwise, row.alpha, 0);
    }
  }
  for (const Step& step : steps) {
    if (step.primitive == nullptr) return std::nullopt;
  }
  return steps;
}

// The matmul step, with B in place or (`packed`) in the format that oneDNN prefers. Packing happens
// here, outside of the timed calls.
bool add_matmul(const Library& library, const GemmProblem& p, const GemmOperands& operands,
                bool packed, Program& program) {
  const Handle a = library.describe(tensor_a(p));
  const Handle b = library.describe(tensor_b(p));
  const Handle out = library.describe(tensor_out(p));
  Tensor wanted = tensor_b(p);
  if (packed) wanted.strides.clear();
  const Handle weights = library.describe(wanted);
  if (a == nullptr || b == nullptr || out == nullptr || weights == nullptr) return false;
  const auto matmul = library.matmul(a, weights, out);
  if (!matmul) return false;

  Handle b_memory = library.memory(b, const_cast<void*>(operands.b));
  if (packed) {
    const Handle reorder = library.reorder(b, matmul->weights);
    if (reorder == nullptr) return false;
    program.packed_weights =
        std::make_shared<runtime::AlignedBuffer>(library.bytes(matmul->weights));
    const Handle packed_memory = library.memory(matmul->weights, program.packed_weights->data());
    const Step pack{reorder,
                    {{Argument::source, b_memory}, {Argument::destination, packed_memory}}};
    if (!library.run(std::span(&pack, 1))) return false;
    b_memory = packed_memory;
  }
  program.steps.push_back({matmul->primitive,
                           {{Argument::source, library.memory(a, const_cast<void*>(operands.a))},
                            {Argument::weights, b_memory},
                            {Argument::destination, library.memory(out, operands.out)}}});
  return true;
}

// dnnl_sgemm or dnnl_gemm_s8s8s32, when one of them supports these types.
bool add_gemms(const GemmProblem& p, const GemmOperands& operands, Program& program) {
  const bool is_fp32 = p.a == DType::fp32 && p.b == DType::fp32 && p.out == DType::fp32;
  program.is_int8 = p.a == DType::int8 && p.b == DType::int8 && p.out == DType::int32;
  if (!is_fp32 && !program.is_int8) return false;
  const auto offset = [](const void* base, std::int64_t elements, DType dtype) {
    return static_cast<const std::byte*>(base) + elements * size_of(dtype);
  };
  for (std::int64_t i = 0; i < p.batch; ++i) {
    program.gemms.push_back(
        {.transpose_a = !a_is_row_major(p.layout),
         .transpose_b = !b_is_row_major(p.layout),
         .m = p.m,
         .n = p.n,
         .k = p.k,
         .a = offset(operands.a, i * p.batch_stride_a, p.a),
         .ld_a = p.ld_a,
         .b = offset(operands.b, i * p.batch_stride_b, p.b),
         .ld_b = p.ld_b,
         .c = static_cast<std::byte*>(operands.out) + i * p.batch_stride_out * size_of(p.out),
         .ld_c = p.ld_out});
  }
  return true;
}

class OneDnn : public Peer {
 public:
  explicit OneDnn(std::shared_ptr<const Library> library) : library_(std::move(library)) {}

  std::string name() const override { return "onednn"; }
  std::string version() const override { return library_->version(); }

  std::vector<PeerCall> calls(const Problem& problem, const Operands& pointers) const override {
    if (op_of(problem) == Op::conv) {
      return onednn::conv_calls(library_, std::get<ConvProblem>(problem),
                                std::get<ConvOperands>(pointers));
    }
    if (const auto* fmha = std::get_if<FmhaProblem>(&problem)) {
      return onednn::fmha_calls(library_, *fmha, std::get<FmhaOperands>(pointers));
    }
    if (op_of(problem) != Op::gemm) return {};
    const GemmProblem p = with_strides(std::get<GemmProblem>(problem));
    const auto& operands = std::get<GemmOperands>(pointers);
    const bool known = type_of(p.a) && type_of(p.b) && type_of(p.out) && type_of(p.d);
    if (!known || p.alpha != 1 || p.beta != 0 || p.preshuffled_b || p.pointer_arrays) return {};
    const auto epilogue = epilogue_steps(*library_, p, operands);
    if (!epilogue) return {};

    std::vector<PeerCall> calls;
    const auto add = [&](const char* group, const char* how, Program program) {
      program.library = library_;
      program.steps.insert(program.steps.end(), epilogue->begin(), epilogue->end());
      const std::string passes =
          epilogue->empty() ? "" : fmt::format(" + {} passes", epilogue->size());
      calls.push_back({group, how + passes, std::move(program)});
    };
    Program gemms;
    if (add_gemms(p, operands, gemms)) {
      add("onednn", gemms.is_int8 ? "gemm_s8s8s32" : "sgemm", std::move(gemms));
    }
    Program plain;
    if (add_matmul(*library_, p, operands, false, plain)) {
      add("onednn", "matmul", std::move(plain));
    }
    Program packed;
    if (add_matmul(*library_, p, operands, true, packed)) {
      add("onednn_packed", "matmul with packed weights", std::move(packed));
    }
    return calls;
  }

 private:
  std::shared_ptr<const Library> library_;
};

}  // namespace

std::unique_ptr<Peer> load_onednn(int threads) {
  std::shared_ptr<const Library> library = Library::load();
  if (library == nullptr) return nullptr;
  if (!library->set_threads(threads)) {
    throw Error(ErrorCode::unsupported,
                fmt::format("onednn is left out: {} was not built for OpenMP, so that only taskset "
                            "limits its threads; {} are asked for",
                            library->version(), threads));
  }
  return std::make_unique<OneDnn>(std::move(library));
}

}  // namespace tessera::peers
