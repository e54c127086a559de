// The integer type in which kernels and their callers count elements.
#pragma once

namespace tessera::device {

using i64 = long long;

}  // namespace tessera::device
