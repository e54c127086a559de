// Random graphs of one product, as hipDNN has them, and what the library says of them.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

#include "hipdnn_expressions.h"
#include "tessera/base/error.h"
#include "tessera/families/family.h"
#include "tessera/families/operations.h"

namespace tessera::hipdnn {

// Up to which sizes and bytes criteria accept.
inline constexpr std::int64_t kMostExact = std::int64_t{1} << 53;
inline constexpr std::int64_t kMostProduct = std::int64_t{1} << 62;

// A tensor as a graph has it, outermost dimension first.
struct GraphTensor {
  std::vector<std::int64_t> dims, strides;
  std::string dtype;
};
struct Graph {
  GraphTensor a, b, c;
  std::string compute;
  int nodes = 1;
};

inline std::string graph_type(DType dtype, const Target& target) {
  return std::string(hipdnn::type_word(dtype, target));
}

inline Environment environment_of(const Graph& graph, const Json& metadata) {
  Environment all = {{"$graph.node_count", graph.nodes},
                     {"$matmul.compute_data_type", graph.compute}};
  const std::pair<std::string, const GraphTensor&> tensors[] = {
      {"$a.", graph.a}, {"$b.", graph.b}, {"$c.", graph.c}};
  for (const auto& [prefix, tensor] : tensors) {
    all[prefix + "rank"] = tensor.dims.size();
    all[prefix + "dtype"] = tensor.dtype;
    for (std::size_t i = 0; i < tensor.dims.size(); ++i) {
      all[fmt::format("{}dims[{}]", prefix, i)] = tensor.dims[i];
      all[fmt::format("{}strides[{}]", prefix, i)] = tensor.strides[i];
    }
  }
  for (const auto& [name, value] : metadata.items()) all["$kernel." + name] = value;
  return all;
}

// The problem that a graph is for kernels of a signature, which say how operands lie; empty when
// it is none that hipDNN would ask the kernel for.
inline std::optional<GemmProblem> problem_of(const Graph& graph, const GemmSignature& s,
                                             const Target& target) {
  const std::size_t rank = graph.a.dims.size();
  if (graph.nodes != 1 || graph.compute != graph_type(s.acc, target)) return {};
  if (rank < 2 || rank > 3 || graph.b.dims.size() != rank || graph.c.dims.size() != rank) return {};
  if (graph.a.dtype != graph_type(s.a, target) || graph.b.dtype != graph_type(s.b, target) ||
      graph.c.dtype != graph_type(s.out, target)) {
    return {};
  }
  const std::size_t row = rank - 2, column = rank - 1;
  GemmProblem p;
  p.a = s.a, p.b = s.b, p.acc = s.acc, p.out = s.out, p.d = s.d, p.layout = s.layout;
  p.m = graph.c.dims[row], p.n = graph.c.dims[column], p.k = graph.a.dims[column];
  p.batch = rank == 3 ? graph.c.dims[0] : 1;
  if (graph.a.dims[row] != p.m || graph.b.dims[column] != p.n || graph.b.dims[row] != p.k)
    return {};
  const auto place = [&](const GraphTensor& tensor, bool by_row, std::int64_t& ld,
                         std::int64_t& apart) {
    ld = tensor.strides[by_row ? row : column];
    const std::int64_t count = rank == 3 ? tensor.dims[0] : 1;
    apart = count == 1 ? 0 : tensor.strides[0];
    return tensor.strides[by_row ? column : row] == 1 && (count == 1 || count == p.batch);
  };
  if (!place(graph.a, a_is_row_major(s.layout), p.ld_a, p.batch_stride_a)) return {};
  if (!place(graph.b, b_is_row_major(s.layout), p.ld_b, p.batch_stride_b)) return {};
  if (!place(graph.c, true, p.ld_out, p.batch_stride_out)) return {};
  if (rank == 3 && graph.c.dims[0] != p.batch) return {};
  return p;
}

// Whether the library runs the kernel on the graph: all that criteria must accept, and no more.
// Nothing empty, and nothing so large that doubles would round it.
inline bool is_wanted(const Graph& graph, const KernelSpec& spec, const Target& target) {
  const auto p = problem_of(graph, std::get<GemmSignature>(spec.signature), target);
  if (!p || std::min({p->m, p->n, p->k, p->batch}) < 1) return false;
  try {
    validate(*p);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    return false;
  }
  __extension__ using Wide = __int128;
  const int widest = std::max({size_of(p->a), size_of(p->b), size_of(p->out)});
  if (Wide{p->m} * p->n * p->k * p->batch * widest > kMostProduct) return false;
  if (std::max({p->ld_a, p->ld_b, p->ld_out}) > kMostExact) return false;
  for (const Tensor& tensor : tensors_of(*p)) {
    if (tensor.bytes() > kMostExact) return false;
  }
  return static_cast<bool>(supports(spec, *p, target));
}

class GraphDraw {
 public:
  GraphDraw(std::uint64_t seed, const Target& target) : random_(seed), target_(target) {}

  std::int64_t between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }
  bool one_in(int count) { return between(1, count) == 1; }
  template <class T>
  const T& any_of(const std::vector<T>& list) {
    return list.at(static_cast<std::size_t>(between(0, std::ssize(list) - 1)));
  }

  // A graph that a kernel of the signature serves, unless its sizes or strides are too large.
  Graph for_signature(const GemmSignature& s) {
    is_large_ = one_in(6);
    const std::int64_t m = size(), n = size(), k = size(), batch = one_in(3) ? between(1, 5) : 1;
    const bool has_batch = batch > 1 || one_in(2);
    Graph graph;
    graph.compute = graph_type(s.acc, target_);
    graph.a = matrix(m, k, a_is_row_major(s.layout), has_batch ? batch : 0, true);
    graph.b = matrix(k, n, b_is_row_major(s.layout), has_batch ? batch : 0, true);
    graph.c = matrix(m, n, true, has_batch ? batch : 0, false);
    graph.a.dtype = graph_type(s.a, target_);
    graph.b.dtype = graph_type(s.b, target_);
    graph.c.dtype = graph_type(s.out, target_);
    return graph;
  }

  // Changes one thing, after which the graph may be another kernel's or nobody's.
  void spoil(Graph& graph) {
    if (one_in(4)) return one_in(2) ? resize(graph) : all_ranks(graph);
    GraphTensor& tensor = *any_of(std::vector<GraphTensor*>{&graph.a, &graph.b, &graph.c});
    const auto i = static_cast<std::size_t>(between(0, std::ssize(tensor.dims) - 1));
    switch (between(0, 9)) {
      case 0:
        tensor.dims[i] += between(-1, 1);
        break;
      case 1:
        tensor.strides[i] += between(-2, 2);
        break;
      case 2:
        tensor.strides[i] = any_of<std::int64_t>({0, 1, -1, kMostExact, far(), far()});
        break;
      case 3:
        tensor.dims[i] = any_of<std::int64_t>({0, 1, -3, far(), far()});
        break;
      case 4:
        std::swap(tensor.strides.back(), tensor.strides[tensor.strides.size() - 2]);
        break;
      case 5:
        tensor.dtype = any_of<std::string>({"FLOAT", "HALF", "BFLOAT16", "INT8"});
        break;
      case 6:
        graph.nodes = 2;
        break;
      case 7:
        graph.compute = any_of<std::string>({"FLOAT", "HALF", "INT32", "UNSET"});
        break;
      default:
        add_dimension(tensor);
        break;
    }
  }

 private:
  std::int64_t far() { return std::int64_t{1} << between(20, 62); }
  // A size of two tensors, which may be none at all then.
  void resize(Graph& graph) {
    const std::int64_t size = one_in(2) ? 0 : far();
    const std::size_t rank = graph.a.dims.size(), row = rank - 2, column = rank - 1;
    switch (between(0, rank == 3 ? 3 : 2)) {
      case 0:
        graph.a.dims[row] = graph.c.dims[row] = size;
        break;
      case 1:
        graph.b.dims[column] = graph.c.dims[column] = size;
        break;
      case 2:
        graph.a.dims[column] = graph.b.dims[row] = size;
        break;
      default:
        graph.a.dims[0] = graph.b.dims[0] = graph.c.dims[0] = size;
        break;
    }
  }
  // Four dimensions, or five.
  void all_ranks(Graph& graph) {
    for (int n = 0; n < 2; ++n) {
      for (GraphTensor* tensor : {&graph.a, &graph.b, &graph.c}) {
        tensor->dims.insert(tensor->dims.end(), 1);
        tensor->strides.insert(tensor->strides.end(), 1);
      }
    }
  }
  std::int64_t size() {
    if (is_large_ && one_in(2)) return (std::int64_t{1} << between(14, 27)) + between(-1, 1);
    if (one_in(12)) return far();
    return one_in(4) ? between(1, 4) : between(1, 700);
  }
  // Saturates, as a product of sizes that no memory holds.
  static std::int64_t times(std::int64_t a, std::int64_t b) {
    std::int64_t product = 0;
    return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::int64_t>::max() / 4
                                                  : std::min(product, kMostExact * 256);
  }
  GraphTensor matrix(std::int64_t rows, std::int64_t columns, bool by_row, std::int64_t batch,
                     bool may_share) {
    GraphTensor tensor;
    const std::int64_t run = by_row ? columns : rows, count = by_row ? rows : columns;
    const std::int64_t ld = run + (one_in(2) ? between(0, 40) : 0);
    tensor.dims = {rows, columns};
    tensor.strides = by_row ? std::vector<std::int64_t>{ld, 1} : std::vector<std::int64_t>{1, ld};
    if (batch == 0) return tensor;
    const bool shared = may_share && one_in(4);
    const bool interleaved = !may_share && one_in(5);
    const std::int64_t apart = interleaved ? run + between(0, 3) : times(count, ld) + between(0, 9);
    if (interleaved) tensor.strides[0] = times(batch, apart) + between(-2, 9);
    tensor.dims.insert(tensor.dims.begin(), shared ? 1 : batch);
    tensor.strides.insert(tensor.strides.begin(), may_share && one_in(6) ? 0 : apart);
    return tensor;
  }
  void add_dimension(GraphTensor& tensor) {
    tensor.dims.insert(tensor.dims.begin(), between(1, 2));
    tensor.strides.insert(tensor.strides.begin(), between(0, 1000));
  }

  std::mt19937_64 random_;
  const Target& target_;
  bool is_large_ = false;
};

inline std::string to_text(const Graph& graph) {
  const auto part = [](const char* name, const GraphTensor& tensor) {
    return fmt::format("{} {} [{}] strides [{}]; ", name, tensor.dtype,
                       fmt::join(tensor.dims, ", "), fmt::join(tensor.strides, ", "));
  };
  return part("a", graph.a) + part("b", graph.b) + part("c", graph.c) +
         fmt::format("sums {}, {} nodes", graph.compute, graph.nodes);
}

}  // namespace tessera::hipdnn
