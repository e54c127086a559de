// A process of its own for what the tests cannot do in theirs: other drivers, and forks.
//   cuda_child reason             why sm90a kernels cannot run here, or "they can"
//   cuda_child launch CUBIN       launches a kernel once
//   cuda_child fork_before CUBIN  asks and loads, forks, and launches in the child
//   cuda_child fork_after CUBIN   launches, forks, and launches in the child
//   cuda_child fork_during CUBIN  forks while another thread initialises the driver
//   cuda_child retry CUBIN        launches until it works, three times at most
//   cuda_child exit CUBIN         launches, and again while the process exits
// The target is sm90a, or what CHILD_TARGET names: then the driver is HIP and CUBIN a code object.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "fake_cuda.h"
#include "tessera/base/error.h"
#include "tessera/families/launch.h"
#include "tessera/runtime/runtime.h"
#include "tessera/targets/targets.h"

namespace {

using namespace tessera;

Launch small_launch() {
  Launch launch;
  launch.arguments.set(std::int64_t{0});
  launch.steps.push({});
  return launch;
}

int run_child(const runtime::LoadedKernel& kernel) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    try {
      kernel.launch(small_launch(), {});
      std::puts("the child launched");
    } catch (const Error& error) {
      std::printf("%s\n", error.what());
    }
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

int fork_during(const runtime::LoadedKernel& kernel) {
  std::thread other([&] { kernel.launch(small_launch(), {}); });
  const fake_cuda::Control driver(std::getenv("TESSERA_CUDA_DRIVER"));
  while (driver.counters().inits_begun == 0) usleep(1000);
  usleep(10'000);  // by now the thread waits, and holds no lock of the fake driver's
  const int status = run_child(kernel);
  other.join();
  return status;
}

int retry(const std::function<void()>& launch) {
  for (int i = 0; i < 3; ++i) {
    try {
      launch();
      std::puts("launched");
      return 0;
    } catch (const Error& error) {
      std::printf("%s\n", error.what());
    }
  }
  return 1;
}

// Older than all that the library keeps for the process, and so destroyed after it.
struct Oldest {
  std::shared_ptr<const runtime::LoadedKernel> kernel;
  std::unique_ptr<runtime::Event> event;
  runtime::DeviceBuffer buffer;

  ~Oldest() {
    if (kernel == nullptr) return;
    retry([this] { kernel->launch(small_launch(), {}); });
    event = nullptr;
    buffer = {};
    kernel = nullptr;
    std::puts("all is let go");
    std::fflush(stdout);
  }
} g_oldest;

int act(const std::string& what, const char* cubin) {
  const char* const wanted = std::getenv("CHILD_TARGET");
  const Target target = load_target(wanted == nullptr ? "sm90a" : wanted);
  const runtime::Backend& backend = runtime::backend_for(target);
  if (what == "reason") {
    const std::string reason = backend.unavailable_reason(target);
    std::puts(reason.empty() ? "they can" : reason.c_str());
    return 0;
  }
  jit::Artifact artifact;
  artifact.name = "kernel";
  artifact.binary = cubin;
  artifact.abi = fake_cuda::kAbi;
  if (what == "retry") {
    return retry([&] {
      backend.load(artifact, target)->launch(small_launch(), {});
      backend.synchronize({});
    });
  }
  const auto kernel = backend.load(artifact, target);
  if (what == "fork_before") return run_child(*kernel);
  if (what == "fork_during") return fork_during(*kernel);
  kernel->launch(small_launch(), {});
  backend.synchronize({});
  if (what == "fork_after") return run_child(*kernel);
  std::puts("launched");
  if (what == "exit") {
    g_oldest.event = backend.make_event({});
    g_oldest.buffer = runtime::DeviceBuffer({&backend, {}}, 4096);
    g_oldest.kernel = kernel;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  return argc < 2 ? 2 : act(argv[1], argc > 2 ? argv[2] : "");
} catch (const Error& error) {
  std::printf("%s\n", error.what());
  return 1;
}
