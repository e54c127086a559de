// libdispatcher_gemm_quant_lib.so: products of 8-bit floats with scales, A by rows, B by columns,
// C by rows and fp16, all in the host's memory. fp8 where CMake does not say another type
// (DISPATCHER_QUANT_DTYPE).
#include <algorithm>
#include <optional>

#include "dispatcher_libs.h"
#include "live.h"

using ck_compat::Live;
using ck_compat::Outcome;
using tessera::GemmScale;

namespace {

constexpr int kNoSuchGroup = -3;

ck_compat::Library quant_library("dispatcher_quant_initialize");

struct Sizes {
  std::int64_t m, n, k, stride_a, stride_b, stride_c;
};

// A call: its problem, and its scales in the host's memory.
struct Call {
  const void *a, *b, *scale_a, *scale_b;
  void* c;
  tessera::GemmProblem problem;
};

tessera::GemmProblem problem_of(const Sizes& s) {
  tessera::GemmProblem p = tessera::gemm_problem(tessera::parse_dtype(DISPATCHER_QUANT_DTYPE),
                                                 tessera::GemmLayout::rcr, s.m, s.n, s.k);
  p.ld_a = s.stride_a, p.ld_b = s.stride_b, p.ld_out = s.stride_c;
  return p;
}

// What the sizes of a group of elements with one scale are called; nothing where no kernel has it.
std::optional<GemmScale> scale_of(std::int64_t rows, std::int64_t k, const char* names) {
  if (rows == 1 && k == 32) return GemmScale::by_1x32;
  if (rows == 1 && k == 128) return GemmScale::by_1x128;
  if (rows == 128 && k == 128) return GemmScale::by_128x128;
  ck_compat::set_error(std::string(names) + " must be 1 and 32, 1 and 128 or 128 and 128, got " +
                       std::to_string(rows) + " and " + std::to_string(k));
  return std::nullopt;
}

// The caller's memory of an operand; the vectors of an epilogue are scales of rows and of columns.
const void* memory_of(const Call& call, std::string_view operand) {
  if (operand == "a") return call.a;
  if (operand == "b") return call.b;
  if (operand == "out") return call.c;
  return operand == "scale_a" || operand == "d0" ? call.scale_a : call.scale_b;
}

bool are_given(const Call& call) {
  for (const tessera::Tensor& tensor : tessera::tensors_of(call.problem)) {
    if (memory_of(call, tensor.name) != nullptr) continue;
    ck_compat::set_error("A, B, C and the scales must not be null");
    return false;
  }
  return true;
}

void multiply(const Live& live, const Call& call, float* time_ms) {
  ck_compat::Staging staging(live);
  tessera::Operands operands = tessera::GemmOperands{};
  for (const tessera::Tensor& tensor : tessera::tensors_of(call.problem)) {
    const void* const host = memory_of(call, tensor.name);
    void* const placed = tensor.is_written()
                             ? staging.write(call.c, tensor.bytes())
                             : const_cast<void*>(staging.read(host, tensor.bytes()));
    tessera::set_pointer(operands, tensor, placed);
  }
  const tessera::RunTiming timing = live.dispatcher().time(call.problem, operands);
  staging.copy_back();
  if (time_ms != nullptr) *time_ms = static_cast<float>(timing.median_seconds * 1e3);
}

int run(const Call& call, int k_batch, float* time_ms) {
  const auto live = quant_library.required();
  if (live == nullptr || live->is_refused()) return -1;
  if (k_batch < 1) {
    ck_compat::set_error("k_batch must be at least 1, got " + std::to_string(k_batch));
    return -1;
  }
  const auto& p = call.problem;
  if (std::min({p.m, p.n, p.k}) < 1) {
    ck_compat::set_error("M, N and K must be at least 1, got " + std::to_string(p.m) + ", " +
                         std::to_string(p.n) + " and " + std::to_string(p.k));
    return -1;
  }
  if (!are_given(call)) return -1;
  bool is_chosen = false;
  const Outcome outcome = ck_compat::guarded([&] {
    live->dispatcher().kernel_for(p);  // known from the second call on
    is_chosen = true;
    multiply(*live, call, time_ms);
  });
  if (outcome == Outcome::done) return 0;
  return is_chosen || outcome == Outcome::failed ? -1 : -2;
}

}  // namespace

extern "C" {

int dispatcher_quant_initialize() {
  return quant_library.ensure(
      [] { return std::make_shared<Live>("", std::vector<std::string>{}, 1, 3); });
}
void dispatcher_quant_cleanup() { quant_library.end(); }
const char* dispatcher_quant_last_error() { return ck_compat::last_error(); }

int dispatcher_run_mx_gemm(const void* A, const void* B, void* C, const void* scale_a,
                           const void* scale_b, int64_t M, int64_t N, int64_t K, int k_batch,
                           float* time_ms) {
  Call call{A, B, scale_a, scale_b, C, problem_of({M, N, K, K, K, N})};
  call.problem.scale_a = call.problem.scale_b = GemmScale::by_1x32;
  call.problem.scale_type = tessera::GemmScaleType::e8m0;
  return run(call, k_batch, time_ms);
}

int dispatcher_run_abquant_gemm(const void* A, const void* B, const void* AQ, const void* BQ,
                                void* C, int64_t M, int64_t N, int64_t K, int64_t stride_A,
                                int64_t stride_B, int64_t stride_C, int64_t stride_AQ,
                                int64_t stride_BQ, int64_t QK_A, int64_t QK_B, int64_t QN_B,
                                int k_batch, float* time_ms) {
  Call call{A, B, AQ, BQ, C, problem_of({M, N, K, stride_A, stride_B, stride_C})};
  if (AQ != nullptr) {
    const auto scale = scale_of(1, QK_A, "the rows of a group of A and QK_A");
    if (!scale) return kNoSuchGroup;
    call.problem.scale_a = *scale, call.problem.stride_scale_a_m = stride_AQ;
  }
  if (BQ != nullptr) {
    const auto scale = scale_of(QN_B, QK_B, "QN_B and QK_B");
    if (!scale) return kNoSuchGroup;
    call.problem.scale_b = *scale, call.problem.stride_scale_b_n = stride_BQ;
  }
  return run(call, k_batch, time_ms);
}

int dispatcher_run_aquant_gemm(const void* A, const void* B, const void* AQ, void* C, int64_t M,
                               int64_t N, int64_t K, int64_t stride_A, int64_t stride_B,
                               int64_t stride_C, int64_t stride_AQ, int64_t QK_A, int k_batch,
                               float* time_ms) {
  return dispatcher_run_abquant_gemm(A, B, AQ, nullptr, C, M, N, K, stride_A, stride_B, stride_C,
                                     stride_AQ, 0, QK_A, 0, 0, k_batch, time_ms);
}

int dispatcher_run_bquant_gemm(const void* A, const void* B, const void* BQ, void* C, int64_t M,
                               int64_t N, int64_t K, int64_t stride_A, int64_t stride_B,
                               int64_t stride_C, int64_t stride_BQ, int64_t QK_B, int64_t QN_B,
                               int k_batch, float* time_ms) {
  return dispatcher_run_abquant_gemm(A, B, nullptr, BQ, C, M, N, K, stride_A, stride_B, stride_C, 0,
                                     stride_BQ, 0, QK_B, QN_B, k_batch, time_ms);
}

int dispatcher_run_rowcolquant_gemm(const void* A, const void* B, const void* AQ, const void* BQ,
                                    void* C, int64_t M, int64_t N, int64_t K, int64_t stride_A,
                                    int64_t stride_B, int64_t stride_C, int k_batch,
                                    float* time_ms) {
  Call call{A, B, AQ, BQ, C, problem_of({M, N, K, stride_A, stride_B, stride_C})};
  call.problem.epilogue = tessera::parse_epilogue("row_scale+col_scale");
  call.problem.d = tessera::DType::fp32;
  return run(call, k_batch, time_ms);
}

int dispatcher_run_tensorquant_gemm(const void* A, const void* B, const void* AQ, const void* BQ,
                                    void* C, int64_t M, int64_t N, int64_t K, int64_t stride_A,
                                    int64_t stride_B, int64_t stride_C, int k_batch,
                                    float* time_ms) {
  if (AQ == nullptr || BQ == nullptr) {
    ck_compat::set_error("AQ and BQ must not be null");
    return -1;
  }
  Call call{A, B, nullptr, nullptr, C, problem_of({M, N, K, stride_A, stride_B, stride_C})};
  call.problem.alpha = *static_cast<const float*>(AQ) * *static_cast<const float*>(BQ);
  return run(call, k_batch, time_ms);
}

}  // extern "C"
