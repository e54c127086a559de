// The JSON of registries.
#pragma once

#include <cstddef>
#include <ctime>
#include <map>
#include <string>
#include <string_view>

#include <tessera/tessera.hpp>

namespace tessera_ck::detail {

// What is counted -> the word -> how many.
using Counts = std::map<std::string, std::map<std::string, int>>;

inline std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out + '"';
}

inline std::string shape_json(const tessera::Shape3& shape) {
  return "{\"m\": " + std::to_string(shape.m) + ", \"n\": " + std::to_string(shape.n) +
         ", \"k\": " + std::to_string(shape.k) + "}";
}

inline std::string algorithm_json(const tessera::KernelSpec& spec) {
  const tessera::Algorithm& how = spec.algorithm;
  const auto* gemm = std::get_if<tessera::GemmSignature>(&spec.signature);
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  return "{\"tile_shape\": " + shape_json(how.tile) + ", \"wave_shape\": " + shape_json(how.wave) +
         ", \"warp_tile_shape\": " + shape_json(how.warp_tile) +
         ", \"pipeline\": " + json_quoted(tessera::to_string(how.pipeline)) +
         ", \"scheduler\": " + json_quoted(tessera::to_string(how.scheduler)) +
         ", \"epilogue\": " + json_quoted(tessera::to_string(how.store)) +
         ", \"persistent\": " + flag(how.persistent) +
         ", \"double_buffer\": " + flag(how.pipeline == tessera::Pipeline::compv4) +
         ", \"preshuffle\": " + flag(gemm != nullptr && gemm->preshuffled_b) +
         ", \"transpose_c\": " + flag(how.swap_ab) + "}";
}

// A kernel of GEMM or attention, between the braces.
inline std::string kernel_json(const tessera::KernelSpec& spec, const std::string& identifier) {
  return "\"identifier\": " + json_quoted(identifier) +
         ", \"name\": " + json_quoted(tessera::name_of(spec)) +
         ", \"algorithm\": " + algorithm_json(spec) + ", \"gfx_arch\": " + json_quoted(spec.target);
}

inline std::string counts_json(const Counts& counts) {
  std::string text = "{";
  for (const auto& [what, words] : counts) {
    text += (text.size() > 1 ? ", " : "") + json_quoted(what) + ": {";
    bool is_first = true;
    for (const auto& [word, count] : words) {
      text += (is_first ? "" : ", ") + json_quoted(word) + ": " + std::to_string(count);
      is_first = false;
    }
    text += "}";
  }
  return text + "}";
}

inline std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S+00:00", &parts);
  return text;
}

// rows: the kernels' objects, joined by commas.
inline std::string registry_json(const std::string& name, std::size_t total, bool has_statistics,
                                 const Counts& counts, const std::string& rows) {
  std::string text = "{\n  \"metadata\": {\"timestamp\": " + json_quoted(now_text()) +
                     ", \"registry_name\": " + json_quoted(name) +
                     ", \"total_kernels\": " + std::to_string(total) +
                     ", \"export_version\": \"1.0\", \"dispatcher_version\": \"1.0.0\"},\n";
  if (has_statistics) text += "  \"statistics\": " + counts_json(counts) + ",\n";
  return text + "  \"kernels\": [" + rows + "]\n}\n";
}

}  // namespace tessera_ck::detail
