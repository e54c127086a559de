// Running kernels through the public API: threads, force, verify, packed B, targets of one's own.
#include <algorithm>

#include "cpu/broken_compiler.h"
#include "cpu/cached.h"
#include "fixture.h"

namespace tessera::api_test {
namespace {

struct ApiRun : ApiTest {};

TEST_F(ApiRun, EveryTypeOnThisMachine) {
  Dispatcher dispatcher(options(""));
  EXPECT_EQ(dispatcher.target(), host_target());
  for (const char* line :
       {"gemm m=33 n=50 k=70 layout=rrr", "gemm m=33 n=50 k=70 dtype=fp16",
        "gemm m=33 n=50 k=70 dtype=bf16 layout=crr", "gemm m=33 n=50 k=70 dtype=fp8 layout=ccr",
        "gemm m=33 n=50 k=70 dtype=bf8", "gemm m=33 n=50 k=70 dtype=int8"}) {
    const Problem problem = parse_problem(line);
    const measure::OwnedOperands owned = operands_of(problem);
    EXPECT_EQ(error_of([&] { dispatcher.run(problem, owned.operands, with(0)); }), "no error")
        << line << " seed " << seed;
    EXPECT_EQ(measure::gaps_intact(owned), "") << line;
  }
}

TEST_F(ApiRun, OneKernelServesEveryShapeOfItsSignature) {
  Dispatcher dispatcher(options());
  const std::string force = "gemm_fp32_rcr_packab_48x192x256_0x0x1_4x8x1_generic";
  GemmProblem strided = small();
  strided.batch = 3;
  strided.ld_a = 64;
  strided.ld_out = 50;
  strided.beta = -0.5F;
  GemmProblem no_sum = small();
  no_sum.k = 0;
  for (const GemmProblem& p : {small(), small(1), small(200), strided, no_sum, small(0)}) {
    const measure::OwnedOperands owned = operands_of(p);
    EXPECT_EQ(error_of([&] { dispatcher.run(p, owned.operands, with(2, force)); }), "no error")
        << to_string(p) << " seed " << seed;
    EXPECT_EQ(measure::gaps_intact(owned), "") << to_string(p);
  }
  EXPECT_EQ(kernels_in(dispatcher.registry().builder().cache()), 1);
}

// Verified against what C was, though every batch is written over its own.
TEST_F(ApiRun, BatchesByPointerArraysInPlace) {
  Dispatcher dispatcher(options());
  GemmProblem p = small();
  p.batch = 5;
  p.beta = 0.5F;
  p.pointer_arrays = true;
  const measure::OwnedOperands owned = operands_of(p);
  GemmOperands operands = std::get<GemmOperands>(owned.operands);
  for (std::int64_t i = 0; i < p.batch; ++i) {
    std::memcpy(static_cast<void* const*>(operands.out)[i],
                static_cast<const void* const*>(operands.c)[i],
                static_cast<std::size_t>(p.m * p.n) * 4);
  }
  operands.c = operands.out;
  EXPECT_EQ(error_of([&] { dispatcher.run(p, operands, with(2)); }), "no error");
  const Mismatch mismatch = family_of(p).verify(p, owned.operands);  // with the C of before
  EXPECT_TRUE(mismatch.ok) << mismatch.message << ", seed " << seed;
  operands.a = nullptr;
  EXPECT_EQ(error_of([&] { dispatcher.run(p, operands, with(2)); }),
            "invalid_argument: gemm: a must not be null: with pointer_arrays it is an array of 5 "
            "pointers");
}

// Aligned, elsewhere, between multiples of 16 bytes, in place, and aligned again.
TEST_F(ApiRun, FollowsOperandsThatMove) {
  Dispatcher dispatcher(options());
  GemmProblem p = small();
  p.beta = -0.5F;
  const measure::OwnedOperands owned = operands_of(p), elsewhere = operands_of(p);
  GemmOperands between = std::get<GemmOperands>(owned.operands);
  const auto count = static_cast<std::size_t>(p.m * p.k);
  std::vector<float> moved(count + 1);
  std::memcpy(moved.data() + 1, between.a, count * sizeof(float));
  between.a = moved.data() + 1;
  GemmOperands in_place = std::get<GemmOperands>(elsewhere.operands);
  in_place.c = in_place.out;
  const Operands calls[] = {owned.operands, elsewhere.operands, between, in_place, owned.operands};
  for (const Operands& operands : calls) {
    EXPECT_EQ(error_of([&] { dispatcher.run(p, operands, with(2)); }), "no error")
        << "call " << &operands - calls << ", seed " << seed;
  }
}

// Where no thread shares a sum, the number of threads changes who computes an element, not how.
TEST_F(ApiRun, DeterministicBitsWhateverTheThreads) {
  DispatcherOptions o = options();
  o.deterministic = true;
  Dispatcher dispatcher(o);
  const GemmProblem p = gemm_problem(DType::fp32, GemmLayout::rcr, 150, 130, 700);
  measure::OwnedOperands owned = operands_of(p);
  const std::string kernel = dispatcher.kernel_for(p, with(1)).name;
  std::string first;
  for (const int threads : {1, 2, 3, 8}) {
    measure::reset_outputs(owned);
    runtime::set_default_threads(threads);
    dispatcher.run(p, owned.operands, with(threads, kernel));
    if (first.empty()) first = output_bytes(p, owned);
    EXPECT_TRUE(output_bytes(p, owned) == first) << threads << " threads, seed " << seed;
  }
}

TEST_F(ApiRun, ThreadLimitIsPartOfTheChoiceAndOfTheMemo) {
  Dispatcher dispatcher(options());
  const ReadyKernel& one = dispatcher.kernel_for(small(), with(1));
  const ReadyKernel& two = dispatcher.kernel_for(small(), with(2));
  EXPECT_NE(&one, &two);
  EXPECT_EQ(&dispatcher.kernel_for(small(), with(1)), &one);
  EXPECT_GE(one.predicted_seconds, two.predicted_seconds);
  EXPECT_EQ(runtime::thread_limit({.threads = 1}), 1);
  EXPECT_EQ(runtime::thread_limit({.threads = 2}), 2);
}

// The choice, the memo and the launch all mean the number of threads that there will be.
TEST_F(ApiRun, TooManyThreadsAreAsManyAsThereAre) {
  Dispatcher dispatcher(options());
  const int most = runtime::thread_limit({.threads = 100'000});
  const measure::OwnedOperands owned = operands_of(small());
  EXPECT_EQ(error_of([&] { dispatcher.run(small(), owned.operands, with(100'000)); }), "no error");
  EXPECT_EQ(&dispatcher.kernel_for(small(), with(1 << 30)),
            &dispatcher.kernel_for(small(), with(most)));
}

// A thousand million threads can be shared out in more ways than a day suffices to look at.
TEST_F(ApiRun, ExplainsAnotherMachineForAThousandThreadsAtMost) {
  Target other = load_target("generic");
  other.features = {"none_that_is_here"};
  write_file_atomic(folder / "other.json", to_json(other));
  const Dispatcher dispatcher(options((folder / "other.json").string()));
  const GemmProblem p = gemm_problem(DType::fp32, GemmLayout::rcr, 3000, 1000, 500);
  const Decision most = dispatcher.explain(p, with(1024));
  const Decision more = dispatcher.explain(p, with(1 << 30));
  EXPECT_EQ(more.name, most.name);
  EXPECT_EQ(more.predicted_seconds, most.predicted_seconds);
}

// A team would take longer than the call. Whoever names a kernel decides for himself.
TEST_F(ApiRun, ShortCallsStayOnTheCallingThread) {
  Dispatcher dispatcher(options());
  const GemmProblem p = small(1);
  const Operands none = no_operands(p);
  EXPECT_EQ(launch_of(dispatcher.kernel_for(p, with(2)), p, none).max_threads, 1);
  const std::string all = "gemm_fp32_rcr_packab_48x192x256_0x0x1_4x8x1_generic";
  EXPECT_EQ(launch_of(dispatcher.kernel_for(p, with(2, all)), p, none).max_threads, 0);
  const GemmProblem large = gemm_problem(DType::fp32, GemmLayout::rcr, 900, 800, 700);
  EXPECT_EQ(launch_of(dispatcher.kernel_for(large, with(2)), large, none).max_threads, 2);
}

TEST_F(ApiRun, ForcedKernelFromOutsideTheSpace) {
  Dispatcher dispatcher(options());
  const std::string name = "gemm_fp32_rcr_packab_16x32x24_2x1x1_2x16x1_generic";
  for (const KernelSpec& spec : family_of(Op::gemm).candidates(small(), dispatcher.target())) {
    ASSERT_NE(name_of(spec), name);
  }
  const measure::OwnedOperands owned = operands_of(small());
  dispatcher.run(small(), owned.operands, with(2, name));
  const ReadyKernel& kernel = dispatcher.kernel_for(small(), with(2, name));
  EXPECT_EQ(kernel.name, name);
  EXPECT_EQ(kernel.source, ChoiceSource::pinned);
  EXPECT_EQ(dispatcher.explain(small(), with(2, name)).why, "pinned by name");
  EXPECT_NE(dispatcher.kernel_for(small(), with(2)).name, name);  // forced once, not for ever
}

TEST_F(ApiRun, VerifyFindsAWrongKernel) {
  using testing_support::Breakage;
  const Breakage all[] = {{"gemm_*", testing_support::kWritesNothing}};
  DispatcherOptions o = options();
  o.build.compiler = testing_support::broken_compiler(folder, all).string();
  Dispatcher dispatcher(o);
  const measure::OwnedOperands owned = operands_of(small());
  dispatcher.run(small(), owned.operands, with(1, "", false));  // nobody looked
  const std::string message = error_of([&] { dispatcher.run(small(), owned.operands, with(1)); });
  const std::string name = dispatcher.kernel_for(small(), with(1)).name;
  EXPECT_EQ(message.find("verification_failed: " + name + ": gemm: out[0, 0] is "), 0U) << message;
  EXPECT_NE(message.find("(1665 of 1665 elements checked are outside)"), std::string::npos)
      << message;
}

TEST_F(ApiRun, PackedBGivesTheSameResultAsB) {
  Dispatcher dispatcher(options());
  for (const DType dtype : {DType::fp32, DType::bf16, DType::int8}) {
    const GemmProblem plain = gemm_problem(dtype, GemmLayout::rrr, 40, 70, 90);
    GemmProblem packed = plain;
    packed.preshuffled_b = true;
    measure::OwnedOperands owned = operands_of(plain);
    auto operands = std::get<GemmOperands>(owned.operands);
    const std::size_t bytes = dispatcher.packed_bytes(packed);
    const runtime::AlignedBuffer buffer(bytes + 64);
    auto* const end = static_cast<unsigned char*>(buffer.data()) + bytes;
    std::fill_n(end - 1, 65, 0x5a);
    dispatcher.pack(packed, operands, buffer.data());
    EXPECT_EQ(std::count(end, end + 64, 0x5a), 64) << "wrote more than it said";
    operands.b = buffer.data();
    for (const std::int64_t m : {40, 7, 33}) {  // packed once, used for other m
      GemmProblem p = packed;
      p.m = m;
      RunOptions run = with(2, dispatcher.kernel_for(packed).name, false);
      measure::reset_outputs(owned);
      dispatcher.run(p, operands, run);
      GemmProblem as_given = plain;
      as_given.m = m;
      const Mismatch mismatch = family_of(Op::gemm).verify(as_given, owned.operands);
      EXPECT_TRUE(mismatch.ok) << mismatch.message << " seed " << seed;
      EXPECT_EQ(mismatch.checked, m * plain.n);
    }
  }
}

TEST_F(ApiRun, TargetFromAFile) {
  Target mine = load_target("generic");
  mine.name = "mine";
  mine.spaces[Op::gemm].tiles = {{64, 64, 64}};
  write_file(folder / "mine.json", to_json(mine));
  Dispatcher dispatcher(options((folder / "mine.json").string()));
  EXPECT_EQ(dispatcher.target(), mine);
  const measure::OwnedOperands owned = operands_of(small());
  dispatcher.run(small(), owned.operands, with(1));
  const ReadyKernel& kernel = dispatcher.kernel_for(small(), with(1));
  EXPECT_EQ(kernel.spec.target, "mine");
  EXPECT_TRUE(kernel.name.ends_with("_mine")) << kernel.name;
  EXPECT_EQ(kernel.spec.algorithm.tile, (Shape3{64, 64, 64}));
}

}  // namespace
}  // namespace tessera::api_test
