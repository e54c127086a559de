// Outputs of 8 bits as references make them: what elements are divided by, and how far both may be
// off.
#pragma once

#include <cstddef>
#include <span>

#include "tessera/families/tile/epilogue.h"

namespace tessera::tile {

// The largest number of an 8-bit float in the encoding of the target that runs the kernel.
double largest_of(DType dtype, Fp8Encoding fp8);

// What divides the elements that share a scale. `largest` is the type's largest number. An infinite
// error: any scale is right.
Bounded scale_of(std::span<const Bounded> elements, double largest);

// An element over its scale. A scale of no known size lets every result be.
Bounded quantised(const Bounded& y, const Bounded& scale, double largest);

}  // namespace tessera::tile
