// The outcome of a measurement, and the device and threads under which it is stored.
#pragma once

#include <string>
#include <string_view>

#include "tessera/spec/target.h"

namespace tessera::measure {

// failed: the kernel could not be built, or the machine had no memory for it. refused: it was not
// run.
enum class Outcome { ok, wrong, crashed, timeout, failed, refused };
std::string_view to_string(Outcome outcome);

// Throws Error{parse_error} for an unknown word.
Outcome parse_outcome(std::string_view text);

// Whether a kernel with this outcome must not be chosen on the machine that measured it.
bool is_refusal(Outcome outcome);

// The device name under which measurements of this target are stored: the model of the processor or
// of the GPU; the target's name when there is no such GPU.
std::string device_name(const Target& target, int device);

// In a worker: throws Error{unsupported} when the device of this number is another model than the
// one that its parent means, as when the parent changed CUDA_VISIBLE_DEVICES after it had started
// the driver.
void check_device(const Target& target, int device, const std::string& meant);

// The number of threads under which they are stored. For GPU kernels it is 1.
int filed_threads(const Target& target, int threads);

}  // namespace tessera::measure
