// A model that is recorded, packed, and served without a compiler.
#include "host/cli/cli.h"

namespace tessera::cli_test {
namespace {

struct CliPack : CliTest {
  // Kernels of a row of the user's own are in no shipped pack.
  CliPack() { write_target("mine.json", "mine", "generic"); }
  const std::vector<std::string> recorded{"TESSERA_TARGET=mine.json",
                                          "TESSERA_RECORD=model.record"};
  const std::vector<std::string> served{"TESSERA_TARGET=mine.json", "TESSERA_PACK=model.pack",
                                        "TESSERA_NO_JIT=1", "TESSERA_CACHE_DIR=other_cache"};
};

TEST_F(CliPack, ARecordedModelRunsWithoutACompiler) {
  const Json first = run_json("run gemm m=9 n=33 k=17 --repeat 1", recorded);
  const Json shown = run_json("record show model.record");
  ASSERT_EQ(shown.at("problems").size(), 1U);
  const Json& kernel = shown.at("problems").at(0).at("kernels").at(0);
  EXPECT_EQ(kernel.at("kernel"), first.at("runs").at(0).at("kernel"));
  EXPECT_EQ(kernel.at("from"), Json({{"compiled", 1}}));
  const Json packed = run_json("pack --record model.record --range m=1..40 --output model.pack",
                               {"SOURCE_DATE_EPOCH=1700000000"});
  EXPECT_GE(packed.at("packed").get<int>(), 1);
  EXPECT_EQ(packed.at("bytes"), fs::file_size(folder() / "model.pack"));
  EXPECT_EQ(packed.at("made"), 1'700'000'000);
  EXPECT_FALSE(packed.at("compilers").at("mine").get<std::string>().empty());
  EXPECT_EQ(packed.at("choices"), 40);
  EXPECT_EQ(run("pack --check model.pack --record model.record --range m=1..40").status, 0);
  for (const char* m : {"m=1", "m=9", "m=40"}) {
    const Json run =
        run_json({"run", "gemm", m, "n=33", "k=17", "--repeat", "1", "--verify"}, served);
    EXPECT_EQ(run.at("runs").at(0).at("verified").at("ok"), true) << m;
  }
  const std::string before = read_file(folder() / "model.pack");
  run_json("pack --record model.record --range m=1..40 --output model.pack",
           {"SOURCE_DATE_EPOCH=1700000000"});
  EXPECT_EQ(read_file(folder() / "model.pack"), before);
  expect_failure("pack --record model.record --output model.pack",
                 "pack: SOURCE_DATE_EPOCH must be a whole number of seconds from 0 to "
                 "253402300799, got 'today'",
                 1, {"SOURCE_DATE_EPOCH=today"});
}

}  // namespace
}  // namespace tessera::cli_test
