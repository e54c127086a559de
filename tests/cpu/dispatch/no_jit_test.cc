// Where compiling is forbidden, or refused by the program: what is ready runs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <random>
#include <vector>

#include "cpu/dispatch/dispatcher_fixture.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/families/operations.h"
#include "tessera/jit/pack.h"
#include "tessera/jit/toolchain.h"
#include "tessera/measure/operands.h"
#include "tessera/targets/targets.h"
#include "tessera/tune/store.h"

namespace tessera {
namespace {

struct NoJit : DispatcherTest {
  Target target = load_target("generic");
  Problem problem = small();
  fs::path pack = folder / "some.pack";
  std::vector<std::string> warnings, notes;

  NoJit() {
    set_log_sink([this](LogLevel level, std::string_view line) {
      (level == LogLevel::warning ? warnings : notes).emplace_back(line);
    });
  }
  ~NoJit() override {
    set_log_sink({});
    jit::set_compile_hook({});
  }

  DispatcherOptions alone() const {
    DispatcherOptions o = options();
    o.build.use_shipped_packs = false;
    return o;
  }
  DispatcherOptions forbidden() const {
    DispatcherOptions o = alone();
    o.build.allow_compile = false;
    return o;
  }
  DispatcherOptions with_pack() const {
    DispatcherOptions o = forbidden();
    o.build.packs = {pack.string()};
    return o;
  }
  std::vector<KernelSpec> best(std::size_t count) const {
    std::vector<KernelSpec> specs;
    for (const Considered& c : Dispatcher(alone()).explain(problem).considered) {
      if (c.refusal.empty() && specs.size() < count) specs.push_back(c.spec);
    }
    return specs;
  }
  void write_pack_of(const std::vector<KernelSpec>& specs, const std::string& key = {}) const {
    DispatcherOptions elsewhere = alone();
    elsewhere.build.cache.folder = fs::current_path() / "no_jit_kernels";  // for the next run too
    jit::Builder builder(elsewhere.build);
    std::vector<jit::PackInput> inputs;
    std::vector<jit::Artifact> artifacts;
    for (const KernelSpec& spec : specs) {
      const Source source = emit_legal(spec, target);
      artifacts.push_back(builder.build(source, target));
      const std::string own = key.empty() ? jit::source_key(source, target) : key;
      inputs.push_back({{source.name, own, target.name, 0}, artifacts.back().binary});
    }
    jit::write_pack(pack, inputs);
  }
  // Runs the problem and compares with the reference.
  std::string run(Dispatcher& dispatcher) const {
    const measure::OwnedOperands owned = measure::random_operands(problem, seed);
    EXPECT_NO_THROW(dispatcher.run(problem, owned.operands, verified())) << "seed " << seed;
    return dispatcher.kernel_for(problem).name;
  }
  template <class Call>
  static std::string refusal(const Call& call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::jit_disabled) << error.what();
      return error.what();
    }
    return "no error";
  }
};

TEST_F(NoJit, TheBestKernelOfAPackRuns) {
  const std::vector<KernelSpec> specs = best(4);
  write_pack_of({specs[2], specs[3]});
  Dispatcher dispatcher(with_pack());
  EXPECT_EQ(run(dispatcher), name_of(specs[2]));
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0].find(fmt::format("'{}' runs on {}: the best of those that are ready; ",
                                         to_string(problem), name_of(specs[2]))),
            0U)
      << warnings[0];
  EXPECT_TRUE(warnings[0].ends_with(name_of(specs[0]) +
                                    " among them, would have to be compiled, and allow_compile = "
                                    "false forbids compiling"))
      << warnings[0];
  const Decision decision = Dispatcher(with_pack()).explain(problem);
  EXPECT_EQ(decision.name, name_of(specs[2]));
  EXPECT_EQ(decision.why, warnings[0].substr(warnings[0].find("the best of")));
}

TEST_F(NoJit, TheBestKernelOfTheCacheRuns) {
  const std::vector<KernelSpec> specs = best(3);
  Dispatcher(alone()).kernel_for(problem, forced(name_of(specs[2])));
  Dispatcher dispatcher(forbidden());
  EXPECT_EQ(run(dispatcher), name_of(specs[2]));
  // A new kernel in the cache is seen too.
  Dispatcher(alone()).kernel_for(problem, forced(name_of(specs[1])));
  EXPECT_EQ(Dispatcher(forbidden()).kernel_for(problem).name, name_of(specs[1]));
}

// It is no candidate where others serve.
TEST_F(NoJit, TheGeneralKernelRunsWhatIsNotReadyOtherwise) {
  write_pack_of({general_kernel(problem, target)});
  Dispatcher dispatcher(with_pack());
  EXPECT_EQ(run(dispatcher), name_of(general_kernel(problem, target)));
}

TEST_F(NoJit, ADamagedKernelGivesWayToTheNext) {
  const std::vector<KernelSpec> specs = best(2);
  for (const KernelSpec& spec : specs) {
    Dispatcher(alone()).kernel_for(problem, forced(name_of(spec)));
  }
  for (const jit::EntryInfo& entry : jit::Cache(alone().build.cache).list()) {
    if (entry.name == name_of(specs[0])) write_file(entry.folder / "kernel.so", "damaged");
  }
  Dispatcher dispatcher(forbidden());
  EXPECT_EQ(run(dispatcher), name_of(specs[1]));
}

TEST_F(NoJit, NothingReadyIsAnErrorThatSaysWhatIsNeeded) {
  Dispatcher dispatcher(forbidden());
  const std::string name = dispatcher.explain(problem).name;
  EXPECT_EQ(refusal([&] { dispatcher.kernel_for(problem); }),
            fmt::format(
                "no kernel that can run '{}' is ready; the best one, {}: is neither in a pack nor "
                "in the cache {}, and allow_compile = false forbids compiling it; allow it or "
                "ship a pack with 'tessera pack'",
                to_string(problem), name, (folder / "cache").string()));
}

TEST_F(NoJit, AForcedKernelIsNotReplaced) {
  const std::vector<KernelSpec> specs = best(2);
  write_pack_of({specs[1]});
  Dispatcher dispatcher(with_pack());
  const std::string sentence =
      refusal([&] { dispatcher.kernel_for(problem, forced(name_of(specs[0]))); });
  EXPECT_EQ(sentence.find(name_of(specs[0]) + ": is neither in a pack"), 0U) << sentence;
}

TEST_F(NoJit, AutotuningMeasuresWhatIsReady) {
  const std::vector<KernelSpec> specs = best(6);
  write_pack_of({specs[4], specs[5]});
  for (const bool without_model : {false, true}) {
    DispatcherOptions o = with_pack();
    o.tuning_store = (folder / fmt::format("{}.sqlite", without_model)).string();
    o.autotune = !without_model;
    if (without_model) o.without_model = WithoutModel::measure;
    o.autotune_seconds = 5;
    o.autotune_top = 3;
    Dispatcher dispatcher(o);
    const ReadyKernel& kernel = dispatcher.kernel_for(problem);
    EXPECT_EQ(kernel.source, ChoiceSource::tuned);
    std::vector<std::string> measured;
    for (const tune::Measurement& m : tune::Store(o.tuning_store).all()) {
      EXPECT_EQ(m.outcome, measure::Outcome::ok) << m.note;
      measured.push_back(m.kernel);
    }
    std::sort(measured.begin(), measured.end());
    std::vector<std::string> ready = {name_of(specs[4]), name_of(specs[5])};
    std::sort(ready.begin(), ready.end());
    EXPECT_EQ(measured, ready);
  }
}

TEST_F(NoJit, TheHookHearsOfEachCompilation) {
  DispatcherOptions o = alone();
  std::mutex mutex;
  std::vector<jit::Compilation> own;
  std::atomic<int> of_process = 0;
  o.build.on_compile = [&](const jit::Compilation& compilation) {
    const std::lock_guard lock(mutex);
    own.push_back(compilation);
    return true;
  };
  jit::set_compile_hook([&](const jit::Compilation&) { return ++of_process > 0; });
  Dispatcher dispatcher(o);
  const std::string name = run(dispatcher);
  const auto cached = static_cast<std::size_t>(
      std::ssize(dispatcher.registry().builder().cache().list()));  // its objects among them
  ASSERT_EQ(own.size(), cached);
  EXPECT_EQ(of_process, static_cast<int>(cached));
  EXPECT_EQ(own[0].kernel, name);
  EXPECT_EQ(own[0].target, "generic");
  EXPECT_EQ(own[0].why, fmt::format("for '{}'", to_string(problem)));
  for (std::size_t i = 1; i < own.size(); ++i) EXPECT_EQ(own[i].why, "a part of " + name);
  ASSERT_EQ(notes.size(), cached);
  EXPECT_EQ(notes[0], fmt::format("compiles {} for '{}'", name, to_string(problem)));
  Dispatcher again(o);
  run(again);
  EXPECT_EQ(own.size(), cached);  // it came from the cache
}

TEST_F(NoJit, AHookThatRefusesForbids) {
  const std::vector<KernelSpec> specs = best(3);
  DispatcherOptions o = alone();
  std::atomic<int> refused = 0;
  o.build.on_compile = [&](const jit::Compilation&) { return ++refused == 0; };
  {
    Dispatcher dispatcher(o);
    const std::string sentence = refusal([&] { dispatcher.kernel_for(problem); });
    EXPECT_NE(sentence.find("the program's compile hook refused to compile it"), sentence.npos)
        << sentence;
    EXPECT_EQ(refused, 1);
  }
  write_pack_of({specs[2]});
  o.build.packs = {pack.string()};
  for (const bool invariant : {false, true}) {
    o.batch_invariant = invariant;
    Dispatcher dispatcher(o);
    EXPECT_EQ(run(dispatcher), name_of(specs[2])) << invariant;
  }
  EXPECT_EQ(jit::Cache(alone().build.cache).list().size(), 0U);
}

TEST_F(NoJit, PreloadedKernelsNeedNoPack) {
  const std::vector<KernelSpec> specs = best(3);
  write_pack_of({specs[1], specs[2]});
  Dispatcher dispatcher(forbidden());
  const Preloaded done = dispatcher.preload(pack);
  EXPECT_EQ(done.kernels, 2U);
  EXPECT_GT(done.seconds, 0);
  EXPECT_TRUE(done.skipped.empty());
  fs::remove(pack);
  EXPECT_EQ(run(dispatcher), name_of(specs[1]));
  EXPECT_THROW(dispatcher.preload(pack), Error);
}

TEST_F(NoJit, PreloadingNamesKernelsOfAnotherLibrary) {
  const std::vector<KernelSpec> specs = best(1);
  write_pack_of(specs, "0123456789abcdef0123456789abcdef");
  Dispatcher dispatcher(forbidden());
  const Preloaded done = dispatcher.preload(pack);
  EXPECT_EQ(done.kernels, 0U);
  EXPECT_EQ(done.skipped, std::vector<std::string>{name_of(specs[0])});
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0],
            fmt::format("{} of the pack {} is not loaded: this library makes it from another text; "
                        "make the pack again with 'tessera pack'",
                        name_of(specs[0]), pack.string()));
}

}  // namespace
}  // namespace tessera
