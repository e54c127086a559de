#include "tessera/runtime/cpu_features_internal.h"

#include <array>
#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>

#include "tessera/base/processors.h"
#else
#include <algorithm>
#include <string>

#include "tessera/base/files.h"
#include "tessera/base/text.h"
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

}  // namespace tessera::runtime
