// OpenBLAS as a peer: cblas_sgemm.
#include <dlfcn.h>
#include <fmt/format.h>

#include <limits>

#include "peers/peers.h"

namespace tessera::peers {
namespace {

// From the CBLAS interface.
constexpr int kRowMajor = 101;
constexpr int kNoTrans = 111;
constexpr int kTrans = 112;

struct BlasFunctions {
  void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                const float* a, int ld_a, const float* b, int ld_b, float beta, float* c, int ld_c);
  void (*set_num_threads)(int);
  const char* (*get_config)();
  const char* (*get_corename)();
};

class OpenBlas : public Peer {
 public:
  OpenBlas(BlasFunctions functions, std::string library)
      : functions_(functions), library_(std::move(library)) {}

  std::string name() const override { return "openblas"; }
  std::string version() const override {
    const std::string_view config = functions_.get_config();  // "OpenBLAS 0.3.21 NO_LAPACKE ..."
    const std::vector<std::string_view> words = split_words(config);
    return fmt::format("{} ({}, {})", words.size() > 1 ? words[1] : config, library_,
                       functions_.get_corename());
  }

  std::vector<PeerCall> calls(const Problem& problem, const Operands& pointers) const override {
    if (op_of(problem) != Op::gemm) return {};
    const GemmProblem p = with_strides(std::get<GemmProblem>(problem));
    const auto& operands = std::get<GemmOperands>(pointers);
    const bool is_fp32 = p.a == DType::fp32 && p.b == DType::fp32 && p.out == DType::fp32;
    constexpr std::int64_t kMax = std::numeric_limits<int>::max();
    const bool fits = std::max({p.m, p.n, p.k, p.ld_a, p.ld_b, p.ld_out}) <= kMax;
    if (!is_fp32 || !fits || num_ops(p.epilogue) > 0 || p.beta != 0 || p.preshuffled_b ||
        p.pointer_arrays) {
      return {};
    }
    auto call = [sgemm = functions_.sgemm, p, operands] {
      const auto* a = static_cast<const float*>(operands.a);
      const auto* b = static_cast<const float*>(operands.b);
      auto* out = static_cast<float*>(operands.out);
      for (std::int64_t i = 0; i < p.batch; ++i) {
        sgemm(kRowMajor, a_is_row_major(p.layout) ? kNoTrans : kTrans,
              b_is_row_major(p.layout) ? kNoTrans : kTrans, static_cast<int>(p.m),
              static_cast<int>(p.n), static_cast<int>(p.k), p.alpha, a + i * p.batch_stride_a,
              static_cast<int>(p.ld_a), b + i * p.batch_stride_b, static_cast<int>(p.ld_b), 0.0F,
              out + i * p.batch_stride_out, static_cast<int>(p.ld_out));
      }
    };
    return {{"openblas", "sgemm", call}};
  }

 private:
  BlasFunctions functions_;
  std::string library_;
};

}  // namespace

std::unique_ptr<Peer> load_openblas(int threads) {
  std::string library;
  void* handle = open_library({"libopenblas.so.0", "libopenblas.so"}, library);
  if (handle == nullptr) return nullptr;
  BlasFunctions functions;
  std::vector<std::string> missing;
  const auto load = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr) missing.emplace_back(name);
  };
  load(functions.sgemm, "cblas_sgemm");
  load(functions.set_num_threads, "openblas_set_num_threads");
  load(functions.get_config, "openblas_get_config");
  load(functions.get_corename, "openblas_get_corename");
  require_functions("openblas", library, missing);
  functions.set_num_threads(threads);
  return std::make_unique<OpenBlas>(functions, library);
}

}  // namespace tessera::peers
