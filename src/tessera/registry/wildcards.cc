#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/registry/kernel_set_internal.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, 3> kVariants = {"standard", "preshuffle", "multi_d"};

bool is_everything(std::string_view value) { return value.empty() || value == "*"; }

bool place_matches(std::string_view pattern, int value) {
  return pattern == "*" || pattern == std::to_string(value);
}

bool shape_matches(std::string_view pattern, const Shape3& shape) {
  if (is_everything(pattern)) return true;
  const std::vector<std::string_view> places = split(pattern, 'x');
  return place_matches(places[0], shape.m) && place_matches(places[1], shape.n) &&
         place_matches(places[2], shape.k);
}

std::vector<Shape3> matching(std::string_view pattern, const std::vector<Shape3>& shapes) {
  std::vector<Shape3> found;
  std::copy_if(shapes.begin(), shapes.end(), std::back_inserter(found),
               [pattern](const Shape3& shape) { return shape_matches(pattern, shape); });
  return found;
}

template <class Value>
std::string listed(const std::vector<Value>& values) {
  std::vector<std::string> words;
  for (const Value& value : values) words.emplace_back(to_string(value));
  return join(words, ", ");
}

// "dtype=bf16 layout=rcr,rrr tile=128x*x64"
std::string to_text(const SpecGroup& group) {
  const SpecFilter& f = group.filter;
  std::vector<std::string> words = {std::string(to_string(*group.op))};
  const auto add = [&words](std::string_view key, const std::string& value) {
    if (!is_everything(value)) words.push_back(fmt::format("{}={}", key, value));
  };
  add("dtype", join(f.dtypes, ","));
  add("layout", join(f.layouts, ","));
  add("variant", join(f.variants, ","));
  add("pipeline", f.pipeline);
  add("tile", f.tile);
  add("wave", f.wave);
  add("warp_tile", f.warp_tile);
  if (group.epilogue) add("epilogue", to_string(*group.epilogue));
  add("name", f.name);
  return join(words, " ");
}

// The values of the target's space that the filter leaves.
struct Choices {
  std::vector<DType> dtypes;
  std::vector<Pipeline> pipelines;
  std::vector<Shape3> tiles;
  std::vector<Shape3> waves;
  std::vector<Shape3> warp_tiles;  // of the first dtype
};

// Fills `choices`, or says which value matches nothing, beside those that exist.
std::string find_choices(const SpecFilter& filter, const AlgorithmSpace& space, Choices& choices) {
  const auto refused = [](std::string_view field, std::string_view value, std::string_view has) {
    return fmt::format("{}={} matches none of {}", field, value, has);
  };
  std::vector<DType> known;
  for (const auto& [dtype, shapes] : space.warp_tiles) known.push_back(dtype);
  for (const std::string& word : filter.dtypes) {
    const DType dtype = parse_dtype(word);
    if (space.warp_tiles.count(dtype) == 0) return refused("dtype", word, listed(known));
    choices.dtypes.push_back(dtype);
  }
  if (choices.dtypes.empty()) choices.dtypes = known;
  if (choices.dtypes.empty()) return refused("dtype", "*", "no dtypes");

  for (const Pipeline pipeline : space.pipelines) {
    if (is_everything(filter.pipeline) || to_string(pipeline) == filter.pipeline) {
      choices.pipelines.push_back(pipeline);
    }
  }
  if (choices.pipelines.empty()) {
    return refused("pipeline", filter.pipeline, listed(space.pipelines));
  }
  choices.tiles = matching(filter.tile, space.tiles);
  if (choices.tiles.empty()) return refused("tile", filter.tile, listed(space.tiles));
  choices.waves = matching(filter.wave, space.waves);
  if (choices.waves.empty()) return refused("wave", filter.wave, listed(space.waves));
  const std::vector<Shape3>& warp_tiles = space.warp_tiles.at(choices.dtypes.front());
  choices.warp_tiles = matching(filter.warp_tile, warp_tiles);
  if (choices.warp_tiles.empty()) return refused("warp_tile", filter.warp_tile, listed(warp_tiles));
  return {};
}

// Why the first combination of what the filter leaves is no kernel.
std::string first_refusal(const SpecGroup& group, const Choices& choices, const Target& target) {
  const GemmLayout layout =
      group.filter.layouts.empty() ? GemmLayout::rcr : parse_gemm_layout(group.filter.layouts[0]);
  GemmProblem problem = gemm_problem(choices.dtypes.front(), layout, 1, 1, 1);
  if (group.epilogue) problem.epilogue = *group.epilogue;
  const std::vector<std::string>& variants = group.filter.variants;
  problem.preshuffled_b = !variants.empty() && variants.front() == "preshuffle";
  const AlgorithmSpace& space = target.spaces.at(*group.op);
  KernelSpec spec;
  spec.signature = signature_of(problem);
  spec.target = target.name;
  spec.algorithm.pipeline = choices.pipelines.front();
  spec.algorithm.tile = choices.tiles.front();
  spec.algorithm.wave = choices.waves.front();
  spec.algorithm.warp_tile = choices.warp_tiles.front();
  if (!space.stages.empty()) spec.algorithm.stages = space.stages.front();
  if (!space.schedulers.empty()) spec.algorithm.scheduler = space.schedulers.front();
  const Verdict verdict = family_of(*group.op).is_legal(spec, target);
  return verdict ? std::string() : fmt::format("; for one, {}: {}", name_of(spec), verdict.reason);
}

[[noreturn]] void refuse_empty(const SpecGroup& group, const Target& target, std::string_view who) {
  const auto space = target.spaces.find(*group.op);
  if (space == target.spaces.end()) {
    throw Error(ErrorCode::not_found, fmt::format("{}: target '{}' has no kernels for {}", who,
                                                  target.name, to_string(*group.op)));
  }
  Choices choices;
  const std::string missing = find_choices(group.filter, space->second, choices);
  if (!missing.empty()) {
    throw Error(ErrorCode::not_found,
                fmt::format("{}: on target '{}', {}", who, target.name, missing));
  }
  throw Error(ErrorCode::not_found,
              fmt::format("{}: no kernel of target '{}' is legal with {}{}", who, target.name,
                          to_text(group), first_refusal(group, choices, target)));
}

// The kernels of the variants with the epilogue put on, as far as they are legal.
std::vector<KernelSpec> with_epilogue(const SpecGroup& group, const Target& target,
                                      const std::vector<std::string>& variants) {
  SpecFilter filter = group.filter;
  filter.variants = variants;
  std::vector<KernelSpec> specs;
  const Family& family = family_of(*group.op);
  for (KernelSpec& spec : family.enumerate(target, filter)) {
    if (auto* signature = std::get_if<GemmSignature>(&spec.signature)) {
      signature->epilogue = *group.epilogue;
    }
    if (family.is_legal(spec, target)) specs.push_back(std::move(spec));
  }
  return unique_by_name(std::move(specs));
}

// Enumeration lists a few epilogues only; any other one goes onto the kernels that have none, or,
// where the plain output takes no epilogue (int32), onto those of the listed ones.
std::vector<KernelSpec> fused(const SpecGroup& group, const Target& target) {
  std::vector<std::string> plain = group.filter.variants;
  std::erase(plain, "multi_d");
  if (plain.empty()) plain = {"standard"};
  std::vector<KernelSpec> specs = with_epilogue(group, target, plain);
  const bool standard = std::find(plain.begin(), plain.end(), "standard") != plain.end();
  if (specs.empty() && standard) specs = with_epilogue(group, target, {"multi_d"});
  return specs;
}

}  // namespace

void SpecGroup::add_dtype(std::string_view value) {
  if (!is_everything(value)) filter.dtypes.emplace_back(to_string(parse_dtype(value)));
}

void SpecGroup::add_layout(std::string_view value) {
  if (!is_everything(value)) filter.layouts.emplace_back(to_string(parse_gemm_layout(value)));
}

void SpecGroup::add_variant(std::string_view value) {
  if (is_everything(value)) return;
  if (std::find(kVariants.begin(), kVariants.end(), value) == kVariants.end()) {
    const std::vector<std::string> known(kVariants.begin(), kVariants.end());
    throw Error(ErrorCode::parse_error, fmt::format("unknown variant '{}'{} (known: {})", value,
                                                    did_you_mean(value, known), join(known, ", ")));
  }
  filter.variants.emplace_back(value);
}

void SpecGroup::set_pipeline(std::string_view value) {
  filter.pipeline = is_everything(value) ? "" : std::string(to_string(parse_pipeline(value)));
}

std::string shape_pattern(std::string_view field, std::string_view value) {
  if (is_everything(value)) return {};
  const std::vector<std::string_view> places = split(value, 'x');
  const bool good = std::all_of(places.begin(), places.end(), [](std::string_view place) {
    return place == "*" || (!place.empty() && place.size() <= 9 &&
                            place.find_first_not_of("0123456789") == std::string_view::npos);
  });
  if (!good || places.size() != 3) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("{} must be three numbers or '*' such as 128x*x64, got '{}'", field, value));
  }
  return std::string(value);
}

std::vector<KernelSpec> expand(const SpecGroup& group, const Target& target, std::string_view who) {
  const Family& family = family_of(*group.op);
  std::vector<KernelSpec> specs =
      group.epilogue ? fused(group, target) : family.enumerate(target, group.filter);
  if (specs.empty()) refuse_empty(group, target, who);
  return specs;
}

std::vector<KernelSpec> preselected_specs(std::string_view set, const Target& target) {
  std::vector<std::string> all;
  for (const Family* family : all_families()) {
    const std::vector<std::string> names = family->preselected_names();
    if (std::find(names.begin(), names.end(), set) != names.end()) {
      return family->preselected(set, target);
    }
    all.insert(all.end(), names.begin(), names.end());
  }
  throw Error(ErrorCode::not_found, fmt::format("unknown kernel set '{}'{} (known: {})", set,
                                                did_you_mean(set, all), join(all, ", ")));
}

}  // namespace tessera
