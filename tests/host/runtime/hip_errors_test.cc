// What the runtime says, and how it goes on, when HIP, a device or a kernel fails.
#include <fmt/format.h>

#include <cstring>

#include "host/runtime/hip_fixture.h"
#include "tessera/base/subprocess.h"
#include "tessera/runtime/hip_info.h"

namespace tessera::runtime {
namespace {

constexpr const char* kAmd0 = "device 0 (Fake Instinct 0, gfx942:sramecc+:xnack-)";

using HipErrors = HipTest;

std::string run_hip_child(const std::string& library, std::vector<std::string> words,
                          const std::string& setting = "FAKE_HIP_DEVICES=1") {
  words.insert(words.begin(), CUDA_CHILD);
  SubprocessOptions options;
  options.extra_environment = {"TESSERA_HIP=" + library, "CHILD_TARGET=gfx942", setting};
  options.timeout_seconds = 30;
  return run_subprocess(words, options).output;
}

TEST_F(HipErrors, AMachineWithoutHip) {
  EXPECT_EQ(run_hip_child("/no/libamdhip64.so", {"reason"}),
            "target 'gfx942' needs an AMD GPU: AMD's HIP runtime /no/libamdhip64.so cannot be "
            "loaded, which TESSERA_HIP names: /no/libamdhip64.so: cannot open shared object file: "
            "No such file or directory; install ROCm's (HIP 5.0 or later), and start a container "
            "with /dev/kfd and /dev/dri\n");
}

TEST_F(HipErrors, HipFromBeforeFive) {
  EXPECT_EQ(run_hip_child(FAKE_HIP_OLD, {"reason"}),
            "target 'gfx942' needs an AMD GPU: AMD's HIP runtime " FAKE_HIP_OLD
            " is too old: it is HIP 4.4.21401 and lacks hipStreamIsCapturing, HIP 5.0 or later is "
            "needed; update ROCm\n");
}

TEST_F(HipErrors, AMachineWithoutADevice) {
  EXPECT_EQ(run_hip_child(FAKE_HIP, {"reason"}, "FAKE_HIP_DEVICES=0"),
            "target 'gfx942' needs a GPU of architecture gfx942: no HIP device: " FAKE_HIP
            " finds none; check that the GPU is visible (rocminfo, HIP_VISIBLE_DEVICES) and that "
            "this user may open /dev/kfd\n");
}

// The properties lie elsewhere in the struct of HIP 5, and unknown memory is a failure there.
TEST_F(HipErrors, BothVersionsRunKernels) {
  for (const char* library : {FAKE_HIP, FAKE_HIP_5}) {
    EXPECT_EQ(run_hip_child(library, {"reason"}), "they can\n") << library;
    EXPECT_EQ(run_hip_child(library, {"launch", code_object().string()}), "launched\n") << library;
    EXPECT_EQ(run_hip_child(library, {"exit", code_object().string()}),
              "launched\nlaunched\nall is let go\n")
        << library;
  }
}

TEST_F(HipErrors, DevicesOfOtherArchitecturesAndXnack) {
  for (const char* library : {FAKE_HIP, FAKE_HIP_5}) {
    EXPECT_EQ(run_hip_child(library, {"reason"}, "FAKE_HIP_ARCHITECTURE=gfx90a:sramecc+:xnack-"),
              "target 'gfx942' needs a GPU of architecture gfx942, this machine has "
              "gfx90a:sramecc+:xnack-\n");
    EXPECT_EQ(run_hip_child(library, {"reason"}, "FAKE_HIP_ARCHITECTURE=gfx942:sramecc+:xnack+"),
              "target 'gfx942' needs a GPU of architecture gfx942, this machine has "
              "gfx942:sramecc+:xnack+ (with xnack on, for which no kernels are built; unset "
              "HSA_XNACK)\n");
  }
  Target odd = target;
  odd.features = {};
  EXPECT_EQ(backend().unavailable_reason(odd),
            "target 'gfx942' cannot run here: target 'gfx942' must name its architecture among its "
            "features, as in \"gfx942\"");
}

TEST_F(HipErrors, ADeviceWithoutARowHasARelative) {
  const std::vector<std::string> rows = {"gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"};
  EXPECT_EQ(row_for("gfx942:sramecc+:xnack-", rows), "gfx942");
  EXPECT_EQ(row_for("gfx1100", rows), "gfx1100");
  struct Case {
    const char* architecture;
    const char* words;
  };
  for (const Case& c :
       {Case{"gfx940:sramecc+", "'gfx940'; its nearest relative is gfx942"},
        Case{"gfx908:xnack-", "'gfx908'; its nearest relative is gfx90a"},
        Case{"gfx1101", "'gfx1101'; its nearest relative is gfx1100"},
        Case{"gfx1200", "'gfx1200'; its nearest relative is gfx1201"},
        Case{"gfx1030", "'gfx1030'; its nearest relative is gfx1100"}, Case{"none", "'none'"}}) {
    EXPECT_EQ(error_of(ErrorCode::unsupported, [&] { row_for(c.architecture, rows); }),
              std::string("there is no target for a GPU of architecture ") + c.words);
  }
}

TEST_F(HipErrors, ForkingAfterALaunchIsAnError) {
  EXPECT_EQ(run_hip_child(FAKE_HIP, {"fork_after", code_object().string()}),
            "this process was forked after its parent had used a GPU, and AMD's HIP runtime does "
            "not work in such a child: fork before the first launch, or start the child with "
            "exec\n");
}

// Whatever call it is that fails first.
TEST_F(HipErrors, TheFirstLaunchOfAProcessMayFailAndTheNextWorks) {
  int failed = 0;
  for (int call = 1; call <= 20; ++call) {
    const std::string said = run_hip_child(FAKE_HIP, {"retry", code_object().string()},
                                           fmt::format("FAKE_HIP_FAULT_CALL={}", call));
    const bool once = said.find('\n') + 1 == said.size();
    failed += once ? 0 : 1;
    EXPECT_TRUE(said == "launched\n" ||
                said.ends_with("hipErrorUnknown (as the test wished)\nlaunched\n"))
        << call << ": " << said;
  }
  EXPECT_GT(failed, 10);
}

TEST_F(HipErrors, AFileThatIsNoCodeObjectOrOneForAnotherTarget) {
  const std::string begin = "cannot load kernel 'kernel': '" + code_object().string() + "' ";
  const std::string end = "; clear its cache entry to build it again";
  for (const std::string& content : {std::string("text"), cubin_of("")}) {
    write_file(code_object(), content);
    EXPECT_EQ(error_of(ErrorCode::load_failed, [&] { load(); }),
              begin + "must be a code object (an ELF file for AMD GPUs), but is not" + end);
  }
  write_file(code_object(), code_object_of("", 0x3f));
  EXPECT_EQ(error_of(ErrorCode::load_failed, [&] { load(); }),
            begin + "must be a code object for gfx942, but is one for gfx90a" + end);
  write_file(code_object(), code_object_of("", 0x7f));
  EXPECT_EQ(error_of(ErrorCode::load_failed, [&] { load(); }),
            begin +
                "must be a code object for gfx942, but is one for an unknown architecture (flag "
                "0x7f)" +
                end);
}

TEST_F(HipErrors, ACodeObjectThatHipRefuses) {
  fake_amd().settings().load_result = 209;
  EXPECT_EQ(error_of(ErrorCode::load_failed, [&] { load()->launch(small_launch(), {}); }),
            std::string("cannot load kernel 'kernel' for gfx942 on ") + kAmd0 +
                ": hipErrorNoBinaryForGpu (as the test wished); this is HIP 6.2.41134; a later one "
                "may know the target");
  fake_amd().settings().load_result = 0;
  fake_amd().settings().fail_symbol = 1;
  EXPECT_EQ(error_of(ErrorCode::load_failed, [&] { load()->launch(small_launch(), {}); }),
            "cannot load kernel 'kernel': its code object must hold the entry 'kernel', but does "
            "not; clear its cache entry to build it again");
  fake_amd().settings().fail_symbol = 0;
  for (const int version : {-1, 4}) {
    fake_amd().settings().abi_version = version;
    EXPECT_EQ(error_of(ErrorCode::load_failed, [&] { load()->launch(small_launch(), {}); }),
              fmt::format("cannot load kernel 'kernel': its ABI version must be 5, got {}; clear "
                          "its cache entry to build it again",
                          version < 0 ? "none" : "4"));
  }
  EXPECT_EQ(fake_amd().held().modules, 0);
}

TEST_F(HipErrors, AFailedLaunchAndAFailedKernelAreNamed) {
  const auto kernel = load();
  kernel->launch(small_launch(), {});
  fake_amd().settings().launch_result = 1;
  EXPECT_EQ(error_of(ErrorCode::launch_failed, [&] { kernel->launch(small_launch(), {}); }),
            std::string("cannot launch kernel 'kernel' on ") + kAmd0 +
                ": hipErrorInvalidValue (as the test wished)");
  EXPECT_EQ(fake_amd().last_error(), 0);
  fake_amd().settings().launch_result = 0;
  fake_amd().settings().async_result = 719;
  kernel->launch(small_launch(), {});
  EXPECT_EQ(error_of(ErrorCode::launch_failed, [&] { backend().synchronize({}); }),
            std::string("kernel 'kernel', the last one launched on its stream, failed on ") +
                kAmd0 + ": hipErrorLaunchFailure (as the test wished)");
  // HIP goes on, so the next launch does too.
  fake_amd().settings().async_result = 0;
  kernel->launch(small_launch(), {});
  backend().synchronize({});
}

TEST_F(HipErrors, ADeviceThatStaysLostIsReported) {
  const auto kernel = load();
  fake_amd().settings().async_result = 700;
  fake_amd().settings().async_lasts = 1;
  kernel->launch(small_launch(), {});
  error_of(ErrorCode::launch_failed, [&] { backend().synchronize({}); });
  EXPECT_EQ(error_of(ErrorCode::launch_failed, [&] { kernel->launch(small_launch(), {}); }),
            std::string(kAmd0) +
                " is unusable since a kernel failed on it: HIP cannot make it usable again within "
                "this process; restart the process");
}

TEST_F(HipErrors, AnEmulatorsFindingIsPartOfTheSentence) {
  const auto kernel = load();
  fake_amd().settings().async_result = 719;
  std::strcpy(fake_amd().settings().finding, "wave 3 reads LDS byte 64 that wave 1 writes");
  kernel->launch(small_launch(), {});
  EXPECT_EQ(error_of(ErrorCode::launch_failed, [&] { backend().synchronize({}); }),
            std::string("kernel 'kernel', the last one launched on its stream, failed on ") +
                kAmd0 +
                ": hipErrorLaunchFailure (as the test wished): wave 3 reads LDS byte 64 that wave "
                "1 writes");
}

// An emulator runs a kernel at once, so that it is the launched kernel which failed.
TEST_F(HipErrors, AnEmulatorsFindingAtTheLaunchIsTheKernels) {
  const auto kernel = load();
  fake_amd().settings().launch_result = 719;
  std::strcpy(fake_amd().settings().finding, "wave 0 reads 4 bytes outside of all buffers");
  EXPECT_EQ(error_of(ErrorCode::launch_failed, [&] { kernel->launch(small_launch(), {}); }),
            std::string("kernel 'kernel' failed on ") + kAmd0 +
                ": hipErrorLaunchFailure (as the test wished): wave 0 reads 4 bytes outside of all "
                "buffers");
}

TEST_F(HipErrors, MemoryThatIsNotThereIsOutOfMemory) {
  EXPECT_EQ(
      error_of(ErrorCode::out_of_memory, [&] { backend().allocate(std::size_t{1} << 40, {}); }),
      std::string("cannot allocate 1099511627776 bytes on ") + kAmd0 +
          ": hipErrorOutOfMemory (as the test wished)");
  EXPECT_EQ(error_of(ErrorCode::invalid_argument, [&] { backend().allocate(8, {.device = 7}); }),
            "device 7 was asked for, this machine has devices 0 to 1");
}

// Each call of a launch, its workspace and its end fails once: the error holds HIP's words, nothing
// is left behind, and the next launch works.
TEST_F(HipErrors, AnyCallMayFail) {
  Launch launch = small_launch();
  launch.workspace = {.bytes = 1 << 17, .counter_bytes = 0, .clear_bytes = 0, .address_offset = 8};
  launch.steps[0].extent = Step::Extent::resident;
  int failed = 0;
  for (int call = 1; call <= 20; ++call) {
    fake_amd().reset();
    const int modules = fake_amd().held().modules;
    fake_amd().settings().fault_call = call;
    try {
      const DeviceBuffer memory({&backend(), {}}, 64);
      load()->launch(launch, {.stream = &failed});
      backend().synchronize({.stream = &failed});
    } catch (const Error& error) {
      ++failed;
      EXPECT_NE(std::string(error.what()).find("hipErrorUnknown (as the test wished)"),
                std::string::npos)
          << call << ": " << error.what();
    }
    fake_amd().settings().fault_call = 0;
    load()->launch(launch, {.stream = &failed});
    const std::string hit = fake_amd().counters().fault_hit;
    EXPECT_EQ(fake_amd().held().modules, modules + (hit == "hipModuleUnload" ? 1 : 0)) << hit;
    EXPECT_EQ(fake_amd().last_error(), 0) << hit;
  }
  EXPECT_GT(failed, 8);
}

}  // namespace
}  // namespace tessera::runtime
