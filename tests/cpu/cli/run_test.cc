// Commands that build and run kernels.
#include <set>

#include "host/cli/cli.h"

namespace tessera::cli_test {
namespace {

using CliRun = CliTest;

TEST_F(CliRun, VerifiesEveryType) {
  for (const std::string dtype : {"fp32", "fp16", "bf16", "fp8", "bf8", "int8"}) {
    const Json json = run_json(
        {"run", "gemm", "m=33", "n=47", "k=29", "dtype=" + dtype, "--verify", "--repeat", "1"});
    const Json& report = json.at("runs").at(0);
    EXPECT_EQ(report.at("problem"),
              dtype == "fp32" ? "gemm m=33 n=47 k=29" : "gemm m=33 n=47 k=29 dtype=" + dtype);
    EXPECT_EQ(report.at("verified").at("ok"), true);
    EXPECT_EQ(report.at("verified").at("checked"), 33 * 47);
    EXPECT_EQ(report.at("verified").at("bad"), 0);
    EXPECT_GT(report.at("seconds").get<double>(), 0);
    const std::string kernel = report.at("kernel");
    EXPECT_TRUE(kernel.starts_with("gemm_" + dtype + "_rcr_")) << kernel;
  }
}

TEST_F(CliRun, TakesShapeFilesAndReplacesTypes) {
  write("shapes.txt",
        "# two layers\n"
        "gemm m=5 n=64 k=32 epilogue=bias+gelu\n"
        "\n"
        "gemm m=7 n=16 k=8 batch=3   # a stack\n");
  const Json json =
      run_json("run --shapes shapes.txt --dtype bf16 --layout rrr --verify --repeat 1");
  ASSERT_EQ(json.at("runs").size(), 2U);
  EXPECT_EQ(json.at("runs").at(0).at("problem"),
            "gemm m=5 n=64 k=32 dtype=bf16 layout=rrr epilogue=bias+gelu");
  EXPECT_EQ(json.at("runs").at(1).at("problem"), "gemm m=7 n=16 k=8 batch=3 dtype=bf16 layout=rrr");
  for (const Json& report : json.at("runs")) EXPECT_EQ(report.at("verified").at("ok"), true);
}

TEST_F(CliRun, Int8WithAnEpilogueStoresFp32) {
  const Json json = run_json({"run", "gemm", "m=9", "n=20", "k=12", "epilogue=bias+relu", "--dtype",
                              "int8", "--verify", "--repeat", "1"});
  const Json& report = json.at("runs").at(0);
  EXPECT_EQ(report.at("problem"), "gemm m=9 n=20 k=12 dtype=int8 out=fp32 epilogue=bias+relu");
  EXPECT_EQ(report.at("verified").at("ok"), true);
}

TEST_F(CliRun, ForcedKernelRuns) {
  const Json kernels = run_json(
      "list --datatype fp32 --layout rcr --variants standard --pipeline packab")["kernels"];
  const std::string name = kernels.at(kernels.size() / 2);
  const Json report = run_json({"run", "gemm", "m=20", "n=30", "k=10", "--force", name, "--verify",
                                "--repeat", "1"})["runs"][0];
  EXPECT_EQ(report.at("kernel"), name);
  EXPECT_EQ(report.at("source"), "pinned");
  EXPECT_EQ(report.at("verified").at("ok"), true);
}

// Here and not among the host tests: a sanitizer's allocator has words of its own for this.
TEST_F(CliRun, MoreMemoryThanThereIs) {
  expect_failure("run gemm m=1000000000 n=1 k=1000000000",
                 "out of memory: cannot allocate a buffer of 4000000000000000512 bytes");
}

// What was measured before the failure is printed; with --json it is one object all the same.
TEST_F(CliRun, RunsOutOfMemoryMidway) {
  write("shapes.txt", "gemm m=8 n=8 k=8\ngemm m=1000000000 n=1 k=1000000000\ngemm m=9 n=9 k=9\n");
  const std::string sentence =
      "'gemm m=1000000000 n=1 k=1000000000', problem 2 of 3: out of memory: cannot allocate a "
      "buffer of 4000000000000000512 bytes";
  for (const std::string line : {"run --shapes shapes.txt --repeat 1",
                                 "bench gemm --shapes shapes.txt --rounds 1 --min-seconds 0"}) {
    const CliResult text = run(words_of(line));
    EXPECT_EQ(text.status, 1);
    EXPECT_NE(text.out.find("\ngemm m=8 n=8 k=8 "), std::string::npos) << text.out;
    EXPECT_EQ(text.err, "tessera: " + sentence + "\n");
    const CliResult result = run(words_of(line + " --json"));
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.err, "");
    const Json json = Json::parse(result.out);
    EXPECT_EQ(json.at(line.starts_with("run") ? "runs" : "cases").size(), 1U);
    EXPECT_EQ(json.at("error"), (Json{{"code", "out_of_memory"}, {"message", sentence}}));
  }
}

TEST_F(CliRun, SignsOfLifeOffATerminal) {
  const std::string name = run_json("list --preselected fp32_rcr_essential")["kernels"].at(0);
  const CliResult often = run({"verify", name}, {"TESSERA_PROGRESS_SECONDS=0.000001"});
  EXPECT_EQ(often.status, 0) << often.err;
  EXPECT_EQ(often.err, "[1/1] verify: " + name + "\n[1/1] verify: " + name + "\n");
  EXPECT_EQ(run({"verify", name}, {"TESSERA_PROGRESS_SECONDS=0"}).err, "");
}

TEST_F(CliRun, UsersOwnMachine) {
  write_target("my.json", "mymachine", "host");
  const Json json = run_json("run gemm m=40 n=24 k=56 --target my.json --verify --repeat 1");
  EXPECT_EQ(json.at("target"), "mymachine");
  const std::string kernel = json.at("runs").at(0).at("kernel");
  EXPECT_TRUE(kernel.ends_with("_mymachine")) << kernel;
  EXPECT_EQ(json.at("runs").at(0).at("verified").at("ok"), true);
}

TEST_F(CliRun, VerifiesKernelsByName) {
  const Json kernels = run_json({"list", "--datatype", "fp32", "--layout", "rrr", "--variants",
                                 "standard", "--pipeline", "direct"})["kernels"];
  const std::string name = kernels.at(0);
  const Json json = run_json({"verify", name});
  EXPECT_EQ(json.at("verified"), 1);
  EXPECT_EQ(json.at("wrong"), 0);
  EXPECT_EQ(json.at("kernels").at(0).at("kernel"), name);
  EXPECT_EQ(json.at("kernels").at(0).at("ok"), true);
  EXPECT_GT(json.at("kernels").at(0).at("problems").get<int>(), 3);
}

TEST_F(CliRun, BenchEndsWithASummary) {
  write("shapes.txt", "gemm m=128 n=128 k=128\ngemm m=1 n=64 k=64\n");
  const Json json = run_json(
      "bench gemm --shapes shapes.txt --dtype fp32 --threads 1 --peers onednn,openblas --rounds 3 "
      "--min-seconds 0.0005");
  ASSERT_EQ(json.at("cases").size(), 2U);
  std::string last;
  for (const auto& [key, value] : json.items()) last = key;
  EXPECT_EQ(last, "summary");
  const Json& summary = json.at("summary");
  EXPECT_EQ(summary.at("cases"), 2);
  int ties = 0;
  for (const Json& bench : json.at("cases")) {
    for (const Json& peer : bench.at("peers")) ties += peer.at("tie").get<bool>() ? 1 : 0;
  }
  EXPECT_EQ(summary.at("ties"), ties);
  EXPECT_GT(summary.at("peak_fraction").get<double>(), 0);

  // A ratio for every peer that is on this machine.
  for (const auto& [peer, version] : json.at("peers").items()) {
    EXPECT_GT(summary.at("geomean_vs").at(peer).get<double>(), 0) << peer;
    EXPECT_LE(summary.at("min_vs").at(peer).get<double>(),
              summary.at("geomean_vs").at(peer).get<double>());
    EXPECT_FALSE(version.get<std::string>().empty());
  }
  EXPECT_EQ(run_json("bench gemm m=8 n=8 k=8 --threads 1 --rounds 3 --min-seconds 0.0005")
                .at("cases")
                .at(0)
                .at("problem"),
            "gemm m=8 n=8 k=8");
}

TEST_F(CliRun, BenchSetsKernelsOfOursBeside) {
  const std::string other = "gemm_fp32_rrr_packb_120x768x256_0x0x1_12x4x1_generic";
  const std::string line =
      "bench gemm m=48 n=40 k=32 layout=rrr --threads 1 --rounds 3 --min-seconds 0.0005 --peers "
      "openblas "
      "--target generic ";
  const Json fused = run_json((line + "epilogue=bias+gelu --beside plain").c_str());
  EXPECT_GT(fused.at("summary").at("geomean_vs").at("plain").get<double>(), 0);
  const Json& plain = fused.at("cases").at(0).at("peers").at(0);
  EXPECT_EQ(plain.at("peer"), "plain");
  EXPECT_EQ(plain.at("how").get<std::string>().find("gelu"), std::string::npos);

  const Json named = run_json((line + "--beside " + other).c_str());
  EXPECT_EQ(named.at("cases").at(0).at("peers").at(0).at("peer"), other);
  const Json nothing = run_json((line + "--beside plain").c_str());
  EXPECT_EQ(nothing.at("cases").at(0).at("notes").at(0),
            "has no epilogue, so that nothing is beside it as 'plain'");
}

std::size_t objects_in(const Json& list) {
  const Json& entries = list.at("entries");
  return static_cast<std::size_t>(std::count_if(
      entries.begin(), entries.end(), [](const Json& entry) { return entry.contains("object"); }));
}

TEST_F(CliRun, CacheListsVerifiesAndClears) {
  write_target("my.json", "mymachine", "host");
  for (const char* line : {"run gemm m=40 n=24 k=56 --target my.json --repeat 1",
                           "run gemm m=40 n=24 k=56 dtype=int8 --target my.json --repeat 1"}) {
    EXPECT_EQ(run(line).status, 0);
  }
  const Json list = run_json("cache list");
  const std::size_t objects = objects_in(list);
  EXPECT_GT(objects, 2U);
  ASSERT_EQ(list.at("entries").size(), 2U + objects);
  EXPECT_TRUE(list.at("entries").at(0).contains("kernel"));
  EXPECT_EQ(list.at("folder"), (folder() / "cache").string());
  std::int64_t bytes = 0;
  for (const Json& entry : list.at("entries")) bytes += entry.at("bytes").get<std::int64_t>();
  EXPECT_EQ(run_json("cache size").at("entries"), 2 + objects);
  EXPECT_GE(run_json("cache size").at("bytes").get<std::int64_t>(), bytes);
  EXPECT_EQ(run_json("cache list --pattern gemm_int8_*").at("entries").size(), 1U);
  EXPECT_EQ(run_json("cache verify").at("good"), 2 + objects);

  // One flipped bit: found, said, set aside.
  const fs::path binary =
      fs::path(list.at("entries").at(0).at("folder").get<std::string>()) / "kernel.so";
  std::string content = read_file(binary);
  content[content.size() / 2] ^= 1;
  fs::permissions(binary, fs::perms::owner_all);
  write_file(binary, content);
  const CliResult damaged = run("cache verify --json");
  EXPECT_EQ(damaged.status, 1);
  EXPECT_EQ(Json::parse(damaged.out).at("good"), 1 + objects);
  EXPECT_EQ(Json::parse(damaged.out).at("damaged").size(), 1U);
  EXPECT_EQ(run_json("cache list").at("entries").size(), 1U + objects);

  EXPECT_EQ(run_json("cache clear --pattern nothing*").at("removed"), 0);
  EXPECT_EQ(run_json("cache clear").at("removed"), 1 + objects);
  EXPECT_EQ(run_json("cache size").at("entries"), 0);
}

TEST_F(CliRun, PackReplacesTheCompiler) {
  write_target("my.json", "mymachine", "host");
  const Words problem = {"run",      "gemm",    "m=40",     "n=24", "k=56",
                         "--target", "my.json", "--repeat", "1",    "--verify"};
  write("shapes.txt", "gemm m=40 n=24 k=56\n");
  const Json packed =
      run_json("pack --target my.json --shapes shapes.txt --best 2 --output kernels.pack",
               {"SOURCE_DATE_EPOCH=1700000000"});
  EXPECT_EQ(packed.at("packed"), 2);
  EXPECT_EQ(packed.at("cached"), 0);
  EXPECT_EQ(packed.at("errors").size(), 0U);
  const Json entries = run_json("pack --list kernels.pack").at("entries");
  ASSERT_EQ(entries.size(), 2U);
  for (const Json& entry : entries) EXPECT_EQ(entry.at("target"), "mymachine");

  // An empty cache and no compiler: the pack alone serves.
  const std::string elsewhere = "TESSERA_CACHE_DIR=" + (folder() / "empty").string();
  const std::vector<std::string> without = {"TESSERA_NO_JIT=1", "TESSERA_CXX=/nonexistent",
                                            elsewhere};
  std::vector<std::string> with = without;
  with.push_back("TESSERA_PACK=" + (folder() / "kernels.pack").string());
  EXPECT_EQ(run(problem, without).status, 1);
  EXPECT_EQ(run_json(problem, with)["runs"][0]["verified"]["ok"], true);

  // The same kernels again come from the cache and give the same bytes.
  const Json again =
      run_json("pack --target my.json --shapes shapes.txt --best 2 --output again.pack --jobs 1",
               {"SOURCE_DATE_EPOCH=1700000000"});
  EXPECT_EQ(again.at("cached"), 2);
  EXPECT_EQ(read_file(folder() / "again.pack"), read_file(folder() / "kernels.pack"));
}

TEST_F(CliRun, PackTakesSeveralTargetsSetsAndNames) {
  const std::string host = host_target().name;
  const Json kernels = run_json("list --target generic --preselected int8_ccr_latency")["kernels"];
  const std::string name = kernels.at(0);
  const Json packed = run_json({"pack", "--target", host, "--target", "generic", "--preselected",
                                "int8_rrr_essential", "--name", name, "--output", "x.pack"});
  const Json entries = run_json("pack --list x.pack").at("entries");
  EXPECT_EQ(packed.at("packed"), entries.size());
  std::set<std::string> names;
  std::set<std::string> targets;
  for (const Json& entry : entries) {
    names.insert(entry.at("kernel"));
    targets.insert(entry.at("target"));
  }
  EXPECT_EQ(names.size(), entries.size());
  EXPECT_EQ(names.count(name), 1U);
  EXPECT_EQ(targets, (std::set<std::string>{host, "generic"}));
}

}  // namespace
}  // namespace tessera::cli_test
