// The text around a kernel's configuration: banner, namespace, exports.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/families/family.h"

namespace tessera::tile {

// An entry of a GPU's kernel: the end of its name, the function of the template that it runs, and
// how many blocks are to share a multiprocessor, for which the compiler saves registers. One block
// is enough for most: the compiler may then use so many registers that it need not spill, and
// blocks of few registers still share a multiprocessor.
struct GpuEntry {
  std::string_view end, function;
  int blocks = 1;
};

// A template of src/tessera/device/<backend>/: its header below that folder, its name, the struct
// that it takes, the fields of the emitted Config, a line each, and text that comes before that.
struct Template {
  std::string_view header, name, arguments;
  std::string config;
  std::string before = {};
};

// name, text, headers and entries of the kernel's source; the table of a CPU's entries is the
// template's own, kernel().
Source cpu_source(const KernelSpec& spec, const Target& target, int abi, const Template& from,
                  std::span<const std::string> entries);
Source cuda_source(const KernelSpec& spec, int abi, const Template& from, int threads,
                   std::span<const GpuEntry> entries);
Source hip_source(const KernelSpec& spec, int abi, const Template& from, int threads,
                  std::span<const GpuEntry> entries);

// The type of a tensor's elements in a kernel's text; `tf32` is the type for tf32, which memory
// holds as fp32.
std::string_view storage_type(DType dtype, std::string_view tf32 = "float");

// Whether every row of every operand begins at a multiple of so many bytes.
bool rows_aligned(const Family& family, const Problem& problem, const Operands& operands,
                  std::int64_t bytes);

}  // namespace tessera::tile
