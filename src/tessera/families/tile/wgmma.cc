// The specialisations of Wgmma, whose operands are written out with literal numbers.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/families/tile/wgmma.h"

namespace tessera::tile {
namespace {

constexpr int kBytesK = 32;  // bytes along k that one wgmma takes

// The type's name in PTX.
std::string_view ptx_type(DType dtype) {
  switch (dtype) {
    case DType::fp16:
      return "f16";
    case DType::fp8:
      return "e4m3";
    case DType::bf8:
      return "e5m2";
    case DType::int8:
      return "s8";
    default:
      return to_string(dtype);  // bf16, tf32
  }
}

std::string_view word_of(WgmmaFrom from) {
  switch (from) {
    case WgmmaFrom::k_lines:
      return "k_lines";
    case WgmmaFrom::row_lines:
      return "row_lines";
    case WgmmaFrom::registers:
      return "registers";
  }
  return {};
}

// "accumulate", then the signs of the operands (not for int8), then, for 16-bit types, whether each
// operand in shared memory has contiguous rows.
std::string modifiers(const Wgmma& w) {
  if (w.p == DType::int8) return "accumulate";
  std::string text = "accumulate, 1, 1";
  if (size_of(w.p) != 2) return text;
  for (const WgmmaFrom from : {w.p_from, w.q_from}) {
    if (from != WgmmaFrom::registers) text += from == WgmmaFrom::row_lines ? ", 1" : ", 0";
  }
  return text;
}

// "%0, %1, %2", broken into lines that are wrapped by `open` and `close`.
template <class Print>
std::string listed(int count, std::string_view open, std::string_view close, Print print) {
  constexpr int kPerLine = 6;
  std::string text;
  for (int i = 0; i < count; ++i) {
    const bool ends_line = i % kPerLine == kPerLine - 1 || i + 1 == count;
    if (i % kPerLine == 0) text += open;
    text += print(i);
    if (i + 1 < count) text += ends_line ? "," : ", ";
    if (ends_line) text += close;
  }
  return text;
}

// How P appears in the assembly (its operands) and in C++ (its parameter).
struct OperandP {
  int words;  // operands of the assembly
  std::string_view parameter, inputs;
};
OperandP operand_p(const Wgmma& w) {
  if (w.p_from != WgmmaFrom::registers) return {1, " u64 p", "\"l\"(p)"};
  return {4, "\n      const u32 (&p)[4]", "\"r\"(p[0]), \"r\"(p[1]), \"r\"(p[2]), \"r\"(p[3])"};
}

// "%8", or "{%8, %9, %10, %11}".
std::string numbers_of(const OperandP& p, int first) {
  if (p.words == 1) return fmt::format("%{}", first);
  return fmt::format("{{%{}, %{}, %{}, %{}}}", first, first + 1, first + 2, first + 3);
}

std::string specialisation(const Wgmma& w) {
  const bool integer = w.p == DType::int8;
  const OperandP p = operand_p(w);
  const int count = w.columns / 2;  // accumulators of a thread
  const int q = count + p.words;    // number of Q's descriptor
  std::string text = fmt::format(
      "template <>\n"
      "struct Wgmma<{}, {}, {}, WgmmaFrom::{}, WgmmaFrom::{}> {{\n"
      "  using Acc = {};\n"
      "  static __device__ __forceinline__ void multiply(Acc (&d)[{}],{}, u64 q, "
      "int accumulate) {{\n"
      "    asm volatile(\n"
      "        \"{{\\n.reg .pred accumulate;\\nsetp.ne.b32 accumulate, %{}, 0;\\n\"\n",
      to_string(w.p), to_string(w.q), w.columns, word_of(w.p_from), word_of(w.q_from),
      integer ? "int" : "float", count, p.parameter, q + 1);
  text += fmt::format(
      "        \"wgmma.mma_async.sync.aligned.m64n{}k{}.{}.{}.{}\\n\"\n"
      "        \"{{\"\n",
      w.columns, kBytesK / size_of(w.p), integer ? "s32" : "f32", ptx_type(w.p), ptx_type(w.q));
  text += listed(count, "        \"", "\"\n", [](int i) { return fmt::format("%{}", i); });
  text += fmt::format("        \"}}, {}, %{}, {};\\n}}\"\n", numbers_of(p, count), q, modifiers(w));
  const std::string_view constraint = integer ? "+r" : "+f";
  text += "        :\n";
  text += listed(count, "        ", "\n",
                 [&](int i) { return fmt::format("\"{}\"(d[{}])", constraint, i); });
  return text + fmt::format(
                    "        : {}, \"l\"(q), \"r\"(accumulate));\n"
                    "  }}\n"
                    "}};\n"
                    "\n",
                    p.inputs);
}

}  // namespace

std::string wgmma_text(std::span<const Wgmma> instructions) {
  std::string text = "namespace tessera::device {\n\n";
  for (auto i = instructions.begin(); i != instructions.end(); ++i) {
    if (std::find(instructions.begin(), i, *i) == i) text += specialisation(*i);
  }
  return text + "}  // namespace tessera::device\n";
}

}  // namespace tessera::tile
