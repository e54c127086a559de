// Grouped convolutions as the original's documents show them from C++.
#include <tessera_ck/grouped_conv_dispatcher.hpp>

#include <cmath>
#include <random>

#include "check.h"

using namespace tessera_ck;

DECL_GROUPED_CONV_KERNEL_SET(
    both, .add(GroupedConvSignature().dtype("fp32").layout("nhwgc").conv_type("forward").dims(2),
               GroupedConvAlgorithm().tile(1, 128, 128).pipeline("compv3"))
              .add("fp32", "nhwgc", "bwd_data", 128, 128));
DECL_GROUPED_CONV_KERNEL_ALL(fp32, nhwgc);

namespace {

std::vector<float> drawn(std::int64_t count) {
  std::mt19937 random(std::random_device{}());
  std::uniform_real_distribution<float> draw(-1, 1);
  std::vector<float> made(static_cast<std::size_t>(count));
  for (float& x : made) x = draw(random);
  return made;
}

GroupedConvProblem small() {
  return GroupedConvProblemBuilder()
      .batch(2)
      .channels(8, 6)
      .groups(2)
      .input_size(7, 5)
      .filter_size(3, 3)
      .stride(2, 1)
      .padding(1, 1)
      .operation(GroupedConvOp::Forward)
      .data_type("fp32")
      .build();
}

// x is NHWGC, w is GKYXC.
double exact(const GroupedConvProblem& p, const std::vector<float>& x, const std::vector<float>& w,
             std::int64_t n, std::int64_t h, std::int64_t v, std::int64_t g, std::int64_t k) {
  double sum = 0;
  const std::int64_t c_in = p.C / p.G, k_in = p.K / p.G;
  for (std::int64_t y = 0; y < p.Y(); ++y) {
    for (std::int64_t z = 0; z < p.X(); ++z) {
      const std::int64_t i = h * p.stride[1] + y - p.padding[1],
                         j = v * p.stride[2] + z - p.padding[2];
      if (i < 0 || i >= p.Hi() || j < 0 || j >= p.Wi()) continue;
      for (std::int64_t c = 0; c < c_in; ++c) {
        const std::int64_t at = (((n * p.Hi() + i) * p.Wi() + j) * p.G + g) * c_in + c;
        const std::int64_t of = (((g * k_in + k) * p.Y() + y) * p.X() + z) * c_in + c;
        sum += static_cast<double>(x[static_cast<std::size_t>(at)]) *
               static_cast<double>(w[static_cast<std::size_t>(of)]);
      }
    }
  }
  return sum;
}

bool is_right(const GroupedConvProblem& p, const std::vector<float>& x, const std::vector<float>& w,
              const std::vector<float>& out) {
  std::size_t at = 0;
  for (std::int64_t n = 0; n < p.N; ++n) {
    for (std::int64_t place = 0; place < p.Ho() * p.Wo(); ++place) {
      for (std::int64_t k = 0; k < p.K; ++k, ++at) {
        const double wanted =
            exact(p, x, w, n, place / p.Wo(), place % p.Wo(), k / (p.K / p.G), k % (p.K / p.G));
        if (std::abs(wanted - static_cast<double>(out[at])) > 1e-4) return false;
      }
    }
  }
  return at == out.size();
}

void problems() {
  const GroupedConvProblem p(4, 64, 128, 28, 28, 3, 3, 1, 1, 1, 1);
  CHECK(p.Ho() == 28 && p.Wo() == 28 && p.is_valid() && !p.is_depthwise() && !p.is_pointwise());
  CHECK(p.get_flops() == 2.0 * 4 * 28 * 28 * 128 * 64 * 9);
  CHECK(p.to_string().find("conv direction=forward n=4 c=64 k=128") == 0);
  CHECK_THROWS(GroupedConvProblemBuilder().channels(8, 6).groups(4).build(), std::invalid_argument,
               "C=8 K=6 G=4");
  CHECK_THROWS(GroupedConvProblemBuilder().input_size(2, 2).filter_size(5, 5).build(),
               std::invalid_argument, "Ho=0 Wo=0");
}

void running() {
  const GroupedConvProblem p = small();
  const std::vector<float> x = drawn(p.N * p.Hi() * p.Wi() * p.C);
  const std::vector<float> w = drawn(p.K * p.Y() * p.X() * p.C / p.G);
  std::vector<float> out(static_cast<std::size_t>(p.N * p.Ho() * p.Wo() * p.K));
  GroupedConvRegistry registry("mine");
  CHECK(registry.register_set(GROUPED_CONV_KERNEL_SET(both)) > 0);
  CHECK(registry.find(p) != nullptr && registry.find(p)->is_supported(p));
  GroupedConvDispatcher dispatcher(&registry);
  CHECK(dispatcher.run(x.data(), w.data(), out.data(), p) > 0);
  CHECK(is_right(p, x, w, out));
  out[3] += 1;
  CHECK(!is_right(p, x, w, out));
  dispatcher.set_strategy(GroupedConvDispatcher::SelectionStrategy::Heuristic);
  CHECK(dispatcher.run(x.data(), w.data(), out.data(), p, nullptr, 1, 2) > 0);
  CHECK(is_right(p, x, w, out));
  const GroupedConvKernelInstancePtr best = registry.get_solution(p);
  CHECK(best != nullptr && best == registry.get_solution(p));
  const std::string last =
      registry.filter([&](const GroupedConvKernelInstance& k) { return k.is_supported(p); })
          .back()
          ->name();
  dispatcher.set_heuristic([&](const GroupedConvProblem&) {
    return std::vector<std::string>{"nothing has this", last.substr(5)};
  });
  CHECK(dispatcher.select(p)->name() == last);
  GroupedConvProblem other = p;
  other.op = GroupedConvOp::BackwardWeight;
  CHECK_THROWS(dispatcher.run(x.data(), w.data(), out.data(), other), NoKernelFound,
               "no kernel of the registry 'mine'");
  // Without kernels of its own a registry takes what the machine has.
  CHECK(GroupedConvRegistry().get_solution(other)->is_supported(other));
  // Of the CPU's row that is named, not of the one that this machine has.
  CHECK(fastest_kernel(*machine_for("generic"), other.asked(), {}).ends_with("_generic"));
}

void registries() {
  GroupedConvRegistry registry("all");
  const std::size_t count = registry.register_set(GROUPED_CONV_KERNEL_SET(fp32_nhwgc_all));
  CHECK(count > 3 && registry.size() == count);
  CHECK(registry.export_json().find("\"variant\": \"bwd_weight\"") != std::string::npos);
  CHECK(registry.export_json(true).find("\"by_arch\"") != std::string::npos);
  CHECK_THROWS(registry.export_json_to_file("/nowhere/x.json"), DispatcherError,
               "cannot write /nowhere/x.json");
  CHECK(registry.filter_by_arch("gfx942") == count && registry.empty());
  CHECK(registry.register_set(BEGIN_GROUPED_CONV_KERNEL_SET().add("fp32", "nhwgc", "fwd", 1, 1)) >
        0);
}

// What a declaration asks for narrows it, or is told.
void nothing_is_dropped() {
  const GroupedConvSignature plain = GroupedConvSignature().dtype("fp32");
  for (const int dims : {2, 3}) {
    for (const tessera::KernelSpec& spec :
         kernels_of({GroupedConvSignature(plain).dims(dims), GroupedConvAlgorithm(), ""})) {
      CHECK(std::get<tessera::ConvSignature>(spec.signature).ndim == dims);
    }
  }
  const std::size_t before = ignored_hints().size();
  (void)GroupedConvSignature().groups(1).spec("default");
  CHECK(ignored_hints().size() == before);
  (void)GroupedConvSignature().groups(8).spec("filter1x1");
  CHECK(ignored_hints().size() == before + 2);
  CHECK(ignored_hints().back() == "spec changes nothing: every kernel takes every filter");
}

}  // namespace

int main() {
  problems();
  running();
  registries();
  nothing_is_dropped();
  return finish("grouped_conv");
}
