// The list of ways.
#include "tessera/families/gemm/ways.h"

#include <array>

namespace tessera::gemm {
namespace {

constexpr std::size_t kPipelines = static_cast<std::size_t>(Pipeline::amx) + 1;
using ByPipeline = std::array<const Way*, kPipelines>;

ByPipeline by_pipeline(bool on_cpu) {
  ByPipeline rows{};
  for (const Way* way : ways()) {
    if ((way->backend == "cpu") == on_cpu) rows[static_cast<std::size_t>(way->pipeline)] = way;
  }
  return rows;
}

}  // namespace

std::span<const Way* const> ways() {
  static constexpr std::array kAll = {&kPackab,   &kPacka,  &kPackb,    &kDirectCpu,  &kStreamCpu,
                                      &kSmallWay, &kAmxWay, &kTmawsWay, &kCpasyncWay, &kStreamGpu,
                                      &kCompv3,   &kCompv4, &kMem,      &kAsync,      &kDirectHip};
  return kAll;
}

const Way* find_way(std::string_view backend, Pipeline pipeline) {
  for (const Way* way : ways()) {
    if (way->pipeline == pipeline && way->backend == backend) return way;
  }
  return nullptr;
}

const Way* find_way(const Algorithm& a) {
  static const ByPipeline kOnCpu = by_pipeline(true), kOnGpu = by_pipeline(false);
  const auto index = static_cast<std::size_t>(a.pipeline);
  const bool on_gpu = a == kGeneralOnHip || streams_on_gpu(a) || kOnCpu[index] == nullptr;
  return on_gpu ? kOnGpu[index] : kOnCpu[index];
}

bool streams_on_gpu(const Algorithm& a) {
  return a.pipeline == Pipeline::stream && a.wave.n * a.wave.k > 1;
}

}  // namespace tessera::gemm
