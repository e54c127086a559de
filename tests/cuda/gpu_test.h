// What tests on a GPU share: they skip where there is none, and run kernels through a dispatcher.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/edge_backend.h"
#include "tessera/base/processors.h"
#include "tessera/dispatch/dispatcher.h"
#include "tessera/measure/operands.h"
#include "tessera/targets/targets.h"

namespace tessera {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = runtime::backend_for(target_).unavailable_reason(target_);
    if (!reason.empty()) GTEST_SKIP() << reason;
    say(fmt::format("seed {}", seed_));
    dispatcher_ = std::make_unique<Dispatcher>(dispatcher_options());
  }

  static DispatcherOptions dispatcher_options() {
    DispatcherOptions options;
    options.target = "sm90a";
    options.build.cache.folder = TESSERA_BUILD "/kernel-cache";
    options.build.worker = TESSERA_WORKER;
    return options;
  }

  // At once, so that a file shows it even when the program is ended from outside.
  static void say(const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
  }

  void build(const std::vector<KernelSpec>& specs) {
    for (const KernelSpec& spec : specs) dispatcher_->registry().declare(spec);
    for (const jit::BuildResult& result : dispatcher_->registry().build()) {
      ASSERT_EQ(result.error, "");
    }
  }

  // The operands at an edge of memory of their own.
  measure::PlacedOperands place(const measure::OwnedOperands& owned, Edge edge = Edge::last) {
    edges_.expect(owned, edge);
    return measure::place_operands(owned, place_);
  }

  // The bytes of the first output.
  std::vector<std::byte> run(const Problem& problem, measure::OwnedOperands& owned,
                             measure::PlacedOperands& placed, const Operands& operands,
                             const std::string& kernel) {
    measure::reset_outputs(owned);
    measure::send_outputs(owned, placed, place_);
    dispatcher_->run(problem, operands, {.force = kernel});
    measure::fetch_outputs(owned, placed, place_);
    const runtime::AlignedBuffer& output = owned.storage.at(owned.outputs.front());
    const auto* const bytes = static_cast<const std::byte*>(output.data());
    return {bytes, bytes + output.size()};
  }

  // What was fetched last is the fp64 answer to the problem.
  static void expect_correct(const Problem& problem, const measure::OwnedOperands& owned) {
    const Mismatch mismatch = family_of(problem).verify(problem, owned.operands);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
  }

  static bool has_certain_bits(const Problem&, const measure::OwnedOperands&) { return true; }

  // Runs the kernel twice on fresh operands, at the first and at the last edge of memory: guards
  // intact, right, and equal bits where the kernel is deterministic and the answer has certain
  // bits.
  template <class ExpectCorrect>
  void check_twice(const std::string& kernel, const Problem& problem, ExpectCorrect correct,
                   decltype(&has_certain_bits) is_certain = has_certain_bits) {
    const std::uint64_t seed = random_();
    const std::string words = fmt::format("{} on '{}', seed {}", kernel, to_string(problem), seed);
    SCOPED_TRACE(words);
    say(words);
    measure::OwnedOperands owned = measure::random_operands(problem, seed, usable_processors());
    const std::vector<std::byte> first = run_at(Edge::first, kernel, problem, owned);
    EXPECT_EQ(measure::gaps_intact(owned), "");
    correct(problem, owned);
    const std::vector<std::byte> last = run_at(Edge::last, kernel, problem, owned);
    EXPECT_EQ(measure::gaps_intact(owned), "");
    if (!family_of(problem).is_deterministic(parse_name(kernel), target_)) return;
    if (!is_certain(problem, owned)) return;
    EXPECT_EQ(last, first) << "a repeat gave other bits";
  }

  std::vector<std::byte> run_at(Edge edge, const std::string& kernel, const Problem& problem,
                                measure::OwnedOperands& owned) {
    measure::PlacedOperands placed = place(owned, edge);
    return run(problem, owned, placed, placed.operands, kernel);
  }

  std::vector<KernelSpec> essential(const Family& family) const {
    std::vector<KernelSpec> specs;
    for (const std::string& set : family.preselected_names()) {
      for (KernelSpec& spec : family.preselected(set, target_)) specs.push_back(std::move(spec));
    }
    return specs;
  }

  // The kernel's sample with the most operations. All samples are small, but the loops of this one
  // go round several times.
  Problem largest_sample(const Family& family, const KernelSpec& spec) const {
    const std::vector<Problem> samples = family.samples(spec, target_);
    const auto most = std::max_element(
        samples.begin(), samples.end(),
        [&](const Problem& a, const Problem& b) { return family.flops(a) < family.flops(b); });
    if (most == samples.end()) throw std::runtime_error(name_of(spec) + " has no sample");
    return *most;
  }

  // Builds the kernels and checks each on one small problem.
  void check_small(const Family& family, const std::vector<KernelSpec>& specs) {
    ASSERT_FALSE(specs.empty());
    ASSERT_NO_FATAL_FAILURE(build(specs));
    for (const KernelSpec& spec : specs) {
      const Problem problem = largest_sample(family, spec);
      SCOPED_TRACE(fmt::format("{} on '{}'", name_of(spec), to_string(problem)));
      measure::OwnedOperands owned = measure::random_operands(problem, seed_);
      run_at(Edge::last, name_of(spec), problem, owned);
      EXPECT_EQ(measure::gaps_intact(owned), "");
      expect_correct(problem, owned);
    }
    say(fmt::format("{} kernels, one problem each", specs.size()));
  }

  // The dispatcher compares with the fp64 answer itself.
  void run_and_verify(const Problem& problem) {
    const measure::OwnedOperands owned = measure::random_operands(problem, seed_);
    const measure::PlacedOperands placed = place(owned);
    dispatcher_->run(problem, placed.operands, {.verify = true});
  }

  Target target_ = load_target("sm90a");
  EdgeBackend edges_{runtime::backend_for(target_)};
  runtime::Place place_{&edges_, {}};
  std::uint64_t seed_ = std::random_device{}();
  std::mt19937_64 random_{seed_};
  std::unique_ptr<Dispatcher> dispatcher_;
};

}  // namespace tessera
