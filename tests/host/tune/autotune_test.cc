// The autotuner's decisions, with a compiler and a worker that are shell scripts.
#include "tessera/tune/autotune.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "elf_files.h"
#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/targets/targets.h"

namespace tessera::tune {
namespace {

// Writes a line per compiled kernel to the log, then what passes for a binary.
constexpr const char* kCompiler = R"sh(
while [ $# -gt 0 ]; do
  if [ "$1" = -o ]; then
    echo "$(basename "$2")" >> "$(dirname "$0")/compiled"
    cp "$(dirname "$0")/$(basename "$2").made" "$2"
  fi
  shift
done
)sh";

struct AutotuneTest : testing::Test {
  fs::path folder = make_unique_folder(fs::temp_directory_path(), "tessera-autotune-");
  Target target = load_target("generic");
  Problem problem = gemm_problem(DType::fp32, GemmLayout::rcr, 64, 64, 64);
  std::vector<KernelSpec> candidates;
  AutotuneOptions options;
  jit::BuildOptions build;
  std::unique_ptr<Registry> registry;
  std::unique_ptr<Store> store;

  AutotuneTest() {
    for (const KernelSpec& spec : family_of(problem).candidates(problem, target)) {
      if (candidates.size() < 5 && family_of(problem).is_legal(spec, target)) {
        candidates.push_back(spec);
      }
    }
    build.cache.folder = folder / "cache";
    write_file(folder / "kernel.so.made", library_of("so"));
    write_file(folder / "object.o.made", object_of("o"));
    build.compiler = script("compiler", kCompiler).string();
    registry = std::make_unique<Registry>("test", build);
    store = std::make_unique<Store>(folder / "tuning.sqlite");
    options.budget_seconds = 20;
    options.candidate_timeout_seconds = 5;
  }
  ~AutotuneTest() override { remove_tree(folder); }

  fs::path script(const std::string& name, const std::string& text) const {
    write_file(folder / name, "#!/bin/sh\n" + text);
    fs::permissions(folder / name, fs::perms::owner_all);
    return folder / name;
  }

  std::string name(std::size_t i) const { return name_of(candidates.at(i)); }

  // A worker with one rule per kernel when checking, and one for the final.
  void use_worker(const std::vector<std::string>& checks, const std::string& final) {
    std::string text = "case \"$1\" in\n*'\"measure\":true'*)\n" + final + " ;;\n";
    for (std::size_t i = 0; i < checks.size(); ++i) {
      text += fmt::format("*{}*) {} ;;\n", name(i), checks[i]);
    }
    options.worker = script("worker", text + "esac\n").string();
  }

  std::vector<Measurement> run() {
    return autotune(problem, target, candidates, *registry, *store, options);
  }
};

std::string reply(const std::string& rows) { return "echo '{\"readings\":[" + rows + "]}'"; }
std::string row(double seconds, const std::string& outcome = "ok", const std::string& note = "") {
  return fmt::format(R"({{"outcome":"{}","seconds":{},"spread":0.1,"note":"{}"}})", outcome,
                     seconds, note);
}

TEST_F(AutotuneTest, MeasuresTheFastestThreeAndRecordsAll) {
  use_worker({reply(row(0.5)), reply(row(0.1)), reply(row(0.3)), reply(row(0.2)),
              reply(row(0, "wrong", "off by 2"))},
             reply(row(0.15) + "," + row(0.12) + "," + row(0.31)));
  const std::vector<Measurement> found = run();
  ASSERT_EQ(found.size(), 5U);
  EXPECT_EQ(found[0].kernel, name(3));  // second in the quick order, best in the final
  EXPECT_EQ(found[0].seconds, 0.12);
  EXPECT_EQ(found[0].spread, 0.1);
  EXPECT_EQ(found[1].kernel, name(1));
  EXPECT_EQ(found[2].kernel, name(2));
  EXPECT_EQ(found[3].kernel, name(0));
  EXPECT_EQ(found[3].outcome, measure::Outcome::ok);
  EXPECT_EQ(found[3].seconds, 0);
  EXPECT_EQ(found[3].note, "one call took 0.5 s");
  EXPECT_EQ(found[4].kernel, name(4));
  EXPECT_EQ(found[4].outcome, measure::Outcome::wrong);
  EXPECT_EQ(found[4].note, "off by 2");
  EXPECT_EQ(store->all().size(), 5U);
  const auto best = store->best(measure::device_name(target, 0), target.name, to_string(problem),
                                options.threads);
  ASSERT_TRUE(best);
  EXPECT_EQ(best->kernel, name(3));
}

TEST_F(AutotuneTest, RecordsCrashesAndHangsAndGoesOn) {
  options.candidate_timeout_seconds = 0.5;
  use_worker({"kill -SEGV $$", "sleep 60", reply(row(0.2)), "kill -ILL $$", "sleep 60"},
             reply(row(0.25)));
  const std::vector<Measurement> found = run();
  ASSERT_EQ(found.size(), 5U);
  EXPECT_EQ(found[0].kernel, name(2));
  EXPECT_EQ(found[0].seconds, 0.25);
  std::map<std::string, measure::Outcome> outcomes;
  for (const Measurement& m : store->all()) outcomes[m.kernel] = m.outcome;
  EXPECT_EQ(outcomes[name(0)], measure::Outcome::crashed);
  EXPECT_EQ(outcomes[name(1)], measure::Outcome::timeout);
  EXPECT_EQ(outcomes[name(3)], measure::Outcome::crashed);
  EXPECT_EQ(outcomes[name(4)], measure::Outcome::timeout);
}

TEST_F(AutotuneTest, FindsWhoKilledTheFinal) {
  options.top = 2;
  const std::string all = name(0) + "*" + name(1);
  use_worker({reply(row(0.1)), reply(row(0.2))},
             "case \"$1\" in *" + all + "*) kill -SEGV $$ ;; *" + name(0) +
                 "*) kill -SEGV $$ ;; *) " + reply(row(0.22)) + " ;; esac");
  const std::vector<Measurement> found = run();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].kernel, name(1));
  EXPECT_EQ(found[0].seconds, 0.22);
  EXPECT_EQ(found[1].outcome, measure::Outcome::crashed);
}

TEST_F(AutotuneTest, StopsAtTheBudgetButMeasuresTheFirst) {
  options.budget_seconds = 0;
  use_worker({reply(row(0.1))}, reply(row(0.2)));
  const std::vector<Measurement> found = run();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].kernel, name(0));
  EXPECT_EQ(found[0].seconds, 0.2);
}

TEST_F(AutotuneTest, TakesNoMoreThanTop) {
  options.top = 2;
  use_worker({reply(row(0.1)), reply(row(0.2))}, reply(row(0.1) + "," + row(0.2)));
  EXPECT_EQ(run().size(), 2U);
}

TEST_F(AutotuneTest, AFailedBuildIsReportedButNotHeldAgainstTheKernel) {
  script("compiler",
         "case \"$1\" in --version) echo fake ;; *) echo 'no such flag' >&2; exit 1 ;; "
         "esac\n");
  options.top = 1;
  use_worker({"exit 1"}, "exit 1");
  const std::vector<Measurement> found = run();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].outcome, measure::Outcome::failed);
  EXPECT_NE(found[0].note.find(name(0)), std::string::npos) << found[0].note;
  EXPECT_TRUE(store->all().empty());
}

TEST_F(AutotuneTest, NeedsAWorker) {
  options.worker = (folder / "none").string();
  EXPECT_THROW(run(), Error);
  EXPECT_FALSE(fs::exists(folder / "compiled"));
}

}  // namespace
}  // namespace tessera::tune
