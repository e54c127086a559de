// What the two libraries of convolutions share.
#pragma once

#include "dispatcher_libs.h"
#include "live.h"

namespace ck_compat {

// fp16 where CMake does not say another; all directions, two and three dimensions.
std::shared_ptr<Live> make_conv_live();
// direction: 0 to 2, as ConvProblemC has it. Throws Error{invalid_argument}.
tessera::ConvProblem conv_problem_of(const ConvProblemC& problem);
// The three slots of ConvProblemC. Milliseconds, or -1, -2, -3.
float run_conv(const Live& live, const void* first, const void* second, void* result,
               const ConvProblemC& problem, void* stream);
// Whether the library has kernels of the direction.
bool has_direction(const Live& live, tessera::ConvDirection direction);

}  // namespace ck_compat
