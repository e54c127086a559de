// The code that CPU kernels share: explicit instantiations of templates of src/device/cpu/, each
// compiled once and linked into every kernel that needs it.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "tessera/base/embedded.h"
#include "tessera/base/text.h"
#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {
namespace {

// result function<arguments>(parameters)
struct Instantiation {
  std::string result;
  std::string function;
  std::string arguments;
  std::string parameters;
};

struct Unit {
  std::string_view header;
  std::vector<Instantiation> functions;
};

std::string name_of_unit(const Unit& unit) {
  const Instantiation& first = unit.functions.front();
  std::string name = "unit_" + first.function;
  bool in_word = false;
  for (const unsigned char c : first.arguments) {
    const bool is_word = std::isalnum(c) != 0;
    if (is_word && !in_word) name += '_';
    if (is_word) name += static_cast<char>(c);
    in_word = is_word;
  }
  return name;
}

std::string instantiations(const Unit& unit, std::string_view keyword) {
  std::string text = fmt::format("#include \"tessera/device/cpu/{}\"\n\n", unit.header);
  text += "namespace tessera::device {\n\n";
  for (const Instantiation& f : unit.functions) {
    text += fmt::format("{} {} {}<{}>({});\n", keyword, f.result, f.function, f.arguments,
                        f.parameters);
  }
  return text + "\n}  // namespace tessera::device\n";
}

// The functions of a driver, which take a kernel's shape first.
Unit driver(std::string_view kind, const CpuTypes& t, const GemmSignature& s,
            const std::vector<Instantiation>& functions) {
  const std::string types =
      fmt::format("OperandTypes<{}, {}, {}, {}, {}>", t.a, t.b, t.math,
                  yes_no(a_is_row_major(s.layout)), yes_no(!b_is_row_major(s.layout)));
  Unit unit{.header = kind == "Packed" ? "packed_gemm.h" : "stream_gemm.h", .functions = functions};
  for (Instantiation& f : unit.functions) {
    f.arguments = types;
    f.parameters = fmt::format("const {}Shape<{}>&, const void*{}", kind, types, f.parameters);
  }
  return unit;
}

std::vector<Unit> stream_units(const KernelSpec& spec, const CpuTypes& t, const GemmSignature& s) {
  const auto strip = [&](std::string_view type, bool k_contiguous) {
    return Unit{.header = "stream_strip.h",
                .functions = {{.result = "void",
                               .function = "multiply_strip",
                               .arguments = fmt::format("{}, {}, {}, {}, {}", type, t.math,
                                                        yes_no(k_contiguous), spec.algorithm.tile.m,
                                                        spec.algorithm.tile.n),
                               .parameters = fmt::format("const StripTask<{}>&", type)}}};
  };
  return {driver("Stream", t, s,
                 {{"void", "stream_run", "", ", const CpuThread&"},
                  {"i64", "stream_workspace_bytes", "", ", int"}}),
          strip(t.a, a_is_row_major(s.layout)), strip(t.b, !b_is_row_major(s.layout))};
}

// A register block, and one that converts its sums to a 16-bit output by itself.
std::vector<Unit> block_units(const KernelSpec& spec, const CpuTypes& t, const GemmSignature& s,
                              int vector_bytes) {
  const Algorithm& a = spec.algorithm;
  const std::string arguments =
      fmt::format("{}, {}, {}, {}", t.math, a.warp_tile.m, a.warp_tile.n * 4 / vector_bytes,
                  packs_a(a.pipeline) ? a.warp_tile.m : 0);
  std::vector<Unit> units = {
      {"block.h", {{"void", "multiply_any", arguments, "const BlockTask&, i64, int"}}}};
  if (s.a != DType::int8 && size_of(s.out) == 2 && epilogue_steps(s.epilogue).empty()) {
    units.push_back({"block.h",
                     {{"void", "multiply_block", fmt::format("{}, {}", arguments, t.out),
                       "const BlockTask&"}}});
  }
  return units;
}

std::vector<Unit> packed_units(const KernelSpec& spec, const CpuTypes& t, const GemmSignature& s,
                               int vector_bytes) {
  const Algorithm& a = spec.algorithm;
  const auto panel = [](std::string_view function, std::string_view type, std::string arguments) {
    return Unit{.header = "pack.h",
                .functions = {{.result = "void",
                               .function = std::string(function),
                               .arguments = std::move(arguments),
                               .parameters = fmt::format("const PanelSource<{}>&, u32*", type)}}};
  };
  std::vector<Unit> units = block_units(spec, t, s, vector_bytes);
  units.push_back(driver("Packed", t, s,
                         {{"void", "packed_run", "", ", const CpuThread&"},
                          {"i64", "packed_workspace_bytes", "", ", int"},
                          {"i64", "packed_b_bytes", "", ""},
                          {"void", "packed_b", "", ", void*"}}));
  units.push_back(
      panel("pack_a_panel", t.a,
            fmt::format("{}, {}, {}, {}, {}", t.a, t.math, a.warp_tile.m,
                        yes_no(packs_a(a.pipeline)), yes_no(a_is_row_major(s.layout)))));
  units.push_back(panel("pack_b_panel", t.b,
                        fmt::format("{}, {}, {}, {}", t.b, t.math, a.warp_tile.n,
                                    yes_no(!b_is_row_major(s.layout)))));
  return units;
}

}  // namespace

void add_cpu_units(const KernelSpec& spec, const CpuTypes& types, int vector_bytes,
                   Source& source) {
  const auto& signature = std::get<GemmSignature>(spec.signature);
  std::vector<Unit> units = spec.algorithm.pipeline == Pipeline::stream
                                ? stream_units(spec, types, signature)
                                : packed_units(spec, types, signature, vector_bytes);
  for (const Unit& unit : units) {
    const std::string name = name_of_unit(unit);
    const auto has_name = [&name](const Source& other) { return other.name == name; };
    if (std::any_of(source.units.begin(), source.units.end(), has_name)) continue;  // A as B
    source.units.push_back({.name = name,
                            .extension = source.extension,
                            .text = instantiations(unit, "template"),
                            .headers = source.headers,
                            .is_unit = true});
    source.declarations += instantiations(unit, "extern template");
  }
}

}  // namespace tessera::gemm
