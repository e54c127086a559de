// The family's table, its operands, and sizes that follow from a problem.
#include <algorithm>
#include <array>

#include "tessera/families/conv/conv.h"
#include "tessera/families/tile/defaults.h"

namespace tessera::conv {
namespace {

// The pointers of ConvOperands in their order.
enum Operand : std::size_t {
  kIn,
  kWeight,
  kGradOut,
  kC,
  kD,  // D0; D1 to D3 follow
  kOut = kD + kMaxD,
  kGradIn,
  kGradWeight,
  kOperands,
};
constexpr std::array<std::string_view, kOperands> kOperandNames = {
    "in", "weight", "grad_out", "c", "d0", "d1", "d2", "d3", "out", "grad_in", "grad_weight"};

Tensor& add(std::size_t operand, DType dtype, Tensors& all) {
  Tensor& tensor = all.add();
  tensor.name = kOperandNames[operand];
  tensor.operand = operand;
  tensor.access = operand >= kOut ? Access::write : Access::read;
  tensor.dtype = dtype;
  tensor.rank = 5;
  return tensor;
}

void set_dimensions(Tensor& tensor, const std::array<std::int64_t, 5>& sizes,
                    const std::array<std::int64_t, 5>& strides) {
  tensor.sizes = sizes;
  tensor.strides = strides;
}

// An image of `c` channels in each group; the strides are {n, g, c, d, h, w}.
Tensor& add_image(std::size_t operand, DType dtype, const ConvProblem& p, std::int64_t c,
                  const Spatial& size, const ConvStrides& s, Tensors& all) {
  Tensor& tensor = add(operand, dtype, all);
  if (p.layout == ConvLayout::nhwgc) {
    set_dimensions(tensor, {c, p.g, size[2], size[1], size[0]}, {s[2], s[1], s[5], s[4], s[3]});
  } else {
    set_dimensions(tensor, {size[2], size[1], size[0], c, p.g}, {s[5], s[4], s[3], s[2], s[1]});
  }
  tensor.batches = p.n;
  tensor.batch_stride = s[0];
  return tensor;
}

Tensor& add_x(std::size_t operand, const ConvProblem& p, Tensors& all) {
  return add_image(operand, p.in, p, p.c / p.g, p.size, p.in_strides, all);
}
Tensor& add_y(std::size_t operand, const ConvProblem& p, Tensors& all) {
  return add_image(operand, p.out, p, p.k / p.g, out_size(p), p.out_strides, all);
}
// The strides are {g, k, c, z, y, x}.
Tensor& add_w(std::size_t operand, const ConvProblem& p, Tensors& all) {
  Tensor& tensor = add(operand, p.weight, all);
  const ConvStrides& s = p.weight_strides;
  const std::int64_t c = p.c / p.g, k = p.k / p.g;
  const Spatial& f = p.filter;
  if (p.layout == ConvLayout::nhwgc) {
    set_dimensions(tensor, {c, f[2], f[1], f[0], k}, {s[2], s[5], s[4], s[3], s[1]});
  } else {
    set_dimensions(tensor, {f[2], f[1], f[0], c, k}, {s[5], s[4], s[3], s[2], s[1]});
  }
  tensor.batches = p.g;
  tensor.batch_stride = s[0];
  return tensor;
}

using AddTensor = Tensor& (*)(std::size_t operand, const ConvProblem& p, Tensors& all);

// The tensors that a direction reads, and the one that it computes.
struct Roles {
  struct Role {
    std::size_t operand;
    AddTensor add;
  };
  Role first, second, result;
};
constexpr std::array<Roles, 3> kRoles = {{
    {{kIn, add_x}, {kWeight, add_w}, {kOut, add_y}},
    {{kWeight, add_w}, {kGradOut, add_y}, {kGradIn, add_x}},
    {{kIn, add_x}, {kGradOut, add_y}, {kGradWeight, add_w}},
}};

void add_d(const ConvProblem& p, AddTensor like_result, Tensors& all) {
  if (p.epilogue.num_d == 0) return;
  const auto uses = d_uses(p.epilogue);
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
    const bool is_matrix = uses[i].shape == DShape::matrix;
    Tensor& tensor = is_matrix ? like_result(kD + i, p, all) : add(kD + i, p.d, all);
    tensor.dtype = p.d;
    tensor.may_be_output = is_matrix;
    if (is_matrix) continue;
    tensor.rank = 1;
    tensor.sizes[0] = p.k, tensor.strides[0] = 1;
  }
}

std::int64_t volume(const Spatial& size) { return size[0] * size[1] * size[2]; }

double elements_of(const Tensor& tensor) {
  double count = double(tensor.batches);
  for (std::size_t i = 0; i < tensor.rank; ++i) count *= double(tensor.sizes[i]);
  return count;
}

}  // namespace

const ConvProblem& conv_of(const Problem& problem) { return std::get<ConvProblem>(problem); }

Tensors tensors(const Problem& problem) {
  const ConvProblem p = with_strides(conv_of(problem));
  const Roles& roles = kRoles.at(static_cast<std::size_t>(p.direction));
  Tensors all;
  roles.first.add(roles.first.operand, p, all);
  roles.second.add(roles.second.operand, p, all);
  if (p.beta != 0) roles.result.add(kC, p, all).may_be_output = true;
  add_d(p, roles.result.add, all);
  roles.result.add(roles.result.operand, p, all);
  return all;
}

const void* pointer(const Operands& operands, std::size_t operand) {
  const auto& o = std::get<ConvOperands>(operands);
  const std::array<const void*, kOperands> all = {o.in,   o.weight,  o.grad_out,   o.c,
                                                  o.d[0], o.d[1],    o.d[2],       o.d[3],
                                                  o.out,  o.grad_in, o.grad_weight};
  return all.at(operand);
}

void set_pointer(Operands& operands, std::size_t operand, void* data) {
  auto& o = std::get<ConvOperands>(operands);
  const std::array<const void**, kOut> inputs = {&o.in,   &o.weight, &o.grad_out, &o.c,
                                                 &o.d[0], &o.d[1],   &o.d[2],     &o.d[3]};
  const std::array<void**, kOperands - kOut> outputs = {&o.out, &o.grad_in, &o.grad_weight};
  if (operand < kOut) {
    *inputs[operand] = data;
  } else {
    *outputs.at(operand - kOut) = data;
  }
}

View view_of(const ConvProblem& p) {
  const std::int64_t c = p.c / p.g, k = p.k / p.g, taps = volume(p.filter);
  const std::int64_t pixels = p.n * volume(out_size(p));
  if (p.direction == ConvDirection::forward) return {pixels, k, taps * c};
  if (p.direction == ConvDirection::backward_data) return {p.n * volume(p.size), c, taps * k};
  return {k, taps * c, pixels};
}

bool is_depthwise(const ConvProblem& p) { return p.c == p.g && p.g > 1; }

bool is_pointwise(const ConvProblem& p) {
  constexpr Spatial kOnes = {1, 1, 1}, kZeros = {0, 0, 0};
  const ConvProblem q = with_strides(p);
  return q.filter == kOnes && q.stride == kOnes && q.pad == kZeros && q.pad_right == kZeros;
}

// Two for each element of y and each of its products, also where the filter is outside of x.
double flops(const Problem& problem) {
  const ConvProblem& p = conv_of(problem);
  const std::int64_t channels = p.c / p.g;
  return 2 * double(p.n) * double(volume(out_size(p))) * double(p.k) * double(channels) *
         double(volume(p.filter));
}

double bytes(const Problem& problem) {
  double sum = 0;
  for (const Tensor& tensor : tensors(problem)) {
    sum += elements_of(tensor) * size_of(tensor.dtype);
  }
  return sum;
}

namespace {
// A graph's convolution has its strides, dilations and padding in vectors.
hipdnn::Kernel refuse_hipdnn(const KernelSpec&, const Target&) {
  hipdnn::Kernel kernel;
  kernel.refusal =
      "the strides, dilations and padding of a graph's convolution are vectors, which no criterion "
      "and no argument can read (RFC 0020, B.3)";
  return kernel;
}
constexpr hipdnn::Export kHipdnn = {.engine = nullptr, .kernel = refuse_hipdnn};

constexpr Extras kExtras = {
    .source_name = source_name, .instances = instances, .twin = twin, .hipdnn = &kHipdnn};
}  // namespace

constinit const Family kFamily = {
    .op = Op::conv,
    .abi = kAbi,
    .verb = "convolve",
    .extras = &kExtras,
    .validate = validate,
    .tensors = tensors,
    .pointer = pointer,
    .set_pointer = set_pointer,
    .is_legal = tile::is_legal<Types>,
    .is_deterministic = is_deterministic,
    .is_batch_invariant = is_batch_invariant,
    .order_of_sums = order_of_sums,
    .any_batch = any_batch,
    .supports = tile::supports<Types>,
    .enumerate = tile::enumerate<Types>,
    .combinations = tile::combinations<Types>,
    .derived = derived,
    .candidates = tile::candidates<Types>,
    .legal_candidates = tile::legal_candidates<Types>,
    .general = general,
    .emit = tile::emit<Types>,
    .estimate = estimate,
    .features = features,
    .features_fit = features_fit,
    .is_described = is_described,
    .extract = extract,
    .bind = bind,
    .verify = verify,
    .reference = reference,
    .compare = compare,
    .plain = plain,
    .flops = flops,
    .bytes = bytes,
    .model_key = model_key,
    .facts = facts,
    .roof = roof,
    .retyped = retyped,
    .from_words = from_words,
    .problem_sets = problem_sets,
    .draw = draw,
    .samples = samples,
};

}  // namespace tessera::conv
