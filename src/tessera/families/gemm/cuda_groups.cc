// Groups of unequal sizes on CUDA targets: what kernels of both ways share.
#include "tessera/families/gemm/cuda_groups.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/families/gemm/scaled.h"

namespace tessera::gemm {
namespace {

// As in src/tessera/device/cuda/gemm/group_check.h.
constexpr unsigned kCheckThreads = 1024;

constexpr std::string_view kGroupArguments = "CudaGroupArguments";

}  // namespace

CudaTemplate group_template(std::string_view header, std::string_view name) {
  return {header, name, true, kGroupArguments};
}

std::string group_check_text(const KernelSpec& spec) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  if (!has_scales(s)) return group_check_text(spec, kGroupArguments, "arguments.groups");
  return group_check_text(spec, scaled_arguments_name(s), "arguments.cuda.groups");
}

std::string group_check_text(const KernelSpec& spec, std::string_view arguments,
                             std::string_view groups) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  return fmt::format(
      "__global__ void __launch_bounds__({0}::kThreads)\n"
      "{1}_prepare(const __grid_constant__ {2} arguments) {{\n"
      "  {0}::run({3});\n"
      "}}\n",
      s.grouping == GemmGrouping::lists ? "ListCheck" : "GroupCheck", name_of(spec), arguments,
      groups);
}

std::string grouping_text(const KernelSpec& spec) {
  return fmt::format("  static constexpr Grouping kGrouping = Grouping::{};\n",
                     to_string(std::get<GemmSignature>(spec.signature).grouping));
}

device::CudaGroupArguments cuda_group_arguments(const GemmProblem& p, const GemmOperands& o) {
  device::CudaGroupArguments arguments{};
  arguments.groups = group_arguments(p, o);
  arguments.raster_group = kRasterGroup;
  return arguments;
}

Step group_check_step(std::uint8_t entry) {
  return {.entry = entry, .block = {kCheckThreads, 1, 1}};
}

bool computes_groups(const GemmProblem& p) { return p.m > 0 && p.n > 0 && matrices(p, true) > 0; }

void begin_groups(const KernelSpec& spec, const GemmProblem& p, const GemmOperands& o,
                  Launch& launch) {
  if (computes_groups(p)) list_pointers(p, gemm_arguments(p, o), launch);
  if (numbers_count(p) > 0) list_numbers(p, o, launch);
  if (!p.check_groups) return;
  launch.pointers.push(o.bad_group);
  launch.steps.push(group_check_step(prepare_entry(spec)));
}

double most_group_tiles(const GemmProblem& p, int rows) {
  const auto of_room = static_cast<double>(tiles(p.m, rows));
  const auto groups = static_cast<double>(matrices(p, true));
  const bool share_rows =
      p.grouping == GemmGrouping::contiguous || p.grouping == GemmGrouping::indexed;
  return share_rows ? of_room + groups : of_room * groups;
}

}  // namespace tessera::gemm
