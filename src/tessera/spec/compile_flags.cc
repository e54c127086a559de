#include "tessera/spec/compile_flags_internal.h"

#include <algorithm>
#include <array>
#include <span>

namespace tessera {
namespace {

using FlagList = std::span<const std::string_view>;

constexpr std::string_view kSmall = "abcdefghijklmnopqrstuvwxyz0123456789";
constexpr std::string_view kFeatureLetters = "abcdefghijklmnopqrstuvwxyz0123456789.-_";
// No slash: a value is never a path.
constexpr std::string_view kValueLetters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_+:,!";

// The -m options that take a value. Others of GCC and Clang name symbols, sections or files.
constexpr auto kMachineValues = std::to_array<std::string_view>({
    "-mabi",
    "-march",
    "-mbranch-cost",
    "-mbranch-protection",
    "-mcmodel",
    "-mcpu",
    "-mfloat-abi",
    "-mfpmath",
    "-mfpu",
    "-mharden-sls",
    "-mmove-max",
    "-mprefer-vector-width",
    "-mrecip",
    "-mstore-max",
    "-mstringop-strategy",
    "-msve-vector-bits",
    "-mtune",
    "-mtune-ctrl",
});

// Clang's -m options whose value is the next word, which may be an option of LLVM's or a file.
constexpr auto kTakeTheNextWord =
    std::to_array<std::string_view>({"-mllvm", "-mmlir", "-meabi", "-mthread-model"});
constexpr auto kNoMachineOptions =
    std::to_array<std::string_view>({"-main-", "-mdebug-", "-mlink-", "-module-"});

constexpr auto kLevels = std::to_array<std::string_view>({"-O0", "-O1", "-O2", "-O3"});

// Flags that change how code is made, but not its results. Each may begin with "no-".
constexpr auto kSwitches = std::to_array<std::string_view>({
    "gcse",
    "ivopts",
    "omit-frame-pointer",
    "prefetch-loop-arrays",
    "rename-registers",
    "schedule-insns",
    "schedule-insns2",
    "semantic-interposition",
    "slp-vectorize",
    "strict-aliasing",
    "tree-slp-vectorize",
    "tree-vectorize",
    "unroll-loops",
    "vectorize",
});

constexpr auto kNvrtcWords = std::to_array<std::string_view>(
    {"--extra-device-vectorization", "-extra-device-vectorization"});
constexpr auto kNvrtcValues = std::to_array<std::string_view>({
    "--fmad",
    "--ftz",
    "--gpu-architecture",
    "--maxrregcount",
    "--prec-div",
    "--prec-sqrt",
    "-arch",
    "-fmad",
    "-ftz",
    "-maxrregcount",
    "-prec-div",
    "-prec-sqrt",
});
constexpr auto kHipValues = std::to_array<std::string_view>({"--offload-arch"});

bool is_one_of(FlagList words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// "KEY=VALUE" with a key of the list and a value of plain letters.
bool is_valued(FlagList keys, std::string_view flag) {
  const std::size_t equals = flag.find('=');
  if (equals == flag.npos || !is_one_of(keys, flag.substr(0, equals))) return false;
  const std::string_view value = flag.substr(equals + 1);
  return !value.empty() && value.find_first_not_of(kValueLetters) == value.npos;
}

bool is_feature(std::string_view flag) {
  const auto starts = [&](std::string_view prefix) { return flag.starts_with(prefix); };
  return flag.size() > 2 && starts("-m") && kSmall.find(flag[2]) != kSmall.npos &&
         flag.substr(2).find_first_not_of(kFeatureLetters) == flag.npos &&
         !is_one_of(kTakeTheNextWord, flag) &&
         std::none_of(kNoMachineOptions.begin(), kNoMachineOptions.end(), starts);
}

bool is_switch(std::string_view flag) {
  if (!flag.starts_with("-f")) return false;
  const std::string_view name = flag.substr(2);
  return is_one_of(kSwitches, name.starts_with("no-") ? name.substr(3) : name);
}

bool is_for_compilers(std::string_view flag) {
  return is_feature(flag) || is_valued(kMachineValues, flag) || is_one_of(kLevels, flag) ||
         is_switch(flag);
}

std::string listed(FlagList words) {
  std::string text;
  for (const std::string_view word : words) text.append(text.empty() ? "" : ", ").append(word);
  return text;
}

std::string what_compilers_take() {
  return "-m and a feature, one of " + listed(kMachineValues) +
         " with a value, -O0 to -O3, or -f or -fno- before one of " + listed(kSwitches);
}

}  // namespace

std::string compile_flag_damage(std::string_view backend, std::string_view flag) {
  if (backend == "cuda") {
    if (is_one_of(kNvrtcWords, flag) || is_valued(kNvrtcValues, flag)) return {};
    return "one of " + listed(kNvrtcValues) + " with a value, or one of " + listed(kNvrtcWords);
  }
  if (is_for_compilers(flag)) return {};
  if (backend != "hip") return what_compilers_take();
  if (is_valued(kHipValues, flag)) return {};
  return listed(kHipValues) + " with a value, " + what_compilers_take();
}

}  // namespace tessera
