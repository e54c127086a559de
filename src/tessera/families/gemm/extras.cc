#include "tessera/families/gemm/extras.h"

#include <fmt/format.h>

#include "tessera/families/gemm/outputs.h"

namespace tessera::gemm {
namespace {

// ---- what goes together ----

std::string scales_fit(const GemmSignature& s) {
  if (!has_scales(s)) {
    return s.scale_type == GemmScaleType::fp32
               ? ""
               : "scale_type must be fp32 without scale_a and scale_b, got e8m0";
  }
  if (size_of(s.a) != 1 || s.a == DType::int8) {
    return fmt::format("scales of blocks go with operands of fp8 and bf8, got {}", to_string(s.a));
  }
  if (!s.preshuffled_b) return {};
  return fmt::format("preshuffle must be 0 with scale_a={} and scale_b={}, got 1",
                     to_string(s.scale_a), to_string(s.scale_b));
}

std::string gate_fits(const GemmSignature& s) {
  if (s.gate == GemmGate::none) {
    return s.gate_interleaved ? "gate_interleaved must be 0 with gate=none, got 1" : "";
  }
  if (s.acc == DType::fp32 && s.out != DType::int32) return {};
  return fmt::format("a gate needs sums of fp32, got {}", to_string(s.acc));
}

std::string indexing_fits(const GemmSignature& s) {
  const bool by_row = s.grouping == GemmGrouping::none || s.grouping == GemmGrouping::contiguous ||
                      s.grouping == GemmGrouping::indexed;
  if (s.indexing == GemmIndexing::none || by_row) return {};
  return fmt::format("indexing must be none with grouping={}, got {}", to_string(s.grouping),
                     to_string(s.indexing));
}

std::string quant_fits(const GemmSignature& s) {
  const bool is_float8 = s.out == DType::fp8 || s.out == DType::bf8;
  if (is_float8 == (s.quant != NormQuant::none)) return {};
  return is_float8
             ? fmt::format("out={} needs quant=tensor, row or block, got none", to_string(s.out))
             : fmt::format("quant={} needs out=fp8 or bf8, got {}", to_string(s.quant),
                           to_string(s.out));
}

// Groups of lists have sizes of their own, which scales, gates and rows by index do not follow.
std::string lists_go_alone(const GemmSignature& s) {
  if (s.grouping != GemmGrouping::lists || !has_extras(s)) return {};
  return fmt::format(
      "scale_a, scale_b, gate, indexing and quant must be none with grouping=lists, got {}, {}, "
      "{}, {} and {}",
      to_string(s.scale_a), to_string(s.scale_b), to_string(s.gate), to_string(s.indexing),
      to_string(s.quant));
}

// ---- sizes, strides and flags ----

std::string scale_strides_reason(const GemmProblem& p) {
  struct Row {
    std::string_view name;
    std::int64_t value;
    bool is_used;
  };
  const bool a = p.scale_a != GemmScale::none, b = p.scale_b != GemmScale::none;
  const Row rows[] = {{"stride_scale_a_m", p.stride_scale_a_m, a},
                      {"stride_scale_a_k", p.stride_scale_a_k, a},
                      {"batch_stride_scale_a", p.batch_stride_scale_a, a},
                      {"stride_scale_b_n", p.stride_scale_b_n, b},
                      {"stride_scale_b_k", p.stride_scale_b_k, b},
                      {"batch_stride_scale_b", p.batch_stride_scale_b, b}};
  for (const Row& row : rows) {
    if (row.value == kPacked) continue;
    if (!row.is_used) {
      return fmt::format("{} must be left out without such scales, got {}", row.name, row.value);
    }
    if (row.value < 0) return fmt::format("{} must be at least 0, got {}", row.name, row.value);
  }
  return {};
}

std::string quads_reason(const GemmProblem& p) {
  constexpr std::int64_t kQuad = 4;
  for (const auto& [name, stride] : {std::pair{"stride_scale_a_k", p.stride_scale_a_k},
                                     {"stride_scale_b_k", p.stride_scale_b_k}}) {
    if (stride == kPacked || stride == 0 || stride >= kQuad) continue;
    return fmt::format(
        "{} must be at least {} with scale_quads=1, where strides along k go from four scales to "
        "the next four, got {}",
        name, kQuad, stride);
  }
  return {};
}

// Of operands that are too long to address.
std::string scale_ends_reason(const GemmProblem& given) {
  const GemmProblem p = with_strides(given);
  for (const Tensor& tensor : tensors(p)) {
    if (!tensor.name.starts_with("scale_") || !tensor.is_too_long()) continue;
    const std::size_t k = tensor.rank - 2;
    return fmt::format(
        "the last byte of {} must be below 2^63, got {} blocks of rows {} apart, {} blocks along k "
        "{} apart and {} batches {} apart",
        tensor.name, tensor.sizes[k + 1], tensor.strides[k + 1], tensor.sizes[k], tensor.strides[k],
        tensor.batches, tensor.batch_stride);
  }
  return {};
}

std::string scales_reason(const GemmProblem& p) {
  if (p.scale_quads && !(has_scales(p) && p.scale_type == GemmScaleType::e8m0)) {
    return "scale_quads must be 0 without scales of scale_type=e8m0, got 1";
  }
  if (std::string why = scale_strides_reason(p); !why.empty() || !has_scales(p)) return why;
  if (std::string why = p.scale_quads ? quads_reason(p) : ""; !why.empty()) return why;
  return scale_ends_reason(p);
}

std::string index_reason(const GemmProblem& p) {
  if (p.indexing == GemmIndexing::none) {
    return p.index_room == 0
               ? ""
               : fmt::format("index_room must be 0 with indexing=none, got {}", p.index_room);
  }
  if (p.batch != 1) {
    return fmt::format("batch must be 1 with indexing={}, got {}", to_string(p.indexing), p.batch);
  }
  const std::int64_t least = p.indexing == GemmIndexing::scattered ? p.m : p.m > 0 ? 1 : 0;
  if (p.index_room >= least) return {};
  return fmt::format("index_room must be at least {} with indexing={} and m={}, got {}", least,
                     to_string(p.indexing), p.m, p.index_room);
}

std::string arrays_reason(const GemmProblem& p) {
  const bool has_extra =
      has_scales(p) || p.indexing != GemmIndexing::none || p.quant != NormQuant::none;
  if (!p.pointer_arrays || !has_extra) return {};
  return "pointer_arrays must be 0 with scale_a, scale_b, indexing or quant, got 1";
}

}  // namespace

Verdict extras_fit(const GemmSignature& s) {
  for (auto* reason : {scales_fit, gate_fits, indexing_fits, quant_fits, lists_go_alone}) {
    if (std::string why = reason(s); !why.empty()) return {why};
  }
  return {};
}

std::string extras_reason(const GemmProblem& p) {
  for (auto* reason : {scales_reason, index_reason, arrays_reason}) {
    if (std::string why = reason(p); !why.empty()) return why;
  }
  if (p.gate != GemmGate::none && p.n % 2 != 0) {
    return fmt::format("n must be even with gate={}, got {}", to_string(p.gate), p.n);
  }
  if (p.quant != NormQuant::none && p.beta != 0) {
    return fmt::format("beta must be 0 with quant={}, since C would have the 8 bits of out, got {}",
                       to_string(p.quant), p.beta);
  }
  if (p.scales_by_column && p.quant != NormQuant::block) {
    return fmt::format("scales_by_column must be 0 with quant={}, got 1", to_string(p.quant));
  }
  return {};
}

}  // namespace tessera::gemm
