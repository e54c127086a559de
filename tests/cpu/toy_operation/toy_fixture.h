// What the tests of the toy operation share: a machine, its kernels, and the exact answer.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "cpu/kernel_folder.h"
#include "tessera/base/files.h"
#include "tessera/dispatch/dispatcher.h"
#include "tessera/measure/sweep.h"
#include "tessera/spec/numeric.h"

namespace tessera {

using Names = std::vector<std::string>;

inline constexpr const char* kOneRow = "norm_fp32_rmsnorm_rows_1x1x1_0x1x1_1x1x1_scale_toy";
inline constexpr const char* kFourRows = "norm_fp32_rmsnorm_rows_4x1x1_0x1x1_1x1x1_scale_toy";
inline constexpr const char* kShort = "norm_fp32_rmsnorm_stream_1x1024x1_0x1x1_1x1x1_scale_toy";
inline constexpr const char* kLong = "norm_fp32_rmsnorm_stream_1x4096x1_0x1x1_1x1x1_scale_toy";

inline Names names_of(std::span<const KernelSpec> specs) {
  Names names;
  for (const KernelSpec& spec : specs) names.push_back(name_of(spec));
  return names;
}

inline NormProblem problem_of(std::int64_t rows, std::int64_t columns) {
  NormProblem p = {.kind = NormKind::rmsnorm, .rows = rows, .columns = columns};
  p.scale = true;
  return p;
}

// A machine of one's own, whose row says which pipelines it runs.
inline Target toy_target(std::vector<Pipeline> pipelines) {
  Target target = load_target("generic");
  target.name = "toy";
  target.description = "a machine of one's own";
  target.sources = {{"*", "made up"}};
  target.spaces = {{Op::norm,
                    {.pipelines = std::move(pipelines),
                     .tiles = {{1, 1, 1}, {4, 1, 1}, {1, 1024, 1}, {1, 4096, 1}},
                     .waves = {{0, 1, 1}}}}};
  return target;
}

class ToyOperation : public testing::Test {
 protected:
  ToyOperation() { fmt::print("seed {}\n", seed_); }
  ~ToyOperation() override { remove_tree(folder_); }

  std::int64_t draw(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  DispatcherOptions options(const Target& target) const {
    DispatcherOptions o;
    write_file(folder_ / "toy.json", to_json(target));
    o.target = (folder_ / "toy.json").string();
    o.build.cache.folder = folder_ / "cache";
    o.build.worker = o.tuning_worker = TESSERA_WORKER;
    o.build.use_shipped_packs = false;
    return o;
  }
  DispatcherOptions options() const { return options(target_); }

  measure::SweepOptions sweep_options() const {
    measure::SweepOptions o;
    o.threads = 2;
    o.worker = TESSERA_WORKER;
    o.build = options().build;
    return o;
  }

  // The product of floats is exact in fp64, so that a kernel and this line round it once, alike.
  static void expect_scaled(const NormProblem& packed, const Operands& operands) {
    const NormProblem p = with_strides(packed);
    const auto& o = std::get<NormOperands>(operands);
    for (std::int64_t row = 0; row < p.rows; ++row) {
      for (std::int64_t c = 0; c < p.columns; ++c) {
        const double in = load_element(DType::fp32, o.in, row * p.ld_in + c);
        const double wanted = in * load_element(DType::fp32, o.scale, c);
        ASSERT_EQ(load_element(DType::fp32, o.out, row * p.ld_out + c), float(wanted))
            << to_string(Problem(p)) << ": row " << row << ", column " << c;
      }
    }
  }

  void run_and_check(Dispatcher& dispatcher, const NormProblem& p, const RunOptions& how = {}) {
    const measure::OwnedOperands owned = measure::random_operands(p, random_());
    dispatcher.run(p, owned.operands, how);
    expect_scaled(p, owned.operands);
    testing_support::expect_verified(p, owned);
  }

  const Family& family_ = family_of(Op::norm);
  const Target target_ = toy_target({Pipeline::rows, Pipeline::stream});
  const fs::path folder_ = make_unique_folder(fs::temp_directory_path(), "tessera-toy-");
  const OpenMpLimit limit_{2};
  std::uint64_t seed_ = testing_support::seed_of_run();
  std::mt19937_64 random_{seed_};
};

}  // namespace tessera
