// libdispatcher_conv_lib.so: grouped convolutions in all directions.
#include "conv_calls.h"

using ck_compat::Live;
using ck_compat::Outcome;

namespace {

ck_compat::Slot conv_slot;

std::shared_ptr<const Live> conv_live(const ConvProblemC* prob) {
  std::shared_ptr<const Live> live = conv_slot.get();
  if (live == nullptr) ck_compat::set_error("conv_dispatcher_init() was not called");
  if (live != nullptr && prob == nullptr) {
    ck_compat::set_error("the problem must not be null");
    return nullptr;
  }
  return live;
}

int has(tessera::ConvDirection direction) {
  const auto live = conv_slot.get();
  return live != nullptr && ck_compat::has_direction(*live, direction) ? 1 : 0;
}

// The chosen kernel's name; "" where there is none, with a sentence.
std::string chosen(const Live& live, const ConvProblemC& prob) {
  std::string name;
  ck_compat::guarded(
      [&] { name = live.dispatcher().explain(ck_compat::conv_problem_of(prob)).name; });
  return name;
}

}  // namespace

extern "C" {

int conv_dispatcher_init() {
  const Outcome outcome =
      ck_compat::guarded([] { conv_slot.ensure([] { return ck_compat::make_conv_live(); }); });
  return outcome == Outcome::done ? 0 : -1;
}

int conv_dispatcher_cleanup() {
  conv_slot.set(nullptr);
  return 0;
}

int conv_dispatcher_is_supported(const ConvProblemC* prob) {
  const auto live = conv_live(prob);
  return live != nullptr && !chosen(*live, *prob).empty() ? 1 : 0;
}

int conv_dispatcher_select_kernel(const ConvProblemC* prob, char* name_buffer, int buffer_size) {
  const auto live = conv_live(prob);
  if (live == nullptr) return -1;
  const std::string name = chosen(*live, *prob);
  return name.empty() ? -1 : ck_compat::copy_name(name, name_buffer, buffer_size);
}

float conv_dispatcher_run(const void* input, const void* weight, void* output,
                          const ConvProblemC* prob, void* stream) {
  const auto live = conv_live(prob);
  if (live == nullptr) return -1.0F;
  return ck_compat::run_conv(*live, input, weight, output, *prob, stream);
}

int conv_dispatcher_get_kernel_count() {
  const auto live = conv_slot.get();
  return live == nullptr ? 0 : static_cast<int>(live->kernels.size());
}

int conv_dispatcher_get_kernel_name(int index, char* buffer, int size) {
  return ck_compat::copy_name_at(conv_slot.get(), index, buffer, size);
}

const char* conv_dispatcher_version() { return "1.0.0"; }
int conv_dispatcher_has_kernels() { return has(tessera::ConvDirection::forward); }
int conv_dispatcher_has_bwd_data() { return has(tessera::ConvDirection::backward_data); }
int conv_dispatcher_has_bwd_weight() { return has(tessera::ConvDirection::backward_weight); }
const char* conv_dispatcher_last_error() { return ck_compat::last_error(); }
const char* conv_dispatcher_target() {
  return ck_compat::keep(ck_compat::target_text(conv_slot.get()));
}

}  // extern "C"
