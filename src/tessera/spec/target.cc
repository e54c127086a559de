#include "tessera/spec/target.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/spec/compile_flags_internal.h"
#include "tessera/spec/json_internal.h"

namespace tessera {

template <>
struct Fields<Instruction> {
  using S = Instruction;
  static constexpr auto kAll = row_list(
      field("name", &S::name, kRequired), field("a", &S::a, kRequired),
      field("b", &S::b, kRequired), field("acc", &S::acc, kRequired),
      field("shape", &S::shape, kRequired), field("per_cycle", &S::per_cycle, kRequiredPositive));
};

template <>
struct Fields<CacheLevel> {
  using S = CacheLevel;
  static constexpr auto kAll = row_list(
      field("name", &S::name, kRequired), field("bytes", &S::bytes, kRequiredPositive),
      field("line_bytes", &S::line_bytes, kPositive), field("ways", &S::ways, kPositive),
      field("bytes_per_cycle", &S::bytes_per_cycle, kNotNegative), field("shared", &S::shared));
};

template <>
struct Fields<PipelineLimit> {
  using S = PipelineLimit;
  static constexpr auto kAll =
      row_list(field("min_stages", &S::min_stages, kPositive),
               field("max_stages", &S::max_stages, kPositive),
               field("shared_memory_fraction", &S::shared_memory_fraction, kPositive));
};

template <>
struct Fields<AlgorithmSpace> {
  using S = AlgorithmSpace;
  static constexpr auto kAll =
      row_list(field("pipelines", &S::pipelines, kRequired), field("tiles", &S::tiles, kRequired),
               field("waves", &S::waves, kRequired), field("warp_tiles", &S::warp_tiles, kRequired),
               field("schedulers", &S::schedulers), field("stages", &S::stages, kPositive),
               field("clusters", &S::clusters));
};

template <>
struct Fields<Target> {
  using S = Target;
  static constexpr auto kAll = row_list(
      field("name", &S::name, kRequired), field("backend", &S::backend, kRequired),
      field("description", &S::description), field("features", &S::features),
      field("compile_flags", &S::compile_flags), field("units", &S::units, kPositive),
      field("warp_size", &S::warp_size, kPositive),
      field("vector_bytes", &S::vector_bytes, kNotNegative),
      field("vector_registers", &S::vector_registers, kNotNegative),
      field("registers_per_thread", &S::registers_per_thread, kNotNegative),
      field("registers_per_unit", &S::registers_per_unit, kNotNegative),
      field("max_threads_per_block", &S::max_threads_per_block, kPositive),
      field("shared_memory_bytes", &S::shared_memory_bytes, kNotNegative),
      field("shared_bytes_per_cycle", &S::shared_bytes_per_cycle, kNotNegative),
      field("xcds", &S::xcds, kPositive), field("fp8_encoding", &S::fp8_encoding),
      field("unmeasured", &S::unmeasured), field("clock_ghz", &S::clock_ghz, kRequiredPositive),
      field("memory_gb_per_s", &S::memory_gb_per_s, kRequiredPositive),
      field("launch_us", &S::launch_us, kNotNegative), field("caches", &S::caches),
      field("instructions", &S::instructions), field("pipeline_limits", &S::pipeline_limits),
      field("spaces", &S::spaces), field("cktile_spaces", &S::cktile_spaces),
      field("sources", &S::sources, kRequired));
};

namespace {

using nlohmann::json;

constexpr std::string_view kRow = "target row";

// The fields that hold words. Every other field holds numbers, which need a source.
constexpr auto kWordFields = std::to_array<std::string_view>(
    {"name", "backend", "description", "features", "compile_flags", "unmeasured", "sources"});

struct BackendRow {
  std::string_view name;
  bool is_gpu;
  bool counts_threads;
  bool starts_cold;
};
constexpr auto kBackends = std::to_array<BackendRow>({
    {.name = "cpu", .is_gpu = false, .counts_threads = true, .starts_cold = false},
    {.name = "cuda", .is_gpu = true, .counts_threads = false, .starts_cold = true},
    {.name = "hip", .is_gpu = true, .counts_threads = false, .starts_cold = true},
});

const BackendRow& backend_row(const Target& target) {
  const auto* const row =
      std::find_if(kBackends.begin(), kBackends.end(),
                   [&](const BackendRow& each) { return each.name == target.backend; });
  return row == kBackends.end() ? kBackends.back() : *row;
}

// The numbers that legality divides by or compares with. A row without them could run no kernel.
struct Need {
  std::string_view field;
  bool cpu;
  bool gpu;
};
constexpr auto kNeeds = std::to_array<Need>({
    {"vector_bytes", true, false},
    {"vector_registers", true, false},
    {"warp_size", false, true},
    {"registers_per_thread", false, true},
    {"max_threads_per_block", false, true},
    {"shared_memory_bytes", false, true},
});

[[noreturn]] void refuse_row(const std::string& message) {
  throw Error(ErrorCode::parse_error, fmt::format("{}: {}", kRow, message));
}

JsonPlace place_of(std::string_view field) {
  return JsonPlace{std::string(kRow), std::string(field)};
}

template <class Array>
bool contains(const Array& array, std::string_view value) {
  return std::find(array.begin(), array.end(), value) != array.end();
}

void check_words(const Target& target) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  if (target.name.empty() || target.name.find_first_not_of(kLetters) != std::string::npos) {
    refuse_json(place_of("name"), "lower-case letters and digits", json(target.name));
  }
  std::vector<std::string> known;
  for (const BackendRow& row : kBackends) known.emplace_back(row.name);
  if (!contains(known, target.backend)) {
    refuse_json(place_of("backend"), "one of " + join(known, ", "), json(target.backend),
                did_you_mean(target.backend, known));
  }
}

void check_compile_flags(const Target& target) {
  for (std::size_t i = 0; i < target.compile_flags.size(); ++i) {
    const std::string& flag = target.compile_flags[i];
    const std::string expected = compile_flag_damage(target.backend, flag);
    if (!expected.empty()) refuse_json(place_of("compile_flags").item(i), expected, json(flag));
  }
}

void check_needs(const Target& target, const json& row) {
  for (const Need& need : kNeeds) {
    if (!(is_gpu(target) ? need.gpu : need.cpu)) continue;
    const std::string key(need.field);
    if (!row.contains(key)) {
      refuse_row(fmt::format("{} is missing: a {} target needs it", key, target.backend));
    }
    if (row[key] == 0) refuse_json(place_of(key), "a positive integer", row[key]);
  }
}

// The entries of a field that can have sources of their own.
template <class T>
std::vector<std::string> entries(const T&) {
  return {};
}
template <HasFields T>
std::vector<std::string> entries(const std::vector<T>& items) {
  std::vector<std::string> names;
  for (const T& item : items) names.push_back(item.name);
  return names;
}
template <Worded Key, class T>
std::vector<std::string> entries(const std::map<Key, T>& items) {
  std::vector<std::string> names;
  for (const auto& [key, item] : items) names.emplace_back(word_of(key));
  return names;
}

// Every number that is not at its default says where it comes from: sources has an entry for the
// field ("caches"), for each of its entries ("caches.l1"), or "*" for all that have none.
void check_sources(const Target& target) {
  const auto has = [&](const std::string& key) { return target.sources.count(key) > 0; };
  std::vector<std::string> known = {"*"};
  for_each_field(
      target, [&](const std::string& key, const auto& value, const auto& standard, const Rule&) {
        if (contains(kWordFields, key)) return;
        known.push_back(key);
        std::vector<std::string> needed;
        for (const std::string& entry : entries(value)) needed.push_back(key + "." + entry);
        known.insert(known.end(), needed.begin(), needed.end());
        if (needed.empty()) needed.push_back(key);
        for (const std::string& path : needed) {
          if (value == standard || has(path) || has(key) || has("*")) continue;
          refuse_row(
              fmt::format("{0} has no source: add \"{0}\" to sources, saying where it comes from, "
                          "or \"*\" for all that have none",
                          path));
        }
      });
  for (const auto& [key, text] : target.sources) {
    if (!contains(known, key)) {
      refuse_row(fmt::format("sources[\"{}\"] names no number of this row{}", key,
                             did_you_mean(key, known)));
    }
    if (text.empty()) {
      refuse_row(fmt::format("sources[\"{}\"] is empty: say where the number comes from", key));
    }
  }
}

void check_limits(const Target& target) {
  for (const auto& [pipeline, limit] : target.pipeline_limits) {
    if (limit.max_stages < limit.min_stages) {
      refuse_row(
          fmt::format("pipeline_limits.{}.max_stages must be at least min_stages, {}, got {}",
                      to_string(pipeline), limit.min_stages, limit.max_stages));
    }
    if (limit.shared_memory_fraction > 1) {
      refuse_row(fmt::format("pipeline_limits.{}.shared_memory_fraction must be at most 1, got {}",
                             to_string(pipeline), limit.shared_memory_fraction));
    }
  }
}

}  // namespace

std::string to_json(const Target& target) { return dump_json(write_json(target, Defaults::omit)); }

Target target_from_json(std::string_view text) {
  const json row = parse_json(text, kRow);
  Target target;
  read_json(row, JsonPlace{std::string(kRow), ""}, kOptional, target);
  check_words(target);
  check_compile_flags(target);
  check_needs(target, row);
  check_sources(target);
  check_limits(target);
  return target;
}

bool is_gpu(const Target& target) { return backend_row(target).is_gpu; }
bool counts_threads(const Target& target) { return backend_row(target).counts_threads; }
bool starts_cold(const Target& target) { return backend_row(target).starts_cold; }

const Instruction* find_instruction(const Target& target, DType a, DType b, DType acc) {
  const Instruction* best = nullptr;
  double best_products = 0;
  for (const Instruction& candidate : target.instructions) {
    if (candidate.a != a || candidate.b != b || candidate.acc != acc) continue;
    const Shape3& shape = candidate.shape;
    if (shape.m > 1 && !is_gpu(target)) continue;  // only one pipeline has tiles
    const double products = candidate.per_cycle * shape.m * shape.n * shape.k;
    if (best == nullptr || products > best_products) {
      best = &candidate;
      best_products = products;
    }
  }
  return best;
}

}  // namespace tessera
