// Background: oneDNN's fast convolutions want their tensors in formats of their own. What a user of
// plain layouts calls is then a convolution between reorders, which PyTorch does for each call too.
// Approach: each way leaves some of the tensors to the library. A tensor whose format differs from
// the user's gets memory of its own, and a reorder before or behind the convolution.
#include "peers/onednn_conv.h"

#include <array>

#include "peers/conv_tensors.h"

namespace tessera::peers::onednn {
namespace {

struct TypeRow {
  DType dtype;
  Type type;
};
constexpr std::array kTypes = {TypeRow{DType::fp32, Type::f32}, TypeRow{DType::fp16, Type::f16},
                               TypeRow{DType::bf16, Type::bf16}, TypeRow{DType::int8, Type::s8},
                               TypeRow{DType::int32, Type::s32}};

struct ConvWay {
  const char* group;
  const char* how;
  bool images_are_free;   // x and y have the library's formats
  bool weights_are_free;  // so have the filters
  bool packs;             // the filters are reordered before the first call
};
constexpr std::array kConvWays = {
    ConvWay{"onednn", "convolution", false, false, false},
    ConvWay{"onednn", "convolution, filters reordered", false, true, false},
    ConvWay{"onednn", "convolution, all reordered", true, true, false},
    ConvWay{"onednn_packed", "convolution", false, true, true},
    ConvWay{"onednn_packed", "convolution, images reordered", true, true, true},
};

// One tensor of the convolution: where the user has it.
struct Place {
  Tensor tensor;
  void* data;
};

struct Roles {
  Argument source, weights, destination;
};
// By direction.
struct RolesRow {
  ConvResult result;
  Roles roles;
};
constexpr std::array kRoles = {
    RolesRow{ConvResult::destination, {Argument::source, Argument::weights, Argument::destination}},
    RolesRow{ConvResult::source,
             {Argument::source_gradient, Argument::weights, Argument::destination_gradient}},
    RolesRow{ConvResult::weights,
             {Argument::source, Argument::weights_gradient, Argument::destination_gradient}},
};

struct ConvCall {
  ConvResult result;
  Roles roles;
  Place x, w, y;
  const void* bias = nullptr;  // null: none
  Type bias_type = Type::f32;
  std::int64_t channels = 0;  // of y
  Convolution numbers;        // strides and the like; its descriptors are null
};

// One run of the peer.
struct ConvRun {
  std::shared_ptr<const Library> library;
  std::vector<Step> steps;
  std::vector<std::shared_ptr<runtime::AlignedBuffer>> memory;

  void operator()() const {
    if (library->run(steps)) return;
    throw Error(ErrorCode::unsupported, "onednn refused to run a convolution it had accepted");
  }
};

Place place_of(const ConvTensor& tensor, const void* data) {
  return {{tensor.dims, *type_of(tensor.dtype), tensor.strides}, const_cast<void*>(data)};
}

// Groups are a dimension of the filters.
Place filters_of(const ConvProblem& p, const ConvTensor& tensor, const void* data) {
  Place place = place_of(tensor, data);
  if (p.g == 1) return place;
  const std::int64_t k = p.k / p.g;
  place.tensor.dims[0] = k;
  place.tensor.dims.insert(place.tensor.dims.begin(), p.g);
  place.tensor.strides.insert(place.tensor.strides.begin(), k * place.tensor.strides[0]);
  return place;
}

std::optional<ConvCall> conv_call(const ConvProblem& p, const ConvOperands& o) {
  const auto tensors = conv_tensors(p, 1);
  const std::string epilogue = num_ops(p.epilogue) == 0 ? "" : to_string(p.epilogue);
  const bool has_bias = epilogue == "bias" || epilogue == "bias+relu";
  const bool has_relu = epilogue == "relu" || epilogue == "bias+relu";
  const bool is_known = type_of(p.in) && type_of(p.weight) && type_of(p.out) && type_of(p.d);
  const bool is_plain = epilogue.empty() || has_bias || has_relu;
  if (!tensors || !is_known || !is_plain || p.alpha != 1 || p.beta != 0 || p.n == 0) {
    return std::nullopt;
  }
  ConvCall call;
  const RolesRow& row = kRoles[static_cast<std::size_t>(p.direction)];
  call.result = row.result;
  call.roles = row.roles;
  call.x = place_of(tensors->x, row.result == ConvResult::source ? o.grad_in : o.in);
  call.w = filters_of(p, tensors->w, row.result == ConvResult::weights ? o.grad_weight : o.weight);
  call.y = place_of(tensors->y, row.result == ConvResult::destination ? o.out : o.grad_out);
  if (has_bias) call.bias = o.d[0];
  call.bias_type = *type_of(p.d);
  call.channels = p.k;
  call.numbers.result = call.result;
  call.numbers.relu = has_relu;
  call.numbers.strides = conv_places(p, 1, p.stride);
  call.numbers.dilations = conv_places(p, 1, p.dilation);
  for (std::int64_t& dilation : call.numbers.dilations) --dilation;
  call.numbers.pads = conv_places(p, 1, p.pad);
  call.numbers.pads_right = conv_places(p, 1, with_strides(p).pad_right);
  return call;
}

// The steps of one way; empty where oneDNN refuses one of them.
class Builder {
 public:
  Builder(const std::shared_ptr<const Library>& library, const ConvCall& call, const ConvWay& way)
      : library_(*library), call_(call), way_(way) {
    run_.library = library;
  }

  std::optional<ConvRun> build() {
    Convolution wanted = call_.numbers;
    wanted.source = describe(call_.x.tensor, way_.images_are_free);
    wanted.weights = describe(call_.w.tensor, way_.weights_are_free);
    wanted.destination = describe(call_.y.tensor, way_.images_are_free);
    if (call_.bias != nullptr) {
      wanted.bias = library_.describe({{call_.channels}, call_.bias_type, {1}});
    }
    if (wanted.source == nullptr || wanted.weights == nullptr || wanted.destination == nullptr) {
      return std::nullopt;
    }
    const auto primitive = library_.convolution(wanted);
    if (!primitive || primitive->code.starts_with("ref")) return std::nullopt;
    add(*primitive, wanted.bias);
    // Without a reorder the way is another one, which has the user's formats from the beginning.
    const bool moves = way_.images_are_free ? moves_images_ : moves_weights_;
    if (is_refused_ || (way_.weights_are_free && !moves)) return std::nullopt;
    return std::move(run_);
  }

 private:
  Handle describe(Tensor tensor, bool is_free) const {
    if (is_free) tensor.strides.clear();
    return library_.describe(tensor);
  }

  void add(const ConvPrimitive& primitive, const Handle& bias) {
    Step step{primitive.primitive, {}};
    std::vector<Step> behind;
    const auto add = [&](Argument argument, const Place& place, const Handle& format,
                         ConvResult as_result, bool is_packed) {
      const Handle own = library_.describe(place.tensor);
      const Handle user = library_.memory(own, place.data);
      if (library_.are_equal(own, format)) {
        step.operands.push_back({argument, user});
        return;
      }
      (as_result == ConvResult::weights ? moves_weights_ : moves_images_) = true;
      const Handle moved = library_.memory(format, room(library_.bytes(format)));
      step.operands.push_back({argument, moved});
      if (call_.result == as_result) {
        behind.push_back(reorder(format, moved, own, user));
      } else if (is_packed) {
        const Step pack = reorder(own, user, format, moved);
        is_refused_ = is_refused_ || !library_.run(std::span(&pack, 1));
      } else {
        run_.steps.push_back(reorder(own, user, format, moved));
      }
    };
    add(call_.roles.source, call_.x, primitive.source, ConvResult::source, false);
    add(call_.roles.weights, call_.w, primitive.weights, ConvResult::weights, way_.packs);
    add(call_.roles.destination, call_.y, primitive.destination, ConvResult::destination, false);
    if (bias != nullptr) {
      step.operands.push_back(
          {Argument::bias, library_.memory(bias, const_cast<void*>(call_.bias))});
    }
    run_.steps.push_back(step);
    run_.steps.insert(run_.steps.end(), behind.begin(), behind.end());
  }

  Step reorder(const Handle& from_format, const Handle& from, const Handle& to_format,
               const Handle& to) {
    const Handle primitive = library_.reorder(from_format, to_format);
    is_refused_ = is_refused_ || primitive == nullptr;
    return {primitive, {{Argument::source, from}, {Argument::destination, to}}};
  }

  void* room(std::size_t bytes) {
    run_.memory.push_back(std::make_shared<runtime::AlignedBuffer>(bytes));
    return run_.memory.back()->data();
  }

  const Library& library_;
  const ConvCall& call_;
  const ConvWay& way_;
  ConvRun run_;
  bool moves_images_ = false;
  bool moves_weights_ = false;
  bool is_refused_ = false;
};

}  // namespace

std::optional<Type> type_of(DType dtype) {
  for (const TypeRow& row : kTypes) {
    if (row.dtype == dtype) return row.type;
  }
  return std::nullopt;
}

std::vector<PeerCall> conv_calls(const std::shared_ptr<const Library>& library,
                                 const ConvProblem& problem, const ConvOperands& operands) {
  const std::optional<ConvCall> call = conv_call(problem, operands);
  if (!call) return {};
  std::vector<PeerCall> calls;
  for (const ConvWay& way : kConvWays) {
    // The gradient of packed filters would stay in the library's format, where nobody can read it.
    if (way.packs && call->result == ConvResult::weights) continue;
    if (auto run = Builder(library, *call, way).build()) {
      calls.push_back({way.group, way.how, std::move(*run)});
    }
  }
  return calls;
}

}  // namespace tessera::peers::onednn
