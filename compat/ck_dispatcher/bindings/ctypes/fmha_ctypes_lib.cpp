// libdispatcher_fmha_lib.so: attention of tensors in the host's memory.
#include "dispatcher_libs.h"
#include "fmha_calls.h"

using ck_compat::FmhaCall;
using ck_compat::Live;
using ck_compat::Outcome;

namespace {

ck_compat::Library fmha_library("fmha_dispatcher_initialize");

int finish(const FmhaCall& call, float* time_ms) {
  const auto live = fmha_library.required();
  if (live == nullptr || live->is_refused()) return -1;
  if (ck_compat::lacks_tensor(call)) {
    ck_compat::set_error("a tensor that the call needs is null");
    return -1;
  }
  double seconds = 0;
  const Outcome outcome =
      ck_compat::guarded([&] { seconds = ck_compat::run_attention(*live, call); });
  if (outcome != Outcome::done) return outcome == Outcome::failed ? -1 : -2;
  if (time_ms != nullptr) *time_ms = static_cast<float>(seconds * 1e3);
  return 0;
}

}  // namespace

extern "C" {

int fmha_dispatcher_initialize(const char* arch) {
  return fmha_library.renew([arch] {
    std::vector<std::string> sets;
    for (const char* kind : {"forward", "backward", "append"}) {
      for (const char* type : {"fp16", "bf16", "fp32"}) {
        sets.push_back(std::string(kind) + "_" + type + "_essential");
      }
    }
    auto live = std::make_shared<Live>(arch == nullptr ? "" : arch, sets, 1, 3);
    if (live->kernels.empty()) {
      throw tessera::Error(tessera::ErrorCode::unsupported,
                           "target " + live->machine->name + " has no kernels for attention");
    }
    return live;
  });
}

int fmha_dispatcher_run_fwd(const void* q, const void* k, const void* v, void* o, int batch,
                            int nhead_q, int nhead_k, int seqlen_q, int seqlen_k, int hdim_q,
                            int hdim_v, float scale, int mask_type, int bias_type, int has_lse,
                            int has_dropout, int /*traits_hdim_q*/, int /*traits_hdim_v*/,
                            int is_v_rowmajor, int perm, const char* data_type, int is_group_mode,
                            int window_left, int window_right, int has_logits, int has_sink,
                            int has_skip, float* time_ms) {
  FmhaCall call("fwd", data_type, {batch, nhead_q, nhead_k, seqlen_q, seqlen_k, hdim_q, hdim_v});
  call.tensors = {{"q", q}, {"k", k}, {"v", v}, {"out", o}};
  call.scale = scale, call.mask = mask_type, call.bias = bias_type, call.lse = has_lse;
  call.dropout = has_dropout, call.logits = has_logits, call.sink = has_sink;
  call.skip = has_skip != 0, call.v_rowmajor = is_v_rowmajor;
  call.perm = perm, call.groups = is_group_mode;
  if (mask_type == 3) call.window = {window_left, window_right};
  return finish(call, time_ms);
}

int fmha_dispatcher_run_bwd(const void* q, const void* k, const void* v, const void* o,
                            const void* lse, const void* d_o, void* dq, void* dk, void* dv,
                            int batch, int nhead_q, int nhead_k, int seqlen_q, int seqlen_k,
                            int hdim_q, int hdim_v, float scale, const char* data_type,
                            int mask_type, int bias_type, int has_dropout, int has_dbias,
                            int is_deterministic, int is_group_mode, int is_store_randval,
                            int /*tile_n0*/, float* time_ms) {
  FmhaCall call("bwd", data_type, {batch, nhead_q, nhead_k, seqlen_q, seqlen_k, hdim_q, hdim_v});
  call.tensors = {{"q", q},      {"k", k},   {"v", v},   {"out", o}, {"lse", lse},
                  {"dout", d_o}, {"dq", dq}, {"dk", dk}, {"dv", dv}};
  call.scale = scale, call.mask = mask_type, call.bias = bias_type, call.dropout = has_dropout;
  call.dbias = has_dbias, call.deterministic = is_deterministic;
  call.groups = is_group_mode, call.store_random = is_store_randval;
  return finish(call, time_ms);
}

int fmha_dispatcher_run_splitkv(const void* q, const void* k, const void* v, void* o, int batch,
                                int nhead_q, int nhead_k, int seqlen_q, int seqlen_k, int hdim_q,
                                int hdim_v, float scale, int mask_type, int num_splits,
                                int is_v_rowmajor, const char* data_type, int has_lse,
                                int is_group_mode, int perm, int has_logits, int bias_type,
                                int has_sink, int paged_kv, int page_block_size, int window_left,
                                int window_right, float* time_ms) {
  FmhaCall call("fwd_splitkv", data_type,
                {batch, nhead_q, nhead_k, seqlen_q, seqlen_k, hdim_q, hdim_v});
  call.tensors = {{"q", q}, {"k", k}, {"v", v}, {"out", o}};
  call.scale = scale, call.mask = mask_type, call.bias = bias_type, call.lse = has_lse;
  call.logits = has_logits, call.sink = has_sink, call.splits = num_splits;
  call.v_rowmajor = is_v_rowmajor, call.perm = perm, call.groups = is_group_mode;
  call.pages = paged_kv, call.page_size = page_block_size;
  if (mask_type == 3) call.window = {window_left, window_right};
  return finish(call, time_ms);
}

int fmha_dispatcher_run_pagedkv(const void* q, const void* k, const void* v, void* o, int batch,
                                int nhead_q, int nhead_k, int seqlen_q, int seqlen_k, int hdim_q,
                                int hdim_v, float scale, int mask_type, int page_block_size,
                                int is_v_rowmajor, const char* data_type, int has_lse,
                                int has_logits, int has_sink, int skip_min_seqlen_q, int bias_type,
                                float* time_ms) {
  FmhaCall call("fwd_pagedkv", data_type,
                {batch, nhead_q, nhead_k, seqlen_q, seqlen_k, hdim_q, hdim_v});
  call.tensors = {{"q", q}, {"k", k}, {"v", v}, {"out", o}};
  call.scale = scale, call.mask = mask_type, call.bias = bias_type, call.lse = has_lse;
  call.logits = has_logits, call.sink = has_sink, call.skip = skip_min_seqlen_q;
  call.v_rowmajor = is_v_rowmajor, call.pages = 1, call.page_size = page_block_size;
  return finish(call, time_ms);
}

int fmha_dispatcher_run_appendkv(const void* q, const void* knew, const void* vnew, int batch,
                                 int nhead_q, int nhead_k, int seqlen_q, int seqlen_knew,
                                 int hdim_q, int hdim_v, int is_v_rowmajor, int rope_type,
                                 int paged_kv, int page_block_size, const char* data_type,
                                 float* time_ms) {
  FmhaCall call("fwd_appendkv", data_type,
                {batch, nhead_q, nhead_k, seqlen_q, seqlen_knew, hdim_q, hdim_v});
  call.tensors = {{"q", q}, {"k_new", knew}, {"v_new", vnew}};
  call.rope = rope_type, call.v_rowmajor = is_v_rowmajor;
  call.pages = paged_kv, call.page_size = page_block_size;
  return finish(call, time_ms);
}

int fmha_dispatcher_run_batch_prefill(
    const void* q, const void* k, const void* v, void* o, int batch, int nhead_q, int nhead_k,
    int seqlen_q, int seqlen_k, int hdim_q, int hdim_v, float scale, int mask_type, int bias_type,
    int page_block_size, int kv_layout, int kv_lookup, int is_v_rowmajor, const char* data_type,
    int has_lse, int has_dropout, int has_logits, int has_sink, int skip_min_seqlen_q,
    int qscale_type, int verify_fp8, const float* q_descale, const float* k_descale,
    const float* v_descale, float* time_ms) {
  FmhaCall call("batch_prefill", data_type,
                {batch, nhead_q, nhead_k, seqlen_q, seqlen_k, hdim_q, hdim_v});
  call.tensors = {{"q", q}, {"k", k}, {"v", v}, {"out", o}};
  call.scale = scale, call.mask = mask_type, call.bias = bias_type, call.lse = has_lse;
  call.dropout = has_dropout, call.logits = has_logits, call.sink = has_sink;
  call.skip = skip_min_seqlen_q, call.v_rowmajor = is_v_rowmajor, call.perm = 0, call.groups = 1;
  call.pages = 1, call.page_size = page_block_size;
  call.cache_layout = kv_layout, call.cache_lookup = kv_lookup;
  call.qscale = qscale_type, call.verify = verify_fp8;
  if (qscale_type != 0) {
    call.tensors.insert(
        {{"descale_q", q_descale}, {"descale_k", k_descale}, {"descale_v", v_descale}});
  }
  return finish(call, time_ms);
}

int fmha_dispatcher_kernel_count() { return fmha_library.kernel_count(); }
void fmha_dispatcher_cleanup() { fmha_library.end(); }
const char* fmha_dispatcher_last_error() { return ck_compat::last_error(); }
const char* fmha_dispatcher_target() { return fmha_library.target(); }

}  // extern "C"
