// Kernels that are made from CK Tile's headers: what the instances of all operations share. The
// emitted text names CK Tile's templates and nothing of ours.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/families/family.h"
#include "tessera/families/tile/candidates.h"
#include "tessera/families/tile/rules.h"

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
std::string cktile_numbers(const Shape3& shape);         // "1, 2, 3"

// Values for the places of a text: {"TileM", "128"} goes where the text has @TileM@.
using Places = std::vector<std::pair<std::string_view, std::string>>;
// The texts, one behind the other, with every place filled in. Throws Error{internal} for a place
// without a value.
std::string fill_in(std::initializer_list<std::string_view> texts, const Places& places);

// A kernel's header: banner, includes and its namespace. Where `is_alone_too`, the dispatcher's C
// library may compile one kernel by itself, with the names that it expects.
Instance cktile_instance(std::string name, const KernelSpec& spec,
                         const std::vector<std::string_view>& includes, std::string_view body,
                         bool is_alone_too);
// The includes of a file that registers kernels.
std::string cktile_includes(std::span<const Instance> instances);

template <class Value>
bool lists(const std::vector<Value>& all, const Value& value) {
  return std::find(all.begin(), all.end(), value) != all.end();
}

// InstanceSource::is_legal of an operation with such rules, whose signatures' own rules are
// `signature_reason`.
template <class Signature>
Verdict has_instance(Op op, const KernelSpec& spec, const Target& target,
                     std::string (*signature_reason)(const Signature&),
                     std::type_identity_t<std::span<const Rule<SpecCase<Signature>>>> rules) {
  if (std::string why = foreign_reason(op, spec, target); !why.empty()) return {why};
  const auto& signature = std::get<Signature>(spec.signature);
  if (std::string why = signature_reason(signature); !why.empty()) return {why};
  return {broken_sentence(rules, SpecCase<Signature>{signature, spec.algorithm, target})};
}

// Rules of kernels that multiply tiles.
extern const AlgorithmRule kCktileDivision;
std::string cktile_lds_sentence(std::int64_t bytes, std::int64_t most, Pipeline pipeline,
                                const Target& target);

// Shapes, the pipeline's problem and the pipeline, for the struct of a kernel that multiplies
// tiles. The types ADataType, BDataType, AccDataType and Traits come before it.
Places cktile_shapes(const Algorithm& algorithm, int wave_size);
extern const std::string_view kCktileShapes;
extern const std::string_view kCktileProblem;

}  // namespace tessera::tile
