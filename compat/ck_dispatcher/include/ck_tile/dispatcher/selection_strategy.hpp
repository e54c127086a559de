// How the dispatchers of GEMM and of attention choose; each says what the two mean for it.
#pragma once

namespace ck_tile::dispatcher {

enum class SelectionStrategy { FirstFit, Heuristic };

}  // namespace ck_tile::dispatcher
