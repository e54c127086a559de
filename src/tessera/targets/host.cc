#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "tessera/base/files.h"
#include "tessera/base/forever.h"
#include "tessera/base/processors.h"
#include "tessera/base/text.h"
#include "tessera/targets/host_internal.h"

namespace tessera {
namespace {

// Rows from the fastest to the one that every machine runs.
constexpr std::array<std::string_view, 3> kCpuRows = {"avx512", "avx2", "generic"};

// Features that a row can do without. For a machine that lacks one, its instructions and its flag
// are removed.
struct OptionalFeature {
  std::string_view feature;
  std::string_view instruction;
  std::string_view flag;
};
// Kernels on tiles are compiled without a flag, so that they share all others' flags.
constexpr std::array<OptionalFeature, 6> kOptional = {{
    {"avx512bf16", "dpbf16", "-mavx512bf16"},
    {"avx512vnni", "vnni", "-mavx512vnni"},
    {"amxtile", "tdpbssd", ""},
    {"amxtile", "tdpbf16ps", ""},
    {"amxint8", "tdpbssd", ""},
    {"amxbf16", "tdpbf16ps", ""},
}};

// One DDR4-3200 channel: about what one core can read.
constexpr double kMemoryGbPerSecondPerCore = 25.6;

template <class Number>
std::optional<Number> to_number(std::string_view text) {
  const std::vector<std::string_view> words = split_words(text);
  if (words.empty()) return std::nullopt;
  Number value{};
  const char* end = words[0].data() + words[0].size();
  const auto [stop, error] = std::from_chars(words[0].data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::string without_underscores(std::string_view word) {
  std::string text(word);
  text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
  return text;
}

std::string trimmed(std::string_view text) {
  std::string out;
  for (const std::string_view word : split_words(text)) {
    if (!out.empty()) out += ' ';
    out += word;
  }
  return out;
}

void read_caches(int cpu, HostInfo& host) {
  const fs::path folder = fmt::format("/sys/devices/system/cpu/cpu{}/cache", cpu);
  const std::array<std::int64_t*, 3> levels = {&host.l1_bytes, &host.l2_bytes, &host.l3_bytes};
  for (int index = 0; index < 8; ++index) {
    const fs::path cache = folder / fmt::format("index{}", index);
    const int level = to_number<int>(try_read_file(cache / "level").value_or("")).value_or(0);
    const std::string type = trimmed(try_read_file(cache / "type").value_or(""));
    if (level < 1 || level > 3 || type == "Instruction") continue;
    *levels[static_cast<std::size_t>(level) - 1] =
        parse_cache_size(try_read_file(cache / "size").value_or(""));
    if (level != 1) continue;
    const std::string ways = try_read_file(cache / "ways_of_associativity").value_or("");
    host.l1_ways = std::max(0, to_number<int>(ways).value_or(0));
  }
#ifdef _SC_LEVEL1_DCACHE_SIZE
  if (host.l1_ways <= 0) {
    host.l1_ways = static_cast<int>(std::max(0L, sysconf(_SC_LEVEL1_DCACHE_ASSOC)));
  }
  if (host.l1_bytes > 0) return;
  host.l1_bytes = std::max(0L, sysconf(_SC_LEVEL1_DCACHE_SIZE));
  host.l2_bytes = std::max(0L, sysconf(_SC_LEVEL2_CACHE_SIZE));
  host.l3_bytes = std::max(0L, sysconf(_SC_LEVEL3_CACHE_SIZE));
#endif
}

HostInfo read_host() {
  HostInfo host = parse_cpuinfo(try_read_file("/proc/cpuinfo").value_or(""));
  const int first_processor = process_affinity().first;
  host.cores = usable_processors();
  read_caches(first_processor, host);
  std::erase_if(host.features, [](const std::string& word) {
    return word.starts_with("amx") && !may_use_tiles();
  });
  const fs::path clock =
      fmt::format("/sys/devices/system/cpu/cpu{}/cpufreq/cpuinfo_max_freq", first_processor);
  if (const auto khz = to_number<std::int64_t>(try_read_file(clock).value_or(""))) {
    host.clock_ghz = std::round(static_cast<double>(*khz) / 1e4) / 100;
  }
  return host;
}

std::vector<std::string> missing_features(const Target& target, const HostInfo& host) {
  std::vector<std::string> missing;
  for (const std::string& feature : target.features) {
    if (std::find(host.features.begin(), host.features.end(), feature) == host.features.end()) {
      missing.push_back(feature);
    }
  }
  return missing;
}

void drop_optional_features(Target& target, const HostInfo& host) {
  const std::vector<std::string> missing = missing_features(target, host);
  for (const OptionalFeature& row : kOptional) {
    if (std::find(missing.begin(), missing.end(), row.feature) == missing.end()) continue;
    std::erase(target.features, row.feature);
    std::erase(target.compile_flags, row.flag);
    std::erase_if(target.instructions,
                  [&row](const Instruction& i) { return i.name == row.instruction; });
    target.sources.erase(fmt::format("instructions.{}", row.instruction));
  }
}

constexpr int kZen4 = 0x19;
constexpr int kZen5 = 0x1a;

// Family 19h runs 512-bit operations in two passes: half of the rates that the row states. Family
// 1Ah has dpbf16 on both pipes (tessera bench peak: 2.03 times fma's rate). An Emerald Rapids
// starts dpbf16 in every second cycle (0.25 times fma's rate), and other cores of Intel count as
// such.
void apply_core_rates(Target& target, const HostInfo& host) {
  if (target.vector_bytes != 64) return;
  for (Instruction& instruction : target.instructions) {
    if (host.cpu_vendor == "GenuineIntel" && instruction.name == "dpbf16") {
      instruction.per_cycle = 0.5;
    }
  }
  if (host.cpu_vendor != "AuthenticAMD") return;
  for (Instruction& instruction : target.instructions) {
    if (host.cpu_family == kZen4) instruction.per_cycle = std::min(instruction.per_cycle, 1.0);
    if (host.cpu_family == kZen5 && instruction.name == "dpbf16") instruction.per_cycle = 2;
  }
  for (CacheLevel& cache : target.caches) {
    if (host.cpu_family == kZen4 && cache.name != "l3") cache.bytes_per_cycle /= 2;
  }
}

void fill_in(Target& target, const HostInfo& host) {
  const std::string origin = fmt::format("this machine: {}", host.cpu_model);
  target.units = host.cores;
  target.memory_gb_per_s = std::min(target.memory_gb_per_s, kMemoryGbPerSecondPerCore * host.cores);
  target.sources["units"] = origin;
  if (host.clock_ghz > 0) {
    target.clock_ghz = host.clock_ghz;
    target.sources["clock_ghz"] = origin;
  }
  if (host.l1_bytes <= 0) return;
  for (CacheLevel& cache : target.caches) {
    cache.bytes = cache.name == "l1"   ? host.l1_bytes
                  : cache.name == "l2" ? host.l2_bytes
                                       : host.l3_bytes;
    if (cache.name == "l1" && host.l1_ways > 0) cache.ways = host.l1_ways;
  }
  std::erase_if(target.caches, [](const CacheLevel& cache) { return cache.bytes <= 0; });
}

}  // namespace

HostInfo parse_cpuinfo(std::string_view text, bool is_x86) {
  HostInfo host;
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) {
      if (!host.features.empty()) break;  // the end of the first processor
      continue;
    }
    const std::string key = trimmed(line.substr(0, colon));
    const std::string_view value = line.substr(colon + 1);
    if (key == "model name") host.cpu_model = trimmed(value);
    if (key == "vendor_id") host.cpu_vendor = trimmed(value);
    if (key == "cpu family") host.cpu_family = to_number<int>(value).value_or(0);
    if (key == "bogomips") {  // x86: twice the time stamp counter's frequency in MHz
      host.clock_ghz = std::round(to_number<double>(value).value_or(0) / 20) / 100;
    }
    if (key != "Features" && (key != "flags" || !is_x86)) continue;
    for (const std::string_view word : split_words(value)) {
      host.features.push_back(without_underscores(word));
    }
  }
  if (host.cpu_vendor.empty()) host.clock_ghz = 0;  // elsewhere bogomips says nothing of the kind
  if (host.cpu_model.empty()) host.cpu_model = "unknown processor";
  std::sort(host.features.begin(), host.features.end());
  return host;
}

std::int64_t parse_cache_size(std::string_view text) {
  const std::string word = trimmed(text);
  const std::size_t digits = std::min(word.find_first_not_of("0123456789"), word.size());
  const std::int64_t count =
      to_number<std::int64_t>(std::string_view(word).substr(0, digits)).value_or(0);
  const std::string_view unit = std::string_view(word).substr(digits);
  if (unit.empty()) return count;
  if (unit == "K") return count << 10;
  if (unit == "M") return count << 20;
  return 0;
}

const HostInfo& host_info() {
  static const Forever<HostInfo> host(read_host());
  return *host;
}

std::string host_lacks(const Target& target, const HostInfo& host) {
  const std::vector<std::string> missing = missing_features(target, host);
  if (missing.empty()) return {};
  return fmt::format("target '{}' needs {}, which this machine ({}) does not have", target.name,
                     join(missing, ", "), host.cpu_model);
}

Target host_target(const HostInfo& host) {
  for (const std::string_view name : kCpuRows) {
    Target target = load_target(name);
    drop_optional_features(target, host);
    if (!host_lacks(target, host).empty()) continue;
    apply_core_rates(target, host);
    fill_in(target, host);
    return target;
  }
  return load_target(kCpuRows.back());
}

Target host_target() {
  static const Forever<Target> target(host_target(host_info()));
  return *target;
}

Target load_target_here(std::string_view name_or_file) {
  Target host = host_target();
  return host.name == name_or_file ? host : load_target(name_or_file);
}

}  // namespace tessera
