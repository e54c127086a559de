#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>

#include "tessera/targets/host_internal.h"

namespace tessera {
namespace {

HostInfo pretended(std::vector<std::string> features) {
  HostInfo host;
  host.cpu_model = "Pretended CPU";
  host.cpu_vendor = "GenuineIntel";
  host.cpu_family = 6;
  host.features = std::move(features);
  host.cores = 4;
  host.l1_bytes = 49152;
  host.l1_ways = 12;
  host.l2_bytes = 2097152;
  host.l3_bytes = 31457280;
  host.clock_ghz = 2.7;
  return host;
}

const std::vector<std::string> kSkylake = {"avx2",     "avx512bw", "avx512dq", "avx512f",
                                           "avx512vl", "f16c",     "fma"};
std::vector<std::string> sapphire_rapids() {
  std::vector<std::string> features = kSkylake;
  features.insert(features.end(), {"avx512bf16", "avx512vnni", "amxtile", "amxint8", "amxbf16"});
  return features;
}

bool has_instruction(const Target& target, std::string_view name) {
  return std::any_of(target.instructions.begin(), target.instructions.end(),
                     [name](const Instruction& i) { return i.name == name; });
}

bool has_flag(const Target& target, std::string_view flag) {
  return std::find(target.compile_flags.begin(), target.compile_flags.end(), flag) !=
         target.compile_flags.end();
}

TEST(Host, PicksTheBestRowThatRuns) {
  EXPECT_EQ(host_target(pretended(sapphire_rapids())).name, "avx512");
  EXPECT_EQ(host_target(pretended(kSkylake)).name, "avx512");
  EXPECT_EQ(host_target(pretended({"avx2", "f16c", "fma"})).name, "avx2");
  EXPECT_EQ(host_target(pretended({"avx2", "fma"})).name, "generic");
  EXPECT_EQ(host_target(pretended({"asimd", "fp"})).name, "generic");
  EXPECT_EQ(host_target(HostInfo{}).name, "generic");
}

TEST(Host, KeepsWhatTheMachineHas) {
  const Target target = host_target(pretended(sapphire_rapids()));
  EXPECT_TRUE(has_instruction(target, "dpbf16"));
  EXPECT_TRUE(has_instruction(target, "vnni"));
  EXPECT_TRUE(has_instruction(target, "tdpbssd"));
  EXPECT_TRUE(has_instruction(target, "tdpbf16ps"));
  EXPECT_EQ(target.compile_flags, load_target("avx512").compile_flags);
  EXPECT_EQ(target.spaces, load_target("avx512").spaces);
}

TEST(Host, DropsWhatTheMachineLacks) {
  const Target target = host_target(pretended(kSkylake));
  EXPECT_FALSE(has_instruction(target, "dpbf16"));
  EXPECT_FALSE(has_instruction(target, "vnni"));
  EXPECT_TRUE(has_instruction(target, "fma"));
  EXPECT_FALSE(has_flag(target, "-mavx512bf16"));
  EXPECT_FALSE(has_flag(target, "-mavx512vnni"));
  EXPECT_TRUE(has_flag(target, "-mavx512bw"));
  EXPECT_EQ(std::count(target.features.begin(), target.features.end(), "avx512bf16"), 0);
  EXPECT_EQ(host_lacks(target, pretended(kSkylake)), "");
  EXPECT_EQ(target.sources.count("instructions.dpbf16"), 0U);
}

// Flags are part of a kernel's key, and kernels without tiles are the same on machines with them.
TEST(Host, TilesChangeNoFlag) {
  HostInfo host = pretended(kSkylake);
  const std::vector<std::string> flags = host_target(host).compile_flags;
  host.features.insert(host.features.end(), {"amxtile", "amxint8", "amxbf16"});
  EXPECT_EQ(host_target(host).compile_flags, flags);
}

TEST(Host, ProductsOfTilesNeedTilesAndTheirOwnFeature) {
  struct Case {
    std::vector<std::string> features;
    bool int8, bf16;
  };
  for (const Case& c :
       {Case{{"amxtile", "amxint8"}, true, false}, Case{{"amxtile", "amxbf16"}, false, true},
        Case{{"amxint8", "amxbf16"}, false, false}, Case{{"amxtile"}, false, false}}) {
    HostInfo host = pretended(kSkylake);
    host.features.insert(host.features.end(), c.features.begin(), c.features.end());
    const Target target = host_target(host);
    EXPECT_EQ(has_instruction(target, "tdpbssd"), c.int8) << c.features.front();
    EXPECT_EQ(has_instruction(target, "tdpbf16ps"), c.bf16) << c.features.front();
    EXPECT_EQ(host_lacks(target, host), "");
  }
}

TEST(Host, ANameMeansThisMachinesRowWhereItHasThatName) {
  EXPECT_EQ(load_target_here(host_target().name), host_target());
  EXPECT_EQ(load_target_here("sm90a"), load_target("sm90a"));
}

TEST(Host, FillsInCoresCachesAndClock) {
  const Target target = host_target(pretended(sapphire_rapids()));
  EXPECT_EQ(target.units, 4);
  ASSERT_EQ(target.caches.size(), 3U);
  EXPECT_EQ(target.caches[0].bytes, 49152);
  EXPECT_EQ(target.caches[0].ways, 12);
  EXPECT_EQ(target.caches[1].ways, 8);
  EXPECT_EQ(target.caches[1].bytes, 2097152);
  EXPECT_EQ(target.caches[2].bytes, 31457280);
  EXPECT_DOUBLE_EQ(target.clock_ghz, 2.7);
  EXPECT_DOUBLE_EQ(target.memory_gb_per_s, 4 * 25.6);
  EXPECT_EQ(target.sources.at("units"), "this machine: Pretended CPU");
}

TEST(Host, DropsACacheThatIsNotThere) {
  HostInfo host = pretended({});
  host.l3_bytes = 0;
  EXPECT_EQ(host_target(host).caches.size(), 2U);
}

TEST(Host, KeepsTheRowsCachesWhenNoneAreReported) {
  HostInfo host = pretended({});
  host.l1_bytes = host.l2_bytes = host.l3_bytes = 0;
  EXPECT_EQ(host_target(host).caches, load_target("generic").caches);
}

TEST(Host, KeepsTheRowsWaysWhenNoneAreReported) {
  HostInfo host = pretended({});
  host.l1_ways = 0;
  EXPECT_EQ(host_target(host).caches[0].ways, 8);
  EXPECT_EQ(host_target(host).caches[0].bytes, 49152);
}

TEST(Host, Zen4HalvesWideRates) {
  HostInfo host = pretended(sapphire_rapids());
  host.cpu_vendor = "AuthenticAMD";
  host.cpu_family = 25;
  const Target zen4 = host_target(host);
  EXPECT_DOUBLE_EQ(find_instruction(zen4, DType::fp32, DType::fp32, DType::fp32)->per_cycle, 1.0);
  EXPECT_DOUBLE_EQ(find_instruction(zen4, DType::int8, DType::int8, DType::int32)->per_cycle, 1.0);
  EXPECT_DOUBLE_EQ(zen4.caches[0].bytes_per_cycle, 64);
  host.cpu_family = 26;
  const Target zen5 = host_target(host);
  EXPECT_DOUBLE_EQ(find_instruction(zen5, DType::fp32, DType::fp32, DType::fp32)->per_cycle, 2.0);
}

TEST(Host, CoresMultiplyBf16AtTheirOwnRate) {
  HostInfo host = pretended(sapphire_rapids());
  const auto rate = [&host](const char* vendor, int family) {
    host.cpu_vendor = vendor, host.cpu_family = family;
    return find_instruction(host_target(host), DType::bf16, DType::bf16, DType::fp32)->per_cycle;
  };
  EXPECT_DOUBLE_EQ(rate("GenuineIntel", 6), 0.5);
  EXPECT_DOUBLE_EQ(rate("AuthenticAMD", 26), 2.0);
  EXPECT_DOUBLE_EQ(rate("AuthenticAMD", 25), 1.0);
  EXPECT_DOUBLE_EQ(rate("Another", 6), 1.0);
}

TEST(Host, LacksNamesEveryMissingFeature) {
  EXPECT_EQ(host_lacks(load_target("avx512"), pretended(kSkylake)),
            "target 'avx512' needs avx512bf16, avx512vnni, amxtile, amxint8, amxbf16, which this "
            "machine (Pretended CPU) does not have");
  EXPECT_EQ(host_lacks(load_target("sm90a"), pretended(kSkylake)),
            "target 'sm90a' needs sm_90a, which this machine (Pretended CPU) does not have");
  EXPECT_EQ(host_lacks(load_target("generic"), HostInfo{}), "");
}

TEST(Host, ReadsX86CpuInfo) {
  const HostInfo host = parse_cpuinfo(
      "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\n"
      "model name\t: Intel(R)  Xeon(R) Gold\ncpu MHz\t\t: 1800.123\n"
      "flags\t\t: fpu avx512f avx512_bf16 avx512_vnni fma sse4_1\nbogomips\t: 5400.00\n"
      "power management:\n\nprocessor\t: 1\nflags\t\t: other\nmodel name\t: Second\n",
      true);
  EXPECT_EQ(host.cpu_model, "Intel(R) Xeon(R) Gold");
  EXPECT_EQ(host.cpu_vendor, "GenuineIntel");
  EXPECT_EQ(host.cpu_family, 6);
  const std::vector<std::string> expected = {"avx512bf16", "avx512f", "avx512vnni",
                                             "fma",        "fpu",     "sse41"};
  EXPECT_EQ(host.features, expected);
  EXPECT_DOUBLE_EQ(host.clock_ghz, 2.7);
}

TEST(Host, ReadsArmCpuInfo) {
  const HostInfo host = parse_cpuinfo(
      "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd aes\nCPU part\t: 0xd0c\n\n");
  const std::vector<std::string> expected = {"aes", "asimd", "fp"};
  EXPECT_EQ(host.features, expected);
  EXPECT_EQ(host.cpu_model, "unknown processor");
  EXPECT_DOUBLE_EQ(host.clock_ghz, 0);
}

// A container for another architecture sees the machine's own list.
TEST(Host, AnEmulatedProcessorHasNoneOfTheEmulatorsFeatures) {
  const HostInfo host = parse_cpuinfo("model name\t: Xeon\nflags\t\t: fma avx2 avx512f\n", false);
  EXPECT_EQ(host.features, std::vector<std::string>());
  EXPECT_EQ(host_target(host).name, "generic");
}

TEST(Host, ReadsNothingFromNothing) {
  const HostInfo host = parse_cpuinfo("");
  EXPECT_TRUE(host.features.empty());
  EXPECT_EQ(host.cpu_model, "unknown processor");
}

TEST(Host, ReadsCacheSizes) {
  EXPECT_EQ(parse_cache_size("32K\n"), 32768);
  EXPECT_EQ(parse_cache_size("32M"), 33554432);
  EXPECT_EQ(parse_cache_size("512"), 512);
  EXPECT_EQ(parse_cache_size("512X"), 0);
  EXPECT_EQ(parse_cache_size("K"), 0);
  EXPECT_EQ(parse_cache_size(""), 0);
}

TEST(Host, DescribesThisMachine) {
  const HostInfo& host = host_info();
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  EXPECT_GE(host.cores, 1);
  EXPECT_LE(host.cores, CPU_COUNT(&set));
  EXPECT_TRUE(std::is_sorted(host.features.begin(), host.features.end()));
  const Target target = host_target();
  EXPECT_EQ(host_lacks(target, host), "");
  EXPECT_EQ(target.units, host.cores);
  EXPECT_EQ(target_from_json(to_json(target)), target);
}

}  // namespace
}  // namespace tessera
