// tessera data and the words of tessera sweep, on stores made up for the test.
#include "host/cli/cli.h"
#include "host/measure/sweep_data.h"

namespace tessera::cli_test {
namespace {

using testing_support::random_data;
using testing_support::sweep_run;

class CliData : public CliTest {
 protected:
  void make_store(const std::string& file, const measure::SweepData& data) const {
    const measure::SweepPart part{data, "test"};
    measure::SweepStore(folder() / file).add(std::span(&part, 1), measure::Conflict::refuse);
  }
  measure::SweepData read(const std::string& file) const {
    return measure::sorted(
        measure::SweepStore(folder() / file, measure::OpenMode::existing).read());
  }
  ~CliData() override {
    if (HasFailure()) fmt::print("seed {}\n", seed_);
  }

  std::uint64_t seed_ = std::random_device{}();
  measure::SweepData data_ = random_data(sweep_run("a"), 6, 11, seed_);
};

TEST_F(CliData, CsvRoundTripIsExact) {
  make_store("s.sqlite", data_);
  EXPECT_EQ(run_json("data export s.sqlite s.csv").at("rows"), data_.rows.size() + 2);
  EXPECT_EQ(run_json("data import t.sqlite s.csv").at("added"), data_.rows.size());
  EXPECT_EQ(read("t.sqlite"), data_);
  EXPECT_EQ(run_json("data import t.sqlite s.csv").at("identical"), data_.rows.size());
}

TEST_F(CliData, ParquetRoundTripIsExact) {
  make_store("s.sqlite", data_);
  const CliResult exported = run("data export s.sqlite s.parquet");
  if (exported.err.find("parquet: the plug-in ") != std::string::npos) {
    GTEST_SKIP() << "built without the Parquet plug-in";
  }
  EXPECT_EQ(exported.status, 0) << exported.err;
  EXPECT_EQ(run_json("data import t.sqlite s.parquet").at("added"), data_.rows.size());
  EXPECT_EQ(read("t.sqlite"), data_);
  // Cut short, at any place, it is refused with Arrow's words.
  const std::string whole = read_file(folder() / "s.parquet");
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{4}, whole.size() / 2, whole.size() - 1}) {
    write("cut.parquet", whole.substr(0, length));
    const CliResult result = run("data describe cut.parquet");
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.err.find("tessera: 'cut.parquet' cannot be read: "), 0U) << result.err;
  }
}

// Written by pyarrow.parquet.write_table(..., use_dictionary=["kernel"], compression="none",
// write_statistics=False, store_schema=False) with a kernel of binary, m of uint16 (300, 40000), n
// of int8 (16, 24), k of uint32 (7, 70000), latency_ms of float32 (0.5, 2) and tags of lists.
constexpr std::string_view kSmallTypes =
    "504152311504157015704c150215001200003400000067656d6d5f667033325f7263725f7061636b625f3132"
    "3078373638783235365f31783178315f3132783478315f67656e657269631500151215122c15041510150615"
    "061c0000000200000004010104001500151c151c2c15041500150615061c0000000200000004012c01000040"
    "9c00001500151c151c2c15041500150615061c00000002000000040110000000180000001500151c151c2c15"
    "041500150615061c00000002000000040107000000701101001500151c151c2c15041500150615061c000000"
    "0200000004010000003f000000401500153815382c15041500150615061c0000000200000004000200000004"
    "03010000000000000002000000000000001504199c35001806736368656d61150c00150c250218066b65726e"
    "656c001502250218016d25184cac1310120000001502250218016e251e4cac1308110000001502250218016b"
    "251a4cac13201200000015082502180a6c6174656e63795f6d73003502180474616773150215064c3c000000"
    "350418046c697374150200150425021807656c656d656e74001604191c196c26001c150c1935000610191806"
    "6b65726e656c1500160416c40116c4012694012608292c15041500150200150015101502003c16d001190619"
    "26000400000026001c1502192506001918016d150016041642164226cc01491c150015001502003c29061926"
    "000400000026001c1502192506001918016e1500160416421642268e02491c150015001502003c2906192600"
    "0400000026001c1502192506001918016b150016041642164226d002491c150015001502003c290619260004"
    "00000026001c15081925060019180a6c6174656e63795f6d731500160416421642269203491c150015001502"
    "003c29061926000400000026001c15041925060019380474616773046c69737407656c656d656e7415001604"
    "165e165e26d403491c150015001502003c2926040019460000000400000016aa041604260816aa0400282070"
    "6172717565742d6370702d6172726f772076657273696f6e2032362e302e31196c1c00001c00001c00001c00"
    "001c00001c0000000702000050415231";

std::string from_hex(std::string_view digits) {
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

TEST_F(CliData, ParquetOfOtherWritersHasOtherTypes) {
  write("s.parquet", from_hex(kSmallTypes));
  const CliResult imported =
      run("data import t.sqlite s.parquet --device-name X --target generic --dtype fp32");
  if (imported.err.find("parquet: the plug-in ") != std::string::npos) {
    GTEST_SKIP() << "built without the Parquet plug-in";
  }
  EXPECT_EQ(imported.status, 0) << imported.err;
  const measure::SweepData found = read("t.sqlite");
  EXPECT_EQ(found.problems,
            (std::vector<std::string>{"gemm m=300 n=16 k=7", "gemm m=40000 n=24 k=70000"}));
  ASSERT_EQ(found.rows.size(), 2U);
  EXPECT_EQ(found.rows[0].seconds + found.rows[1].seconds, 0.0025);
}

TEST_F(CliData, TwoColumnsOfOneMeaning) {
  const std::string kernel = "gemm_fp32_rcr_packb_120x768x256_1x1x1_12x4x1_generic";
  const std::string line = "data import t.sqlite s.csv --device-name X --target generic";
  write("s.csv", "kernel,m,n,k,M,latency_ms\n" + kernel + ",8,16,16,9,1\n");
  expect_failure(words_of(line), "'s.csv': row 1 has two values of 'm', 8 and 9");
  write("s.csv", "kernel,m,n,k,M,latency_ms\n" + kernel + ",8,16,16,8,1\n");
  EXPECT_EQ(run(line.c_str()).status, 0);
}

// What cannot be written whole leaves the old file; a link keeps pointing where it did, also to
// what is not there yet.
TEST_F(CliData, ExportsAreWholeOrNotThere) {
  make_store("s.sqlite", data_);
  for (const std::string ending : {"csv", "parquet"}) {
    const std::string real = std::string(200, 'r') + "." + ending;
    const std::string link = "link." + ending;
    fs::create_symlink(real, folder() / link);
    const CliResult exported = run({"data", "export", "s.sqlite", link});
    if (exported.err.find("parquet: the plug-in ") != std::string::npos) {
      GTEST_SKIP() << "built without the Parquet plug-in";
    }
    EXPECT_EQ(exported.err, "");
    EXPECT_EQ(fs::read_symlink(folder() / link), real);
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(folder() / real)));

    const std::string whole = read_file(folder() / real);
    const SubprocessResult limited =
        run_subprocess({"/bin/sh", "-c", "ulimit -f 1; \"$0\" data export s.sqlite \"$1\" 2>&1",
                        TESSERA_CLI, link},
                       {.working_folder = folder()});
    EXPECT_EQ(limited.output, "tessera: cannot write " + link + ": File too large\n");
    EXPECT_EQ(read_file(folder() / real), whole);
  }
}

TEST_F(CliData, WithoutThePluginItSaysHowToGetIt) {
  make_store("s.sqlite", data_);
  const CliResult result =
      run("data export s.sqlite s.parquet", {"TESSERA_PARQUET=/no/libtessera_parquet.so"});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err,
            "tessera: parquet: the plug-in libtessera_parquet.so cannot be loaded "
            "(/no/libtessera_parquet.so: cannot open shared object file: No such file or "
            "directory): it is built where a Python has pyarrow: './dev setup' and './dev build' "
            "in Tessera's source, or 'pip install pyarrow' and configure and build Tessera again, "
            "or use a .csv "
            "file instead\n");
}

TEST_F(CliData, MergeIsAllOrNothing) {
  measure::SweepData other = random_data(sweep_run("b", 2000), 6, 11, 1);
  make_store("a.sqlite", data_);
  make_store("b.sqlite", other);
  const CliResult refused = run("data merge all.sqlite a.sqlite b.sqlite");
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.err.find("'all.sqlite' and 'b.sqlite' measured "), std::string::npos)
      << refused.err;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder())) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("all.sqlite")) << entry.path();
  }
  const Json merged = run_json("data merge all.sqlite a.sqlite b.sqlite --prefer newest");
  EXPECT_EQ(merged.at("added"), 66);
  EXPECT_EQ(merged.at("replaced").get<int>() + merged.at("older").get<int>(), 66);
  expect_failure("data merge all.sqlite a.sqlite --prefer oldest",
                 "data merge: --prefer knows 'newest' only, got 'oldest'");
}

TEST_F(CliData, StrictChecksFailWhenSomethingIsFound) {
  measure::SweepData data = data_;
  for (measure::SweepRow& row : data.rows) {
    row.outcome = measure::Outcome::ok;
    row.seconds = 1e-3;
    row.spread = 0.01;
    row.note.clear();
  }
  data.clock.clear();
  make_store("good.sqlite", data);
  EXPECT_EQ(run("data check good.sqlite --strict").status, 0);
  data.rows[5].spread = 0.5;
  make_store("bad.sqlite", data);
  EXPECT_EQ(run("data check bad.sqlite").status, 0);
  EXPECT_EQ(run("data check bad.sqlite --strict").status, 1);
  const Json findings = run_json("data check bad.sqlite").at("findings");
  EXPECT_EQ(findings.at(3).at("what"), "variation");
  EXPECT_EQ(findings.at(3).at("count"), 1);
}

TEST_F(CliData, ImportsOtherToolsJson) {
  write("other.json", R"([{"m": 8, "n": 8, "k": 8, "kernel": "theirs", "latency_ms": 1.5}])");
  expect_failure("data import s.sqlite other.json",
                 "'other.json': rows of another tool do not say where they were measured: give "
                 "--device-name and --target");
  const Words words =
      words_of("data import s.sqlite other.json --device-name GPU --target gfx942 --dtype fp16");
  EXPECT_EQ(run_json(words).at("added"), 1);
  EXPECT_EQ(run_json(words).at("identical"), 1);
  EXPECT_EQ(read("s.sqlite").problems, (std::vector<std::string>{"gemm m=8 n=8 k=8 dtype=fp16"}));
}

TEST_F(CliData, ReadersChangeNothing) {
  write("empty.sqlite", "");
  make_store("s.sqlite", data_);
  const std::string sentence = "sweep store 'empty.sqlite': the file holds no database";
  for (const std::string line :
       {"data describe empty.sqlite", "data check empty.sqlite", "data export empty.sqlite x.csv",
        "data merge out.sqlite s.sqlite empty.sqlite", "train --output m --data empty.sqlite",
        "report --model m --output r.html --data empty.sqlite"}) {
    expect_failure(words_of(line), sentence);
  }
  EXPECT_EQ(fs::file_size(folder() / "empty.sqlite"), 0U);
  const std::string before = read_file(folder() / "s.sqlite");
  EXPECT_EQ(run("data describe s.sqlite").status, 0);
  EXPECT_EQ(run("data check s.sqlite").status, 0);
  EXPECT_EQ(read_file(folder() / "s.sqlite"), before);
  std::vector<std::string> names;
  for (const auto& file : fs::directory_iterator(folder())) {
    names.push_back(file.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"empty.sqlite", "s.sqlite", "stderr"}));
}

TEST_F(CliData, ByteOrderMark) {
  make_store("s.sqlite", data_);
  EXPECT_EQ(run("data export s.sqlite s.csv").status, 0);
  write("marked.csv", "\xEF\xBB\xBF" + read_file(folder() / "s.csv"));
  EXPECT_EQ(run_json("data import t.sqlite marked.csv").at("added"), data_.rows.size());
  EXPECT_EQ(read("t.sqlite"), data_);
}

TEST_F(CliData, NonsenseGetsASentence) {
  const std::string from_json = "data import s.sqlite bad.json --device-name GPU --target gfx942";
  write("bad.json", "[\n  {\"m\": 8,}\n]\n");
  expect_failure(words_of(from_json),
                 "'bad.json': line 2, column 11: syntax error while parsing object key - "
                 "unexpected '}'; expected string literal");
  write("bad.json", "");
  expect_failure(words_of(from_json),
                 "'bad.json': no measurements were found: known are JSON (an array of objects, or "
                 "the dispatcher's results), logs with lines 'Shape N: M= N= K= dtype= layout=', "
                 "and CSV with the columns kernel and latency_ms or tflops");
  EXPECT_FALSE(fs::exists(folder() / "s.sqlite"));
  make_store("s.sqlite", data_);
  expect_failure("data descibe s.sqlite",
                 "data: unknown action 'descibe', did you mean 'describe'? (known: describe, "
                 "check, merge, export, import)");
  expect_failure("data describe", "data describe takes one file, got 0");
  expect_failure("data describe none.sqlite", "sweep store 'none.sqlite': there is no such file");
  expect_failure("data export s.sqlite s.txt", "data export: 's.txt' must end in .csv or .parquet");
  expect_failure("data merge s.sqlite",
                 "data merge takes the store to make and those to add to it");
}

TEST_F(CliData, SweepWordsThatAreNoneGetASentence) {
  write("p.txt", "gemm m=8 n=8 k=8\n");
  const std::string good = "sweep --problems p.txt --store s.sqlite --kernels ";
  expect_failure(words_of(good + "all-legal --budget soon"),
                 "sweep: --budget is a time above 0 such as 90s, 30m or 2h, got 'soon'");
  expect_failure(words_of(good + "all-legal --shard 5/4"),
                 "sweep: --shard is i/n with i from 1 to n, got '5/4'");
  expect_failure(words_of(good + "gemm_nothing_* --target avx2"),
                 "sweep: no kernel of avx2 for these problems matches 'gemm_nothing_*'; 'tessera "
                 "list --target avx2' shows what there is");
}

}  // namespace
}  // namespace tessera::cli_test
