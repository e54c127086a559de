// Runs one dispatcher for as many different problems as the first argument says, and tells what
// one more problem costs: bytes of heap, time, descriptors, mappings and threads.
#include <malloc.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <tessera/tessera.hpp>

namespace {

constexpr double kMostBytes = 1100;  // what docs/decisions/choosing_and_commands.md promises

double heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

long entries_of(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

long mappings() {
  std::ifstream file("/proc/self/maps");
  long lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  return lines;
}

tessera::GemmProblem numbered(long i) {
  return tessera::gemm_problem(tessera::DType::fp32, tessera::GemmLayout::rcr, 1 + i % 1000,
                               64 + i / 1000, 64);
}

}  // namespace

int main(int argc, char** argv) {
  const long problems = argc > 1 ? std::atol(argv[1]) : 1'000'000;
  auto registry = std::make_shared<tessera::Registry>("few");
  const tessera::Target target = tessera::host_target();
  registry->declare(tessera::general_kernel(numbered(0), target));
  registry->declare(
      tessera::KernelSetBuilder("few", target).for_problem(numbered(500'000), 3).build());
  tessera::Dispatcher dispatcher({}, registry);
  tessera::RunOptions run;
  run.launch.threads = 1;
  const long warm = problems / 10;
  const tessera::ReadyKernel& first = dispatcher.kernel_for(numbered(0), run);
  const std::string name = first.name;
  for (long i = 1; i < warm; ++i) dispatcher.kernel_for(numbered(i), run);

  const double heap = heap_bytes();
  const long descriptors = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");
  const long maps = mappings();
  const auto begin = std::chrono::steady_clock::now();
  for (long i = warm; i < problems; ++i) dispatcher.kernel_for(numbered(i), run);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;

  const double each = (heap_bytes() - heap) / static_cast<double>(problems - warm);
  std::printf(
      "%ld problems: %.0f bytes and %.1f us each; descriptors %+ld, threads %+ld, "
      "mappings %+ld\n",
      problems, each, 1e6 * took.count() / static_cast<double>(problems - warm),
      entries_of("/proc/self/fd") - descriptors, entries_of("/proc/self/task") - threads,
      mappings() - maps);
  const bool good = each <= kMostBytes && entries_of("/proc/self/fd") == descriptors &&
                    entries_of("/proc/self/task") == threads && first.name == name;
  return good ? 0 : 1;
}
