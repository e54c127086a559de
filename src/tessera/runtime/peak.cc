// Background: a kernel's speed means something only as a share of what this very machine can do
// today, at the clock it really runs at. Approach: the arithmetic roofs are loops of independent
// multiply-adds that never leave the registers, long enough to settle the clock; the bandwidth roof
// is the fastest of several ways to read a buffer that no cache holds.
//
// The library is compiled for the baseline processor, so the loops are assembly chosen at run time.
#include <omp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/runtime/benchmark_internal.h"
#include "tessera/runtime/cpu_features_internal.h"
#include "tessera/runtime/runtime.h"

namespace tessera::runtime {
namespace {

constexpr int kArithmeticReadings = 7;
constexpr double kArithmeticSeconds = 0.006;  // seconds of one reading
constexpr int kReadReadings = 5;
constexpr double kReadBudgetSeconds = 0.35;  // seconds for one thread, and as many for all threads

struct PeakLoop {
  std::string_view feature;  // what the processor must have; empty: nothing
  void (*run)(long iterations);
  double ops_per_iteration;  // a multiply-add counts as 2
};

#if defined(__x86_64__)

// 24 accumulators of 512 bits, or 12 of 256: more than latency times issue rate of any core so far.
// The sources hold small ordinary numbers, since a multiplier fed with zeros draws less power and
// would clock higher than it does on real work. Integer loops may hold any bits.
constexpr float kTinyStep = 1e-3F;

__attribute__((target("avx512f"))) void fma_avx512(long n) {
  __asm__ volatile(
      "vbroadcastss %1, %%zmm30\n"
      "vbroadcastss %1, %%zmm31\n"
      ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n"
      "vpxord %%zmm\\i, %%zmm\\i, %%zmm\\i\n"
      ".endr\n"
      ".balign 64\n"
      "1:\n"
      ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n"
      "vfmadd231ps %%zmm30, %%zmm31, %%zmm\\i\n"
      ".endr\n"
      "sub $1, %0\n"
      "jnz 1b\n"
      "vzeroupper\n"
      : "+r"(n)
      : "m"(kTinyStep)
      : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
        "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19",
        "xmm20", "xmm21", "xmm22", "xmm23", "xmm30", "xmm31");
}

__attribute__((target("avx512f,avx512bf16"))) void dpbf16_avx512(long n) {
  __asm__ volatile(
      "vbroadcastss %1, %%zmm30\n"
      "vbroadcastss %1, %%zmm31\n"
      ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n"
      "vpxord %%zmm\\i, %%zmm\\i, %%zmm\\i\n"
      ".endr\n"
      ".balign 64\n"
      "1:\n"
      ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n"
      "vdpbf16ps %%zmm30, %%zmm31, %%zmm\\i\n"
      ".endr\n"
      "sub $1, %0\n"
      "jnz 1b\n"
      "vzeroupper\n"
      : "+r"(n)
      : "m"(kTinyStep)
      : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
        "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19",
        "xmm20", "xmm21", "xmm22", "xmm23", "xmm30", "xmm31");
}

__attribute__((target("avx512f,avx512vnni"))) void vnni_avx512(long n) {
  __asm__ volatile(
      "vbroadcastss %1, %%zmm30\n"
      "vbroadcastss %1, %%zmm31\n"
      ".balign 64\n"
      "1:\n"
      ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n"
      "vpdpbusd %%zmm30, %%zmm31, %%zmm\\i\n"
      ".endr\n"
      "sub $1, %0\n"
      "jnz 1b\n"
      "vzeroupper\n"
      : "+r"(n)
      : "m"(kTinyStep)
      : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
        "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19",
        "xmm20", "xmm21", "xmm22", "xmm23", "xmm30", "xmm31");
}

__attribute__((target("avx2,fma"))) void fma_avx2(long n) {
  __asm__ volatile(
      "vbroadcastss %1, %%ymm14\n"
      "vbroadcastss %1, %%ymm15\n"
      ".irp i,0,1,2,3,4,5,6,7,8,9,10,11\n"
      "vxorps %%ymm\\i, %%ymm\\i, %%ymm\\i\n"
      ".endr\n"
      ".balign 64\n"
      "1:\n"
      ".irp i,0,1,2,3,4,5,6,7,8,9,10,11\n"
      "vfmadd231ps %%ymm14, %%ymm15, %%ymm\\i\n"
      ".endr\n"
      "sub $1, %0\n"
      "jnz 1b\n"
      "vzeroupper\n"
      : "+r"(n)
      : "m"(kTinyStep)
      : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
        "xmm10", "xmm11", "xmm14", "xmm15");
}

// Without VNNI, int8 is widened to int16 and multiplied in pairs: two instructions a step.
__attribute__((target("avx2"))) void maddwd_avx2(long n) {
  __asm__ volatile(
      "vbroadcastss %1, %%ymm14\n"
      "vbroadcastss %1, %%ymm15\n"
      ".balign 64\n"
      "1:\n"
      ".irp i,0,1,2,3,4,5,6,7,8,9,10,11\n"
      "vpmaddwd %%ymm14, %%ymm15, %%ymm13\n"
      "vpaddd %%ymm13, %%ymm\\i, %%ymm\\i\n"
      ".endr\n"
      "sub $1, %0\n"
      "jnz 1b\n"
      "vzeroupper\n"
      : "+r"(n)
      : "m"(kTinyStep)
      : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
        "xmm10", "xmm11", "xmm13", "xmm14", "xmm15");
}

#endif

// What any vector machine can do: whatever the compiler makes of a multiply-add on 128-bit vectors.
void multiply_add_portable(long n) {
  using Vector [[gnu::vector_size(16)]] = float;
  std::array<Vector, 12> sums{};
  Vector x = {1e-3F, 1e-3F, 1e-3F, 1e-3F};
  for (long i = 0; i < n; ++i) {
    __asm__ volatile("" : "+m"(x));
    for (Vector& sum : sums) sum += x * x;
  }
  __asm__ volatile("" : : "r"(sums.data()) : "memory");
}

// Best first; the first one that the processor has is the roof.
constexpr std::array kFp32Loops = {
#if defined(__x86_64__)
    PeakLoop{"avx512f", fma_avx512, 24 * 16 * 2},
    PeakLoop{"fma", fma_avx2, 12 * 8 * 2},
#endif
    PeakLoop{"", multiply_add_portable, 12 * 4 * 2},
};

#if defined(__x86_64__)
constexpr std::array kBf16Loops = {
    PeakLoop{"avx512bf16", dpbf16_avx512, 24 * 16 * 2 * 2},
};
constexpr std::array kInt8Loops = {
    PeakLoop{"avx512vnni", vnni_avx512, 24 * 16 * 4 * 2},
    PeakLoop{"avx2", maddwd_avx2, 12 * 8 * 2 * 2},
};
#else
constexpr std::array<PeakLoop, 0> kBf16Loops = {};
constexpr std::array<PeakLoop, 0> kInt8Loops = {};
#endif

double ops_per_second(const PeakLoop& loop) {
  // Doubling up to the wanted length also brings the clock to where it stays.
  long iterations = 1024;
  double elapsed = 0;
  while (elapsed < kArithmeticSeconds) {
    iterations *= 2;
    const double begin = steady_seconds();
    loop.run(iterations);
    elapsed = steady_seconds() - begin;
  }
  std::vector<double> speeds;
  for (int i = 0; i < kArithmeticReadings; ++i) {
    const double begin = steady_seconds();
    loop.run(iterations);
    elapsed = steady_seconds() - begin;
    speeds.push_back(loop.ops_per_iteration * static_cast<double>(iterations) / elapsed);
  }
  return *std::max_element(speeds.begin(), speeds.end());
}

template <std::size_t kCount>
double arithmetic_peak(const std::array<PeakLoop, kCount>& loops) {
  for (const PeakLoop& loop : loops) {
    if (loop.feature.empty() || cpu_has(loop.feature)) return ops_per_second(loop);
  }
  return 0;
}

using Vector128 [[gnu::vector_size(16)]] = std::uint64_t;
using Vector512 [[gnu::vector_size(64)]] = std::uint64_t;

// Adds up a buffer, read as kStreams runs side by side, each asked for kAhead bytes early. Callers
// round the buffer to whole strides.
template <class Vector, int kStreams, int kAhead>
[[gnu::always_inline]] inline std::uint64_t sum_streams(const std::byte* data, std::size_t bytes) {
  constexpr std::size_t kStep = 256;
  constexpr std::size_t kVectors = kStep / sizeof(Vector);
  const std::size_t run = bytes / kStreams;
  std::array<Vector, 8> sums{};
  for (std::size_t at = 0; at + kStep <= run; at += kStep) {
    for (int stream = 0; stream < kStreams; ++stream) {
      const std::byte* from = data + static_cast<std::size_t>(stream) * run + at;
      for (std::size_t line = 0; line < kStep && kAhead > 0; line += 64) {
        __builtin_prefetch(from + kAhead + line);
      }
      const auto* vectors = reinterpret_cast<const Vector*>(from);
#pragma GCC unroll 16
      for (std::size_t i = 0; i < kVectors; ++i) sums[i % sums.size()] += vectors[i];
    }
  }
  Vector total = sums[0];
  for (std::size_t i = 1; i < sums.size(); ++i) total += sums[i];
  std::uint64_t result = 0;
  for (std::size_t i = 0; i < sizeof(Vector) / sizeof(std::uint64_t); ++i) result += total[i];
  return result;
}

template <int kStreams, int kAhead>
std::uint64_t sum_portable(const std::byte* data, std::size_t bytes) {
  return sum_streams<Vector128, kStreams, kAhead>(data, bytes);
}

using ReadLoop = std::uint64_t (*)(const std::byte*, std::size_t);
constexpr std::array<ReadLoop, 4> kPortableReaders = {
    sum_portable<1, 0>,
    sum_portable<1, 4096>,
    sum_portable<2, 2048>,
    sum_portable<4, 1024>,
};

#if defined(__x86_64__)
template <int kStreams, int kAhead>
__attribute__((target("avx512f"))) std::uint64_t sum_avx512(const std::byte* data,
                                                            std::size_t bytes) {
  return sum_streams<Vector512, kStreams, kAhead>(data, bytes);
}
constexpr std::array<ReadLoop, 4> kAvx512Readers = {
    sum_avx512<1, 0>,
    sum_avx512<1, 4096>,
    sum_avx512<2, 2048>,
    sum_avx512<4, 1024>,
};

std::span<const ReadLoop> readers() {
  return cpu_has("avx512f") ? std::span<const ReadLoop>(kAvx512Readers) : kPortableReaders;
}
#else
std::span<const ReadLoop> readers() { return kPortableReaders; }
#endif

// Each thread owns one slice: it touches it first, so that it lies in its own memory, and reads it.
class ReadBench {
 public:
  ReadBench(std::size_t bytes, int threads)
      : threads_(threads),
        slice_(bytes / static_cast<std::size_t>(threads) / kRound * kRound),
        buffer_(slice_ * static_cast<std::size_t>(threads)) {
    on_each_slice([](std::byte* data, std::size_t size) { std::memset(data, 0x5a, size); });
  }

  // The fastest reading: a roof is what nothing exceeds, and a busy machine only lowers readings.
  double bytes_per_second() {
    const double begin = steady_seconds();
    double best = 0;
    for (const ReadLoop reader : readers()) {
      std::vector<double> speeds;
      for (int i = 0; i < kReadReadings; ++i) {
        speeds.push_back(read_speed(reader));
        if (steady_seconds() - begin > kReadBudgetSeconds) break;
      }
      best = std::max(best, *std::max_element(speeds.begin(), speeds.end()));
      if (steady_seconds() - begin > kReadBudgetSeconds) break;
    }
    return best;
  }

 private:
  static constexpr std::size_t kRound = 4096;

  template <class Function>
  void on_each_slice(const Function& function) {
    auto* const data = static_cast<std::byte*>(buffer_.data());
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
    for (int i = 0; i < threads_; ++i)
      function(data + static_cast<std::size_t>(i) * slice_, slice_);
  }

  double read_speed(ReadLoop reader) {
    const double begin = steady_seconds();
    on_each_slice([&](const std::byte* data, std::size_t size) {
      const std::uint64_t sum = reader(data, size);
      __asm__ volatile("" : : "r"(sum));
    });
    const double elapsed = steady_seconds() - begin;
    return static_cast<double>(buffer_.size()) / elapsed;
  }

  int threads_;
  std::size_t slice_;
  AlignedBuffer buffer_;
};

// Four times the last-level cache, so that at most a quarter of it can be in the cache from the
// previous pass.
std::size_t read_buffer_bytes() {
  constexpr std::int64_t kLeast = std::int64_t{256} << 20;
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  return static_cast<std::size_t>(std::clamp(4 * last_level_cache_bytes(), kLeast, kMost));
}

MachinePeak measure_peak() {
  MachinePeak peak;
  peak.fp32_flops = arithmetic_peak(kFp32Loops);
  peak.bf16_flops = arithmetic_peak(kBf16Loops);
  peak.int8_ops = arithmetic_peak(kInt8Loops);
  const std::size_t bytes = read_buffer_bytes();
  peak.read_bytes_per_s = ReadBench(bytes, 1).bytes_per_second();
  const int threads = thread_limit({});
  // All threads together cannot be slower than one. A smaller reading means that the machine was
  // busy.
  const double all = threads > 1 ? ReadBench(bytes, threads).bytes_per_second() : 0;
  peak.read_bytes_per_s_all = std::max(all, peak.read_bytes_per_s);
  return peak;
}

}  // namespace

const MachinePeak& machine_peak() {
  static const MachinePeak peak = measure_peak();
  return peak;
}

}  // namespace tessera::runtime
