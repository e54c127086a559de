// tessera-emulator: what is in a code object for AMD CDNA, and a run of one of its kernels.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "facts.h"
#include "launch.h"

namespace {

using namespace tessera::cdna_emulator;
using Json = nlohmann::json;

struct Options {
  std::string file, kernel, launch;
  bool json = false, listing = false;
};

[[noreturn]] void refuse(const std::string& sentence) {
  throw Finding{Finding::Kind::object, sentence};
}

std::vector<u8> read_file(const std::string& name) {
  std::ifstream in(name, std::ios::binary);
  if (!in) refuse("'" + name + "' cannot be read.");
  return std::vector<u8>(std::istreambuf_iterator<char>(in), {});
}

// Memory of a launch by the names of its description.
struct Buffer {
  std::vector<u8> bytes;
  std::string output;  // the file that gets it afterwards; empty: none
};
using Buffers = std::map<std::string, Buffer>;

Buffers read_buffers(const Json& json) {
  Buffers buffers;
  for (const auto& [name, row] : json.items()) {
    Buffer& b = buffers[name];
    if (row.contains("file")) b.bytes = read_file(row["file"].get<std::string>());
    b.bytes.resize(row.value("bytes", b.bytes.size()));
    b.output = row.value("output", "");
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
  std::vector<u8> bytes;
  for (const Json& row : json) {
    const std::string kind = row.items().begin().key();
    const Json& value = row.items().begin().value();
    if (kind == "i32") {
      append(bytes, value.get<i32>());
    } else if (kind == "i64") {
      append(bytes, value.get<i64>());
    } else if (kind == "f32") {
      append(bytes, value.get<float>());
    } else if (kind == "buffer" && buffers.count(value.get<std::string>()) != 0) {
      append(bytes, reinterpret_cast<u64>(buffers.at(value.get<std::string>()).bytes.data()));
    } else {
      refuse(
          "An argument is one of {\"buffer\": NAME}, {\"i32\": N}, {\"i64\": N} and "
          "{\"f32\": X}, got " +
          row.dump() + ".");
    }
  }
  return bytes;
}

int run_launch(const Program& program, const Kernel& kernel, const Options& options) {
  const auto file = read_file(options.launch);
  const Json json = Json::parse(file.begin(), file.end());
  Buffers buffers = read_buffers(json.value("buffers", Json::object()));
  Memory memory;
  const Image image = load_image(program.object, memory);
  for (const auto& [name, b] : buffers) {
    memory.add(reinterpret_cast<u64>(b.bytes.data()), b.bytes.size());
  }
  const auto arguments = read_arguments(json.value("arguments", Json::array()), buffers);
  Launch launch;
  launch.grid = json.value("grid", launch.grid);
  launch.block = json.value("block", launch.block);
  launch.dynamic_lds_bytes = json.value("lds", 0U);
  launch.arguments = arguments;
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
  const Program program = read_program(read_file(options.file));
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
  app.add_flag("--listing", options.listing, "The instructions, too");
  app.add_flag("--json", options.json, "Facts as JSON, a line a kernel");
  CLI11_PARSE(app, argc, argv);
  return run_program(options);
} catch (const Finding& finding) {
  std::cerr << "tessera-emulator: " << finding.text << "\n";
  return 1;
} catch (const std::exception& e) {
  std::cerr << "tessera-emulator: " << e.what() << "\n";
  return 1;
}
