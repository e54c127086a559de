// What the runtime says, and how it goes on, when the driver, a device or a kernel fails.
#include <fmt/format.h>

#include "host/runtime/cuda_fixture.h"
#include "tessera/base/subprocess.h"

namespace tessera::runtime {
namespace {

constexpr const char* kDevice0 = "device 0 (Fake GPU 0, compute capability 9.0)";

using CudaErrors = CudaTest;

std::string run_child(const std::string& driver, std::vector<std::string> words,
                      const std::string& setting = "FAKE_CUDA_DEVICES=1",
                      const std::string& more = "FAKE_CUDA_INIT_MS=0") {
  words.insert(words.begin(), CUDA_CHILD);
  SubprocessOptions options;
  options.extra_environment = {"TESSERA_CUDA_DRIVER=" + driver, setting, more};
  options.timeout_seconds = 30;
  return run_subprocess(words, options).output;
}

TEST_F(CudaErrors, AMachineWithoutADriver) {
  EXPECT_EQ(
      run_child("/no/such/libcuda.so", {"reason"}),
      "target 'sm90a' needs an NVIDIA GPU: NVIDIA's driver /no/such/libcuda.so cannot be "
      "loaded, which TESSERA_CUDA_DRIVER names: /no/such/libcuda.so: cannot open shared object "
      "file: No such file or directory; install the NVIDIA driver (580 or later for CUDA 13), "
      "and in a container start it with the GPU made visible\n");
}

TEST_F(CudaErrors, ADriverFromBeforeHopper) {
  EXPECT_EQ(
      run_child(FAKE_CUDA_OLD, {"reason"}),
      "target 'sm90a' needs an NVIDIA GPU: NVIDIA's driver " FAKE_CUDA_OLD
      " is too old: it supports CUDA 11.7 and lacks cuLaunchKernelEx, cuTensorMapEncodeTiled, "
      "cuTensorMapEncodeIm2col, CUDA 12.0 or later is needed; update the driver\n");
}

TEST_F(CudaErrors, AMachineWithoutADevice) {
  EXPECT_EQ(
      run_child(FAKE_CUDA, {"reason"}, "FAKE_CUDA_DEVICES=0"),
      "target 'sm90a' needs a GPU of compute capability 9.0, this machine has no CUDA device: "
      "check that it is visible (nvidia-smi, CUDA_VISIBLE_DEVICES)\n");
}

TEST_F(CudaErrors, ForkingBeforeTheFirstLaunchIsFine) {
  EXPECT_EQ(run_child(FAKE_CUDA, {"fork_before", cubin().string()}), "the child launched\n");
}

TEST_F(CudaErrors, ForkingAfterItIsAnError) {
  EXPECT_EQ(run_child(FAKE_CUDA, {"fork_after", cubin().string()}),
            "this process was forked after its parent had used a GPU, and NVIDIA's driver does not "
            "work in such a child: fork before the first launch, or start the child with exec\n");
}

TEST_F(CudaErrors, ForkingWhileTheDriverIsInitialisedIsAnError) {
  EXPECT_EQ(run_child(FAKE_CUDA, {"fork_during", cubin().string()}, "FAKE_CUDA_INIT_MS=400"),
            "this process was forked after its parent had used a GPU, and NVIDIA's driver does not "
            "work in such a child: fork before the first launch, or start the child with exec\n");
}

TEST_F(CudaErrors, LaunchesAndReleasesWhileTheProcessExits) {
  EXPECT_EQ(run_child(FAKE_CUDA, {"exit", cubin().string()}),
            "launched\nlaunched\nall is let go\n");
}

// Whatever call it is that fails first, of the driver or of NVML.
TEST_F(CudaErrors, TheFirstLaunchOfAProcessMayFailAndTheNextWorks) {
  int failed = 0;
  for (int call = 1; call <= 30; ++call) {
    const std::string said = run_child(FAKE_CUDA, {"retry", cubin().string()},
                                       fmt::format("FAKE_CUDA_FAULT_CALL={}", call));
    const bool once = said.find('\n') + 1 == said.size();
    failed += once ? 0 : 1;
    EXPECT_TRUE(said == "launched\n" || said.ends_with("the driver's error 999\nlaunched\n"))
        << call << ": " << said;
  }
  EXPECT_GT(failed, 15);
}

TEST_F(CudaErrors, DevicesOfOtherCapabilitiesOnly) {
  EXPECT_EQ(run_child(FAKE_CUDA, {"reason"}), "they can\n");
  EXPECT_EQ(run_child(FAKE_CUDA, {"reason"}, "FAKE_CUDA_MAJOR=8"),
            "target 'sm90a' needs a GPU of compute capability 9.0 exactly, this machine has 8.0\n");
  EXPECT_EQ(run_child(FAKE_CUDA, {"load", cubin().string()}, "FAKE_CUDA_MAJOR=8"),
            "cannot load kernel 'kernel': target 'sm90a' needs a GPU of compute capability 9.0 "
            "exactly, this machine has 8.0\n");
  Target other = target;
  other.features = {"sm_120"};
  EXPECT_EQ(backend().unavailable_reason(other),
            "target 'sm90a' needs a GPU of compute capability 12.0, this machine has 9.0, 9.0");
  other.features = {};
  EXPECT_EQ(backend().unavailable_reason(other),
            "target 'sm90a' cannot run here: target 'sm90a' must name its architecture among its "
            "features, as in \"sm_90a\"");
}

TEST_F(CudaErrors, AFileThatIsNoCubin) {
  write_file(cubin(), "PTX, perhaps");
  EXPECT_EQ(error_of(ErrorCode::load_failed, [&] { load(); }),
            "cannot load kernel 'kernel': '" + cubin().string() +
                "' must be a cubin (an ELF file), but is not; clear its cache entry to build it "
                "again");
  remove_tree(cubin());
  EXPECT_EQ(error_of(ErrorCode::load_failed, [&] { load(); })
                .find("cannot load kernel 'kernel': cannot read"),
            0U);
}

TEST_F(CudaErrors, ACubinThatTheDriverRefuses) {
  struct Case {
    int result;
    ErrorCode code;
    std::string words;
  };
  const std::string later =
      "; the driver supports CUDA 12.4: a cubin of a later CUDA needs a later driver, or build it "
      "with an earlier NVRTC (TESSERA_NVRTC)";
  const Case cases[] = {
      {200, ErrorCode::load_failed, "CUDA_ERROR_INVALID_IMAGE (as the test wished)" + later},
      {209, ErrorCode::load_failed, "CUDA_ERROR_NO_BINARY_FOR_GPU (as the test wished)" + later},
      {2, ErrorCode::out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY (as the test wished)"},
      {4711, ErrorCode::load_failed, "the driver's error 4711"}};
  fake().settings().cuda_version = 12040;
  for (const Case& c : cases) {
    fake().settings().load_result = c.result;
    EXPECT_EQ(
        error_of(c.code, [&] { load()->launch(small_launch(), {}); }),
        std::string("cannot load kernel 'kernel' for sm_90a on ") + kDevice0 + ": " + c.words);
  }
}

TEST_F(CudaErrors, ACubinOfAnotherKernelOrAbi) {
  fake().settings().fail_symbol = 1;
  EXPECT_EQ(error_of(ErrorCode::load_failed, [&] { load()->launch(small_launch(), {}); }),
            "cannot load kernel 'kernel': its cubin must hold the entry 'kernel', but does not; "
            "clear its cache entry to build it again");
  fake().settings().fail_symbol = 0;
  for (const auto& [version, words] : {std::pair{7, "7"}, std::pair{-1, "none"}}) {
    fake().settings().abi_version = version;
    EXPECT_EQ(error_of(ErrorCode::load_failed, [&] { load()->launch(small_launch(), {}); }),
              std::string("cannot load kernel 'kernel': its ABI version must be 5, got ") + words +
                  "; clear its cache entry to build it again");
  }
  EXPECT_EQ(fake().counters().modules, fake().counters().unloads);
}

TEST_F(CudaErrors, ADeviceThatIsNotThere) {
  EXPECT_EQ(
      error_of(ErrorCode::invalid_argument, [&] { load()->launch(small_launch(), {.device = 5}); }),
      "device 5 was asked for, this machine has devices 0 to 1");
}

TEST_F(CudaErrors, MoreMemoryThanThereIs) {
  fake().settings().memory_bytes = 1 << 20;
  EXPECT_EQ(error_of(ErrorCode::out_of_memory, [&] { backend().allocate(5 << 20, {}); }),
            std::string("cannot allocate 5242880 bytes on ") + kDevice0 +
                ": CUDA_ERROR_OUT_OF_MEMORY (as the test wished)");
  Launch launch = small_launch();
  launch.workspace.bytes = 5 << 20;
  int fresh = 0;
  EXPECT_EQ(error_of(ErrorCode::out_of_memory, [&] { load()->launch(launch, {.stream = &fresh}); }),
            std::string("kernel: cannot allocate 5242880 bytes of workspace on ") + kDevice0 +
                ": CUDA_ERROR_OUT_OF_MEMORY (as the test wished)");
}

TEST_F(CudaErrors, MoreSharedMemoryThanABlockHas) {
  Launch launch = small_launch();
  launch.steps[0].shared_memory_bytes = 300'000;
  EXPECT_EQ(error_of(ErrorCode::launch_failed, [&] { load()->launch(launch, {}); }),
            std::string("kernel: ") + kDevice0 +
                " does not grant it 300000 bytes of shared memory: CUDA_ERROR_INVALID_VALUE (as "
                "the test wished)");
}

TEST_F(CudaErrors, PointersOfTheHostAndOfOtherDevices) {
  const DeviceBuffer here({&backend(), {.device = 0}}, 4096);
  const DeviceBuffer there({&backend(), {.device = 1}}, 4096);
  const int on_the_stack = 0;
  const auto launch_with = [&](const void* pointer) {
    Launch launch = small_launch();
    launch.pointers = {nullptr, pointer};  // the first operand is not there
    load()->launch(launch, {});
  };
  launch_with(static_cast<char*>(here.data()) + 4095);
  const int queries = fake().counters().pointer_queries;
  launch_with(static_cast<char*>(here.data()) + 4095);
  EXPECT_EQ(fake().counters().pointer_queries, queries);

  const std::string host =
      error_of(ErrorCode::invalid_argument, [&] { launch_with(&on_the_stack); });
  EXPECT_EQ(host.find("kernel: the pointer 0x"), 0U);
  EXPECT_NE(host.find(std::string(" is not memory of a GPU; copy the operand to ") + kDevice0),
            std::string::npos);
  const std::string other =
      error_of(ErrorCode::invalid_argument, [&] { launch_with(there.data()); });
  EXPECT_NE(
      other.find(" is memory of device 1, the kernel was to run on device 0; launch it there, "
                 "or copy the operand"),
      std::string::npos)
      << other;
}

TEST_F(CudaErrors, ALaunchThatIsRefused) {
  fake().settings().launch_result = 701;
  const auto kernel = load();
  EXPECT_EQ(error_of(ErrorCode::launch_failed, [&] { kernel->launch(small_launch(), {}); }),
            std::string("cannot launch kernel 'kernel' on ") + kDevice0 +
                ": CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (as the test wished)");
  fake().settings().launch_result = 0;
  const int contexts = fake().counters().contexts;
  kernel->launch(small_launch(), {});
  EXPECT_EQ(fake().counters().contexts, contexts);  // nothing was lost
}

TEST_F(CudaErrors, AKernelThatFailsIsNamedByWhoWaitsAndTheContextIsRebuilt) {
  const auto good = load("good");
  const auto bad = load("bad");
  const DeviceBuffer memory({&backend(), {}}, 4096);
  const auto event = backend().make_event({});
  good->launch(small_launch(), {});
  fake().settings().async_result = 700;
  bad->launch(small_launch(), {});
  fake().settings().async_result = 0;
  EXPECT_EQ(error_of(ErrorCode::launch_failed, [&] { backend().synchronize({}); }),
            std::string("kernel 'bad', the last one launched on its stream, failed on ") +
                kDevice0 + ": CUDA_ERROR_ILLEGAL_ADDRESS (as the test wished)");
  const int contexts = fake().counters().contexts;
  const int modules = fake().counters().modules;
  good->launch(small_launch(), {});
  backend().synchronize({});
  EXPECT_EQ(fake().counters().contexts, contexts + 1);
  EXPECT_EQ(fake().counters().modules, modules + 1);
  const DeviceBuffer fresh({&backend(), {}}, 4096);
  EXPECT_NE(fresh.data(), nullptr);
}

TEST_F(CudaErrors, ALostContextIsLeftToThoseWhoShareIt) {
  const auto kernel = load();
  kernel->launch(small_launch(), {.device = 1});
  fake().settings().launch_result = 700;
  EXPECT_EQ(
      error_of(ErrorCode::launch_failed, [&] { kernel->launch(small_launch(), {.device = 1}); }),
      "cannot launch kernel 'kernel' on device 1 (Fake GPU 1, compute capability 9.0): an "
      "earlier one failed there, perhaps 'kernel', the last on this stream: "
      "CUDA_ERROR_ILLEGAL_ADDRESS (as the test wished)");
  fake().settings().launch_result = 0;
  fake().settings().other_holder = 1;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(
        error_of(ErrorCode::launch_failed, [&] { kernel->launch(small_launch(), {.device = 1}); }),
        "device 1 (Fake GPU 1, compute capability 9.0) is unusable since a kernel failed on "
        "it: its context cannot be rebuilt, because another part of this process holds it "
        "too; restart the process");
  }
  kernel->launch(small_launch(), {.device = 0});  // the other device goes on
  fake().settings().other_holder = 0;
  kernel->launch(small_launch(), {.device = 1});
}

}  // namespace
}  // namespace tessera::runtime
