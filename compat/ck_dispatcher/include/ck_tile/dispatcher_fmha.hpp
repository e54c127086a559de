// All that programs with attention need.
#pragma once

#include "ck_tile/dispatcher/backends/generated_fmha_backend.hpp"
#include "ck_tile/dispatcher/base_registry.hpp"
#include "ck_tile/dispatcher/dispatcher_error.hpp"
#include "ck_tile/dispatcher/fmha_dispatcher.hpp"
#include "ck_tile/dispatcher/fmha_kernel_decl.hpp"
#include "ck_tile/dispatcher/fmha_kernel_instance.hpp"
#include "ck_tile/dispatcher/fmha_kernel_key.hpp"
#include "ck_tile/dispatcher/fmha_kernels.hpp"
#include "ck_tile/dispatcher/fmha_problem.hpp"
#include "ck_tile/dispatcher/fmha_registry.hpp"
#include "ck_tile/dispatcher/fmha_types.hpp"
