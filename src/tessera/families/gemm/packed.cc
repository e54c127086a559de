// Kernels for CPUs that multiply packed panels, or operands as they lie (packab, packa, packb,
// direct: src/tessera/device/cpu/gemm/packed_gemm.h), and those that stream one operand past a few
// rows of the other (stream: stream_gemm.h). packed_estimate.cc predicts their times.
#include "tessera/families/gemm/packed.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/families/gemm/amx.h"
#include "tessera/families/gemm/estimate_internal.h"
#include "tessera/families/gemm/extras.h"
#include "tessera/families/gemm/groups.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/families/gemm/rules.h"
#include "tessera/families/gemm/scales.h"
#include "tessera/families/headers.h"
#include "tessera/families/tile/text.h"

namespace tessera::gemm {
namespace {

using Object = tile::CpuObject;
using tile::Instantiation;

constexpr int kStreamBlock = 8;  // rows of A (or columns of B) that stream multiplies at once

// Groups, scales and outputs of another form have drivers of their own, and few rows may share a B.
bool takes_parts(const GemmSignature& s) {
  return s.grouping != GemmGrouping::none || has_scales(s) || has_outputs(s);
}
// Whether a kernel packs an operand into panels. Those that stream B past products of few rows pack
// both for others.
bool has_panels_of_a(const GemmSignature& s, const Algorithm& a) {
  return packs_a(a.pipeline) || (a.pipeline == Pipeline::stream && takes_parts(s));
}
bool has_panels_of_b(const GemmSignature& s, const Algorithm& a) {
  return packs_b(a.pipeline) || (a.pipeline == Pipeline::stream && takes_parts(s));
}

// ---- rules ----

int lanes(const Case& c) { return c.target.vector_bytes / 4; }

std::int64_t accumulators(const Case& c) {
  return std::int64_t{c.algorithm.warp_tile.m} * c.algorithm.warp_tile.n / lanes(c);
}
// The registers for the vectors of B that one row of A multiplies, and for the broadcast element of
// that row.
int operand_registers(const Case& c) { return c.algorithm.warp_tile.n / lanes(c) + 1; }

bool reads_a_in_place(const Case& c) {
  return c.algorithm.pipeline == Pipeline::packb || c.algorithm.pipeline == Pipeline::direct;
}
bool reads_b_in_place(const Case& c) {
  return c.algorithm.pipeline == Pipeline::packa || c.algorithm.pipeline == Pipeline::direct;
}

// An operand can be read in place when its elements are the words that the kernel multiplies.
bool is_word(DType dtype, const Case& c) { return size_of(dtype) * c.algorithm.warp_tile.k == 4; }

// Whether register blocks multiply sums by scales. Otherwise elements take them when packed.
bool scales_sums(const GemmSignature& s, const Algorithm& a) {
  return has_scales(s) && a.warp_tile.k > 1;
}

std::string no_word(const Case& c, char operand, DType dtype) {
  return fmt::format("{} reads {} in place, which must be words of 4 bytes, got {} x {} bytes ({})",
                     to_string(c.algorithm.pipeline), operand, c.algorithm.warp_tile.k,
                     size_of(dtype), to_string(dtype));
}

constexpr Rule kCpu[] = {
    {[](const Case& c) { return c.target.vector_bytes >= 4; },
     [](const Case& c) {
       return fmt::format("the row of a CPU needs vector_bytes of at least 4, {} has {}",
                          c.target.name, c.target.vector_bytes);
     }},
    kUnusedFieldsRule,
    kThreadsRule,
    {[](const Case& c) {
       return c.algorithm.pipeline != Pipeline::stream || takes_parts(c.signature) ||
              (c.algorithm.warp_tile.m == kStreamBlock && c.algorithm.tile.m == kStreamBlock);
     },
     [](const Case& c) {
       return fmt::format(
           "stream multiplies {0} rows at once: tile_m and warp_tile_m must be {0}, got {1} and "
           "{2}",
           kStreamBlock, c.algorithm.tile.m, c.algorithm.warp_tile.m);
     }},
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       return c.algorithm.pipeline != Pipeline::stream || takes_parts(c.signature) ||
              w == Shape3{0, 0, 1} || w == Shape3{};
     },
     [](const Case& c) {
       return fmt::format(
           "stream runs on one thread or on all: wave must be 1x1x1 or 0x0x1, got {}",
           to_string(c.algorithm.wave));
     }},
    {[](const Case& c) { return c.algorithm.warp_tile.n % lanes(c) == 0; },
     [](const Case& c) {
       return fmt::format("warp_tile_n {} is not a multiple of the {} lanes of {}",
                          c.algorithm.warp_tile.n, lanes(c), c.target.name);
     }},
    {[](const Case& c) { return !reads_a_in_place(c) || is_word(c.signature.a, c); },
     [](const Case& c) { return no_word(c, 'A', c.signature.a); }},
    {[](const Case& c) {
       return !reads_a_in_place(c) || c.algorithm.warp_tile.k == 1 ||
              a_is_row_major(c.signature.layout);
     },
     [](const Case& c) {
       return fmt::format("{} reads words of A in place, which must be row-major, got layout {}",
                          to_string(c.algorithm.pipeline), to_string(c.signature.layout));
     }},
    {[](const Case& c) {
       return !reads_b_in_place(c) || (c.algorithm.warp_tile.k == 1 && is_word(c.signature.b, c));
     },
     [](const Case& c) { return no_word(c, 'B', c.signature.b); }},
    {[](const Case& c) { return !reads_b_in_place(c) || b_is_row_major(c.signature.layout); },
     [](const Case& c) {
       return fmt::format("{} reads B in place, which must be row-major, got layout {}",
                          to_string(c.algorithm.pipeline), to_string(c.signature.layout));
     }},
    {[](const Case& c) {
       const Pipeline p = c.algorithm.pipeline;
       return !c.signature.preshuffled_b || p == Pipeline::packab || p == Pipeline::packb;
     },
     [](const Case& c) {
       return fmt::format("a preshuffled B needs packab or packb, got {}",
                          to_string(c.algorithm.pipeline));
     }},
    {[](const Case& c) {
       return find_word_instruction(c.signature, c.algorithm.warp_tile.k, c.target) != nullptr;
     },
     [](const Case& c) {
       return fmt::format("{} has no instruction for {} x {} with {} product{} per lane",
                          c.target.name, to_string(c.signature.a), to_string(c.signature.b),
                          c.algorithm.warp_tile.k, c.algorithm.warp_tile.k == 1 ? "" : "s");
     }},
    {[](const Case& c) {
       return accumulators(c) + operand_registers(c) <= c.target.vector_registers;
     },
     [](const Case& c) {
       return fmt::format(
           "needs {} vector registers ({} x {} / {} accumulators and {} more), {} "
           "has {}",
           accumulators(c) + operand_registers(c), c.algorithm.warp_tile.m, c.algorithm.warp_tile.n,
           lanes(c), operand_registers(c), c.target.name, c.target.vector_registers);
     }},
    kPackedBytesRule<1>,
    {[](const Case& c) {
       return !scales_sums(c.signature, c.algorithm) ||
              c.algorithm.tile.k % elements_of_scale(c.signature) == 0;
     },
     [](const Case& c) {
       return fmt::format(
           "pairs with scales are multiplied block by block: tile_k must be a multiple of {} with "
           "scale_a={} and scale_b={}, got {}",
           elements_of_scale(c.signature), to_string(c.signature.scale_a),
           to_string(c.signature.scale_b), c.algorithm.tile.k);
     }},
    {[](const Case& c) { return !has_scales(c.signature) || c.algorithm.wave.k == 1; },
     [](const Case& c) {
       return fmt::format(
           "threads do not share the k of elements with scales: wave_k must be 1 with scale_a={} "
           "and scale_b={}, got {}",
           to_string(c.signature.scale_a), to_string(c.signature.scale_b), c.algorithm.wave.k);
     }},
};

// ---- algorithms, problems ----

void cpu_variants(const Target&, const Algorithm& shape, std::vector<Algorithm>& all) {
  if (!is_tile_block(shape.warp_tile)) all.push_back(shape);
}

// The first block of the row that packs both operands.
std::optional<Algorithm> first_packed(const GemmSignature& signature, const Target& target) {
  const AlgorithmSpace& space = tile::space_of(Op::gemm, target);
  Algorithm a = {.pipeline = Pipeline::packab, .wave = {0, 0, 1}};
  for (const Shape3& warp_tile : warp_tiles_for(space, signature.a)) {
    for (const Shape3& tile : space.tiles) {
      a.tile = tile;
      a.warp_tile = warp_tile;
      if (is_legal_quick({signature, a, target})) return a;
    }
  }
  return std::nullopt;
}

// The most rows of A that stream supports; stream_gemm.h has room for no more. On machines with few
// registers, blocked kernels are faster from 9 rows on. With more than 8 columns blocked kernels
// are always faster; they read a wide A in place.
int most_stream_rows(const Target& target) {
  return target.vector_registers >= 32 ? 2 * kStreamBlock : kStreamBlock;
}

// Groups have any sizes, of which only the device knows. Their kernels pack B for many rows.
Verdict narrow_serves(const KernelSpec& spec, const GemmProblem& p, const Target& target) {
  if (takes_parts(std::get<GemmSignature>(spec.signature))) return {};
  const int most_rows = most_stream_rows(target);
  const bool is_narrow = p.m <= p.n ? p.m <= most_rows : p.n <= kStreamBlock;
  if (is_narrow) return {};
  return {fmt::format("stream serves m <= {} or n <= {}, the smaller of both, got m={} n={}",
                      most_rows, kStreamBlock, p.m, p.n)};
}

// ---- text ----

std::string config(const KernelSpec& spec, const GemmSignature& s, const CpuTypes& types,
                   const Target& target) {
  const Algorithm& a = spec.algorithm;
  std::string text = "struct Config {\n" + cpu_types_text(s, types.math);
  text += fmt::format(
      "  static constexpr int kAbiVersion = {};\n"
      "  static constexpr int kVectorBytes = {};\n"
      "  static constexpr int kTileM = {}, kTileN = {}, kTileK = {};\n"
      "  static constexpr int kWaveM = {}, kWaveN = {}, kWaveK = {};  // 0: the caller's limit\n"
      "  static constexpr int kWarpTileM = {}, kWarpTileN = {};\n",
      kAbi, target.vector_bytes, a.tile.m, a.tile.n, a.tile.k, a.wave.m, a.wave.n, a.wave.k,
      a.warp_tile.m, a.warp_tile.n);
  text += fmt::format(
      "  static constexpr bool kAKContiguous = {}, kBKContiguous = {};\n"
      "  static constexpr bool kPackA = {}, kPackB = {}, kPreshuffled = {};\n",
      yes_no(a_is_row_major(s.layout)), yes_no(!b_is_row_major(s.layout)),
      yes_no(has_panels_of_a(s, a)), yes_no(has_panels_of_b(s, a)), yes_no(s.preshuffled_b));
  if (has_outputs(s)) text += outputs_text(s);
  if (scales_sums(s, a)) {
    text += fmt::format("  static constexpr int kScaledK = {};\n", elements_of_scale(s));
  }
  return text + tile::epilogue_fields(s.epilogue) + "};\n";
}

std::string_view math_type(const GemmSignature& s, const Algorithm& a) {
  if (biased_side(s.a, a) == BiasedSide::b) return "MathVnniB";
  return tile::math_type(s.a, a.warp_tile.k);
}

// The functions of a driver. Their first parameter is the kernel's shape.
Object driver(std::string_view kind, std::string_view header, const CpuTypes& t,
              const GemmSignature& s, const std::vector<Instantiation>& functions,
              std::string_view second = "") {
  const std::string types =
      fmt::format("OperandTypes<{}, {}, {}, {}, {}>", t.a, t.b, t.math,
                  yes_no(a_is_row_major(s.layout)), yes_no(!b_is_row_major(s.layout)));
  Object object{.header = header, .functions = functions};
  for (Instantiation& f : object.functions) {
    f.arguments = types;
    f.parameters =
        fmt::format("const {}Shape<{}>&{}, const void*{}", kind, types, second, f.parameters);
  }
  return object;
}

Object strip_object(std::string_view type, bool k_contiguous, const CpuTypes& t) {
  return {.header = "stream_strip.h",
          .functions = {{.result = "void",
                         .function = "multiply_strip",
                         .arguments = fmt::format("{}, {}, {}", type, t.math, yes_no(k_contiguous)),
                         .parameters = fmt::format("const StripTask<{}>&", type)}}};
}
std::vector<Object> stream_objects(const CpuTypes& t, const GemmSignature& s) {
  return {driver("Stream", "gemm/stream_gemm.h", t, s,
                 {{"void", "stream_run", "", ", const CpuThread&"},
                  {"i64", "stream_workspace_bytes", "", ", int"}}),
          strip_object(t.a, a_is_row_major(s.layout), t),
          strip_object(t.b, !b_is_row_major(s.layout), t)};
}

// A register block, and a variant that converts its sums to a 16-bit output.
std::vector<Object> block_objects(const KernelSpec& spec, const CpuTypes& t, const GemmSignature& s,
                                  int vector_bytes) {
  const Algorithm& a = spec.algorithm;
  const std::string shape =
      fmt::format("{}, {}, {}", t.math, a.warp_tile.m, a.warp_tile.n * 4 / vector_bytes);
  if (scales_sums(s, a)) {
    return {{"scaled_block.h",
             {{"void", "multiply_scaled",
               fmt::format("{}, {}", shape, elements_of_scale(s) / a.warp_tile.k),
               "const BlockTask&, i64, int"}}}};
  }
  const std::string arguments =
      fmt::format("{}, {}", shape, has_panels_of_a(s, a) ? a.warp_tile.m : 0);
  const std::string_view asks = takes_parts(s) ? ", true" : "";
  std::vector<Object> objects = {{"block.h",
                                  {{"void", "multiply_any", fmt::format("{}{}", arguments, asks),
                                    "const BlockTask&, i64, int"}}}};
  const bool converts = size_of(s.out) == 2 && tile::epilogue_text(s.epilogue).empty();
  if (s.a != DType::int8 && converts && !has_outputs(s)) {
    objects.push_back({"block.h",
                       {{"void", "multiply_block", fmt::format("{}, {}{}", arguments, t.out, asks),
                         "const BlockTask&"}}});
  }
  return objects;
}

std::vector<Object> packed_objects(const KernelSpec& spec, const CpuTypes& t,
                                   const GemmSignature& s, int vector_bytes) {
  constexpr CpuDrivers kBlocked = {"gemm/packed_gemm.h", "gemm/grouped_gemm.h",
                                   "gemm/outputs_gemm.h"};
  constexpr CpuDrivers kFewRows = {"", "gemm/few_rows_gemm.h", "gemm/few_rows_gemm.h", "FewRows"};
  const Algorithm& a = spec.algorithm;
  const bool streams = a.pipeline == Pipeline::stream;
  std::vector<Object> objects = block_objects(spec, t, s, vector_bytes);
  objects.push_back(blocked_driver(streams ? kFewRows : kBlocked, t, s));
  if (streams) objects.push_back(strip_object(t.b, !b_is_row_major(s.layout), t));
  objects.push_back(
      packed_panel("pack.h", "pack_a_panel", t.a,
                   fmt::format("{}, {}, {}, {}, {}", t.a, t.math, a.warp_tile.m,
                               yes_no(has_panels_of_a(s, a)), yes_no(a_is_row_major(s.layout)))));
  objects.push_back(packed_panel("pack.h", "pack_b_panel", t.b,
                                 fmt::format("{}, {}, {}, {}", t.b, t.math, a.warp_tile.n,
                                             yes_no(!b_is_row_major(s.layout)))));
  return objects;
}

Source emit_packed(const KernelSpec& spec, const Target& target) {
  const CpuTypes types = cpu_types(spec);
  const auto& s = std::get<GemmSignature>(spec.signature);
  const CpuTemplate from = has_outputs(s)     ? CpuTemplate{"outputs", "Outputs"}
                           : has_scales(s)    ? CpuTemplate{"scaled", "Scaled"}
                           : has_groups(spec) ? CpuTemplate{"grouped", "Grouped"}
                                              : CpuTemplate{"packed", "Packed"};
  return cpu_source(spec, target, from, types, packed_objects(spec, types, s, target.vector_bytes));
}

Source emit_narrow(const KernelSpec& spec, const Target& target) {
  const CpuTypes types = cpu_types(spec);
  const auto& s = std::get<GemmSignature>(spec.signature);
  if (!takes_parts(s)) {
    return cpu_source(spec, target, {"stream", "Stream"}, types, stream_objects(types, s));
  }
  const CpuTemplate from = has_outputs(s) ? CpuTemplate{"few_rows", "OutputsFewRows"}
                                          : CpuTemplate{"few_rows", "GroupedFewRows"};
  return cpu_source(spec, target, from, types, packed_objects(spec, types, s, target.vector_bytes));
}

// ---- launch ----

// A kernel whose grid of threads is fixed gains nothing from a larger team: waking idle threads and
// waiting for them would take longer than a small problem. A 0 in the grid sets no limit.
int most_threads(const Shape3& wave) {
  const std::int64_t threads = std::int64_t{wave.m} * wave.n * wave.k;
  return static_cast<int>(std::min<std::int64_t>(threads, kMaxThreads));
}

std::int64_t panels_bytes(const KernelSpec& spec, const GemmProblem& p) {
  return cpu_packed_bytes(spec, p, 1);
}

constexpr Way packed_way(Pipeline pipeline) {
  return {.backend = "cpu",
          .pipeline = pipeline,
          .rules = kCpu,
          .emit = emit_packed,
          .bind = bind_cpu,
          .estimate = estimate_packed,
          .own = {.add_variants = cpu_variants,
                  .packed_bytes = panels_bytes,
                  .pack = pack_on_cpu,
                  .bind_groups = bind_groups_on_cpu,
                  .runs_lists = true,
                  .bind_outputs = bind_outputs_on_cpu,
                  .bind_scaled = packs_both(pipeline) ? bind_scaled_on_cpu : nullptr,
                  .packs_a = packs_a(pipeline),
                  .packs_b = packs_b(pipeline)}};
}

constexpr Way general_packed_way() {
  Way way = packed_way(Pipeline::packab);
  way.own.first = first_packed;
  return way;
}

}  // namespace

const Way kPackab = general_packed_way(), kPacka = packed_way(Pipeline::packa),
          kPackb = packed_way(Pipeline::packb), kDirectCpu = packed_way(Pipeline::direct);
const Way kStreamCpu = {.backend = "cpu",
                        .pipeline = Pipeline::stream,
                        .rules = kCpu,
                        .serves = narrow_serves,
                        .emit = emit_narrow,
                        .bind = bind_cpu,
                        .estimate = estimate_few_rows,
                        .own = {.add_variants = cpu_variants,
                                .bind_groups = bind_groups_on_cpu,
                                .runs_lists = true,
                                .bind_outputs = bind_outputs_on_cpu,
                                .streams = true}};

std::string cpu_types_text(const GemmSignature& s, std::string_view math) {
  return fmt::format(
      "  using A = {};\n"
      "  using B = {};\n"
      "  using Out = {};\n"
      "  using D = {};\n"
      "  using Math = {};\n",
      tile::storage_type(s.a), tile::storage_type(s.b), tile::storage_type(s.out),
      tile::storage_type(s.d), math);
}

CpuTypes cpu_types(const KernelSpec& spec) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  return {.a = tile::storage_type(s.a),
          .b = tile::storage_type(s.b),
          .out = tile::storage_type(s.out),
          .math = math_type(s, spec.algorithm)};
}

tile::CpuObject packed_driver(std::string_view header, const CpuTypes& t, const GemmSignature& s) {
  return driver("Packed", header, t, s,
                {{"void", "packed_run", "", ", const CpuThread&"},
                 {"i64", "packed_workspace_bytes", "", ", int"},
                 {"i64", "packed_b_bytes", "", ""},
                 {"void", "packed_b", "", ", void*"}});
}

tile::CpuObject blocked_driver(const CpuDrivers& headers, const CpuTypes& t,
                               const GemmSignature& s) {
  if (has_outputs(s)) {
    return driver(headers.shape, headers.outputs, t, s,
                  {{"void", "outputs_run", "", ", const CpuThread&"},
                   {"i64", "outputs_workspace_bytes", "", ", int"}},
                  ", const OutputsShape&");
  }
  if (has_scales(s)) {
    return driver("Packed", "gemm/scaled_gemm.h", t, s,
                  {{"void", "scaled_run", "", ", const CpuThread&"},
                   {"i64", "scaled_workspace_bytes", "", ", int"}});
  }
  if (s.grouping == GemmGrouping::none) return packed_driver(headers.dense, t, s);
  return driver(headers.shape, headers.grouped, t, s,
                {{"void", "grouped_run", "", ", const CpuThread&"},
                 {"i64", "grouped_workspace_bytes", "", ", int"}});
}

tile::CpuObject packed_panel(std::string_view header, std::string_view function,
                             std::string_view type, std::string arguments) {
  return {.header = header,
          .functions = {{.result = "void",
                         .function = std::string(function),
                         .arguments = std::move(arguments),
                         .parameters = fmt::format("const PanelSource<{}>&, u32*", type)}}};
}

Source cpu_source(const KernelSpec& spec, const Target& target, const CpuTemplate& kernel,
                  const CpuTypes& types, std::span<const tile::CpuObject> objects) {
  const auto& signature = std::get<GemmSignature>(spec.signature);
  return cpu_source_around(config(spec, signature, types, target), spec, kernel, objects);
}

Source cpu_source_around(const std::string& config, const KernelSpec& spec,
                         const CpuTemplate& kernel, std::span<const tile::CpuObject> objects) {
  const std::string name = name_of(spec);
  const bool arranged = std::get<GemmSignature>(spec.signature).arranged;
  const std::string product = fmt::format("{}Kernel<Config>", kernel.name);
  std::string text = banner(spec, "cpu");
  text += fmt::format(
      "{}#include \"tessera/device/cpu/gemm/{}_kernel.h\"\n"
      "\n"
      "namespace {{\n"
      "\n"
      "using namespace tessera::device;\n"
      "\n"
      "{}"
      "\n"
      "}}  // namespace\n"
      "\n"
      "extern \"C\" {{\n"
      "[[gnu::visibility(\"default\")]] extern const CpuKernel {};\n"
      "const CpuKernel {} = {}::kernel();\n"
      "}}\n",
      arranged ? "#include \"tessera/device/cpu/gemm/arranged_kernel.h\"\n" : "", kernel.file,
      config, name, name, arranged ? fmt::format("ArrangedKernel<{}::kernel>", product) : product);
  Source source{.name = name,
                .extension = ".cc",
                .text = std::move(text),
                .headers = {},
                .abi = kAbi,
                .entries = entries_of(spec)};
  tile::add_objects(objects, source);
  source.headers = headers_of(source.text + source.declarations);
  return source;
}

Launch bind_cpu(const KernelSpec& spec, const GemmProblem& p, const Target&,
                const device::GemmArguments& g) {
  Launch launch;
  launch.arguments.set(g);
  launch.max_threads = most_threads(spec.algorithm.wave);
  if (p.m > 0 && p.n > 0 && p.batch > 0) launch.steps.push({});
  return launch;
}

// With numbers to report there is always something to write.
Launch bind_groups_on_cpu(const KernelSpec& spec, const GemmProblem& p, const Target&,
                          const GemmOperands& o) {
  Launch launch;
  launch.arguments.set(group_arguments(p, o));
  launch.max_threads = most_threads(spec.algorithm.wave);
  if (p.check_groups || (p.m > 0 && p.n > 0 && p.groups > 0)) launch.steps.push({});
  return launch;
}

Launch bind_outputs_on_cpu(const KernelSpec& spec, const GemmProblem& p, const Target&,
                           const GemmOperands& o) {
  Launch launch;
  launch.arguments.set(output_arguments(p, o));
  launch.max_threads = most_threads(spec.algorithm.wave);
  const std::int64_t products = has_groups(p) ? p.groups : p.batch;
  if (p.check_groups || (p.m > 0 && p.n > 0 && products > 0)) launch.steps.push({});
  return launch;
}

Launch bind_scaled_on_cpu(const KernelSpec& spec, const GemmProblem& p, const Target&,
                          const GemmOperands& o) {
  Launch launch;
  launch.arguments.set(scaled_arguments(p, o));
  launch.max_threads = most_threads(spec.algorithm.wave);
  const std::int64_t matrices = has_groups(p) ? p.groups : p.batch;
  if (p.check_groups || (p.m > 0 && p.n > 0 && matrices > 0)) launch.steps.push({});
  return launch;
}

// A packed B is panels of warp_tile.n columns, in words of warp_tile.k elements of k, or in rows of
// tiles, which are 16 words. Where A is biased, the panel of each block of k begins with one word
// for each column that undoes the bias. PackedOperands::packed_bytes() in
// src/tessera/device/cpu/gemm/packed_operands.h computes the same size.
std::int64_t cpu_packed_bytes(const KernelSpec& spec, const GemmProblem& p, int words_of_step) {
  const Algorithm& a = spec.algorithm;
  const bool has_starts = biased_side(p.a, a) == BiasedSide::a;
  const std::int64_t words =
      tiles(p.k, a.warp_tile.k) * words_of_step + (has_starts ? tiles(p.k, a.tile.k) : 0);
  return tiles(p.n, a.warp_tile.n) * a.warp_tile.n * words * 4;
}

// The CPU's entry reads B as B and writes the packed B as the output.
Launch pack_on_cpu(const GemmProblem& p, const void* b, void* packed, std::int64_t) {
  Launch launch;
  launch.arguments.set(gemm_arguments(p, {.b = b, .out = packed}));
  launch.steps.push({.entry = kPackEntry});
  launch.max_threads = 1;
  return launch;
}

}  // namespace tessera::gemm
