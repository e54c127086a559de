// libdispatcher_contraction_lib.so: contractions, and products
// whose A and B have several sources, all in the host's memory. How many dimensions, sources and D
// tensors there are, CMake says.
#include <algorithm>
#include <string>
#include <vector>

#include <tessera/tessera.hpp>

#include "dispatcher_libs.h"
#include "live.h"

using ck_compat::Live;
using ck_compat::Outcome;
using tessera::GemmMerge;

namespace {

ck_compat::Library contraction_library("dispatcher_contraction_initialize");

constexpr int kNumD = DISPATCHER_NUM_D;
static_assert(kNumD >= 0 && kNumD <= tessera::kMaxD, "there are at most 4 D tensors");

// The caller's memory by the names of operands.
struct Call {
  std::vector<std::pair<std::string, const void*>> inputs;
  void* out;
  tessera::GemmProblem problem;

  const void* memory_of(std::string_view name) const {
    for (const auto& [known, memory] : inputs) {
      if (known == name) return memory;
    }
    return nullptr;
  }
};

// CK's MultiDAdd, MultiDMultiply and PassThrough.
tessera::Epilogue epilogue() {
  const std::string op = DISPATCHER_CDE_OP;
  if (kNumD == 0 || op == "PassThrough") return {};
  return tessera::parse_epilogue((op == "MultiDMultiply" ? "multi_d_multiply" : "multi_d_add") +
                                 std::to_string(kNumD));
}

void add_d(const void* const* Ds, Call& call) {
  for (int i = 0; i < call.problem.epilogue.num_d; ++i) {
    call.inputs.emplace_back("d" + std::to_string(i), Ds == nullptr ? nullptr : Ds[i]);
  }
}

bool are_given(const Call& call) {
  for (const tessera::Tensor& tensor : tessera::tensors_of(call.problem)) {
    const void* const memory = tensor.is_written() ? call.out : call.memory_of(tensor.name);
    if (memory != nullptr || tensor.is_empty()) continue;
    ck_compat::set_error(std::string(tensor.name) + " must not be null");
    return false;
  }
  return true;
}

void multiply(const Live& live, const Call& call, float* time_ms) {
  ck_compat::Staging staging(live);
  tessera::Operands operands = tessera::GemmOperands{};
  for (const tessera::Tensor& tensor : tessera::tensors_of(call.problem)) {
    void* const placed =
        tensor.is_written()
            ? staging.write(call.out, tensor.bytes())
            : const_cast<void*>(staging.read(call.memory_of(tensor.name), tensor.bytes()));
    tessera::set_pointer(operands, tensor, placed);
  }
  const tessera::RunTiming timing = live.dispatcher().time(call.problem, operands);
  staging.copy_back();
  if (time_ms != nullptr) *time_ms = static_cast<float>(timing.median_seconds * 1e3);
}

int run(const Call& call, float* time_ms) {
  const auto live = contraction_library.required();
  if (live == nullptr || live->is_refused() || !are_given(call)) return -1;
  bool is_chosen = false;
  const Outcome outcome = ck_compat::guarded([&] {
    live->dispatcher().kernel_for(call.problem);
    is_chosen = true;
    multiply(*live, call, time_ms);
  });
  if (outcome == Outcome::done) return 0;
  return is_chosen || outcome == Outcome::failed ? -1 : -2;
}

bool is_k_batch(int k_batch) {
  if (k_batch >= 1) return true;
  ck_compat::set_error("k_batch must be at least 1, got " + std::to_string(k_batch));
  return false;
}

// Letters of a kind, and their sizes behind those of other kinds.
struct Kind {
  const char* name;
  const int64_t* dims;
  int count;
  char first;  // letter
};

std::string letters_of(const Kind& kind) {
  std::string letters;
  for (int i = 0; i < kind.count; ++i) letters += static_cast<char>(kind.first + i);
  return letters;
}

bool are_dims(const Kind& kind) {
  if (kind.count < 0 || kind.count > 6 || (kind.count > 0 && kind.dims == nullptr)) {
    ck_compat::set_error(std::string("there must be 0 to 6 ") + kind.name + " dimensions, got " +
                         std::to_string(kind.count));
    return false;
  }
  for (int i = 0; i < kind.count; ++i) {
    if (kind.dims[i] >= 1) continue;
    ck_compat::set_error(std::string("the sizes of ") + kind.name +
                         " dimensions must be at least 1, got " + std::to_string(kind.dims[i]));
    return false;
  }
  return true;
}

tessera::GemmProblem plain(std::int64_t m, std::int64_t n, std::int64_t k) {
  tessera::GemmProblem p = tessera::gemm_problem(tessera::parse_dtype(DISPATCHER_DTYPE),
                                                 tessera::GemmLayout::rcr, m, n, k);
  p.epilogue = epilogue();
  return p;
}

tessera::GemmProblem contraction(const Kind& g, const Kind& m, const Kind& n, const Kind& k) {
  tessera::Einsum einsum;
  einsum.equation = letters_of(g) + letters_of(m) + letters_of(k) + "," + letters_of(g) +
                    letters_of(n) + letters_of(k) + "->" + letters_of(g) + letters_of(m) +
                    letters_of(n);
  const auto add = [](std::vector<std::int64_t>& sizes, const Kind& kind) {
    sizes.insert(sizes.end(), kind.dims, kind.dims + kind.count);
  };
  for (const Kind& kind : {g, m, k}) add(einsum.a.sizes, kind);
  for (const Kind& kind : {g, n, k}) add(einsum.b.sizes, kind);
  einsum.like = plain(0, 0, 0);
  return tessera::einsum_problem(einsum);
}

GemmMerge merge_of(const std::string& op) {
  return op == "MultiDMultiply" ? GemmMerge::multiply : GemmMerge::add;
}

void add_sources(char operand, int count, const void* const* memory, Call& call) {
  for (int i = 0; i < count; ++i) {
    const std::string number = i == 0 ? "" : std::to_string(i);
    call.inputs.emplace_back(operand + number, memory == nullptr ? nullptr : memory[i]);
  }
}

}  // namespace

extern "C" {

int dispatcher_contraction_initialize() {
  return contraction_library.ensure(
      [] { return std::make_shared<Live>("", std::vector<std::string>{}, 1, 3); });
}
void dispatcher_contraction_cleanup() { contraction_library.end(); }
const char* dispatcher_contraction_last_error() { return ck_compat::last_error(); }

int dispatcher_get_num_dim_g() { return DISPATCHER_NUM_DIM_G; }
int dispatcher_get_num_dim_m() { return DISPATCHER_NUM_DIM_M; }
int dispatcher_get_num_dim_n() { return DISPATCHER_NUM_DIM_N; }
int dispatcher_get_num_dim_k() { return DISPATCHER_NUM_DIM_K; }
int dispatcher_get_num_a_tensors() { return DISPATCHER_NUM_A; }
int dispatcher_get_num_b_tensors() { return DISPATCHER_NUM_B; }
int dispatcher_get_num_d_tensors() { return epilogue().num_d; }

int dispatcher_run_batched_contraction(const void* A, const void* B, void* E, const int64_t* G_dims,
                                       int num_g, const int64_t* M_dims, int num_m,
                                       const int64_t* N_dims, int num_n, const int64_t* K_dims,
                                       int num_k, int k_batch, float* time_ms,
                                       const void* const* Ds) {
  const Kind g{"G", G_dims, num_g, 'a'}, m{"M", M_dims, num_m, 'h'}, n{"N", N_dims, num_n, 'o'},
      k{"K", K_dims, num_k, 'A'};
  if (!are_dims(g) || !are_dims(m) || !are_dims(n) || !are_dims(k) || !is_k_batch(k_batch)) {
    return -1;
  }
  Call call{{{"a", A}, {"b", B}}, E, {}};
  const Outcome outcome = ck_compat::guarded([&] { call.problem = contraction(g, m, n, k); });
  if (outcome != Outcome::done) return -1;
  add_d(Ds, call);
  return run(call, time_ms);
}

int dispatcher_run_multi_abd_gemm(const void* const* As, const void* const* Bs,
                                  const void* const* Ds, void* E, int64_t M, int64_t N, int64_t K,
                                  float* time_ms) {
  if (std::min({M, N, K}) < 1) {
    ck_compat::set_error("M, N and K must be at least 1, got " + std::to_string(M) + ", " +
                         std::to_string(N) + " and " + std::to_string(K));
    return -1;
  }
  Call call{{}, E, plain(M, N, K)};
  tessera::GemmProblem& p = call.problem;
  if (DISPATCHER_NUM_A > 1) p.merge_a = merge_of(DISPATCHER_A_OP), p.sources_a = DISPATCHER_NUM_A;
  if (DISPATCHER_NUM_B > 1) p.merge_b = merge_of(DISPATCHER_B_OP), p.sources_b = DISPATCHER_NUM_B;
  add_sources('a', DISPATCHER_NUM_A, As, call);
  add_sources('b', DISPATCHER_NUM_B, Bs, call);
  add_d(Ds, call);
  return run(call, time_ms);
}

}  // extern "C"
