// The commands in process: options and results as JSON, progress, and an early end.
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "comma_locale.h"
#include "host/commands/run_json.h"
#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/commands/sweeping.h"
#include "tessera/spec/kernel_spec.h"
#include "tessera/targets/targets.h"

namespace tessera::commands {
namespace {

constexpr const char* kSmallSet =
    R"({"target": "avx512", "preselected": "fp32_rcr_essential", "jobs": 1, "output_dir": )";

class Commands : public testing::Test {
 protected:
  ~Commands() override { remove_tree(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string quoted(const std::string& name) const { return Json(path(name)).dump(); }

  static void expect_error(std::string_view name, std::string_view options, ErrorCode code,
                           const std::string& sentence, const CommandCallbacks& callbacks = {}) {
    try {
      const CommandResult result = run_command(name, options, callbacks);
      FAIL() << name << " " << options << " gave " << result.json;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), sentence);
      EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
    }
  }
  static void expect_invalid(std::string_view name, std::string_view options,
                             const std::string& sentence) {
    expect_error(name, options, ErrorCode::invalid_argument, sentence);
  }

 private:
  fs::path folder_ = make_unique_folder(fs::temp_directory_path(), "tessera-commands-");
};

TEST_F(Commands, ListKernelsAndSets) {
  EXPECT_EQ(run_json("list", R"({"dtypes": true, "sets": false})").at("dtypes").at(0), "fp32");
  const Json kernels =
      run_json("list", R"({"target": "avx512", "preselected": "fp32_rcr_essential"})");
  const Json some = run_json(
      "list", R"({"target": "avx512", "preselected": "fp32_rcr_essential", "pipeline": "packab",
                      "where": ["tile=*", "stages=*"]})");
  EXPECT_GT(some.at("kernels").size(), 0U);
  EXPECT_GT(kernels.at("kernels").size(), some.at("kernels").size());
}

TEST_F(Commands, NumbersInALocaleWithCommas) {
  const testing_support::CommaLocale comma;
  run_json("search", R"({"problem": "gemm m=64 n=64 k=64", "target": "avx512", "budget": 1,
                         "seconds": 1000.5, "top": 0})");
  EXPECT_EQ(read_seconds("sweep", "2.5s"), 2.5);
  EXPECT_EQ(read_seconds("sweep", "0.5m"), 30);
  EXPECT_THROW(read_seconds("sweep", "2,5s"), Error);
  EXPECT_EQ(to_string(parse_problem("norm kind=rmsnorm rows=1000 columns=7 epsilon=0.125")),
            "norm kind=rmsnorm rows=1000 columns=7 epsilon=0.125");
}

TEST_F(Commands, ProblemsAreTextsOrWords) {
  const char* text = R"({"problem": "gemm m=64 n=32 k=16 dtype=bf16", "target": "sm90a"})";
  const char* words =
      R"({"problem": ["gemm", "m=64", "n=32", "k=16"], "dtype": "bf16", "gpu-target": "sm90a"})";
  const Json decision = run_json("explain", text).at("decisions").at(0);
  EXPECT_EQ(decision.at("problem"), "gemm m=64 n=32 k=16 dtype=bf16");
  EXPECT_EQ(decision, run_json("explain", words).at("decisions").at(0));
}

TEST_F(Commands, PositionalWordsHaveNames) {
  EXPECT_EQ(run_json("targets", R"({"target": "avx512"})").at("name"), "avx512");
  EXPECT_EQ(run_json("targets", "").at("host"), host_target().name);
  const Json problems =
      run_json("problems", R"({"set": "wide", "target": "avx512", "unseen": true})");
  EXPECT_EQ(problems.at("unseen"), true);
  EXPECT_GT(problems.at("problems").size(), 0U);
}

TEST_F(Commands, EveryStepIsTold) {
  std::size_t most = 0;
  std::set<std::string> seen;
  const CommandCallbacks callbacks = {
      .progress =
          [&](std::string_view label, std::size_t done, std::size_t total, std::string_view what) {
            EXPECT_EQ(label, "generate");
            EXPECT_EQ(done, seen.size() + 1);
            most = total;
            seen.emplace(what);
          },
      .stop = {}};
  const Json json = run_json("generate", kSmallSet + quoted("kernels") + "}", 0, callbacks);
  EXPECT_EQ(json.at("written"), most);
  EXPECT_EQ(seen.size(), most);
  EXPECT_TRUE(fs::exists(path("kernels") + "/index.json"));
}

TEST_F(Commands, GenerateTakesProblemsAndSources) {
  const Json instances =
      run_json("generate",
               R"({"source": "cktile", "target": "gfx1201", "problem": ["fmha heads=8 seqlen_q=64 )"
               R"(seqlen_k=64 hdim=64 dtype=fp16 mask=top_left"], "output_dir": )" +
                   quoted("instances") + "}");
  EXPECT_EQ(instances.at("written"), 4U);
  const Json one = run_json(
      "generate",
      R"({"source": "cktile", "target": "gfx1201", "tile": "64x64x64", "problem": ["fmha heads=8 )"
      R"(seqlen_q=64 seqlen_k=64 hdim=64 dtype=fp16 mask=top_left"], "output_dir": )" +
          quoted("one") + "}");
  EXPECT_EQ(one.at("written"), 1U);
  EXPECT_TRUE(fs::exists(fs::path(path("instances")) / "dispatcher_wrappers" /
                         "register_all_fmha_kernels.hpp"));
  const Json ours =
      run_json("generate",
               R"({"target": "avx512", "problem": ["gemm m=64 n=64 k=64", "gemm m=8 n=64 k=64"],)"
               R"( "output_dir": )" +
                   quoted("ours") + "}");
  EXPECT_EQ(ours.at("written"), 2U);
  expect_invalid("generate",
                 R"({"target": "avx512", "problem": ["gemm m=64 n=64 k=64", "norm kind=softmax )"
                 R"(rows=8 columns=8"], "output_dir": )" +
                     quoted("none") + "}",
                 "generate: all problems must be of one operation, got gemm and norm");
}

TEST_F(Commands, StopEndsThemAtTheNextStep) {
  std::atomic<std::size_t> steps{0};
  const CommandCallbacks callbacks = {
      .progress = [&](std::string_view, std::size_t, std::size_t, std::string_view) { ++steps; },
      .stop = [&] { return steps == 2; }};
  expect_error("generate", kSmallSet + quoted("kernels") + "}", ErrorCode::cancelled,
               "the command was cancelled before it was done", callbacks);
  EXPECT_EQ(steps, 2U);
  EXPECT_FALSE(fs::exists(path("kernels") + "/index.json"));
  const CommandCallbacks at_once = {.progress = {}, .stop = [] { return true; }};
  expect_error("targets", "{}", ErrorCode::cancelled,
               "the command was cancelled before it was done", at_once);
}

TEST_F(Commands, StopEndsALoopOverProblems) {
  int asked = 0;
  const CommandCallbacks callbacks = {.progress = {}, .stop = [&] { return ++asked == 4; }};
  expect_error("explain", R"({"shapes": "square", "target": "avx512"})", ErrorCode::cancelled,
               "the command was cancelled before it was done", callbacks);
}

TEST_F(Commands, ThrowingProgressEndsThem) {
  const CommandCallbacks callbacks = {
      .progress = [](std::string_view, std::size_t, std::size_t,
                     std::string_view) { throw Error(ErrorCode::unsupported, "no more"); },
      .stop = {}};
  expect_error("generate", kSmallSet + quoted("kernels") + "}", ErrorCode::unsupported, "no more",
               callbacks);
}

TEST_F(Commands, UnknownNames) {
  expect_error("swep", "{}", ErrorCode::not_found,
               "unknown command 'swep', did you mean 'sweep'? (known: run, explain, list, show, "
               "generate, export, verify, sweep, data, train, evaluate, predict, search, tune, "
               "report, cache, record, pack, problems, targets, doctor, version)");
  const std::string known = " (known: action, folder, pattern)";
  expect_invalid("cache", R"({"patern": "*"})",
                 "cache: unknown option 'patern', did you mean 'pattern'?" + known);
  for (const char* none : {"help", "json", "--pattern", ""}) {
    expect_invalid("cache", Json({{none, true}}).dump(),
                   "cache: unknown option '" + std::string(none) + "'" +
                       (none == std::string("--pattern") ? ", did you mean 'pattern'?" : "") +
                       known);
  }
}

TEST_F(Commands, WrongValues) {
  const std::string types = " must be a text, a number or a list of these, got ";
  expect_invalid("list", R"({"sets": 1})", "list: 'sets' must be true or false, got 1");
  expect_invalid("list", R"({"op": true})", "list: 'op'" + types + "true");
  expect_invalid("list", R"({"op": null})", "list: 'op'" + types + "null");
  expect_invalid("list", R"({"op": {"a": 1}})", "list: 'op'" + types + R"({"a":1})");
  expect_invalid("list", R"({"op": [["a"]]})", "list: 'op'" + types + R"(["a"])");
  expect_invalid("list", R"({"op": ""})", "list: 'op' must not be empty");
  expect_invalid("generate", R"({"output-dir": "x", "jobs": 1.5})",
                 "generate: --jobs: must be a whole number of at least 0, got 1.5");
  expect_invalid("problems", "{}", "problems: set is required");
  expect_invalid("problems", "[1]", "problems: options are a JSON object, got [1]");
  expect_error("problems", "{", ErrorCode::parse_error,
               "problems: the options must be JSON, and are none from byte 2 of 1 on: {");
  expect_error("problems", R"({"set": 1e999})", ErrorCode::parse_error,
               "problems: the options hold a number that is too large for any option: "
               R"({"set": 1e999})");
}

// Words of the file system in ours.
TEST_F(Commands, NamesThatTheSystemRefuses) {
  const std::string name(300, 'x');
  for (const char* command : {"data", "evaluate", "problems"}) {
    const std::string options =
        command == std::string_view("data") ? R"({"what": "describe", "files": [")" + name + "\"]}"
        : command == std::string_view("evaluate") ? R"({"model": "m", "data": [")" + name + "\"]}"
                                                  : R"({"set": ")" + name + "\"}";
    try {
      run_command(command, options);
      FAIL() << command;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find("filesystem error"), std::string::npos)
          << error.what();
      EXPECT_NE(error.code(), ErrorCode::internal) << error.what();
    }
  }
}

TEST_F(Commands, ValuesMayLookLikeOptions) {
  expect_error("data", R"({"files": ["--strict"], "what": "describe"})", ErrorCode::not_found,
               "sweep store '--strict': there is no such file");
  expect_error("list", R"({"target": "avx512", "pattern": "--sets"})", ErrorCode::not_found,
               "no kernel for avx512 passes these filters; tessera list shows what there is");
  expect_invalid("search", R"({"problem": "gemm m=1 n=1 k=1", "seconds": -1})",
                 "search: --seconds: must be a number from 0 to 86400, got -1");
}

TEST_F(Commands, ElementsOfListsKeepTheirCommas) {
  const auto missing = [](const std::string& file) {
    return "sweep store '" + file + "': there is no such file";
  };
  const std::string train = R"({"output": "none", "data": )";
  expect_error("train", train + R"("a,b"})", ErrorCode::not_found, missing("a"));
  expect_error("train", train + R"(["a,b"]})", ErrorCode::not_found, missing("a,b"));
  expect_error("train", train + R"(["[a,b]", "c"]})", ErrorCode::not_found, missing("[a,b]"));
}

TEST_F(Commands, FaultsInTheResultAreAStatus) {
  write_file(path("problems.txt"), "gemm m=1 n=1 k=1\ngemm m=1 n=1 k=1 dtype=bf16\n");
  const std::string kernel =
      run_json("list", R"({"target": "avx512", "preselected": "fp32_rcr_essential"})")
          .at("kernels")
          .at(0);
  const Json options = {
      {"shapes", path("problems.txt")}, {"target", "avx512"}, {"layout", "rcr"}, {"force", kernel}};
  const Json json = run_json("explain", options.dump(), 1);
  EXPECT_EQ(json.at("decisions").size(), 1U);
  EXPECT_EQ(json.at("error").at("message").get<std::string>().find(
                "'gemm m=1 n=1 k=1 dtype=bf16', problem 2 of 2: "),
            0U)
      << json;
}

TEST_F(Commands, NothingReachesTheStreams) {
  const std::string missing = R"({"target": "avx512", "preselected": "none"})";
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  for (const char* name : {"targets", "doctor", "version"}) run_command(name, "{}");
  run_command("generate", kSmallSet + quoted("kernels") + "}");
  EXPECT_THROW(run_command("list", missing), Error);
  EXPECT_THROW(run_command("list", R"({"unknown": 1})"), Error);
  EXPECT_THROW(run_command("generate", "{}"), Error);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(Commands, ThreadsDoNotMeet) {
  const auto generate = [this](const std::string& name, std::size_t& steps) {
    const CommandCallbacks callbacks = {
        .progress = [&](std::string_view, std::size_t, std::size_t, std::string_view) { ++steps; },
        .stop = {}};
    for (int i = 0; i < 3; ++i) {
      const Json json = run_json("generate", kSmallSet + quoted(name) + "}", 0, callbacks);
      EXPECT_EQ(json.at("output_dir"), path(name));
    }
  };
  std::size_t steps[2] = {0, 0};
  std::thread first(generate, "first", std::ref(steps[0]));
  std::thread second(generate, "second", std::ref(steps[1]));
  first.join();
  second.join();
  EXPECT_GT(steps[0], 0U);
  EXPECT_EQ(steps[0], steps[1]);
}

}  // namespace
}  // namespace tessera::commands
