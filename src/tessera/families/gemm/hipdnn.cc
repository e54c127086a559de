// GEMM kernels for AMD GPUs as data for hipDNN: a graph of one node, matmul, whose tensors have two
// dimensions, or three with the batch first.
#include "tessera/families/hipdnn.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/device/hip/gemm/gemm_arguments.h"
#include "tessera/families/gemm/extras.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/families/gemm/ways.h"
#include "tessera/families/tile/mfma.h"

namespace tessera::gemm {
namespace graph {  // whose names are apart from those of the folder's other files
namespace {

using hipdnn::Argument;
using hipdnn::call;
using hipdnn::Formula;
using hipdnn::number;
using hipdnn::Parameter;

// hipDNN computes in doubles, its RFC 0018 in checked integers. Up to here both give the same.
constexpr std::int64_t kMostExact = std::int64_t{1} << 53;
constexpr std::int64_t kMostProduct = std::int64_t{1} << 62;  // which rounding keeps below 2^63

// ---- what a graph says of the problem ----

Formula of(std::string_view reference) { return hipdnn::text(reference); }
Formula kernel(std::string_view field) { return of(fmt::format("$kernel.{}", field)); }

Formula has_batches() { return call("==", {of("$a.rank"), number(3)}); }

// A size or a stride of a tensor's last dimension (0) or the one before (1).
Formula at(std::string_view tensor, std::string_view field, int from_end) {
  return call("if", {has_batches(), of(fmt::format("${}.{}[{}]", tensor, field, 2 - from_end)),
                     of(fmt::format("${}.{}[{}]", tensor, field, 1 - from_end))});
}
Formula size_at(std::string_view tensor, int from_end) { return at(tensor, "dims", from_end); }
Formula stride_at(std::string_view tensor, int from_end) { return at(tensor, "strides", from_end); }

Formula rows() { return size_at("c", 1); }
Formula columns() { return size_at("c", 0); }
Formula depth() { return size_at("a", 0); }
Formula batches(std::string_view tensor) {
  return call("if", {has_batches(), of(fmt::format("${}.dims[0]", tensor)), number(1)});
}
Formula batch() { return batches("c"); }

// A tensor of one batch, which all batches read, has the stride 0.
Formula batch_stride(std::string_view tensor) {
  return call("if", {call("==", {batches(tensor), number(1)}), number(0),
                     of(fmt::format("${}.strides[0]", tensor))});
}

// A matrix as runs of contiguous elements.
struct GraphRuns {
  std::string_view tensor;
  Formula unit;     // the stride within a run
  Formula ld;       // from one run to the next
  Formula row;      // elements of a run
  Formula count;    // of runs in a batch
  Formula element;  // bytes
};
GraphRuns runs_of(std::string_view tensor) {
  const auto pick = [&](Formula row, Formula column) {
    if (tensor == "c") return row;
    return call("if", {kernel(fmt::format("{}_by_row", tensor)), row, column});
  };
  return {.tensor = tensor,
          .unit = pick(stride_at(tensor, 0), stride_at(tensor, 1)),
          .ld = pick(stride_at(tensor, 1), stride_at(tensor, 0)),
          .row = pick(size_at(tensor, 0), size_at(tensor, 1)),
          .count = pick(size_at(tensor, 1), size_at(tensor, 0)),
          .element = kernel(fmt::format("{}_bytes", tensor))};
}

Formula less(const Formula& value, std::int64_t by) { return call("-", {value, number(by)}); }
Formula product(std::initializer_list<Formula> factors) { return call("*", factors); }

// ---- criteria ----

void add_types(std::vector<Formula>& all) {
  all.push_back(call("==", {of("$graph.node_count"), number(1)}));
  all.push_back(call("==", {of("$matmul.compute_data_type"), kernel("acc")}));
  for (const char* const tensor : {"a", "b", "c"}) {
    all.push_back(call("==", {of(fmt::format("${}.dtype", tensor)), kernel(tensor)}));
  }
}

// Sizes agree, and nothing is empty. A batch of a or b may serve all batches.
void add_sizes(std::vector<Formula>& all) {
  all.push_back(call("in", {of("$a.rank"), Formula{"[2, 3]"}}));
  all.push_back(call("==", {of("$b.rank"), of("$a.rank")}));
  all.push_back(call("==", {of("$c.rank"), of("$a.rank")}));
  all.push_back(call("==", {size_at("a", 1), rows()}));
  all.push_back(call("==", {size_at("b", 0), columns()}));
  all.push_back(call("==", {size_at("b", 1), depth()}));
  for (const char* const tensor : {"a", "b"}) {
    all.push_back(call(
        "or", {call("==", {batches(tensor), batch()}), call("==", {batches(tensor), number(1)})}));
  }
  for (const Formula& size : {rows(), columns(), depth(), batch()}) {
    all.push_back(call(">=", {size, number(1)}));
    all.push_back(call("<=", {size, kernel("most_size")}));
  }
}

// Each matrix has contiguous runs, and its last byte lies near enough to be computed. Arithmetic
// that overflows declines the graph.
void add_strides(std::vector<Formula>& all) {
  for (const char* const tensor : {"a", "b", "c"}) {
    const GraphRuns runs = runs_of(tensor);
    all.push_back(call("==", {runs.unit, number(1)}));
    all.push_back(call(">=", {runs.ld, runs.row}));
    all.push_back(call(">=", {batch_stride(tensor), number(0)}));
    const Formula elements = call("+", {product({less(runs.count, 1), runs.ld}), runs.row,
                                        product({less(batch(), 1), batch_stride(tensor)})});
    all.push_back(call("<=", {product({elements, runs.element}), number(kMostExact)}));
  }
  all.push_back(call("<=", {runs_of("a").ld, kernel("most_ld_a")}));
  all.push_back(call("<=", {runs_of("b").ld, kernel("most_ld_b")}));
  all.push_back(call("<=", {runs_of("c").ld, number(kMostExact)}));
}

// Batches of c lie one after the other or interleaved within a row.
Formula batches_lie_apart() {
  const Formula stride = batch_stride("c"), ld = runs_of("c").ld;
  const Formula behind = call("+", {product({less(rows(), 1), ld}), columns()});
  const Formula in_row =
      call(">=", {ld, call("+", {product({less(batch(), 1), stride}), columns()})});
  const Formula interleaved = call("and", {call(">=", {stride, columns()}),
                                           call("or", {call("==", {rows(), number(1)}), in_row})});
  return call("or", {call("==", {batch(), number(1)}), call(">=", {stride, behind}), interleaved});
}

void add_products(std::vector<Formula>& all) {
  const Formula widest = call("max", {kernel("a_bytes"), kernel("b_bytes"), kernel("c_bytes")});
  all.push_back(
      call("<=", {product({widest, rows(), columns(), depth(), batch()}), number(kMostProduct)}));
  const Formula of_m = call("ceil_div", {rows(), kernel("tile_m")});
  const Formula of_n = call("ceil_div", {columns(), kernel("tile_n")});
  all.push_back(call("<=", {product({of_m, of_n, batch()}), kernel("most_tiles")}));
  all.push_back(call("<=", {call("min", {rows(), columns()}), kernel("most_few")}));
}

Formula criteria() {
  std::vector<Formula> all;
  add_types(all);
  add_sizes(all);
  add_strides(all);
  all.push_back(batches_lie_apart());
  add_products(all);
  return hipdnn::all_of(all);
}

// ---- launch ----

// One workgroup for each tile, or fewer that take several. No factor of a product is larger than a
// launch's most workgroups, so that nothing overflows. Streaming kernels have tiles along m or n
// only, whichever is longer.
Formula blocks() {
  const Formula most = kernel("most_blocks");
  const auto capped = [&](const Formula& count) { return call("min", {most, count}); };
  const Formula longer = call("ceil_div", {call("max", {rows(), columns()}), kernel("tile_n")});
  const Formula of_m = call("ceil_div", {rows(), kernel("tile_m")});
  const Formula of_n = call("ceil_div", {columns(), kernel("tile_n")});
  const Formula tiles =
      call("if", {kernel("streams"), longer, product({capped(of_m), capped(of_n)})});
  return capped(product({capped(tiles), capped(batch())}));
}

// A stride of an output with one row or one batch is never used: bind() makes it 0.
Formula unless_one(const Formula& count, const Formula& stride) {
  return call("if", {call("==", {count, number(1)}), number(0), stride});
}
Formula bits_of(float value) { return number(std::bit_cast<std::int32_t>(value)); }

void add_operands(std::vector<Argument>& all) {
  constexpr auto kI64 = Parameter::i64;
  all.insert(all.end(), {{"m", kI64, rows()},
                         {"n", kI64, columns()},
                         {"k", kI64, depth()},
                         {"batch", kI64, batch()},
                         {"a", Parameter::pointer, of("$a")},
                         {"b", Parameter::pointer, of("$b")},
                         {"c", kI64, number(0)}});  // without beta there is no C
  for (const char* const name : {"d0", "d1", "d2", "d3"}) all.push_back({name, kI64, number(0)});
  all.push_back({"out", Parameter::pointer, of("$c")});
}

void add_strides_of_launch(std::vector<Argument>& all) {
  constexpr auto kI64 = Parameter::i64;
  const Formula packed = unless_one(rows(), columns());
  const Formula apart = unless_one(batch(), product({rows(), columns()}));
  all.insert(all.end(), {{"ld_a", kI64, runs_of("a").ld},
                         {"ld_b", kI64, runs_of("b").ld},
                         {"ld_c", kI64, packed},
                         {"ld_out", kI64, unless_one(rows(), runs_of("c").ld)}});
  for (const char* const name : {"ld_d0", "ld_d1", "ld_d2", "ld_d3"}) {
    all.push_back({name, kI64, packed});
  }
  all.insert(all.end(), {{"batch_stride_a", kI64, batch_stride("a")},
                         {"batch_stride_b", kI64, batch_stride("b")},
                         {"batch_stride_c", kI64, apart},
                         {"batch_stride_out", kI64, batch_stride("c")}});
  for (const char* const name :
       {"batch_stride_d0", "batch_stride_d1", "batch_stride_d2", "batch_stride_d3"}) {
    all.push_back({name, kI64, apart});
  }
}

// The fields of HipGemmArguments one by one, in their order. JSON has no infinities, so floats are
// given by their bits.
std::vector<Argument> launch_arguments() {
  constexpr auto kI32 = Parameter::i32;
  const GemmProblem usual;
  std::vector<Argument> all;
  add_operands(all);
  add_strides_of_launch(all);
  all.insert(all.end(), {{"alpha", kI32, bits_of(usual.alpha)},
                         {"beta", kI32, bits_of(usual.beta)},
                         {"clamp_lo", kI32, bits_of(usual.clamp_lo)},
                         {"clamp_hi", kI32, bits_of(usual.clamp_hi)},
                         {"pointer_arrays", kI32, number(0)},
                         {"workspace", Parameter::i64, number(0)},
                         {"partial_sums", Parameter::i64, number(0)},
                         {"partial_bytes", Parameter::i64, number(0)},
                         {"raster_group", kI32, kernel("raster_group")},
                         {"blocks", kI32, blocks()}});
  return all;
}

hipdnn::Engine make_engine() {
  return {.name = "gemm",
          .nodes = R"([{"kind": "op", "id": "matmul", "op": "matmul",
                        "operands": {"a": "$a", "b": "$b"}, "results": {"c": "$c"}}])",
          .fields = {{"kernel", "string"},   {"a", "string"},         {"b", "string"},
                     {"c", "string"},        {"acc", "string"},       {"a_by_row", "bool"},
                     {"b_by_row", "bool"},   {"a_bytes", "int"},      {"b_bytes", "int"},
                     {"c_bytes", "int"},     {"tile_m", "int"},       {"tile_n", "int"},
                     {"streams", "bool"},    {"raster_group", "int"}, {"threads", "int"},
                     {"most_blocks", "int"}, {"most_size", "int"},    {"most_tiles", "int"},
                     {"most_ld_a", "int"},   {"most_ld_b", "int"},    {"most_few", "int"}},
          .criteria = criteria(),
          .blocks = blocks(),
          .threads = kernel("threads"),
          .arguments = launch_arguments()};
}

// ---- kernels ----

Formula truth(bool value) { return {value ? "true" : "false"}; }

// As make_engine() lists the fields.
std::vector<Formula> values_of(const KernelSpec& spec, const Target& target, const Served& served) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  const auto type = [&](DType dtype) { return hipdnn::text(hipdnn::type_word(dtype, target)); };
  const auto most = [](std::int64_t value) { return number(std::min(value, kMostExact)); };
  const bool streams = a.pipeline == Pipeline::stream;
  const int threads = tile::block_lanes(a, target);
  return {hipdnn::text(name_of(spec)),
          type(s.a),
          type(s.b),
          type(s.out),
          type(s.acc),
          truth(a_is_row_major(s.layout)),
          truth(b_is_row_major(s.layout)),
          number(size_of(s.a)),
          number(size_of(s.b)),
          number(size_of(s.out)),
          number(a.tile.m),
          number(a.tile.n),
          truth(streams),
          number(streams ? 0 : kRasterGroup),
          number(threads),
          number(std::numeric_limits<std::uint32_t>::max() / threads),
          most(served.most_size),
          most(served.most_tiles),
          most(served.most_ld_a),
          most(served.most_ld_b),
          most(served.most_few)};
}

std::string_view untold_type(const GemmSignature& s, const Target& target) {
  for (const DType dtype : {s.a, s.b, s.out, s.acc}) {
    if (hipdnn::type_word(dtype, target).empty()) return to_string(dtype);
  }
  return {};
}

// What hipDNN's format cannot say of the kernel; empty: nothing.
std::string cannot_say(const KernelSpec& spec, const Target& target) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  if (const std::string_view type = untold_type(s, target); !type.empty()) {
    return fmt::format("a graph has no word for operands that are multiplied as {}", type);
  }
  if (s.preshuffled_b) return "a graph has no word for a B that was packed ahead for one kernel";
  if (has_scales(s)) return "its graph is one node, matmul, which has no scales of blocks";
  if (has_outputs(s)) {
    return "its graph is one node, matmul, which has no gate, rows by index or quantised output";
  }
  if (s.grouping != GemmGrouping::none) return "a graph has no word for groups of unequal sizes";
  if (s.arranged) return "its graph is one node, matmul, which arranges no operands";
  if (num_ops(s.epilogue) > 0) {
    return fmt::format("its graph is one node, matmul, which has no epilogue, got {}",
                       to_string(s.epilogue));
  }
  if (a.slices > 1 || a.streamk) {
    return fmt::format(
        "it counts in the first {} bytes of a workspace that must be zero, and a dispatch "
        "descriptor has a workspace of any content",
        device::kHipCounterBytes);
  }
  if (a.persistent) {
    return "it has as many workgroups as the device runs at once, which the driver says and no "
           "expression can compute";
  }
  return {};
}

std::string c_type_of(const Argument& argument) {
  switch (argument.type) {
    case Parameter::pointer:
      return "void*";
    case Parameter::i64:
      return "i64";
    case Parameter::i32:
      return "int";
  }
  return {};
}

// The same kernel with the fields of its argument as parameters of their own. Kernels read their
// argument where the launch put it, and the bytes there are the same.
Source with_parameters(Source source, const std::vector<Argument>& arguments) {
  const std::string one = "    HipGemmArguments arguments) {\n  Kernel::run(arguments);\n";
  const std::size_t place = source.text.find(one);
  if (place == std::string::npos) {
    throw Error(ErrorCode::internal,
                fmt::format("{}: its text has no entry with one argument", source.name));
  }
  std::string many;
  for (const Argument& argument : arguments) {
    many +=
        fmt::format("{}    {} {}", many.empty() ? "" : ",\n", c_type_of(argument), argument.name);
  }
  many += ") {\n  Kernel::run(HipGemmArguments{});  // which it reads from the launch itself\n";
  source.text.replace(place, one.size(), many);
  return source;
}

// Few rows, usual layers and large squares.
struct Size {
  std::int64_t m, n, k;
};
constexpr Size kUsualSizes[] = {{1, 4096, 4096},     {4, 4096, 4096},    {16, 4096, 4096},
                                {64, 4096, 11008},   {128, 3072, 768},   {256, 1024, 1024},
                                {512, 512, 512},     {1024, 4096, 1024}, {2048, 2048, 2048},
                                {4096, 11008, 4096}, {8192, 8192, 8192}, {4096, 64, 4096},
                                {50000, 128, 128},   {128, 128, 16384}};

hipdnn::Kernel make_kernel(const KernelSpec& spec, const Target& target) {
  hipdnn::Kernel made;
  const Way* const way = tile::find_way<Types>(spec, target);
  if (way == nullptr || way->own.served == nullptr) {
    made.refusal = fmt::format("{} kernels of {} are not described for it",
                               to_string(spec.algorithm.pipeline), target.name);
    return made;
  }
  made.refusal = cannot_say(spec, target);
  if (!made.refusal.empty()) return made;
  made.values = values_of(spec, target, way->own.served(spec));
  made.source = with_parameters(way->emit(spec, target), launch_arguments());
  const auto& signature = std::get<GemmSignature>(spec.signature);
  for (const Size& size : kUsualSizes) {
    const GemmProblem problem = problem_of(signature, size.m, size.n, size.k);
    if (supports(spec, problem, target)) made.usual.emplace_back(problem);
  }
  return made;
}

}  // namespace
}  // namespace graph

constinit const hipdnn::Export kHipdnn = {.engine = graph::make_engine,
                                          .kernel = graph::make_kernel};

}  // namespace tessera::gemm
