// A GEMM kernel that can be asked and run. Building happens at the first run.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "tessera_ck/base_instance.hpp"
#include "tessera_ck/kernel_key.hpp"
#include "tessera_ck/problem.hpp"

namespace tessera_ck {

class KernelInstance : public BaseKernelInstance<KernelKey> {
 public:
  KernelInstance(const tessera::KernelSpec& spec, std::shared_ptr<Machine> machine)
      : BaseKernelInstance(key_of(spec), spec, std::move(machine)) {}

  // Whether the rules let it compute the problem; builds nothing.
  bool supports(const Problem& problem) const {
    return problem.is_valid() && computes(asked(problem));
  }
  // The problem with the kernel's types and layout, as Tessera's line.
  std::string line(const Problem& problem) const {
    return tessera::to_string(tessera::Problem(asked(problem)));
  }
  double predicted_seconds(const Problem& problem) const { return seconds_of(asked(problem)); }

  // Milliseconds; 0 without `measures`, when it runs once. The pointers are the host's on a CPU and
  // the device's on a GPU. Throws UnsupportedProblem, and DispatcherError with a sentence where the
  // machine is not here.
  float run(const void* a, const void* b, void* c, const void* const* d_ptrs,
            const Problem& problem, void* stream = nullptr, bool measures = true) const {
    return run_forced(machine(), get_name(), asked(problem), operands(a, b, c, d_ptrs), stream,
                      measures);
  }

  // Runs it, and compares each element with the fp64 reference, by a tolerance that follows from
  // the sums' lengths and the formats. One wrong element makes it false.
  bool validate(const void* a, const void* b, void* c, const void* const* d_ptrs,
                const Problem& problem) const {
    if (!machine().refusal.empty()) throw DispatcherError(machine().refusal);
    tessera::RunOptions options;
    options.force = get_name();
    options.verify = true;
    bool right = true;
    try {
      machine().dispatcher->run(asked(problem), operands(a, b, c, d_ptrs), options);
    } catch (const tessera::Error& error) {
      if (error.code() != tessera::ErrorCode::verification_failed) {
        throw UnsupportedProblem(error.what());
      }
      right = false;
    }
    return right;
  }

 private:
  tessera::GemmProblem asked(const Problem& problem) const {
    const auto& s = std::get<tessera::GemmSignature>(spec().signature);
    detail::changes_nothing("split_k", problem.k_batch != 1);
    tessera::GemmProblem made =
        tessera::gemm_problem(s.a, s.layout, problem.M, problem.N, problem.K);
    made.b = s.b, made.acc = s.acc, made.out = s.out, made.d = s.d;
    made.epilogue = s.epilogue, made.preshuffled_b = s.preshuffled_b;
    return made;
  }
  tessera::GemmOperands operands(const void* a, const void* b, void* c,
                                 const void* const* d_ptrs) const {
    tessera::GemmOperands made;
    made.a = a, made.b = b, made.out = c;
    const auto& s = std::get<tessera::GemmSignature>(spec().signature);
    for (std::size_t i = 0; i < s.epilogue.num_d; ++i) {
      if (d_ptrs == nullptr) {
        throw UnsupportedProblem(get_name() + " reads " + std::to_string(s.epilogue.num_d) +
                                 " D tensors, and none are given; call run_fused()");
      }
      made.d[i] = d_ptrs[i];
    }
    return made;
  }
};

using KernelInstancePtr = std::shared_ptr<KernelInstance>;

}  // namespace tessera_ck
