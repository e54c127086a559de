// libdispatcher_conv_lib.so: grouped convolutions in all directions, and
// libdispatcher_conv_bwdw_lib.so: their gradients by the weight. Both hold the functions of both.
#include <array>
#include <cstring>

#include "dispatcher_libs.h"
#include "live.h"

using ck_compat::Live;
using ck_compat::Outcome;
using tessera::ConvDirection;

namespace {

// By the number that ConvProblemC has.
constexpr std::array kDirections = {ConvDirection::forward, ConvDirection::backward_data,
                                    ConvDirection::backward_weight};

ck_compat::Library conv_library("conv_dispatcher_init"), bwdw_library("conv_bwdw_init");

// fp16 where CMake does not say another; all directions, two and three dimensions.
std::shared_ptr<const Live> make_conv_live() {
  std::vector<std::string> sets;
  for (const ConvDirection direction : kDirections) {
    sets.push_back(std::string(to_string(direction)) + "_" DISPATCHER_DTYPE "_nhwgc_essential");
  }
  return std::make_shared<Live>("", sets, 3, 10);
}

// Null with a sentence where the library is not initialised, or where there is no problem.
std::shared_ptr<const Live> required(const ck_compat::Library& library, const void* problem) {
  std::shared_ptr<const Live> live = library.required();
  if (live == nullptr || problem != nullptr) return live;
  ck_compat::set_error("the problem must not be null");
  return nullptr;
}

tessera::ConvProblem conv_problem_of(const ConvProblemC& p) {
  if (p.direction < 0 || p.direction > 2) {
    throw tessera::Error(tessera::ErrorCode::invalid_argument,
                         "direction must be 0, 1 or 2, got " + std::to_string(p.direction));
  }
  // Two dimensions have a depth of 1, or leave it at 0; another one is a third, and is checked.
  const auto is_flat = [](int size) { return size == 0 || size == 1; };
  const bool deep = !is_flat(p.input_d) || !is_flat(p.filter_z) || p.pad_d != 0;
  const tessera::DType type = tessera::parse_dtype(DISPATCHER_DTYPE);
  const ConvDirection direction = kDirections[static_cast<std::size_t>(p.direction)];
  tessera::ConvProblem made =
      deep
          ? tessera::conv_problem(type, direction, p.N, p.C, p.K, {p.input_d, p.input_h, p.input_w},
                                  {p.filter_z, p.filter_y, p.filter_x})
          : tessera::conv_problem(type, direction, p.N, p.C, p.K, {p.input_h, p.input_w},
                                  {p.filter_y, p.filter_x});
  made.g = p.G;
  made.stride = {deep ? p.stride_d : 1, p.stride_h, p.stride_w};
  made.pad = {deep ? p.pad_d : 0, p.pad_h, p.pad_w};
  made.dilation = {deep ? p.dilation_d : 1, p.dilation_h, p.dilation_w};
  return made;
}

// The tensors of forward (X, W, Y), backward data (dY, W, dX), backward weight (X, dY, dW).
tessera::ConvOperands conv_operands(ConvDirection direction, const void* first, const void* second,
                                    void* result) {
  tessera::ConvOperands operands;
  switch (direction) {
    case ConvDirection::forward:
      operands.in = first, operands.weight = second, operands.out = result;
      break;
    case ConvDirection::backward_data:
      operands.grad_out = first, operands.weight = second, operands.grad_in = result;
      break;
    case ConvDirection::backward_weight:
      operands.in = first, operands.grad_out = second, operands.grad_weight = result;
      break;
  }
  return operands;
}

// The tensors of ConvProblemC's direction, in its order. Milliseconds, or -1, -2, -3.
float run_conv(const Live& live, const void* first, const void* second, void* result,
               const ConvProblemC& problem, void* stream) {
  if (first == nullptr || second == nullptr || result == nullptr) {
    ck_compat::set_error("the three tensors must not be null");
    return -1.0F;
  }
  if (live.is_refused()) return -1.0F;
  float milliseconds = -1.0F;
  const Outcome outcome = ck_compat::guarded([&] {
    const tessera::ConvProblem made = conv_problem_of(problem);
    tessera::RunOptions options;
    options.launch.stream = stream;
    const tessera::ConvOperands operands = conv_operands(made.direction, first, second, result);
    const tessera::RunTiming timing = live.dispatcher().time(made, operands, options);
    milliseconds = static_cast<float>(timing.median_seconds * 1e3);
  });
  if (outcome == Outcome::no_kernel) return -2.0F;
  return outcome == Outcome::invalid ? -3.0F : milliseconds;
}

int count_of(const ck_compat::Library& library, ConvDirection direction) {
  const auto live = library.get();
  int count = 0;
  for (std::size_t i = 0; live != nullptr && i < live->kernels.size(); ++i) {
    const auto* signature = std::get_if<tessera::ConvSignature>(&live->kernels[i].signature);
    if (signature != nullptr && signature->direction == direction) ++count;
  }
  return count;
}

int has(ConvDirection direction) { return count_of(conv_library, direction) > 0 ? 1 : 0; }

// The chosen kernel's name; nothing where there is none, with a sentence.
std::optional<std::string> selected(const ConvProblemC* prob) {
  const auto live = required(conv_library, prob);
  if (live == nullptr) return std::nullopt;
  return live->chosen(ck_compat::key_of(*prob), [&] { return conv_problem_of(*prob); });
}

}  // namespace

extern "C" {

int conv_dispatcher_init() { return conv_library.ensure(make_conv_live); }

int conv_dispatcher_cleanup() {
  conv_library.end();
  return 0;
}

int conv_dispatcher_is_supported(const ConvProblemC* prob) {
  return selected(prob).has_value() ? 1 : 0;
}

int conv_dispatcher_select_kernel(const ConvProblemC* prob, char* name_buffer, int buffer_size) {
  const std::optional<std::string> name = selected(prob);
  return name.has_value() ? ck_compat::copy_name(*name, name_buffer, buffer_size) : -1;
}

float conv_dispatcher_run(const void* input, const void* weight, void* output,
                          const ConvProblemC* prob, void* stream) {
  const auto live = required(conv_library, prob);
  return live == nullptr ? -1.0F : run_conv(*live, input, weight, output, *prob, stream);
}

int conv_dispatcher_get_kernel_count() { return conv_library.kernel_count(); }
int conv_dispatcher_get_kernel_name(int index, char* buffer, int size) {
  return conv_library.copy_name_at(index, buffer, size);
}
const char* conv_dispatcher_version() { return "1.0.0"; }
int conv_dispatcher_has_kernels() { return has(ConvDirection::forward); }
int conv_dispatcher_has_bwd_data() { return has(ConvDirection::backward_data); }
int conv_dispatcher_has_bwd_weight() { return has(ConvDirection::backward_weight); }
const char* conv_dispatcher_last_error() { return ck_compat::last_error(); }
const char* conv_dispatcher_target() { return conv_library.target(); }

int conv_bwdw_init() { return bwdw_library.ensure(make_conv_live); }
void conv_bwdw_cleanup() { bwdw_library.end(); }

float conv_bwdw_run(const void* input, const void* grad_output, void* grad_weight,
                    const ConvBwdwProblemC* prob, void* stream) {
  const auto live = required(bwdw_library, prob);
  if (live == nullptr) return -1.0F;
  ConvProblemC whole{};
  static_assert(sizeof whole == sizeof *prob + sizeof whole.direction);
  std::memcpy(&whole, prob, sizeof *prob);
  whole.direction = 2;
  return run_conv(*live, input, grad_output, grad_weight, whole, stream);
}

const char* conv_bwdw_version() { return "1.0.0"; }
int conv_bwdw_has_kernels() { return conv_bwdw_get_kernel_count() > 0 ? 1 : 0; }
int conv_bwdw_get_kernel_count() { return count_of(bwdw_library, ConvDirection::backward_weight); }
const char* conv_bwdw_last_error() { return ck_compat::last_error(); }

}  // extern "C"
