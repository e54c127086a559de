// Kernels for short calls on CPUs: the pipeline `small`
// (src/tessera/device/cpu/gemm/small_kernel.h). small_estimate.cc predicts their times.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tessera/base/forever.h"
#include "tessera/base/text.h"
#include "tessera/families/gemm/packed.h"
#include "tessera/families/gemm/rules.h"
#include "tessera/families/gemm/small.h"
#include "tessera/families/gemm/ways.h"
#include "tessera/families/tile/candidates.h"
#include "tessera/families/tile/objects.h"

namespace tessera::gemm {
namespace {

// ---- shapes ----

constexpr int kKeptRows = 3072;  // rows that share a panel: all of a usual problem

// Sums of dot products: rows by columns that fill the registers.
constexpr Shape3 kDots[] = {{1, 16, 1}, {2, 12, 1}, {3, 8, 1}, {4, 6, 1}};
constexpr Shape3 kFewDots[] = {{1, 8, 1}, {2, 4, 1}, {3, 4, 1}, {4, 3, 1}};  // of 16 registers

int lanes_of(const Target& target) { return std::max(1, target.vector_bytes / 4); }
bool has_few_registers(int lanes) { return lanes <= device::kSmallFewLanes; }

Algorithm shape_of(const Shape3& tile, const Shape3& warp_tile) {
  return {.pipeline = Pipeline::small, .tile = tile, .warp_tile = warp_tile};
}

// Blocks of so many vectors that read B as it lies for each of their rows anew.
Algorithm ceil_div(int vectors, int per_word, bool transposes, int lanes) {
  const Shape3 block = {device::small_rows(vectors, transposes, lanes), vectors * lanes, per_word};
  return shape_of(block, block);
}
// Blocks that keep the words of two vectors in a panel.
Algorithm kept_blocks(int per_word, int lanes) {
  const Shape3 block = {device::small_rows(2, false, lanes), 2 * lanes, per_word};
  return shape_of({kKeptRows, block.n, per_word}, block);
}

std::vector<Algorithm> shapes_along_k(int per_word, int lanes) {
  std::vector<Algorithm> all;
  for (const Shape3& dots : has_few_registers(lanes) ? kFewDots : kDots) {
    const Shape3 block = {dots.m, dots.n, per_word * lanes};
    all.push_back(shape_of(block, block));
  }
  all.push_back(ceil_div(1, per_word, true, lanes));
  if (!has_few_registers(lanes)) all.push_back(ceil_div(2, per_word, true, lanes));
  all.push_back(kept_blocks(per_word, lanes));
  return all;
}

std::vector<Algorithm> shapes_by_rows(int per_word, int lanes) {
  std::vector<Algorithm> all = {ceil_div(2, per_word, false, lanes)};
  if (!has_few_registers(lanes)) all.push_back(ceil_div(4, per_word, false, lanes));
  if (per_word > 1) {
    all.push_back(kept_blocks(per_word, lanes));
    return all;
  }
  all.push_back(ceil_div(3, per_word, false, lanes));
  for (const int rows : {1, 2}) {
    const Shape3 block = {rows, device::small_strip_vectors(rows, lanes) * lanes, 1};
    all.push_back(shape_of(block, block));
  }
  return all;
}

// What names are sorted by.
std::string words_of(const Algorithm& a) {
  return to_string(a.tile) + "_" + to_string(a.wave) + "_" + to_string(a.warp_tile) + "_";
}
bool is_before(const Algorithm& a, const Algorithm& b) { return words_of(a) < words_of(b); }

// Lists for words of 1, 2 and 4 elements, k contiguous or by rows, vectors of 8 or 16 lanes.
constexpr int kMostPerWord = 4;
struct Shapes {
  std::array<std::vector<Algorithm>, (kMostPerWord + 1) * 4> lists;
  static std::size_t index(int per_word, bool by_rows, int lanes) {
    return static_cast<std::size_t>(per_word * 4 + (by_rows ? 2 : 0) + (lanes > 8 ? 1 : 0));
  }
  Shapes() {
    for (const int per_word : {1, 2, kMostPerWord}) {
      for (const int lanes : {8, 16}) {
        lists[index(per_word, false, lanes)] = shapes_along_k(per_word, lanes);
        lists[index(per_word, true, lanes)] = shapes_by_rows(per_word, lanes);
      }
    }
    for (auto& list : lists) std::sort(list.begin(), list.end(), is_before);
  }
};

}  // namespace

int words_in_memory(DType dtype) {
  const bool is_word = is_fp32(dtype) || dtype == DType::bf16 || dtype == DType::int8;
  return is_word ? static_cast<int>(4 / size_of(dtype)) : 0;
}

SmallKind small_kind(const Algorithm& a, const Target& target) {
  const int lanes = lanes_of(target);
  if (a.warp_tile.n > device::kSmallVectors * lanes) return SmallKind::rows;
  return a.warp_tile.n % lanes == 0 && a.warp_tile.k <= 4 ? SmallKind::blocks : SmallKind::dots;
}

const std::vector<Algorithm>& small_shapes(const GemmSignature& s, const Target& target) {
  static const Forever<Shapes> kShapes;
  return kShapes
      ->lists[Shapes::index(words_in_memory(s.a), b_is_row_major(s.layout), lanes_of(target))];
}

namespace {

// Into a list in name order.
void add_small(const OwnQuery& query, std::vector<Algorithm>& all) {
  std::vector<Algorithm> small;
  for (Algorithm a : small_shapes(query.signature, query.target)) {
    for (const Shape3& wave : tile::space_of(Op::gemm, query.target).waves) {
      a.wave = wave;
      if (wave.k == 1) small.push_back(a);
    }
  }
  std::sort(small.begin(), small.end(), is_before);
  small.erase(std::unique(small.begin(), small.end()), small.end());
  const auto behind = std::find_if(all.begin(), all.end(), [](const Algorithm& a) {
    return to_string(a.pipeline) > to_string(Pipeline::small);
  });
  all.insert(behind, small.begin(), small.end());
}

// ---- rules, problems ----

// The vectors that the kernels are written for, and how many of them registers must hold.
constexpr int kFewVectorBytes = 32, kFewRegisters = 16;
constexpr int kManyVectorBytes = 64, kManyRegisters = 32;

int registers_needed(const Target& target) {
  return target.vector_bytes == kFewVectorBytes ? kFewRegisters : kManyRegisters;
}

// The most products of words. Up to here a core takes 0.3 ms, and operands fit into L2; beyond,
// blocked kernels are better and nothing is known of these.
constexpr std::int64_t kMostWordProducts = std::int64_t{1} << 24;
constexpr std::int64_t kMostWords = 4096;  // of k, which is not cut: a row of A stays in L1
constexpr std::int64_t kMostWordsOfB = std::int64_t{1} << 22;  // beyond, memory is what counts
constexpr std::int64_t kMostOutputs = std::int64_t{1} << 19;   // written by panels, not by rows

const Instruction* word_instruction(const Case& c) {
  return find_word_instruction(c.signature, words_in_memory(c.signature.a), c.target);
}

bool shapes_listed(const Case& c) {
  const std::vector<Algorithm>& all = small_shapes(c.signature, c.target);
  return std::any_of(all.begin(), all.end(), [&](const Algorithm& a) {
    return a.tile == c.algorithm.tile && a.warp_tile == c.algorithm.warp_tile;
  });
}
std::string shapes_not_listed(const Case& c) {
  std::vector<std::string> words;
  for (const Algorithm& a : small_shapes(c.signature, c.target)) {
    words.push_back(to_string(a.tile) + "_" + to_string(a.warp_tile));
  }
  return fmt::format("small has these tiles and warp tiles for {} {}: {}, got {}_{}",
                     to_string(c.signature.a), to_string(c.signature.layout), join(words, ", "),
                     to_string(c.algorithm.tile), to_string(c.algorithm.warp_tile));
}

constexpr Rule kSmall[] = {
    {[](const Case& c) {
       const int bytes = c.target.vector_bytes;
       return bytes == kFewVectorBytes || bytes == kManyVectorBytes;
     },
     [](const Case& c) {
       return fmt::format("small is written for vectors of {} or {} bytes, {} has {}",
                          kFewVectorBytes, kManyVectorBytes, c.target.name, c.target.vector_bytes);
     }},
    {[](const Case& c) { return c.target.vector_registers >= registers_needed(c.target); },
     [](const Case& c) {
       return fmt::format("small needs {} registers for vectors of {} bytes, {} has {}",
                          registers_needed(c.target), c.target.vector_bytes, c.target.name,
                          c.target.vector_registers);
     }},
    kUnusedFieldsRule,
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       return w == Shape3{0, 0, 1} || w == Shape3{};
     },
     [](const Case& c) {
       return fmt::format("small runs on one thread or on all: wave must be 1x1x1 or 0x0x1, got {}",
                          to_string(c.algorithm.wave));
     }},
    kNoPreshuffleRule,
    {[](const Case& c) { return a_is_row_major(c.signature.layout); },
     [](const Case& c) {
       return fmt::format("small reads words of A in place, which must be row-major, got layout {}",
                          to_string(c.signature.layout));
     }},
    {[](const Case& c) {
       return words_in_memory(c.signature.a) > 0 && c.signature.a == c.signature.b;
     },
     [](const Case& c) {
       return fmt::format(
           "small multiplies words as they lie in memory: fp32, tf32, bf16 or int8, got {} x {}",
           to_string(c.signature.a), to_string(c.signature.b));
     }},
    {[](const Case& c) { return word_instruction(c) != nullptr; },
     [](const Case& c) {
       const int products = words_in_memory(c.signature.a);
       return fmt::format("{} has no instruction for {} x {} with {} product{} per lane",
                          c.target.name, to_string(c.signature.a), to_string(c.signature.b),
                          products, products == 1 ? "" : "s");
     }},
    {shapes_listed, shapes_not_listed},
};

// One and two rows by rows of fp32 are always faster in order, so that blocks do not serve them.
constexpr std::int64_t kLeastRowsInPlace = 3;

std::string rows_do_not_fit(const Algorithm& a, SmallKind kind, const GemmProblem& p) {
  const int rows = a.warp_tile.m;
  const std::int64_t m = p.m;
  if (kind == SmallKind::blocks) {
    if (m >= kLeastRowsInPlace || !is_fp32(p.a) || !b_is_row_major(p.layout)) return "";
    return fmt::format("small serves m >= {} with blocks of rows of fp32, got m={}",
                       kLeastRowsInPlace, m);
  }
  if (kind == SmallKind::rows && m != rows) {
    return fmt::format("small serves m={} with rows of B in order, got m={}", rows, m);
  }
  if (rows == 3) return m >= 2 ? "" : fmt::format("small serves m >= 2 with 3 rows, got m={}", m);
  if (m % rows == 0) return "";
  return fmt::format("small serves multiples of its {} rows, got m={}", rows, m);
}

Verdict small_serves(const KernelSpec& spec, const GemmProblem& p, const Target& target) {
  const int lanes = target.vector_bytes / 4;
  if (p.m == 0 || p.n == 0 || p.batch == 0) return {};
  if (p.n < lanes) return {fmt::format("small serves n >= {}, got n={}", lanes, p.n)};
  const std::int64_t bytes = p.k * static_cast<std::int64_t>(size_of(p.a));
  if (bytes < device::kSmallEndBytes) {
    return {fmt::format("small reads at least {} bytes of each row of A, got k={}, which are {}",
                        device::kSmallEndBytes, p.k, bytes)};
  }
  const Algorithm& a = spec.algorithm;
  if (std::string why = rows_do_not_fit(a, small_kind(a, target), p); !why.empty()) return {why};
  if (p.m > kMostOutputs / p.n) {
    return {fmt::format("small serves at most {} elements of output, got m={} n={}", kMostOutputs,
                        p.m, p.n)};
  }
  const std::int64_t words = (bytes + 3) / 4;
  if (words > kMostWords) {
    return {fmt::format("small serves at most {} words of k, got k={}, which are {}", kMostWords,
                        p.k, words)};
  }
  if (words > kMostWordsOfB / p.n) {
    return {fmt::format("small serves at most {} words of B, got n={} by {} words of k",
                        kMostWordsOfB, p.n, words)};
  }
  if (words <= kMostWordProducts / (p.m * p.n)) return {};
  return {fmt::format("small serves at most {} products of words, got m={} n={} and {} words of k",
                      kMostWordProducts, p.m, p.n, words)};
}

// ---- text ----

using tile::CpuObject;

std::string_view word_of_kind(SmallKind kind) {
  return kind == SmallKind::blocks ? "blocks" : kind == SmallKind::dots ? "dots" : "rows";
}

std::string small_config(const KernelSpec& spec, const Target& target, std::string_view math) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  std::string text = "struct Config {\n" + cpu_types_text(s, math);
  text += fmt::format(
      "  static constexpr int kAbiVersion = {};\n"
      "  static constexpr int kVectorBytes = {};\n"
      "  static constexpr SmallKind kKind = SmallKind::{};\n"
      "  static constexpr int kTileM = {}, kWarpTileM = {}, kWarpTileN = {};\n"
      "  static constexpr int kWaveM = {}, kWaveN = {};  // 0: the caller's limit\n"
      "  static constexpr bool kBKContiguous = {}, kPreshuffled = false;\n",
      kAbi, target.vector_bytes, word_of_kind(small_kind(a, target)), a.tile.m, a.warp_tile.m,
      a.warp_tile.n, a.wave.m, a.wave.n, yes_no(!b_is_row_major(s.layout)));
  return text + tile::epilogue_fields(s.epilogue) + "};\n";
}

// A driver serves the kernels of one kind, whatever their types.
CpuObject small_driver(SmallKind kind) {
  constexpr std::string_view kArguments = "GemmArguments";
  return {
      .header = "gemm/small_gemm.h",
      .functions = {{"void", fmt::format("small_run_{}", word_of_kind(kind)),
                     std::string(kArguments), "const SmallShape&, const void*, const CpuThread&"}}};
}
CpuObject small_workspace() {
  return {.header = "gemm/small_gemm.h",
          .functions = {{"i64", "small_workspace_bytes", "GemmArguments",
                         "const SmallShape&, const void*, int"}}};
}
CpuObject small_function(std::string_view header, std::string_view function, std::string arguments,
                         std::string_view parameter) {
  return {.header = header,
          .functions = {{"void", std::string(function), std::move(arguments),
                         fmt::format("const {}&", parameter)}}};
}

// The register blocks of panels of so many vectors, as in small_kernel.h.
void add_blocks(const KernelSpec& spec, std::string_view math, int vectors, int lanes,
                std::vector<CpuObject>& objects) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const bool transposes = !b_is_row_major(s.layout);
  const auto add = [&](std::string_view source, bool transposed) {
    objects.push_back(small_function("small_block.h", "small_block",
                                     fmt::format("{}, {}, {}, {}", math, source, vectors,
                                                 device::small_rows(vectors, transposed, lanes)),
                                     "SmallTask"));
  };
  const std::string_view by_rows = words_in_memory(s.a) == 1 ? "PackedWords" : "RowWords";
  add(transposes ? "ColumnWords" : by_rows, transposes);
  if (keeps_panel(spec.algorithm)) add("PackedWords", false);
}

std::vector<CpuObject> small_objects(const KernelSpec& spec, const Target& target,
                                     std::string_view math) {
  const Algorithm& a = spec.algorithm;
  const SmallKind kind = small_kind(a, target);
  std::vector<CpuObject> objects = {small_driver(kind), small_workspace()};
  const int rows = a.warp_tile.m;
  if (kind == SmallKind::blocks) {
    const int lanes = target.vector_bytes / 4;
    for (int vectors = a.warp_tile.n / lanes; vectors > 0; --vectors) {
      add_blocks(spec, math, vectors, lanes, objects);
    }
  } else if (kind == SmallKind::dots) {
    for (const int count : {rows, 2}) {
      if (count == rows || rows == 3) {
        objects.push_back(small_function("small_dots.h", "small_dots",
                                         fmt::format("{}, {}, {}", math, count, a.warp_tile.n),
                                         "SmallDots"));
      }
    }
  } else {
    for (const std::string_view function : {"small_strip", "small_axpy"}) {
      objects.push_back(
          small_function("small_rows.h", function, fmt::format("{}", rows), "SmallRows"));
    }
  }
  if (std::get<GemmSignature>(spec.signature).a == DType::int8) {
    objects.push_back({.header = "row_starts.h",
                       .functions = {{"void", "row_starts", std::string(math),
                                      "const u8*, i64, i64, i64, int*"}}});
  }
  return objects;
}

Source emit_small(const KernelSpec& spec, const Target& target) {
  const DType a = std::get<GemmSignature>(spec.signature).a;
  const std::string_view math = tile::math_type(a, words_in_memory(a));
  return cpu_source_around(small_config(spec, target, math), spec, {"small", "Small"},
                           small_objects(spec, target, math));
}

}  // namespace

const Way kSmallWay = {.backend = "cpu",
                       .pipeline = Pipeline::small,
                       .rules = kSmall,
                       .serves = small_serves,
                       .emit = emit_small,
                       .bind = bind_cpu,
                       .estimate = estimate_small,
                       .own = {.add_own = add_small, .is_described = no_feature_does}};

}  // namespace tessera::gemm
