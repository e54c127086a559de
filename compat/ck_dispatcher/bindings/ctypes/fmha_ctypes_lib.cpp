// libdispatcher_fmha_lib.so: attention of tensors in the host's memory.
#include "dispatcher_libs.h"
#include "fmha_calls.h"

using ck_compat::FmhaCall;
using ck_compat::Outcome;

namespace {

ck_compat::Slot fmha_slot;

constexpr float kDropped = 0.2F;
constexpr float kSoftCap = 30.0F;
constexpr int kSinkTokens = 4;
constexpr int kPageTokens = 64;

// A number's word; one that has none stays a number, which the problem builder refuses.
template <std::size_t count>
std::string word_of(const char* const (&words)[count], int number) {
  return number >= 0 && number < static_cast<int>(count) ? words[number] : std::to_string(number);
}

constexpr const char* kMasks[] = {"no", "top_left", "bottom_right", "generic"};
constexpr const char* kBiases[] = {"no", "elementwise", "alibi"};
constexpr const char* kRopes[] = {"none", "interleaved", "half_rotated"};
constexpr const char* kScales[] = {"no", "pertensor", "blockscale", "kv_blockscale"};

// What all calls have.
FmhaCall call_of(const char* family, const char* data_type, int batch, int nhead_q, int nhead_k,
                 int seqlen_q, int seqlen_k, int hdim_q, int hdim_v) {
  FmhaCall call;
  call.family = family;
  call.data_type = data_type == nullptr ? "fp16" : data_type;
  call.batch = batch, call.heads = nhead_q, call.heads_kv = nhead_k;
  call.seqlen_q = seqlen_q, call.seqlen_k = seqlen_k, call.hdim = hdim_q, call.hdim_v = hdim_v;
  return call;
}

void set_pages(FmhaCall& call, int page_block_size) {
  call.page_size = page_block_size > 0 ? page_block_size : kPageTokens;
}

int finish(const FmhaCall& call, float* time_ms) {
  const auto live = fmha_slot.get();
  if (live == nullptr) {
    ck_compat::set_error("fmha_dispatcher_initialize() was not called");
    return -1;
  }
  if (!live->refusal().empty()) {
    ck_compat::set_error(live->refusal());
    return -1;
  }
  double seconds = 0;
  bool is_null = false;
  const Outcome outcome = ck_compat::guarded([&] {
    is_null = ck_compat::lacks_tensor(call);
    if (!is_null) seconds = ck_compat::run_attention(*live, call);
  });
  if (is_null) {
    ck_compat::set_error("a tensor that the call needs is null");
    return -1;
  }
  if (outcome == Outcome::failed) return -1;
  if (outcome != Outcome::done) return -2;
  if (time_ms != nullptr) *time_ms = static_cast<float>(seconds * 1e3);
  return 0;
}

}  // namespace

extern "C" {

int fmha_dispatcher_initialize(const char* arch) {
  const Outcome outcome = ck_compat::guarded([&] {
    const std::string name = arch == nullptr ? "" : arch;
    std::vector<std::string> sets;
    for (const char* kind : {"forward", "backward", "append"}) {
      for (const char* type : {"fp16", "bf16", "fp32"}) {
        sets.push_back(std::string(kind) + "_" + type + "_essential");
      }
    }
    auto live = ck_compat::make_live(name, sets, 1, 3);
    if (live->kernels.empty()) {
      throw tessera::Error(
          tessera::ErrorCode::unsupported,
          "target " + live->dispatcher().target().name + " has no kernels for attention");
    }
    fmha_slot.set(std::move(live));
  });
  return outcome == Outcome::done ? 0 : -1;
}

int fmha_dispatcher_run_fwd(const void* q, const void* k, const void* v, void* o, int batch,
                            int nhead_q, int nhead_k, int seqlen_q, int seqlen_k, int hdim_q,
                            int hdim_v, float scale, int mask_type, int bias_type, int has_lse,
                            int has_dropout, int /*traits_hdim_q*/, int /*traits_hdim_v*/,
                            int is_v_rowmajor, int perm, const char* data_type, int is_group_mode,
                            int window_left, int window_right, int has_logits, int has_sink,
                            int has_skip, float* time_ms) {
  FmhaCall call =
      call_of("fwd", data_type, batch, nhead_q, nhead_k, seqlen_q, seqlen_k, hdim_q, hdim_v);
  call.q = q, call.k = k, call.v = v, call.out = o, call.scale = scale;
  call.mask = word_of(kMasks, mask_type), call.bias = word_of(kBiases, bias_type);
  call.lse = has_lse != 0, call.perm = perm != 0, call.groups = is_group_mode != 0;
  call.v_rowmajor = is_v_rowmajor != 0;
  call.p_drop = has_dropout != 0 ? kDropped : 0.0F;
  call.has_window = mask_type == 3, call.window = {window_left, window_right};
  call.soft_cap = has_logits != 0 ? kSoftCap : 0.0F;
  call.sink = has_sink != 0 ? kSinkTokens : 0, call.skip = has_skip != 0 ? 1 : 0;
  return finish(call, time_ms);
}

int fmha_dispatcher_run_bwd(const void* q, const void* k, const void* v, const void* o,
                            const void* lse, const void* d_o, void* dq, void* dk, void* dv,
                            int batch, int nhead_q, int nhead_k, int seqlen_q, int seqlen_k,
                            int hdim_q, int hdim_v, float scale, const char* data_type,
                            int mask_type, int bias_type, int has_dropout, int has_dbias,
                            int is_deterministic, int is_group_mode, int is_store_randval,
                            int /*tile_n0*/, float* time_ms) {
  FmhaCall call =
      call_of("bwd", data_type, batch, nhead_q, nhead_k, seqlen_q, seqlen_k, hdim_q, hdim_v);
  call.q = q, call.k = k, call.v = v, call.out = const_cast<void*>(o), call.scale = scale;
  call.lse_in = lse, call.dout = d_o, call.dq = dq, call.dk = dk, call.dv = dv;
  call.mask = word_of(kMasks, mask_type), call.bias = word_of(kBiases, bias_type);
  call.p_drop = has_dropout != 0 ? kDropped : 0.0F;
  call.dbias = has_dbias != 0, call.deterministic = is_deterministic != 0;
  call.groups = is_group_mode != 0, call.store_random = is_store_randval != 0;
  return finish(call, time_ms);
}

int fmha_dispatcher_run_splitkv(const void* q, const void* k, const void* v, void* o, int batch,
                                int nhead_q, int nhead_k, int seqlen_q, int seqlen_k, int hdim_q,
                                int hdim_v, float scale, int mask_type, int num_splits,
                                int is_v_rowmajor, const char* data_type, int has_lse,
                                int is_group_mode, int perm, int has_logits, int bias_type,
                                int has_sink, int paged_kv, int page_block_size, int window_left,
                                int window_right, float* time_ms) {
  FmhaCall call = call_of("fwd_splitkv", data_type, batch, nhead_q, nhead_k, seqlen_q, seqlen_k,
                          hdim_q, hdim_v);
  call.q = q, call.k = k, call.v = v, call.out = o, call.scale = scale;
  call.mask = word_of(kMasks, mask_type), call.bias = word_of(kBiases, bias_type),
  call.splits = num_splits;
  call.lse = has_lse != 0, call.perm = perm != 0, call.groups = is_group_mode != 0;
  call.v_rowmajor = is_v_rowmajor != 0;
  call.has_window = mask_type == 3, call.window = {window_left, window_right};
  call.soft_cap = has_logits != 0 ? kSoftCap : 0.0F;
  call.sink = has_sink != 0 ? kSinkTokens : 0;
  if (paged_kv != 0) set_pages(call, page_block_size);
  return finish(call, time_ms);
}

int fmha_dispatcher_run_pagedkv(const void* q, const void* k, const void* v, void* o, int batch,
                                int nhead_q, int nhead_k, int seqlen_q, int seqlen_k, int hdim_q,
                                int hdim_v, float scale, int mask_type, int page_block_size,
                                int is_v_rowmajor, const char* data_type, int has_lse,
                                int has_logits, int has_sink, int skip_min_seqlen_q, int bias_type,
                                float* time_ms) {
  FmhaCall call = call_of("fwd_pagedkv", data_type, batch, nhead_q, nhead_k, seqlen_q, seqlen_k,
                          hdim_q, hdim_v);
  call.q = q, call.k = k, call.v = v, call.out = o, call.scale = scale;
  call.mask = word_of(kMasks, mask_type), call.bias = word_of(kBiases, bias_type),
  call.lse = has_lse != 0;
  call.v_rowmajor = is_v_rowmajor != 0;
  call.soft_cap = has_logits != 0 ? kSoftCap : 0.0F;
  call.sink = has_sink != 0 ? kSinkTokens : 0, call.skip = skip_min_seqlen_q;
  set_pages(call, page_block_size);
  return finish(call, time_ms);
}

int fmha_dispatcher_run_appendkv(const void* q, const void* knew, const void* vnew, int batch,
                                 int nhead_q, int nhead_k, int seqlen_q, int seqlen_knew,
                                 int hdim_q, int hdim_v, int is_v_rowmajor, int rope_type,
                                 int paged_kv, int page_block_size, const char* data_type,
                                 float* time_ms) {
  FmhaCall call = call_of("fwd_appendkv", data_type, batch, nhead_q, nhead_k, seqlen_q, seqlen_knew,
                          hdim_q, hdim_v);
  call.q = q, call.k = knew, call.v = vnew;
  call.v_rowmajor = is_v_rowmajor != 0;
  call.rope = word_of(kRopes, rope_type);
  if (paged_kv != 0) set_pages(call, page_block_size);
  return finish(call, time_ms);
}

int fmha_dispatcher_run_batch_prefill(
    const void* q, const void* k, const void* v, void* o, int batch, int nhead_q, int nhead_k,
    int seqlen_q, int seqlen_k, int hdim_q, int hdim_v, float scale, int mask_type, int bias_type,
    int page_block_size, int kv_layout, int kv_lookup, int is_v_rowmajor, const char* data_type,
    int has_lse, int has_dropout, int has_logits, int has_sink, int skip_min_seqlen_q,
    int qscale_type, int verify_fp8, const float* q_descale, const float* k_descale,
    const float* v_descale, float* time_ms) {
  FmhaCall call = call_of("batch_prefill", data_type, batch, nhead_q, nhead_k, seqlen_q, seqlen_k,
                          hdim_q, hdim_v);
  call.q = q, call.k = k, call.v = v, call.out = o, call.scale = scale;
  call.mask = word_of(kMasks, mask_type), call.bias = word_of(kBiases, bias_type),
  call.lse = has_lse != 0;
  call.groups = true, call.perm = false;
  call.vectorized = kv_layout == 0, call.listed = kv_lookup == 0;
  call.v_rowmajor = is_v_rowmajor != 0;
  call.p_drop = has_dropout != 0 ? kDropped : 0.0F;
  call.soft_cap = has_logits != 0 ? kSoftCap : 0.0F;
  call.sink = has_sink != 0 ? kSinkTokens : 0, call.skip = skip_min_seqlen_q;
  call.qscale = word_of(kScales, qscale_type);
  call.verify = verify_fp8 != 0;
  call.descale_q = q_descale, call.descale_k = k_descale, call.descale_v = v_descale;
  set_pages(call, page_block_size);
  return finish(call, time_ms);
}

int fmha_dispatcher_kernel_count() {
  const auto live = fmha_slot.get();
  return live == nullptr ? 0 : static_cast<int>(live->kernels.size());
}

void fmha_dispatcher_cleanup() { fmha_slot.set(nullptr); }
const char* fmha_dispatcher_last_error() { return ck_compat::last_error(); }
const char* fmha_dispatcher_target() {
  return ck_compat::keep(ck_compat::target_text(fmha_slot.get()));
}

}  // extern "C"
