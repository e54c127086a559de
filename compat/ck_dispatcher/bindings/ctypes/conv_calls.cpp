#include "conv_calls.h"

#include "ck_tile/dispatcher/grouped_conv_problem.hpp"

namespace ck_compat {
namespace {

using ck_tile::dispatcher::detail::kDirections;

void refuse(const std::string& sentence) {
  throw tessera::Error(tessera::ErrorCode::invalid_argument, sentence);
}

}  // namespace

std::shared_ptr<Live> make_conv_live() {
  std::vector<std::string> sets;
  for (const tessera::ConvDirection direction : kDirections) {
    sets.push_back(std::string(to_string(direction)) + "_" + DISPATCHER_DTYPE + "_nhwgc_essential");
  }
  return make_live("", sets, 3, 10);
}

tessera::ConvProblem conv_problem_of(const ConvProblemC& p) {
  if (p.direction < 0 || p.direction > 2) {
    refuse("direction must be 0, 1 or 2, got " + std::to_string(p.direction));
  }
  // Two dimensions have a depth of 1, or leave it at 0; another one is a third, and is checked.
  const auto is_flat = [](int size) { return size == 0 || size == 1; };
  const bool deep = !is_flat(p.input_d) || !is_flat(p.filter_z) || p.pad_d != 0;
  const tessera::ConvDirection direction = kDirections[static_cast<std::size_t>(p.direction)];
  const tessera::DType type = tessera::parse_dtype(DISPATCHER_DTYPE);
  tessera::ConvProblem made =
      deep
          ? tessera::conv_problem(type, direction, p.N, p.C, p.K, {p.input_d, p.input_h, p.input_w},
                                  {p.filter_z, p.filter_y, p.filter_x})
          : tessera::conv_problem(type, direction, p.N, p.C, p.K, {p.input_h, p.input_w},
                                  {p.filter_y, p.filter_x});
  made.g = p.G;
  made.stride = {deep ? p.stride_d : 1, p.stride_h, p.stride_w};
  made.dilation = {deep ? p.dilation_d : 1, p.dilation_h, p.dilation_w};
  made.pad = {deep ? p.pad_d : 0, p.pad_h, p.pad_w};
  return made;
}

float run_conv(const Live& live, const void* first, const void* second, void* result,
               const ConvProblemC& problem, void* stream) {
  if (first == nullptr || second == nullptr || result == nullptr) {
    set_error("the three tensors must not be null");
    return -1.0F;
  }
  if (!live.refusal().empty()) {
    set_error(live.refusal());
    return -1.0F;
  }
  float milliseconds = -1.0F;
  const Outcome outcome = guarded([&] {
    const tessera::ConvProblem made = conv_problem_of(problem);
    tessera::RunOptions options;
    options.launch.stream = stream;
    const tessera::ConvOperands operands =
        ck_tile::dispatcher::detail::conv_operands(made.direction, first, second, result);
    const tessera::RunTiming timing = live.dispatcher().time(made, operands, options);
    milliseconds = static_cast<float>(timing.median_seconds * 1e3);
  });
  switch (outcome) {
    case Outcome::done:
      return milliseconds;
    case Outcome::no_kernel:
      return -2.0F;
    case Outcome::invalid:
      return -3.0F;
    case Outcome::failed:
      break;
  }
  return -1.0F;
}

bool has_direction(const Live& live, tessera::ConvDirection direction) {
  for (const tessera::KernelSpec& spec : live.kernels) {
    const auto* signature = std::get_if<tessera::ConvSignature>(&spec.signature);
    if (signature != nullptr && signature->direction == direction) return true;
  }
  return false;
}

}  // namespace ck_compat
