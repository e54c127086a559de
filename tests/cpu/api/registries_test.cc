// Several registries and dispatchers side by side, and registries that travel.
#include <atomic>
#include <thread>

#include "fixture.h"

namespace tessera::api_test {
namespace {

struct ApiRegistries : ApiTest {
  // A registry of one pipeline's kernels with one register block.
  std::shared_ptr<Registry> registry_of(const std::string& name, std::string_view pipeline,
                                        const Target& target) const {
    auto registry = std::make_shared<Registry>(name, build_options());
    registry->add_target(target);
    registry->declare(KernelSetBuilder(name, target)
                          .gemm()
                          .dtype("fp32")
                          .layout("rcr")
                          .variant("standard")
                          .pipeline(pipeline)
                          .tile("48x192x256")
                          .wave("0x0x1")
                          .warp_tile("4x8x1")
                          .build());
    return registry;
  }
  Target mine() const {
    Target target = load_target("generic");
    target.name = "mine";
    return target;
  }
};

TEST_F(ApiRegistries, WorkSideBySideInManyThreads) {
  const Target generic = load_target("generic");
  const auto both = registry_of("both", "packab", generic);
  const auto b_only = registry_of("b_only", "packb", generic);
  std::vector<std::unique_ptr<Dispatcher>> dispatchers;
  dispatchers.push_back(std::make_unique<Dispatcher>(options(), both));
  dispatchers.push_back(std::make_unique<Dispatcher>(options(), b_only));
  dispatchers.push_back(std::make_unique<Dispatcher>(options(), b_only));  // two share one
  dispatchers.push_back(std::make_unique<Dispatcher>(options("")));        // and one of its own

  std::vector<std::thread> threads;
  std::vector<std::string> failures(8, "not run");
  for (std::size_t t = 0; t < failures.size(); ++t) {
    threads.emplace_back([&, t] {
      Dispatcher& dispatcher = *dispatchers[t % dispatchers.size()];
      failures[t] = error_of([&] {
        for (std::int64_t m = 1; m < 40; m += 9) {
          const measure::OwnedOperands owned = measure::random_operands(small(m), seed + t);
          dispatcher.run(small(m), owned.operands, with(1));
        }
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) EXPECT_EQ(failure, "no error") << "seed " << seed;

  const std::string tail = "_48x192x256_0x0x1_4x8x1_generic";
  EXPECT_EQ(dispatchers[0]->kernel_for(small()).name, "gemm_fp32_rcr_packab" + tail);
  EXPECT_EQ(dispatchers[1]->kernel_for(small()).name, "gemm_fp32_rcr_packb" + tail);
  EXPECT_EQ(dispatchers[1]->kernel_for(small()).loaded, dispatchers[2]->kernel_for(small()).loaded);
  EXPECT_EQ(dispatchers[3]->target(), host_target());
  EXPECT_EQ(both->size(), 1U);
  EXPECT_EQ(b_only->size(), 1U);
}

TEST_F(ApiRegistries, MergedRunsTheKernelsOfBoth) {
  const Target generic = load_target("generic");
  const auto left = registry_of("left", "packab", generic);
  const auto right = registry_of("right", "packb", generic);
  for (const jit::BuildResult& result : right->build(1)) ASSERT_EQ(result.error, "");
  left->merge(*right);
  EXPECT_EQ(left->size(), 2U);
  EXPECT_EQ(right->size(), 1U);

  const std::string taken = name_of(right->declared().front());
  EXPECT_EQ(left->find(taken), right->find(taken));  // loaded once, shared
  Dispatcher dispatcher(options(), left);
  for (const KernelSpec& spec : left->declared()) {
    const measure::OwnedOperands owned = operands_of(small());
    EXPECT_EQ(error_of([&] { dispatcher.run(small(), owned.operands, with(2, name_of(spec))); }),
              "no error")
        << "seed " << seed;
  }
}

TEST_F(ApiRegistries, FilteredByTargetRunsItsKernelsOnly) {
  const auto all = registry_of("all", "packab", load_target("generic"));
  all->merge(*registry_of("more", "packab", mine()));
  all->declare(KernelSetBuilder("gpu", "sm90a").preselected("bf16_rcr_essential").build());
  auto here = std::make_shared<Registry>(all->filtered("mine"));
  ASSERT_EQ(here->size(), 1U);
  EXPECT_GT(all->size(), 2U);

  write_file(folder / "mine.json", to_json(mine()));
  Dispatcher dispatcher(options((folder / "mine.json").string()), here);
  const measure::OwnedOperands owned = operands_of(small());
  dispatcher.run(small(), owned.operands, with(1));
  EXPECT_EQ(dispatcher.kernel_for(small()).name,
            "gemm_fp32_rcr_packab_48x192x256_0x0x1_4x8x1_mine");
}

TEST_F(ApiRegistries, ImportedRunsWhatWasExported) {
  const auto original = registry_of("original", "packb", mine());
  const std::string text = original->export_json();
  auto copy = std::make_shared<Registry>("copy", build_options());
  copy->import_json(text);
  EXPECT_EQ(copy->declared(), original->declared());

  // The target came along: nothing else here knows 'mine'.
  const std::vector<jit::BuildResult> results = copy->build(1);
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].error, "");
  const KernelSpec spec = copy->declared().front();
  const measure::OwnedOperands owned = operands_of(small());
  copy->get(spec)->launch(family_of(spec).bind(spec, small(), mine(), owned.operands),
                          {.threads = 1});
  const Mismatch mismatch = family_of(spec).verify(small(), owned.operands);
  EXPECT_TRUE(mismatch.ok) << mismatch.message << " seed " << seed;
  EXPECT_EQ(mismatch.checked, 37 * 45);
}

TEST_F(ApiRegistries, AKernelOutlivesItsDispatcherAndRegistry) {
  std::shared_ptr<const runtime::LoadedKernel> kernel;
  KernelSpec spec;
  {
    Dispatcher dispatcher(options());
    const ReadyKernel& ready = dispatcher.kernel_for(small(), with(1));
    kernel = ready.loaded;
    spec = ready.spec;
  }
  const measure::OwnedOperands owned = operands_of(small());
  kernel->launch(family_of(spec).bind(spec, small(), load_target(spec.target), owned.operands),
                 {.threads = 1});
  EXPECT_TRUE(family_of(spec).verify(small(), owned.operands).ok) << "seed " << seed;
}

TEST_F(ApiRegistries, PackedKernelsRunWithoutACompiler) {
  const auto registry = registry_of("packed", "packab", load_target("generic"));
  const std::vector<jit::BuildResult> built = registry->build(1);
  ASSERT_EQ(built.size(), 1U);
  ASSERT_EQ(built[0].error, "");
  const KernelSpec spec = registry->declared().front();
  const Target target = load_target("generic");
  const Source source = family_of(spec).emit(spec, target);
  const jit::PackInput input{{built[0].name, jit::source_key(source, target), target.name, 0},
                             built[0].artifact.binary};
  jit::write_pack(folder / "kernels.pack", {&input, 1});

  DispatcherOptions elsewhere = options();
  elsewhere.build.cache.folder = folder / "empty-cache";
  elsewhere.build.compiler = "no-such-compiler";
  elsewhere.build.packs = {(folder / "kernels.pack").string()};
  Dispatcher dispatcher(elsewhere);
  const measure::OwnedOperands owned = operands_of(small());
  EXPECT_EQ(error_of([&] { dispatcher.run(small(), owned.operands, with(1, built[0].name)); }),
            "no error");
}

}  // namespace
}  // namespace tessera::api_test
