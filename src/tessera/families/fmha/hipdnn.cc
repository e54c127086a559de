// Why hipDNN cannot be told of attention's kernels.
#include "tessera/families/hipdnn.h"

#include "tessera/families/fmha/ways.h"

namespace tessera::fmha {
namespace {

std::string_view what_is_missing(const KernelSpec& spec) {
  const FmhaSignature& s = signature_in(spec);
  if (s.kind == FmhaKind::append) return "no node of a graph appends keys and values to a cache";
  if (s.kind != FmhaKind::forward) {
    return "its launch has several steps, and a dispatch descriptor has one (RFC 0017, 15)";
  }
  if (spec.algorithm.pipeline == Pipeline::direct) {
    return "no pattern of a graph is written down for attention on the ordinary lanes";
  }
  return "q, k, v and out must lie at multiples of 16 bytes, and no criterion can read the "
         "alignment of a tensor (RFC 0020, 6.1)";
}

}  // namespace

hipdnn::Kernel refuse_hipdnn(const KernelSpec& spec, const Target&) {
  hipdnn::Kernel kernel;
  kernel.refusal = what_is_missing(spec);
  return kernel;
}

}  // namespace tessera::fmha
