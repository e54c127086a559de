// cuBLASLt as a peer: the heuristics' first choice, and the best of eight.
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <optional>

#include "peers/peers.h"

namespace tessera::peers {
namespace {

// From the library's interface.
using Status = int;
using LtHandle = struct HandleTag*;
using MatmulDesc = struct MatmulDescTag*;
using Layout = struct LayoutTag*;
using Preference = struct PreferenceTag*;
struct Algo {
  std::uint64_t data[8];
};
struct Heuristic {
  Algo algo;
  std::size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};
// attributes of a matmul
constexpr int kTransposeA = 3, kTransposeB = 4, kEpilogue = 7, kBiasPointer = 8;
constexpr int kFastAccumulation = 25, kBiasType = 26;
constexpr int kBatchCount = 5, kBatchStride = 6;  // attributes of a layout
constexpr int kMaxWorkspace = 1;                  // attribute of a preference

struct LtFunctions {
  std::size_t (*version)();
  Status (*create)(LtHandle*);
  Status (*desc_create)(MatmulDesc*, int compute_type, int scale_type);
  Status (*desc_set)(MatmulDesc, int attribute, const void* value, std::size_t bytes);
  Status (*desc_destroy)(MatmulDesc);
  Status (*layout_create)(Layout*, int type, std::uint64_t rows, std::uint64_t columns,
                          std::int64_t ld);
  Status (*layout_set)(Layout, int attribute, const void* value, std::size_t bytes);
  Status (*layout_destroy)(Layout);
  Status (*preference_create)(Preference*);
  Status (*preference_set)(Preference, int attribute, const void* value, std::size_t bytes);
  Status (*preference_destroy)(Preference);
  Status (*heuristics)(LtHandle, MatmulDesc, Layout a, Layout b, Layout c, Layout d, Preference,
                       int wanted, Heuristic* results, int* found);
  Status (*matmul)(LtHandle, MatmulDesc, const void* alpha, const void* a, Layout, const void* b,
                   Layout, const void* beta, const void* c, Layout, void* d, Layout, const Algo*,
                   void* workspace, std::size_t workspace_bytes, void* stream);
};

struct LtTypeRow {
  DType dtype;
  int type;  // cudaDataType
};
constexpr std::array kLtTypes = {LtTypeRow{DType::fp32, 0}, LtTypeRow{DType::tf32, 0},
                                 LtTypeRow{DType::fp16, 2}, LtTypeRow{DType::bf16, 14},
                                 LtTypeRow{DType::fp8, 28}, LtTypeRow{DType::bf8, 29},
                                 LtTypeRow{DType::int8, 3}, LtTypeRow{DType::int32, 10}};
int lt_type_of(DType dtype) {
  for (const LtTypeRow& row : kLtTypes) {
    if (row.dtype == dtype) return row.type;
  }
  return -1;
}

// The cublasComputeType for products of these operands.
int compute_type(DType operand) {
  constexpr int kFloat = 68, kFloatByTf32 = 77, kInt32 = 72;
  if (operand == DType::tf32) return kFloatByTf32;
  return operand == DType::int8 ? kInt32 : kFloat;
}

// The epilogues that the library fuses; its gelu is gelu_tanh.
struct EpilogueRow {
  std::string_view epilogue;
  int value;
};
constexpr std::array kEpilogues = {EpilogueRow{"", 1},           EpilogueRow{"relu", 2},
                                   EpilogueRow{"bias", 4},       EpilogueRow{"bias+relu", 6},
                                   EpilogueRow{"gelu_tanh", 32}, EpilogueRow{"bias+gelu_tanh", 36}};
std::optional<int> epilogue_of(const Epilogue& epilogue) {
  if (num_ops(epilogue) == 0) return kEpilogues.front().value;
  const std::string wanted = to_string(epilogue);
  for (const EpilogueRow& row : kEpilogues) {
    if (row.epilogue == wanted) return row.value;
  }
  return std::nullopt;
}

constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;
constexpr int kHeuristics = 8;

// The library is column-major: its D is the transpose of our output, n x m, and its A is our B.
class Matmul {
 public:
  Matmul(const LtFunctions& f, LtHandle handle, const GemmProblem& p, const GemmOperands& operands)
      : f_(f), handle_(handle), problem_(p), operands_(operands) {}
  ~Matmul() {
    for (const Layout layout : {a_, b_, d_}) {
      if (layout != nullptr) f_.layout_destroy(layout);
    }
    if (desc_ != nullptr) f_.desc_destroy(desc_);
  }
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  // False when the library has no algorithm for this problem.
  bool prepare(int epilogue) {
    return describe(epilogue) && lay_out() && ask() && !heuristics_.empty();
  }
  std::size_t choices() const { return heuristics_.size(); }

  void run(std::size_t choice, void* workspace) const {
    const float alpha = problem_.alpha, zero = 0;
    const std::int32_t one = 1, none = 0;
    const bool integer = problem_.out == DType::int32;
    const Status status = f_.matmul(
        handle_, desc_, integer ? static_cast<const void*>(&one) : &alpha, operands_.b, a_,
        operands_.a, b_, integer ? static_cast<const void*>(&none) : &zero, operands_.out, d_,
        operands_.out, d_, &heuristics_[choice].algo, workspace, kWorkspaceBytes, nullptr);
    if (status == 0) return;
    throw Error(
        ErrorCode::unsupported,
        fmt::format("cublaslt refused to run a matmul that it had proposed (status {})", status));
  }

 private:
  template <class Value>
  bool set(int attribute, Value value) {
    return f_.desc_set(desc_, attribute, &value, sizeof(value)) == 0;
  }

  bool describe(int epilogue) {
    const GemmProblem& p = problem_;
    constexpr int kNo = 0, kYes = 1;
    const int scale = p.out == DType::int32 ? lt_type_of(DType::int32) : lt_type_of(DType::fp32);
    bool ok = f_.desc_create(&desc_, compute_type(p.a), scale) == 0;
    ok = ok && set(kTransposeA, b_is_row_major(p.layout) ? kNo : kYes);
    ok = ok && set(kTransposeB, a_is_row_major(p.layout) ? kNo : kYes);
    ok = ok && set(kEpilogue, epilogue);
    if (p.epilogue.num_d > 0) {
      ok = ok && set(kBiasPointer, operands_.d[0]) && set(kBiasType, lt_type_of(p.d));
    }
    // The accumulation that Hopper's kernels for fp8 use: without it the library adds in steps.
    if (size_of(p.a) == 1 && p.a != DType::int8) ok = ok && set(kFastAccumulation, std::int8_t{1});
    return ok;
  }

  // A row-major matrix of ours is a column-major one of the library.
  bool lay_out() {
    const GemmProblem& p = problem_;
    const auto make = [&](Layout& layout, DType dtype, std::array<std::int64_t, 4> shape) {
      const auto [rows, columns, ld, batch_stride] = shape;
      bool ok = f_.layout_create(&layout, lt_type_of(dtype), static_cast<std::uint64_t>(rows),
                                 static_cast<std::uint64_t>(columns), ld) == 0;
      if (p.batch == 1) return ok;
      const auto batch = static_cast<std::int32_t>(p.batch);
      ok = ok && f_.layout_set(layout, kBatchCount, &batch, sizeof(batch)) == 0;
      return ok && f_.layout_set(layout, kBatchStride, &batch_stride, sizeof(batch_stride)) == 0;
    };
    const bool b_rows = b_is_row_major(p.layout), a_rows = a_is_row_major(p.layout);
    return make(a_, p.b, {b_rows ? p.n : p.k, b_rows ? p.k : p.n, p.ld_b, p.batch_stride_b}) &&
           make(b_, p.a, {a_rows ? p.k : p.m, a_rows ? p.m : p.k, p.ld_a, p.batch_stride_a}) &&
           make(d_, p.out, {p.n, p.m, p.ld_out, p.batch_stride_out});
  }

  bool ask() {
    Preference preference = nullptr;
    if (f_.preference_create(&preference) != 0) return false;
    const std::size_t bytes = kWorkspaceBytes;
    f_.preference_set(preference, kMaxWorkspace, &bytes, sizeof(bytes));
    std::array<Heuristic, kHeuristics> results{};
    int found = 0;
    const Status status = f_.heuristics(handle_, desc_, a_, b_, d_, d_, preference, kHeuristics,
                                        results.data(), &found);
    f_.preference_destroy(preference);
    for (int i = 0; status == 0 && i < found; ++i) {
      const Heuristic& result = results[static_cast<std::size_t>(i)];
      if (result.state == 0) heuristics_.push_back(result);
    }
    return status == 0;
  }

  const LtFunctions& f_;
  LtHandle handle_;
  GemmProblem problem_;
  GemmOperands operands_;
  MatmulDesc desc_ = nullptr;
  Layout a_ = nullptr, b_ = nullptr, d_ = nullptr;
  std::vector<Heuristic> heuristics_;
};

class CublasLt : public Peer {
 public:
  CublasLt(LtFunctions functions, std::string library)
      : functions_(functions), library_(std::move(library)) {}

  std::string name() const override { return "cublaslt"; }
  std::string version() const override {
    const std::size_t version = functions_.version();
    return fmt::format("{}.{}.{} ({})", version / 10000, version / 100 % 100, version % 100,
                       library_);
  }

  std::vector<PeerCall> calls(const Problem& problem, const Operands& pointers) const override {
    if (op_of(problem) != Op::gemm) return {};
    const GemmProblem p = with_strides(std::get<GemmProblem>(problem));
    const auto& operands = std::get<GemmOperands>(pointers);
    const std::optional<int> epilogue = epilogue_of(p.epilogue);
    const bool scaled_integers = p.out == DType::int32 && p.alpha != 1;
    const bool converted_integers = p.a == DType::int8 && p.out != DType::int32;
    if (!epilogue || p.beta != 0 || p.preshuffled_b || p.pointer_arrays || scaled_integers ||
        converted_integers) {
      return {};
    }
    auto matmul = std::make_shared<Matmul>(functions_, handle(), p, operands);
    if (!matmul->prepare(*epilogue)) return {};
    std::vector<PeerCall> calls;
    const auto add = [&](const char* group, std::size_t choice) {
      calls.push_back(
          {group, fmt::format("heuristic {}", choice + 1),
           [matmul, choice, workspace = workspace_] { matmul->run(choice, workspace->data()); }});
    };
    add("cublaslt", 0);
    for (std::size_t i = 0; i < matmul->choices(); ++i) add("cublaslt_best", i);
    return calls;
  }

 private:
  // Made at the first problem, when a GPU is present.
  LtHandle handle() const {
    if (handle_ != nullptr) return handle_;
    const runtime::Place place{&runtime::backend_for(load_target("sm90a")), {}};
    workspace_ = std::make_shared<runtime::DeviceBuffer>(place, kWorkspaceBytes);
    if (const Status status = functions_.create(&handle_); status != 0) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("cublaslt cannot be started (status {})", status));
    }
    return handle_;
  }

  LtFunctions functions_;
  std::string library_;
  mutable LtHandle handle_ = nullptr;
  mutable std::shared_ptr<runtime::DeviceBuffer> workspace_;
};

// The library lies beside NVRTC, in a toolkit, or in a Python environment.
std::vector<std::string> library_names() {
  std::vector<std::string> names;
  for (const char* file : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
    names.emplace_back(file);
    for (const fs::path& folder : jit::nvrtc_places()) {
      names.push_back((folder / file).string());
      names.push_back((folder / "../../cublas/lib" / file).string());
    }
  }
  return names;
}

}  // namespace

std::unique_ptr<Peer> load_cublaslt(int) {
  std::string library;
  void* handle = open_library(library_names(), library);
  if (handle == nullptr) return nullptr;
  LtFunctions f;
  std::vector<std::string> missing;
  const auto load = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr) missing.emplace_back(name);
  };
  load(f.version, "cublasLtGetVersion");
  load(f.create, "cublasLtCreate");
  load(f.desc_create, "cublasLtMatmulDescCreate");
  load(f.desc_set, "cublasLtMatmulDescSetAttribute");
  load(f.desc_destroy, "cublasLtMatmulDescDestroy");
  load(f.layout_create, "cublasLtMatrixLayoutCreate");
  load(f.layout_set, "cublasLtMatrixLayoutSetAttribute");
  load(f.layout_destroy, "cublasLtMatrixLayoutDestroy");
  load(f.preference_create, "cublasLtMatmulPreferenceCreate");
  load(f.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  load(f.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  load(f.heuristics, "cublasLtMatmulAlgoGetHeuristic");
  load(f.matmul, "cublasLtMatmul");
  require_functions("cublaslt", library, missing);
  return std::make_unique<CublasLt>(f, library);
}

}  // namespace tessera::peers
