// How long a kernel for short calls should take: the cycles of one thread's share, counted as
// src/tessera/device/cpu/gemm/small_gemm.h issues its work, and the time to call a team.
#include <algorithm>
#include <cmath>

#include "tessera/families/gemm/estimate_internal.h"
#include "tessera/families/gemm/small.h"

namespace tessera::gemm {
namespace {

// Every constant that is not in the target's row. Provenance: fitted by random search to 1,900
// timings of 400 drawn problems (fp32, bf16 and int8, m 1 to 2048, n and k 16 to 2048, one thread)
// on an AMD Zen 4 server core. The mean error is 2.9%, and the kernel with the least estimate is
// 0.3% slower than the fastest one in the geometric mean. Not fitted: team_share, which puts the
// call from which a second thread pays at the 3 microseconds that were measured, out_share, hidden,
// without which all kernels are alike where reading takes longest, and the cycles of finishing.
// "Cycles" are clock cycles of a core.
struct SmallModel {
  double call_us = 0.026;    // microseconds of a launch on one thread
  double team_share = 0.75;  // of the target's launch_us: teams of short calls still spin
  double jump = 5.9;         // least cycles of a step of k, which may jump to one of its rows
  double block = 39.6;       // cycles to enter and leave a register block
  double panel = 40.2;       // cycles of the driver for a panel
  double transposed = 16.6;  // cycles to transpose four words of a vector of columns
  double interleaved[2] = {0.13, 5.6};  // cycles to interleave a word of a vector: bf16, int8
  double beside = 0.39;          // share of making words that products do not hide, or reverse
  double load[2] = {0.85, 0.9};  // cycles of a load: by rows, along k
  double row = 4.6;              // cycles to copy the end of a row of A
  double summed_row = 5.4;       // of int8: cycles to sum a row of A, and for each of its vectors
  double summed_vector = 0.84;
  double dots = 72.3;             // cycles to enter a block of dot products and to add up its sums
  double dot_load = 2;            // cycles of a load of a block of dot products
  double dot_jump = 8.7;          // least cycles of one of its steps
  double strip[2] = {1.8, 2.53};  // rows in order: cycles of a vector, narrow and wide
  double strip_row = 0.47;        // cycles for each row of B, and for each pair of rows of A
  double strip_call = 34.4;
  double second_row = 0;     // cycles that a second row adds to each vector
  double hidden = 0.1;       // share of the shorter of products and reading that does not hide
  double out_share = 0.75;   // of L2: larger outputs are written to L3
  double finish = 4;         // cycles for each output vector scaled, fused or converted
  double step = 2;           // cycles for each vector and cheap step of an epilogue
  double function = 30;      // cycles for each vector and function of an epilogue
  double finish_block = 60;  // cycles to finish a block
};
constexpr SmallModel kModel;

// The same for 16 registers of 8 lanes. Provenance: fitted in the same way to 618 timings of 160
// drawn problems of fp32 (m 1 to 2048, n and k 16 to 2048, up to 50 microseconds, one thread) on an
// AMD Zen 4 server core that other programs used too; those of rows in order by hand, to 50 more
// problems. The mean error is 17%. On 100 other problems the kernel with the least estimate is 0.4%
// slower than the fastest one in the geometric mean. The other constants are those above.
constexpr SmallModel kFewLanesModel = {
    .jump = 5.6,
    .block = 25.5,
    .panel = 84,
    .transposed = 9.2,
    .beside = 0.52,
    .load = {0.61, 0.57},
    .row = 4.7,
    .dots = 45.4,
    .dot_load = 0.91,
    .dot_jump = 6.1,
    .strip = {1.15, 1.3},
    .strip_row = 0.3,
    .strip_call = 100,
    .second_row = 0.7,
    .hidden = 0.38,
};

struct SmallCase {
  const SmallModel& model;
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

bool is_few(double lanes) { return lanes <= device::kSmallFewLanes; }

// ---- bytes ----

// Cycles to read so many bytes from the level that holds `all` of them.
double read_cycles(const SmallCase& x, double bytes, double all) {
  if (all <= x.l1) return 0;
  return bytes / (all <= x.l2 ? x.l2_rate : x.l3_rate);
}
double b_bytes(const SmallCase& x) { return x.columns * x.words * 4; }
double all_bytes(const SmallCase& x) {
  return b_bytes(x) + x.rows * x.words * 4 + x.rows * x.columns * 4;
}

// ---- register blocks ----

// Cycles of one block of `rows` rows and `vectors` vectors. `source`: cycles to make a word of a
// vector, 0 where words lie in memory; `together`: words that a step takes.
double small_block_cycles(const SmallCase& x, double rows, double vectors, double source,
                          double together) {
  const double products = rows * vectors * together / x.rate;
  const double loads = (rows + vectors) * together * x.model.load[x.along_k ? 1 : 0];
  const double made = vectors * together * source;
  const double step =
      std::max({products, loads, made, x.model.jump}) + x.model.beside * std::min(products, made);
  return x.model.block + blocks(x.words, together) * step;
}

double source_cycles(const SmallCase& x) {
  if (x.along_k) return x.model.transposed / 4;
  return x.per_word == 1 ? 0 : x.model.interleaved[x.per_word == 2 ? 0 : 1];
}

// All rows of a panel.
double small_panel_cycles(const SmallCase& x, int vectors) {
  const int lanes = static_cast<int>(x.lanes);
  const int first = device::small_rows(vectors, x.along_k, lanes);
  const double together = x.along_k || (vectors == 1 && x.per_word == 1) ? 4 : 1;
  const double source = source_cycles(x);
  if (!keeps_panel(x.a)) {
    const double groups = blocks(x.rows, first);
    return groups * small_block_cycles(x, x.rows / groups, vectors, source, together);
  }
  const double few = std::min<double>(x.rows, first);
  const double rest = x.rows - few;
  const double cycles = small_block_cycles(x, few, vectors, source, together);
  if (rest <= 0) return cycles;
  const double groups = blocks(rest, device::small_rows(vectors, false, lanes));
  return cycles + groups * small_block_cycles(x, rest / groups, vectors, 0, vectors == 1 ? 4 : 1);
}

double all_blocks_cycles(const SmallCase& x) {
  const int most = x.a.warp_tile.n / static_cast<int>(x.lanes);
  const double vectors = blocks(x.columns, x.lanes);
  const double panels = blocks(vectors, most);
  const double wide = std::fmod(vectors, panels);  // panels of one vector more than the others
  const auto of_others = static_cast<int>(vectors / panels);
  double cycles = panels * x.model.panel;
  if (wide > 0) cycles += wide * small_panel_cycles(x, of_others + 1);
  cycles += (panels - wide) * small_panel_cycles(x, of_others);
  // B is read once. Where a panel's words are not kept, each further group of rows reads the panel
  // from where it is by then.
  const double again = keeps_panel(x.a) ? 0 : blocks(x.rows, x.a.warp_tile.m) - 1;
  const double panel_bytes = x.words * 4 * x.a.warp_tile.n;
  const double read =
      read_cycles(x, b_bytes(x), all_bytes(x)) + again * read_cycles(x, b_bytes(x), panel_bytes);
  const double out = x.rows * x.columns * size_of(x.p.out);
  const double written = out > x.l2 * x.model.out_share ? out / x.l3_rate : 0;
  return std::max(cycles, read) + x.model.hidden * std::min(cycles, read) + written;
}

// ---- dot products, rows of B in order ----

double all_dots_cycles(const SmallCase& x) {
  const double pieces = blocks(x.columns, x.a.warp_tile.n);
  const double groups = blocks(x.rows, x.a.warp_tile.m);
  const double rows = x.rows / groups;
  // With few lanes all columns of a block are multiplied, also where some are missing.
  const double columns = is_few(x.lanes) ? x.a.warp_tile.n : x.columns / pieces;
  const double loads = (rows + columns) * x.model.dot_load;
  const double step = std::max({rows * columns / x.rate, loads, x.model.dot_jump});
  const double each = x.model.dots + blocks(x.words, x.lanes) * step;
  return std::max(pieces * groups * each, read_cycles(x, b_bytes(x), all_bytes(x)));
}

double all_rows_cycles(const SmallCase& x) {
  const double times = x.rows / x.a.warp_tile.m;
  const int rows = x.a.warp_tile.m;
  const int lanes = static_cast<int>(x.lanes);
  const bool narrow = x.columns <= device::small_stripped_vectors(lanes) * x.lanes;
  const double vector =
      std::max(rows / x.rate, x.model.strip[narrow ? 0 : 1]) + (rows - 1) * x.model.second_row;
  const double each = x.model.strip_call + x.words * blocks(x.columns, x.lanes) * vector +
                      x.words * x.model.strip_row;
  return times * std::max(each, read_cycles(x, b_bytes(x), b_bytes(x)));
}

// ---- around the products ----

double small_finish_cycles(const SmallCase& x) {
  const GemmProblem& p = x.p;
  const bool same = p.acc == p.out || (is_fp32(p.acc) && is_fp32(p.out)) ||
                    (p.a == DType::bf16 && p.out == DType::bf16);
  if (same && num_ops(p.epilogue) == 0 && p.alpha == 1.0F && p.beta == 0) return 0;
  double each = x.model.finish;
  for (int i = 0; i < num_ops(p.epilogue); ++i) {
    const EpilogueOp op = p.epilogue.ops[static_cast<std::size_t>(i)];
    each += tile::is_function(op) ? x.model.function : x.model.step;
  }
  const double groups = blocks(x.rows, x.a.warp_tile.m) * blocks(x.columns, x.a.warp_tile.n);
  return x.rows * blocks(x.columns, x.lanes) * each + groups * x.model.finish_block;
}

double small_row_cycles(const SmallCase& x) {
  const bool has_end = x.p.k * size_of(x.p.a) % device::kSmallEndBytes != 0;
  double each = x.kind == SmallKind::blocks && has_end ? x.model.row : 0;
  if (x.per_word == 4) each += x.model.summed_row + x.words / x.lanes * x.model.summed_vector;
  return x.rows * each;
}

double product_cycles(const SmallCase& x) {
  switch (x.kind) {
    case SmallKind::dots:
      return all_dots_cycles(x);
    case SmallKind::rows:
      return all_rows_cycles(x);
    default:
      return all_blocks_cycles(x);
  }
}

SmallCase case_of(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                  const device::SmallGrid& grid) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const int per_word = std::max(1, words_in_memory(s.a));
  const Instruction* i = find_word_instruction(s, per_word, target);
  return {.model = is_few(target.vector_bytes / 4.0) ? kFewLanesModel : kModel,
          .p = p,
          .a = spec.algorithm,
          .kind = small_kind(spec.algorithm, target),
          .rate = i == nullptr ? 1 : std::max(i->per_cycle, 1e-3),
          .lanes = std::max(1, target.vector_bytes / 4) * 1.0,
          .rows = blocks(static_cast<double>(p.m), grid.m),
          .columns = blocks(static_cast<double>(p.n), grid.n),
          .words = blocks(static_cast<double>(p.k), per_word),
          .per_word = per_word,
          .along_k = !b_is_row_major(s.layout),
          .l1 = level_bytes(target, 0),
          .l2 = level_bytes(target, 1),
          .l2_rate = level_rate(target, 1, 32),
          .l3_rate = level_rate(target, 2, 16)};
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
  const double hertz = busy_hertz(target);
  const double cycles = product_cycles(x) + small_row_cycles(x) + small_finish_cycles(x);
  const double seconds = blocks(static_cast<double>(p.batch), grid.batch) * cycles / hertz;
  const double peak = x.rate * x.lanes * x.per_word * hertz * used;
  const double useful = seconds > 0 ? std::min(1.0, flops_of(p) / 2 / (peak * seconds)) : 1;
  return total_of(seconds, 0, overhead, useful);
}

}  // namespace tessera::gemm
