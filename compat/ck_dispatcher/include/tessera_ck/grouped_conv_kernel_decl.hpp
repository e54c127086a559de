// Declared sets of convolution kernels; see kernel_decl.hpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera_ck/grouped_conv_problem.hpp"
#include "tessera_ck/kernel_decl.hpp"

namespace tessera_ck {

struct GroupedConvSignature {
  std::string dtype_ = "fp16", layout_ = "nhwgc";
  std::string conv_type_ = "forward";
  int dims_ = 2;

  GroupedConvSignature& dtype(const std::string& word) { return dtype_ = word, *this; }
  GroupedConvSignature& dtype_workspace(const std::string& word) {
    detail::changes_nothing("dtype_workspace", !word.empty());
    return *this;
  }
  GroupedConvSignature& dtype_bias(const std::string& word) {
    detail::changes_nothing("dtype_bias", !word.empty(), "no kernel of a set adds a bias");
    return *this;
  }
  GroupedConvSignature& layout(const std::string& word) { return layout_ = word, *this; }
  // forward, bwd_data, bwd_weight, and the longer words.
  GroupedConvSignature& conv_type(const std::string& word) { return conv_type_ = word, *this; }
  GroupedConvSignature& dims(int count) { return dims_ = count, *this; }
  GroupedConvSignature& groups(std::int64_t count) {
    detail::changes_nothing("groups", count != 1, "every kernel takes any number of groups");
    return *this;
  }
  GroupedConvSignature& spec(const std::string& word) {
    detail::changes_nothing("spec", word != "default", "every kernel takes every filter");
    return *this;
  }
};

struct GroupedConvAlgorithm : decl::BaseAlgorithm<GroupedConvAlgorithm> {
  GroupedConvAlgorithm() : BaseAlgorithm({1, 128, 128}, "compv3") {}
  GroupedConvAlgorithm& tile_output(int, int) { return hint("tile_output", true); }
  GroupedConvAlgorithm& vector_sizes(int a, int b, int c) {
    return hint("vector_sizes", a != 4 || b != 8 || c != 8);
  }
  GroupedConvAlgorithm& memory_op(const std::string& word) {
    return hint("memory_op", word != "set");
  }
  GroupedConvAlgorithm& block_per_cu(int n) { return hint("block_per_cu", n != 1); }
  GroupedConvAlgorithm& num_wave_groups(int n) { return hint("num_wave_groups", n != 1); }
  GroupedConvAlgorithm& num_groups_to_merge(int n) { return hint("num_groups_to_merge", n != 1); }
  GroupedConvAlgorithm& double_smem_buffer(bool b) { return hint("double_smem_buffer", b); }
};

using GroupedConvDeclaration = decl::BaseDeclaration<GroupedConvSignature, GroupedConvAlgorithm>;

class GroupedConvKernelSet
    : public decl::BaseKernelSet<GroupedConvKernelSet, GroupedConvSignature, GroupedConvAlgorithm> {
 public:
  using BaseKernelSet::add;
  GroupedConvKernelSet& add(const std::string& dtype, const std::string& layout,
                            const std::string& conv_type, int tile_k, int tile_c,
                            const std::string& arch = {}) {
    return add(GroupedConvSignature().dtype(dtype).layout(layout).conv_type(conv_type),
               GroupedConvAlgorithm().tile(1, tile_k, tile_c), arch);
  }
  // Every kernel of a type and layout on this machine, in all directions.
  GroupedConvKernelSet& add_all(const std::string& dtype, const std::string& layout) {
    for (const char* direction : {"forward", "bwd_data", "bwd_weight"}) {
      add(GroupedConvSignature().dtype(dtype).layout(layout).conv_type(direction),
          GroupedConvAlgorithm().pipeline(decl::ANY), "*");
    }
    return *this;
  }
};

namespace detail {

inline std::string direction_word(const std::string& word) {
  constexpr const char* kWords[][2] = {{"forward", "forward"},
                                       {"fwd", "forward"},
                                       {"bwd_data", "backward_data"},
                                       {"bwdd", "backward_data"},
                                       {"backward_data", "backward_data"},
                                       {"bwd_weight", "backward_weight"},
                                       {"bwdw", "backward_weight"},
                                       {"backward_weight", "backward_weight"}};
  for (const auto& [theirs, ours] : kWords) {
    if (word == theirs) return ours;
  }
  throw DispatcherError("conv_type is forward, bwd_data or bwd_weight, got '" + word + "'");
}

}  // namespace detail

// The kernels that a declaration stands for. Throws DispatcherError with the rule, or where the
// target has none such.
inline std::vector<tessera::KernelSpec> kernels_of(const GroupedConvDeclaration& wanted) {
  const std::shared_ptr<Machine> machine = machine_for(wanted.arch);
  const GroupedConvSignature& s = wanted.signature;
  const GroupedConvAlgorithm& a = wanted.algorithm;
  const std::string direction = detail::direction_word(s.conv_type_);
  const bool is_own = decl::detail::has_pipeline(*machine, tessera::Op::conv, a.pipeline_);
  if (!is_own) {
    decl::detail::tell_other_kernels(*machine, a.pipeline_);
    auto found = shipped(*machine, direction + "_" + s.dtype_ + "_" + s.layout_ + "_essential");
    std::erase_if(found, [&s](const tessera::KernelSpec& spec) {
      return std::get<tessera::ConvSignature>(spec.signature).ndim != s.dims_;
    });
    if (!found.empty()) return found;
  }
  return in_sentences([&] {
    const tessera::Target& target = machine->dispatcher->target();
    tessera::KernelSetBuilder builder("declared", target);
    builder.op(tessera::Op::conv).where("direction", direction).dtype(s.dtype_);
    builder.layout(s.layout_).where("ndim", std::to_string(s.dims_)).epilogue("none");
    if (is_own && a.pipeline_ != decl::ANY) decl::detail::narrow_how(a, target, false, builder);
    return builder.build().specs;
  });
}

using GroupedConvKernelSetRegistry = decl::NamedSets<GroupedConvKernelSet>;

}  // namespace tessera_ck

#define DECL_GROUPED_CONV_KERNEL_SET(name, ...) \
  CK_TILE_DECLARE_SET(::tessera_ck::GroupedConvKernelSet, #name, __VA_ARGS__)
#define DECL_GROUPED_CONV_KERNEL_ALL(dtype, layout)                                  \
  CK_TILE_DECLARE_SET(::tessera_ck::GroupedConvKernelSet, #dtype "_" #layout "_all", \
                      .add_all(#dtype, #layout))
#define GROUPED_CONV_KERNEL_SET(name) \
  ::tessera_ck::GroupedConvKernelSetRegistry::instance().get(#name)
#define BEGIN_GROUPED_CONV_KERNEL_SET() ::tessera_ck::GroupedConvKernelSet()
