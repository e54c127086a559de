// What frameworks ask of attention: a table of lines of problems.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/base/text.h"
#include "tessera/families/fmha/fmha.h"

namespace tessera::fmha {
namespace {

using Lines = std::span<const std::string_view>;

// A line holds fields of a problem with their alternatives, and stands for every combination.
constexpr std::string_view kCkDefault[] = {
    "kind=forward dtype=fp16|bf16 lengths=equal|packed|padded mask=none|bottom_right "
    "soft_cap=0|30 lse=0|1 p_drop=0|0.2",
    "kind=forward dtype=fp16|bf16 lengths=equal|packed|padded mask=none|bottom_right "
    "bias=elementwise|alibi lse=0|1 p_drop=0|0.2",
    "kind=forward dtype=fp8|bf8 out=fp16|bf16|fp32 lengths=equal|packed mask=none|bottom_right "
    "qscale=none|per_tensor|per_block|kv_block",
    "kind=forward dtype=fp16|bf16 lengths=packed|padded mask=none|bottom_right lse=0|1 "
    "pages=table|list page_size=64 cache_layout=linear|vectorized",
    "kind=append dtype=fp16|bf16 rotary=none|interleaved|half",
    "kind=append dtype=fp16|bf16 rotary=none|interleaved|half pages=table page_size=64",
    "kind=backward dtype=fp16|bf16 lengths=equal|packed mask=none|bottom_right "
    "bias=none|elementwise|alibi p_drop=0|0.2",
    "kind=backward dtype=fp16|bf16 lengths=equal|packed mask=none|bottom_right bias=elementwise "
    "dbias=1 p_drop=0|0.2",
};
constexpr std::string_view kFlashForward[] = {
    "kind=forward dtype=fp16|bf16 lengths=equal|packed|padded mask=none|bottom_right "
    "bias=none|alibi soft_cap=0|30 lse=0|1 p_drop=0|0.2",
    "kind=forward dtype=fp16|bf16 lengths=packed|padded mask=none|bottom_right lse=0|1 "
    "pages=table page_size=64",
    "kind=append dtype=fp16|bf16 rotary=none|interleaved|half",
    "kind=append dtype=fp16|bf16 rotary=none|interleaved|half pages=table page_size=64",
    "kind=extend dtype=fp16|bf16 lengths=equal|padded mask=none|bottom_right",
    "kind=extend dtype=fp16|bf16 lengths=equal|padded mask=none|bottom_right "
    "rotary=interleaved|half rotate_q=1",
    "kind=extend dtype=fp16|bf16 lengths=padded mask=none|bottom_right pages=table page_size=64",
    "kind=extend dtype=fp16|bf16 lengths=padded mask=none|bottom_right pages=table page_size=64 "
    "rotary=interleaved|half rotate_q=1",
};
constexpr std::string_view kFlashBackward[] = {
    "kind=backward dtype=fp16|bf16 lengths=equal|packed mask=none|bottom_right bias=none|alibi "
    "p_drop=0|0.2",
};
constexpr std::string_view kPytorch[] = {
    "kind=forward dtype=fp16|bf16 lengths=equal|packed mask=none|top_left bias=none|elementwise "
    "lse=0|1 p_drop=0|0.2",
    "kind=backward dtype=fp16|bf16 lengths=equal|packed mask=none|top_left bias=none|elementwise "
    "p_drop=0|0.2",
    "kind=backward dtype=fp16|bf16 lengths=equal|packed mask=none|top_left bias=elementwise "
    "dbias=1 p_drop=0|0.2",
};
constexpr std::string_view kAiterBatch[] = {
    "kind=forward dtype=fp16|bf16 mask=none|bottom_right bias=none|elementwise|alibi "
    "soft_cap=0|30 lse=0|1 p_drop=0|0.2",
    "kind=forward dtype=fp8 out=bf16 mask=none|bottom_right qscale=none|per_tensor hdim=128|192",
};
constexpr std::string_view kAiterGroup[] = {
    "kind=forward dtype=fp16|bf16 lengths=packed|padded mask=none|bottom_right "
    "bias=none|elementwise|alibi soft_cap=0|30 lse=0|1 p_drop=0|0.2",
    "kind=forward dtype=fp16|bf16 lengths=packed mask=none|bottom_right lse=0|1 "
    "pages=table|list page_size=64 cache_layout=linear|vectorized",
    "kind=forward dtype=fp8 out=bf16 lengths=packed|padded mask=none|bottom_right "
    "qscale=none|per_tensor",
};
constexpr std::string_view kAiterBackwardBatch[] = {
    "kind=backward dtype=fp16|bf16 mask=none|bottom_right bias=none|elementwise|alibi "
    "p_drop=0|0.2",
    "kind=backward dtype=fp16|bf16 mask=none|bottom_right bias=elementwise dbias=1 p_drop=0|0.2",
};
constexpr std::string_view kAiterBackwardGroup[] = {
    "kind=backward dtype=fp16|bf16 lengths=packed|padded mask=none|bottom_right "
    "bias=none|elementwise|alibi p_drop=0|0.2",
    "kind=backward dtype=fp16|bf16 lengths=packed|padded mask=none|bottom_right bias=elementwise "
    "dbias=1 p_drop=0|0.2",
};
constexpr std::string_view kAllOfFp32[] = {
    "kind=forward dtype=fp32 lengths=equal|packed|padded mask=none|bottom_right "
    "bias=none|elementwise|alibi lse=0|1 p_drop=0|0.2",
    "kind=append dtype=fp32 rotary=none|interleaved|half",
    "kind=backward dtype=fp32 lengths=equal|packed mask=none|bottom_right "
    "bias=none|elementwise|alibi p_drop=0|0.2",
    "kind=backward dtype=fp32 lengths=equal|packed mask=none|bottom_right bias=elementwise "
    "dbias=1 p_drop=0|0.2",
};
constexpr std::string_view kLeastOfFp32[] = {
    "kind=forward dtype=fp32 mask=none|bottom_right hdim=48|128",
};
constexpr std::string_view kOfEightBits[] = {
    "kind=forward dtype=fp8 out=bf16|fp32 lengths=equal|packed mask=none|bottom_right "
    "qscale=none|per_tensor|per_block|kv_block hdim=128|192",
};

// A receipt has lines of its own, or is made of others.
struct Row {
  Receipt receipt;
  Lines lines;
  std::string_view parts = {};
};
constexpr std::array kRows = {
    Row{{"ck_default", "0", "fp16, bf16 and 8 bits with every feature"}, kCkDefault},
    Row{{"ck_extended", "1", "the same signatures as ck_default"}, kCkDefault},
    Row{{"flash_fwd", "2", "flash-attention's forward, decoding and caches"}, kFlashForward},
    Row{{"flash_bwd", "3", "flash-attention's gradients"}, kFlashBackward},
    Row{{"pytorch", "4", "PyTorch's scaled_dot_product_attention"}, kPytorch},
    Row{{"aiter_batch", "100", "AITER's forward of equal sequences"}, kAiterBatch},
    Row{{"aiter_group", "200", "AITER's forward of sequences of any length"}, kAiterGroup},
    Row{{"aiter_bwd_batch", "300", "AITER's gradients, equal sequences"}, kAiterBackwardBatch},
    Row{{"aiter_bwd_group", "400", "AITER's gradients, sequences of any length"},
        kAiterBackwardGroup},
    Row{{"aiter_cpp", "600", "AITER's forward from C++"}, {}, "aiter_batch aiter_group"},
    Row{{"fp32_all", "800", "fp32 without a soft cap"}, kAllOfFp32},
    Row{{"fp32_min", "801", "fp32, equal sequences, heads of 48 and 128"}, kLeastOfFp32},
    Row{{"fp8_test", "888", "fp8 with outputs of bf16 and fp32, heads of 128 and 192"},
        kOfEightBits},
    Row{{"flash", "", "flash_fwd and flash_bwd"}, {}, "flash_fwd flash_bwd"},
    Row{{"aiter", "", "the receipts of AITER"},
        {},
        "aiter_batch aiter_group aiter_bwd_batch aiter_bwd_group"},
    Row{{"fp32", "", "fp32_all and fp32_min"}, {}, "fp32_all fp32_min"},
    Row{{"fp8", "", "fp8_test"}, {}, "fp8_test"},
};

// The sizes that kernels are made for: a token, prompts, and the heads that there are tiles for. A
// line that has a field keeps it.
constexpr std::array<std::string_view, 3> kReceiptQueries = {
    "seqlen_q=1 seqlen_k=4096", "seqlen_q=512 seqlen_k=512", "seqlen_q=4096 seqlen_k=4096"};
constexpr std::array<std::string_view, 4> kReceiptHeads = {"hdim=64", "hdim=128",
                                                           "hdim=192 hdim_v=128", "hdim=256"};

// Every combination of the line's alternatives.
std::vector<std::string> combinations_of(std::string_view line) {
  std::vector<std::string> all = {"fmha batch=4 heads=16 heads_kv=4"};
  for (const std::string_view word : split_words(line)) {
    const std::size_t value = word.find('=') + 1;
    std::vector<std::string> longer;
    for (const std::string& begin : all) {
      for (const std::string_view choice : split(word.substr(value), '|')) {
        longer.push_back(fmt::format("{} {}{}", begin, word.substr(0, value), choice));
      }
    }
    all = std::move(longer);
  }
  return all;
}

void add_problems(std::string_view line, std::vector<Problem>& all) {
  const bool has_heads = line.find("hdim=") != std::string_view::npos;
  const std::span<const std::string_view> heads(kReceiptHeads);
  const std::span<const std::string_view> own(&line, 1);
  for (const std::string& begin : combinations_of(line)) {
    for (const std::string_view queries : kReceiptQueries) {
      for (const std::string_view head : has_heads ? own : heads) {
        all.push_back(parse_problem(
            fmt::format("{} {} {}", begin, queries, has_heads ? std::string_view() : head)));
      }
    }
  }
}

const Row& row_of(std::string_view name) {
  return *std::find_if(kRows.begin(), kRows.end(),
                       [&](const Row& row) { return row.receipt.name == name; });
}

std::vector<std::string_view> lines_of(const Row& row) {
  std::vector<std::string_view> all(row.lines.begin(), row.lines.end());
  for (const std::string_view part : split_words(row.parts)) {
    const std::vector<std::string_view> more = lines_of(row_of(part));
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace

std::span<const Receipt> receipts() {
  static constexpr auto kAll = [] {
    std::array<Receipt, kRows.size()> all{};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = kRows[i].receipt;
    return all;
  }();
  return kAll;
}

std::vector<Problem> receipt_problems(const Receipt& receipt) {
  std::vector<Problem> all;
  for (const std::string_view line : lines_of(row_of(receipt.name))) add_problems(line, all);
  return all;
}

}  // namespace tessera::fmha
