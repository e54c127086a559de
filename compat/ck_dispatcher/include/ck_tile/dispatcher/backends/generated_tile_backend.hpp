// The backend of this folder: Tessera's kernels, under the name of the original's.
#pragma once

#include "ck_tile/dispatcher/backends/tessera_gemm.hpp"
#include "ck_tile/dispatcher/backends/tessera_gemm_sets.hpp"
