// tessera-emulator: what is in a code object for AMD CDNA, and a run of one of its kernels.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "facts.h"
#include "launch.h"

namespace {

using namespace tessera::cdna_emulator;
using Json = nlohmann::json;

struct Options {
  std::string file, kernel, launch;
  bool json = false, listing = false;
  u32 read_banks = 0;
};

[[noreturn]] void refuse(const std::string& sentence) {
  throw Finding{Finding::Kind::object, sentence};
}

constexpr u64 kMostObjectBytes = u64{1} << 28, kMostBufferBytes = u64{1} << 32;
constexpr u64 kMostLaunchBytes = u64{1} << 24;  // of the description

// A device has no end, and a pipe may have none.
std::vector<u8> read_file(const std::string& name, u64 most) {
  std::error_code error;
  const auto status = std::filesystem::status(name, error);
  if (!std::filesystem::exists(status)) refuse("'" + name + "' cannot be read.");
  if (!std::filesystem::is_regular_file(status)) refuse("'" + name + "' is not a regular file.");
  const u64 size = std::filesystem::file_size(name, error);
  if (error || size > most) {
    refuse("'" + name + "' may have at most " + std::to_string(most) + " bytes, got " +
           std::to_string(size) + ".");
  }
  std::vector<u8> bytes(size);
  std::ifstream in(name, std::ios::binary);
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!in) refuse("'" + name + "' cannot be read.");
  return bytes;
}

// ---- the description of a launch ----

std::string shown(const Json& json) {
  constexpr std::size_t kMost = 100;
  const std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

// A whole number in its range; JSON's own conversions wrap and cut.
i64 whole(const std::string& what, const Json& json, i64 least, i64 most) {
  const bool fits = json.is_number_integer() &&
                    (!json.is_number_unsigned() || json.get<u64>() <= static_cast<u64>(most));
  if (fits && json.get<i64>() >= least && json.get<i64>() <= most) return json.get<i64>();
  refuse(what + " must be a whole number from " + std::to_string(least) + " to " +
         std::to_string(most) + ", got " + shown(json) + ".");
}

std::string text_of(const std::string& what, const Json& json) {
  if (json.is_string()) return json.get<std::string>();
  refuse(what + " must be a text, got " + shown(json) + ".");
}

// A field of the description, of this type; `usual` where it is left out.
Json field(const Json& json, const std::string& name, Json::value_t type, Json usual) {
  const auto found = json.find(name);
  if (found == json.end()) return usual;
  if (found->type() == type) return *found;
  refuse("\"" + name + "\" of a launch must be of the form " + shown(usual) + ", got " +
         shown(*found) + ".");
}

std::array<u32, 3> read_sides(const Json& json, const std::string& name) {
  const Json sides = field(json, name, Json::value_t::array, Json::array({1, 1, 1}));
  if (sides.size() != 3) refuse("\"" + name + "\" must hold 3 numbers, got " + shown(sides) + ".");
  constexpr i64 kMost = (i64{1} << 31) - 1;
  std::array<u32, 3> read{};
  for (std::size_t d = 0; d < 3; ++d) {
    read.at(d) = static_cast<u32>(whole("A side of \"" + name + "\"", sides[d], 1, kMost));
  }
  return read;
}

// Memory of a launch by the names of its description.
struct Buffer {
  std::vector<u8> bytes;
  std::string output;  // the file that gets it afterwards; empty: none
};
using Buffers = std::map<std::string, Buffer>;

Buffers read_buffers(const Json& json) {
  Buffers buffers;
  u64 left = kMostBufferBytes;
  for (const auto& [name, row] : json.items()) {
    if (!row.is_object()) {
      refuse("The buffer '" + name + "' must be like {\"bytes\": 400}, got " + shown(row) + ".");
    }
    Buffer& b = buffers[name];
    if (row.contains("file")) {
      b.bytes = read_file(text_of("\"file\" of a buffer", row["file"]), left);
    }
    if (row.contains("bytes")) {
      const std::string what = "\"bytes\" of the buffer '" + name + "'";
      b.bytes.resize(static_cast<u64>(whole(what, row["bytes"], 0, static_cast<i64>(left))));
    }
    left -= b.bytes.size();
    if (row.contains("output")) b.output = text_of("\"output\" of a buffer", row["output"]);
  }
  return buffers;
}

template <class T>
void append(std::vector<u8>& to, T value) {
  to.resize((to.size() + sizeof value - 1) / sizeof value * sizeof value);
  const u8* bytes = reinterpret_cast<const u8*>(&value);
  to.insert(to.end(), bytes, bytes + sizeof value);
}

// {"buffer": "a"}, {"i32": 5}, {"i64": 5} or {"f32": 0.5}, each at the next multiple of its size.
std::vector<u8> read_arguments(const Json& json, const Buffers& buffers) {
  using I32 = std::numeric_limits<i32>;
  using I64 = std::numeric_limits<i64>;
  std::vector<u8> bytes;
  for (const Json& row : json) {
    const bool is_one = row.is_object() && row.size() == 1;
    const std::string kind = is_one ? row.begin().key() : "";
    const Json value = is_one ? *row.begin() : Json();
    if (kind == "i32") {
      append(bytes, static_cast<i32>(whole("\"i32\"", value, I32::min(), I32::max())));
    } else if (kind == "i64") {
      append(bytes, whole("\"i64\"", value, I64::min(), I64::max()));
    } else if (kind == "f32" && value.is_number()) {
      append(bytes, value.get<float>());
    } else if (kind == "buffer" && value.is_string() &&
               buffers.count(value.get<std::string>()) != 0) {
      append(bytes, reinterpret_cast<u64>(buffers.at(value.get<std::string>()).bytes.data()));
    } else {
      refuse(
          "An argument is one of {\"buffer\": NAME}, {\"i32\": N}, {\"i64\": N} and "
          "{\"f32\": X}, got " +
          shown(row) + ".");
    }
  }
  return bytes;
}

Json read_description(const std::string& name) {
  const auto file = read_file(name, kMostLaunchBytes);
  // Showing a value calls itself for each level.
  const auto is_shallow = [&](int depth, Json::parse_event_t, const Json&) {
    constexpr int kMost = 64;
    if (depth > kMost) {
      refuse("Lists and objects of '" + name + "' may lie at most " + std::to_string(kMost) +
             " deep in one another.");
    }
    return true;
  };
  Json json = Json::parse(file.begin(), file.end(), is_shallow, false);
  if (json.is_object()) return json;
  refuse("'" + name + "' must hold a JSON object such as {\"grid\": [2, 1, 1]}.");
}

int run_launch(const Program& program, const Kernel& kernel, const Options& options) {
  const Json json = read_description(options.launch);
  Buffers buffers = read_buffers(field(json, "buffers", Json::value_t::object, Json::object()));
  const auto arguments =
      read_arguments(field(json, "arguments", Json::value_t::array, Json::array()), buffers);
  Launch launch;
  launch.grid = read_sides(json, "grid");
  launch.block = read_sides(json, "block");
  launch.dynamic_lds_bytes =
      static_cast<u32>(whole("\"lds\"", json.value("lds", Json(0)), 0, i64{1} << 20));
  launch.arguments = arguments;
  launch.read_banks = options.read_banks;
  Memory memory;
  const Image image = load_image(program.object, memory);
  for (const auto& [name, b] : buffers) {
    memory.add(reinterpret_cast<u64>(b.bytes.data()), b.bytes.size());
  }
  const Outcome outcome = run(program, image, kernel, memory, launch);
  for (const auto& [name, b] : buffers) {
    if (b.output.empty()) continue;
    std::ofstream(b.output, std::ios::binary)
        .write(reinterpret_cast<const char*>(b.bytes.data()),
               static_cast<std::streamsize>(b.bytes.size()));
  }
  const bool bad = outcome.finding.kind != Finding::Kind::none;
  std::cout << to_json(outcome.statistics, bad ? 1 : 0) << "\n";
  if (bad) std::cerr << "tessera-emulator: " << outcome.finding.text << "\n";
  return bad ? 1 : 0;
}

int run_program(const Options& options) {
  const Program program = read_program(read_file(options.file, kMostObjectBytes));
  int shown = 0;
  for (const Kernel& kernel : program.object.kernels) {
    if (!options.kernel.empty() && kernel.name != options.kernel) continue;
    ++shown;
    if (!options.launch.empty()) return run_launch(program, kernel, options);
    const Facts facts = facts_of(program, kernel);
    std::cout << (options.json ? to_json(facts) + "\n" : to_text(facts));
    if (options.listing) std::cout << listing_of(program, kernel);
  }
  if (shown == 0) refuse("'" + options.file + "' has no kernel '" + options.kernel + "'.");
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Shows and runs kernels for AMD CDNA (gfx90a, gfx942, gfx950) without a GPU.");
  app.add_option("code_object", options.file, "The file that a compiler made")->required();
  app.add_option("--kernel", options.kernel, "One of its kernels; all, or the first, if left out");
  app.add_option("--launch", options.launch,
                 "Runs it: a JSON file with grid, block, buffers and arguments");
  app.add_option("--read-banks", options.read_banks,
                 "Banks of LDS that serve reads: 32 (128 bytes a cycle) or 64; as the target has "
                 "them, if left out")
      ->check(CLI::IsMember({32, 64}));
  app.add_flag("--listing", options.listing, "The instructions, too");
  app.add_flag("--json", options.json, "Facts as JSON, a line a kernel");
  CLI11_PARSE(app, argc, argv);
  return run_program(options);
} catch (const Finding& finding) {
  std::cerr << "tessera-emulator: " << finding.text << "\n";
  return 1;
} catch (const std::bad_alloc&) {
  std::cerr << "tessera-emulator: There is not enough memory for the launch.\n";
  return 1;
}
