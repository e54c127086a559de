// Grouped convolutions as programs for the original call them from C++17.
#include <ck_tile/dispatcher_conv.hpp>

#include <cmath>
#include <random>

#include "check.h"

using namespace ck_tile::dispatcher;
using utils::GpuBuffer;

DECL_GROUPED_CONV_KERNEL_SET(
    both, .add(GroupedConvSignature().dtype("fp32").layout("nhwgc").conv_type("forward").dims(2),
               GroupedConvAlgorithm().tile(1, 128, 128).pipeline("compv3"), "gfx942")
              .add("fp32", "nhwgc", "bwd_data", 128, 128)
              .add("fp32", "nhwgc", "bwd_weight", 64, 64));
DECL_GROUPED_CONV_KERNEL_ALL(fp32, nhwgc);

namespace {

std::vector<float> drawn(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> draw(-1, 1);
  std::vector<float> made(static_cast<std::size_t>(count));
  for (float& x : made) x = draw(random);
  return made;
}

GroupedConvProblem small(GroupedConvOp op) {
  return GroupedConvProblemBuilder()
      .batch(2)
      .channels(8, 6)
      .groups(2)
      .input_size(7, 5)
      .filter_size(3, 3)
      .stride(2, 1)
      .padding(1, 1)
      .operation(op)
      .build();
}

// The elements of X (NHWGC), W (GKYXC) and Y (NHWGK).
struct Sizes {
  std::int64_t x, w, y;
  explicit Sizes(const GroupedConvProblem& p)
      : x(p.N * p.Hi() * p.Wi() * p.C),
        w(p.K * p.Y() * p.X() * p.C / p.G),
        y(p.N * p.Ho() * p.Wo() * p.K) {}
};

// Calls work(x, w, y) for each product that a convolution adds.
template <class Work>
void each_product(const GroupedConvProblem& p, const Work& work) {
  const std::int64_t c_in = p.C / p.G, k_in = p.K / p.G;
  for (std::int64_t at = 0; at < Sizes(p).y; ++at) {
    const std::int64_t k = at % k_in, g = at / k_in % p.G, place = at / p.K % (p.Ho() * p.Wo());
    const std::int64_t n = at / p.K / (p.Ho() * p.Wo());
    for (std::int64_t t = 0; t < p.Y() * p.X() * c_in; ++t) {
      const std::int64_t c = t % c_in, z = t / c_in % p.X(), y = t / c_in / p.X();
      const std::int64_t i = place / p.Wo() * p.stride[1] + y - p.padding[1];
      const std::int64_t j = place % p.Wo() * p.stride[2] + z - p.padding[2];
      if (i < 0 || i >= p.Hi() || j < 0 || j >= p.Wi()) continue;
      work((((n * p.Hi() + i) * p.Wi() + j) * p.G + g) * c_in + c,
           (g * k_in + k) * p.Y() * p.X() * c_in + t, at);
    }
  }
}

// One direction on random tensors; the two that are read come first.
bool is_right(GroupedConvDispatcher& dispatcher, GroupedConvOp op, unsigned seed) {
  const GroupedConvProblem p = small(op);
  const Sizes sizes(p);
  const std::int64_t counts[] = {sizes.x, sizes.w, sizes.y};
  const int order[][3] = {{0, 1, 2}, {2, 1, 0}, {0, 2, 1}};
  const int* mine = order[static_cast<int>(op)];
  const std::vector<float> first = drawn(counts[mine[0]], seed);
  const std::vector<float> second = drawn(counts[mine[1]], seed + 1);
  std::vector<float> out(static_cast<std::size_t>(counts[mine[2]]), 777);
  std::vector<double> wanted(out.size());
  each_product(p, [&](std::int64_t x, std::int64_t w, std::int64_t y) {
    const std::int64_t at[] = {x, w, y};
    wanted[static_cast<std::size_t>(at[mine[2]])] +=
        static_cast<double>(first[static_cast<std::size_t>(at[mine[0]])]) *
        static_cast<double>(second[static_cast<std::size_t>(at[mine[1]])]);
  });
  GpuBuffer<float> a(counts[mine[0]]), b(counts[mine[1]]), c(counts[mine[2]]);
  a.copy_from_host(first.data()), b.copy_from_host(second.data()), c.copy_from_host(out.data());
  if (!(dispatcher.run(a.get(), b.get(), c.get(), p, nullptr, 1, 2) > 0)) return false;
  c.copy_to_host(out.data());
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!(std::abs(wanted[i] - static_cast<double>(out[i])) <= 1e-4)) return false;
  }
  return true;
}

void problems() {
  const GroupedConvProblem p(4, 64, 128, 28, 28, 3, 3, 1, 1, 1, 1);
  CHECK(p.Ho() == 28 && p.Wo() == 28 && p.is_valid() && !p.is_depthwise() && !p.is_pointwise());
  CHECK(p.get_flops() == 2.0 * 4 * 28 * 28 * 128 * 64 * 9);
  CHECK(
      grouped_conv_utils::create_depthwise_grouped_conv2d_problem(1, 8, 9, 9, 3, 3).is_depthwise());
  CHECK_THROWS(GroupedConvProblemBuilder().channels(8, 6).groups(4).build(), std::invalid_argument,
               "C=8, K=6, G=4");
  CHECK_THROWS(GroupedConvProblemBuilder().input_size(2, 2).filter_size(5, 5).build(),
               std::invalid_argument, "Ho=0, Wo=0");
}

void running(unsigned seed) {
  GroupedConvRegistry registry("mine");
  CHECK(registry.register_set(GroupedConvKernelSetRegistry::instance().get("both")));
  CHECK(registry.size() == 3);
  GroupedConvDispatcher dispatcher(&registry);
  for (const auto op :
       {GroupedConvOp::Forward, GroupedConvOp::BackwardData, GroupedConvOp::BackwardWeight}) {
    CHECK(is_right(dispatcher, op, seed));
    CHECK(registry.find(small(op))->key().op == op);
  }
  CHECK(dispatcher.run(small(GroupedConvOp::Forward)) == 0);  // no tensors
  CHECK(ignored_hints().back().find("without tensors") != std::string::npos);
  GroupedConvRegistry none("none");
  CHECK_THROWS(GroupedConvDispatcher(&none).run(small(GroupedConvOp::Forward)), NoKernelFound,
               "no kernel of the registry 'none', which has 0");
  CHECK(registry.get_solution(small(GroupedConvOp::Forward))->key().op == GroupedConvOp::Forward);
}

// A kernel of a program's own, and words of names.
void own_kernels_beside_ours() {
  GroupedConvRegistry registry("own");
  registry.register_set(BEGIN_GROUPED_CONV_KERNEL_SET().add("fp32", "nhwc", "forward", 128, 128));
  GroupedConvKernelKey key;
  key.dtype_in = "fp32";
  const auto own = std::make_shared<GroupedConvKernelInstance>(
      key, "my_own", [](const GroupedConvProblem&, void*) { return 2.0F; });
  CHECK(registry.register_kernel(key, own, Priority::Low));
  CHECK(!registry.register_kernel(key, own, Priority::Low));
  GroupedConvDispatcher dispatcher(&registry);
  const GroupedConvProblem p = small(GroupedConvOp::Forward);
  CHECK(dispatcher.select(p)->name().find("grouped_conv_fwd_fp32_nhwc_2d_compv4_") == 0);
  dispatcher.set_heuristic([](const GroupedConvProblem&) {
    return std::vector<std::string>{"nothing has this", "_own"};
  });
  CHECK(dispatcher.select(p)->name() != "my_own");
  dispatcher.set_strategy(GroupedConvDispatcher::SelectionStrategy::Heuristic);
  CHECK(dispatcher.select(p) == own.get() && dispatcher.run(p) == 2.0F);
}

void exact_kernels(unsigned seed) {
  GroupedConvRegistry registry("exact");
  const GroupedConvSignature fp32 = GroupedConvSignature().dtype("fp32").layout("nhwgc");
  registry.register_set(GroupedConvKernelSet().add(fp32, GroupedConvAlgorithm().pipeline("*"), ""));
  CHECK(registry.size() > 1);
  for (const GroupedConvKernelInstance* one : registry.all_kernels()) {
    CHECK(one->name().find("conv_") == 0 && one->name(true) == one->name());
  }
  GroupedConvDispatcher dispatcher(&registry);
  CHECK(is_right(dispatcher, GroupedConvOp::Forward, seed));
  const GroupedConvProblem p = small(GroupedConvOp::Forward);
  const GroupedConvKernelInstancePtr best = registry.get_solution(p);
  CHECK(best != nullptr && best == registry.get_solution(p));
}

void registries() {
  GroupedConvRegistry registry("all");
  CHECK(REGISTER_GENERATED_KERNELS(registry, "gfx950") == 4);  // fp32_nhwgc_all is one more
  CHECK(registry.export_json().find("\"op\": \"bwd_weight\"") != std::string::npos);
  CHECK(registry.export_json(true).find("\"by_arch\": {\"gfx950\": 4}") != std::string::npos);
  CHECK_THROWS(registry.export_json_to_file("/nowhere/x.json"), DispatcherError,
               "cannot write /nowhere/x.json");
  CHECK(registry.filter_by_arch("gfx942") == 4 && registry.empty());
  CHECK_THROWS(registry.register_set(GroupedConvKernelSet().add("fp32", "nhwgc", "sideways", 1, 1)),
               DispatcherError, "sideways");
}

}  // namespace

int main() {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  problems();
  running(seed);
  own_kernels_beside_ours();
  exact_kernels(seed);
  registries();
  return finish("grouped_conv");
}
