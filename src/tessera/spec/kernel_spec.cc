#include "tessera/spec/kernel_spec.h"

#include <fmt/format.h>

#include <charconv>

#include "tessera/spec/fields_internal.h"
#include "tessera/spec/words_internal.h"

namespace tessera {
namespace {

Signature signature(const GemmProblem& p) {
  return GemmSignature{.a = p.a,
                       .b = p.b,
                       .acc = p.acc,
                       .out = p.out,
                       .d = p.d,
                       .layout = p.layout,
                       .epilogue = p.epilogue,
                       .preshuffled_b = p.preshuffled_b,
                       .grouping = p.grouping,
                       .scale_a = p.scale_a,
                       .scale_b = p.scale_b,
                       .scale_type = p.scale_type,
                       .gate = p.gate,
                       .gate_interleaved = p.gate_interleaved,
                       .indexing = p.indexing,
                       .quant = p.quant,
                       .arranged = is_arranged(p)};
}

Signature signature(const NormProblem& p) {
  return NormSignature{.kind = p.kind,
                       .in = p.in,
                       .weight = p.weight,
                       .out = p.out,
                       .scale = p.scale,
                       .shift = p.shift,
                       .residual = p.residual,
                       .quant = p.quant,
                       .interleaved = p.interleaved};
}

Signature signature(const ConvProblem& p) {
  return ConvSignature{.direction = p.direction,
                       .layout = p.layout,
                       .ndim = p.ndim,
                       .in = p.in,
                       .weight = p.weight,
                       .acc = p.acc,
                       .out = p.out,
                       .d = p.d,
                       .epilogue = p.epilogue};
}

Signature signature(const FmhaProblem& p) {
  return FmhaSignature{.kind = p.kind,
                       .in = p.in,
                       .out = p.out,
                       .dtype_bias = p.dtype_bias,
                       .kv = p.kv,
                       .lengths = p.lengths,
                       .masked = p.mask != FmhaMask::none,
                       .bias = p.bias,
                       .soft_cap = p.soft_cap != 0,
                       .lse = p.lse,
                       .dropout = p.p_drop != 0,
                       .random = p.random,
                       .pages = p.pages,
                       .cache_layout = p.cache_layout,
                       .qscale = p.qscale,
                       .rotary = p.rotary,
                       .rotate_q = p.rotate_q,
                       .dbias = p.dbias};
}

Signature signature(const RouteProblem& p) {
  return RouteSignature{.scoring = p.scoring, .in = p.in, .bias = p.bias, .order = p.order};
}

template <std::size_t Index = 0>
Signature blank(Op op) {
  if (kVariantOps[Index] == op) return Signature(std::in_place_index<Index>);
  if constexpr (Index + 1 < std::variant_size_v<Signature>) return blank<Index + 1>(op);
  throw Error(ErrorCode::internal, "an operation without a signature");
}

}  // namespace

Signature blank_signature(Op op) { return blank(op); }

std::string to_string(const Shape3& shape) {
  return fmt::format("{}x{}x{}", shape.m, shape.n, shape.k);
}
bool read_shape(std::string_view text, Shape3& shape) {
  const auto parts = split(text, 'x');
  if (parts.size() != 3) return false;
  Shape3 read;
  int* const values[] = {&read.m, &read.n, &read.k};
  for (std::size_t i = 0; i < 3; ++i) {
    const char* end = parts[i].data() + parts[i].size();
    const auto result = std::from_chars(parts[i].data(), end, *values[i]);
    if (result.ec != std::errc{} || result.ptr != end || *values[i] < 0) return false;
  }
  shape = read;
  return true;
}

std::string_view to_string(Pipeline pipeline) { return word_of(pipeline); }
Pipeline parse_pipeline(std::string_view text) { return parse_word<Pipeline>(text); }
std::string_view to_string(Scheduler scheduler) { return word_of(scheduler); }
std::string_view to_string(Store store) { return word_of(store); }
std::string_view to_string(SplitK split) { return word_of(split); }

Op op_of(const KernelSpec& spec) { return kVariantOps[spec.signature.index()]; }

Signature signature_of(const Problem& problem) {
  return std::visit([](const auto& fields) { return signature(fields); }, problem);
}

}  // namespace tessera
