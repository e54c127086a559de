// Attention as programs for the original call it from C++17.
#include <ck_tile/dispatcher_fmha.hpp>

#include <algorithm>
#include <cmath>
#include <random>

#include "check.h"
#include "ck_tile/dispatcher/gpu_buffer.hpp"

using namespace ck_tile::dispatcher;
using utils::GpuBuffer;

DECL_FMHA_KERNEL_SET(forward_set,
                     .add(FmhaSignature().family("fwd").dtype("fp32").mask("no").hdim(128),
                          FmhaAlgorithm().pipeline("qr").tile_m0(128), "gfx942")
                         .add(FmhaSignature().dtype("fp32").mask("causal").lse(true),
                              FmhaAlgorithm())
                         .add(FmhaSignature().dtype("fp32").mode("group"), FmhaAlgorithm()));
DECL_FMHA_KERNEL_SET(gradient_set,
                     .add(FmhaSignature().family("bwd_dot_do_o").dtype("fp32"), FmhaAlgorithm())
                         .add(FmhaSignature().family("bwd_dq_dk_dv").dtype("fp32"),
                              FmhaAlgorithm()));
DECL_FMHA_KERNEL_SET(
    split_set,
    .add(FmhaSignature().family("fwd_splitkv").dtype("fp32").paged_kv(true).lse(), FmhaAlgorithm())
        .add(FmhaSignature().family("fwd_splitkv_combine").dtype("fp32").paged_kv(true).lse(),
             FmhaAlgorithm()));

namespace {

// Sizes of a call, whose tensors are {batch, head, token, element}.
struct Sizes {
  int batch, heads, q, k, d;
};

struct Attention {
  Sizes s;
  std::vector<float> q, k, v;
  std::vector<double> out, lse, weights;

  Attention(const Sizes& sizes, bool is_causal, unsigned seed) : s(sizes) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> draw(-1, 1);
    const auto drawn = [&](int tokens) {
      std::vector<float> made(static_cast<std::size_t>(s.batch * s.heads * tokens * s.d));
      for (float& x : made) x = draw(random);
      return made;
    };
    q = drawn(s.q), k = drawn(s.k), v = drawn(s.k);
    out.resize(q.size());
    for (int row = 0; row < s.batch * s.heads * s.q; ++row) attend(row, is_causal);
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(s.d)); }
  static double at(const std::vector<float>& x, int row, int e, int d) {
    return static_cast<double>(x[static_cast<std::size_t>(row * d + e)]);
  }

 private:
  // The diagonal lies in the first corner.
  void attend(int row, bool is_causal) {
    const int first = row / s.q * s.k;
    std::vector<double> w(static_cast<std::size_t>(s.k));
    double total = 0;
    for (int j = 0; j < s.k; ++j) {
      double score = 0;
      for (int e = 0; e < s.d; ++e) score += at(q, row, e, s.d) * at(k, first + j, e, s.d);
      const bool is_seen = !is_causal || j <= row % s.q;
      total += w[static_cast<std::size_t>(j)] = is_seen ? std::exp(score * scale()) : 0;
    }
    lse.push_back(std::log(total));
    for (int j = 0; j < s.k; ++j) {
      weights.push_back(w[static_cast<std::size_t>(j)] / total);
      for (int e = 0; e < s.d; ++e) {
        out[static_cast<std::size_t>(row * s.d + e)] += weights.back() * at(v, first + j, e, s.d);
      }
    }
  }
};

struct There {
  GpuBuffer<float> data;
  explicit There(const std::vector<float>& host) : data(static_cast<std::int64_t>(host.size())) {
    data.copy_from_host(host.data());
  }
  explicit There(std::size_t count) : There(std::vector<float>(count, 777.0F)) {}
  bool is_near(const std::vector<double>& wanted) {
    std::vector<float> host(wanted.size());
    data.copy_to_host(host.data());
    for (std::size_t i = 0; i < host.size(); ++i) {
      if (!(std::abs(static_cast<double>(host[i]) - wanted[i]) <= 1e-4)) return false;
    }
    return true;
  }
};

template <class Traits>
Traits traits_of(const Sizes& s) {
  Traits t{};
  t.hdim_q = t.hdim_v = s.d, t.data_type = "fp32";
  return t;
}

// Sizes and strides, which all arguments have.
template <class Args>
Args args_of(const Sizes& s) {
  Args a{};
  a.seqlen_q = a.max_seqlen_q = s.q, a.seqlen_k = s.k, a.batch = s.batch;
  a.hdim_q = a.hdim_v = s.d, a.nhead_q = a.nhead_k = s.heads;
  a.stride_q = a.stride_k = a.stride_v = a.stride_o = s.d;
  a.nhead_stride_q = a.nhead_stride_o = s.q * s.d, a.nhead_stride_k = a.nhead_stride_v = s.k * s.d;
  a.batch_stride_q = a.batch_stride_o = s.heads * s.q * s.d;
  a.batch_stride_k = a.batch_stride_v = s.heads * s.k * s.d;
  a.window_size_left = a.window_size_right = -1;
  return a;
}

void forward(bool is_causal, unsigned seed) {
  const Sizes s{2, 3, 5, 9, 8};
  Attention x(s, is_causal, seed);
  FmhaRegistry registry("forward");
  CHECK(registry.register_set(FmhaKernelSetRegistry::instance().get("forward_set")) == 3);
  FmhaDispatcher dispatcher(&registry);
  There q(x.q), k(x.k), v(x.v), out(x.q.size()), lse(x.lse.size());
  auto traits = traits_of<fmha_fwd_traits>(s);
  traits.is_v_rowmajor = true, traits.has_lse = is_causal;
  traits.mask_type = is_causal ? mask_enum::mask_top_left : mask_enum::no_mask;
  auto args = args_of<fmha_fwd_args>(s);
  args.q_ptr = q.data.get(), args.k_ptr = k.data.get(), args.v_ptr = v.data.get();
  args.o_ptr = out.data.get(), args.lse_ptr = lse.data.get(), args.nhead_stride_lse = s.q;
  args.scale_s = static_cast<float>(x.scale());
  if (is_causal) args.window_size_right = 0;
  CHECK(dispatcher.run_fwd(traits, args) == 0);  // no benchmarking
  CHECK(out.is_near(x.out));
  if (is_causal) CHECK(lse.is_near(x.lse));
  x.out[7] += 1;
  CHECK(!out.is_near(x.out));
  dispatcher.set_benchmarking(true);
  dispatcher.set_timing(1, 2);
  CHECK(dispatcher.run_fwd(traits, args) > 0);
  traits.bias_type = bias_enum::alibi;  // which no declaration computes
  CHECK_THROWS(dispatcher.run_fwd(traits, args), NoKernelFound, "no kernels of the registry");
}

// Two sequences one behind the other: heads lie within tokens.
void groups(unsigned seed) {
  const Sizes first{1, 2, 3, 4, 8}, second{1, 2, 5, 6, 8};
  const Attention a(first, false, seed), b(second, false, seed + 1);
  const auto joined = [](const auto& one, const auto& other, int tokens, int more, int d) {
    std::vector<float> made;
    for (const auto& [from, count] : {std::pair(&one, tokens), std::pair(&other, more)}) {
      for (int t = 0; t < count; ++t) {
        for (int h = 0; h < 2; ++h) {
          for (int e = 0; e < d; ++e) {
            made.push_back(
                static_cast<float>((*from)[static_cast<std::size_t>((h * count + t) * d + e)]));
          }
        }
      }
    }
    return made;
  };
  There q(joined(a.q, b.q, 3, 5, 8)), k(joined(a.k, b.k, 4, 6, 8)), v(joined(a.v, b.v, 4, 6, 8));
  const std::vector<float> wanted = joined(a.out, b.out, 3, 5, 8);
  There out(wanted.size());
  GpuBuffer<std::int32_t> starts_q(3), starts_k(3);
  const std::int32_t of_q[] = {0, 3, 8}, of_k[] = {0, 4, 10};
  starts_q.copy_from_host(of_q), starts_k.copy_from_host(of_k);
  FmhaRegistry registry;
  registry.register_set(FmhaKernelSetRegistry::instance().get("forward_set"));
  auto traits = traits_of<fmha_fwd_traits>(first);
  traits.is_v_rowmajor = traits.is_group_mode = true;
  auto args = args_of<fmha_fwd_args>({2, 2, 8, 10, 8});
  args.q_ptr = q.data.get(), args.k_ptr = k.data.get(), args.v_ptr = v.data.get();
  args.o_ptr = out.data.get(), args.seqstart_q_ptr = starts_q.get();
  args.seqstart_k_ptr = starts_k.get(), args.max_seqlen_q = 5;
  args.stride_q = args.stride_k = args.stride_v = args.stride_o = 16;
  args.nhead_stride_q = args.nhead_stride_k = args.nhead_stride_v = args.nhead_stride_o = 8;
  CHECK(FmhaDispatcher(&registry).run_fwd(traits, args) == 0);
  CHECK(out.is_near({wanted.begin(), wanted.end()}));
}

// A cache of pages of 4 tokens in no order, {page, token, head, element}, and lengths of their own.
void pages(unsigned seed) {
  const Sizes s{1, 2, 1, 7, 8};
  const Attention x(s, false, seed);
  std::vector<float> keys(5 * 4 * 2 * 8, 99.0F), values(keys);
  const std::int32_t table[] = {3, 1, 0}, length[] = {7};
  for (int t = 0; t < s.k; ++t) {
    for (int i = 0; i < 16; ++i) {
      const auto from = static_cast<std::size_t>((i / 8 * s.k + t) * 8 + i % 8);
      const auto to = static_cast<std::size_t>((table[t / 4] * 4 + t % 4) * 16 + i);
      keys[to] = x.k[from], values[to] = x.v[from];
    }
  }
  There q(x.q), k(keys), v(values), out(x.q.size()), lse(x.lse.size());
  GpuBuffer<std::int32_t> there_table(3), there_length(1);
  there_table.copy_from_host(table), there_length.copy_from_host(length);
  FmhaRegistry registry;
  CHECK(registry.register_set(FmhaKernelSetRegistry::instance().get("split_set")) == 2);
  auto traits = traits_of<fmha_fwd_splitkv_traits>(s);
  traits.is_v_rowmajor = traits.has_lse = true;
  auto args = args_of<fmha_fwd_splitkv_args>({1, 2, 1, 12, 8});
  args.q_ptr = q.data.get(), args.k_ptr = k.data.get(), args.v_ptr = v.data.get();
  args.o_ptr = out.data.get(), args.lse_ptr = lse.data.get(), args.nhead_stride_lse = 1;
  args.block_table_ptr = there_table.get(), args.batch_stride_block_table = 3;
  args.page_block_size = 4, args.seqlen_k_ptr = there_length.get(), args.num_splits = 2;
  args.stride_k = args.stride_v = 16, args.nhead_stride_k = args.nhead_stride_v = 8;
  args.batch_stride_k = args.batch_stride_v = 64;
  const FmhaDispatcher dispatcher(&registry);
  CHECK(dispatcher.plan(FmhaProblem::from_invocation(FmhaInvocation::make(traits, args)))
            .stages.size() == 2);
  CHECK(dispatcher.run_fwd_splitkv(traits, args) == 0);
  CHECK(out.is_near(x.out) && lse.is_near(x.lse));
}

// dq, dk and dv of sum(out * dout).
void gradients(unsigned seed) {
  const Sizes s{1, 2, 4, 6, 8};
  const Attention x(s, false, seed);
  std::vector<float> dout(x.q.size());
  for (std::size_t i = 0; i < dout.size(); ++i)
    dout[i] = static_cast<float>(std::sin(static_cast<double>(i)));
  std::vector<double> dq(x.q.size()), dk(x.k.size()), dv(x.v.size());
  for (int row = 0; row < s.heads * s.q; ++row) {
    double dot = 0;
    for (int e = 0; e < s.d; ++e) {
      dot += x.out[static_cast<std::size_t>(row * s.d + e)] * Attention::at(dout, row, e, s.d);
    }
    for (int j = 0; j < s.k; ++j) {
      const int key = row / s.q * s.k + j;
      const double w = x.weights[static_cast<std::size_t>(row * s.k + j)];
      double product = 0;
      for (int e = 0; e < s.d; ++e)
        product += Attention::at(dout, row, e, s.d) * Attention::at(x.v, key, e, s.d);
      const double slope = w * (product - dot) * x.scale();
      for (int e = 0; e < s.d; ++e) {
        dq[static_cast<std::size_t>(row * s.d + e)] += slope * Attention::at(x.k, key, e, s.d);
        dk[static_cast<std::size_t>(key * s.d + e)] += slope * Attention::at(x.q, row, e, s.d);
        dv[static_cast<std::size_t>(key * s.d + e)] += w * Attention::at(dout, row, e, s.d);
      }
    }
  }
  There q(x.q), k(x.k), v(x.v), out(std::vector<float>(x.out.begin(), x.out.end())), given(dout);
  There lse(std::vector<float>(x.lse.begin(), x.lse.end()));
  There to_q(dq.size()), to_k(dk.size()), to_v(dv.size());
  FmhaRegistry registry;
  CHECK(registry.register_set(FmhaKernelSetRegistry::instance().get("gradient_set")) == 2);
  auto args = args_of<fmha_bwd_args>(s);
  args.q_ptr = q.data.get(), args.k_ptr = k.data.get(), args.v_ptr = v.data.get();
  args.o_ptr = out.data.get(), args.lse_ptr = lse.data.get(), args.do_ptr = given.data.get();
  args.dq_ptr = to_q.data.get(), args.dk_ptr = to_k.data.get(), args.dv_ptr = to_v.data.get();
  args.scale = static_cast<float>(x.scale()), args.nhead_stride_lsed = s.q;
  args.stride_do = args.stride_dq = args.stride_dk = args.stride_dv = s.d;
  args.nhead_stride_do = args.nhead_stride_dq = s.q * s.d;
  args.nhead_stride_dk = args.nhead_stride_dv = s.k * s.d;
  args.batch_stride_do = args.batch_stride_dq = s.heads * s.q * s.d;
  args.batch_stride_dk = args.batch_stride_dv = s.heads * s.k * s.d;
  auto traits = traits_of<fmha_bwd_traits>(s);
  const FmhaDispatcher dispatcher(&registry);
  CHECK(dispatcher.run_bwd(traits, args) == 0);
  CHECK(to_q.is_near(dq) && to_k.is_near(dk) && to_v.is_near(dv));
  traits.is_deterministic = true;
  CHECK_THROWS(dispatcher.run_bwd(traits, args), NoKernelFound, "family=bwd_dq_dk_dv");
}

void registries() {
  FmhaRegistry registry("mine");
  CHECK(REGISTER_KERNEL_SET("forward_set", registry, "gfx950") == 3);
  CHECK(registry.export_json().find("\"by_family\": {\"fwd\": 3}") != std::string::npos);
  CHECK(!registry.export_json_to_file("/nowhere/x.json"));
  CHECK(registry.lookup(registry.get_all().front()->key()) == registry.get_all().front());
  CHECK(registry.filter_by_arch("gfx942") == 3 && registry.empty());
  registry.register_set(FmhaKernelSet()
                            .add(FmhaSignature().receipt(4), FmhaAlgorithm())
                            .add(FmhaSignature().receipt(2), FmhaAlgorithm()));
  CHECK(registry.available_receipts() == std::vector<int>({2, 4}));
  CHECK(registry.filter_by_receipt(2) == 1 && registry.size() == 1);
  std::vector<FmhaRegistry> several;  // whose growth moves registries
  several.push_back(std::move(registry));
  several.emplace_back("another");
  CHECK(several.front().size() == 1 && several.front().get_name() == "mine");
  CHECK(several.back().empty());
  CHECK_THROWS(kernels_of(FmhaKernelDecl(FmhaSignature().mask("round"), FmhaAlgorithm())),
               DispatcherError, "'round' is none of no, no_mask");
  // Kernels of the machine's own pipelines are exact.
  FmhaRegistry exact("exact");
  exact.register_set(
      FmhaKernelSet().add(FmhaSignature().dtype("fp32"), FmhaAlgorithm().pipeline("*"), ""));
  CHECK(!exact.empty() && exact.get_all().front()->name().find("fmha_") == 0);
  CHECK(!exact.get_all().front()->key().kernel.empty());
}

void problems() {
  const auto plain = [] {
    return FmhaProblemBuilder().data_type("fp32").dims(8, 8, 1, 5, 9).nheads(2, 2);
  };
  CHECK(plain().build().num_ops() == 2ULL * 2 * 5 * 9 * 16);
  CHECK_THROWS(plain().api_family(FmhaApiFamily::Bwd).build(), std::invalid_argument, "lse(true)");
  CHECK_THROWS(FmhaProblemBuilder().build(), std::invalid_argument, "sizes of at least 1");
}

}  // namespace

int main() {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  forward(false, seed);
  forward(true, seed + 1);
  groups(seed + 2);
  pages(seed + 4);
  gradients(seed + 5);
  registries();
  problems();
  return finish("fmha");
}
