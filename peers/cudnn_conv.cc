#include "peers/cudnn_conv.h"

#include <array>

#include "peers/conv_tensors.h"

namespace tessera::peers::cudnn {
namespace {

struct OperationRow {
  Kind kind;
  Attribute alpha;  // beta, convolution, w, x and y follow
};
// By direction.
constexpr std::array kOperations = {
    OperationRow{Kind::forward, Attribute::forward_alpha},
    OperationRow{Kind::backward_data, Attribute::backward_data_alpha},
    OperationRow{Kind::backward_weight, Attribute::backward_weight_alpha}};

// Where x, w and y lie.
std::array<const void*, 3> pointers_of(const ConvProblem& p, const ConvOperands& o) {
  const void* const x = p.direction == ConvDirection::backward_data ? o.grad_in : o.in;
  const void* const w = p.direction == ConvDirection::backward_weight ? o.grad_weight : o.weight;
  const void* const y = p.direction == ConvDirection::forward ? o.out : o.grad_out;
  return {x, w, y};
}

Descriptor stored(Graph& graph, const ConvTensor& tensor, const void* memory) {
  return graph.stored({*data_type_of(tensor.dtype), tensor.dims, tensor.strides}, memory);
}

Descriptor convolution(Graph& graph, const ConvProblem& p, std::int64_t places) {
  constexpr int kCrossCorrelation = 1;
  const Library& lib = graph.library();
  const Descriptor made = graph.make(Kind::convolution);
  lib.set(made, Attribute::convolution_compute,
          p.in == DType::int8 ? DataType::int32 : DataType::fp32);
  lib.set(made, Attribute::convolution_mode, As::convolution_mode, 1, &kCrossCorrelation);
  lib.set(made, Attribute::convolution_places, places);
  lib.set(made, Attribute::convolution_strides, conv_places(p, places, p.stride));
  lib.set(made, Attribute::convolution_dilations, conv_places(p, places, p.dilation));
  lib.set(made, Attribute::convolution_pads, conv_places(p, places, p.pad));
  lib.set(made, Attribute::convolution_pads_right, conv_places(p, places, p.pad_right));
  lib.finish(made);
  return made;
}

void add_operation(Graph& graph, const ConvProblem& p, const ConvTensors& tensors,
                   const ConvOperands& operands) {
  const Library& lib = graph.library();
  const OperationRow& row = kOperations[static_cast<std::size_t>(p.direction)];
  const auto attribute = [&](int behind) {
    return static_cast<Attribute>(static_cast<int>(row.alpha) + behind);
  };
  const auto [x, w, y] = pointers_of(p, operands);
  const auto places = static_cast<std::int64_t>(tensors.x.dims.size()) - 2;
  const Descriptor operation = graph.make(row.kind);
  lib.set(operation, attribute(0), p.alpha);
  lib.set(operation, attribute(1), 0.0F);
  lib.set(operation, attribute(2), convolution(graph, p, places));
  lib.set(operation, attribute(3), stored(graph, tensors.w, w));
  lib.set(operation, attribute(4), stored(graph, tensors.x, x));
  lib.set(operation, attribute(5), stored(graph, tensors.y, y));
  graph.add(operation);
}

}  // namespace

std::optional<Graph> conv_graph(std::shared_ptr<const Library> library, const ConvProblem& problem,
                                const ConvOperands& operands) {
  const ConvProblem p = with_strides(problem);
  const auto tensors = conv_tensors(p, 2);
  const bool is_known = data_type_of(p.in) && data_type_of(p.weight) && data_type_of(p.out);
  if (!tensors || !is_known || num_ops(p.epilogue) > 0 || p.beta != 0 || p.n == 0) {
    return std::nullopt;
  }
  Graph graph(std::move(library));
  if (p.in == DType::fp32) graph.require_fp32();
  add_operation(graph, p, *tensors, operands);
  return graph;
}

}  // namespace tessera::peers::cudnn
