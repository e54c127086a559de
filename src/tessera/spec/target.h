// Target: what a machine is. One row of data per architecture.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/spec/kernel_spec.h"

#pragma GCC visibility push(default)
namespace tessera {

// One multiply-accumulate instruction: acc[m x n] += a[m x k] * b[k x n] over a vector, warp or
// warpgroup. On CPUs m = 1, n = lanes of the accumulator, k = products summed per lane, or the
// shape of a product of tiles.
struct Instruction {
  std::string name;  // "fma", "dpbf16", "vnni", "maddwd", "tdpbssd", "wgmma", "mfma", "wmma"
  DType a = DType::fp32;
  DType b = DType::fp32;
  DType acc = DType::fp32;
  Shape3 shape;
  double per_cycle = 0;  // how many a unit issues in a cycle
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

struct CacheLevel {
  std::string name;  // "l1", "l2", "l3"
  std::int64_t bytes = 0;
  int line_bytes = 64;
  int ways = 8;                // lines that share a set; only L1's number is used
  double bytes_per_cycle = 0;  // read by one unit
  bool shared = false;         // whether all units share the cache
  friend bool operator==(const CacheLevel&, const CacheLevel&) = default;
};

// Limits of one pipeline on this machine.
struct PipelineLimit {
  int min_stages = 1;
  int max_stages = 1;
  double shared_memory_fraction = 1.0;
  friend bool operator==(const PipelineLimit&, const PipelineLimit&) = default;
};

// The value lists that enumeration multiplies out, for one operation.
struct AlgorithmSpace {
  std::vector<Pipeline> pipelines;
  std::vector<Shape3> tiles;
  std::vector<Shape3> waves;
  std::map<DType, std::vector<Shape3>> warp_tiles;  // by operand dtype
  std::vector<Scheduler> schedulers = {Scheduler::standard};
  std::vector<int> stages = {1};
  std::vector<Shape3> clusters = {Shape3{}};
  friend bool operator==(const AlgorithmSpace&, const AlgorithmSpace&) = default;
};

struct Target {
  std::string name;     // [a-z0-9]+, the last word of every kernel name
  std::string backend;  // "cpu", "cuda", "hip"
  std::string description;
  std::vector<std::string> features;       // "avx512bf16", "avx512vnni"; matched against the host's
  std::vector<std::string> compile_flags;  // a row may have only flags of compile_flags.cc
  int units = 1;                           // cores, SMs, CUs
  int warp_size = 1;                       // lanes that step together; 1 on CPUs
  int vector_bytes = 0;                    // CPU: width of a register
  int vector_registers = 0;                // CPU: how many
  int registers_per_thread = 0;            // GPU: limit, in 32-bit registers
  int registers_per_unit = 0;
  int max_threads_per_block = 1;
  std::int64_t shared_memory_bytes = 0;  // per block (GPU; LDS on AMD)
  double shared_bytes_per_cycle = 0;     // read from a unit's shared memory
  int xcds =
      1;  // dies that share the units, each with an L2 of its own; blocks go to them in turns
  Fp8Encoding fp8_encoding = Fp8Encoding::ocp;
  bool unmeasured = false;  // no kernel was ever timed on such a machine
  double clock_ghz = 0;
  double memory_gb_per_s = 0;      // bandwidth of the whole machine
  double launch_us = 0;            // cost of an empty launch
  std::vector<CacheLevel> caches;  // nearest first
  std::vector<Instruction> instructions;
  std::map<Pipeline, PipelineLimit> pipeline_limits;
  std::map<Op, AlgorithmSpace> spaces;
  // The same for kernels that are made from CK Tile's headers, see docs/decisions/cdna.md.
  std::map<Op, AlgorithmSpace> cktile_spaces;
  std::map<std::string, std::string> sources;  // field -> where its number comes from
  friend bool operator==(const Target&, const Target&) = default;
};

// JSON both ways; fields at their default are left out. target_from_json refuses a malformed row
// with the field's path: "target row: caches[1].bytes must be a positive integer, got -4". A number
// that is not at its default needs a source under its field's name ("caches", "units"), one for
// each entry of the field ("caches.l1", "instructions.fma", "spaces.gemm"), or "*" for the rest.
std::string to_json(const Target& target);
Target target_from_json(std::string_view text);

// Facts about the target's backend that matter for measuring and choosing, from one table. A
// backend that is not in the table counts as a GPU's.
bool is_gpu(const Target& target);
// Whether a kernel runs on as many units as the caller gives it threads. Otherwise a kernel has the
// whole device.
bool counts_threads(const Target& target);
// Whether kernels are measured with empty caches. Otherwise caches hold what the last run left in
// them.
bool starts_cold(const Target& target);

// The fastest instruction for these operands, or null if the machine has none. Products of tiles on
// CPUs do not count, because most kernels cannot use them.
const Instruction* find_instruction(const Target& target, DType a, DType b, DType acc);

}  // namespace tessera
#pragma GCC visibility pop
