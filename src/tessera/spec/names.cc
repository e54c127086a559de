// Kernel names: one table of parts per operation, walked by name_of and by parse_name. The grammar
// is in docs/vocabulary.md.
#include <fmt/format.h>

#include <charconv>
#include <span>

#include "tessera/spec/epilogue_internal.h"
#include "tessera/spec/words_internal.h"

namespace tessera {
namespace {

// The part of a name that has been read. The epilogue's steps are kept apart until all are known.
struct Reading {
  KernelSpec spec;
  std::vector<EpilogueStep> steps;
};

// A part reads and writes one field. `write` returns an empty string when the field is left out.
// `read` returns false when the word belongs to another part.
struct Part {
  std::string_view what;  // its name in messages
  bool required;
  std::string (*write)(const KernelSpec&);
  bool (*read)(std::string_view word, Reading&);
  std::vector<std::string> (*words)();  // all possible words, to suggest the nearest
};

GemmSignature& gemm(Reading& r) { return std::get<GemmSignature>(r.spec.signature); }
const GemmSignature& gemm(const KernelSpec& s) { return std::get<GemmSignature>(s.signature); }
NormSignature& norm(Reading& r) { return std::get<NormSignature>(r.spec.signature); }
const NormSignature& norm(const KernelSpec& s) { return std::get<NormSignature>(s.signature); }
ConvSignature& conv(Reading& r) { return std::get<ConvSignature>(r.spec.signature); }
const ConvSignature& conv(const KernelSpec& s) { return std::get<ConvSignature>(s.signature); }
FmhaSignature& fmha(Reading& r) { return std::get<FmhaSignature>(r.spec.signature); }
const FmhaSignature& fmha(const KernelSpec& s) { return std::get<FmhaSignature>(s.signature); }

// Words of names hold no '_': "gelu_tanh" is written "gelutanh".
std::string squeezed(std::string_view word) {
  std::string text(word);
  std::erase(text, '_');
  return text;
}

// "acc" + "fp16" for a value that differs from its default.
template <Worded Enum>
std::string prefixed(std::string_view prefix, Enum value, Enum standard) {
  return value == standard ? "" : std::string(prefix) + squeezed(word_of(value));
}

template <Worded Enum>
bool read_prefixed(std::string_view prefix, std::string_view word, Enum& value) {
  if (!word.starts_with(prefix)) return false;
  const auto& all = Words<Enum>::kAll;
  const auto found = std::find_if(all.begin(), all.end(), [&](std::string_view candidate) {
    return squeezed(candidate) == word.substr(prefix.size());
  });
  if (found == all.end()) return false;
  value = static_cast<Enum>(found - all.begin());
  return true;
}

template <Worded Enum>
std::vector<std::string> prefixed_words(std::string_view prefix) {
  std::vector<std::string> words;
  for (const std::string_view word : Words<Enum>::kAll) {
    words.push_back(std::string(prefix) + squeezed(word));
  }
  return words;
}

std::vector<std::string> no_words() { return {}; }

bool read_digits(std::string_view text, int& value) {
  const char* end = text.data() + text.size();
  if (text.empty() || text[0] < '0' || text[0] > '9') return false;
  const auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc{} && result.ptr == end;
}

// A C identifier has no sign, so a spec with a negative number has no name.
std::string digits(int value) {
  if (value >= 0) return std::to_string(value);
  throw Error(ErrorCode::invalid_argument,
              fmt::format("kernel name: numbers must not be negative, got {}", value));
}

std::string write_shape(const Shape3& s) {
  return digits(s.m) + "x" + digits(s.n) + "x" + digits(s.k);
}

// "64x128" behind a prefix.
bool read_pair(std::string_view prefix, std::string_view word, int& first, int& second) {
  if (!word.starts_with(prefix)) return false;
  const auto parts = split(word.substr(prefix.size()), 'x');
  return parts.size() == 2 && read_digits(parts[0], first) && read_digits(parts[1], second);
}

std::string write_epilogue(const Epilogue& epilogue) {
  if (epilogue == Epilogue{}) return "";
  const std::string reason = invalid_reason(epilogue);
  if (!reason.empty()) throw Error(ErrorCode::invalid_argument, reason);
  std::vector<std::string> words = epilogue_words(epilogue);
  for (std::string& word : words) word = squeezed(word);
  return join(words, "_");
}

bool read_epilogue(std::string_view word, Reading& r) {
  const std::size_t end = word.find_last_not_of("0123456789") + 1;
  EpilogueOp op{};
  EpilogueStep step{};
  if (!read_prefixed("", word.substr(0, end), op)) return false;
  if (!read_epilogue_word(fmt::format("{}{}", to_string(op), word.substr(end)), step)) return false;
  r.steps.push_back(step);
  return true;
}

bool read_exactly(std::string_view expected, std::string_view word, bool& value) {
  if (word != expected) return false;
  value = true;
  return true;
}

constexpr Part kGemmHead[] = {
    {"a dtype", true, [](const KernelSpec& s) { return std::string(to_string(gemm(s).a)); },
     [](std::string_view word, Reading& r) {
       GemmSignature& s = gemm(r);
       if (!read_word(word, s.a)) return false;
       s.b = s.a;
       s.acc = default_accumulator(s.a);
       s.out = s.d = default_output(s.a);
       return true;
     },
     known_words<DType>},
    {"the dtype of B", false,
     [](const KernelSpec& s) { return prefixed("", gemm(s).b, gemm(s).a); },
     [](std::string_view word, Reading& r) { return read_word(word, gemm(r).b); },
     known_words<DType>},
    {"a layout", true, [](const KernelSpec& s) { return std::string(to_string(gemm(s).layout)); },
     [](std::string_view word, Reading& r) { return read_word(word, gemm(r).layout); },
     known_words<GemmLayout>},
};

constexpr Part kGemmOptions[] = {
    {"an accumulator", false,
     [](const KernelSpec& s) {
       return prefixed("acc", gemm(s).acc, default_accumulator(gemm(s).a));
     },
     [](std::string_view word, Reading& r) { return read_prefixed("acc", word, gemm(r).acc); },
     [] { return prefixed_words<DType>("acc"); }},
    {"an output", false,
     [](const KernelSpec& s) { return prefixed("out", gemm(s).out, default_output(gemm(s).a)); },
     [](std::string_view word, Reading& r) {
       if (!read_prefixed("out", word, gemm(r).out)) return false;
       gemm(r).d = gemm(r).out;
       return true;
     },
     [] { return prefixed_words<DType>("out"); }},
    {"a dtype of the D tensors", false,
     [](const KernelSpec& s) { return prefixed("d", gemm(s).d, gemm(s).out); },
     [](std::string_view word, Reading& r) { return read_prefixed("d", word, gemm(r).d); },
     [] { return prefixed_words<DType>("d"); }},
    {"presh", false,
     [](const KernelSpec& s) { return std::string(gemm(s).preshuffled_b ? "presh" : ""); },
     [](std::string_view word, Reading& r) {
       return read_exactly("presh", word, gemm(r).preshuffled_b);
     },
     [] { return std::vector<std::string>{"presh"}; }},
    {"an epilogue op", false, [](const KernelSpec& s) { return write_epilogue(gemm(s).epilogue); },
     read_epilogue, [] { return prefixed_words<EpilogueOp>(""); }},
};

constexpr Part kNormHead[] = {
    {"a dtype", true, [](const KernelSpec& s) { return std::string(to_string(norm(s).in)); },
     [](std::string_view word, Reading& r) {
       NormSignature& s = norm(r);
       if (!read_word(word, s.in)) return false;
       s.weight = s.in;
       s.out = default_output(s.in);
       return true;
     },
     known_words<DType>},
    {"the dtype of scale and shift", false,
     [](const KernelSpec& s) { return prefixed("", norm(s).weight, norm(s).in); },
     [](std::string_view word, Reading& r) { return read_word(word, norm(r).weight); },
     known_words<DType>},
    {"a kind", true, [](const KernelSpec& s) { return std::string(to_string(norm(s).kind)); },
     [](std::string_view word, Reading& r) { return read_word(word, norm(r).kind); },
     known_words<NormKind>},
};

constexpr Part kNormOptions[] = {
    {"an output", false,
     [](const KernelSpec& s) { return prefixed("out", norm(s).out, default_output(norm(s).in)); },
     [](std::string_view word, Reading& r) { return read_prefixed("out", word, norm(r).out); },
     [] { return prefixed_words<DType>("out"); }},
    {"scale", false, [](const KernelSpec& s) { return std::string(norm(s).scale ? "scale" : ""); },
     [](std::string_view word, Reading& r) { return read_exactly("scale", word, norm(r).scale); },
     [] { return std::vector<std::string>{"scale"}; }},
    {"shift", false, [](const KernelSpec& s) { return std::string(norm(s).shift ? "shift" : ""); },
     [](std::string_view word, Reading& r) { return read_exactly("shift", word, norm(r).shift); },
     [] { return std::vector<std::string>{"shift"}; }},
    {"residual", false,
     [](const KernelSpec& s) { return std::string(norm(s).residual ? "residual" : ""); },
     [](std::string_view word, Reading& r) {
       return read_exactly("residual", word, norm(r).residual);
     },
     [] { return std::vector<std::string>{"residual"}; }},
};

// "2d"
bool read_dimensions(std::string_view word, Reading& r) {
  int ndim = 0;
  if (!word.ends_with('d') || !read_digits(word.substr(0, word.size() - 1), ndim)) return false;
  conv(r).ndim = ndim;
  return true;
}

constexpr Part kConvHead[] = {
    {"a direction", true,
     [](const KernelSpec& s) { return squeezed(to_string(conv(s).direction)); },
     [](std::string_view word, Reading& r) { return read_prefixed("", word, conv(r).direction); },
     [] { return prefixed_words<ConvDirection>(""); }},
    {"a dtype", true, [](const KernelSpec& s) { return std::string(to_string(conv(s).in)); },
     [](std::string_view word, Reading& r) {
       ConvSignature& s = conv(r);
       if (!read_word(word, s.in)) return false;
       s.weight = s.in;
       s.acc = default_accumulator(s.in);
       s.out = s.d = default_output(s.in);
       return true;
     },
     known_words<DType>},
    {"the dtype of the filters", false,
     [](const KernelSpec& s) { return prefixed("", conv(s).weight, conv(s).in); },
     [](std::string_view word, Reading& r) { return read_word(word, conv(r).weight); },
     known_words<DType>},
    {"a layout", true, [](const KernelSpec& s) { return std::string(to_string(conv(s).layout)); },
     [](std::string_view word, Reading& r) { return read_prefixed("", word, conv(r).layout); },
     known_words<ConvLayout>},
    {"the number of spatial dimensions such as 2d", true,
     [](const KernelSpec& s) { return digits(static_cast<int>(conv(s).ndim)) + "d"; },
     read_dimensions, no_words},
};

constexpr Part kConvOptions[] = {
    {"an accumulator", false,
     [](const KernelSpec& s) {
       return prefixed("acc", conv(s).acc, default_accumulator(conv(s).in));
     },
     [](std::string_view word, Reading& r) { return read_prefixed("acc", word, conv(r).acc); },
     [] { return prefixed_words<DType>("acc"); }},
    {"an output", false,
     [](const KernelSpec& s) { return prefixed("out", conv(s).out, default_output(conv(s).in)); },
     [](std::string_view word, Reading& r) {
       if (!read_prefixed("out", word, conv(r).out)) return false;
       conv(r).d = conv(r).out;
       return true;
     },
     [] { return prefixed_words<DType>("out"); }},
    {"a dtype of the D tensors", false,
     [](const KernelSpec& s) { return prefixed("d", conv(s).d, conv(s).out); },
     [](std::string_view word, Reading& r) { return read_prefixed("d", word, conv(r).d); },
     [] { return prefixed_words<DType>("d"); }},
    {"an epilogue op", false, [](const KernelSpec& s) { return write_epilogue(conv(s).epilogue); },
     read_epilogue, [] { return prefixed_words<EpilogueOp>(""); }},
};

constexpr Part kFmhaHead[] = {
    {"a kind", true, [](const KernelSpec& s) { return std::string(to_string(fmha(s).kind)); },
     [](std::string_view word, Reading& r) { return read_word(word, fmha(r).kind); },
     known_words<FmhaKind>},
    {"a dtype", true, [](const KernelSpec& s) { return std::string(to_string(fmha(s).in)); },
     [](std::string_view word, Reading& r) {
       FmhaSignature& s = fmha(r);
       if (!read_word(word, s.in)) return false;
       s.out = default_output(s.in);
       s.dtype_bias = s.in;
       return true;
     },
     known_words<DType>},
};

constexpr Part kFmhaOptions[] = {
    {"an output", false,
     [](const KernelSpec& s) { return prefixed("out", fmha(s).out, default_output(fmha(s).in)); },
     [](std::string_view word, Reading& r) { return read_prefixed("out", word, fmha(r).out); },
     [] { return prefixed_words<DType>("out"); }},
    {"lengths", false,
     [](const KernelSpec& s) { return prefixed("", fmha(s).lengths, FmhaLengths::equal); },
     [](std::string_view word, Reading& r) { return read_prefixed("", word, fmha(r).lengths); },
     known_words<FmhaLengths>},
    {"masked", false,
     [](const KernelSpec& s) { return std::string(fmha(s).masked ? "masked" : ""); },
     [](std::string_view word, Reading& r) { return read_exactly("masked", word, fmha(r).masked); },
     [] { return std::vector<std::string>{"masked"}; }},
    {"a bias", false,
     [](const KernelSpec& s) { return prefixed("bias", fmha(s).bias, FmhaBias::none); },
     [](std::string_view word, Reading& r) { return read_prefixed("bias", word, fmha(r).bias); },
     [] { return prefixed_words<FmhaBias>("bias"); }},
    {"a dtype of the bias", false,
     [](const KernelSpec& s) { return prefixed("by", fmha(s).dtype_bias, fmha(s).in); },
     [](std::string_view word, Reading& r) {
       return read_prefixed("by", word, fmha(r).dtype_bias);
     },
     [] { return prefixed_words<DType>("by"); }},
    {"softcap", false,
     [](const KernelSpec& s) { return std::string(fmha(s).soft_cap ? "softcap" : ""); },
     [](std::string_view word, Reading& r) {
       return read_exactly("softcap", word, fmha(r).soft_cap);
     },
     [] { return std::vector<std::string>{"softcap"}; }},
    {"lse", false, [](const KernelSpec& s) { return std::string(fmha(s).lse ? "lse" : ""); },
     [](std::string_view word, Reading& r) { return read_exactly("lse", word, fmha(r).lse); },
     [] { return std::vector<std::string>{"lse"}; }},
    {"dropout", false,
     [](const KernelSpec& s) { return std::string(fmha(s).dropout ? "dropout" : ""); },
     [](std::string_view word, Reading& r) {
       return read_exactly("dropout", word, fmha(r).dropout);
     },
     [] { return std::vector<std::string>{"dropout"}; }},
    {"random", false,
     [](const KernelSpec& s) { return std::string(fmha(s).random ? "random" : ""); },
     [](std::string_view word, Reading& r) { return read_exactly("random", word, fmha(r).random); },
     [] { return std::vector<std::string>{"random"}; }},
    {"pages", false,
     [](const KernelSpec& s) { return prefixed("pages", fmha(s).pages, FmhaPages::none); },
     [](std::string_view word, Reading& r) { return read_prefixed("pages", word, fmha(r).pages); },
     [] { return prefixed_words<FmhaPages>("pages"); }},
    {"a layout of a cache", false,
     [](const KernelSpec& s) {
       return prefixed("", fmha(s).cache_layout, FmhaCacheLayout::linear);
     },
     [](std::string_view word, Reading& r) {
       return read_prefixed("", word, fmha(r).cache_layout);
     },
     known_words<FmhaCacheLayout>},
    {"factors", false,
     [](const KernelSpec& s) { return prefixed("scales", fmha(s).qscale, FmhaQscale::none); },
     [](std::string_view word, Reading& r) {
       return read_prefixed("scales", word, fmha(r).qscale);
     },
     [] { return prefixed_words<FmhaQscale>("scales"); }},
    {"a rotary embedding", false,
     [](const KernelSpec& s) { return prefixed("rotary", fmha(s).rotary, FmhaRotary::none); },
     [](std::string_view word, Reading& r) {
       return read_prefixed("rotary", word, fmha(r).rotary);
     },
     [] { return prefixed_words<FmhaRotary>("rotary"); }},
    {"rotateq", false,
     [](const KernelSpec& s) { return std::string(fmha(s).rotate_q ? "rotateq" : ""); },
     [](std::string_view word, Reading& r) {
       return read_exactly("rotateq", word, fmha(r).rotate_q);
     },
     [] { return std::vector<std::string>{"rotateq"}; }},
    {"dbias", false, [](const KernelSpec& s) { return std::string(fmha(s).dbias ? "dbias" : ""); },
     [](std::string_view word, Reading& r) { return read_exactly("dbias", word, fmha(r).dbias); },
     [] { return std::vector<std::string>{"dbias"}; }},
};

// The algorithm's parts, which every operation has.
constexpr Part kAlgorithm[] = {
    {"a pipeline", true,
     [](const KernelSpec& s) { return std::string(to_string(s.algorithm.pipeline)); },
     [](std::string_view word, Reading& r) { return read_word(word, r.spec.algorithm.pipeline); },
     known_words<Pipeline>},
    {"a tile such as 240x480x256", true,
     [](const KernelSpec& s) { return write_shape(s.algorithm.tile); },
     [](std::string_view word, Reading& r) { return read_shape(word, r.spec.algorithm.tile); },
     no_words},
    {"a wave such as 2x1x1", true,
     [](const KernelSpec& s) { return write_shape(s.algorithm.wave); },
     [](std::string_view word, Reading& r) { return read_shape(word, r.spec.algorithm.wave); },
     no_words},
    {"a warp tile such as 12x32x1", true,
     [](const KernelSpec& s) { return write_shape(s.algorithm.warp_tile); },
     [](std::string_view word, Reading& r) { return read_shape(word, r.spec.algorithm.warp_tile); },
     no_words},
};

// Words that stand for a flag of the algorithm.
struct Flag {
  const char* word;
  bool Algorithm::*flag;
};
constexpr Flag kFlags[] = {{"streamk", &Algorithm::streamk},
                           {"persistent", &Algorithm::persistent},
                           {"swap", &Algorithm::swap_ab},
                           {"repack", &Algorithm::repack},
                           {"pointwise", &Algorithm::pointwise}};

template <int i>
constexpr Part flag_part() {
  constexpr auto kWord = kFlags[i].word;
  constexpr auto kFlag = kFlags[i].flag;
  return {kWord, false,
          [](const KernelSpec& s) { return std::string(s.algorithm.*kFlag ? kWord : ""); },
          [](std::string_view word, Reading& r) {
            return read_exactly(kWord, word, r.spec.algorithm.*kFlag);
          },
          [] { return std::vector<std::string>{kWord}; }};
}

constexpr Part kAlgorithmOptions[] = {
    {"a scheduler", false,
     [](const KernelSpec& s) { return prefixed("", s.algorithm.scheduler, Scheduler::standard); },
     [](std::string_view word, Reading& r) {
       return read_prefixed("", word, r.spec.algorithm.scheduler);
     },
     known_words<Scheduler>},
    {"a store", false,
     [](const KernelSpec& s) { return prefixed("store", s.algorithm.store, Store::standard); },
     [](std::string_view word, Reading& r) {
       return read_prefixed("store", word, r.spec.algorithm.store);
     },
     [] { return prefixed_words<Store>("store"); }},
    {"a split of K such as splitordered4", false,
     [](const KernelSpec& s) {
       const Algorithm& how = s.algorithm;
       if (how.split_k == SplitK::none && how.splits == 1) return std::string();
       return "split" + squeezed(to_string(how.split_k)) + digits(how.splits);
     },
     [](std::string_view word, Reading& r) {
       const std::size_t end = word.find_last_not_of("0123456789") + 1;
       return read_prefixed("split", word.substr(0, end), r.spec.algorithm.split_k) &&
              read_digits(word.substr(end), r.spec.algorithm.splits);
     },
     [] { return prefixed_words<SplitK>("split"); }},
    {"slices such as slices8", false,
     [](const KernelSpec& s) {
       return s.algorithm.slices == 1 ? "" : "slices" + digits(s.algorithm.slices);
     },
     [](std::string_view word, Reading& r) {
       return word.starts_with("slices") && read_digits(word.substr(6), r.spec.algorithm.slices);
     },
     no_words},
    flag_part<0>(),
    {"stages such as s4", false,
     [](const KernelSpec& s) {
       return s.algorithm.stages == 1 ? "" : "s" + digits(s.algorithm.stages);
     },
     [](std::string_view word, Reading& r) {
       return word.starts_with('s') && read_digits(word.substr(1), r.spec.algorithm.stages);
     },
     no_words},
    {"a cluster such as c2x1", false,
     [](const KernelSpec& s) {
       const Algorithm& how = s.algorithm;
       if (how.cluster_m == 1 && how.cluster_n == 1) return std::string();
       return "c" + digits(how.cluster_m) + "x" + digits(how.cluster_n);
     },
     [](std::string_view word, Reading& r) {
       return read_pair("c", word, r.spec.algorithm.cluster_m, r.spec.algorithm.cluster_n);
     },
     no_words},
    flag_part<1>(),
    flag_part<2>(),
    flag_part<3>(),
    flag_part<4>(),
};

// The parts of an operation's name: the required ones in order, then any of the options, then those
// of the algorithm, then the target.
struct Grammar {
  std::span<const Part> head;
  std::span<const Part> options;
  Signature blank;
};

Grammar grammar_of(Op op) {
  if (op == Op::gemm) return {kGemmHead, kGemmOptions, GemmSignature{}};
  if (op == Op::norm) return {kNormHead, kNormOptions, NormSignature{}};
  if (op == Op::conv) return {kConvHead, kConvOptions, ConvSignature{}};
  return {kFmhaHead, kFmhaOptions, FmhaSignature{}};
}

bool is_target_name(std::string_view word) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  return !word.empty() && word.find_first_not_of(kLetters) == std::string_view::npos;
}

// The words of a name, and the place that has been reached.
class Walker {
 public:
  explicit Walker(std::string_view name) : name_(name), words_(split(name, '_')) {}

  KernelSpec parse() {
    read_op();
    const Grammar grammar = grammar_of(op_);
    reading_.spec.signature = grammar.blank;
    read_in_order(grammar.head);
    read_in_order(kAlgorithm);
    while (next_ + 1 < words_.size()) read_option(grammar);
    if (next_ == words_.size() || !is_target_name(words_[next_])) fail("a target", {});
    reading_.spec.target = words_[next_];
    finish();
    return reading_.spec;
  }

 private:
  void read_op() {
    if (!read_word(words_[0], op_)) fail("an operation", known_words<Op>());
    ++next_;
  }

  // Parts that may be left out are named in the message about the part after them.
  void read_in_order(std::span<const Part> parts) {
    std::string expected;
    std::vector<std::string> known;
    for (const Part& part : parts) {
      if (next_ < words_.size() && part.read(words_[next_], reading_)) {
        ++next_;
        expected.clear();
        known.clear();
        continue;
      }
      expected += (expected.empty() ? "" : " or ") + std::string(part.what);
      for (const std::string& word : part.words()) known.push_back(word);
      if (part.required) fail(expected, known);
    }
  }

  void read_option(const Grammar& grammar) {
    std::vector<std::string> known;
    for (const std::span<const Part> options :
         {grammar.options, std::span<const Part>(kAlgorithmOptions)}) {
      for (const Part& part : options) {
        if (part.read(words_[next_], reading_)) {
          ++next_;
          return;
        }
        for (const std::string& word : part.words()) known.push_back(word);
      }
    }
    const std::string hint = did_you_mean(words_[next_], known);
    refuse(fmt::format("expected an option or the target as word {}, got '{}'{}", next_ + 1,
                       words_[next_], hint));
  }

  // Options may be parsed in any order, but only one spelling is the name.
  void finish() {
    try {
      const Epilogue epilogue = epilogue_of(reading_.steps);
      if (op_ == Op::gemm) gemm(reading_).epilogue = epilogue;
      if (op_ == Op::conv) conv(reading_).epilogue = epilogue;
    } catch (const Error& error) {
      refuse(error.what());
    }
    const std::string name = name_of(reading_.spec);
    if (name == name_) return;
    refuse(fmt::format("options have one order and defaults are left out, the name is '{}'", name));
  }

  [[noreturn]] void fail(std::string_view expected, const std::vector<std::string>& known) const {
    const std::string all = known.empty() ? "" : fmt::format(" ({})", fmt::join(known, ", "));
    if (next_ >= words_.size()) {
      refuse(fmt::format("expected {}{} as word {}, but the name ends there", expected, all,
                         next_ + 1));
    }
    const std::string hint = did_you_mean(words_[next_], known);
    refuse(fmt::format("expected {}{} as word {}, got '{}'{}", expected, hint.empty() ? all : "",
                       next_ + 1, words_[next_], hint));
  }

  [[noreturn]] void refuse(const std::string& message) const {
    throw Error(ErrorCode::parse_error, fmt::format("kernel name '{}': {}", name_, message));
  }

  std::string_view name_;
  std::vector<std::string_view> words_;
  std::size_t next_ = 0;
  Op op_ = Op::gemm;
  Reading reading_;
};

}  // namespace

std::string name_of(const KernelSpec& spec) {
  const Grammar grammar = grammar_of(op_of(spec));
  std::string name(to_string(op_of(spec)));
  for (const std::span<const Part> parts :
       {grammar.head, std::span<const Part>(kAlgorithm), grammar.options,
        std::span<const Part>(kAlgorithmOptions)}) {
    for (const Part& part : parts) {
      const std::string word = part.write(spec);
      if (!word.empty()) name.append(1, '_').append(word);
    }
  }
  if (!is_target_name(spec.target)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("kernel name: target must be lower-case letters and digits, got '{}'",
                            spec.target));
  }
  return name + "_" + spec.target;
}

KernelSpec parse_name(std::string_view name) { return Walker(name).parse(); }

}  // namespace tessera
