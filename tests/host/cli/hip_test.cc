// The command line on a machine with AMD GPUs that are none.
#include <map>

#include "host/cli/cli.h"

namespace tessera::cli_test {
namespace {

class CliHip : public CliTest {
 protected:
  std::map<std::string, std::string> doctor(const std::vector<std::string>& extra) const {
    std::map<std::string, std::string> details;
    const Json answer = Json::parse(run("doctor --json", extra).out);
    for (const Json& finding : answer.at("findings")) {
      details[finding.at("what")] = finding.at("detail");
    }
    return details;
  }
};

TEST_F(CliHip, DoctorNamesTheRuntimeTheGpusAndTheirTargets) {
  const std::string hip = std::string("TESSERA_HIP=") + FAKE_HIP;
  auto details = doctor({hip, "FAKE_HIP_DEVICES=2"});
  EXPECT_EQ(details.at("AMD HIP"), std::string(FAKE_HIP) + ", HIP 6.2.41134");
  EXPECT_EQ(details.at("AMD GPU 1"),
            "Fake Instinct 1, gfx942:sramecc+:xnack-, 304 compute units, 1 GiB: target gfx942");
  EXPECT_EQ(details.at("GPU targets"), "runs gfx942");
  details = doctor({std::string("TESSERA_HIP=") + FAKE_HIP_5, "FAKE_HIP_ARCHITECTURE=gfx940"});
  EXPECT_EQ(details.at("AMD HIP"), std::string(FAKE_HIP_5) + ", HIP 5.2.21153");
  EXPECT_EQ(details.at("AMD GPU 0"),
            "Fake Instinct 0, gfx940, 304 compute units, 1 GiB: there is no target for a GPU of "
            "architecture 'gfx940'; its nearest relative is gfx942");
  const Json rows = run_json("targets", {hip}).at("targets");
  for (const Json& row : rows) {
    if (row.at("backend") != "hip") continue;
    EXPECT_EQ(row.at("runs_here"), row.at("name") == "gfx942") << row;
  }
}

TEST_F(CliHip, DoctorSaysWhatIsMissing) {
  const auto details = doctor({"TESSERA_HIPCC=/none", "TESSERA_LLVM_OBJDUMP=/none"});
  EXPECT_EQ(details.at("AMD HIP").find("only needed to run on an AMD GPU: AMD's HIP runtime "
                                       "/no/libamdhip64.so cannot be loaded"),
            0U);
  EXPECT_EQ(details.at("AMD compiler")
                .find("only needed to compile for GPUs: the compiler '/none', named by "
                      "TESSERA_HIPCC, is neither an executable file nor a library"),
            0U);
  EXPECT_EQ(details.at("llvm-objdump"),
            "only needed to disassemble and emulate kernels for AMD GPUs: install it ('apt install "
            "llvm-22') or name it with TESSERA_LLVM_OBJDUMP");
}

}  // namespace
}  // namespace tessera::cli_test
