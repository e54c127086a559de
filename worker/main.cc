// tessera-worker: runs kernels for the autotuner and for sweeps. For the builder it runs NVRTC and
// hiprtc, and loads new kernels first. A crash or a hang then harms only this process.
#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/foreign_error.h"
#include "tessera/base/streams.h"
#include "tessera/families/family.h"
#include "tessera/jit/hip_compilers.h"
#include "tessera/jit/nvrtc.h"
#include "tessera/jit/worker_program.h"
#include "tessera/measure/child.h"
#include "tessera/measure/sweep_worker.h"
#include "tessera/runtime/runtime.h"

namespace {

std::string reply_to(const char* text) {
  const tessera::measure::WorkerRequest request = tessera::measure::worker_request_from_json(text);
  // Ends this process when its parent is gone and cannot end it.
  alarm(static_cast<unsigned>(std::ceil(request.timeout_seconds)) + 1);
  return tessera::measure::serve_worker(request);
}

// Bytes that are not UTF-8, for example of a path, are replaced, because the report would fail
// otherwise.
void print(const nlohmann::json& reply) {
  std::puts(reply.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

// A compiler touches some 100 MB for the first time. The heap grows in large steps of large pages,
// which saves a twentieth of the time. Where the system has no large pages, nothing is lost.
void widen_heap() {
  constexpr int kStep = 64 << 20;
  constexpr std::uintptr_t kLargePage = 2 << 20;
  mallopt(M_MMAP_THRESHOLD, kStep / 2);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, kStep);
  void* const first = std::malloc(kLargePage);
  const std::uintptr_t begin = (reinterpret_cast<std::uintptr_t>(first) | (kLargePage - 1)) + 1;
  const auto end = reinterpret_cast<std::uintptr_t>(sbrk(0));
  std::free(first);
  if (end <= begin || end - begin > 2 * std::uintptr_t{kStep}) return;  // another allocator's heap
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

// "nvrtc WORDS" and "hiprtc WORDS": compile one kernel for the builder. What the compiler's library
// would tidy up at the end goes with the process.
[[noreturn]] void compile(int argc, char** argv) {
  widen_heap();
  std::string output;
  const std::vector<std::string> words(argv + 2, argv + argc);
  const bool is_amd = std::strcmp(argv[1], "hiprtc") == 0;
  const int status =
      is_amd ? tessera::jit::run_hiprtc(words, output) : tessera::jit::run_nvrtc(words, output);
  std::fputs(output.c_str(), stdout);
  std::fflush(stdout);
  _exit(status);
}

std::string load_answer(const char* name, const char* file) {
  tessera::Target any;
  any.backend = "cpu";
  tessera::jit::Artifact artifact;
  artifact.name = name;
  artifact.binary = file;
  const tessera::Family* const family = tessera::find_family(name);
  artifact.abi = family == nullptr ? 0 : int{family->abi};
  try {
    tessera::runtime::backend_for(any).load(artifact, any);
    return std::string(tessera::jit::kLoadsWord);
  } catch (const tessera::Error& error) {
    std::string sentence = error.what();
    std::replace(sentence.begin(), sentence.end(), '\n', ' ');
    return std::string(tessera::jit::kFailsWord) + sentence;
  }
}

// Makes a copy of standard output for the replies and closes the original, so that output of
// kernels goes nowhere. -1 when there is no standard output.
int quiet_output() {
  const int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
  return nothing < 0 || dup2(nothing, STDOUT_FILENO) < 0 ? -1 : out;
}

// "load NAME FILE ...": each answer is written before the next library is loaded.
int load(int argc, char** argv) {
  const int out = quiet_output();
  if (out < 0 || dprintf(out, "%s\n", tessera::jit::kReadyWord.data()) < 0) return 1;
  for (int i = 2; i + 1 < argc; i += 2) {
    dprintf(out, "%s\n", load_answer(argv[i], argv[i + 1]).c_str());
  }
  return 0;
}

int sweep() {
  const int out = quiet_output();
  return out < 0 ? 1 : tessera::measure::serve_sweep(STDIN_FILENO, out);
}

}  // namespace

int main(int argc, char** argv) {
  tessera::open_standard_streams();
  const rlimit no_core_files{0, 0};
  setrlimit(RLIMIT_CORE, &no_core_files);
  for (const char* compiler : {"nvrtc", "hiprtc"}) {
    if (argc > 2 && std::strcmp(argv[1], compiler) == 0) compile(argc, argv);
  }
  if (argc > 2 && std::strcmp(argv[1], tessera::jit::kLoadVerb) == 0) return load(argc, argv);
  if (argc == 2 && std::strcmp(argv[1], "sweep") == 0) return sweep();
  if (argc != 2) {
    std::fputs("usage: tessera-worker REQUEST (one JSON object; see src/tessera/measure/child.h)\n",
               stderr);
    return 2;
  }
  try {
    std::puts(reply_to(argv[1]).c_str());
    return 0;
  } catch (const tessera::Error& error) {
    // A failing GPU kernel breaks its context, not the process.
    const bool by_kernel = error.code() == tessera::ErrorCode::launch_failed;
    print({{"error", error.what()}, {"outcome", by_kernel ? "crashed" : "failed"}});
  } catch (const std::exception& error) {
    print({{"error", tessera::error_of(error).what()}});
  }
  return 1;
}
