// The objects behind the handles of the C ABI.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tessera/c_api/guard_internal.h"
#include "tessera/learn/model.h"
#include "tessera/tessera.hpp"

// Either whole, or an operation and the fields that were set so far.
struct tsr_problem_t {
  std::optional<tessera::Problem> whole;
  tessera::Op op{};
  std::map<std::string, std::string> fields;
  tessera::ChoiceSettings choice;  // what a builder's setters say besides the problem
};

// Either declared by a builder, or read.
struct tsr_kernel_set_t {
  std::optional<tessera::KernelSetBuilder> builder;
  tessera::KernelSet set;
};

struct tsr_registry_t {
  std::shared_ptr<tessera::Registry> registry;
};

// What plans share with the dispatcher that made them.
struct tsr_dispatcher_t {
  std::shared_ptr<tessera::Dispatcher> dispatcher;
  tessera::DispatcherOptions options;
  int threads = 0;
  int device = 0;
};

struct tsr_plan_t {
  std::shared_ptr<tessera::Dispatcher> dispatcher;
  tessera::Problem problem;
  tessera::Tensors tensors;
  tessera::ReadyKernel kernel;
  tessera::RunOptions run;  // threads, device, force
};

struct tsr_model_t {
  std::shared_ptr<const tessera::Model> model;
  tessera::Target target;  // the machine that features are computed for
};

namespace tessera::c_api {

// The problem with all its fields. Throws Error{parse_error} where a required field is missing.
Problem problem_of(const tsr_problem_t* handle);
// The same for a dispatcher. Throws Error{invalid_argument} where it was made for another choice
// than the problem's setters ask for.
Problem problem_for(const tsr_dispatcher_t& dispatcher, const tsr_problem_t* handle);
KernelSet kernel_set_of(const tsr_kernel_set_t* handle);
jit::BuildOptions build_options_of(const tsr_build_options_t* given);
RunOptions run_options_of(const tsr_dispatcher_t& dispatcher, const tsr_choose_options_t* given);

}  // namespace tessera::c_api
