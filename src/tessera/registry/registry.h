// Kernel sets (declared) and live kernels (loaded).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/families/family.h"
#include "tessera/jit/build.h"
#include "tessera/runtime/runtime.h"

namespace tessera {

// A declared list of kernels: unique, sorted by name.
struct KernelSet {
  std::string name;
  std::vector<KernelSpec> specs;
  friend bool operator==(const KernelSet&, const KernelSet&) = default;
};

// Declares a set step by step; wildcards expand against the target.
//   KernelSetBuilder("mine", "avx512").gemm().dtype("bf16").layout("rcr").tile("*x*x256").build();
//   KernelSetBuilder("mine", "sm90a").op(Op::gemm).where("stages", "4").build();
class KernelSetBuilder {
 public:
  KernelSetBuilder(std::string name, const Target& target);
  KernelSetBuilder(std::string name, std::string_view target_name);
  // Starts a new group: the kernels of an operation. Those after it narrow the group, by a field
  // that Wish names; several patterns of one field are alternatives. An epilogue need not be a
  // listed one: it is put on the kernels that have none.
  KernelSetBuilder& op(Op op);
  KernelSetBuilder& where(std::string_view field, std::string_view pattern);
  // The same in one word each.
  KernelSetBuilder& gemm() { return op(Op::gemm); }
  KernelSetBuilder& dtype(std::string_view pattern) { return narrow("dtype", pattern); }
  KernelSetBuilder& layout(std::string_view pattern) { return narrow("layout", pattern); }
  KernelSetBuilder& variant(std::string_view pattern) { return narrow("variant", pattern); }
  KernelSetBuilder& pipeline(std::string_view pattern) { return narrow("pipeline", pattern); }
  KernelSetBuilder& tile(std::string_view pattern) { return narrow("tile", pattern); }
  KernelSetBuilder& wave(std::string_view pattern) { return narrow("wave", pattern); }
  KernelSetBuilder& warp_tile(std::string_view pattern) { return narrow("warp_tile", pattern); }
  KernelSetBuilder& epilogue(std::string_view pattern) { return narrow("epilogue", pattern); }
  // Adds one kernel by name, or a preselected set such as "fp32_rcr_essential".
  KernelSetBuilder& add(std::string_view kernel_name);
  KernelSetBuilder& preselected(std::string_view set_name);
  // Adds the kernels that choose() would consider for the problem, best k by estimate.
  KernelSetBuilder& for_problem(const Problem& problem, int best = 1);
  // Throws Error{illegal_spec} with the rule when a named kernel cannot run, and Error{not_found}
  // when a group of wildcards matches nothing.
  KernelSet build() const;

 private:
  struct Group;
  KernelSetBuilder& narrow(std::string_view field, std::string_view pattern) {
    return narrow(field, field, pattern);
  }
  KernelSetBuilder& narrow(std::string_view setter, std::string_view field,
                           std::string_view pattern);

  std::string name_;
  std::shared_ptr<const Target> target_;
  std::vector<std::shared_ptr<Group>> groups_;
};

// {"name": "mine", "kernels": ["gemm_...", ...]}; lossless, since names are. A declaration by hand
// may also hold "target" and what the builder takes: "groups" of wildcards, "preselected" sets and
// "problems". Throws Error{parse_error} with line and column or the field's path, and what
// KernelSetBuilder::build() throws.
std::string to_json(const KernelSet& set);
KernelSet kernel_set_from_json(std::string_view text);

// Live kernels. Several registries live side by side; there is no global one. Thread-safe.
class Registry {
 public:
  explicit Registry(std::string name, jit::BuildOptions options = {});
  ~Registry();
  Registry(Registry&&) noexcept;

  const std::string& name() const;

  // A machine of the user's own: kernels that end in its name are built for this row. Without it a
  // name means this machine's own row (host_target()) when it is called so, else the shipped row.
  void add_target(const Target& target);

  // Declares kernels without building them. Declaring a name twice is no error: equal names are
  // equal kernels.
  void declare(const KernelSet& set);
  void declare(const KernelSpec& spec);

  // Builds and loads every declared kernel for which this machine has the compiler, `jobs` at a
  // time. Failures are in the results; they are tried again by the next build().
  std::vector<jit::BuildResult> build(int jobs = 0, const jit::Progress& progress = {});

  // The loaded kernel; builds it on demand. Throws what the builder and the loader throw.
  std::shared_ptr<const runtime::LoadedKernel> get(const KernelSpec& spec);
  // Whether get() needs no compiler: it is loaded, or in a pack. Throws what emitting throws of a
  // kernel whose name is in a pack.
  bool is_ready(const KernelSpec& spec);
  // Without building: null when it is not loaded.
  std::shared_ptr<const runtime::LoadedKernel> find(std::string_view name) const;

  // Sorted by name.
  std::vector<KernelSpec> declared() const;
  bool contains(std::string_view name) const;
  std::size_t size() const;

  // The one rule of merging: the union of declarations; where both have loaded a kernel of the same
  // name, this registry keeps its own.
  void merge(const Registry& other);
  // A copy that holds the kernels of one target only.
  Registry filtered(std::string_view target_name) const;
  Registry filtered(const std::function<bool(const KernelSpec&)>& keep) const;

  // Lossless: import_json(export_json()) declares the same kernels and adds the same targets.
  std::string export_json() const;
  void import_json(std::string_view text);

  jit::Builder& builder();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
