// What a process that runs for months must not lose: memory, descriptors and threads.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <filesystem>

#include "tessera/base/files.h"
#include "tessera/base/log.h"
#include "tessera/dispatch/dispatcher.h"
#include "tessera/jit/pack.h"
#include "tessera/jit/toolchain.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

// The table of the memo has just doubled: no other number of problems costs as much a problem.
constexpr int kProblems = (1 << 14) + 1;
// The kernel and its names, and the launch without its addresses.
constexpr double kBytesPerProblem = 2000;

// With a kernel's longest names, since each entry holds its own.
GemmProblem numbered(std::int64_t number) {
  GemmProblem p = gemm_problem(DType::fp32, GemmLayout::rcr, 33 + number, 17, 29);
  p.epilogue = parse_epilogue("bias+gelu_tanh+multiply+add");
  return p;
}

double heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

std::ptrdiff_t entries_of(const char* folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

// What the process holds besides memory.
struct Held {
  std::ptrdiff_t descriptors = entries_of("/proc/self/fd");
  std::ptrdiff_t threads = entries_of("/proc/self/task");
  friend bool operator==(const Held&, const Held&) = default;
};

struct LongUse : testing::Test {
  fs::path folder = make_unique_folder(fs::temp_directory_path(), "tessera-long-use-");
  Target target = load_target("generic");
  KernelSpec general = family_of(Op::gemm).general(numbered(0), target);
  RunOptions run;

  LongUse() { run.launch.threads = 1; }
  ~LongUse() override {
    set_log_sink({});
    remove_tree(folder);
  }

  DispatcherOptions options() const {
    DispatcherOptions o;
    o.target = "generic";
    o.build.cache.folder = folder / "cache";
    o.build.use_shipped_packs = false;
    return o;
  }

  // A dispatcher's registry: choosing among all kernels would take ten times as long.
  static std::shared_ptr<Registry> registry_of(const std::vector<KernelSpec>& specs,
                                               const DispatcherOptions& options) {
    auto registry = std::make_shared<Registry>("few", options.build);
    for (const KernelSpec& spec : specs) registry->declare(spec);
    return registry;
  }

  // The heap's growth for each of so many new problems.
  double bytes_per_problem(Dispatcher& dispatcher, int problems = kProblems) const {
    dispatcher.kernel_for(numbered(0), run);
    const double before = heap_bytes();
    for (int i = 1; i < problems; ++i) dispatcher.kernel_for(numbered(i), run);
    return (heap_bytes() - before) / (problems - 1);
  }
};

TEST_F(LongUse, OneMoreProblemCostsAtMost2000Bytes) {
  Dispatcher dispatcher(options(), registry_of({general}, options()));
  const double bytes = bytes_per_problem(dispatcher);
  EXPECT_GT(bytes, sizeof(ReadyKernel));  // or nothing was measured
  EXPECT_LE(bytes, kBytesPerProblem);
  RecordProperty("bytes", fmt::format("{:.0f}", bytes));
}

TEST_F(LongUse, OneMoreForcedProblemCostsAtMost2000Bytes) {
  run.force = name_of(general);
  Dispatcher dispatcher(options());
  const double bytes = bytes_per_problem(dispatcher);
  EXPECT_LE(bytes, kBytesPerProblem);
  RecordProperty("bytes", fmt::format("{:.0f}", bytes));
}

// Each problem is warned of, but warnings are not remembered for ever.
TEST_F(LongUse, OneMoreProblemWithoutACompilerCostsAtMost2000Bytes) {
  const Source source = family_of(Op::gemm).emit(general, target);
  const jit::Artifact artifact = jit::Builder(options().build).build(source, target);
  const jit::PackInput input{{source.name, jit::source_key(source, target), target.name, 0},
                             artifact.binary};
  jit::write_pack(folder / "one.pack", {&input, 1});
  const std::vector<KernelSpec> ranked =
      KernelSetBuilder("best", target).for_problem(numbered(0), 1).build().specs;
  ASSERT_NE(ranked.front(), general);

  DispatcherOptions o = options();
  o.build.compiler = "/nowhere/c++";
  o.build.packs = {(folder / "one.pack").string()};
  int warnings = 0;
  set_log_sink([&warnings](LogLevel, std::string_view) { ++warnings; });
  Dispatcher dispatcher(o, registry_of({general, ranked.front()}, o));
  constexpr int kWarned = 4096 + 2;  // one more than are remembered
  const double bytes = bytes_per_problem(dispatcher, kWarned);
  EXPECT_EQ(dispatcher.kernel_for(numbered(1), run).name, name_of(general));
  EXPECT_EQ(warnings, kWarned);
  EXPECT_LE(bytes, kBytesPerProblem);
  RecordProperty("bytes", fmt::format("{:.0f}", bytes));
}

TEST_F(LongUse, DispatchersComeAndGo) {
  const auto once = [this] {
    Dispatcher dispatcher(options(), registry_of({general}, options()));
    dispatcher.kernel_for(numbered(0), run);
  };
  for (int i = 0; i < 10; ++i) once();
  const Held held;
  const double before = heap_bytes();
  constexpr int kDispatchers = 40;
  for (int i = 0; i < kDispatchers; ++i) once();
  EXPECT_EQ(Held(), held);
  EXPECT_LE((heap_bytes() - before) / kDispatchers, kBytesPerProblem);
}

}  // namespace
}  // namespace tessera
