// The integer that kernels and their callers count elements in.
#pragma once

namespace tessera::device {

using i64 = long long;

}  // namespace tessera::device
