// Tessera's GEMM kernels as KernelInstances: one exact kernel of the target, or what to compute,
// for which Tessera chooses one at each problem.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ck_tile/dispatcher/backends/elements.hpp"
#include "ck_tile/dispatcher/backends/tessera_memory.hpp"
#include "ck_tile/dispatcher/kernel_instance.hpp"

namespace ck_tile::dispatcher::backends {

// op(A x B + D0 + D1 + ...) as Tessera's chain: ("Relu", 1) is "multi_d_add1+relu". PassThrough
// reads no D, as in the original.
inline std::string epilogue_text(const std::string& operation, int num_d) {
  if (operation == "PassThrough") return "none";
  const std::string number = std::to_string(num_d);
  if (operation == "MultiDMultiply" || operation == "Multiply") {
    return num_d == 0 ? "none" : "multi_d_multiply" + number;
  }
  constexpr const char* kSteps[][2] = {
      {"", ""},          {"MultiDAdd", ""},      {"Add", ""},
      {"Relu", "relu"},  {"Gelu", "gelu"},       {"Tanh", "tanh"},
      {"Swish", "silu"}, {"Sigmoid", "sigmoid"}, {"FastGelu", "gelu_tanh"}};
  for (const auto& [name, step] : kSteps) {
    if (operation != name) continue;
    const std::string sum = num_d == 0 ? "" : "multi_d_add" + number;
    const std::string chain = sum + (*step != '\0' && !sum.empty() ? "+" : "") + step;
    return chain.empty() ? "none" : chain;
  }
  throw DispatcherError("there is no element-wise operation '" + operation + "'");
}

class TesseraGemm : public KernelInstance {
 public:
  // pinned: Tessera's name of the kernel; empty: one is chosen for each problem.
  TesseraGemm(KernelKey key, std::string name, MachinePtr machine, std::string pinned)
      : key_(std::move(key)),
        name_(std::move(name)),
        machine_(std::move(machine)),
        pinned_(std::move(pinned)) {}

  const KernelKey& get_key() const override { return key_; }
  std::string get_name() const override { return name_; }
  const Machine& machine() const { return *machine_; }
  bool supports(const Problem& problem) const override {
    return problem.is_valid() && machine_->can(line(problem), pinned_);
  }
  double predicted_seconds(const Problem& problem) const override {
    return machine_->seconds(line(problem), pinned_);
  }
  // Tessera's name of the kernel that computes the problem.
  std::string kernel_for(const Problem& problem) const {
    return field(machine_->choose(line(problem), pinned_), "kernel");
  }

  // The pointers are the host's on a CPU and the device's on a GPU.
  float run(const void* a, const void* b, void* c, const void** d_ptrs, const Problem& problem,
            void* stream = nullptr) const override {
    Operands all = operands(a, b, c, d_ptrs);
    if (problem.beta == 0) return machine_->time(line(problem), pinned_, all, stream);
    // Every one of the timed calls reads the C that was given.
    const Block given = copy_of(c, elements_of_c(problem) * bytes_of(key_.signature.dtype_c));
    all.emplace_back("c", given.data());
    return machine_->time(line(problem), pinned_, all, stream);
  }
  float run_once(const void* a, const void* b, void* c, const void** d_ptrs, const Problem& problem,
                 void* stream) const override {
    Operands all = operands(a, b, c, d_ptrs);
    if (problem.beta != 0) all.emplace_back("c", c);
    machine_->run(line(problem), pinned_, all, stream);
    return 0;
  }
  // Computes the product again, compares it with the fp64 reference, and C with it. Throws where
  // beta is not 0, because the C that was read is overwritten.
  bool validate(const void* a, const void* b, const void* c, const void** d_ptrs,
                const Problem& problem, float tolerance = 1e-3F) const override {
    if (problem.beta != 0) {
      throw UnsupportedProblem("validate() needs beta=0, got " + std::to_string(problem.beta) +
                               ": the C that the product read is overwritten");
    }
    const DataType type = key_.signature.dtype_c;
    const std::size_t count = elements_of_c(problem);
    const std::size_t bytes = count * bytes_of(type);
    const MemoryKind kind = memory_kind(*machine_);
    const Block again(kind, bytes);
    const Operands all = operands(a, b, again.data(), d_ptrs);
    if (!machine_->run(line(problem), pinned_, all, nullptr, true)) return false;
    std::vector<char> wanted(bytes), given(bytes);
    again.to_host(wanted.data());
    copy_out(kind, given.data(), c, bytes);
    return agree(type, given.data(), wanted.data(), count, tolerance);
  }

  // The problem with the kernel's types and layout, as Tessera's line.
  std::string line(const Problem& problem) const {
    const KernelKey::Signature& s = key_.signature;
    detail::changes_nothing("split_k", problem.k_batch != 1);
    return "gemm m=" + std::to_string(problem.M) + " n=" + std::to_string(problem.N) +
           " k=" + std::to_string(problem.K) + scalars(problem) + " a=" + to_string(s.dtype_a) +
           " b=" + to_string(s.dtype_b) + " out=" + to_string(s.dtype_c) +
           " d=" + to_string(s.dtype_c) + " layout=" + to_string(s.layout_a) +
           to_string(s.layout_b) + to_string(s.layout_c) + " epilogue=" + chain() +
           (key_.algorithm.preshuffle && !pinned_.empty() ? " preshuffle=true" : "");
  }

 private:
  static std::size_t elements_of_c(const Problem& problem) {
    return static_cast<std::size_t>(problem.M * problem.N * problem.batch_size);
  }
  // What is left out of a line has its usual value. Nine digits tell all floats apart.
  static std::string scalars(const Problem& p) {
    const auto factor = [](const char* name, float value) {
      char text[40];
      std::snprintf(text, sizeof text, " %s=%.9g", name, static_cast<double>(value));
      return std::string(text);
    };
    std::string text;
    if (p.batch_size != 1) text += " batch=" + std::to_string(p.batch_size);
    if (p.alpha != 1) text += factor("alpha", p.alpha);
    if (p.beta != 0) text += factor("beta", p.beta);
    return text;
  }
  Block copy_of(const void* data, std::size_t bytes) const {
    const MemoryKind kind = memory_kind(*machine_);
    std::vector<char> host(bytes);
    copy_out(kind, host.data(), data, bytes);
    Block made(kind, bytes);
    made.from_host(host.data());
    return made;
  }
  // A kernel of Tessera's has its chain as its operation.
  std::string chain() const {
    if (!key_.kernel.empty()) return key_.signature.elementwise_op;
    return epilogue_text(key_.signature.elementwise_op, key_.signature.num_d_tensors);
  }
  Operands operands(const void* a, const void* b, const void* c, const void** d_ptrs) const {
    Operands made = {{"a", a}, {"b", b}, {"out", c}};
    const bool reads_none = key_.signature.elementwise_op == "PassThrough";
    const int count = reads_none ? 0 : key_.signature.num_d_tensors;
    if (count > 0 && d_ptrs == nullptr) {
      throw UnsupportedProblem(name_ + " reads " + std::to_string(count) +
                               " D tensors, and none are given; call run_fused()");
    }
    for (int i = 0; i < count; ++i) made.emplace_back("d" + std::to_string(i), d_ptrs[i]);
    return made;
  }

  KernelKey key_;
  std::string name_;
  MachinePtr machine_;
  std::string pinned_;
};

// The fields of one of Tessera's kernels, by its name.
inline KernelKey gemm_key_of(const std::string& kernel) {
  const std::string shown = command("show", "{\"kernel\": \"" + kernel + "\"}");
  const auto word = [&](const char* name) { return field(shown, name); };
  KernelKey key;
  key.signature.dtype_a = string_to_dtype(word("a"));
  key.signature.dtype_b = string_to_dtype(word("b"));
  key.signature.dtype_c = string_to_dtype(word("out"));
  key.signature.dtype_acc = string_to_dtype(word("acc"));
  const std::string layout = word("layout");
  key.signature.layout_a = string_to_layout(layout.substr(0, 1));
  key.signature.layout_b = string_to_layout(layout.substr(1, 1));
  key.signature.elementwise_op = word("epilogue");
  const std::size_t multi = key.signature.elementwise_op.find("multi_d_");
  if (multi != std::string::npos) {
    const std::size_t digit = key.signature.elementwise_op.find_first_of("0123456789", multi);
    key.signature.num_d_tensors =
        static_cast<std::uint8_t>(key.signature.elementwise_op[digit] - '0');
  }
  const auto shape = [&](const char* name, auto& to) {
    int m = 0, n = 0, k = 0;
    std::sscanf(word(name).c_str(), "%dx%dx%d", &m, &n, &k);
    using Size = std::decay_t<decltype(to.m)>;
    to.m = static_cast<Size>(m), to.n = static_cast<Size>(n), to.k = static_cast<Size>(k);
  };
  shape("tile", key.algorithm.tile_shape);
  shape("wave", key.algorithm.wave_shape);
  shape("warp_tile", key.algorithm.warp_tile_shape);
  key.algorithm.pipeline = string_to_pipeline(word("pipeline"));
  key.algorithm.scheduler =
      detail::from_word(detail::kSchedulers, word("scheduler"), Scheduler::Auto);
  key.algorithm.epilogue = string_to_epilogue(word("store"));
  key.algorithm.double_buffer = key.algorithm.pipeline == Pipeline::CompV4;
  key.algorithm.persistent = word("persistent") == "true";
  key.algorithm.preshuffle = word("preshuffle") == "true";
  key.algorithm.transpose_c = word("swap_ab") == "true";
  key.algorithm.streamk = word("streamk") == "true";
  key.gfx_arch = word("target");
  key.kernel = kernel;
  return key;
}

// One of Tessera's kernels, by its name; for its own target, where no other one is named.
inline KernelInstancePtr named_gemm_kernel(const std::string& kernel,
                                           const std::string& arch = {}) {
  const KernelKey key = gemm_key_of(kernel);
  return std::make_shared<TesseraGemm>(key, kernel, machine_for(arch.empty() ? key.gfx_arch : arch),
                                       kernel);
}

}  // namespace ck_tile::dispatcher::backends
