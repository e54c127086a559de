// Tessera's own kernel, for the program that measures all steps.
#pragma once

#include "ladder.h"

namespace ladder {

void tessera_on(const Gemm& g, int threads);

}  // namespace ladder
