// The JSON of registries: metadata, counts, and the GEMM kernels of one.
#pragma once

#include <cstddef>
#include <ctime>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "ck_tile/dispatcher/kernel_instance.hpp"

namespace ck_tile::dispatcher {

inline std::string datatype_to_string(DataType type) { return to_string(type); }
inline std::string pipeline_to_string(Pipeline pipeline) { return to_string(pipeline); }
inline std::string epilogue_to_string(Epilogue epilogue) { return to_string(epilogue); }
inline std::string scheduler_to_string(Scheduler scheduler) { return to_string(scheduler); }
inline std::string layout_to_string(LayoutTag layout) {
  constexpr const char* kWords[] = {"row_major", "col_major", "packed_external"};
  return detail::word_of(kWords, layout);
}

inline std::string json_escape(const std::string& text) {
  constexpr char kDigits[] = "0123456789abcdef";
  const std::map<char, const char*> kShort = {{'"', "\\\""}, {'\\', "\\\\"}, {'\b', "\\b"},
                                              {'\f', "\\f"}, {'\n', "\\n"},  {'\r', "\\r"},
                                              {'\t', "\\t"}};
  std::string out;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (const auto known = kShort.find(c); known != kShort.end()) {
      out += known->second;
    } else if (code < 0x20) {
      out += std::string("\\u00") + kDigits[code / 16] + kDigits[code % 16];
    } else {
      out += c;
    }
  }
  return out;
}

inline std::string get_iso_timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return text;
}

namespace detail {

// What is counted -> the word -> how many.
using Counts = std::map<std::string, std::map<std::string, int>>;

inline std::string json_quoted(const std::string& text) { return '"' + json_escape(text) + '"'; }
inline std::string json_flag(bool value) { return value ? "true" : "false"; }

// The fields of an object, one after the other.
class JsonObject {
 public:
  JsonObject& text(const char* name, const std::string& value) {
    return raw(name, json_quoted(value));
  }
  JsonObject& number(const char* name, long long value) { return raw(name, std::to_string(value)); }
  JsonObject& flag(const char* name, bool value) { return raw(name, json_flag(value)); }
  template <class Shape>
  JsonObject& shape(const char* name, const Shape& s) {
    return raw(name, JsonObject().number("m", s.m).number("n", s.n).number("k", s.k).str());
  }
  JsonObject& raw(const std::string& name, const std::string& value) {
    fields_ += (fields_.empty() ? "" : ", ") + json_quoted(name) + ": " + value;
    return *this;
  }
  std::string str() const { return "{" + fields_ + "}"; }

 private:
  std::string fields_;
};

// rows: the kernels' objects.
inline std::string registry_json(const std::string& name, bool has_statistics, const Counts& counts,
                                 const std::vector<std::string>& rows) {
  JsonObject metadata, statistics;
  metadata.text("timestamp", get_iso_timestamp()).text("registry_name", name);
  metadata.number("total_kernels", static_cast<long long>(rows.size()));
  metadata.text("export_version", "1.0.0").text("dispatcher_version", "1.0.0");
  for (const auto& [what, words] : counts) {
    JsonObject each;
    for (const auto& [word, count] : words) each.number(word.c_str(), count);
    statistics.raw(what, each.str());
  }
  std::string text = "{\n  \"metadata\": " + metadata.str() + ",\n";
  if (has_statistics) text += "  \"statistics\": " + statistics.str() + ",\n";
  text += "  \"kernels\": [";
  for (const std::string& row : rows) text += (&row == rows.data() ? "\n    " : ",\n    ") + row;
  return text + "\n  ]\n}\n";
}

inline bool write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  return static_cast<bool>(file << text) && static_cast<bool>(file.flush());
}

inline std::string signature_json(const KernelKey::Signature& s) {
  JsonObject made;
  made.text("dtype_a", to_string(s.dtype_a)).text("dtype_b", to_string(s.dtype_b));
  made.text("dtype_c", to_string(s.dtype_c)).text("dtype_acc", to_string(s.dtype_acc));
  made.text("layout_a", layout_to_string(s.layout_a))
      .text("layout_b", layout_to_string(s.layout_b));
  made.text("layout_c", layout_to_string(s.layout_c));
  made.flag("transpose_a", s.transpose_a).flag("transpose_b", s.transpose_b);
  made.flag("grouped", s.grouped).number("split_k", s.split_k);
  made.text("elementwise_op", s.elementwise_op).number("num_d_tensors", s.num_d_tensors);
  return made.flag("structured_sparsity", s.structured_sparsity).str();
}

inline std::string algorithm_json(const KernelKey::Algorithm& a) {
  JsonObject made;
  made.shape("tile_shape", a.tile_shape).shape("wave_shape", a.wave_shape);
  made.shape("warp_tile_shape", a.warp_tile_shape).text("pipeline", to_string(a.pipeline));
  made.text("scheduler", to_string(a.scheduler)).text("epilogue", to_string(a.epilogue));
  made.number("block_size", a.block_size).flag("double_buffer", a.double_buffer);
  made.flag("persistent", a.persistent).flag("preshuffle", a.preshuffle);
  made.flag("transpose_c", a.transpose_c).number("num_wave_groups", a.num_wave_groups);
  return made.str();
}

inline void count_kernel(const KernelKey& key, Counts& counts) {
  const KernelKey::Signature& s = key.signature;
  const std::string to = "_";
  counts["by_datatype"]
        [to_string(s.dtype_a) + to + to_string(s.dtype_b) + to + to_string(s.dtype_c)]++;
  counts["by_pipeline"][to_string(key.algorithm.pipeline)]++;
  counts["by_scheduler"][to_string(key.algorithm.scheduler)]++;
  counts["by_layout"][layout_to_string(s.layout_a) + to + layout_to_string(s.layout_b) + to +
                      layout_to_string(s.layout_c)]++;
  counts["by_gfx_arch"][key.gfx_arch]++;
}

}  // namespace detail

inline std::string export_kernel_json(const KernelInstance& kernel) {
  const KernelKey& key = kernel.get_key();
  detail::JsonObject made;
  made.text("name", kernel.get_name()).text("identifier", key.encode_identifier());
  made.raw("signature", detail::signature_json(key.signature));
  made.raw("algorithm", detail::algorithm_json(key.algorithm));
  return made.text("gfx_arch", key.gfx_arch).str();
}

}  // namespace ck_tile::dispatcher
