// A GEMM kernel that can be asked and run. Tessera's are backends::TesseraGemm; others derive from
// this class, too, and lie in the same registry.
#pragma once

#include <memory>
#include <string>

#include "ck_tile/dispatcher/kernel_key.hpp"
#include "ck_tile/dispatcher/problem.hpp"

namespace ck_tile::dispatcher {

class KernelInstance {
 public:
  virtual ~KernelInstance() = default;

  virtual const KernelKey& get_key() const = 0;
  virtual bool supports(const Problem& problem) const = 0;
  virtual std::string get_name() const = 0;
  // Milliseconds; 0 where it is not timed. d_ptrs: the D tensors, or null where there are none.
  virtual float run(const void* a_ptr, const void* b_ptr, void* c_ptr, const void** d_ptrs,
                    const Problem& problem, void* stream = nullptr) const = 0;
  // Whether `c_ptr` holds the result.
  virtual bool validate(const void* a_ptr, const void* b_ptr, const void* c_ptr,
                        const void** d_ptrs, const Problem& problem,
                        float tolerance = 1e-3F) const = 0;

  // As run(), once and without a clock, where the kernel knows how.
  virtual float run_once(const void* a_ptr, const void* b_ptr, void* c_ptr, const void** d_ptrs,
                         const Problem& problem, void* stream) const {
    return run(a_ptr, b_ptr, c_ptr, d_ptrs, problem, stream);
  }
  // The time that it is predicted to take; 0 where nothing predicts it.
  virtual double predicted_seconds(const Problem&) const { return 0; }
};

using KernelInstancePtr = std::shared_ptr<KernelInstance>;

}  // namespace ck_tile::dispatcher
