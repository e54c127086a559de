// How long a kernel for short calls should take: the cycles of one thread's share, counted as
// src/tessera/device/cpu/gemm/small_gemm.h issues its work, and the time to call a team.
#include <algorithm>
#include <cmath>

#include "tessera/families/gemm/estimate_internal.h"
#include "tessera/families/gemm/small_internal.h"

namespace tessera::gemm {
namespace {

struct SmallModel {
  double call_us = 0.04;           // microseconds of a launch on one thread
  double team_share = 0.75;        // of the target's launch_us: teams of short calls still spin
  double jump = 7;                 // least cycles of a step of k, which jumps to one of its rows
  double block = 60;               // cycles to enter and leave a register block
  double panel = 20;               // cycles of the driver for a panel
  double transposed = 14;          // cycles to transpose four words of a vector of columns
  double interleaved[2] = {4, 7};  // cycles to interleave a word of a vector: bf16, int8
  double beside = 0.4;             // share of either that products do not hide
  double kept = 1;                 // cycles to keep a word of a vector in a panel
  double dots = 90;          // cycles to enter a block of dot products, and to add up its lanes
  double load = 0.75;        // cycles of a load of a vector at any address
  double row = 6;            // cycles of the driver for each row of A: ends, sums
  double row_word = 0.3;     // of int8: cycles to sum a vector of a row
  double finish = 4;         // cycles for each output vector scaled, fused or converted
  double step = 2;           // cycles for each vector and cheap step of an epilogue
  double function = 30;      // cycles for each vector and function of an epilogue
  double finish_block = 60;  // cycles to finish a block
  double clock_boost = 1.4;  // clock of a busy core over the clock in the target's row
};
constexpr SmallModel kModel;

struct SmallCase {
  const GemmProblem& p;
  const Algorithm& a;
  SmallKind kind;
  double rate;  // products of vectors in a cycle
  double lanes;
  double rows, columns;  // of a thread's share
  double words;          // of k
  int per_word;
  bool along_k;             // B's k is contiguous
  double l1, l2;            // bytes
  double l2_rate, l3_rate;  // bytes in a cycle
};

double vectors_of(const SmallCase& x) { return blocks(x.columns, x.lanes); }

// ---- bytes ----

// Cycles to read so many bytes from the level that holds `all` of them.
double read_cycles(const SmallCase& x, double bytes, double all) {
  if (all <= x.l1 * 0.75) return 0;
  return bytes / (all <= x.l2 * 0.75 ? x.l2_rate : x.l3_rate);
}
double b_bytes(const SmallCase& x) { return x.columns * x.words * 4; }
double a_bytes(const SmallCase& x) { return x.rows * x.words * 4; }
double all_bytes(const SmallCase& x) { return a_bytes(x) + b_bytes(x) + x.rows * x.columns * 4; }

// ---- register blocks ----

// Cycles of one block of `rows` rows and `vectors` vectors. `source`: cycles to make a word of a
// vector, 0 where words lie in memory; `together`: words that a step takes.
double block_cycles(const SmallCase& x, double rows, double vectors, double source,
                    double together) {
  const double products = rows * vectors * together / x.rate;
  const double loads = (rows + vectors) * together * kModel.load / 2;
  const double made = vectors * together * source;
  const double step =
      std::max({products, loads, made, kModel.jump}) + kModel.beside * std::min(products, made);
  return kModel.block + blocks(x.words, together) * step;
}

double source_cycles(const SmallCase& x) {
  if (x.along_k) return kModel.transposed / 4;
  return x.per_word == 1 ? 0 : kModel.interleaved[x.per_word == 2 ? 0 : 1];
}

// All rows of a panel.
double panel_cycles_of(const SmallCase& x, int vectors) {
  const int first = device::small_rows(vectors, x.along_k);
  const double together = x.along_k || (vectors == 1 && x.per_word == 1) ? 4 : 1;
  const double source = source_cycles(x);
  if (!keeps_panel(x.a)) {
    const double groups = blocks(x.rows, first);
    return groups * block_cycles(x, x.rows / groups, vectors, source, together);
  }
  const double few = std::min<double>(x.rows, first);
  const double rest = x.rows - few;
  double cycles = block_cycles(x, few, vectors, source, together);
  if (rest <= 0) return cycles;
  const double groups = blocks(rest, device::small_rows(vectors, false));
  cycles += x.words * vectors * kModel.kept;
  return cycles + groups * block_cycles(x, rest / groups, vectors, 0, vectors == 1 ? 4 : 1);
}

double blocks_cycles(const SmallCase& x) {
  const int most = x.a.warp_tile.n / static_cast<int>(x.lanes);
  const auto vectors = static_cast<int>(vectors_of(x));
  const int panels = (vectors + most - 1) / most;
  const int wide = vectors % panels;  // panels of one vector more than the others
  double cycles = panels * kModel.panel;
  if (wide > 0) cycles += wide * panel_cycles_of(x, vectors / panels + 1);
  if (panels > wide) cycles += (panels - wide) * panel_cycles_of(x, vectors / panels);
  // B once, or for each group of rows where it is not kept; A for each panel.
  const double again = keeps_panel(x.a) ? 1 : blocks(x.rows, x.a.warp_tile.m);
  cycles += read_cycles(x, b_bytes(x) * again, all_bytes(x));
  return cycles + read_cycles(x, a_bytes(x) * (panels - 1) / 4, a_bytes(x));
}

// ---- dot products, rows of B in order ----

double dots_cycles(const SmallCase& x) {
  const double pieces = blocks(x.columns, x.a.warp_tile.n);
  const double groups = blocks(x.rows, x.a.warp_tile.m);
  const double rows = x.rows / groups, columns = x.columns / pieces;
  const double products = rows * columns / x.rate;
  const double loads = (rows + columns) * kModel.load;
  const double step = std::max({products, loads, kModel.jump});
  const double each = kModel.dots + blocks(x.words, x.lanes) * step;
  return pieces * groups * each + read_cycles(x, b_bytes(x), all_bytes(x));
}

double rows_cycles(const SmallCase& x) {
  const double vectors = vectors_of(x);
  const double rows = x.a.warp_tile.m;
  const double loads = std::max(rows / x.rate, kModel.load * 1.5);
  const double each = kModel.block + x.words * vectors * loads + x.words * 2;
  return x.rows / rows * each + read_cycles(x, b_bytes(x), all_bytes(x));
}

// ---- around the products ----

double finishing_cycles(const SmallCase& x) {
  const GemmProblem& p = x.p;
  const bool same = p.acc == p.out || (is_fp32(p.acc) && is_fp32(p.out)) ||
                    (p.a == DType::bf16 && p.out == DType::bf16);
  if (same && num_ops(p.epilogue) == 0 && p.alpha == 1.0F && p.beta == 0) return 0;
  double each = kModel.finish;
  for (int i = 0; i < num_ops(p.epilogue); ++i) {
    const EpilogueOp op = p.epilogue.ops[static_cast<std::size_t>(i)];
    each += tile::is_function(op) ? kModel.function : kModel.step;
  }
  const double groups = blocks(x.rows, x.a.warp_tile.m) * blocks(x.columns, x.a.warp_tile.n);
  return x.rows * vectors_of(x) * each + groups * kModel.finish_block;
}

double row_cycles(const SmallCase& x) {
  double each = x.kind == SmallKind::blocks ? kModel.row : 0;
  if (x.per_word == 4) each += kModel.row + x.words / x.lanes * kModel.row_word;
  return x.rows * each;
}

double product_cycles(const SmallCase& x) {
  switch (x.kind) {
    case SmallKind::dots:
      return dots_cycles(x);
    case SmallKind::rows:
      return rows_cycles(x);
    default:
      return blocks_cycles(x);
  }
}

double cache_number(const Target& target, std::size_t level, double CacheLevel::*member,
                    double standard) {
  return level < target.caches.size() ? std::max(1.0, target.caches[level].*member) : standard;
}

SmallCase case_of(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                  const device::SmallGrid& grid) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const int per_word = std::max(1, words_in_memory(s.a));
  const Instruction* i = find_word_instruction(s, per_word, target);
  const auto bytes_of_cache = [&](std::size_t level) {
    return level < target.caches.size() ? static_cast<double>(target.caches[level].bytes) : 1e18;
  };
  return {.p = p,
          .a = spec.algorithm,
          .kind = small_kind(spec.algorithm, target),
          .rate = i == nullptr ? 1 : std::max(i->per_cycle, 1e-3),
          .lanes = std::max(1, target.vector_bytes / 4) * 1.0,
          .rows = blocks(static_cast<double>(p.m), grid.m),
          .columns = blocks(static_cast<double>(p.n), grid.n),
          .words = blocks(static_cast<double>(p.k), per_word),
          .per_word = per_word,
          .along_k = !b_is_row_major(s.layout),
          .l1 = bytes_of_cache(0),
          .l2 = bytes_of_cache(1),
          .l2_rate = cache_number(target, 1, &CacheLevel::bytes_per_cycle, 32),
          .l3_rate = cache_number(target, 2, &CacheLevel::bytes_per_cycle, 16)};
}

}  // namespace

Estimate estimate_small(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                        int threads) {
  const int most = spec.algorithm.wave.m == 0 ? threads : 1;
  const device::SmallGrid grid = device::small_grid(p.m, p.n, p.batch, most);
  const int used = grid.batch * grid.m * grid.n;
  const double team = most > 1 ? target.launch_us * kModel.team_share : 0;
  const double overhead = (kModel.call_us + team) * 1e-6;
  if (p.m == 0 || p.n == 0 || p.batch == 0) return total_of(0, 0, overhead, 1);
  const SmallCase x = case_of(spec, p, target, grid);
  const double hertz = std::max(target.clock_ghz, 0.1) * 1e9 * kModel.clock_boost;
  const double cycles = product_cycles(x) + row_cycles(x) + finishing_cycles(x);
  const double seconds = blocks(static_cast<double>(p.batch), grid.batch) * cycles / hertz;
  const double peak = x.rate * x.lanes * x.per_word * hertz * used;
  const double useful = seconds > 0 ? std::min(1.0, flops_of(p) / 2 / (peak * seconds)) : 1;
  return total_of(seconds, 0, overhead, useful);
}

}  // namespace tessera::gemm
