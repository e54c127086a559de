// libdispatcher_conv_bwdw_lib.so: the gradient of a grouped convolution by its weight.
#include "conv_calls.h"

using ck_compat::Outcome;

namespace {

ck_compat::Slot bwdw_slot;
constexpr int kBackwardWeight = 2;

ConvProblemC with_direction(const ConvBwdwProblemC& p) {
  return {p.N,        p.G,          p.C,          p.K,          p.input_d,
          p.input_h,  p.input_w,    p.filter_z,   p.filter_y,   p.filter_x,
          p.stride_d, p.stride_h,   p.stride_w,   p.pad_d,      p.pad_h,
          p.pad_w,    p.dilation_d, p.dilation_h, p.dilation_w, kBackwardWeight};
}

}  // namespace

extern "C" {

int conv_bwdw_init() {
  const Outcome outcome =
      ck_compat::guarded([] { bwdw_slot.ensure([] { return ck_compat::make_conv_live(); }); });
  return outcome == Outcome::done ? 0 : -1;
}

void conv_bwdw_cleanup() { bwdw_slot.set(nullptr); }

float conv_bwdw_run(const void* input, const void* grad_output, void* grad_weight,
                    const ConvBwdwProblemC* prob, void* stream) {
  const auto live = bwdw_slot.get();
  if (live == nullptr || prob == nullptr) {
    ck_compat::set_error(live == nullptr ? "conv_bwdw_init() was not called"
                                         : "the problem must not be null");
    return -1.0F;
  }
  return ck_compat::run_conv(*live, input, grad_output, grad_weight, with_direction(*prob), stream);
}

const char* conv_bwdw_version() { return "1.0.0"; }

int conv_bwdw_has_kernels() { return conv_bwdw_get_kernel_count() > 0 ? 1 : 0; }

int conv_bwdw_get_kernel_count() {
  const auto live = bwdw_slot.get();
  if (live == nullptr) return 0;
  int count = 0;
  for (const tessera::KernelSpec& spec : live->kernels) {
    const auto* signature = std::get_if<tessera::ConvSignature>(&spec.signature);
    if (signature != nullptr && signature->direction == tessera::ConvDirection::backward_weight) {
      ++count;
    }
  }
  return count;
}

const char* conv_bwdw_last_error() { return ck_compat::last_error(); }

}  // extern "C"
