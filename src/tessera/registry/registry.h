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

#include "tessera/jit/build.h"
#include "tessera/runtime/runtime.h"
#include "tessera/spec/kernel_spec.h"
#include "tessera/spec/target.h"

#pragma GCC visibility push(default)
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
  // Starts a new group: the kernels of an operation. The calls that follow narrow the group by a
  // field that Wish names; several patterns for one field are alternatives. An epilogue need not be
  // a listed one: kernels without an epilogue take it.
  KernelSetBuilder& op(Op op);
  KernelSetBuilder& where(std::string_view field, std::string_view pattern);
  // Shorter spellings of op() and where().
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
  // Adds what a framework needs, by the receipt's name or number ("flash", "4"): for each signature
  // of the receipt the fastest kernels by estimate, from a single query to long prompts, and the
  // kernel that runs any problem. Throws Error{not_found} with the nearest name.
  KernelSetBuilder& receipt(std::string_view name);
  // Adds the `best` fastest kernels, by estimate, of those that choose() would consider for the
  // problem.
  KernelSetBuilder& for_problem(const Problem& problem, int best = 1);
  // Throws Error{illegal_spec} with the rule when a named kernel cannot run, and Error{not_found}
  // when a group of wildcards matches nothing.
  KernelSet build() const;

 private:
  struct [[gnu::visibility("hidden")]] Group;
  KernelSetBuilder& narrow(std::string_view field, std::string_view pattern) {
    return narrow(field, field, pattern);
  }
  KernelSetBuilder& narrow(std::string_view setter, std::string_view field,
                           std::string_view pattern);

  std::string name_;
  std::shared_ptr<const Target> target_;
  std::vector<std::shared_ptr<Group>> groups_;
};

// {"name": "mine", "kernels": ["gemm_...", ...]}; lossless, because names are. A file written by
// hand may also hold "target" and whatever the builder takes: "groups" of wildcards, "preselected"
// sets, a "receipt" or several, and "problems". Throws Error{parse_error} with line and column or
// the field's path, and what KernelSetBuilder::build() throws.
std::string to_json(const KernelSet& set);
KernelSet kernel_set_from_json(std::string_view text);

// What Registry::preload() did.
struct Preloaded {
  std::size_t kernels = 0;           // that are loaded now, those that were before included
  double seconds = 0;                // that it took
  std::vector<std::string> skipped;  // names of kernels that this library makes from another text
};

// Live kernels. Several registries live side by side; there is no global one. Thread-safe.
class Registry {
 public:
  explicit Registry(std::string name, jit::BuildOptions options = {});
  ~Registry();
  Registry(Registry&&) noexcept;

  const std::string& name() const;

  // Adds a target of the user's own. Kernels whose names end in its name are built for this row.
  // Without such a row, a target name means this machine's row (host_target()) if that has the
  // name, otherwise the shipped row.
  void add_target(const Target& target);

  // Declares kernels without building them. A name may be declared twice, because equal names mean
  // equal kernels.
  void declare(const KernelSet& set);
  void declare(const KernelSpec& spec);

  // Builds and loads every declared kernel for which this machine has the compiler, `jobs` at a
  // time. Failures are in the results, and the next build() tries these kernels again.
  std::vector<jit::BuildResult> build(int jobs = 0, const jit::Progress& progress = {});

  // The loaded kernel; builds and loads it on demand. Throws what the builder and the loader throw.
  std::shared_ptr<const runtime::LoadedKernel> get(const KernelSpec& spec);
  // Whether get() needs no compiler, because the kernel is loaded, in a pack or in the cache. If
  // one of them holds the name, emits the kernel and throws what that throws.
  bool is_ready(const KernelSpec& spec);
  // Loads the kernels of a pack that are for the target, on a GPU onto the device of `place` too,
  // so that later launches of them load nothing. A kernel that this library would make from another
  // text is skipped with a warning that names it. Throws what opening a pack throws,
  // Error{unsupported} where this machine cannot run the target, and Error{load_failed}.
  Preloaded preload(const std::filesystem::path& pack, std::string_view target,
                    const runtime::LaunchOptions& place = {});
  // The loaded kernel, or null when it is not loaded; never builds.
  std::shared_ptr<const runtime::LoadedKernel> find(std::string_view name) const;

  // What a loaded kernel was loaded from; empty when it is not loaded.
  std::optional<jit::Artifact> artifact(std::string_view name) const;

  // The declared kernels, sorted by name.
  std::vector<KernelSpec> declared() const;
  bool contains(std::string_view name) const;
  std::size_t size() const;

  // Adds the other registry's declarations. When both have loaded a kernel of the same name, this
  // registry keeps its own.
  void merge(const Registry& other);
  // A copy with the kernels of one target only.
  Registry filtered(std::string_view target_name) const;
  Registry filtered(const std::function<bool(const KernelSpec&)>& keep) const;
  // A copy with the kernels whose signatures the receipt asks for; see KernelSetBuilder::receipt().
  Registry filtered_by_receipt(std::string_view receipt) const;
  // The receipts that have a kernel here, in the order of all_receipts().
  std::vector<std::string> receipts() const;

  // The JSON is lossless: import_json(export_json()) declares the same kernels and adds the same
  // targets.
  std::string export_json() const;
  void import_json(std::string_view text);

  jit::Builder& builder();

 private:
  struct [[gnu::visibility("hidden")]] State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
#pragma GCC visibility pop
