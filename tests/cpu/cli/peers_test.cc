// What bench does with a peer that misbehaves: a library that stands for OpenBLAS, see fake_peers/.
#include <fmt/format.h>

#include "host/cli/cli.h"

namespace tessera::cli_test {
namespace {

struct CliPeers : CliTest {
  static std::vector<std::string> peer(const char* library, const char* how) {
    return {fmt::format("LD_LIBRARY_PATH={}/{}", FAKE_PEERS, library),
            fmt::format("FAKE_PEER={}", how)};
  }
};

TEST_F(CliPeers, OneThatCannotBeLoadedIsLeftOut) {
  struct Case {
    const char* library;
    const char* how;
    const char* sentence;
  };
  const Case cases[] = {
      {"fake_openblas", "load",
       "openblas is left out: it died on signal 11 (Segmentation fault) while it was made ready"},
      {"fake_openblas", "start",
       "openblas is left out: it died on signal 6 (Aborted) while it was made ready"},
      {"fake_openblas_incomplete", "",
       "openblas is left out: libopenblas.so.0 lacks cblas_sgemm, openblas_get_corename"},
      {"fake_openblas", "", "9.9 (libopenblas.so.0, none)"},
  };
  for (const Case& c : cases) {
    const Json doctor = Json::parse(run("doctor --json", peer(c.library, c.how)).out);
    std::string said;
    for (const Json& finding : doctor.at("findings")) {
      if (finding.at("what") == "peer openblas") said = finding.at("detail");
    }
    EXPECT_EQ(said, c.sentence);
  }
}

// Each costs its own time and nothing of the others': a peer is tried in a process of its own.
TEST_F(CliPeers, OneThatFailsOrIsWrongHasNoTime) {
  const std::pair<int, const char*> cases[] = {
      {100, ""},
      {101, "openblas sgemm is left out: it died on signal 11 (Segmentation fault)"},
      {102, "openblas sgemm is left out: it ended the process with status 3"},
      {103, "openblas sgemm is left out: it did not end within 2"},
      {104, "openblas sgemm is left out, its result is wrong: gemm: out[0, 0] is "},
      {105, "openblas sgemm is left out, its result is wrong: gemm: out[0, 0] is nan"},
      {106, ""}};
  std::string problems;
  for (const auto& [m, sentence] : cases) problems += fmt::format("gemm m={} n=24 k=16\n", m);
  write("p.txt", problems);
  const Json json = run_json(
      "bench gemm --shapes p.txt --threads 1 --rounds 3 --min-seconds 0.0002 --peers openblas "
      "--peer-seconds 2",
      peer("fake_openblas", ""));
  ASSERT_EQ(json.at("cases").size(), std::size(cases));
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    const Json& bench = json.at("cases").at(i);
    const std::string sentence = cases[i].second;
    EXPECT_GT(bench.at("seconds").get<double>(), 0);
    ASSERT_EQ(bench.at("peers").size(), sentence.empty() ? 1U : 0U) << bench;
    ASSERT_EQ(bench.at("notes").size(), sentence.empty() ? 0U : 1U) << bench;
    if (sentence.empty()) continue;
    EXPECT_EQ(bench.at("notes").at(0).get<std::string>().substr(0, sentence.size()), sentence);
  }
}

// Nothing stands between such a peer and the bench but the comparison with the reference.
TEST_F(CliPeers, WithoutATrialResultsAreStillCompared) {
  write("p.txt", "gemm m=100 n=24 k=16\ngemm m=104 n=24 k=16\n");
  const Json json = run_json(
      "bench gemm --shapes p.txt --threads 1 --rounds 3 --min-seconds 0.0002 --peers openblas "
      "--peer-seconds 0",
      peer("fake_openblas", ""));
  EXPECT_EQ(json.at("cases").at(0).at("peers").size(), 1U);
  EXPECT_EQ(json.at("cases").at(0).at("notes").size(), 0U);
  const Json& wrong = json.at("cases").at(1);
  EXPECT_EQ(wrong.at("peers").size(), 0U);
  EXPECT_EQ(wrong.at("notes").at(0).get<std::string>().find(
                "openblas sgemm is left out, its result is wrong: gemm: out[0, 0] is "),
            0U);
}

TEST_F(CliPeers, OneWithoutTheOperationIsAskedOnlyByName) {
  const std::string norm = "bench norm kind=softmax rows=8 columns=64 --threads 1 --rounds 3 ";
  const Json all = run_json(words_of(norm + "--min-seconds 0.0002"), peer("fake_openblas", ""));
  EXPECT_EQ(all.at("peers"), Json::object());
  EXPECT_EQ(all.at("cases").at(0).at("notes"), Json::array());
  const Json one =
      run_json(words_of(norm + "--min-seconds 0.0002 --peers openblas"), peer("fake_openblas", ""));
  EXPECT_EQ(one.at("cases").at(0).at("notes"),
            Json::array({"openblas cannot compute this problem"}));
}

TEST_F(CliPeers, LayersOfAllDirectionsAreMeasured) {
  write("p.txt", "conv direction=forward n=32 c=8 k=16 h=9 w=9 y=3 x=3 pad_h=1 pad_w=1\n");
  for (const std::string direction : {"forward", "backward_data", "backward_weight"}) {
    const Json json = run_json(
        words_of("bench conv --shapes p.txt --set n=1 --threads 1 --rounds 3 --min-seconds 0.0002 "
                 "--peer-seconds 0 --set direction=" +
                 direction));
    EXPECT_EQ(json.at("cases").at(0).at("problem"),
              "conv direction=" + direction + " n=1 c=8 k=16 h=9 w=9 y=3 x=3 pad_h=1 pad_w=1");
    EXPECT_EQ(json.at("cases").at(0).at("notes"), Json::array());
    EXPECT_EQ(json.at("peers").contains("openblas"), false);
    if (!json.at("peers").contains("onednn")) continue;
    EXPECT_GT(json.at("summary").at("geomean_vs").at("onednn").get<double>(), 0);
  }
}

TEST_F(CliPeers, AttentionIsMeasured) {
  const Json json = run_json(
      "bench fmha heads=4 heads_kv=2 seqlen_q=24 seqlen_k=40 hdim=16 mask=bottom_right --threads 1 "
      "--rounds 3 --min-seconds 0.0002");
  EXPECT_EQ(json.at("cases").at(0).at("notes"), Json::array());
  EXPECT_EQ(json.at("peers").contains("openblas"), false);
  if (!json.at("peers").contains("onednn")) GTEST_SKIP() << "oneDNN is not installed";
  EXPECT_GT(json.at("summary").at("geomean_vs").at("onednn").get<double>(), 0);
}

}  // namespace
}  // namespace tessera::cli_test
