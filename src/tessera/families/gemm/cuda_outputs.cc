// The text and the launches of src/tessera/device/cuda/gemm/outputs_gemm.h.
#include "tessera/families/gemm/cuda_outputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "tessera/device/cuda/gemm/outputs_arguments.h"
#include "tessera/families/gemm/cuda_groups.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/families/gemm/scaled.h"
#include "tessera/families/headers.h"
#include "tessera/families/tile/gpu_model.h"
#include "tessera/families/tile/text.h"

namespace tessera::gemm {
namespace {

constexpr unsigned kFinishThreads = 256;  // kOutputThreads
constexpr std::uint8_t kGatherEntry = 1, kFinishEntry = 2, kGroupsEntry = 3;

struct Entry {
  std::string_view suffix, kernel, bounds, given;
};
std::string entry_text(const std::string& name, std::string_view arguments, const Entry& entry) {
  return fmt::format(
      "__global__ void __launch_bounds__({}) {}{}(\n"
      "    const __grid_constant__ {} arguments) {{\n"
      "  {}::run({});\n"
      "}}\n",
      entry.bounds, name, entry.suffix, arguments, entry.kernel, entry.given);
}

Step step_of_blocks(std::uint8_t entry, std::int64_t blocks) {
  Step step;
  step.entry = entry;
  step.extent = Step::Extent::any;
  step.grid[0] = static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, 1 << 30));
  step.block[0] = kFinishThreads;
  return step;
}

// The rows of sums: those of A, or of a matrix for each batch or group.
std::int64_t rows_of_sums(const GemmProblem& p) {
  return p.m * matrices(p, group_matrices(p.grouping).out);
}

}  // namespace

Source cuda_outputs_source(const KernelSpec& spec, const CudaTemplate& from,
                           const std::string& shapes) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const std::string name = name_of(spec);
  const bool is_scaled = has_scales(s);
  std::string text = banner(spec, "cuda");
  text += fmt::format(
      "#include \"tessera/device/cuda/gemm/{}\"\n"
      "#include \"tessera/device/cuda/gemm/{}.h\"\n"
      "\n"
      "using namespace tessera::device;\n"
      "\n"
      "struct Config {{\n{}{}{}{}{}}};\n"
      "\n"
      "using Kernel = {}OutputsProduct<Config, {}>;\n"
      "\n"
      "extern \"C\" {{\n"
      "__device__ extern const int {}_abi =\n"
      "    {};\n",
      from.header, is_scaled ? "scaled_outputs" : "outputs_gemm", gpu_types_text(s), shapes,
      grouping_text(spec), outputs_text(s), tile::epilogue_fields(s.epilogue),
      is_scaled ? "Scaled" : "", from.name, name, kAbi);
  const std::string_view arguments =
      is_scaled ? "CudaScaledOutputArguments" : "CudaOutputArguments";
  const std::string own = is_scaled ? "arguments.cuda" : "arguments";
  for (const Entry& entry :
       {Entry{"", "Kernel", "Kernel::kThreads, Kernel::kMinBlocks", "arguments"},
        Entry{"_gather", "OutputsGather<Config>", "kOutputThreads", own},
        Entry{"_finish", "OutputsFinish<Config>", "kOutputThreads", own}}) {
    text += entry_text(name, arguments, entry);
  }
  if (has_groups(s)) text += group_check_text(spec, arguments, own + ".outputs.groups");
  text += "}\n";
  Source source = gpu_source(spec, std::move(text), ".cu");
  source.entries = {"", "_gather", "_finish"};
  if (has_groups(s)) source.entries.emplace_back("_prepare");
  return source;
}

// Sums are written and read once more, and so are gathered rows.
Estimate with_output_steps(const Estimate& product, const KernelSpec& spec, const GemmProblem& p,
                           double bytes_per_second) {
  const bool gathers = std::get<GemmSignature>(spec.signature).indexing == GemmIndexing::gathered;
  const double rows = static_cast<double>(p.m) * static_cast<double>(p.batch);
  const double columns = static_cast<double>(p.n * kStoredSumBytes) +
                         (gathers ? static_cast<double>(p.k) * size_of(p.a) : 0.0);
  const double moving = 2 * rows * columns / bytes_per_second;
  Estimate found = product;
  found.memory_seconds += moving;
  found.seconds += moving + (gathers ? 2 : 1) * tile::kGpuModel.prepare_us * 1e-6;
  return found;
}

Launch bind_cuda_outputs(const GemmProblem& p, const GemmOperands& o, const Step& product) {
  Launch launch;
  device::CudaOutputArguments x{};
  x.raster_group = kRasterGroup;
  x.outputs = output_arguments(p, o);
  const OutputPlaces places = output_places(p, device::kCounterBytes);
  x.copy = places.copy, x.sums = places.sums, x.ld_copy = places.ld_copy;
  launch.workspace.bytes = static_cast<std::size_t>(places.end);
  launch.workspace.address_offset = offsetof(device::CudaOutputArguments, workspace);
  launch.arguments.set(x);
  list_pointers(p, x.outputs.groups.gemm, launch);
  if (has_groups(p)) launch.pointers.push(numbers_of(p, o));
  if (p.check_groups) launch.pointers.push(o.bad_group);
  list_outputs(p, o, launch);
  if (has_scales(p)) add_scales(p, o, launch);
  if (p.check_groups) launch.steps.push(group_check_step(kGroupsEntry));
  const std::int64_t rows = rows_of_sums(p);
  if (rows == 0 || p.n == 0) return launch;
  if (p.indexing == GemmIndexing::gathered && p.k > 0) {
    launch.steps.push(step_of_blocks(kGatherEntry, a_is_row_major(p.layout) ? p.m : p.k));
  }
  launch.steps.push(product);
  launch.steps.push(step_of_blocks(kFinishEntry, rows));
  return launch;
}

}  // namespace tessera::gemm
