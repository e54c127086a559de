// Groups of unequal sizes on CUDA targets: what kernels of both ways share.
#pragma once

#include <string>

#include "tessera/device/cuda/gemm/group_arguments.h"
#include "tessera/families/gemm/groups.h"
#include "tessera/families/gemm/ways.h"

namespace tessera::gemm {

// The template of a kernel for groups, whose entry _prepare looks for numbers that do not fit.
CudaTemplate group_template(std::string_view header, std::string_view name);
// The text of that entry, also for a struct of arguments in which the groups lie elsewhere, and its
// step; the grouping in a configuration.
std::string group_check_text(const KernelSpec& spec);
std::string group_check_text(const KernelSpec& spec, std::string_view arguments,
                             std::string_view groups);
Step group_check_step(std::uint8_t entry);
std::string grouping_text(const KernelSpec& spec);

// The arguments without tensor maps. The problem's strides must be filled in.
device::CudaGroupArguments cuda_group_arguments(const GemmProblem& p, const GemmOperands& o);
// Whether a launch has anything to compute. Without groups, here and below batches count as such.
bool computes_groups(const GemmProblem& p);
// Adds the pointers, and the step that checks the numbers.
void begin_groups(const KernelSpec& spec, const GemmProblem& p, const GemmOperands& o,
                  Launch& launch);

// The most tiles of rows that all groups can have together, of so many rows each.
double most_group_tiles(const GemmProblem& p, int rows);

// cpasync.cc
Launch bind_groups_by_warps(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                            const GemmOperands& o);

// tmaws_groups.cc
// The problem whose batches are the groups, where an operand has a matrix for each of them.
GemmProblem matrices_as_batches(const GemmProblem& p);
// Adds the windows on A, on B and on out, whose matrices follow each other, or are one.
void add_a_window(const KernelSpec& spec, const GemmProblem& p, const void* a, Launch& launch);
void add_b_window(const KernelSpec& spec, const GemmProblem& p, const void* b, Launch& launch);
// `chunk` is how many columns, or rows with swapped operands, the copy engine writes at a time.
void add_out_window(const KernelSpec& spec, const GemmProblem& p, void* out, int chunk,
                    Launch& launch);
// Whether the copy engine can write the output of all groups.
bool copies_groups_out(const KernelSpec& spec, const GemmProblem& p, const void* out);
// The step of a kernel that walks along groups.
Step group_walk_step(const KernelSpec& spec, const GemmProblem& p);
// The bytes behind a kernel's other shared memory in which a block keeps sums of tiles, one for
// each group, or for each tile of the rows.
std::int64_t group_walk_bytes(const Algorithm& a, const GemmProblem& p);
Source tmaws_groups_source(const KernelSpec& spec, const std::string& shapes);
Verdict tmaws_serves_groups(const KernelSpec& spec, const GemmProblem& p, const Target& target);
Launch bind_groups_by_tma(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                          const GemmOperands& o);

}  // namespace tessera::gemm
