// All that programs need, of all operations.
#pragma once

#include "ck_tile/dispatcher_conv.hpp"
#include "ck_tile/dispatcher_fmha.hpp"
#include "ck_tile/dispatcher_gemm.hpp"
