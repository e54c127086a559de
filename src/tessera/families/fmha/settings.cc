// What the setters of FmhaProblemBuilder describe: their words, their rules, the line of the
// problem, and what is left for the choice.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/families/tile/rules.h"
#include "tessera/spec/words_internal.h"

namespace tessera::fmha {
namespace {

[[noreturn]] void refuse_setting(ErrorCode code, const std::string& sentence) {
  throw Error(code, "fmha: " + sentence);
}

constexpr std::int64_t kLongestStride = std::numeric_limits<std::int64_t>::max();

// A word of the builder, and what stands for it in a problem's line. Masks and biases have numbers,
// too, as callers from C know them.
struct WordPair {
  std::string_view theirs, ours;
};
using WordTable = std::span<const WordPair>;

// The API families, and the kernels that each of them has.
constexpr WordPair kFamilies[] = {
    {"fwd", "fwd"},
    {"fwd_pagedkv", "fwd_pagedkv"},
    {"fwd_splitkv", "fwd_splitkv fwd_splitkv_combine"},
    {"fwd_appendkv", "fwd_appendkv"},
    {"batch_prefill", "batch_prefill"},
    {"bwd", "bwd_dot_do_o bwd_dq_dk_dv bwd_convert_dq"},
};
constexpr WordPair kKernelFamilies[] = {
    {"fwd", ""},          {"fwd_pagedkv", ""},   {"fwd_splitkv", ""},
    {"fwd_appendkv", ""}, {"batch_prefill", ""}, {"fwd_splitkv_combine", ""},
    {"bwd_dot_do_o", ""}, {"bwd_dq_dk_dv", ""},  {"bwd_convert_dq", ""},
};
constexpr WordPair kDataTypes[] = {
    {"fp32", "dtype=fp32"},
    {"fp16", "dtype=fp16"},
    {"bf16", "dtype=bf16"},
    {"fp8", "dtype=fp8 out=fp8"},
    {"bf8", "dtype=bf8 out=bf8"},
    {"fp8fp16", "dtype=fp8 out=fp16"},
    {"fp8bf16", "dtype=fp8 out=bf16"},
    {"fp8fp32", "dtype=fp8 out=fp32"},
};
constexpr WordPair kMasks[] = {
    {"no", "none"},         {"top_left", "top_left"}, {"bottom_right", "bottom_right"},
    {"generic", "generic"}, {"none", "none"},         {"causal", "top_left"},
    {"0", "none"},          {"1", "top_left"},        {"2", "bottom_right"},
    {"3", "generic"},
};
constexpr WordPair kBiases[] = {
    {"no", "none"}, {"elementwise", "elementwise"}, {"alibi", "alibi"}, {"none", "none"},
    {"0", "none"},  {"1", "elementwise"},           {"2", "alibi"},
};
constexpr WordPair kScales[] = {
    {"no", "none"},   {"pertensor", "per_tensor"},   {"blockscale", "per_block"},
    {"none", "none"}, {"kv_blockscale", "kv_block"},
};
constexpr WordPair kRotaries[] = {
    {"none", "none"},
    {"interleaved", "interleaved"},
    {"half_rotated", "half"},
};
constexpr WordPair kCacheLayouts[] = {{"linear", "linear"}, {"vectorized", "vectorized"}};
constexpr WordPair kTables[] = {{"vllm_2d", "table"}, {"sglang_1d", "list"}};

// What the setters said.
struct Wanted {
  std::string_view family = "fwd";
  std::string_view kernels;  // of the family
  std::string_view kernel;   // empty: any
  std::string_view dtype = "dtype=fp16";
  std::string_view mask = "none";
  std::string_view bias = "none";
  std::string_view qscale = "none";
  std::string_view rotary = "none";
  std::string_view layout = "linear";
  std::string_view table = "table";
  std::int64_t hdim_q = 0, hdim_v = 0, batch = 0, seqlen_q = 0, seqlen_k = 0;
  std::int64_t heads = 0, heads_kv = 0;
  std::int64_t most_q = 0, most_k = 0;
  std::optional<std::array<std::int64_t, 2>> window;
  std::int64_t sink_size = 0, skip = 0, page = 64, splits = 0;
  float p_drop = 0, cap = 0;
  bool lse = false, is_v_rowmajor = true, is_group = false, is_paged = false, is_static = false;
  bool has_sink = false, has_cache = false, dbias = false, random = false;
  ChoiceSettings choice;
};

// The arguments of one call.
class Arguments {
 public:
  explicit Arguments(const Setting& setting) : setting_(setting) {}

  bool has(std::size_t i) const { return i < setting_.arguments.size(); }
  const std::string& text(std::size_t i) const { return setting_.arguments[i]; }
  std::int64_t number(std::size_t i) const { return read<std::int64_t>(i, "a whole number"); }
  float real(std::size_t i) const { return read<float>(i, "a number"); }
  bool flag(std::size_t i) const {
    const std::string& text = setting_.arguments[i];
    if (text == "1" || text == "true") return true;
    if (text != "0" && text != "false") refuse_argument(text, "true or false");
    return false;
  }
  std::string_view word(std::size_t i, WordTable table) const { return pair(i, table).ours; }
  const WordPair& pair(std::size_t i, WordTable table) const {
    const std::string& text = setting_.arguments[i];
    std::vector<std::string> known;
    for (const WordPair& each : table) {
      if (each.theirs == text) return each;
      known.emplace_back(each.theirs);
    }
    refuse_setting(ErrorCode::parse_error, unknown_word(setting_.setter, text, known));
  }

 private:
  template <class Number>
  Number read(std::size_t i, std::string_view noun) const {
    const std::string& text = setting_.arguments[i];
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return value;
    refuse_argument(text, noun);
  }
  [[noreturn]] void refuse_argument(std::string_view text, std::string_view noun) const {
    refuse_setting(ErrorCode::parse_error,
                   fmt::format("{} takes {}, got '{}'", setting_.setter, noun, text));
  }

  const Setting& setting_;
};

struct Setter {
  std::string_view name;
  std::size_t least, most;  // arguments
  void (*set)(Wanted&, const Arguments&);
};
constexpr Setter kSetters[] = {
    {"api_family", 1, 1,
     [](Wanted& w, const Arguments& a) {
       const WordPair& family = a.pair(0, kFamilies);
       w.family = family.theirs, w.kernels = family.ours;
     }},
    {"kernel_family", 1, 1,
     [](Wanted& w, const Arguments& a) { w.kernel = a.pair(0, kKernelFamilies).theirs; }},
    {"gfx_arch", 1, 1, [](Wanted& w, const Arguments& a) { w.choice.target = a.text(0); }},
    {"data_type", 1, 1, [](Wanted& w, const Arguments& a) { w.dtype = a.word(0, kDataTypes); }},
    {"dims", 5, 5,
     [](Wanted& w, const Arguments& a) {
       w.hdim_q = a.number(0), w.hdim_v = a.number(1), w.batch = a.number(2);
       w.seqlen_q = a.number(3), w.seqlen_k = a.number(4);
     }},
    {"nheads", 2, 2,
     [](Wanted& w, const Arguments& a) { w.heads = a.number(0), w.heads_kv = a.number(1); }},
    {"mask_type", 1, 1, [](Wanted& w, const Arguments& a) { w.mask = a.word(0, kMasks); }},
    {"bias_type", 1, 1, [](Wanted& w, const Arguments& a) { w.bias = a.word(0, kBiases); }},
    {"lse", 1, 1, [](Wanted& w, const Arguments& a) { w.lse = a.flag(0); }},
    {"dropout", 1, 2,
     [](Wanted& w, const Arguments& a) {
       const float p = a.has(1) ? a.real(1) : 0.2F;
       w.p_drop = a.flag(0) ? p : 0;
     }},
    {"qscale_type", 1, 1, [](Wanted& w, const Arguments& a) { w.qscale = a.word(0, kScales); }},
    {"rope_type", 1, 1, [](Wanted& w, const Arguments& a) { w.rotary = a.word(0, kRotaries); }},
    {"logits_soft_cap", 1, 2,
     [](Wanted& w, const Arguments& a) {
       const float cap = a.has(1) ? a.real(1) : 30.0F;
       w.cap = a.flag(0) ? cap : 0;
     }},
    {"v_rowmajor", 1, 1, [](Wanted& w, const Arguments& a) { w.is_v_rowmajor = a.flag(0); }},
    {"group_mode", 1, 1, [](Wanted& w, const Arguments& a) { w.is_group = a.flag(0); }},
    {"paged_kv", 1, 1, [](Wanted& w, const Arguments& a) { w.is_paged = a.flag(0); }},
    {"fp8_static_quant", 1, 1, [](Wanted& w, const Arguments& a) { w.is_static = a.flag(0); }},
    {"skip_min_seqlen_q", 1, 2,
     [](Wanted& w, const Arguments& a) {
       const std::int64_t longest = a.has(1) ? a.number(1) : 1;
       w.skip = a.flag(0) ? longest : 0;
     }},
    {"sink", 1, 1, [](Wanted& w, const Arguments& a) { w.has_sink = a.flag(0); }},
    {"kv_cache", 3, 3,
     [](Wanted& w, const Arguments& a) {
       w.layout = a.word(0, kCacheLayouts), w.table = a.word(1, kTables), w.page = a.number(2);
       w.has_cache = true;
     }},
    {"window", 2, 2,
     [](Wanted& w, const Arguments& a) {
       w.window = {a.number(0), a.number(1)};
     }},
    {"sink_size", 1, 1, [](Wanted& w, const Arguments& a) { w.sink_size = a.number(0); }},
    {"max_seqlen", 2, 2,
     [](Wanted& w, const Arguments& a) { w.most_q = a.number(0), w.most_k = a.number(1); }},
    {"num_splits", 1, 1, [](Wanted& w, const Arguments& a) { w.splits = a.number(0); }},
    {"bwd_flags", 3, 3,
     [](Wanted& w, const Arguments& a) {
       w.dbias = a.flag(0), w.random = a.flag(1);
       w.choice.deterministic = a.flag(2);
     }},
};

void apply(const Setting& setting, Wanted& wanted) {
  std::vector<std::string> known;
  for (const auto& [name, least, most, set] : kSetters) {
    known.emplace_back(name);
    if (name != setting.setter) continue;
    const std::size_t count = setting.arguments.size();
    if (count >= least && count <= most) return set(wanted, Arguments(setting));
    refuse_setting(
        ErrorCode::invalid_argument,
        fmt::format("{} takes {} arguments, got {}", name,
                    least == most ? std::to_string(most) : fmt::format("{} or {}", least, most),
                    count));
  }
  refuse_setting(ErrorCode::parse_error, unknown_word("setter", setting.setter, known));
}

// ---- rules ----

bool is_family(const Wanted& w, std::string_view family) { return w.family == family; }
bool appends_keys(const Wanted& w) { return is_family(w, "fwd_appendkv"); }
bool is_backward(const Wanted& w) { return is_family(w, "bwd"); }
bool is_prefill(const Wanted& w) { return is_family(w, "batch_prefill"); }
bool has_pages(const Wanted& w) { return w.is_paged; }

// "false" where it must be true.
std::string needs(const Wanted& w, std::string_view setter, std::string_view got = "false") {
  return fmt::format("api_family={} needs {}, got {}", w.family, setter, got);
}

// Without groups all sequences have the lengths of dims, which max_seqlen may repeat.
bool repeats(std::int64_t longest, std::int64_t length) {
  return longest == 0 || longest == length;
}
std::string needs_group(std::string_view side, std::int64_t longest, std::string_view field,
                        std::int64_t length) {
  return fmt::format(
      "max_seqlen's {} needs group_mode(true), or must be 0 or {}, {} of dims, got {}", side,
      length, field, longest);
}

bool is_kernel_of(const Wanted& w) {
  const auto kernels = split_words(w.kernels);
  return std::find(kernels.begin(), kernels.end(), w.kernel) != kernels.end();
}

bool is_power_of_two(std::int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

constexpr tile::Rule<Wanted> kSettingRules[] = {
    {[](const Wanted& w) { return w.batch > 0 && w.hdim_q > 0 && w.hdim_v > 0; },
     [](const Wanted& w) {
       return fmt::format("dims needs hdim_q, hdim_v and batch of at least 1, got {}, {} and {}",
                          w.hdim_q, w.hdim_v, w.batch);
     }},
    {[](const Wanted& w) { return w.seqlen_q > 0 && w.seqlen_k > 0; },
     [](const Wanted& w) {
       return fmt::format("dims needs seqlen_q and seqlen_k of at least 1, got {} and {}",
                          w.seqlen_q, w.seqlen_k);
     }},
    {[](const Wanted& w) { return w.heads > 0 && w.heads_kv > 0; },
     [](const Wanted& w) {
       return fmt::format("nheads must be at least 1 each, got {} and {}", w.heads, w.heads_kv);
     }},
    {[](const Wanted& w) { return w.kernel.empty() || is_kernel_of(w); },
     [](const Wanted& w) {
       std::vector<std::string> kernels;
       for (const std::string_view kernel : split_words(w.kernels)) kernels.emplace_back(kernel);
       return fmt::format("kernel_family must be one of {} with api_family={}, got {}",
                          join(kernels, ", "), w.family, w.kernel);
     }},
    {[](const Wanted& w) { return !w.is_group || w.most_q > 0; },
     [](const Wanted& w) {
       return fmt::format("group_mode needs max_seqlen with q of at least 1, got {}", w.most_q);
     }},
    {[](const Wanted& w) { return !w.is_group || w.most_q <= w.seqlen_q; },
     [](const Wanted& w) {
       return fmt::format(
           "max_seqlen's q must be at most {}, seqlen_q of dims, which counts the tokens of all "
           "sequences with group_mode, got {}",
           w.seqlen_q, w.most_q);
     }},
    {[](const Wanted& w) { return w.is_group || repeats(w.most_q, w.seqlen_q); },
     [](const Wanted& w) { return needs_group("q", w.most_q, "seqlen_q", w.seqlen_q); }},
    {[](const Wanted& w) { return w.is_group || appends_keys(w) || repeats(w.most_k, w.seqlen_k); },
     [](const Wanted& w) { return needs_group("k", w.most_k, "seqlen_k", w.seqlen_k); }},
    {[](const Wanted& w) { return !is_backward(w) || w.lse; },
     [](const Wanted& w) { return needs(w, "lse(true), which the forward pass stored"); }},
    {[](const Wanted& w) { return is_backward(w) || !w.dbias; },
     [](const Wanted& w) {
       return fmt::format("bwd_flags' dbias must be false with api_family={}, got true", w.family);
     }},
    {[](const Wanted& w) { return !is_backward(w) || !w.random; },
     [](const Wanted&) {
       return std::string(
           "bwd_flags' store_randval must be false with api_family=bwd, because attention stores "
           "the bytes of the same weights, got true");
     }},
    {[](const Wanted& w) { return w.p_drop > 0 || !w.random; },
     [](const Wanted&) {
       return std::string("bwd_flags' store_randval needs dropout(true), got dropout(false)");
     }},
    {[](const Wanted& w) {
       return has_pages(w) || (!is_prefill(w) && !is_family(w, "fwd_pagedkv"));
     },
     [](const Wanted& w) { return needs(w, "paged_kv(true)"); }},
    {[](const Wanted& w) { return has_pages(w) || !w.has_cache; },
     [](const Wanted&) { return std::string("kv_cache needs paged_kv(true), got false"); }},
    {[](const Wanted& w) { return !has_pages(w) || w.page > 0; },
     [](const Wanted& w) {
       return fmt::format("kv_cache's page must be at least 1, got {}", w.page);
     }},
    {[](const Wanted& w) { return !is_prefill(w) || w.is_group; },
     [](const Wanted& w) { return needs(w, "group_mode(true)"); }},
    {[](const Wanted& w) { return !is_prefill(w) || is_power_of_two(w.page); },
     [](const Wanted& w) {
       return needs(w, "kv_cache with a page of 1, 2, 4, 8, ... tokens", std::to_string(w.page));
     }},
    {[](const Wanted& w) { return !appends_keys(w) || !w.is_group; },
     [](const Wanted& w) { return needs(w, "group_mode(false)", "true"); }},
    {[](const Wanted& w) {
       return w.is_v_rowmajor || (is_family(w, "fwd") && !has_pages(w)) || is_backward(w);
     },
     [](const Wanted& w) {
       return fmt::format("v_rowmajor must be true with api_family={} and paged_kv={}, got false",
                          w.family, w.is_paged);
     }},
    {[](const Wanted& w) { return appends_keys(w) || w.rotary == "none"; },
     [](const Wanted& w) {
       return fmt::format("rope_type must be none with api_family={}, got {}", w.family, w.rotary);
     }},
    {[](const Wanted& w) { return !w.is_static || w.dtype.find("fp8") != std::string_view::npos; },
     [](const Wanted& w) {
       return fmt::format(
           "fp8_static_quant needs data_type fp8, fp8fp16, fp8bf16 or fp8fp32, got "
           "{}",
           w.dtype.substr(w.dtype.find('=') + 1));
     }},
    {[](const Wanted& w) { return !w.has_sink || w.sink_size > 0; },
     [](const Wanted& w) {
       return fmt::format("sink(true) needs sink_size of at least 1, got {}", w.sink_size);
     }},
    {[](const Wanted& w) { return w.mask != "generic" || w.window; },
     [](const Wanted&) {
       return std::string("mask_type=generic needs window(left, right), which was not called");
     }},
};

// ---- the line ----

void add_lengths(const Wanted& w, std::string& line) {
  const std::int64_t longest_k = w.most_k > 0 ? w.most_k : w.seqlen_k;
  if (!w.is_group) {
    line += fmt::format(" seqlen_q={} seqlen_k={}", w.seqlen_q,
                        appends_keys(w) ? longest_k : w.seqlen_k);
    return;
  }
  line += fmt::format(" lengths=packed seqlen_q={} seqlen_k={} tokens_q={}", w.most_q, longest_k,
                      w.seqlen_q);
  if (!has_pages(w)) line += fmt::format(" tokens_k={}", w.seqlen_k);
}

void add_mask(const Wanted& w, std::string& line) {
  const bool is_generic = w.mask == "generic";
  line += fmt::format(" mask={}", is_generic ? "top_left" : w.mask);
  if (w.window) {
    line += fmt::format(" window_left={} window_right={}", (*w.window)[0], (*w.window)[1]);
  }
  if (w.sink_size != 0) line += fmt::format(" sink={}", w.sink_size);
}

// Saturates instead of overflowing: no problem may have so many elements.
std::int64_t stride_of(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return kLongestStride;
  }
  return product;
}

// Values whose tokens are neighbours: {batch, head, element, token}.
void add_columns(const Wanted& w, std::string& line) {
  line += fmt::format(" v_stride_h={} v_stride_s=1 v_stride_d={}",
                      stride_of({w.hdim_v, w.seqlen_k}), w.seqlen_k);
  if (!w.is_group) {
    line += fmt::format(" v_stride_b={}", stride_of({w.heads_kv, w.hdim_v, w.seqlen_k}));
  }
}

void add_scores(const Wanted& w, std::string& line) {
  line += fmt::format(" bias={} soft_cap={} p_drop={} random={} skip_q={} num_splits={} dbias={}",
                      w.bias, w.cap, w.p_drop, int{w.random}, w.skip, w.splits, int{w.dbias});
}

std::string kind_of(const Wanted& w) {
  return appends_keys(w) ? "append" : is_backward(w) ? "backward" : "forward";
}

// Fields that are at their default are left out, because not every kind has them.
std::string without_defaults(std::string_view line) {
  std::string kept;
  for (const std::string_view word : split_words(line)) {
    const bool is_default = word.ends_with("=none") || word.ends_with("=linear") ||
                            (word.ends_with("=0") && !word.starts_with("window_"));
    if (!is_default) kept += fmt::format("{}{}", kept.empty() ? "" : " ", word);
  }
  return kept;
}

std::string line_of(const Wanted& w) {
  const std::string_view qscale =
      w.is_static && w.qscale == "none" ? std::string_view("per_tensor") : w.qscale;
  std::string line = fmt::format(
      "fmha kind={} batch={} heads={} heads_kv={} hdim={} hdim_v={} {} qscale={} rotary={}",
      kind_of(w), w.batch, w.heads, w.heads_kv, w.hdim_q, w.hdim_v, w.dtype, qscale, w.rotary);
  add_lengths(w, line);
  add_mask(w, line);
  add_scores(w, line);
  if (!is_backward(w)) line += fmt::format(" lse={}", int{w.lse});
  if (!w.is_v_rowmajor) add_columns(w, line);
  if (has_pages(w)) {
    line += fmt::format(" pages={} cache_layout={} page_size={}", w.table, w.layout, w.page);
  }
  return without_defaults(line);
}

}  // namespace

SettledProblem from_settings(std::span<const Setting> settings) {
  Wanted wanted;
  wanted.kernels = kFamilies[0].ours;
  for (const Setting& setting : settings) apply(setting, wanted);
  const tile::Rule<Wanted>* broken = tile::first_broken(kSettingRules, wanted);
  if (broken != nullptr) refuse_setting(ErrorCode::invalid_argument, broken->sentence(wanted));
  Problem problem = parse_problem(line_of(wanted));
  validate(problem);
  return {problem, std::move(wanted.choice)};
}

}  // namespace tessera::fmha
