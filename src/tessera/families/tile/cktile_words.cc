#include "tessera/families/tile/cktile_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/spec/words_internal.h"

namespace tessera::tile {
namespace {

[[noreturn]] void refuse_row(const std::string& words) {
  throw Error(ErrorCode::parse_error, words);
}

// What pipelines are called in files. The last two are written as compv4 with a preshuffled B.
struct PipelineWord {
  std::string_view word;
  Pipeline pipeline;
  bool preshuffles = false;
};
constexpr std::array kPipelineWords = {PipelineWord{"compv3", Pipeline::compv3},
                                       PipelineWord{"compv4", Pipeline::compv4},
                                       PipelineWord{"compv5", Pipeline::compv5},
                                       PipelineWord{"mem", Pipeline::mem},
                                       PipelineWord{"preshufflev1", Pipeline::compv4, true},
                                       PipelineWord{"preshufflev2", Pipeline::compv4, true}};

struct SchedulerWord {
  std::string_view word;
  Scheduler scheduler;
};
constexpr std::array kSchedulerWords = {SchedulerWord{"intrawave", Scheduler::intrawave},
                                        SchedulerWord{"interwave", Scheduler::interwave},
                                        SchedulerWord{"default", Scheduler::standard}};

struct StoreWord {
  std::string_view word;
  Store store;
};
constexpr std::array kStoreWords = {StoreWord{"cshuffle", Store::cshuffle},
                                    StoreWord{"default", Store::standard}};

// The three shapes of a name in their order. The dispatcher calls waves warps.
constexpr std::array<std::string_view, 3> kShapeWords = {"tile", "warp", "warp_tile"};
constexpr std::array<std::string_view, 4> kFlags = {"pad_m", "pad_n", "pad_k", "persistent"};
constexpr std::string_view kAxes = "mnk";

std::string axis_key(std::string_view shape, std::size_t axis) {
  return fmt::format("{}_{}", shape, kAxes.at(axis));
}

template <class Table>
std::string words_in(const Table& table) {
  std::vector<std::string> words;
  for (const auto& row : table) words.emplace_back(row.word);
  return join(words, ", ");
}

template <class Table>
const typename Table::value_type* find_in(const Table& table, std::string_view word) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const auto& row) { return row.word == word; });
  return found == table.end() ? nullptr : &*found;
}

// ---- names ----

// The parts of a name that are left, and how many shapes and flags came before.
struct NameReading {
  std::string_view rest;
  std::size_t shapes = 0;
  std::size_t flags = 0;
  ProblemWords found;
};

std::string_view next_part(std::string_view rest) { return rest.substr(0, rest.find('_')); }

bool skip(NameReading& name, std::string_view part) {
  if (!name.rest.starts_with(part)) return false;
  const std::string_view after = name.rest.substr(part.size());
  if (!after.empty() && after.front() != '_') return false;
  name.rest = after.empty() ? after : after.substr(1);
  return true;
}

bool read_own(NameReading& name, std::span<const CktileWord> own) {
  for (const CktileWord& row : own) {
    if (!skip(name, row.word)) continue;
    if (!row.key.empty()) name.found.emplace(row.key, row.value);
    return true;
  }
  return false;
}

bool read_shape_part(NameReading& name) {
  const std::string_view part = next_part(name.rest);
  const std::vector<std::string_view> sizes = split(part, 'x');
  if (sizes.size() != 3 || part.find_first_not_of("0123456789x") != std::string_view::npos) {
    return false;
  }
  if (name.shapes == kShapeWords.size()) return false;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    name.found.emplace(axis_key(kShapeWords.at(name.shapes), axis), sizes[axis]);
  }
  ++name.shapes;
  return skip(name, part);
}

bool read_flag(NameReading& name) {
  const std::string_view part = next_part(name.rest);
  if ((part != "true" && part != "false") || name.flags == kFlags.size()) return false;
  name.found.emplace(kFlags.at(name.flags), part);
  ++name.flags;
  return skip(name, part);
}

// "default" is an epilogue the first time and a scheduler the second.
bool read_trait(NameReading& name) {
  const std::string_view part = next_part(name.rest);
  DType dtype{};
  std::string_view key;
  if (find_in(kPipelineWords, part) != nullptr) {
    key = "pipeline";
  } else if (find_in(kStoreWords, part) != nullptr && name.found.count("epilogue") == 0) {
    key = "epilogue";
  } else if (find_in(kSchedulerWords, part) != nullptr) {
    key = "scheduler";
  } else if (read_word(part, dtype)) {
    key = "dtype";
  }
  return !key.empty() && name.found.emplace(key, part).second && skip(name, part);
}

// "splitk4", and "vec4_8_8", of which our kernels choose their own.
bool read_number(NameReading& name) {
  const std::string_view part = next_part(name.rest);
  const auto is_digits = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  if (part.starts_with("splitk") && is_digits(part.substr(6))) {
    name.found.emplace("split_k", part.substr(6));
    return skip(name, part);
  }
  if (!part.starts_with("vec") || !is_digits(part.substr(3))) return false;
  skip(name, part);
  while (is_digits(next_part(name.rest))) skip(name, next_part(name.rest));
  return true;
}

std::string known_parts(std::span<const CktileWord> own) {
  return fmt::format("{}, {}, {}, types, True, False, shapes such as 128x128x32", words_in(own),
                     words_in(kPipelineWords), words_in(kSchedulerWords));
}

// ---- fields ----

std::optional<std::string> take(ProblemWords& row, const std::string& key) {
  const auto found = row.find(key);
  if (found == row.end()) return std::nullopt;
  std::string value = found->second;
  row.erase(found);
  return value;
}

template <class Table>
const typename Table::value_type& take_word(ProblemWords& row, const std::string& key,
                                            const Table& table) {
  const std::optional<std::string> word = take(row, key);
  if (!word) refuse_row(fmt::format("has no '{}' of its kernel", key));
  if (const auto* found = find_in(table, *word)) return *found;
  refuse_row(
      fmt::format("'{}' must be one of {}, got '{}'", key, words_in(table), word->substr(0, 40)));
}

int whole_number(const std::string& key, const std::string& text) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end && value > 0) return value;
  refuse_row(fmt::format("'{}' must be a whole number above 0, got '{}'", key, text.substr(0, 40)));
}

// `shape` by its three fields, or as "2x2x1" under one key.
Shape3 take_shape(ProblemWords& row, std::string_view shape, const std::string& key) {
  std::array<int, 3> sizes{};
  std::size_t there = 0;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const std::string name = axis_key(shape, axis);
    const std::optional<std::string> text = take(row, name);
    if (!text) continue;
    sizes.at(axis) = whole_number(name, *text);
    ++there;
  }
  const std::optional<std::string> whole = take(row, key);
  if (there == 3) return {sizes[0], sizes[1], sizes[2]};
  Shape3 read;
  if (whole && read_shape(*whole, read)) return read;
  if (whole) {
    refuse_row(fmt::format("'{}' must be a shape such as 2x2x1, got '{}'", key, *whole));
  }
  refuse_row(fmt::format(
      "does not say its kernel's '{0}_m', '{0}_n' and '{0}_k', nor does the kernel's name", shape));
}

bool is_true(const std::string& key, const std::string& word) {
  if (word == "true" || word == "1") return true;
  if (word == "false" || word == "0") return false;
  refuse_row(fmt::format("'{}' must be true or false, got '{}'", key, word.substr(0, 40)));
}

bool take_flag(ProblemWords& row, const std::string& key, bool missing) {
  const std::optional<std::string> word = take(row, key);
  return word ? is_true(key, *word) : missing;
}

void check_division(const Algorithm& a) {
  const auto divides = [](int tile, int wave, int unit) { return tile % (wave * unit) == 0; };
  if (divides(a.tile.m, a.wave.m, a.warp_tile.m) && divides(a.tile.n, a.wave.n, a.warp_tile.n) &&
      divides(a.tile.k, a.wave.k, a.warp_tile.k)) {
    return;
  }
  refuse_row(fmt::format("has the tile {}, which does not divide over waves {} of warp tile {}",
                         to_string(a.tile), to_string(a.wave), to_string(a.warp_tile)));
}

// The mem pipeline always pads, but files say what its unused flags were.
void take_padding(ProblemWords& row, InstanceRow& kernel) {
  bool flags = true;
  for (const std::string key : {"pad_m", "pad_n", "pad_k"}) {
    const bool flag = take_flag(row, key, true);
    flags = flags && flag;
  }
  kernel.is_mended = !flags && kernel.algorithm.pipeline == Pipeline::mem;
  kernel.is_padded = flags || kernel.is_mended;
}

}  // namespace

void read_cktile_name(ProblemWords& row, std::string_view head, std::span<const CktileWord> own) {
  const auto kernel = row.find("kernel");
  if (kernel == row.end()) return;
  NameReading name{kernel->second};
  if (!skip(name, head)) return;
  while (!name.rest.empty()) {
    const bool is_known = read_own(name, own) || read_shape_part(name) || read_flag(name) ||
                          read_trait(name) || read_number(name);
    if (!is_known) {
      refuse_row(
          fmt::format("has a kernel whose name's part '{}' is not known or comes twice: "
                      "'{}' (known: {})",
                      next_part(name.rest), kernel->second, known_parts(own)));
    }
  }
  for (const auto& [key, value] : name.found) {
    const auto [place, is_new] = row.emplace(key, value);
    const bool is_flag = std::find(kFlags.begin(), kFlags.end(), key) != kFlags.end();
    // Files write flags in several ways.
    if (!is_new && !is_flag && place->second != value) {
      refuse_row(fmt::format("has {}={}, and its kernel's name {}: '{}'", key, place->second, value,
                             kernel->second));
    }
  }
}

InstanceRow take_cktile_kernel(ProblemWords& row) {
  InstanceRow kernel;
  Algorithm& a = kernel.algorithm;
  const PipelineWord& pipeline = take_word(row, "pipeline", kPipelineWords);
  a.pipeline = pipeline.pipeline;
  if (pipeline.preshuffles) row["preshuffle"] = "true";
  a.store = take_word(row, "epilogue", kStoreWords).store;
  a.scheduler = take_word(row, "scheduler", kSchedulerWords).scheduler;
  a.tile = take_shape(row, "tile", "tile");
  a.wave = take_shape(row, "warp", "wave");
  a.warp_tile = take_shape(row, "warp_tile", "warp_tile");
  check_division(a);
  a.persistent = take_flag(row, "persistent", false);
  const std::optional<std::string> splits = take(row, "split_k");
  if (splits) a.splits = whole_number("split_k", *splits);
  if (a.splits > 1) a.split_k = SplitK::atomic;
  take_padding(row, kernel);
  return kernel;
}

}  // namespace tessera::tile
