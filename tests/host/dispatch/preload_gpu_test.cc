// Packs of a GPU's kernels that are loaded ahead, on the fake driver, which counts loads.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <vector>

#include "elf_files.h"
#include "fake_cuda/fake_cuda.h"
#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/log.h"
#include "tessera/dispatch/dispatcher.h"
#include "tessera/families/family.h"
#include "tessera/families/operations.h"
#include "tessera/jit/pack.h"
#include "tessera/jit/toolchain.h"
#include "tessera/measure/operands.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

// The driver is loaded once in a process: by the first of these.
const fake_cuda::Control& fake() {
  static const fake_cuda::Control control = [] {
    setenv("TESSERA_CUDA_DRIVER", FAKE_CUDA, 1);
    return fake_cuda::Control(FAKE_CUDA);
  }();
  return control;
}

struct PreloadGpu : testing::Test {
  fs::path folder = make_unique_folder(fs::temp_directory_path(), "tessera-preload-");
  fs::path pack = folder / "gpu.pack";
  Target target = load_target("sm90a");
  std::vector<Problem> problems;
  std::vector<std::string> kernels;  // of them

  PreloadGpu() {
    fake().reset();
    fake().settings().devices = 2;
    fake().settings().abi_version = family_of(Op::gemm).abi;
    for (const char* line : {"gemm m=256 n=256 k=256 dtype=bf16", "gemm m=20 n=30 k=40 dtype=fp32",
                             "gemm m=64 n=4096 k=512 dtype=fp16 layout=rrr"}) {
      problems.push_back(parse_problem(line));
    }
    std::vector<jit::PackInput> inputs;
    const Dispatcher chooser(options());
    for (const Problem& problem : problems) {
      const Source source = emit_legal(chooser.explain(problem).spec, target);
      kernels.push_back(source.name);
      const fs::path file = folder / (source.name + ".cubin");
      write_file(file, cubin_of(source.name));
      inputs.push_back({{source.name, jit::source_key(source, target), target.name, 0}, file});
    }
    jit::write_pack(pack, inputs);
  }
  ~PreloadGpu() override { remove_tree(folder); }

  DispatcherOptions options() const {
    DispatcherOptions o;
    o.target = "sm90a";
    o.build.cache.folder = folder / "cache";
    o.build.use_shipped_packs = false;
    o.build.allow_compile = false;
    return o;
  }
  // Runs a problem in memory that exists.
  static void run(Dispatcher& dispatcher, const Problem& problem,
                  const runtime::DeviceBuffer& memory, const runtime::LaunchOptions& launch) {
    Operands operands = no_operands(problem);
    std::size_t at = 0;
    for (const Tensor& tensor : tensors_of(problem)) {
      if (tensor.may_be_null) continue;
      set_pointer(operands, tensor, static_cast<std::byte*>(memory.data()) + at);
      at += (tensor.bytes() + 255) / 256 * 256;
    }
    RunOptions run;
    run.launch = launch;
    dispatcher.run(problem, operands, run);
  }
};

TEST_F(PreloadGpu, LaterLaunchesLoadNothingAndMayBeCaptured) {
  Dispatcher dispatcher(options());
  const runtime::Place place{&runtime::backend_for(target), {}};
  const runtime::DeviceBuffer memory(place, 64 << 20);
  const runtime::DeviceBuffer workspace(place, 64 << 20);
  const int before = fake().counters().modules;
  const Preloaded done = dispatcher.preload(pack);
  EXPECT_EQ(done.kernels, kernels.size());
  EXPECT_TRUE(done.skipped.empty());
  EXPECT_EQ(fake().counters().modules - before, static_cast<int>(kernels.size()));
  const int loaded = fake().counters().modules;
  const int allocations = fake().counters().allocations;
  fake().settings().capturing = 1;
  runtime::LaunchOptions launch;
  launch.workspace = workspace.data();
  launch.workspace_bytes = workspace.size();
  for (std::size_t i = 0; i < problems.size(); ++i) {
    EXPECT_NO_THROW(run(dispatcher, problems[i], memory, launch));
    EXPECT_EQ(std::string(fake().record(fake().counters().launches - 1).kernel).find(kernels[i]),
              0U);
  }
  EXPECT_EQ(fake().counters().modules, loaded);
  EXPECT_EQ(fake().counters().allocations, allocations);
  EXPECT_EQ(dispatcher.preload(pack).kernels, kernels.size());
  EXPECT_EQ(fake().counters().modules, loaded);
}

TEST_F(PreloadGpu, WithoutItACaptureIsRefused) {
  DispatcherOptions o = options();
  o.build.packs = {pack.string()};
  Dispatcher dispatcher(o);
  const runtime::Place place{&runtime::backend_for(target), {}};
  const runtime::DeviceBuffer memory(place, 64 << 20);
  fake().settings().capturing = 1;
  try {
    run(dispatcher, problems[0], memory, {});
    FAIL() << "captured a load";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::launch_failed) << error.what();
  }
}

TEST_F(PreloadGpu, EachDeviceIsLoadedForItself) {
  Dispatcher dispatcher(options());
  runtime::LaunchOptions second;
  second.device = 1;
  dispatcher.preload(pack);
  const int loaded = fake().counters().modules;
  dispatcher.preload(pack, second);
  EXPECT_EQ(fake().counters().modules - loaded, static_cast<int>(kernels.size()));
}

TEST_F(PreloadGpu, WithoutACompilerTheBestPackedKernelRuns) {
  DispatcherOptions o = options();
  o.build.packs = {pack.string()};
  Dispatcher dispatcher(o);
  // Another shape of a packed signature, whose best kernel is another.
  const Problem other = parse_problem("gemm m=4096 n=4096 k=4096 dtype=bf16");
  ASSERT_NE(Dispatcher(options()).explain(other).name, kernels[0]);
  EXPECT_EQ(dispatcher.kernel_for(other).name, kernels[0]);
  EXPECT_EQ(dispatcher.explain(other).name, kernels[0]);
}

// Nothing is compared while a stream is captured; what a kernel of no code leaves is wrong.
TEST_F(PreloadGpu, NoLaunchOfACaptureIsSampled) {
  DispatcherOptions o = options();
  o.verify_every = 1;
  Dispatcher dispatcher(o);
  dispatcher.preload(pack);
  const runtime::Place place{&runtime::backend_for(target), {}};
  const runtime::DeviceBuffer memory(place, 64 << 20), workspace(place, 64 << 20);
  runtime::LaunchOptions launch;
  launch.workspace = workspace.data();
  launch.workspace_bytes = workspace.size();
  fake().settings().capturing = 1;
  run(dispatcher, problems[1], memory, launch);
  EXPECT_EQ(dispatcher.sampling().not_comparable, 1U);
  fake().settings().capturing = 0;
  std::vector<std::byte> ones(memory.size(), std::byte{0x3f});
  place.backend->copy_to_device(memory.data(), ones.data(), ones.size(), {});
  run(dispatcher, problems[1], memory, launch);
  const SamplingReport report = dispatcher.sampling();
  EXPECT_EQ(report.compared, 1U);
  EXPECT_EQ(report.wrong, 1U);
}

}  // namespace
}  // namespace tessera
