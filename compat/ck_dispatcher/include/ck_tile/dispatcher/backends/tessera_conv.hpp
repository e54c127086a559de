// Tessera's convolution kernels: one exact kernel of the target, or what to compute, for which
// Tessera chooses one at each problem.
#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ck_tile/dispatcher/backends/tessera_sets.hpp"
#include "ck_tile/dispatcher/grouped_conv_kernel.hpp"

namespace ck_tile::dispatcher::backends {

inline const char* direction_of(GroupedConvOp op) {
  constexpr const char* kWords[] = {"forward", "backward_data", "backward_weight"};
  return kWords[static_cast<std::size_t>(op)];
}

// Tessera's word for a layout; the original has one for each number of dimensions, with and
// without the group.
inline std::string conv_layout_of(const std::string& word) {
  return word.rfind("ng", 0) == 0 || word == "nchw" || word == "ncdhw" || word == "ncw" ? "ngchw"
                                                                                        : "nhwgc";
}

// The problem with the kernel's types and layout, as Tessera's line.
inline std::string conv_line(const GroupedConvKernelKey& key, const GroupedConvProblem& p) {
  detail::changes_nothing("split_k", p.split_k != 1);
  const bool deep = key.ndim_spatial == 3 || p.is_3d();
  std::string line = std::string("conv direction=") + direction_of(p.op);
  const auto add = [&line](const std::string& name, std::int64_t value) {
    line += " " + name + "=" + std::to_string(value);
  };
  add("n", p.N), add("c", p.C), add("k", p.K), add("g", p.G);
  constexpr const char* kInput[] = {"d", "h", "w"};
  constexpr const char* kFilter[] = {"z", "y", "x"};
  for (std::size_t i = deep ? 0 : 1; i < 3; ++i) {
    add(kInput[i], p.input_spatial[i]), add(kFilter[i], p.filter_spatial[i]);
    add(std::string("stride_") + kInput[i], p.stride[i]);
    add(std::string("dilation_") + kInput[i], p.dilation[i]);
    add(std::string("pad_") + kInput[i], p.padding[i]);
  }
  return line + " in=" + key.dtype_in + " weight=" + key.dtype_wei + " out=" + key.dtype_out +
         " layout=" + conv_layout_of(key.layout);
}

// The tensors as ConvDispatchBuffers has them.
inline Operands conv_operands(GroupedConvOp op, const ConvDispatchBuffers& b) {
  constexpr const char* kNames[][3] = {{"in", "weight", "out"},
                                       {"grad_out", "weight", "grad_in"},
                                       {"in", "grad_out", "grad_weight"}};
  const auto& names = kNames[static_cast<std::size_t>(op)];
  return {{names[0], b.input_ptr}, {names[1], b.weight_ptr}, {names[2], b.output_ptr}};
}

// pinned: Tessera's name of the kernel; empty: one is chosen for each problem.
inline GroupedConvKernelInstancePtr tessera_conv(const GroupedConvKernelKey& key,
                                                 const std::string& name, const MachinePtr& machine,
                                                 const std::string& pinned) {
  const auto run = [key, machine, pinned](const GroupedConvProblem& p, void* stream) -> float {
    const ConvDispatchBuffers& b = g_conv_dispatch_buffers;
    if (b.output_ptr == nullptr) {
      detail::tell("a convolution without tensors computes nothing: call run() with the three");
      return 0;
    }
    const std::string line = conv_line(key, p);
    if (b.benchmarking) {
      return machine->time(line, pinned, conv_operands(p.op, b), stream, {b.warmup, b.repeat});
    }
    machine->run(line, pinned, conv_operands(p.op, b), stream);
    return 0;
  };
  const auto can = [key, machine, pinned](const GroupedConvProblem& p) {
    return p.op == key.op && p.is_valid() && machine->can(conv_line(key, p), pinned);
  };
  return std::make_shared<GroupedConvKernelInstance>(key, name, run, can, pinned);
}

// The fields of one of Tessera's kernels, by its name.
inline GroupedConvKernelKey conv_key_of(const std::string& kernel) {
  const std::string shown = command("show", "{\"kernel\": \"" + kernel + "\"}");
  const auto word = [&](const char* name) { return field(shown, name); };
  GroupedConvKernelKey key;
  key.dtype_in = word("in"), key.dtype_wei = word("weight"), key.dtype_out = word("out");
  key.layout = word("layout");
  key.ndim_spatial = std::atoi(word("ndim").c_str());
  for (const auto op :
       {GroupedConvOp::Forward, GroupedConvOp::BackwardData, GroupedConvOp::BackwardWeight}) {
    if (word("direction") == direction_of(op)) key.op = op;
  }
  const auto shape = [&](const char* name, int& m, int& n, int& k) {
    std::sscanf(word(name).c_str(), "%dx%dx%d", &m, &n, &k);
  };
  shape("tile", key.tile_m, key.tile_n, key.tile_k);
  shape("wave", key.wave_m, key.wave_n, key.wave_k);
  shape("warp_tile", key.warp_m, key.warp_n, key.warp_k);
  key.pipeline = word("pipeline"), key.scheduler = word("scheduler");
  key.epilogue = word("store"), key.arch = word("target"), key.kernel = kernel;
  return key;
}

// One of Tessera's kernels, by its name; for its own target, where no other one is named.
inline GroupedConvKernelInstancePtr named_conv_kernel(const std::string& kernel,
                                                      const std::string& arch = {}) {
  const GroupedConvKernelKey key = conv_key_of(kernel);
  return tessera_conv(key, kernel, machine_for(arch.empty() ? key.arch : arch), kernel);
}

// Which kernels of a target a declaration narrows to; "*" is any.
struct ConvPattern {
  std::string pipeline, scheduler, tile, wave, warp;
};

inline std::vector<std::string> matching_conv_kernels(const Machine& machine,
                                                      const GroupedConvKernelKey& key,
                                                      const ConvPattern& p) {
  if (!has_pipeline(machine, "conv", p.pipeline)) return {};
  const KernelSetHandle set = kernel_set(machine);
  check(tsr_kernel_set_op(set.get(), "conv"));
  const auto where = [&](const char* name, const std::string& pattern) {
    if (pattern != "*") check(tsr_kernel_set_where(set.get(), name, pattern.c_str()));
  };
  where("direction", direction_of(key.op)), where("ndim", std::to_string(key.ndim_spatial));
  where("in", key.dtype_in), where("weight", key.dtype_wei), where("out", key.dtype_out);
  where("layout", conv_layout_of(key.layout)), where("epilogue", "none");
  where("pipeline", p.pipeline), where("tile", p.tile), where("wave", p.wave);
  where("warp_tile", p.warp);
  if (machine.backend() != "cpu" && p.scheduler != "auto") where("scheduler", p.scheduler);
  return names_of(set);
}

}  // namespace ck_tile::dispatcher::backends
