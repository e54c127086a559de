#include "tessera/targets/cktile_archs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/spec/json_internal.h"

namespace tessera {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostKb = std::int64_t{1} << 20;
constexpr int kMostLanes = 1024;
constexpr std::string_view kDefaultBudget = "default";

// Parts of a file that no row holds, and why.
struct LeftPart {
  std::string_view key, why;
};
constexpr std::array kLeftOfFile = {
    LeftPart{"element_sizes", "Tessera's types have their sizes"},
    LeftPart{"datatype_cpp_map", "instances name CK Tile's types by themselves"},
    LeftPart{"dtype_combinations", "which types go together is a rule of every operation"},
    LeftPart{"layout_cpp_map", "instances name CK Tile's layouts by themselves"},
    LeftPart{"preshuffle_warp_tile_combos", "a row has one list of warp tiles"},
    LeftPart{"preshuffle_pipelines", "a preshuffled B is a field of kernels, not a pipeline"}};
constexpr std::array kLeftOfArch = {LeftPart{"family", "a row has no family"},
                                    LeftPart{"target_family", "a row has no family"},
                                    LeftPart{"architecture", "a row's instructions say it"}};

JsonPlace place_in(const std::string& source) { return {fmt::format("'{}'", source), ""}; }

const json& member(const json& object, const char* key, const JsonPlace& place) {
  const auto found = object.find(key);
  if (found == object.end()) missing_json(place.key(key));
  return *found;
}

void require_object(const json& value, const JsonPlace& place) {
  if (!value.is_object()) refuse_json(place, "an object", value);
}

const json& archs_of(const json& whole, const JsonPlace& place) {
  require_object(whole, place);
  const json& archs = member(whole, "architectures", place);
  require_object(archs, place.key("architectures"));
  return archs;
}

// [2, 2, 1]
Shape3 shape_at(const json& value, const JsonPlace& place) {
  if (!value.is_array() || value.size() != 3) refuse_json(place, "a list of three sizes", value);
  std::array<int, 3> sizes{};
  for (std::size_t i = 0; i < 3; ++i) {
    sizes.at(i) =
        static_cast<int>(read_json_integer(value[i], place.item(i), Range::positive, 65536));
  }
  return {sizes[0], sizes[1], sizes[2]};
}

std::vector<Shape3> shapes_at(const json& value, const JsonPlace& place) {
  if (!value.is_array() || value.empty()) refuse_json(place, "a list of shapes", value);
  std::vector<Shape3> shapes;
  for (std::size_t i = 0; i < value.size(); ++i) {
    shapes.push_back(shape_at(value[i], place.item(i)));
  }
  return shapes;
}

std::string listed(const std::vector<Shape3>& shapes) {
  std::vector<std::string> words;
  for (const Shape3& shape : shapes) words.push_back(to_string(shape));
  return join(words, " ");
}

// What an import works on: the file, one of its architectures, and the row that it makes.
struct Import {
  const json& whole;
  const json& arch;
  JsonPlace file;
  JsonPlace place;
  std::string origin;  // for `sources`
  Op op;               // whose waves and warp tiles the file has
  ImportedTarget out;

  AlgorithmSpace* space() {
    const auto found = out.target.cktile_spaces.find(op);
    return found == out.target.cktile_spaces.end() ? nullptr : &found->second;
  }
  // CK Tile's pipelines have the same words in files as here.
  std::vector<Pipeline> pipelines() {
    return space() == nullptr ? std::vector<Pipeline>() : space()->pipelines;
  }
  void take(const std::string& field, const std::string& key) {
    out.target.sources[field] = fmt::format("{}, {}", origin, key);
  }
};

// ---- the row that it starts from ----

std::string renamed(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// The numbers of another machine's row keep saying whose they are.
void start_from(Import& all, const std::string& arch, const Target& base) {
  Target& row = all.out.target;
  row = base;
  if (base.name == arch) return;
  row.name = arch;
  row.unmeasured = true;
  for (std::string& word : row.features) word = renamed(word, base.name, arch);
  for (std::string& flag : row.compile_flags) flag = renamed(flag, base.name, arch);
  for (auto& [field, text] : row.sources) {
    text = fmt::format("the row of {}, another machine: {}", base.name, text);
  }
}

// ---- parts ----

void take_description(Import& all) {
  const auto found = all.arch.find("description");
  if (found == all.arch.end()) return;
  all.out.target.description = read_json_string(*found, all.place.key("description"));
  all.out.taken.push_back(fmt::format("description: {}", all.out.target.description));
}

void take_sizes(Import& all) {
  const json& lanes = member(all.arch, "warp_size", all.place);
  all.out.target.warp_size = static_cast<int>(
      read_json_integer(lanes, all.place.key("warp_size"), Range::positive, kMostLanes));
  all.take("warp_size", "warp_size");
  all.out.taken.push_back(fmt::format("warp_size: {} lanes", all.out.target.warp_size));
  if (all.arch.find("lds_capacity_kb") == all.arch.end()) return;
  all.out.target.shared_memory_bytes =
      1024 * read_json_integer(all.arch["lds_capacity_kb"], all.place.key("lds_capacity_kb"),
                               Range::positive, kMostKb);
  all.take("shared_memory_bytes", "lds_capacity_kb");
  all.out.taken.push_back(
      fmt::format("lds_capacity_kb: {} bytes", all.out.target.shared_memory_bytes));
}

void leave_unlisted(Import& all, std::string_view key) {
  all.out.left.push_back(fmt::format(
      "{}: the row has no list of CK Tile's {} kernels to put them in", key, to_string(all.op)));
}

void take_waves(Import& all) {
  const JsonPlace place = all.place.key("warp_configs");
  const std::vector<Shape3> waves = shapes_at(member(all.arch, "warp_configs", all.place), place);
  AlgorithmSpace* const space = all.space();
  if (space == nullptr) {
    leave_unlisted(all, "warp_configs");
    return;
  }
  space->waves = waves;
  all.out.taken.push_back(fmt::format("warp_configs: waves {}", listed(waves)));
}

// "fp16_fp16_fp32" is fp16. False where the three words are no such types.
bool operand_of(const std::string& key, DType& operand) {
  for (const std::string_view word : Words<DType>::kAll) {
    DType type{};
    read_word(word, type);
    if (key != fmt::format("{0}_{0}_{1}", word, to_string(default_accumulator(type)))) continue;
    operand = type;
    return true;
  }
  return false;
}

void take_warp_tiles(Import& all) {
  const auto found = all.arch.find("warp_tile_combos");
  AlgorithmSpace* const space = all.space();
  if (found == all.arch.end()) return;
  if (space == nullptr) {
    leave_unlisted(all, "warp_tile_combos");
    return;
  }
  const JsonPlace place = all.place.key("warp_tile_combos");
  require_object(*found, place);
  std::map<DType, std::vector<Shape3>> tiles;
  for (const auto& [key, value] : found->items()) {
    const std::vector<Shape3> shapes = shapes_at(value, place.key(key));
    DType operand{};
    if (operand_of(key, operand)) {
      tiles[operand] = shapes;
      all.out.taken.push_back(fmt::format("warp_tile_combos.{}: {}", key, listed(shapes)));
    } else {
      all.out.left.push_back(fmt::format(
          "warp_tile_combos.{}: lists are by one type of both operands, with its usual accumulator",
          key));
    }
  }
  if (!tiles.empty()) space->warp_tiles = std::move(tiles);
}

void name_space_source(Import& all) {
  if (all.space() == nullptr) return;
  std::string& text = all.out.target.sources[fmt::format("cktile_spaces.{}", to_string(all.op))];
  text = fmt::format("{}, warp_configs and warp_tile_combos; the rest: {}", all.origin, text);
}

// The share of LDS that a budget of the file leaves a pipeline.
double share_at(const Import& all, const json& budget, const JsonPlace& place) {
  require_object(budget, place);
  const std::string& basis = read_json_string(member(budget, "basis", place), place.key("basis"));
  const double value =
      read_json_number(member(budget, "value", place), place.key("value"), Range::positive);
  const auto lds_kb = static_cast<double>(all.out.target.shared_memory_bytes) / 1024;
  if (basis != "fraction" && basis != "absolute_kb") {
    refuse_json(place.key("basis"), "\"fraction\" or \"absolute_kb\"", budget["basis"]);
  }
  const double share = basis == "fraction" ? value : value / lds_kb;
  if (share <= 1) return share;
  throw Error(ErrorCode::parse_error, fmt::format("{}: {} allows {} times the {} KB of LDS",
                                                  place.what, place.path, share, lds_kb));
}

void take_budgets(Import& all) {
  constexpr const char* kKey = "pipeline_lds_budget";
  const auto found = all.whole.find(kKey);
  if (found == all.whole.end()) return;
  const JsonPlace place = all.file.key(kKey);
  require_object(*found, place);
  std::vector<std::string> used;
  for (const Pipeline pipeline : all.pipelines()) {
    const auto limit = all.out.target.pipeline_limits.find(pipeline);
    if (limit == all.out.target.pipeline_limits.end()) continue;
    const std::string word(to_string(pipeline));
    std::string key = word;
    if (!found->contains(key)) key = kDefaultBudget;
    if (!found->contains(key)) continue;
    limit->second.shared_memory_fraction = share_at(all, (*found)[key], place.key(key));
    used.push_back(key);
    all.out.taken.push_back(fmt::format("pipeline_lds_budget.{}: {} has {} of LDS", key, word,
                                        limit->second.shared_memory_fraction));
  }
  if (!used.empty()) {
    std::string& text = all.out.target.sources["pipeline_limits"];
    text = fmt::format("{}, {}; stages: {}", all.origin, kKey, text);
  }
  for (const auto& [key, budget] : found->items()) {
    const bool is_used = std::find(used.begin(), used.end(), key) != used.end();
    if (key.starts_with("_") || is_used || key == kDefaultBudget) continue;
    all.out.left.push_back(
        fmt::format("pipeline_lds_budget.{}: the row has no such pipeline of CK Tile", key));
  }
}

// Which pipelines have interwave is a rule of ours: mem alone. The file is held against it.
void compare_traits(Import& all) {
  constexpr const char* kKey = "unsupported_trait_combos";
  const auto found = all.whole.find(kKey);
  if (found == all.whole.end()) return;
  const JsonPlace place = all.file.key(kKey);
  require_object(*found, place);
  const json& list = member(*found, "combinations", place);
  if (!list.is_array()) refuse_json(place.key("combinations"), "a list", list);
  bool is_same = true;
  for (const Pipeline pipeline : all.pipelines()) {
    const std::string word(to_string(pipeline));
    const bool is_refused = std::any_of(list.begin(), list.end(), [&](const json& combination) {
      return combination.is_array() && combination.size() == 3 && combination[0] == word &&
             combination[2] == "interwave";
    });
    if (is_refused == (pipeline != Pipeline::mem)) continue;
    is_same = false;
    all.out.left.push_back(
        fmt::format("unsupported_trait_combos: the file {} interwave for {}, Tessera's rule {} it",
                    is_refused ? "refuses" : "allows", word, is_refused ? "allows" : "refuses"));
  }
  if (is_same) {
    all.out.taken.push_back("unsupported_trait_combos: as Tessera's rule, interwave for mem alone");
  }
}

template <class Table>
void name_left(const json& object, const Table& parts, std::vector<std::string>& left) {
  for (const LeftPart& part : parts) {
    if (object.contains(part.key)) left.push_back(fmt::format("{}: {}", part.key, part.why));
  }
}

std::string origin_of(const json& whole) {
  const auto version = whole.find("_version");
  const bool has_version = version != whole.end() && version->is_string();
  return "CK Tile Dispatcher arch_specs.json" +
         (has_version ? " v" + version->get<std::string>() : std::string());
}

}  // namespace

std::vector<std::string> cktile_archs(std::string_view text, const std::string& source) {
  const JsonPlace place = place_in(source);
  const json whole = parse_json(text, place.what);
  std::vector<std::string> names;
  for (const auto& [name, row] : archs_of(whole, place).items()) {
    if (!name.starts_with("_")) names.push_back(name);
  }
  return names;
}

ImportedTarget import_cktile_arch(std::string_view text, const std::string& source,
                                  const std::string& arch, Op op,
                                  const std::function<Target()>& base) {
  const JsonPlace file = place_in(source);
  const json whole = parse_json(text, file.what);
  const json& archs = archs_of(whole, file);
  const auto found = archs.find(arch);
  if (found == archs.end()) {
    const std::vector<std::string> known = cktile_archs(text, source);
    throw Error(ErrorCode::not_found,
                fmt::format("{} describes no architecture '{}'{} (known: {})", file.what, arch,
                            did_you_mean(arch, known), join(known, ", ")));
  }
  const JsonPlace place = file.key("architectures").key(arch);
  require_object(*found, place);
  Import all = {whole, *found, file, place, origin_of(whole), op, {}};
  const Target row = base();
  start_from(all, arch, row);
  take_description(all);
  take_sizes(all);
  take_waves(all);
  take_warp_tiles(all);
  name_space_source(all);
  take_budgets(all);
  compare_traits(all);
  all.out.taken.push_back(fmt::format("everything else: the row of {}", row.name));
  name_left(*found, kLeftOfArch, all.out.left);
  name_left(whole, kLeftOfFile, all.out.left);
  return all.out;
}

}  // namespace tessera
