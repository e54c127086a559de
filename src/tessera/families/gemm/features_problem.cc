// Features that do not depend on the candidate, and the facts that the other features start from.
#include <algorithm>

#include "tessera/base/enums.h"
#include "tessera/families/gemm/estimate_internal.h"
#include "tessera/families/gemm/extras.h"
#include "tessera/families/gemm/features_internal.h"
#include "tessera/families/gemm/groups.h"

namespace tessera::gemm {
namespace {

constexpr double kGpuVectorBytes = 16;  // the widest load of a thread
constexpr double kAlignLimit = 4096;    // bytes; rows at such distances share sets of a cache

double listed_rate(const Target& target, std::size_t level) {
  if (target.caches.empty()) return 1;
  return std::max(1.0, target.caches[std::min(level, target.caches.size() - 1)].bytes_per_cycle);
}

void add_cpu_rates(Facts& f) {
  const Target& target = *f.target;
  const auto signature = std::get<GemmSignature>(signature_of(f.problem));
  const int lanes = std::max(1, target.vector_bytes / 4);
  f.cpu_macs.fill(1);
  for (const int products : {1, 2, 4}) {
    const Instruction* i = find_word_instruction(signature, products, target);
    const double rate = i == nullptr ? 1 : std::max(i->per_cycle, 1e-3) * lanes * products;
    f.cpu_macs[static_cast<std::size_t>(products)] = rate;
  }
}

void add_pipelines(Facts& f) {
  const Target& target = *f.target;
  static constexpr Types::Own kNone;
  f.pipelines.fill({&kNone, f.wide_macs, std::max(1.0, number(target.shared_memory_bytes))});
  for (const Way* way : Types::ways()) {
    if (way->backend != target.backend) continue;
    PipelineFacts& facts = row_of_enum(f.pipelines, "pipeline", way->pipeline);
    facts.own = &way->own;
    if (way->own.by_warp) {
      facts.macs = tile::gpu_macs_per_cycle(f.problem.a, f.problem.b, target, false);
    }
  }
  if (f.machine->estimates_singly) return;  // the shares of such a target's row are CK Tile's
  for (const auto& [pipeline, limit] : target.pipeline_limits) {
    row_of_enum(f.pipelines, "pipeline", pipeline).capacity *=
        std::max(limit.shared_memory_fraction, 1e-3);
  }
}

double best_macs(const Facts& f) {
  if (!f.on_cpu) return f.wide_macs;
  return *std::max_element(f.cpu_macs.begin(), f.cpu_macs.end());
}

// ---- operands ----

// The distance between rows in bytes, and the elements of a row (column-major: of columns).
struct Rows {
  std::int64_t span;
  std::int64_t ld;
  std::int64_t row;
  int size;
};
Rows rows_of_a(const GemmProblem& p) {
  return {p.ld_a * size_of(p.a), p.ld_a, a_is_row_major(p.layout) ? p.k : p.m, size_of(p.a)};
}
Rows rows_of_b(const GemmProblem& p) {
  return {p.ld_b * size_of(p.b), p.ld_b, b_is_row_major(p.layout) ? p.n : p.k, size_of(p.b)};
}
Rows rows_of_out(const GemmProblem& p) {
  return {p.ld_out * size_of(p.out), p.ld_out, p.n, size_of(p.out)};
}

// The largest power of 2 up to `limit` that divides the span; `limit` for a span of 0.
double power_in(std::int64_t span, double limit) {
  if (span == 0) return limit;
  return std::min(number(span & -span), limit);
}

struct RowFeatures {
  std::size_t mod16, align, vector, share, padding;
};
void put_rows(const Rows& rows, double wide, const RowFeatures& to, Broadcast& x) {
  x[to.mod16] = number(rows.span % 16);
  x[to.align] = log2_of(power_in(rows.span, kAlignLimit));
  const double vector = power_in(rows.span, wide);
  x[to.share] = vector / wide;
  x[to.vector] = vector / rows.size;
  x[to.padding] =
      number(std::max<std::int64_t>(rows.ld, 1)) / number(std::max<std::int64_t>(rows.row, 1));
}

void put_operands(const Facts& f, Broadcast& x) {
  const GemmProblem& p = f.problem;
  const double wide =
      f.on_cpu ? std::bit_floor(static_cast<unsigned>(std::max(f.target->vector_bytes, 4)))
               : kGpuVectorBytes;
  put_rows(rows_of_a(p), wide,
           {feature("a_row_mod16"), feature("a_align"), feature("a_vector"),
            feature("a_vector_share"), feature("a_padding")},
           x);
  put_rows(rows_of_b(p), wide,
           {feature("b_row_mod16"), feature("b_align"), feature("b_vector"),
            feature("b_vector_share"), feature("b_padding")},
           x);
  put_rows(rows_of_out(p), wide,
           {feature("out_row_mod16"), feature("out_align"), feature("out_vector"),
            feature("out_vector_share"), feature("out_padding")},
           x);
  x[feature("a_shared")] = flag(p.batch > 1 && p.batch_stride_a == 0);
  x[feature("b_shared")] = flag(p.batch > 1 && p.batch_stride_b == 0);
  x[feature("preshuffled_b")] = flag(p.preshuffled_b);
}

// ---- the problem ----

void put_sizes(const Facts& f, Broadcast& x) {
  x[feature("m")] = f.m;
  x[feature("n")] = f.n;
  x[feature("k")] = f.k;
  x[feature("batch")] = f.batch;
  const double m = log2_of(std::max(f.m, 1.0));
  const double n = log2_of(std::max(f.n, 1.0));
  const double k = log2_of(std::max(f.k, 1.0));
  x[feature("log2_m")] = m;
  x[feature("log2_n")] = n;
  x[feature("log2_k")] = k;
  x[feature("log2_mnk")] = m + n + k;
  x[feature("narrow_side")] = std::min(f.m, f.n);
  x[feature("wide_side")] = std::max(f.m, f.n);
  x[feature("log2_m_over_n")] = m - n;
  x[feature("log2_m_over_k")] = m - k;
  x[feature("log2_n_over_k")] = n - k;
  x[feature("log2_flops")] = log2_of(1 + f.flops);
  x[feature("log2_bytes")] = log2_of(1 + f.bytes);
  x[feature("arithmetic_intensity")] = f.flops / std::max(f.bytes, 1.0);
  x[feature("bytes_over_l2")] = quotient(f.bytes, f.on_cpu ? f.l2 * f.threads : f.l2);
  x[feature("bytes_over_l3")] = quotient(f.bytes, f.l3);
  x[feature("log2_ideal_seconds")] = f.ideal_log2;
}

void put_types(const GemmProblem& p, Broadcast& x) {
  x[feature("layout")] = static_cast<double>(p.layout);
  x[feature("a_row_major")] = flag(a_is_row_major(p.layout));
  x[feature("b_row_major")] = flag(b_is_row_major(p.layout));
  x[feature("a_type")] = static_cast<double>(p.a);
  x[feature("b_type")] = static_cast<double>(p.b);
  x[feature("out_type")] = static_cast<double>(p.out);
  x[feature("acc_is_integer")] = flag(is_integer(p.acc));
  x[feature("a_size")] = size_of(p.a);
  x[feature("b_size")] = size_of(p.b);
  x[feature("out_size")] = size_of(p.out);
}

// Of the problem as it was asked. Without groups and scales all are 0 already.
void put_groups_and_scales(const GemmProblem& p, Broadcast& x) {
  x[feature("grouping")] = static_cast<double>(p.grouping);
  x[feature("groups")] = number(p.groups);
  x[feature("scale_a")] = static_cast<double>(p.scale_a);
  x[feature("scale_b")] = static_cast<double>(p.scale_b);
  x[feature("scale_type")] = static_cast<double>(p.scale_type);
}

void put_epilogue(const GemmProblem& p, Broadcast& x) {
  const auto& ops = p.epilogue.ops;
  const auto uses = d_uses(p.epilogue);
  const auto vectors = std::count_if(uses.begin(), uses.begin() + p.epilogue.num_d,
                                     [](const DUse& use) { return use.is_vector(); });
  x[feature("d_size")] = p.epilogue.num_d > 0 ? size_of(p.d) : 0;
  x[feature("epilogue_steps")] = num_ops(p.epilogue);
  x[feature("epilogue_functions")] =
      number(std::count_if(ops.begin(), ops.end(), tile::is_function));
  x[feature("d_matrices")] = number(p.epilogue.num_d - vectors);
  x[feature("d_vectors")] = number(vectors);
  x[feature("reads_c")] = flag(p.beta != 0);
  x[feature("scales")] = flag(p.alpha != 1);
}

void put_machine(const Facts& f, Broadcast& x) {
  const Target& t = *f.target;
  const double peak = 2 * best_macs(f) * t.clock_ghz * t.units;
  x[feature("hw_units")] = t.units;
  x[feature("hw_threads")] = f.on_cpu ? f.threads : 0;
  x[feature("hw_clock")] = t.clock_ghz;
  x[feature("hw_bandwidth")] = t.memory_gb_per_s;
  x[feature("hw_launch")] = t.launch_us;
  x[feature("hw_shared_kb")] = number(t.shared_memory_bytes) / 1024;
  x[feature("hw_l1_kb")] = f.l1 / 1024;
  x[feature("hw_l2_kb")] = f.l2 / 1024;
  x[feature("hw_l3_kb")] = f.l3 / 1024;
  x[feature("hw_warp_size")] = t.warp_size;
  x[feature("hw_vector_bytes")] = t.vector_bytes;
  x[feature("hw_registers")] = f.on_cpu ? t.vector_registers : t.registers_per_unit;
  x[feature("hw_block_threads")] = t.max_threads_per_block;
  x[feature("hw_peak")] = peak;
  x[feature("hw_balance")] = quotient(peak, t.memory_gb_per_s);
}

}  // namespace

bool asks_for_more(const GemmProblem& p) { return has_groups(p) || has_scales(p); }

Facts facts_of(const GemmProblem& problem, const Target& target, int threads) {
  Facts f;
  f.problem = with_strides(problem);
  if (has_groups(problem)) f.problem = as_batches(f.problem);
  f.asked = &problem;
  f.target = &target;
  f.on_cpu = !is_gpu(target);
  f.machine = &backend_facts(target);
  f.singly = f.machine->estimates_singly || asks_for_more(problem);
  f.threads = units_used(threads, target);
  f.m = number(f.problem.m);
  f.n = number(f.problem.n);
  f.k = number(f.problem.k);
  f.batch = number(f.problem.batch);
  f.flops = flops_of(f.problem);
  f.bytes = bytes_of(f.problem);
  if (!f.on_cpu) {
    f.copied_bytes = copied_bytes(f.problem);
    f.fetch_share = fetch_share(f.problem);
    f.gpu = gpu_case(f.problem, target);
  }
  f.units = std::max(1, f.on_cpu ? f.threads : target.units);
  f.hertz = std::max(target.clock_ghz, 0.1) * 1e9;
  f.bandwidth = std::max(target.memory_gb_per_s, 1.0) * 1e9;
  f.launch_seconds = target.launch_us * 1e-6;
  f.l1 = tile::bytes_of_cache(target, 0);
  f.l2 = tile::bytes_of_cache(target, 1);
  f.l3 = tile::bytes_of_cache(target, 2);
  f.l1_rate = listed_rate(target, 0);
  f.l2_rate = listed_rate(target, 1);
  if (f.on_cpu) {
    add_cpu_rates(f);
  } else {
    f.wide_macs = tile::gpu_macs_per_cycle(f.problem.a, f.problem.b, target, true);
  }
  add_pipelines(f);
  const double peak = 2 * best_macs(f) * f.units * f.hertz;
  f.ideal_log2 = log2_of(std::max({f.flops / peak, f.bytes / f.bandwidth, kLeastSeconds}));
  return f;
}

Broadcast broadcast_of(const Facts& f) {
  Broadcast x{};
  put_sizes(f, x);
  put_types(f.problem, x);
  put_epilogue(f.problem, x);
  if (asks_for_more(*f.asked)) put_groups_and_scales(*f.asked, x);
  put_operands(f, x);
  put_machine(f, x);
  return x;
}

}  // namespace tessera::gemm
