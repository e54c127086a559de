// What only tmaws kernels have in their text: one wgmma instruction, whose operands must be written
// out with literal numbers, and the kernel that packs B.
#include <fmt/format.h>

#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {
namespace {

constexpr int kBytesK = 32;  // of k that one wgmma takes

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

// "accumulate", the signs of the operands (not for int8), and, for 16-bit types, which of them lie
// with their rows contiguous.
std::string modifiers(DType dtype, const TmawsOperand& p, const TmawsOperand& q) {
  if (dtype == DType::int8) return "accumulate";
  if (size_of(dtype) != 2) return "accumulate, 1, 1";
  return fmt::format("accumulate, 1, 1, {}, {}", p.k_contiguous ? 0 : 1, q.k_contiguous ? 0 : 1);
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

}  // namespace

std::string wgmma_text(const KernelSpec& spec) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  const TmawsOperand p = a.swap_ab ? tmaws_b(s, a) : tmaws_a(s, a);
  const TmawsOperand q = a.swap_ab ? tmaws_a(s, a) : tmaws_b(s, a);
  const bool integer = s.acc == DType::int32;
  const int columns = a.tile.n;
  const int count = columns / 2;
  const int k = kBytesK / size_of(p.dtype);
  std::string text = fmt::format(
      "namespace tessera::device {{\n"
      "\n"
      "template <>\n"
      "struct Wgmma<{0}> {{\n"
      "  using Acc = {1};\n"
      "  static __device__ __forceinline__ void multiply(Acc (&d)[{2}], u64 p, u64 q, "
      "int accumulate) {{\n"
      "    asm volatile(\n"
      "        \"{{\\n.reg .pred accumulate;\\nsetp.ne.b32 accumulate, %{5}, 0;\\n\"\n"
      "        \"wgmma.mma_async.sync.aligned.m64n{0}k{3}.{4}\\n\"\n",
      columns, integer ? "int" : "float", count, k,
      fmt::format("{}.{}.{}", integer ? "s32" : "f32", ptx_type(p.dtype), ptx_type(q.dtype)),
      count + 2);
  text += "        \"{\"\n";
  text += listed(count, "        \"", "\"\n", [](int i) { return fmt::format("%{}", i); });
  text += fmt::format("        \"}}, %{}, %{}, {};\\n}}\"\n", count, count + 1,
                      modifiers(p.dtype, p, q));
  const std::string_view constraint = integer ? "+r" : "+f";
  text += "        :\n";
  text += listed(count, "        ", "\n",
                 [&](int i) { return fmt::format("\"{}\"(d[{}])", constraint, i); });
  return text +
         "        : \"l\"(p), \"l\"(q), \"r\"(accumulate));\n"
         "  }\n"
         "};\n"
         "\n"
         "}  // namespace tessera::device\n";
}

std::string pack_kernel_text(const KernelSpec& spec) {
  return fmt::format(
      "__global__ void __launch_bounds__(PackedB<Config>::kThreads)\n"
      "{}_pack(const __grid_constant__ CudaGemmArguments arguments, void* packed) {{\n"
      "  PackedB<Config>::pack(arguments, packed);\n"
      "}}\n",
      name_of(spec));
}

std::string prepare_kernel_text(const KernelSpec& spec) {
  return fmt::format(
      "__global__ void __launch_bounds__(TmaPrepare<Config>::kThreads, "
      "TmaPrepare<Config>::kMinBlocks)\n"
      "{}_prepare(const __grid_constant__ CudaGemmArguments arguments) {{\n"
      "  TmaPrepare<Config>::run(arguments);\n"
      "}}\n",
      name_of(spec));
}

}  // namespace tessera::gemm
