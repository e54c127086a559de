// tessera record and pack --record, of records that are made here.
#include <fmt/format.h>

#include <random>
#include <set>

#include "host/cli/cli.h"
#include "tessera/jit/pack.h"

namespace tessera::cli_test {
namespace {

struct CliRecord : CliTest {
  unsigned seed = std::random_device{}();
  std::mt19937 random{seed};

  CliRecord() { RecordProperty("seed", std::to_string(seed)); }

  std::string path(const char* name) const { return (folder() / name).string(); }

  // What choosing takes, as a process on the target would.
  static Decision chosen(const std::string& line, const Target& target, int threads) {
    ChooseOptions options;
    options.threads = threads;
    options.rankers = {make_library_ranker(shared_model_library("")), make_analytic_ranker(),
                       make_first_legal_ranker()};
    return choose(parse_problem(line), target, options);
  }

  static RecordRow row(const std::string& line, const Target& target, std::int64_t calls) {
    RecordRow row;
    row.problem = to_string(parse_problem(line));
    row.machine = "a machine";
    row.threads = is_gpu(target) ? 0 : 2;
    const Decision decision = chosen(line, target, row.threads);
    row.kernel = decision.name;
    row.source = decision.source;
    row.why = decision.why;
    row.predicted_seconds = decision.predicted_seconds;
    row.origin = KernelOrigin::compiled;
    row.calls = calls;
    row.misses = 1;
    row.choose_seconds = 0.001;
    row.ready_seconds = 1.5;
    return row;
  }

  void write_record(const char* name, const std::string& target,
                    const std::vector<std::pair<std::string, std::int64_t>>& problems) {
    Record record;
    record.targets = {load_target(target)};
    record.runs = {{std::to_string(random()), std::string(kVersion), 1'700'000'000}};
    for (const auto& [line, calls] : problems) {
      record.rows.push_back(row(line, record.targets[0], calls));
    }
    add_to_record(folder() / name, {&record, 1});
  }

  // A pack that has these kernels by name, though not their bytes.
  void write_pack_of(const std::set<std::string>& names, const jit::PackMaker& maker,
                     bool of_other_source = false) const {
    write_file(folder() / "bytes", "not a kernel");
    std::vector<jit::PackInput> inputs;
    for (const std::string& name : names) {
      const KernelSpec spec = parse_name(name);
      const Target target = load_target(spec.target);
      std::string key = jit::source_key(emit_legal(spec, target), target);
      if (of_other_source) key = std::string(key.size(), '0');
      inputs.push_back(
          {{.name = name, .source_key = key, .target = spec.target}, folder() / "bytes"});
    }
    jit::write_pack(folder() / "some.pack", inputs, maker);
  }
  std::set<std::string> missing(const std::string& more) const {
    const CliResult result = run(words_of("pack --check some.pack --json --record " + more));
    std::set<std::string> names;
    const Json json = Json::parse(result.out);
    for (const Json& one : json.at("missing")) names.insert(one.at("kernel"));
    EXPECT_EQ(result.status, names.empty() ? 0 : 1) << result.out << result.err;
    return names;
  }
};

TEST_F(CliRecord, ShowsWhatWasAskedByItsShareOfTheTime) {
  write_record("a.record", "generic", {{"gemm m=8 n=64 k=64", 10}, {"gemm m=512 n=512 k=512", 9}});
  write_record("a.record", "generic", {{"gemm m=8 n=64 k=64", 30}});
  const Json json = run_json("record show a.record");
  EXPECT_EQ(json.at("processes").size(), 2U);
  ASSERT_EQ(json.at("problems").size(), 2U);
  EXPECT_EQ(json.at("problems").at(0).at("problem"), "gemm m=512 n=512 k=512");
  const Json& small = json.at("problems").at(1);
  EXPECT_EQ(small.at("calls"), 40);
  EXPECT_EQ(small.at("threads"), 2);
  EXPECT_EQ(small.at("kernels").at(0).at("from"), Json({{"compiled", 2}}));
  EXPECT_EQ(small.at("kernels").at(0).at("processes"), 2);
  EXPECT_EQ(small.at("kernels").at(0).at("compile_seconds"), 3.0);
  EXPECT_EQ(run("record show a.record --shapes --top 1").out, "gemm m=512 n=512 k=512\n");
  const CliResult text = run("record show a.record");
  EXPECT_NE(text.out.find("2 problems of 2 processes, 49 calls, "), std::string::npos) << text.out;
}

TEST_F(CliRecord, MergesFilesAndLeavesThemAlone) {
  write_record("a.record", "generic", {{"gemm m=8 n=64 k=64", 10}});
  write_record("b.record", "generic", {{"gemm m=8 n=64 k=64", 5}, {"gemm m=9 n=64 k=64", 1}});
  const std::string before = read_file(folder() / "a.record");
  const Json json = run_json("record merge all.record a.record b.record a.record");
  EXPECT_EQ(json.at("calls"), 16);
  EXPECT_EQ(json.at("problems"), 2);
  EXPECT_EQ(json.at("processes"), 2);
  EXPECT_EQ(read_file(folder() / "a.record"), before);
  EXPECT_EQ(run("record merge new.record a.record no.record").status, 1);
  EXPECT_FALSE(fs::exists(folder() / "new.record"));
}

TEST_F(CliRecord, ExplainsWhatABetterChoiceSaves) {
  write_record("a.record", "generic", {{"gemm m=300 n=300 k=300", 100}});
  Record record = read_record(folder() / "a.record");
  ChooseOptions options;
  options.threads = 2;
  options.explain = true;
  const Decision all =
      choose(parse_problem("gemm m=300 n=300 k=300"), load_target("generic"), options);
  record.runs[0].name = "another";
  record.rows[0].calls = 1000;
  const Considered& worse = all.considered.at(3);
  record.rows[0].kernel = worse.name;
  add_to_record(folder() / "b.record", {&record, 1});
  const Json best = run_json("record explain a.record").at("problems").at(0).at("best");
  EXPECT_EQ(best.at("gain"), 1.0);
  EXPECT_EQ(best.at("saved_seconds"), 0.0);
  const Json json = run_json("record explain b.record");
  const Json& gain = json.at("problems").at(0).at("best");
  EXPECT_EQ(gain.at("kernel"), all.name);
  EXPECT_EQ(gain.at("source"), "analytic");
  EXPECT_DOUBLE_EQ(gain.at("gain").get<double>(), worse.predicted_seconds / all.predicted_seconds);
  EXPECT_DOUBLE_EQ(json.at("saved_seconds").get<double>(),
                   1000 * (worse.predicted_seconds - all.predicted_seconds));
  EXPECT_DOUBLE_EQ(json.at("compile_seconds").get<double>(), 1.5);
}

TEST_F(CliRecord, ReportsOnAPageThatNeedsNoOtherFile) {
  write_record("a.record", "generic", {{"gemm m=8 n=64 k=64", 10}, {"gemm m=512 n=512 k=512", 9}});
  write("bench.json",
        R"({"machine": "<b>", "cases": [{"problem": "gemm m=8 n=64 k=64", "seconds": 0.5,)"
        R"( "kernel": "x", "peers": [{"peer": "<peer>", "seconds": 0.25}]}]})");
  const Json json = run_json("record report a.record --bench bench.json --output page.html");
  EXPECT_EQ(json.at("measured"), 1);
  EXPECT_EQ(json.at("beside_peer"), 1);
  EXPECT_GT(json.at("seconds").get<double>(), 5.0);
  const std::string page = read_file(folder() / "page.html");
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  for (const char* outside : {"http", "<b>", "<peer>", "<script", "src="}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
  EXPECT_NE(page.find("gemm m=512 n=512 k=512"), std::string::npos);
  EXPECT_NE(page.find("0.50</td><td class=\"name\">&#60;peer&#62;"), std::string::npos) << page;
}

TEST_F(CliRecord, ARangesKernelsAreThoseThatChoosingTakes) {
  const std::string line = "gemm m=1 n=1024 k=512 dtype=bf16";
  write_record("a.record", "sm90a", {{line, 3}});
  write_pack_of({}, {});
  const std::set<std::string> needed = missing("a.record --range m=1..256");
  EXPECT_GT(needed.size(), 2U);
  const Target target = load_target("sm90a");
  std::set<std::string> drawn;
  for (int i = 0; i < 200; ++i) {
    const int m = std::uniform_int_distribution(1, 256)(random);
    const std::string name =
        chosen(fmt::format("gemm m={} n=1024 k=512 dtype=bf16", m), target, 0).name;
    EXPECT_TRUE(needed.count(name)) << "m=" << m << " " << name;
    drawn.insert(name);
  }
  EXPECT_LE(drawn.size(), needed.size());
  EXPECT_EQ(missing("a.record"), std::set{chosen(line, target, 0).name});
}

TEST_F(CliRecord, CheckNamesExactlyTheKernelThatIsMissing) {
  write_record(
      "a.record", "sm90a",
      {{"gemm m=1 n=1024 k=512 dtype=bf16", 3}, {"norm kind=softmax rows=64 columns=512", 1}});
  write_pack_of({}, {});
  const std::string what = "a.record --range m=1..256 --every";
  std::set<std::string> kernels = missing(what);
  ASSERT_GT(kernels.size(), 3U);
  write_pack_of(kernels, {});
  EXPECT_EQ(missing(what), std::set<std::string>{});
  auto removed = std::next(kernels.begin(), random() % kernels.size());
  const std::string name = *removed;
  kernels.erase(removed);
  write_pack_of(kernels, {});
  EXPECT_EQ(missing(what), std::set{name});
  const CliResult text = run(words_of("pack --check some.pack --record " + what));
  EXPECT_EQ(text.status, 1);
  EXPECT_EQ(text.out, fmt::format("{}: it is not in the pack\n1 of {} kernels are missing in "
                                  "some.pack, which Tessera {} made\n",
                                  name, kernels.size() + 1, kVersion));
}

TEST_F(CliRecord, APackOfAnotherVersionServesNothingAndSaysWhy) {
  write_record("a.record", "sm90a", {{"gemm m=1 n=1024 k=512 dtype=bf16", 3}});
  write_pack_of({}, {});
  const std::set<std::string> kernels = missing("a.record");
  const jit::PackMaker maker{"0.0.9", 1'700'000'000, {{"sm90a", "NVRTC 12.9"}}};
  write_pack_of(kernels, maker, true);
  const CliResult text = run("pack --check some.pack --record a.record");
  EXPECT_EQ(text.status, 1);
  EXPECT_NE(text.out.find("of another source, with the key 000000000000 where this library has "),
            std::string::npos)
      << text.out;
  EXPECT_NE(text.out.find("Tessera 0.0.9 on 2023-11-14 made it, this is Tessera "),
            std::string::npos)
      << text.out;
  EXPECT_NE(text.out.find("1 of 1 kernels are missing in some.pack, which Tessera 0.0.9 on "
                          "2023-11-14 made; it serves nothing of this\n"),
            std::string::npos)
      << text.out;
  const Json listed = run_json("pack --list some.pack");
  EXPECT_EQ(listed.at("version"), "0.0.9");
  EXPECT_EQ(listed.at("made"), 1'700'000'000);
  EXPECT_EQ(listed.at("compilers").at("sm90a"), "NVRTC 12.9");
  const CliResult list = run("pack --list some.pack");
  EXPECT_NE(list.out.find("made by Tessera 0.0.9 on 2023-11-14, "), std::string::npos) << list.out;
  EXPECT_NE(list.out.find("sm90a by NVRTC 12.9\n"), std::string::npos);
}

TEST_F(CliRecord, ARecordOfAnotherVersionIsChosenForAnew) {
  const Target target = load_target("sm90a");
  Record record;
  record.targets = {target};
  record.runs = {{"old", "0.0.1", 1}};
  record.rows = {row("gemm m=7 n=1024 k=512 dtype=bf16", target, 1)};
  record.rows[0].kernel = "gemm_of_an_older_time";
  add_to_record(folder() / "old.record", {&record, 1});
  write_pack_of({}, {});
  EXPECT_EQ(missing("old.record"),
            std::set{chosen("gemm m=7 n=1024 k=512 dtype=bf16", target, 0).name});
}

TEST_F(CliRecord, WrongRangesAndRecordsAreSentences) {
  write_record("a.record", "sm90a", {{"gemm m=1 n=1024 k=512 dtype=bf16", 3}});
  write_pack_of({}, {});
  write("cut.record", read_file(folder() / "a.record").substr(0, 100));
  write("text.json", "{\"cases\": 3}");
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"pack --check some.pack --record a.record --range q=1..4",
       "--range q=1..4: none of the record's 1 problems has a field q"},
      {"pack --check some.pack --record a.record --range m=1..4,n=1..4",
       "'gemm m=1 n=1024 k=512 dtype=bf16' has both fields m and n: name a range for one of them"},
      {"pack --check some.pack --range m=1..4",
       "pack: --range and --every are about the problems of a --record; name one"},
      {"pack --check some.pack --record a.record --name x",
       "pack: --record says which kernels; leave out --preselected, --name and --shapes, or make "
       "two packs"},
      {"pack --check some.pack --record a.record --target sm90",
       "the record asked nothing of target 'sm90', did you mean 'sm90a'? (its targets: sm90a)"},
      {"pack --check some.pack --record no.record", "record 'no.record': there is no such file"},
      {"record shwo a.record",
       "record: unknown action 'shwo', did you mean 'show'? (known: show, merge, explain, report)"},
      {"record merge a.record",
       "record merge takes the record to make and those to add to it, got 1 file"},
      {"record report a.record", "record report needs --output, the page to write"},
      {"record show a.record --target avx2",
       "record: nothing was asked of target 'avx2' (its targets: sm90a)"},
  };
  for (const auto& [line, sentence] : rows) expect_failure(words_of(line), sentence);
  for (const char* range : {"m=1..", "m=9..2", "m=1..1000000000000", "m=0..4", "m", "m=a..b"}) {
    const CliResult result =
        run({"pack", "--check", "some.pack", "--record", "a.record", "--range", range});
    EXPECT_EQ(result.status, 1) << range;
    EXPECT_EQ(result.out, "") << range;
    EXPECT_TRUE(result.err.starts_with("tessera: ")) << range << ": " << result.err;
  }
  for (const char* line :
       {"record show cut.record", "pack --check some.pack --record cut.record"}) {
    EXPECT_NE(run(line).err.find("record 'cut.record' is damaged: "), std::string::npos) << line;
  }
  EXPECT_NE(
      run("record report a.record --output p --bench text.json")
          .err.find("'text.json' is not what 'tessera bench OP --shapes FILE --json' prints: "),
      std::string::npos);
  EXPECT_FALSE(fs::exists(folder() / "p"));
}

}  // namespace
}  // namespace tessera::cli_test
