// Attention as the library's functions ask for it: a problem, and operands made of host's tensors.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "live.h"

namespace ck_compat {

struct FmhaCall {
  std::string family;
  std::string data_type;
  std::int64_t batch = 1, heads = 1, heads_kv = 1;
  std::int64_t seqlen_q = 1, seqlen_k = 1, hdim = 1, hdim_v = 1;
  float scale = 0;
  std::string mask = "no", bias = "no", rope = "none", qscale = "no";
  bool lse = false, perm = true, groups = false, v_rowmajor = true;
  bool has_window = false;
  std::array<std::int64_t, 2> window = {-1, -1};
  float p_drop = 0, soft_cap = 0;
  std::int64_t sink = 0, skip = 0, splits = 0;
  std::int64_t page_size = 0;  // above 0: K and V are laid out in pages
  bool vectorized = false, listed = false;
  bool dbias = false, deterministic = false, store_random = false, verify = false;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  const void* lse_in = nullptr;
  const void* dout = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  const float* descale_q = nullptr;
  const float* descale_k = nullptr;
  const float* descale_v = nullptr;
};

// The problem with its strides. Throws what the problem builder throws.
tessera::FmhaProblem problem_of(const FmhaCall& call);
// Whether a tensor that the family needs is null.
bool lacks_tensor(const FmhaCall& call);
// The seconds of one run. Throws tessera::Error.
double run_attention(const Live& live, const FmhaCall& call);

}  // namespace ck_compat
