// The text around kernels with arranged operands, and their launches.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/device/cuda/abi.h"
#include "tessera/families/gemm/arranged.h"
#include "tessera/families/gemm/ways.h"
#include "tessera/families/headers.h"

namespace tessera::gemm {
namespace {

using device::ArrangeArguments;
using device::ArrangeBlock;
using device::ArrangeJob;

// Stands for the workspace's address while a product is bound: as two floats its upper one would
// be a NaN, which no argument is, and no operand lies there.
constexpr std::uint64_t kWorkspaceMark = 0x7fbadcaf00000000;
constexpr std::int64_t kMatrixAlignment = 256;
constexpr std::int64_t kMostArrangeBlocks = std::int64_t{1} << 16;

void* marked(std::int64_t offset) {
  return std::bit_cast<void*>(kWorkspaceMark + static_cast<std::uint64_t>(offset));
}
bool is_marked(std::uint64_t address, std::int64_t bytes) {
  return address >= kWorkspaceMark && address < kWorkspaceMark + static_cast<std::uint64_t>(bytes);
}

const void* pointer_of(const GemmOperands& o, Arranged operand) {
  return pointer(o, static_cast<std::size_t>(operand));
}

// The operands that the product gets: copies at their marks.
GemmOperands product_operands(const DenseProduct& dense, const GemmOperands& o) {
  Operands all = o;
  for (std::size_t i = 0; i < kArrangedOperands; ++i) {
    const ArrangedMatrix& matrix = dense.matrices.at(i);
    if (matrix.is_copy) set_pointer(all, i, marked(matrix.offset));
  }
  return std::get<GemmOperands>(all);
}

device::MergedType merged_type(DType type) {
  if (type == DType::fp16) return device::MergedType::fp16;
  return type == DType::bf16 ? device::MergedType::bf16 : device::MergedType::fp32;
}

void copy_numbers(const std::array<std::int64_t, kMostDims>& from,
                  device::i64 (&to)[device::kArrangedRank]) {
  std::copy_n(from.begin(), device::kArrangedRank, to);
}

ArrangeJob job_of(const GemmProblem& p, const DenseProduct& dense, Arranged operand,
                  const void* tensor, std::int64_t base) {
  const ArrangedView view = view_of(p, dense, operand);
  ArrangeJob job{};
  job.tensor = const_cast<void*>(tensor);
  job.matrix = base + dense.of(operand).offset;
  job.elements = view.elements;
  copy_numbers(view.sizes, job.sizes);
  std::fill(std::begin(job.sizes) + view.rank, std::end(job.sizes), 1);
  copy_numbers(view.strides, job.strides);
  copy_numbers(view.dense, job.dense);
  job.rank = static_cast<int>(view.rank);
  job.bytes = size_of(type_of(p, operand));
  job.sources = static_cast<int>(sources_of(p, operand));
  job.type = merged_type(type_of(p, operand));
  job.operand = static_cast<int>(operand);
  return job;
}

void add_sources(const GemmProblem& p, const DenseProduct& dense, const GemmOperands& o,
                 Arranged operand, int& next, ArrangeArguments& x, ArrangeJob& job) {
  const bool is_a = operand == Arranged::a;
  const auto& more = is_a ? o.more_a : o.more_b;
  const ArrangedView view = view_of(p, dense, operand);
  job.multiplies = (is_a ? p.merge_a : p.merge_b) == GemmMerge::multiply ? 1 : 0;
  job.first_more = next;
  for (int i = 1; i < job.sources; ++i) {
    device::ArrangeMore& one = x.more[next++];
    one.tensor = more.at(static_cast<std::size_t>(i) - 1);
    copy_numbers(source_strides(p, view, operand, static_cast<std::size_t>(i)), one.strides);
  }
}

ArrangeArguments arrange_arguments(const GemmProblem& p, const DenseProduct& dense,
                                   const GemmOperands& o, std::int64_t base) {
  ArrangeArguments x{};
  x.bytes = dense.bytes;
  int next = 0;
  for (std::size_t i = 0; i < kArrangedOperands; ++i) {
    const auto operand = static_cast<Arranged>(i);
    if (!dense.of(operand).is_copy) continue;
    ArrangeJob& job = x.jobs[x.gathers + x.spreads];
    job = job_of(p, dense, operand, pointer_of(o, operand), base);
    if (job.sources > 1) add_sources(p, dense, o, operand, next, x, job);
    (operand == Arranged::out ? x.spreads : x.gathers) += 1;
  }
  return x;
}

// ---- GPUs ----

// The pointers that the kernel accesses: the product's without those into the workspace, and those
// of what is arranged.
void list_all_pointers(const ArrangeArguments& x, std::int64_t bytes, const Launch& product,
                       Launch& launch) {
  launch.pointers = {};
  for (const void* pointer : product.pointers) {
    if (!is_marked(std::bit_cast<std::uint64_t>(pointer), bytes)) launch.pointers.push(pointer);
  }
  int sources = 0;
  for (int i = 0; i < x.gathers + x.spreads; ++i) {
    launch.pointers.push(x.jobs[i].tensor);
    sources += x.jobs[i].sources - 1;
  }
  for (int i = 0; i < sources; ++i) launch.pointers.push(x.more[i].tensor);
}

// The words of the product's arguments and tensor maps that are marks.
void place_marks(std::int64_t base, std::int64_t bytes, Launch& launch) {
  const std::size_t words = launch.arguments.size() / sizeof(std::uint64_t);
  for (std::size_t i = 0; i < words; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, launch.arguments.data() + i * sizeof(word), sizeof(word));
    if (!is_marked(word, bytes)) continue;
    launch.workspace_places.push(
        {i * sizeof(word), static_cast<std::size_t>(base) + (word - kWorkspaceMark)});
  }
  for (TensorMap& map : launch.tensor_maps) {
    const auto address = std::bit_cast<std::uint64_t>(map.base);
    if (map.in_workspace || !is_marked(address, bytes)) continue;
    map.in_workspace = true, map.base = nullptr;
    map.workspace_offset = static_cast<std::size_t>(base) + (address - kWorkspaceMark);
  }
}

Step arrange_step(const ArrangeArguments& x, int first, int end, std::size_t entry) {
  std::int64_t most = 1;
  for (int i = first; i < end; ++i) most = std::max<std::int64_t>(most, x.jobs[i].elements);
  const std::int64_t blocks =
      std::min(tiles(most, std::int64_t{4} * device::kArrangeThreads), kMostArrangeBlocks);
  Step step;
  step.entry = static_cast<std::uint8_t>(entry);
  step.grid[0] = static_cast<unsigned>(blocks);
  step.block[0] = device::kArrangeThreads;
  return step;
}

// The entries behind those of the product's kernel.
std::size_t first_arrange_entry(const KernelSpec& spec) {
  const Algorithm& a = spec.algorithm;
  return a.pipeline == Pipeline::tmaws && tmaws_prepares(a) ? 2 : 1;
}

void set_block(const ArrangeArguments& x, Launch& launch) {
  ArrangeBlock block{};
  if (launch.arguments.size() > device::kArrangeOffset) {
    throw Error(ErrorCode::internal,
                fmt::format("gemm: a kernel that arranges operands takes at most {} bytes of "
                            "arguments for its product, got {}",
                            device::kArrangeOffset, launch.arguments.size()));
  }
  std::memcpy(block.product, launch.arguments.data(), launch.arguments.size());
  block.arrange = x;
  launch.arguments.set(block);
}

Launch on_gpu(const KernelSpec& spec, const GemmProblem& p, const DenseProduct& dense,
              const GemmOperands& o, const Launch& product) {
  Launch launch = product;
  const std::int64_t base =
      tiles(std::max<std::int64_t>(static_cast<std::int64_t>(product.workspace.bytes),
                                   device::kCounterBytes),
            kMatrixAlignment) *
      kMatrixAlignment;
  ArrangeArguments x = arrange_arguments(p, dense, o, base);
  list_all_pointers(x, dense.bytes, product, launch);
  if (x.gathers + x.spreads == 0 || product.steps.empty()) {
    set_block(x, launch);
    return launch;
  }
  place_marks(base, dense.bytes, launch);
  constexpr std::size_t kPlace =
      offsetof(ArrangeBlock, arrange) + offsetof(ArrangeArguments, workspace);
  if (product.workspace.bytes == 0) {
    launch.workspace = {.address_offset = kPlace};
  } else {
    launch.workspace_places.push({kPlace, 0});
  }
  launch.workspace.bytes = static_cast<std::size_t>(base + dense.bytes);
  const std::size_t entry = first_arrange_entry(spec);
  const Step gather = arrange_step(x, 0, x.gathers, entry);
  const Step spread = arrange_step(x, x.gathers, x.gathers + x.spreads, entry + 1);
  x.blocks = static_cast<int>(gather.grid[0]);
  x.spread_blocks = static_cast<int>(spread.grid[0]);
  set_block(x, launch);
  launch.steps = {};
  if (x.gathers > 0) launch.steps.push(gather);
  for (const Step& step : product.steps) launch.steps.push(step);
  if (x.spreads > 0) launch.steps.push(spread);
  return launch;
}

// ---- text ----

std::string cuda_entry(const std::string& name, std::string_view suffix, std::string_view call) {
  return fmt::format(
      "__global__ void __launch_bounds__(kArrangeThreads)\n"
      "{}{}(\n"
      "    const __grid_constant__ ArrangeBlock block) {{\n"
      "  Arrange::{}(block.arrange);\n"
      "}}\n",
      name, suffix, call);
}

std::string arranging_hip_entry(const std::string& name, std::string_view suffix,
                                std::string_view call) {
  return fmt::format(
      "__attribute__((global, amdgpu_flat_work_group_size({0}, {0})))\n"
      "void {1}{2}(\n"
      "    ArrangeBlock block) {{\n"
      "  Arrange::{3}(block.arrange);\n"
      "}}\n",
      device::kArrangeThreads, name, suffix, call);
}

}  // namespace

// A CPU's kernel arranges its operands itself.
Source arranged_source(Source product, const KernelSpec& spec, const Target& target) {
  if (!is_arranged(spec) || target.backend == "cpu") return product;
  const std::string name = name_of(spec);
  const auto entry = target.backend == "cuda" ? cuda_entry : arranging_hip_entry;
  product.text +=
      fmt::format("\n#include \"tessera/device/{}/gemm/arrange.h\"\n\nextern \"C\" {{\n",
                  target.backend) +
      entry(name, "_gather", "gather") + entry(name, "_spread", "spread") + "}\n";
  product.headers = headers_of(product.text);
  product.entries.emplace_back("_gather");
  product.entries.emplace_back("_spread");
  return product;
}

Launch bind_arranged(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                     const GemmOperands& o) {
  const DenseProduct dense = dense_product(p);
  Launch launch = tile::bind<Types>(spec, dense.problem, target, product_operands(dense, o));
  if (target.backend != "cpu") return on_gpu(spec, p, dense, o, launch);
  set_block(arrange_arguments(p, dense, o, 0), launch);
  return launch;
}

}  // namespace tessera::gemm
