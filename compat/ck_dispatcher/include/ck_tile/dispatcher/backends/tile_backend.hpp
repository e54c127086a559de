// The backend of this folder: Tessera's kernels, under the name of the original's.
#pragma once

#include "ck_tile/dispatcher/backends/generated_tile_backend.hpp"
