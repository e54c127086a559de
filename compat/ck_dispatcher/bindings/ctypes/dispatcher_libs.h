/* The C functions of the CK Tile Dispatcher's libraries, as Tessera provides them.
 *
 * Without TESSERA_TARGET all of them run on this machine's GPU, or else on its CPU;
 * *_last_error() is a sentence about the calling thread's last failure, and *_target() says which
 * target was taken. All functions may be called by several threads at once.
 */
#ifndef TESSERA_COMPAT_DISPATCHER_LIBS_H
#define TESSERA_COMPAT_DISPATCHER_LIBS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CK_API __attribute__((visibility("default")))

/* ---- libdispatcher_gemm_lib.so: A row-major, B column-major, C row-major, in the host's memory */

CK_API int dispatcher_init(void);       /* 0, also when it was done before; -1 error */
CK_API int dispatcher_initialize(void); /* the same */
/* 1 yes; 0 no, a size below 1, or not initialised */
CK_API int dispatcher_is_supported(int64_t M, int64_t N, int64_t K);
/* 0; -1 no kernel, no room, or not initialised */
CK_API int dispatcher_select_kernel(int64_t M, int64_t N, int64_t K, char* name_buffer,
                                    int buffer_size);
/* 0; -1 error; -2 no kernel, *time_ms is -1. time_ms may be null. */
CK_API int dispatcher_run_gemm(const void* A, const void* B, void* C, int64_t M, int64_t N,
                               int64_t K, float* time_ms);
/* Products of unequal sizes in one launch: arrays of `count` sizes and matrices, all in the host's
 * memory. The same results as dispatcher_run_gemm; -2 also where the target has no such kernels. */
CK_API int dispatcher_run_grouped_gemm(int count, const int64_t* Ms, const int64_t* Ns,
                                       const int64_t* Ks, const void* const* A,
                                       const void* const* B, void* const* C, float* time_ms);
CK_API int dispatcher_get_kernel_count(void);
CK_API const char* dispatcher_export_registry_json(void); /* valid until the thread's next call */
CK_API void dispatcher_cleanup(void);
/* The first kernel's shapes: 0, -1 */
CK_API int dispatcher_get_kernel_config(int* tile_m, int* tile_n, int* tile_k, int* warp_tile_m,
                                        int* warp_tile_n, int* warp_tile_k, int* warp_m,
                                        int* warp_n, int* warp_k);
CK_API const char* dispatcher_get_kernel_name(void);
CK_API int dispatcher_get_kernel_name_at(int index, char* buffer, int size); /* 0, -1 */
CK_API const char* dispatcher_last_error(void);
CK_API const char* dispatcher_target(void);

/* ---- libdispatcher_gemm_quant_lib.so: products of 8-bit floats with scales; A row-major,
 * B column-major, C row-major and fp16, in the host's memory. All of them return 0; -1 error;
 * -2 no kernel; -3 no such group of elements with one scale. k_batch changes nothing. Scales are
 * float, those of mx bytes (e8m0). Strides count elements: of rows of A and C, of columns of B, of
 * rows of AQ, and of groups of columns of BQ, whose neighbours lie along K. */

CK_API int dispatcher_quant_initialize(void); /* 0, also when it was done before; -1 error */
CK_API void dispatcher_quant_cleanup(void);
CK_API const char* dispatcher_quant_last_error(void);
/* scale_a is M x K / 32, scale_b is N x K / 32, rounded up */
CK_API int dispatcher_run_mx_gemm(const void* A, const void* B, void* C, const void* scale_a,
                                  const void* scale_b, int64_t M, int64_t N, int64_t K, int k_batch,
                                  float* time_ms);
/* QK_A elements along K of a row of A, QK_B along K of QN_B columns of B share a scale */
CK_API int dispatcher_run_abquant_gemm(const void* A, const void* B, const void* AQ, const void* BQ,
                                       void* C, int64_t M, int64_t N, int64_t K, int64_t stride_A,
                                       int64_t stride_B, int64_t stride_C, int64_t stride_AQ,
                                       int64_t stride_BQ, int64_t QK_A, int64_t QK_B, int64_t QN_B,
                                       int k_batch, float* time_ms);
CK_API int dispatcher_run_aquant_gemm(const void* A, const void* B, const void* AQ, void* C,
                                      int64_t M, int64_t N, int64_t K, int64_t stride_A,
                                      int64_t stride_B, int64_t stride_C, int64_t stride_AQ,
                                      int64_t QK_A, int k_batch, float* time_ms);
CK_API int dispatcher_run_bquant_gemm(const void* A, const void* B, const void* BQ, void* C,
                                      int64_t M, int64_t N, int64_t K, int64_t stride_A,
                                      int64_t stride_B, int64_t stride_C, int64_t stride_BQ,
                                      int64_t QK_B, int64_t QN_B, int k_batch, float* time_ms);
/* AQ has M scales, BQ has N */
CK_API int dispatcher_run_rowcolquant_gemm(const void* A, const void* B, const void* AQ,
                                           const void* BQ, void* C, int64_t M, int64_t N, int64_t K,
                                           int64_t stride_A, int64_t stride_B, int64_t stride_C,
                                           int k_batch, float* time_ms);
/* AQ and BQ have 1 scale each */
CK_API int dispatcher_run_tensorquant_gemm(const void* A, const void* B, const void* AQ,
                                           const void* BQ, void* C, int64_t M, int64_t N, int64_t K,
                                           int64_t stride_A, int64_t stride_B, int64_t stride_C,
                                           int k_batch, float* time_ms);

/* ---- libdispatcher_contraction_lib.so: tensors in the host's memory, without gaps. All of them
 * return 0; -1 error; -2 no kernel. How many dimensions, sources and D tensors there are, and what
 * is done with them, CMake says: DISPATCHER_NUM_DIM_G, _M, _N, _K, DISPATCHER_NUM_A, _B, _D and
 * DISPATCHER_A_OP, _B_OP, _CDE_OP. AddScale adds; its factor is 1. */

CK_API int dispatcher_contraction_initialize(void); /* 0, also when it was done before; -1 error */
CK_API void dispatcher_contraction_cleanup(void);
CK_API const char* dispatcher_contraction_last_error(void);
CK_API int dispatcher_get_num_dim_g(void);
CK_API int dispatcher_get_num_dim_m(void);
CK_API int dispatcher_get_num_dim_n(void);
CK_API int dispatcher_get_num_dim_k(void);
CK_API int dispatcher_get_num_a_tensors(void);
CK_API int dispatcher_get_num_b_tensors(void);
CK_API int dispatcher_get_num_d_tensors(void);
/* A is G... x M... x K..., B is G... x N... x K..., E and the D tensors are G... x M... x N...,
 * of any numbers of dimensions up to 6 of each kind. k_batch changes nothing. Ds is not read where
 * there are no D tensors. */
CK_API int dispatcher_run_batched_contraction(const void* A, const void* B, void* E,
                                              const int64_t* G_dims, int num_g,
                                              const int64_t* M_dims, int num_m,
                                              const int64_t* N_dims, int num_n,
                                              const int64_t* K_dims, int num_k, int k_batch,
                                              float* time_ms, const void* const* Ds);
/* Sources of A are M x K, of B N x K, E and D tensors M x N; all row-major. Sources are merged in
 * fp32 and rounded once. */
CK_API int dispatcher_run_multi_abd_gemm(const void* const* As, const void* const* Bs,
                                         const void* const* Ds, void* E, int64_t M, int64_t N,
                                         int64_t K, float* time_ms);

/* ---- libdispatcher_conv_lib.so: tensors where the kernels run */

/* direction: 0 forward (X, W, Y), 1 backward data (dY, W, dX), 2 backward weight (X, dY, dW) */
typedef struct ConvProblemC {
  int N, G, C, K;
  int input_d, input_h, input_w;
  int filter_z, filter_y, filter_x;
  int stride_d, stride_h, stride_w;
  int pad_d, pad_h, pad_w;
  int dilation_d, dilation_h, dilation_w;
  int direction;
} ConvProblemC;

CK_API int conv_dispatcher_init(void); /* 0, -1 */
CK_API int conv_dispatcher_cleanup(void);
CK_API int conv_dispatcher_is_supported(const ConvProblemC* prob); /* 1, 0 */
CK_API int conv_dispatcher_select_kernel(const ConvProblemC* prob, char* name_buffer,
                                         int buffer_size); /* 0, -1 */
/* Milliseconds, the median of 10 runs after 3; -1 error, -2 no kernel, -3 the problem breaks a rule
 */
CK_API float conv_dispatcher_run(const void* input, const void* weight, void* output,
                                 const ConvProblemC* prob, void* stream);
CK_API int conv_dispatcher_get_kernel_count(void);
CK_API int conv_dispatcher_get_kernel_name(int index, char* buffer, int size); /* 0, -1 */
CK_API const char* conv_dispatcher_version(void);                              /* "1.0.0" */
CK_API int conv_dispatcher_has_kernels(void); /* 1 where there are kernels of the direction */
CK_API int conv_dispatcher_has_bwd_data(void);
CK_API int conv_dispatcher_has_bwd_weight(void);
CK_API const char* conv_dispatcher_last_error(void);
CK_API const char* conv_dispatcher_target(void);

/* ---- libdispatcher_conv_bwdw_lib.so */

typedef struct ConvBwdwProblemC {
  int N, G, C, K;
  int input_d, input_h, input_w;
  int filter_z, filter_y, filter_x;
  int stride_d, stride_h, stride_w;
  int pad_d, pad_h, pad_w;
  int dilation_d, dilation_h, dilation_w;
} ConvBwdwProblemC;

CK_API int conv_bwdw_init(void);
CK_API void conv_bwdw_cleanup(void);
/* As conv_dispatcher_run() */
CK_API float conv_bwdw_run(const void* input, const void* grad_output, void* grad_weight,
                           const ConvBwdwProblemC* prob, void* stream);
CK_API const char* conv_bwdw_version(void);
CK_API int conv_bwdw_has_kernels(void);
CK_API int conv_bwdw_get_kernel_count(void);
CK_API const char* conv_bwdw_last_error(void);

/* ---- libdispatcher_fmha_lib.so: tensors in the host's memory */

/* perm: 1 {batch, head, token, element}, 0 {batch, token, head, element}; functions without it have
 * 1. With is_group_mode the tokens of all sequences, which are equally long, follow each other:
 * {head, token, element} or {token, head, element}. mask_type: 0 none, 1 top-left, 2 bottom-right,
 * 3 window. bias_type: 0 none, 1 elementwise, 2 alibi, of zeros. Dropout is 0.2 with seed 1, the
 * soft cap 30, sinks are 4 tokens, has_skip leaves out sequences of one query, in groups alone.
 * page_block_size <= 0: 64. Families with pages get K and V as the others do, and lay them out in
 * pages that follow each other. tile_n0 and traits_* are not used. Results: 0; -1 not initialised,
 * a null pointer or the machine's failure; -2 no kernel or a problem that breaks a rule. */
CK_API int fmha_dispatcher_initialize(const char* arch); /* null, "" or "native": this machine */
CK_API int fmha_dispatcher_run_fwd(const void* q, const void* k, const void* v, void* o, int batch,
                                   int nhead_q, int nhead_k, int seqlen_q, int seqlen_k, int hdim_q,
                                   int hdim_v, float scale, int mask_type, int bias_type,
                                   int has_lse, int has_dropout, int traits_hdim_q,
                                   int traits_hdim_v, int is_v_rowmajor, int perm,
                                   const char* data_type, int is_group_mode, int window_left,
                                   int window_right, int has_logits, int has_sink, int has_skip,
                                   float* time_ms);
CK_API int fmha_dispatcher_run_bwd(const void* q, const void* k, const void* v, const void* o,
                                   const void* lse, const void* d_o, void* dq, void* dk, void* dv,
                                   int batch, int nhead_q, int nhead_k, int seqlen_q, int seqlen_k,
                                   int hdim_q, int hdim_v, float scale, const char* data_type,
                                   int mask_type, int bias_type, int has_dropout, int has_dbias,
                                   int is_deterministic, int is_group_mode, int is_store_randval,
                                   int tile_n0, float* time_ms);
CK_API int fmha_dispatcher_run_splitkv(const void* q, const void* k, const void* v, void* o,
                                       int batch, int nhead_q, int nhead_k, int seqlen_q,
                                       int seqlen_k, int hdim_q, int hdim_v, float scale,
                                       int mask_type, int num_splits, int is_v_rowmajor,
                                       const char* data_type, int has_lse, int is_group_mode,
                                       int perm, int has_logits, int bias_type, int has_sink,
                                       int paged_kv, int page_block_size, int window_left,
                                       int window_right, float* time_ms);
CK_API int fmha_dispatcher_run_pagedkv(const void* q, const void* k, const void* v, void* o,
                                       int batch, int nhead_q, int nhead_k, int seqlen_q,
                                       int seqlen_k, int hdim_q, int hdim_v, float scale,
                                       int mask_type, int page_block_size, int is_v_rowmajor,
                                       const char* data_type, int has_lse, int has_logits,
                                       int has_sink, int skip_min_seqlen_q, int bias_type,
                                       float* time_ms);
/* rope_type: 0 none, 1 interleaved, 2 half-rotated. The cache is the library's own. */
CK_API int fmha_dispatcher_run_appendkv(const void* q, const void* knew, const void* vnew,
                                        int batch, int nhead_q, int nhead_k, int seqlen_q,
                                        int seqlen_knew, int hdim_q, int hdim_v, int is_v_rowmajor,
                                        int rope_type, int paged_kv, int page_block_size,
                                        const char* data_type, float* time_ms);
/* q and o are {token of all sequences, head, element}, k and v {batch, token, head, element}.
 * kv_layout: 0 vectorized, 1 linear. kv_lookup: 0 a list of pages, 1 a table. qscale_type: 0 none,
 * 1 of the tensors, 2 of blocks, 3 of pages. verify_fp8: compare with the reference. */
CK_API int fmha_dispatcher_run_batch_prefill(
    const void* q, const void* k, const void* v, void* o, int batch, int nhead_q, int nhead_k,
    int seqlen_q, int seqlen_k, int hdim_q, int hdim_v, float scale, int mask_type, int bias_type,
    int page_block_size, int kv_layout, int kv_lookup, int is_v_rowmajor, const char* data_type,
    int has_lse, int has_dropout, int has_logits, int has_sink, int skip_min_seqlen_q,
    int qscale_type, int verify_fp8, const float* q_descale, const float* k_descale,
    const float* v_descale, float* time_ms);
CK_API int fmha_dispatcher_kernel_count(void);
CK_API void fmha_dispatcher_cleanup(void);
CK_API const char* fmha_dispatcher_last_error(void);
CK_API const char* fmha_dispatcher_target(void);

#ifdef __cplusplus
}
#endif

#endif /* TESSERA_COMPAT_DISPATCHER_LIBS_H */
