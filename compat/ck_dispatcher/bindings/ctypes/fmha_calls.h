// Attention as the library's functions ask for it: a problem, and operands made of host's tensors.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string_view>

#include "live.h"

namespace ck_compat {

struct FmhaSizes {
  std::int64_t batch, heads, heads_kv, seqlen_q, seqlen_k, hdim, hdim_v;
};

// The arguments of a function as it got them. A switch is on where it is not 0.
struct FmhaCall : FmhaSizes {
  FmhaCall(const char* family_word, const char* type, const FmhaSizes& sizes)
      : FmhaSizes(sizes), family(family_word), data_type(type == nullptr ? "fp16" : type) {}

  std::string_view family, data_type;
  // By the names of the problem's operands; none of them may be null.
  std::map<std::string_view, const void*> tensors;
  float scale = 0;
  int mask = 0, bias = 0, rope = 0, qscale = 0;
  int lse = 0, dropout = 0, logits = 0, sink = 0;
  std::optional<std::array<int, 2>> window;
  int skip = 0, splits = 0;
  int perm = 1, groups = 0, v_rowmajor = 1;
  int pages = 0, page_size = 0;  // pages: K and V are laid out in them; page_size <= 0: the usual
  int cache_layout = 1, cache_lookup = 1;
  int dbias = 0, deterministic = 0, store_random = 0, verify = 0;
};

// Whether a tensor that the call needs is null.
bool lacks_tensor(const FmhaCall& call);
// The seconds of one run. Throws tessera::Error.
double run_attention(const Live& live, const FmhaCall& call);

}  // namespace ck_compat
