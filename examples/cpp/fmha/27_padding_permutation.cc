// Where elements lie: heads before tokens, room behind tokens and behind sequences. The numbers are
// the same, and what lies between them is left alone. TESSERA_TARGET is not used: the memory is the
// host's.
#include <tessera/tessera.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

namespace {

constexpr std::int64_t kPlacedBatch = 2, kPlacedHeads = 3, kPlacedTokens = 17, kPlacedHdim = 24;
constexpr float kGap = -77;

// An order of dimensions, and how many elements lie from one token's head to the next.
struct Placement {
  const char* what;
  tessera::FmhaStrides strides;  // batch, head, token, element
  std::int64_t elements;
};

std::int64_t place_of(const tessera::FmhaStrides& s, std::int64_t i) {
  const std::int64_t element = i % kPlacedHdim, token = i / kPlacedHdim % kPlacedTokens;
  const std::int64_t head = i / kPlacedHdim / kPlacedTokens % kPlacedHeads;
  return i / kPlacedHdim / kPlacedTokens / kPlacedHeads * s[0] + head * s[1] + token * s[2] +
         element * s[3];
}

constexpr std::int64_t kPlacedCount = kPlacedBatch * kPlacedHeads * kPlacedTokens * kPlacedHdim;

std::vector<float> placed_numbers(const Placement& placement, int seed) {
  std::vector<float> all(std::size_t(placement.elements), kGap);
  for (std::int64_t i = 0; i < kPlacedCount; ++i) {
    all[std::size_t(place_of(placement.strides, i))] = float((i * 37 + seed) % 64) / 32.0F - 1;
  }
  return all;
}

}  // namespace

int main() {
  constexpr std::int64_t d = kPlacedHdim, s = kPlacedTokens, h = kPlacedHeads;
  const Placement placements[] = {
      {"batch, token, head", {s * h * d, d, h * d, 1}, kPlacedCount},
      {"batch, head, token", {s * h * d, s * d, d, 1}, kPlacedCount},
      {"token, batch, head", {h * d, d, kPlacedBatch * h * d, 1}, kPlacedCount},
      {"room behind heads", {s * h * 32, 32, h * 32, 1}, kPlacedBatch * s * h * 32},
      {"room behind sequences", {20 * h * d, d, h * d, 1}, kPlacedBatch * 20 * h * d}};
  tessera::Dispatcher dispatcher({.target = tessera::host_target().name});
  std::vector<float> first;
  for (const Placement& placement : placements) {
    tessera::FmhaProblem p =
        tessera::fmha_problem(tessera::DType::fp32, kPlacedBatch, h, h, s, s, d);
    p.q_strides = p.k_strides = p.v_strides = p.out_strides = placement.strides;
    const std::vector<float> q = placed_numbers(placement, 1), k = placed_numbers(placement, 2);
    const std::vector<float> v = placed_numbers(placement, 3);
    std::vector<float> out(q.size(), kGap), result;
    dispatcher.run(
        p, tessera::FmhaOperands{.q = q.data(), .k = k.data(), .v = v.data(), .out = out.data()});
    for (std::int64_t i = 0; i < kPlacedCount; ++i) {
      result.push_back(out[std::size_t(place_of(placement.strides, i))]);
    }
    if (first.empty()) first = result;
    const auto gaps = std::count(out.begin(), out.end(), kGap);
    std::printf("%-22s %s, %td elements left alone\n", placement.what,
                result == first ? "the same bits" : "other bits", gaps);
    if (result != first || gaps != placement.elements - kPlacedCount) return 1;
  }
  return 0;
}
