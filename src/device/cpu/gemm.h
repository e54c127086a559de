// Everything that an emitted GEMM kernel includes.
#pragma once

#include "tessera/device/cpu/packed_gemm.h"
#include "tessera/device/cpu/stream_gemm.h"
