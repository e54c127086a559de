// Kernels that are made from CK Tile's headers: what the instances of all operations share. The
// emitted text names CK Tile's templates and nothing of ours.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/families/family.h"

namespace tessera::tile {

inline constexpr std::string_view kCktile = "cktile";

// The target's space for instances; throws Error{unsupported} when its row has none.
const AlgorithmSpace& cktile_space(Op op, const Target& target);
// The space's lists multiplied out, in name order; of each algorithm each scheduler.
std::vector<Algorithm> cktile_algorithms(Op op, const Target& target, DType operand);

// How a product of tiles is written: the pipeline's word in names and its templates. Null for a
// pipeline that CK Tile's GEMM does not have.
struct CktilePipeline {
  Pipeline pipeline;
  std::string_view word, name, base;
  std::string_view dispatcher;  // the enumerator of the dispatcher's Pipeline
  int wave_groups = 1;
  bool double_buffer = false;
};
const CktilePipeline* find_cktile_pipeline(Pipeline pipeline);

std::string_view cktile_type(DType dtype);               // "ck_tile::half_t"
std::string_view cktile_bool(bool value);                // "true"
std::string_view cktile_word(bool value);                // "True", as in names
std::string_view cktile_scheduler(Scheduler scheduler);  // "Intrawave"; standard is that, too
std::string cktile_sequence(const Shape3& shape);        // "ck_tile::sequence<1, 2, 3>"

// Values for the places of a text: {"TileM", "128"} goes where the text has @TileM@.
using Places = std::vector<std::pair<std::string_view, std::string>>;
// The text with every place filled in. Throws Error{internal} for a place without a value.
std::string fill_in(std::string_view text, const Places& places);

// A kernel's header: banner, includes, its namespace and what follows that.
Instance cktile_instance(std::string name, const KernelSpec& spec,
                         const std::vector<std::string_view>& includes, std::string_view body,
                         std::string_view after);

// Shapes, the pipeline's problem and the pipeline, for the struct of a kernel that multiplies
// tiles. The types ADataType, BDataType, AccDataType and Traits come before it.
Places cktile_shapes(const Algorithm& algorithm, int wave_size);
extern const std::string_view kCktileShapes;
extern const std::string_view kCktileProblem;

}  // namespace tessera::tile
