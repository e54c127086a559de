// libdispatcher_gemm_lib.so: products of one type and layout, fp16 and rcr where CMake does not say
// another (DISPATCHER_DTYPE, DISPATCHER_LAYOUT).
#include <optional>

#include "dispatcher_libs.h"
#include "live.h"

using ck_compat::Live;
using ck_compat::Outcome;

namespace {

ck_compat::Slot slot;

constexpr const char* kDtype = DISPATCHER_DTYPE;
constexpr const char* kLayout = DISPATCHER_LAYOUT;

std::shared_ptr<const Live> live_or_error() {
  std::shared_ptr<const Live> live = slot.get();
  if (live == nullptr) ck_compat::set_error("dispatcher_init() was not called");
  return live;
}

tessera::GemmProblem problem_of(std::int64_t m, std::int64_t n, std::int64_t k) {
  return tessera::gemm_problem(tessera::parse_dtype(kDtype), tessera::parse_gemm_layout(kLayout), m,
                               n, k);
}

bool are_sizes(std::int64_t m, std::int64_t n, std::int64_t k) {
  if (m >= 1 && n >= 1 && k >= 1) return true;
  ck_compat::set_error("M, N and K must be at least 1, got " + std::to_string(m) + ", " +
                       std::to_string(n) + " and " + std::to_string(k));
  return false;
}

// The chosen kernel's name; nothing where there is none, with a sentence. Builds nothing.
std::optional<std::string> selected(const Live& live, std::int64_t m, std::int64_t n,
                                    std::int64_t k) {
  std::optional<std::string> name;
  if (!are_sizes(m, n, k)) return name;
  ck_compat::guarded([&] { name = live.dispatcher().explain(problem_of(m, n, k)).name; });
  return name;
}

void multiply(const Live& live, const void* a, const void* b, void* c,
              const tessera::GemmProblem& problem, float* time_ms) {
  ck_compat::Staging staging(live);
  const auto bytes = [](tessera::DType type, std::int64_t elements) {
    return static_cast<std::size_t>(elements) * static_cast<std::size_t>(size_of(type));
  };
  tessera::GemmOperands operands;
  operands.a = staging.read(a, bytes(problem.a, problem.m * problem.k));
  operands.b = staging.read(b, bytes(problem.b, problem.k * problem.n));
  operands.out = staging.write(c, bytes(problem.out, problem.m * problem.n));
  const tessera::RunTiming timing = live.dispatcher().time(problem, operands);
  staging.copy_back();
  if (time_ms != nullptr) *time_ms = static_cast<float>(timing.median_seconds * 1e3);
}

}  // namespace

extern "C" {

int dispatcher_initialize() {
  const Outcome outcome = ck_compat::guarded([] {
    slot.ensure([] {
      return ck_compat::make_live("", {std::string(kDtype) + "_" + kLayout + "_essential"}, 1, 3);
    });
  });
  return outcome == Outcome::done ? 0 : -1;
}

int dispatcher_init() { return dispatcher_initialize(); }

int dispatcher_is_supported(int64_t M, int64_t N, int64_t K) {
  const auto live = live_or_error();
  if (live == nullptr) return 0;
  return selected(*live, M, N, K).has_value() ? 1 : 0;
}

int dispatcher_select_kernel(int64_t M, int64_t N, int64_t K, char* name_buffer, int buffer_size) {
  const auto live = live_or_error();
  if (live == nullptr) return -1;
  const std::optional<std::string> name = selected(*live, M, N, K);
  return name.has_value() ? ck_compat::copy_name(*name, name_buffer, buffer_size) : -1;
}

int dispatcher_run_gemm(const void* A, const void* B, void* C, int64_t M, int64_t N, int64_t K,
                        float* time_ms) {
  const auto live = live_or_error();
  if (live == nullptr) return -1;
  if (A == nullptr || B == nullptr || C == nullptr) {
    ck_compat::set_error("A, B and C must not be null");
    return -1;
  }
  if (!live->refusal().empty()) {
    ck_compat::set_error(live->refusal());
    return -1;
  }
  const auto without_time = [time_ms](int status) {
    if (time_ms != nullptr) *time_ms = -1.0F;
    return status;
  };
  if (!are_sizes(M, N, K)) return without_time(-1);
  bool is_chosen = false;
  const Outcome outcome = ck_compat::guarded([&] {
    const tessera::GemmProblem problem = problem_of(M, N, K);
    live->dispatcher().kernel_for(problem);  // known from the second call on
    is_chosen = true;
    multiply(*live, A, B, C, problem, time_ms);
  });
  if (outcome == Outcome::done) return 0;
  const bool has_kernel = outcome == Outcome::failed || (is_chosen && outcome == Outcome::invalid);
  return has_kernel ? -1 : without_time(-2);
}

int dispatcher_get_kernel_count() {
  const auto live = slot.get();
  return live == nullptr ? 0 : static_cast<int>(live->kernels.size());
}

const char* dispatcher_export_registry_json() {
  const auto live = live_or_error();
  if (live == nullptr) return ck_compat::keep("{}");
  return ck_compat::keep(ck_compat::registry_json(*live));
}

void dispatcher_cleanup() { slot.set(nullptr); }

int dispatcher_get_kernel_config(int* tile_m, int* tile_n, int* tile_k, int* warp_tile_m,
                                 int* warp_tile_n, int* warp_tile_k, int* warp_m, int* warp_n,
                                 int* warp_k) {
  const auto live = live_or_error();
  if (live == nullptr) return -1;
  if (live->kernels.empty()) {
    ck_compat::set_error(ck_compat::target_text(live) + " has no kernels of this type and layout");
    return -1;
  }
  const tessera::Algorithm& how = live->kernels.front().algorithm;
  const auto store = [](const tessera::Shape3& shape, int* m, int* n, int* k) {
    if (m == nullptr || n == nullptr || k == nullptr) return false;
    *m = shape.m, *n = shape.n, *k = shape.k;
    return true;
  };
  const bool stored = store(how.tile, tile_m, tile_n, tile_k) &&
                      store(how.warp_tile, warp_tile_m, warp_tile_n, warp_tile_k) &&
                      store(how.wave, warp_m, warp_n, warp_k);
  if (!stored) ck_compat::set_error("the nine places of the shapes must not be null");
  return stored ? 0 : -1;
}

const char* dispatcher_get_kernel_name() {
  const auto live = slot.get();
  if (live == nullptr || live->kernels.empty()) return "";
  return ck_compat::keep(tessera::name_of(live->kernels.front()));
}

int dispatcher_get_kernel_name_at(int index, char* buffer, int size) {
  return ck_compat::copy_name_at(slot.get(), index, buffer, size);
}

const char* dispatcher_last_error() { return ck_compat::last_error(); }
const char* dispatcher_target() { return ck_compat::keep(ck_compat::target_text(slot.get())); }

}  // extern "C"
