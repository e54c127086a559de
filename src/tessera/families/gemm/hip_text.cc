// The text of kernels for AMD GPUs around their configuration.
#include <fmt/format.h>

#include <utility>

#include "tessera/families/gemm/ways.h"

namespace tessera::gemm {

Source hip_source(const KernelSpec& spec, const HipTemplate& from, const std::string& config,
                  const std::string& more_kernels) {
  std::string text = banner(spec, "hip");
  text += fmt::format(
      "#include \"tessera/device/hip/gemm/{4}\"\n\n"
      "using namespace tessera::device;\n"
      "\n"
      "{0}"
      "\n"
      "using Kernel = {1}<Config>;\n"
      "\n"
      "extern \"C\" {{\n"
      "__attribute__((device, used)) extern const int {2}_abi =\n"
      "    {3};\n"
      "__attribute__((global, amdgpu_flat_work_group_size(Kernel::kThreads, Kernel::kThreads),\n"
      "               amdgpu_waves_per_eu(Kernel::kMinWaves, Kernel::kMaxWaves)))\n"
      "void {2}(\n"
      "    {5} arguments) {{\n"
      "  Kernel::run(arguments);\n"
      "}}\n",
      config, from.name, name_of(spec), kAbi, from.header, from.arguments);
  return gpu_source(spec, std::move(text) + more_kernels + "}\n", ".hip");
}

std::string scale_fields_on_hip(const GemmSignature& s) {
  const auto fields = [](char operand, GemmScale scale) {
    const ScaleBlock block = scale == GemmScale::none ? ScaleBlock{1, 0} : block_of(scale);
    return fmt::format("  static constexpr int kScaleRows{0} = {1}, kScale{0} = {2};\n", operand,
                       block.rows, block.k);
  };
  return fields('A', s.scale_a) + fields('B', s.scale_b) +
         fmt::format("  static constexpr bool kScaleBytes = {};\n",
                     yes_no(s.scale_type == GemmScaleType::e8m0));
}

}  // namespace tessera::gemm
