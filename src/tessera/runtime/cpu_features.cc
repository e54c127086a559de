#include "tessera/runtime/cpu_features_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/text.h"

#if defined(__x86_64__)
#include <cpuid.h>

#include "tessera/base/processors.h"
#else
#include "tessera/base/files.h"
#endif

namespace tessera::runtime {

#if defined(__x86_64__)
namespace {

enum Register : std::uint8_t { eax, ebx, ecx, edx };

// Register state that the operating system must save for the feature: bits of XCR0.
constexpr std::uint64_t kNoState = 0;
constexpr std::uint64_t kYmmState = 0x06;
constexpr std::uint64_t kZmmState = 0xe6;
constexpr std::uint64_t kTileState = 0x60000;

// Intel's and AMD's manuals, instruction CPUID.
struct FeatureBit {
  std::string_view name;
  std::uint32_t leaf;
  std::uint32_t subleaf;
  Register where;
  int bit;
  std::uint64_t state;
};
constexpr std::array kFeatureBits = {
    FeatureBit{"sse3", 1, 0, ecx, 0, kNoState},
    FeatureBit{"ssse3", 1, 0, ecx, 9, kNoState},
    FeatureBit{"sse41", 1, 0, ecx, 19, kNoState},
    FeatureBit{"sse42", 1, 0, ecx, 20, kNoState},
    FeatureBit{"popcnt", 1, 0, ecx, 23, kNoState},
    FeatureBit{"fma", 1, 0, ecx, 12, kYmmState},
    FeatureBit{"avx", 1, 0, ecx, 28, kYmmState},
    FeatureBit{"f16c", 1, 0, ecx, 29, kYmmState},
    FeatureBit{"bmi1", 7, 0, ebx, 3, kNoState},
    FeatureBit{"avx2", 7, 0, ebx, 5, kYmmState},
    FeatureBit{"bmi2", 7, 0, ebx, 8, kNoState},
    FeatureBit{"avx512f", 7, 0, ebx, 16, kZmmState},
    FeatureBit{"avx512dq", 7, 0, ebx, 17, kZmmState},
    FeatureBit{"avx512ifma", 7, 0, ebx, 21, kZmmState},
    FeatureBit{"avx512cd", 7, 0, ebx, 28, kZmmState},
    FeatureBit{"avx512bw", 7, 0, ebx, 30, kZmmState},
    FeatureBit{"avx512vl", 7, 0, ebx, 31, kZmmState},
    FeatureBit{"avx512vbmi", 7, 0, ecx, 1, kZmmState},
    FeatureBit{"avx512vbmi2", 7, 0, ecx, 6, kZmmState},
    FeatureBit{"avx512vnni", 7, 0, ecx, 11, kZmmState},
    FeatureBit{"avx512bitalg", 7, 0, ecx, 12, kZmmState},
    FeatureBit{"avx512vpopcntdq", 7, 0, ecx, 14, kZmmState},
    FeatureBit{"amxbf16", 7, 0, edx, 22, kTileState},
    FeatureBit{"avx512fp16", 7, 0, edx, 23, kZmmState},
    FeatureBit{"amxtile", 7, 0, edx, 24, kTileState},
    FeatureBit{"amxint8", 7, 0, edx, 25, kTileState},
    FeatureBit{"avxvnni", 7, 1, eax, 4, kYmmState},
    FeatureBit{"avx512bf16", 7, 1, eax, 5, kZmmState},
    FeatureBit{"amxfp16", 7, 1, eax, 21, kTileState},
    FeatureBit{"avxifma", 7, 1, eax, 23, kYmmState},
    FeatureBit{"avxvnniint8", 7, 1, edx, 4, kYmmState},
    FeatureBit{"avxneconvert", 7, 1, edx, 5, kYmmState},
    FeatureBit{"amxcomplex", 7, 1, edx, 8, kTileState},
    FeatureBit{"avxvnniint16", 7, 1, edx, 10, kYmmState},
    FeatureBit{"pclmul", 1, 0, ecx, 1, kNoState},
    FeatureBit{"cx16", 1, 0, ecx, 13, kNoState},
    FeatureBit{"movbe", 1, 0, ecx, 22, kNoState},
    FeatureBit{"aes", 1, 0, ecx, 25, kNoState},
    FeatureBit{"rdrnd", 1, 0, ecx, 30, kNoState},
    FeatureBit{"fsgsbase", 7, 0, ebx, 0, kNoState},
    FeatureBit{"rdseed", 7, 0, ebx, 18, kNoState},
    FeatureBit{"adx", 7, 0, ebx, 19, kNoState},
    FeatureBit{"clflushopt", 7, 0, ebx, 23, kNoState},
    FeatureBit{"clwb", 7, 0, ebx, 24, kNoState},
    FeatureBit{"sha", 7, 0, ebx, 29, kNoState},
    FeatureBit{"gfni", 7, 0, ecx, 8, kNoState},
    FeatureBit{"vaes", 7, 0, ecx, 9, kYmmState},
    FeatureBit{"vpclmulqdq", 7, 0, ecx, 10, kYmmState},
    FeatureBit{"avx512vp2intersect", 7, 0, edx, 8, kZmmState},
    FeatureBit{"sahf", 0x80000001, 0, ecx, 0, kNoState},
    FeatureBit{"lzcnt", 0x80000001, 0, ecx, 5, kNoState},
    FeatureBit{"sse4a", 0x80000001, 0, ecx, 6, kNoState},
    FeatureBit{"prfchw", 0x80000001, 0, ecx, 8, kNoState},
    FeatureBit{"xop", 0x80000001, 0, ecx, 11, kYmmState},
    FeatureBit{"fma4", 0x80000001, 0, ecx, 16, kYmmState},
    FeatureBit{"tbm", 0x80000001, 0, ecx, 21, kNoState},
};

std::array<std::uint32_t, 4> cpuid(std::uint32_t leaf, std::uint32_t subleaf) {
  std::array<std::uint32_t, 4> r{};
  if (__get_cpuid_count(leaf, subleaf, &r[eax], &r[ebx], &r[ecx], &r[edx]) == 0) return {};
  return r;
}

std::uint64_t enabled_state() {
  constexpr int kOsxsave = 27;
  if (((cpuid(1, 0)[ecx] >> kOsxsave) & 1U) == 0) return 0;
  std::uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

}  // namespace

bool cpu_has(std::string_view feature) {
  for (const FeatureBit& row : kFeatureBits) {
    if (row.name != feature) continue;
    const bool present = ((cpuid(row.leaf, row.subleaf)[row.where] >> row.bit) & 1U) != 0;
    if (!present || (enabled_state() & row.state) != row.state) return false;
    return row.state != kTileState || may_use_tiles();
  }
  return false;
}

#else

// On other processors the list comes from Linux; its words may contain underscores that target rows
// leave out. The line "flags" appears when an x86 machine emulates this processor.
bool cpu_has(std::string_view feature) {
  const std::string list = try_read_file("/proc/cpuinfo").value_or("");
  for (const std::string_view line : split(list, '\n')) {
    if (line.starts_with("flags")) continue;
    for (const std::string_view word : split_words(line)) {
      std::string plain(word);
      plain.erase(std::remove(plain.begin(), plain.end(), '_'), plain.end());
      if (plain == feature) return true;
    }
  }
  return false;
}

#endif

namespace {

// Options with a value that choose among instructions which the other flags allow.
constexpr auto kPreferences = std::to_array<std::string_view>({
    "-mbranch-cost",
    "-mbranch-protection",
    "-mcmodel",
    "-mfpmath",
    "-mharden-sls",
    "-mmove-max",
    "-mprefer-vector-width",
    "-mrecip",
    "-mstore-max",
    "-mstringop-strategy",
    "-mtune",
    "-mtune-ctrl",
});

// Words of flags whose features have other names: "-msse4", "-march=x86-64-v3", "+dotprod". The
// features are separated by blanks. None: every processor of the kind has them.
struct FlagWord {
  std::string_view word;
  std::string_view features;
};
constexpr auto kFlagWords = std::to_array<FlagWord>({
    {"64", ""},
    {"abm", "lzcnt"},
    {"bmi", "bmi1"},
    {"fxsr", ""},
    {"mmx", ""},
    {"native", ""},
    {"omit-leaf-frame-pointer", ""},
    {"red-zone", ""},
    {"sse", ""},
    {"sse2", ""},
    {"sse4", "sse41 sse42"},
    {"stackrealign", ""},
    {"vzeroupper", ""},
    {"x86-64", ""},
    {"x86-64-v2", "cx16 sahf popcnt sse3 ssse3 sse41 sse42"},
    {"x86-64-v3",
     "cx16 sahf popcnt sse3 ssse3 sse41 sse42 avx avx2 bmi1 bmi2 f16c fma lzcnt movbe"},
    {"x86-64-v4",
     "cx16 sahf popcnt sse3 ssse3 sse41 sse42 avx avx2 bmi1 bmi2 f16c fma lzcnt movbe avx512f "
     "avx512bw avx512cd avx512dq avx512vl"},
    {"armv8-a", ""},
    {"armv8.1-a", "atomics asimdrdm crc32"},
    {"armv8.2-a", "atomics asimdrdm crc32"},
    {"crc", "crc32"},
    {"crypto", "aes pmull sha1 sha2"},
    {"dotprod", "asimddp"},
    {"fp", ""},
    {"fp16", "asimdhp"},
    {"lse", "atomics"},
    {"simd", ""},
});

// Unknown words stand for themselves, without the separators: "sse4.1" is sse41. A whole option is
// no feature of any processor.
std::vector<std::string> features_of(std::string_view word) {
  if (word.starts_with("-")) return {std::string(word)};
  const auto* const known = std::find_if(kFlagWords.begin(), kFlagWords.end(),
                                         [&](const FlagWord& row) { return row.word == word; });
  std::vector<std::string> features;
  if (known != kFlagWords.end()) {
    for (const std::string_view feature : split_words(known->features)) {
      features.emplace_back(feature);
    }
    return features;
  }
  std::string plain(word);
  std::erase_if(plain, [](char c) { return c == '.' || c == '-' || c == '_'; });
  return {plain};
}

// The words of a flag that let the compiler use instructions: "avx2" of "-mavx2", "armv8.2-a" and
// "sve" of "-march=armv8.2-a+sve". An option with a value of another kind stands for itself.
std::vector<std::string_view> words_of(std::string_view flag) {
  if (!flag.starts_with("-m") || flag.starts_with("-mno-")) return {};
  const std::size_t equals = flag.find('=');
  if (equals == flag.npos) return {flag.substr(2)};
  const std::string_view key = flag.substr(0, equals);
  if (std::find(kPreferences.begin(), kPreferences.end(), key) != kPreferences.end()) return {};
  if (key != "-march" && key != "-mcpu") return {flag};
  std::vector<std::string_view> words = split(flag.substr(equals + 1), '+');
  std::erase_if(words, [](std::string_view word) { return word.starts_with("no"); });
  return words;
}

}  // namespace

std::string why_flags_not_here(const Target& target) {
  const auto is_named = [&](const std::string& feature) {
    return std::find(target.features.begin(), target.features.end(), feature) !=
           target.features.end();
  };
  for (const std::string& flag : target.compile_flags) {
    for (const std::string_view word : words_of(flag)) {
      for (const std::string& feature : features_of(word)) {
        if (is_named(feature) || cpu_has(feature)) continue;
        return fmt::format(
            "the compile flag '{}' of target '{}' needs '{}', which this processor lacks or cannot "
            "be asked for; leave the flag out, or give -march=native in its place",
            flag, target.name, feature);
      }
    }
  }
  return {};
}

}  // namespace tessera::runtime
