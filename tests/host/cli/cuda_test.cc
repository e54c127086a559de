// The commands on a GPU, with a driver and a compiler that are none: see fake_cuda/.
#include "host/cli/cli.h"

namespace tessera::cli_test {
namespace {

class CliCuda : public CliTest {
 protected:
  static std::vector<std::string> gpu(const std::string& kernel = "gemm") {
    return {std::string("TESSERA_CUDA_DRIVER=") + FAKE_CUDA,
            std::string("TESSERA_NVRTC=") + FAKE_NVRTC, "FAKE_CUDA_KERNEL=" + kernel,
            "FAKE_CUDA_DEVICES=2"};
  }
  static std::string a_kernel() {
    const Target target = load_target("sm90a");
    return name_of(family_of(Op::gemm).preselected("fp32_rcr_essential", target).front());
  }
};

TEST_F(CliCuda, RunCopiesTimesAndVerifies) {
  const Json json = run_json("run gemm m=65 n=47 k=41 dtype=bf16 --target sm90a --verify", gpu());
  const Json& report = json.at("runs").at(0);
  EXPECT_TRUE(report.at("verified").at("ok"));
  EXPECT_EQ(report.at("verified").at("checked"), 65 * 47);
  EXPECT_NEAR(report.at("seconds").get<double>(), 1e-3, 1e-9);  // the fake's clock
  const Json other =
      run_json("run gemm m=8 n=8 k=8 --layout rrr --target sm90a --verify --device 1", gpu());
  EXPECT_TRUE(other.at("runs").at(0).at("verified").at("ok"));
}

TEST_F(CliCuda, RunSaysWhatWentWrong) {
  const CliResult wrong = run("run gemm m=16 n=16 k=16 --target sm90a --verify", gpu("wrong"));
  EXPECT_NE(wrong.err.find(": gemm: out[0, 0] is 1000000, the reference is "), std::string::npos)
      << wrong.err;
  const CliResult crash = run("run gemm m=16 n=16 k=16 --target sm90a", gpu("crash"));
  EXPECT_NE(crash.err.find("failed on device 0 (Fake GPU 0, compute capability 9.0): "
                           "CUDA_ERROR_ILLEGAL_ADDRESS"),
            std::string::npos)
      << crash.err;
  const CliResult absent = run("run gemm m=16 n=16 k=16 --target sm90a --device 7", gpu());
  EXPECT_EQ(absent.err, "tessera: device 7 was asked for, this machine has devices 0 to 1\n");
}

TEST_F(CliCuda, VerifyTakesKernelsByName) {
  const Json json = run_json(words_of("verify --target sm90a " + a_kernel()), gpu());
  EXPECT_EQ(json.at("verified"), 1);
  EXPECT_EQ(json.at("wrong"), 0);
}

TEST_F(CliCuda, MatmulBringsTheProductBack) {
  write("a.npy", npy_text("<f4", "(2, 3)", false, bytes_of<float>({1, 2, 3, 4, 5, 6})));
  write("b.npy", npy_text("<f4", "(3, 2)", false, bytes_of<float>({1, 0, 0, 1, 1, 1})));
  const CliResult result = run("matmul a.npy b.npy -o out.npy --target sm90a --verify", gpu());
  EXPECT_EQ(result.status, 0) << result.err;
  std::string header;
  EXPECT_EQ(npy_data<float>(folder() / "out.npy", header), (std::vector<float>{4, 5, 10, 11}));
}

TEST_F(CliCuda, BenchTimesByTheDevicesClock) {
  const Json json = run_json(
      "bench gemm m=64 n=64 k=32 dtype=bf16 --target sm90a --peers openblas --rounds 3", gpu());
  const Json& bench = json.at("cases").at(0);
  EXPECT_NEAR(bench.at("seconds").get<double>(), 1e-3, 1e-9);
  EXPECT_EQ(json.at("machine"), "Fake GPU 0");
  EXPECT_TRUE(json.at("protocol").at("flush_caches"));
}

TEST_F(CliCuda, SweepMeasuresOnTheDevicesClock) {
  write("p.txt", "gemm m=64 n=64 k=32\ngemm m=300 n=200 k=16\n");
  const Words words = {"sweep",    "--problems", "p.txt",   "--kernels", a_kernel(),
                       "--target", "sm90a",      "--store", "s.sqlite"};
  EXPECT_EQ(run_json(words, gpu()).at("outcomes"), Json({{"ok", 2}}));
  const Json described = run_json("data describe s.sqlite");
  EXPECT_NEAR(described.at("least_seconds").get<double>(), 1e-3, 1e-9);
  EXPECT_EQ(described.at("machines"), Json({{"Fake GPU 0, sm90a, 1 threads", 2}}));
  Words again = words;
  again.back() = "wrong.sqlite";
  EXPECT_EQ(run_json(again, gpu("wrong")).at("outcomes"), Json({{"wrong", 2}}));
}

TEST_F(CliCuda, NormsRunInOneStepAndInTwo) {
  const std::string head = "norm_fp32_softmax_rows_1x8192x1_1x8x1_1x1x1";
  for (const std::string end : {"_sm90a", "_slices32_sm90a"}) {
    const Json json = run_json(words_of("run norm kind=softmax rows=5 columns=70 --target sm90a "
                                        "--verify --force " +
                                        head + end),
                               gpu("norm"));
    EXPECT_EQ(json.at("runs").at(0).at("verified").at("checked"), 5 * 70) << end;
    EXPECT_TRUE(json.at("runs").at(0).at("verified").at("ok")) << end;
  }
  const Json chosen =
      run_json("run norm kind=softmax rows=3 columns=9 --target sm90a", gpu("norm"));
  EXPECT_TRUE(chosen.at("runs").at(0).at("kernel").get<std::string>().starts_with("norm_fp32_"));
  const Json bench =
      run_json("bench norm kind=softmax rows=64 columns=32 --target sm90a --rounds 3", gpu("norm"));
  EXPECT_NEAR(bench.at("cases").at(0).at("seconds").get<double>(), 1e-3, 1e-9);
  EXPECT_NEAR(bench.at("cases").at(0).at("gb_per_s").get<double>(), 2 * 64 * 32 * 4 / 1e-3 * 1e-9,
              1e-4);
  write("p.txt", "norm kind=softmax rows=64 columns=32\nnorm kind=softmax rows=3 columns=20\n");
  EXPECT_EQ(run_json("tune --problems p.txt --kernels *_1x8192x1_1x8x1_* --target sm90a --budget "
                     "60s",
                     gpu("norm"))
                .at("measured"),
            2);
}

// A device that stops is no kernel's fault: nothing is stored that later sweeps would go by.
TEST_F(CliCuda, SweepStoresNothingOfADeviceThatStops) {
  write("p.txt", "gemm m=64 n=64 k=32\ngemm m=30 n=20 k=16\n");
  const Words words = {"sweep",    "--problems", "p.txt",   "--kernels", a_kernel(),
                       "--target", "sm90a",      "--store", "s.sqlite"};
  std::vector<std::string> stops = gpu();
  stops.insert(stops.end(), {"FAKE_CUDA_FAULT_NAME=cuModuleLoadData", "FAKE_CUDA_FAULT_CALL=1",
                             "FAKE_CUDA_FAULT_RESULT=46", "FAKE_CUDA_FAULT_LASTS=1"});
  Words with_json = words;
  with_json.emplace_back("--json");
  const CliResult stopped = run(with_json, stops);
  EXPECT_EQ(stopped.status, 1);
  const Json json = Json::parse(stopped.out);
  EXPECT_EQ(json.at("outcomes"), Json::object());
  EXPECT_EQ(json.at("unmeasured").size(), 2U);
  EXPECT_EQ(run_json(words, gpu()).at("outcomes"), Json({{"ok", 2}}));
}

TEST_F(CliCuda, DoctorAndTargetsTellWhatIsThere) {
  const Json doctor = Json::parse(run("doctor --json", gpu()).out);
  std::map<std::string, std::string> details;
  for (const Json& finding : doctor.at("findings")) {
    details[finding.at("what")] = finding.at("detail");
  }
  EXPECT_EQ(details.at("NVIDIA driver"), std::string(FAKE_CUDA) + ", CUDA 13.0");
  EXPECT_EQ(details.at("GPU 1"), "Fake GPU 1, compute capability 9.0, 132 multiprocessors, 1 GiB");
  EXPECT_EQ(details.at("GPU targets"), "runs sm90a");
  EXPECT_EQ(details.at("NVRTC"), std::string(FAKE_NVRTC) + ": NVRTC 13.0");
  for (const bool here : {true, false}) {
    const std::vector<std::string> extra = here ? gpu() : std::vector<std::string>{};
    const Json rows = run_json("targets", extra).at("targets");
    for (const Json& row : rows) {
      if (row.at("name") != "sm90a") continue;
      EXPECT_EQ(row.at("runs_here"), here);
      EXPECT_EQ(row.at("why_not").get<std::string>().empty(), here);
    }
  }
}

TEST_F(CliCuda, PackNeedsNoGpu) {
  const std::string no_driver = "TESSERA_CUDA_DRIVER=/no/libcuda.so.1";
  const std::string name = a_kernel();
  const std::string command = "pack --target sm90a --output gpu.pack --name " + name;
  EXPECT_EQ(run_json(words_of(command), {no_driver, std::string("TESSERA_NVRTC=") + FAKE_NVRTC})
                .at("packed"),
            1);
  // Where there is a GPU but no NVRTC, the pack does.
  std::vector<std::string> there = gpu();
  there[1] = "TESSERA_NVRTC=/none";
  there.push_back("TESSERA_PACK=" + (folder() / "gpu.pack").string());
  const Json json =
      run_json(words_of("run gemm m=9 n=9 k=9 --target sm90a --verify --force " + name), there);
  EXPECT_TRUE(json.at("runs").at(0).at("verified").at("ok"));
}

}  // namespace
}  // namespace tessera::cli_test
