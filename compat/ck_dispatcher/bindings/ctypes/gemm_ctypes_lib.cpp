// libdispatcher_gemm_lib.so: products of one type and layout, fp16 and rcr where CMake does not say
// another (DISPATCHER_DTYPE, DISPATCHER_LAYOUT).
#include <array>

#include "ck_tile/dispatcher/registry.hpp"
#include "dispatcher_libs.h"
#include "live.h"

using ck_compat::Live;
using ck_compat::Outcome;

namespace {

ck_compat::Library gemm_library("dispatcher_init");

tessera::GemmProblem problem_of(std::int64_t m, std::int64_t n, std::int64_t k) {
  return tessera::gemm_problem(tessera::parse_dtype(DISPATCHER_DTYPE),
                               tessera::parse_gemm_layout(DISPATCHER_LAYOUT), m, n, k);
}

bool are_sizes(std::int64_t m, std::int64_t n, std::int64_t k) {
  if (m >= 1 && n >= 1 && k >= 1) return true;
  ck_compat::set_error("M, N and K must be at least 1, got " + std::to_string(m) + ", " +
                       std::to_string(n) + " and " + std::to_string(k));
  return false;
}

// The chosen kernel's name; nothing where there is none, with a sentence.
std::optional<std::string> selected(std::int64_t m, std::int64_t n, std::int64_t k) {
  const auto live = gemm_library.required();
  if (live == nullptr || !are_sizes(m, n, k)) return std::nullopt;
  return live->chosen(ck_compat::key_of(std::array{m, n, k}), [&] { return problem_of(m, n, k); });
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
  return gemm_library.ensure([] {
    return std::make_shared<Live>(
        "", std::vector<std::string>{DISPATCHER_DTYPE "_" DISPATCHER_LAYOUT "_essential"}, 1, 3);
  });
}

int dispatcher_init() { return dispatcher_initialize(); }

int dispatcher_is_supported(int64_t M, int64_t N, int64_t K) {
  return selected(M, N, K).has_value() ? 1 : 0;
}

int dispatcher_select_kernel(int64_t M, int64_t N, int64_t K, char* name_buffer, int buffer_size) {
  const std::optional<std::string> name = selected(M, N, K);
  return name.has_value() ? ck_compat::copy_name(*name, name_buffer, buffer_size) : -1;
}

// As the original's: -2 where choosing finds no kernel for the problem, -1 for all that fails
// otherwise, be it in choosing or in what follows.
int dispatcher_run_gemm(const void* A, const void* B, void* C, int64_t M, int64_t N, int64_t K,
                        float* time_ms) {
  const auto live = gemm_library.required();
  if (live == nullptr) return -1;
  if (A == nullptr || B == nullptr || C == nullptr) {
    ck_compat::set_error("A, B and C must not be null");
    return -1;
  }
  if (live->is_refused()) return -1;
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
  return is_chosen || outcome == Outcome::failed ? -1 : without_time(-2);
}

int dispatcher_get_kernel_count() { return gemm_library.kernel_count(); }

const char* dispatcher_export_registry_json() {
  const auto live = gemm_library.required();
  if (live == nullptr) return "{}";
  ck_tile::dispatcher::Registry registry("gemm");
  const Outcome outcome = ck_compat::guarded([&] {
    for (const tessera::KernelSpec& spec : live->kernels) {
      registry.register_kernel(
          ck_tile::dispatcher::backends::named_gemm_kernel(tessera::name_of(spec)));
    }
  });
  return outcome == Outcome::done ? ck_compat::keep(registry.export_json()) : "{}";
}

void dispatcher_cleanup() { gemm_library.end(); }

int dispatcher_get_kernel_config(int* tile_m, int* tile_n, int* tile_k, int* warp_tile_m,
                                 int* warp_tile_n, int* warp_tile_k, int* warp_m, int* warp_n,
                                 int* warp_k) {
  const auto live = gemm_library.required();
  if (live == nullptr) return -1;
  if (live->kernels.empty()) {
    ck_compat::set_error(std::string(gemm_library.target()) +
                         " has no kernels of this type and layout");
    return -1;
  }
  const std::array places{tile_m,      tile_n, tile_k, warp_tile_m, warp_tile_n,
                          warp_tile_k, warp_m, warp_n, warp_k};
  const tessera::Algorithm& how = live->kernels.front().algorithm;
  const std::array sizes{how.tile.m,      how.tile.n, how.tile.k, how.warp_tile.m, how.warp_tile.n,
                         how.warp_tile.k, how.wave.m, how.wave.n, how.wave.k};
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i] == nullptr) {
      ck_compat::set_error("the nine places of the shapes must not be null");
      return -1;
    }
    *places[i] = sizes[i];
  }
  return 0;
}

const char* dispatcher_get_kernel_name() {
  const auto live = gemm_library.get();
  if (live == nullptr || live->kernels.empty()) return "";
  return ck_compat::keep(tessera::name_of(live->kernels.front()));
}

int dispatcher_get_kernel_name_at(int index, char* buffer, int size) {
  return gemm_library.copy_name_at(index, buffer, size);
}

const char* dispatcher_last_error() { return ck_compat::last_error(); }
const char* dispatcher_target() { return gemm_library.target(); }

}  // extern "C"
