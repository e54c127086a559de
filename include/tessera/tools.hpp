// The tools that the command line is made of: measuring, tuning, training, sweeps, reports and
// their data, packs, compilers, files. UNSTABLE: any release may change or remove what is declared
// here.
//
// They are linked statically, with the CMake target tessera::tools in place of tessera::tessera
// (find_package(tessera COMPONENTS tools)). A program that lies outside of the package's folder of
// programs names the worker program and the packs itself, see jit::BuildOptions.
#pragma once

#include "tessera/base/files.h"
#include "tessera/base/foreign_error.h"
#include "tessera/base/streams.h"
#include "tessera/base/subprocess.h"
#include "tessera/base/text.h"
#include "tessera/commands/commands.h"
#include "tessera/jit/compilers.h"
#include "tessera/jit/hip_compilers.h"
#include "tessera/jit/nvrtc.h"
#include "tessera/jit/pack.h"
#include "tessera/jit/toolchain.h"
#include "tessera/learn/gains.h"
#include "tessera/learn/lightgbm.h"
#include "tessera/learn/model.h"
#include "tessera/learn/ranker.h"
#include "tessera/learn/shelf.h"
#include "tessera/measure/foreign.h"
#include "tessera/measure/operands.h"
#include "tessera/measure/sweep.h"
#include "tessera/measure/sweep_check.h"
#include "tessera/measure/sweep_columns.h"
#include "tessera/measure/sweep_exchange.h"
#include "tessera/measure/sweep_store.h"
#include "tessera/registry/generate.h"
#include "tessera/runtime/benchmark.h"
#include "tessera/runtime/cuda_info.h"
#include "tessera/runtime/emulator.h"
#include "tessera/runtime/hip_info.h"
#include "tessera/targets/cktile_archs.h"
#include "tessera/tessera.hpp"
#include "tessera/train/dataset.h"
#include "tessera/train/fit.h"
#include "tessera/train/folds.h"
#include "tessera/train/metrics.h"
#include "tessera/train/report.h"
#include "tessera/train/train.h"
#include "tessera/tune/autotune.h"
#include "tessera/tune/search.h"
#include "tessera/tune/store.h"
#include "tessera/tune/winners.h"
