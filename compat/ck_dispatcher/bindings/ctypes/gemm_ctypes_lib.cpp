// libdispatcher_gemm_lib.so: products of one type and layout, fp16 and rcr where CMake does not say
// another (DISPATCHER_DTYPE, DISPATCHER_LAYOUT).
#include <algorithm>
#include <array>
#include <limits>
#include <vector>

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

// Groups as the original's callers give them, without gaps.
struct Groups {
  int count;
  const int64_t *m, *n, *k;
  const void* const* a;
  const void* const* b;
  void* const* c;
};

bool are_groups(const Groups& g) {
  if (g.count < 1) {
    ck_compat::set_error("count must be at least 1, got " + std::to_string(g.count));
    return false;
  }
  for (const void* const array : {static_cast<const void*>(g.m), static_cast<const void*>(g.n),
                                  static_cast<const void*>(g.k), static_cast<const void*>(g.a),
                                  static_cast<const void*>(g.b), static_cast<const void*>(g.c)}) {
    if (array != nullptr) continue;
    ck_compat::set_error("Ms, Ns, Ks, A, B and C must not be null");
    return false;
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  for (int i = 0; i < g.count; ++i) {
    if (!are_sizes(g.m[i], g.n[i], g.k[i])) return false;
    if (std::max({g.m[i], g.n[i], g.k[i]}) > kMost) {
      ck_compat::set_error("sizes of groups must be at most 2147483647, got " +
                           std::to_string(std::max({g.m[i], g.n[i], g.k[i]})));
      return false;
    }
    if (g.a[i] != nullptr && g.b[i] != nullptr && g.c[i] != nullptr) continue;
    ck_compat::set_error("A, B and C must not be null, got one of group " + std::to_string(i));
    return false;
  }
  return true;
}

// One problem as large as the greatest sizes; its strides are those of each group.
tessera::GemmProblem problem_of(const Groups& g) {
  const auto most = [&](const int64_t* sizes) { return *std::max_element(sizes, sizes + g.count); };
  tessera::GemmProblem problem = problem_of(most(g.m), most(g.n), most(g.k));
  problem.groups = g.count;
  problem.grouping = tessera::GemmGrouping::lists;
  problem.group_strides = true;
  return problem;
}

// What the kernels read of the groups, as arrays.
struct GroupArrays {
  std::array<std::vector<std::int32_t>, 3> sizes;
  std::array<std::vector<std::int32_t>, 3> lds;  // of A, B and C
  std::vector<const void*> a, b;
  std::vector<void*> c;
};

GroupArrays arrays_of(const Groups& g, const tessera::GemmProblem& p, ck_compat::Staging& staging) {
  GroupArrays all;
  const auto bytes = [](tessera::DType type, std::int64_t elements) {
    return static_cast<std::size_t>(elements) * static_cast<std::size_t>(size_of(type));
  };
  for (int i = 0; i < g.count; ++i) {
    const std::array sizes{g.m[i], g.n[i], g.k[i]};
    const std::array lds{a_is_row_major(p.layout) ? g.k[i] : g.m[i],
                         b_is_row_major(p.layout) ? g.n[i] : g.k[i], g.n[i]};
    for (std::size_t each = 0; each < sizes.size(); ++each) {
      all.sizes[each].push_back(static_cast<std::int32_t>(sizes[each]));
      all.lds[each].push_back(static_cast<std::int32_t>(lds[each]));
    }
    all.a.push_back(staging.read(g.a[i], bytes(p.a, g.m[i] * g.k[i])));
    all.b.push_back(staging.read(g.b[i], bytes(p.b, g.k[i] * g.n[i])));
    all.c.push_back(staging.write(g.c[i], bytes(p.out, g.m[i] * g.n[i])));
  }
  return all;
}

void multiply_groups(const Live& live, const Groups& g, const tessera::GemmProblem& problem,
                     float* time_ms) {
  ck_compat::Staging staging(live);
  const GroupArrays all = arrays_of(g, problem, staging);
  const auto read = [&](const auto& values) {
    return staging.read(values.data(), values.size() * sizeof values[0]);
  };
  tessera::GemmOperands operands;
  operands.a = read(all.a);
  operands.b = read(all.b);
  operands.out = const_cast<void*>(read(all.c));
  for (std::size_t i = 0; i < all.sizes.size(); ++i) {
    constexpr std::array<std::size_t, 3> kPlaces = {0, 1, 3};  // of A, B and the result
    operands.group_sizes[i] = static_cast<const std::int32_t*>(read(all.sizes[i]));
    operands.group_lds[kPlaces[i]] = static_cast<const std::int32_t*>(read(all.lds[i]));
  }
  const tessera::RunTiming timing = live.dispatcher().time(problem, operands);
  staging.copy_back();
  if (time_ms != nullptr) *time_ms = static_cast<float>(timing.median_seconds * 1e3);
}

// As the original's: -2 where choosing finds no kernel for the problem, -1 for all that fails
// otherwise, be it in choosing or in what follows.
template <class Multiply>
int run_chosen(const Live& live, const tessera::GemmProblem& problem, float* time_ms,
               const Multiply& multiply_it) {
  bool is_chosen = false;
  const Outcome outcome = ck_compat::guarded([&] {
    live.dispatcher().kernel_for(problem);  // known from the second call on
    is_chosen = true;
    multiply_it();
  });
  if (outcome == Outcome::done) return 0;
  if (is_chosen || outcome == Outcome::failed) return -1;
  if (time_ms != nullptr) *time_ms = -1.0F;
  return -2;
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

int dispatcher_run_gemm(const void* A, const void* B, void* C, int64_t M, int64_t N, int64_t K,
                        float* time_ms) {
  const auto live = gemm_library.required();
  if (live == nullptr) return -1;
  if (A == nullptr || B == nullptr || C == nullptr) {
    ck_compat::set_error("A, B and C must not be null");
    return -1;
  }
  if (live->is_refused()) return -1;
  if (!are_sizes(M, N, K)) {
    if (time_ms != nullptr) *time_ms = -1.0F;
    return -1;
  }
  const tessera::GemmProblem problem = problem_of(M, N, K);
  return run_chosen(*live, problem, time_ms, [&] { multiply(*live, A, B, C, problem, time_ms); });
}

int dispatcher_run_grouped_gemm(int count, const int64_t* Ms, const int64_t* Ns, const int64_t* Ks,
                                const void* const* A, const void* const* B, void* const* C,
                                float* time_ms) {
  const auto live = gemm_library.required();
  if (live == nullptr) return -1;
  const Groups groups = {count, Ms, Ns, Ks, A, B, C};
  if (!are_groups(groups)) {
    if (time_ms != nullptr) *time_ms = -1.0F;
    return -1;
  }
  if (live->is_refused()) return -1;
  const tessera::GemmProblem problem = problem_of(groups);
  return run_chosen(*live, problem, time_ms,
                    [&] { multiply_groups(*live, groups, problem, time_ms); });
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
