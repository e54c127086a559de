// Which kernels there are, and what their ways share.
#include "toy_operation/toy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/base/forever.h"
#include "tessera/families/headers.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/text.h"
#include "toy_operation/device/toy.h"

namespace tessera {

std::span<const EmbeddedFile> toy_headers();  // device/*.h, which tests/CMakeLists.txt embeds

namespace toy {
namespace {

constexpr double kCyclesOfVector = 2;
constexpr double kCyclesOfPart = 60;
constexpr double kAloneSeconds = 1e-7;  // of a call without other threads

constexpr tile::Rule<Case> kCommonRules[] = {
    {[](const Case& c) { return tile::has_pipeline(Op::norm, c.target, c.algorithm.pipeline); },
     [](const Case& c) {
       return fmt::format("{} has no pipeline {}", c.target.name, to_string(c.algorithm.pipeline));
     }},
    {[](const Case& c) { return signature_reason(c.signature).empty(); },
     [](const Case& c) { return signature_reason(c.signature); }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return a == Algorithm{.pipeline = a.pipeline, .tile = a.tile, .wave = {0, 1, 1}};
     },
     [](const Case& c) {
       return fmt::format("wave must be 0x1x1 and what follows it at its default, got wave {}",
                          to_string(c.algorithm.wave));
     }},
};

// The library's operations need no such function: the library carries their headers.
std::shared_ptr<const Headers> headers_with_own(std::string_view text) {
  static Forever<HeaderMap> all([] {
    std::vector<EmbeddedFile> files(cpu_headers().begin(), cpu_headers().end());
    files.insert(files.end(), toy_headers().begin(), toy_headers().end());
    return files;
  }());
  return all->of(text);
}

}  // namespace

std::span<const Way* const> Types::ways() {
  static constexpr std::array kAll = {&kRows, &kStream};
  return kAll;
}

std::span<const tile::Rule<Case>> Types::common_rules() { return kCommonRules; }

std::string Types::no_way(const KernelSpec& spec, const Target& target) {
  return fmt::format("{}: the toy operation has kernels for cpu targets, {} is a {} target",
                     name_of(spec), target.name, target.backend);
}

std::vector<Signature> Types::signatures() {
  return {NormSignature{.kind = NormKind::rmsnorm, .scale = true}};
}

std::vector<Algorithm> algorithms_with(const Target& target, Pipeline pipeline,
                                       bool (*fits)(const Shape3& tile)) {
  std::vector<Algorithm> all =
      tile::shapes_with(tile::space_of(Op::norm, target), pipeline, {Shape3{}});
  std::erase_if(all, [&](const Algorithm& a) { return !fits(a.tile); });
  return all;
}

Source source_of(const KernelSpec& spec, const Target& target, std::string_view header,
                 std::string_view name, const std::string& config) {
  constexpr std::string_view kFirst = "tessera/device/cpu/abi.h\"\n";
  Source source = tile::cpu_source(spec, target, kAbi, {"abi.h", name, "ToyArguments", config},
                                   std::array<std::string, 1>{""});
  source.text.insert(source.text.find(kFirst) + kFirst.size(),
                     fmt::format("#include \"toy_operation/device/{}\"\n", header));
  source.headers = headers_with_own(source.text);
  return source;
}

Launch bind(const KernelSpec&, const NormProblem& p, const Target&, const NormOperands& o) {
  const auto floats = [](const void* data) { return static_cast<const float*>(data); };
  Launch launch;
  launch.arguments.set(device::ToyArguments{p.rows, p.columns, floats(o.in), floats(o.scale),
                                            static_cast<float*>(o.out), p.ld_in, p.ld_out});
  if (p.rows > 0 && p.columns > 0) launch.steps.push({});
  return launch;
}

Estimate estimate_of(const NormProblem& p, const Target& target, int threads, std::int64_t parts) {
  const double used = std::clamp<double>(double(parts), 1, threads);
  const double vectors = double(p.rows) * double(p.columns) * 4 / target.vector_bytes;
  const double cycles = vectors * kCyclesOfVector + double(parts) * kCyclesOfPart;
  return tile::total_of(cycles / (target.clock_ghz * 1e9 * used),
                        bytes(p) / tile::cpu_bandwidth(target, bytes(p), used),
                        threads > 1 ? target.launch_us * 1e-6 : kAloneSeconds);
}

KernelSpec general(const Problem& problem, const Target& target) {
  const Algorithm any = {.pipeline = Pipeline::rows, .tile = {}, .wave = {0, 1, 1}};
  return tile::legal_or_refused(family(), {signature_of(problem), any, target.name}, target);
}

}  // namespace toy
}  // namespace tessera
