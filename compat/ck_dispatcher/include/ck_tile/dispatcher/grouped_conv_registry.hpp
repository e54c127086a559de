// Keys, kernels, the registry and the dispatcher of grouped convolutions.
#pragma once

#include "ck_tile/dispatcher/grouped_conv_dispatcher.hpp"
#include "ck_tile/dispatcher/grouped_conv_kernel.hpp"
#include "ck_tile/dispatcher/grouped_conv_kernels.hpp"
