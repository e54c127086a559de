// Tests of a family's kernels on the emulator, for each of AMD's targets.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "hip/gemm/emulated.h"
#include "hip/tally.h"
#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/jit/build.h"
#include "tessera/jit/hip_compilers.h"
#include "tessera/targets/targets.h"

namespace tessera {

inline constexpr std::size_t kUsualOthers = 3;  // kernels that do not ship, in a usual run

class EmulatedTest : public testing::TestWithParam<std::string> {
 protected:
  using Prepare = std::function<void(const Operands&)>;

  explicit EmulatedTest(Op op) : family_(family_of(op)) {}

  void SetUp() override {
    try {
      jit::find_hip_compiler({.compiler = {}, .worker = TESSERA_WORKER}, target_);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    if (emulator::find_objdump().empty()) GTEST_SKIP() << "no llvm-objdump was found";
    fmt::print("seed {}\n", seed_);
  }
  void TearDown() override {
    const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
    tally_.write(target_.name, fmt::format("{}.{}", info->test_suite_name(), info->name()), seed_,
                 HasFailure());
  }

  std::int64_t between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }
  bool one_in(int count) { return between(1, count) == 1; }

  // So many of a list in a usual run, other ones each time; all of it in others.
  template <class T>
  std::vector<T> some(std::vector<T> all, std::size_t count) {
    if (!is_usual_run(target_.name)) return all;
    std::shuffle(all.begin(), all.end(), random_);
    all.resize(std::min(all.size(), count));
    return all;
  }

  // A usual run takes of kernels that ship, in an order that the seed makes, those whose names have
  // a pair of first words (a type and a layout, a direction and a type) or a later word that no
  // name before had. So all types and directions are there, and other kernels in each run.
  std::vector<KernelSpec> sampled(std::vector<KernelSpec> all) {
    if (!is_usual_run(target_.name)) return all;
    std::shuffle(all.begin(), all.end(), random_);
    std::set<std::string> seen;
    std::erase_if(all, [&](const KernelSpec& spec) { return !adds_words(name_of(spec), seen); });
    return all;
  }
  static bool adds_words(const std::string& name, std::set<std::string>& seen) {
    constexpr std::size_t kPair = 3;  // words: the operation and two more
    bool adds = false;
    std::size_t begin = 0, words = 0;
    for (std::size_t at = 0; at <= name.size(); ++at) {
      if (at < name.size() && name[at] != '_') continue;
      if (++words < kPair) continue;
      adds = seen.insert(name.substr(begin, at - begin)).second || adds;
      begin = at + 1;
    }
    return adds;
  }

  // The kernels of the target's essential sets that the filter takes, each once.
  std::vector<KernelSpec> essential(bool (*takes)(const KernelSpec&)) const {
    std::set<std::string> names;
    std::vector<KernelSpec> specs;
    for (const std::string& set : family_.preselected_names()) {
      if (!set.ends_with("_essential")) continue;
      try {
        for (KernelSpec& spec : family_.preselected(set, target_)) {
          if (takes(spec) && names.insert(name_of(spec)).second) specs.push_back(std::move(spec));
        }
      } catch (const Error& error) {
        if (error.code() != ErrorCode::not_found) throw;  // a set of other targets
      }
    }
    return specs;
  }

  static void expect_lean(const KernelSpec&, const Source& source, const EmulatedKernel& kernel) {
    for (const std::string& entry : source.entries) {
      SCOPED_TRACE(entry);
      const emulator::Facts facts = kernel.facts(source.name + entry);
      EXPECT_EQ(facts.scratch_bytes, 0U);
      EXPECT_EQ(facts.vgpr_spills, 0U);
      EXPECT_EQ(facts.sgpr_spills, 0U);
      EXPECT_EQ(facts.uncovered, 0U);
    }
  }

  // How many matrix instructions the code of a kernel has; all of them are one.
  static std::uint64_t mfmas_in(const emulator::Facts& facts) {
    EXPECT_LE(facts.mfmas.size(), 1U);
    return facts.mfmas.empty() ? 0 : facts.mfmas.begin()->second;
  }

  // Runs the kernel and compares every element; `prepare` may change what is read, and learns
  // where the operands are.
  void check(
      const KernelSpec& spec, const Source& source, EmulatedKernel& kernel, const Problem& problem,
      const Prepare& prepare = [](const Operands&) {}) {
    ASSERT_EQ(family_.supports(spec, problem, target_).reason, "") << to_string(problem);
    const std::uint64_t seed = random_();
    SCOPED_TRACE(fmt::format("'{}', operands of seed {}", to_string(problem), seed));
    measure::OwnedOperands owned = measure::random_operands(problem, seed, 1, target_.fp8_encoding);
    prepare(owned.operands);
    const Reference wanted =
        family_.reference(problem, owned.operands, {.fp8 = target_.fp8_encoding});
    emulator::Memory memory;
    add_operands(owned, memory);
    Launch launch = family_.bind(spec, problem, target_, owned.operands);
    adjust_(launch);
    const std::uint64_t before = kernel.statistics.mfmas;
    ASSERT_EQ(kernel.run(source.name, source, launch, memory, 1), "");
    executed_mfmas_ = kernel.statistics.mfmas - before;
    const Mismatch mismatch = family_.compare(problem, owned.operands, wanted);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
    EXPECT_EQ(measure::gaps_intact(owned), "");
    count_problem(problem, mismatch.checked);
  }
  void count_problem(const Problem& problem, std::int64_t elements) {
    ++problems_;
    elements_ += elements;
    tally_.add(problem);
  }

  static jit::Builder builder() {
    jit::BuildOptions options;
    options.cache.folder = TESSERA_BUILD "/kernel-cache";
    options.worker = TESSERA_WORKER;
    options.use_shipped_packs = false;
    return jit::Builder(options);
  }

  static std::vector<std::string> disassembled(const std::vector<std::string>& files) {
    std::vector<std::span<const emulator::u8>> bytes;
    for (const std::string& file : files) bytes.push_back(EmulatedKernel::bytes_of(file));
    return emulator::disassemble_all(bytes);
  }

  // Builds the kernels and calls visit(spec, source, kernel) so many times for each of them, in
  // their order.
  template <class Visit>
  void for_each_built(const std::vector<KernelSpec>& specs, const Visit& visit,
                      int times = test_times()) {
    std::vector<Source> sources;
    for (const KernelSpec& spec : specs) {
      ASSERT_EQ(family_.is_legal(spec, target_).reason, "") << name_of(spec);
      sources.push_back(family_.emit(spec, target_));
    }
    const auto built = builder().build_all(sources, target_, 0);
    std::vector<double> seconds;
    constexpr std::size_t kMost = 16;  // kernels whose texts are in memory
    for (std::size_t first = 0; first < specs.size(); first += kMost) {
      const std::size_t end = std::min(first + kMost, specs.size());
      std::vector<std::string> files;
      for (std::size_t i = first; i < end; ++i) {
        ASSERT_EQ(built[i].error, "") << name_of(specs[i]);
        files.push_back(read_file(built[i].artifact.binary));
      }
      const std::vector<std::string> texts = disassembled(files);
      for (std::size_t i = first; i < end; ++i) {
        SCOPED_TRACE(name_of(specs[i]));
        if (!built[i].was_cached) seconds.push_back(built[i].seconds);
        EmulatedKernel kernel(files[i - first], texts[i - first]);
        expect_lean(specs[i], sources[i], kernel);
        for (int n = 0; n < times; ++n) visit(specs[i], sources[i], kernel);
        all_.add(kernel.statistics);
      }
    }
    print_counts(specs.size(), std::move(seconds));
  }
  // The same of kernels whose names lack the target.
  template <class Visit>
  void for_each_kernel(const std::vector<std::string>& names, const Visit& visit) {
    std::vector<KernelSpec> specs;
    for (const std::string& name : names) {
      specs.push_back(parse_name(fmt::format("{}_{}", name, target_.name)));
    }
    for_each_built(specs, visit);
  }

  // What a kernel's runs took of LDS, beside what they need at least.
  void expect_few_lds_cycles(const EmulatedKernel& kernel) {
    constexpr double kMost = 1.05;
    const emulator::Statistics& s = kernel.statistics;
    if (s.lds_ideal_cycles == 0) return;
    const double ratio =
        static_cast<double>(s.lds_cycles) / static_cast<double>(s.lds_ideal_cycles);
    EXPECT_LE(ratio, kMost);
    worst_lds_ = std::max(worst_lds_, ratio);
  }

  void print_counts(std::size_t kernels, std::vector<double> seconds) const {
    const std::size_t compiled = seconds.size();
    if (seconds.empty()) seconds = {0};
    std::sort(seconds.begin(), seconds.end());
    fmt::print(
        "{}: {} kernels, {} compiled now: {:.2f} s (median), {:.2f} s (longest); {} problems, {} "
        "elements; {} instructions, {} MFMAs, LDS cycles up to {:.3f} of the ideal\n",
        target_.name, kernels, compiled, seconds[seconds.size() / 2], seconds.back(), problems_,
        elements_, all_.instructions, all_.mfmas, worst_lds_);
  }

  Target target_ = load_target(GetParam());
  const Family& family_;
  std::function<void(Launch&)> adjust_ = [](Launch&) {};  // what a launch of much work is like
  std::uint64_t seed_ = std::random_device{}();
  std::mt19937_64 random_{seed_};
  std::uint64_t executed_mfmas_ = 0;  // by the last check
  Tally tally_;
  int problems_ = 0;
  std::int64_t elements_ = 0;
  emulator::Statistics all_;  // of all kernels that were visited
  double worst_lds_ = 1;      // the most cycles of LDS of one, of the ideal
};

}  // namespace tessera
