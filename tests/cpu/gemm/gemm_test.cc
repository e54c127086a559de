// Every kind of CPU GEMM kernel against the fp64 reference: fresh random operands, odd sizes,
// strides, batches, scalars, numbers of threads, special values, and nothing written elsewhere.
// To repeat a failure: --gtest_filter=... --gtest_random_seed=<the seed printed>.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>
#include <set>
#include <tuple>

#include "cpu/gemm/sample.h"
#include "cpu/gemm/tile_emulator.h"
#include "cpu/guarded.h"
#include "openmp_limit.h"
#include "tessera/base/error.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/families/operands.h"
#include "tessera/measure/operands.h"
#include "tessera/registry/registry.h"
#include "tessera/runtime/runtime.h"
#include "tessera/spec/numeric.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

std::vector<Target> targets_here() {
  std::vector<Target> targets = {host_target()};
  for (const char* name : {"avx512", "avx2", "generic"}) {
    if (name == targets.front().name) continue;
    Target row = load_target(name);
    if (runtime::backend_for(row).unavailable_reason(row).empty()) targets.push_back(row);
  }
  if (targets.front().name == "avx512") targets.push_back(tile_emulator::target(targets.front()));
  return targets;
}

const std::vector<Target>& targets() {
  static const std::vector<Target> list = targets_here();
  return list;
}

const Target& target_named(const std::string& name) {
  for (const Target& target : targets()) {
    if (target.name == name) return target;
  }
  throw Error(ErrorCode::not_found, "no target " + name);
}

struct Samples {
  std::vector<KernelSpec> usual, others;
};

// Every run takes one sample per pipeline, type of A and preshuffle from each target. From this
// machine's own target and from the target with tiles it takes more, so that each layout meets each
// type, and each pipeline with and without preshuffle. The label `long` has the others.
Samples samples() {
  Samples all;
  for (const Target& target : targets()) {
    std::set<std::tuple<DType, Pipeline, bool>> by_type;
    std::set<std::tuple<DType, GemmLayout>> layouts_of_type;
    std::set<std::tuple<Pipeline, bool, GemmLayout>> layouts_of_pipeline;
    const bool is_own =
        target.name == targets().front().name || target.name == tile_emulator::kName;
    for (KernelSpec& spec : gemm_sample::sample(target)) {
      const auto& s = std::get<GemmSignature>(spec.signature);
      const Pipeline pipeline = spec.algorithm.pipeline;
      bool is_first = by_type.insert({s.a, pipeline, s.preshuffled_b}).second;
      if (is_own) {
        is_first |= layouts_of_type.insert({s.a, s.layout}).second;
        is_first |= layouts_of_pipeline.insert({pipeline, s.preshuffled_b, s.layout}).second;
      }
      (is_first ? all.usual : all.others).push_back(std::move(spec));
    }
  }
  return all;
}

// One for the process; the folder outlives it, so that a second run compiles nothing.
Registry& registry() {
  static Registry& instance = []() -> Registry& {
    jit::BuildOptions options;
    options.cache.folder = std::filesystem::current_path() / "gemm_test_kernels";
    static Registry made("gemm_test", options);
    for (const Target& target : targets()) made.add_target(target);
    return made;
  }();
  return instance;
}

std::uint64_t fresh_seed() {
  const auto fixed = static_cast<std::uint64_t>(testing::GTEST_FLAG(random_seed));
  return fixed != 0 ? fixed : std::random_device{}() % 99999 + 1;
}

class GemmKernel : public testing::TestWithParam<KernelSpec> {
 protected:
  const KernelSpec& spec = GetParam();
  const GemmSignature& signature = std::get<GemmSignature>(spec.signature);
  const Target& target = target_named(spec.target);
  const Family& family = family_of(Op::gemm);
  std::uint64_t seed = fresh_seed();
  std::mt19937_64 random{seed};
  std::shared_ptr<const runtime::LoadedKernel> kernel = registry().get(spec);

  std::int64_t draw(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  }

  void check_sizes();
  void check_strides();
  void check_pointer_arrays();
  void check_in_place();
  void check_special_values();
  void check_ends();
  void check_threads();

  // What the kernel computes, with scalars that its output can take.
  GemmProblem problem(std::int64_t m, std::int64_t n, std::int64_t k) {
    GemmProblem p = gemm::problem_of(signature, m, n, k);
    p.clamp_lo = -0.5F;
    p.clamp_hi = 1.5F;
    if (p.out == DType::int8) p.alpha = 0x1p-9F;  // or all results saturate
    if (spec.algorithm.pipeline == Pipeline::small) fit_small(p);
    return p;
  }

  // A kernel for short calls serves whole groups of rows, a vector of columns and 16 bytes of k at
  // least.
  void fit_small(GemmProblem& p) const {
    const std::int64_t rows = spec.algorithm.warp_tile.m;
    p.k = std::max<std::int64_t>(p.k, 16 / size_of(p.a));
    if (p.n > 0) p.n = std::max<std::int64_t>(p.n, target.vector_bytes / 4);
    while (p.m > 0 && p.n > 0 && !family.supports(spec, p, target)) p.m += p.m < rows ? 1 : -1;
    const Verdict served = family.supports(spec, p, target);
    EXPECT_TRUE(served) << served.reason;
  }

  void set_scalars(GemmProblem& p, float alpha, float beta) {
    p.alpha *= p.out == DType::int32 ? std::round(2 * alpha) : alpha;
    p.beta = p.out == DType::int32 ? std::round(2 * beta) : beta;
  }

  // A stream kernel serves few rows or columns only; which of them is small alternates.
  GemmProblem sized(std::int64_t m, std::int64_t n, std::int64_t k) {
    const std::int64_t most_rows = target.vector_registers >= 32 ? 16 : 8;
    const bool is_narrow = m <= n ? m <= most_rows : n <= 8;
    if (spec.algorithm.pipeline == Pipeline::stream && !is_narrow) {
      if (draw(0, 1) == 0) {
        m = draw(1, std::min(most_rows, n));
      } else {
        n = draw(1, std::min<std::int64_t>(8, m));
      }
    }
    return problem(m, n, k);
  }

  void launch(const Problem& p, const Operands& operands, int threads) {
    const OpenMpLimit limit(threads);
    runtime::LaunchOptions options;
    options.threads = threads;
    kernel->launch(family.bind(spec, p, target_named(spec.target), operands), options);
  }

  // Packs if need be, runs and compares. `original` differs from the operands where the launch
  // overwrites what it reads.
  void run_and_check(const Problem& p, measure::OwnedOperands& owned, int threads,
                     const Operands& original) {
    family.validate(p);
    Operands operands = owned.operands;
    const runtime::DeviceBuffer packed =
        measure::pack_operand(*kernel, spec, p, target_named(spec.target), operands);
    validate_operands(family, p, operands);
    launch(p, operands, threads);
    EXPECT_EQ(measure::gaps_intact(owned), "");
    const Mismatch mismatch = family.verify(family.unpacked(p), original);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
  }

  // Lets some batches read the same matrix of A or B.
  void share_pointers(const GemmProblem& p, measure::OwnedOperands& owned) {
    const auto& operands = std::get<GemmOperands>(owned.operands);
    for (const void* array : {operands.a, operands.b}) {
      auto** const pointers = static_cast<const void**>(const_cast<void*>(array));
      for (std::int64_t i = 1; i < p.batch; ++i) {
        if (draw(0, 2) == 0) pointers[i] = pointers[draw(0, i - 1)];
      }
    }
  }

  void check(const GemmProblem& p, int threads) {
    SCOPED_TRACE(fmt::format("seed {}: {} threads={}", seed, to_string(Problem(p)), threads));
    measure::OwnedOperands owned = measure::random_operands(p, random());
    if (p.pointer_arrays) share_pointers(p, owned);
    // With beta = 0, C is not read: whatever it holds.
    runtime::AlignedBuffer poisoned(owned.storage[owned.outputs.front()].size());
    std::memset(poisoned.data(), 0xff, poisoned.size());
    if (p.beta == 0) std::get<GemmOperands>(owned.operands).c = poisoned.data();
    run_and_check(p, owned, threads, owned.operands);
  }

  // Out starts as C and is read and written at once.
  void check_in_place(GemmProblem p, int threads) {
    SCOPED_TRACE(
        fmt::format("seed {}: in place, {} threads={}", seed, to_string(Problem(p)), threads));
    measure::OwnedOperands owned = measure::random_operands(p, random());
    const Operands original = owned.operands;
    auto& operands = std::get<GemmOperands>(owned.operands);
    const auto bytes = static_cast<std::size_t>(p.m * p.n * size_of(p.out));
    if (p.pointer_arrays) {
      for (std::int64_t i = 0; i < p.batch; ++i) {
        std::memcpy(static_cast<void* const*>(operands.out)[i],
                    static_cast<const void* const*>(operands.c)[i], bytes);
      }
    } else {
      std::memcpy(operands.out, operands.c, bytes);
    }
    operands.c = operands.out;
    run_and_check(p, owned, threads, original);
  }

  // NaN and infinity somewhere in A or B reach exactly the results that depend on them.
  void check_special(const GemmProblem& p, double value) {
    SCOPED_TRACE(fmt::format("seed {}: a {} in {}", seed, value, to_string(Problem(p))));
    measure::OwnedOperands owned = measure::random_operands(p, random());
    auto& operands = std::get<GemmOperands>(owned.operands);
    const bool in_a = draw(0, 1) == 0;
    store_element(in_a ? p.a : p.b, const_cast<void*>(in_a ? operands.a : operands.b),
                  draw(0, (in_a ? p.m : p.n) * p.k - 1), value);
    run_and_check(p, owned, 2, owned.operands);
  }

  // The bytes of the output, gaps and all.
  std::vector<std::byte> output_with(const Problem& p, measure::OwnedOperands& owned,
                                     const Operands& operands, int threads) {
    measure::reset_outputs(owned);
    launch(p, operands, threads);
    const runtime::AlignedBuffer& out = owned.storage[owned.outputs.front()];
    const auto* bytes = static_cast<const std::byte*>(out.data());
    return {bytes, bytes + out.size()};
  }
};

void GemmKernel::check_sizes() {
  const Algorithm& a = spec.algorithm;
  // Empty, tiny, around the register block, and across each side of the cache block.
  check(problem(0, 5, 7), 1);
  check(problem(5, 0, 7), 2);
  check(problem(3, 5, 0), 1);
  check(problem(1, 1, 1), 3);
  check(problem(1, draw(1, 70), draw(1, 90)), 1);
  check(problem(draw(1, 70), 1, draw(1, 90)), 2);
  check(sized(a.warp_tile.m, a.warp_tile.n, 4), 1);
  check(sized(2 * a.warp_tile.m + 1, 2 * a.warp_tile.n + 1, draw(5, 40)), 1);
  check(sized(draw(1, 61), draw(1, 67), draw(1, 71)), static_cast<int>(draw(1, 3)));
  check(sized(a.tile.m + draw(1, 9), draw(1, 19), draw(1, 11)), static_cast<int>(draw(1, 3)));
  // One block of rows that exceeds the tile, or several; one block of k, or two.
  check(sized(a.tile.m * draw(4, 9) / 4 + draw(1, 9), draw(1, 3),
              draw(0, 3) == 0 ? a.tile.k + draw(1, 9) : draw(1, 11)),
        static_cast<int>(draw(1, 3)));
  check(sized(draw(1, 11), a.tile.n + draw(1, 9), draw(1, 7)), static_cast<int>(draw(1, 3)));
  check(sized(draw(1, 19), draw(1, 37), a.tile.k + draw(1, 9)), static_cast<int>(draw(1, 3)));
}

void GemmKernel::check_strides() {
  const std::pair<float, float> scalars[] = {{1, 1}, {0.5F, -2}, {-1, 0}, {0, 1}, {0, 0}};
  for (const auto& [alpha, beta] : scalars) {
    GemmProblem p = with_strides(sized(draw(1, 41), draw(1, 43), draw(1, 47)));
    set_scalars(p, alpha, beta);
    p.batch = draw(1, 3);
    p.ld_a += draw(0, 5);
    p.ld_b += draw(0, 5);
    p.ld_c += draw(0, 5);
    p.ld_out += draw(0, 5);
    p.batch_stride_a = draw(0, 3) == 0 ? 0 : 50 * p.ld_a;
    p.batch_stride_b = draw(0, 3) == 0 ? 0 : 50 * p.ld_b;
    p.batch_stride_c = draw(0, 3) == 0 ? 0 : 50 * p.ld_c + 1;
    p.batch_stride_out = 50 * p.ld_out + 1;
    for (int i = 0; i < p.epilogue.num_d; ++i) {
      const auto d = static_cast<std::size_t>(i);
      if (!d_uses(p.epilogue)[d].is_vector()) p.ld_d[d] += draw(0, 5);
      p.batch_stride_d[d] = draw(0, 3) == 0 ? 0 : 50 * p.ld_d[d];
    }
    check(p, static_cast<int>(draw(1, 3)));
  }
}

// Batches that lie in any order, some of them the same; no batch; no k, where A and B are not read.
void GemmKernel::check_pointer_arrays() {
  if (signature.preshuffled_b) return;
  for (const std::int64_t batch : {std::int64_t{0}, std::int64_t{1}, draw(2, 6), draw(2, 3)}) {
    GemmProblem p = sized(draw(1, 41), draw(1, 43), draw(0, 3) * draw(1, 300));
    const GemmProblem packed = with_strides(p);
    set_scalars(p, -1, draw(0, 1) == 0 ? 0 : 0.5F);
    p.ld_a = packed.ld_a + draw(0, 5);
    p.ld_b = packed.ld_b + draw(0, 5);
    p.ld_c = packed.ld_c + draw(0, 5);
    p.ld_out = packed.ld_out + draw(0, 5);
    p.batch = batch;
    p.pointer_arrays = true;
    check(p, static_cast<int>(draw(1, 4)));
  }
  GemmProblem p = sized(draw(1, 41), draw(1, 43), draw(1, 47));
  set_scalars(p, 1, 0.5F);
  p.batch = draw(1, 4);
  p.pointer_arrays = true;
  check_in_place(p, static_cast<int>(draw(1, 3)));
}

void GemmKernel::check_in_place() {
  GemmProblem p = sized(draw(1, 41), draw(1, 43), draw(1, 47));
  set_scalars(p, 1, 0.5F);
  check_in_place(p, static_cast<int>(draw(1, 3)));
}

void GemmKernel::check_special_values() {
  if (is_integer(signature.a)) return;
  const GemmProblem p = sized(draw(1, 41), draw(1, 43), draw(1, 47));
  check_special(p, std::numeric_limits<double>::quiet_NaN());
  check_special(p, std::numeric_limits<double>::infinity());
  check_special(p, -std::numeric_limits<double>::infinity());
}

// Nothing is read before or past the operands, nor do gaps count that hold NaN, however k ends
// within the words that a kernel multiplies: whole register blocks with rows of every length.
void GemmKernel::check_ends() {
  const Algorithm& a = spec.algorithm;
  for (int round = 0; round < 4; ++round) {
    GemmProblem p = with_strides(sized(draw(1, 3) * a.warp_tile.m, a.warp_tile.n - draw(0, 1),
                                       4 * draw(0, 20) + round + draw(0, 1)));
    p.ld_a += draw(0, 3);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, to_string(Problem(p))));
    measure::OwnedOperands owned = measure::random_operands(p, random());
    const auto& operands = std::get<GemmOperands>(owned.operands);
    const bool by_rows = p.layout == GemmLayout::rcr || p.layout == GemmLayout::rrr;
    const auto [lines, line] = by_rows ? std::pair(p.m, p.k) : std::pair(p.k, p.m);
    // Without a line there is no memory for gaps either.
    const std::int64_t elements = line == 0 || lines == 0 ? 0 : (lines - 1) * p.ld_a + line;
    for (std::int64_t i = 0; i < elements && !is_integer(p.a); ++i) {
      if (i % p.ld_a < line) continue;
      store_element(p.a, const_cast<void*>(operands.a), i, std::nan(""));
    }
    const Operands apart = owned.operands;
    for (const Edge edge : {Edge::begin, Edge::end}) {
      const AtEdges at(owned, edge);
      owned.operands = at.operands();
      run_and_check(p, owned, static_cast<int>(draw(1, 2)), owned.operands);
      owned.operands = apart;
      at.fetch(owned);
      EXPECT_EQ(measure::gaps_intact(owned), "");
    }
  }
}

// Unless K is split over threads, a result is the same sum in the same order on any number of
// threads.
void GemmKernel::check_threads() {
  if (spec.algorithm.wave.k != 1) return;
  GemmProblem p = sized(draw(50, 99), draw(50, 99), draw(1, 600));
  p.batch = draw(1, 2);
  p.pointer_arrays = !p.preshuffled_b && draw(0, 1) == 0;
  SCOPED_TRACE(fmt::format("seed {}: {}", seed, to_string(Problem(p))));
  measure::OwnedOperands owned = measure::random_operands(p, random());
  Operands operands = owned.operands;
  const runtime::DeviceBuffer packed =
      measure::pack_operand(*kernel, spec, p, target_named(spec.target), operands);
  const auto one = output_with(p, owned, operands, 1);
  EXPECT_EQ(output_with(p, owned, operands, 2), one);
  EXPECT_EQ(output_with(p, owned, operands, 3), one);
}

TEST_P(GemmKernel, IsCorrect) {
  check_sizes();
  check_strides();
  check_pointer_arrays();
  check_in_place();
  check_special_values();
  check_ends();
  check_threads();
}

std::string instance_name(const testing::TestParamInfo<KernelSpec>& info) {
  return name_of(info.param);
}

INSTANTIATE_TEST_SUITE_P(Cpu, GemmKernel, testing::ValuesIn(samples().usual), instance_name);
INSTANTIATE_TEST_SUITE_P(Long, GemmKernel, testing::ValuesIn(samples().others), instance_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GemmKernel);  // `others` may be empty

// The sample leaves out nothing that the enumeration has.
TEST(GemmSample, HoldsEveryClassOfTheSpace) {
  for (const Target& target : targets()) {
    std::set<gemm_sample::Class> sampled;
    for (const KernelSpec& spec : gemm_sample::sample(target)) {
      sampled.insert(gemm_sample::class_of(spec));
    }
    for (const KernelSpec& spec : family_of(Op::gemm).enumerate(target, {})) {
      ASSERT_TRUE(sampled.contains(gemm_sample::class_of(spec))) << name_of(spec);
    }
  }
}

TEST(GemmSample, RunsEveryTargetOfThisKindOfMachine) {
  for (const char* name : {"avx512", "avx2", "generic"}) {
    const Target row = load_target(name);
    const std::string reason = runtime::backend_for(row).unavailable_reason(row);
    if (!reason.empty() && host_target().name != row.name) GTEST_SKIP() << reason;
    EXPECT_FALSE(gemm_sample::sample(target_named(name)).empty()) << name;
  }
  std::set<std::string> names;
  const Samples all = samples();
  for (const auto* list : {&all.usual, &all.others}) {
    for (const KernelSpec& spec : *list) EXPECT_TRUE(names.insert(name_of(spec)).second);
  }
  std::size_t sampled = 0;
  for (const Target& target : targets()) sampled += gemm_sample::sample(target).size();
  EXPECT_EQ(names.size(), sampled);
}

}  // namespace

// What a failing instance is called in messages.
void PrintTo(const KernelSpec& spec, std::ostream* out) { *out << name_of(spec); }

}  // namespace tessera
