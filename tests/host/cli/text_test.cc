// What commands print when all is well, without a compiler.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "host/cli/cli.h"

namespace tessera::cli_test {
namespace {

using CliText = CliTest;

const std::vector<std::string> kCommands = {
    "run",   "matmul",   "demo",     "explain", "list",       "show",    "generate", "verify",
    "bench", "train",    "evaluate", "predict", "search",     "tune",    "report",   "cache",
    "pack",  "problems", "targets",  "doctor",  "completion", "version", "export",   "record"};

// The long options that a command's help lists: lines such as "  -o,--output TEXT   Where".
std::vector<std::string> options_in(const std::string& help) {
  std::vector<std::string> options;
  for (const std::string_view line : split(help, '\n')) {
    if (!line.starts_with("  -")) continue;
    for (const std::string_view name : split(split_words(line).front(), ',')) {
      if (name.starts_with("--")) options.emplace_back(name);
    }
  }
  return options;
}

TEST_F(CliText, HelpListsEveryCommand) {
  const CliResult help = run("--help");
  EXPECT_EQ(help.status, 0);
  EXPECT_EQ(help.err, "");
  for (const std::string& command : kCommands) {
    EXPECT_NE(help.out.find("\n  " + command + " "), std::string::npos) << command;
  }
  const CliResult nothing = run("");
  EXPECT_EQ(nothing.status, 2);
  EXPECT_EQ(nothing.err, help.out);
}

TEST_F(CliText, EveryCommandHasOneExample) {
  for (const std::string& command : kCommands) {
    const CliResult help = run({command, "--help"});
    EXPECT_EQ(help.status, 0) << command;
    const std::size_t at = help.out.find("\nExample:\n  ");
    ASSERT_NE(at, std::string::npos) << command;
    EXPECT_EQ(help.out.find("\nExample:", at + 1), std::string::npos) << command;
    EXPECT_NE(help.out.find("tessera " + command, at), std::string::npos) << command;
    const std::vector<std::string> options = options_in(help.out);
    EXPECT_EQ(std::count(options.begin(), options.end(), "--json"), 1) << command;
  }
}

TEST_F(CliText, CompletionKnowsCommandsAndOptions) {
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const CliResult script = run({"completion", shell});
    EXPECT_EQ(script.status, 0);
    for (const std::string& command : kCommands) {
      EXPECT_NE(script.out.find(command), std::string::npos) << shell << " " << command;
    }
    EXPECT_EQ(run_json({"completion", shell}).at("script"), script.out);
  }
  const std::string script = run("completion bash").out;
  for (const std::string& command : kCommands) {
    const std::size_t at = script.find("\n    " + command + ") words=\"");
    ASSERT_NE(at, std::string::npos) << command;
    const std::string line = script.substr(at + 1, script.find(" ;;", at) - at - 1);
    const auto words = split_words(std::string_view(line).substr(line.find('"') + 1));
    for (const std::string& option : options_in(run({command, "--help"}).out)) {
      EXPECT_TRUE(std::find(words.begin(), words.end(), option) != words.end() ||
                  std::find(words.begin(), words.end(), option + "\"") != words.end())
          << command << " " << option;
    }
  }
}

// Every file below a folder with its content.
std::map<std::string, std::string> contents_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) {
      files[fs::relative(entry.path(), folder).string()] = read_file(entry.path());
    }
  }
  return files;
}

TEST_F(CliText, GenerateWritesTheSameBytesTwice) {
  const std::string line =
      "generate --op gemm --datatype fp16 --layout rcr --target avx512 --variants standard "
      "preshuffle multi_d --preselected fp16_rcr_essential --output-dir ";
  const CliResult first = run((line + "one --jobs 1").c_str());
  const CliResult second = run((line + "two --jobs 4").c_str());
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(second.status, 0) << second.err;
  const auto files = contents_of(folder() / "one");
  EXPECT_EQ(files, contents_of(folder() / "two"));

  // A source per kernel, an index of them, and a line of progress for each.
  const Json list = run_json("list --target avx512 --preselected fp16_rcr_essential");
  const std::size_t kernels = list.at("kernels").size();
  EXPECT_EQ(files.count("index.json"), 1U);
  for (const std::string name : list.at("kernels")) EXPECT_EQ(files.count(name + ".cc"), 1U);
  EXPECT_EQ(first.out, fmt::format("{} kernels for avx512 written to one\n", kernels));
  const auto lines = split(first.err, '\n');
  ASSERT_EQ(lines.size(), kernels + 1);
  for (std::size_t i = 0; i < kernels; ++i) {
    EXPECT_TRUE(lines[i].starts_with(fmt::format("[{}/{}] gemm_fp16_rcr_", i + 1, kernels)))
        << lines[i];
  }

  // --gpu-target is another word for --target.
  const CliResult alias = run(
      "generate --gpu-target avx512 --preselected fp16_rcr_essential --output-dir three --json");
  EXPECT_EQ(Json::parse(alias.out).at("written"), kernels);
  EXPECT_EQ(contents_of(folder() / "three"), files);
}

TEST_F(CliText, ExplainNeedsNoDevice) {
  const char* line = "explain gemm m=4096 n=4096 k=64 dtype=bf16 --target sm90a";
  const CliResult text = run(line);
  EXPECT_EQ(text.status, 0) << text.err;
  const Json decision = run_json(line).at("decisions").at(0);
  EXPECT_EQ(decision.at("problem"), "gemm m=4096 n=4096 k=64 dtype=bf16");
  EXPECT_EQ(decision.at("target"), "sm90a");
  const std::string kernel = decision.at("kernel");
  EXPECT_TRUE(kernel.starts_with("gemm_bf16_rcr_") && kernel.ends_with("_sm90a")) << kernel;
  EXPECT_NE(text.out.find("chosen    " + kernel), std::string::npos);
  EXPECT_NE(text.out.find("\nnext      gemm_bf16_rcr_"), std::string::npos);
  const std::size_t rows = split(text.out, '\n').size();
  EXPECT_LT(rows, 40U);  // for people: five that lost, and a row per rule

  std::size_t refused = 0;
  for (const Json& each : decision.at("considered")) {
    const bool is_refused = !each.at("refusal").get<std::string>().empty();
    refused += is_refused ? 1 : 0;
    EXPECT_NE(is_refused, each.at("predicted_seconds").get<double>() > 0);
  }
  EXPECT_GT(refused, 0U);
  EXPECT_LT(refused, decision.at("considered").size());

  // With --all a row for each, and the same JSON.
  const CliResult all = run((std::string(line) + " --all").c_str());
  EXPECT_EQ(split(all.out, '\n').size(), decision.at("considered").size() + 5);
  EXPECT_EQ(run_json((std::string(line) + " --all").c_str()).at("decisions").at(0), decision);
}

TEST_F(CliText, ExplainPrintsTheTableOfARange) {
  const char* line = "explain gemm m=1..300 n=64 k=64 dtype=bf16 --target sm90a";
  const CliResult text = run(line);
  EXPECT_EQ(text.status, 0) << text.err;
  const Json table = run_json(line);
  EXPECT_EQ(table.at("problem"), "gemm m=1..300 n=64 k=64 dtype=bf16");
  const Json& parts = table.at("parts");
  EXPECT_EQ(parts.front().at("first"), 1);
  EXPECT_EQ(parts.back().at("last"), 300);
  for (const Json& part : parts) {
    const std::string kernel = part.at("kernel");
    EXPECT_NE(text.out.find(kernel), std::string::npos) << kernel;
    EXPECT_FALSE(part.at("why").get<std::string>().empty());
  }
  EXPECT_NE(run("explain gemm m=1.. n=64 k=64").err.find("has no end"), std::string::npos);
  EXPECT_NE(run("explain gemm m=1..4 n=64 k=64 --dtype bf16").err.find("write the fields into"),
            std::string::npos);
}

TEST_F(CliText, ExplainTakesAForcedKernel) {
  const Json kernels = run_json("list --target avx2 --preselected fp32_rcr_essential")["kernels"];
  const std::string name = kernels.at(1);
  const Json decision = run_json({"explain", "gemm", "m=64", "n=64", "k=64", "--target", "avx2",
                                  "--force", name})["decisions"][0];
  EXPECT_EQ(decision.at("kernel"), name);
  EXPECT_EQ(decision.at("source"), "pinned");
}

TEST_F(CliText, ListNarrows) {
  const Json all = run_json("list --target avx512 --datatype bf16 --layout rcr")["kernels"];
  const Json standard =
      run_json("list --target avx512 --datatype bf16 --layout rcr --variants standard")["kernels"];
  const Json stream = run_json({"list", "--target", "avx512", "--datatype", "bf16", "--layout",
                                "rcr", "--pipeline", "stream", "--tile", "8x*x*"})["kernels"];
  EXPECT_GT(all.size(), standard.size());
  EXPECT_GT(standard.size(), 0U);
  EXPECT_GT(stream.size(), 0U);
  const std::set<std::string> names(all.begin(), all.end());
  EXPECT_EQ(names.size(), all.size());
  for (const std::string name : stream) {
    EXPECT_EQ(names.count(name), 1U) << name;
    EXPECT_TRUE(name.starts_with("gemm_bf16_rcr_stream_8x")) << name;
  }
}

TEST_F(CliText, SetsExistForEveryTypeAndLayout) {
  const Json sets = run_json("list --sets")["sets"];
  const std::set<std::string> names(sets.begin(), sets.end());
  for (const std::string dtype : {"fp32", "fp16", "bf16", "fp8", "bf8", "int8"}) {
    for (const std::string layout : {"rcr", "rrr", "crr", "ccr"}) {
      for (const std::string kind : {"essential", "compute", "memory", "latency"}) {
        EXPECT_EQ(names.count(dtype + "_" + layout + "_" + kind), 1U);
      }
    }
  }
}

TEST_F(CliText, ShowRoundTripsTheName) {
  const std::string name = "gemm_fp32_rrr_packb_240x480x256_1x1x1_12x32x1_avx512";
  const Json shown = run_json({"show", name});
  EXPECT_EQ(shown.at("kernel"), name);
  EXPECT_EQ(shown.at("spec").at("name"), name);
  EXPECT_EQ(shown.at("spec").at("algorithm").at("tile"), "240x480x256");
  EXPECT_EQ(shown.at("legal"), true);
  const std::string source = run({"show", name, "--source"}).out;
  EXPECT_NE(source.find("#include \"tessera/device/cpu/gemm/packed_kernel.h\""), std::string::npos);
  EXPECT_EQ(run_json({"show", name, "--source"}).at("source"), source);

  const Json illegal = run_json("show gemm_fp32_rcr_packab_240x480x256_1x1x1_12x32x2_avx512");
  EXPECT_EQ(illegal.at("legal"), false);
  EXPECT_EQ(illegal.at("reason"),
            "avx512 has no instruction for fp32 x fp32 with 2 products per lane");
}

TEST_F(CliText, TargetsAreRows) {
  const Json targets = run_json("targets");
  std::vector<std::string> names;
  for (const Json& row : targets.at("targets")) names.push_back(row.at("name"));
  const std::vector<std::string> expected = {"avx512",  "avx2",   "generic", "sm90a", "gfx1100",
                                             "gfx1201", "gfx90a", "gfx942",  "gfx950"};
  EXPECT_EQ(names, expected);
  for (const std::string& name : names) EXPECT_EQ(run_json({"targets", name}).at("name"), name);
  EXPECT_EQ(run_json("targets host").at("name"), targets.at("host"));
  const CliResult text = run("targets");
  EXPECT_EQ(text.status, 0);
  EXPECT_NE(text.out.find("\nThis machine: " + targets.at("host").get<std::string>() + "\n"),
            std::string::npos);
}

TEST_F(CliText, VersionAndDoctor) {
  const std::string all = run("version").out;
  EXPECT_TRUE(all.starts_with("tessera " + std::string(kVersion) + "\n")) << all;
  EXPECT_NE(all.find("\nmodels "), std::string::npos) << all;
  EXPECT_EQ(run("--version").out, "tessera " + std::string(kVersion) + "\n");
  const Json version = run_json("version");
  EXPECT_EQ(version.at("version"), kVersion);
  EXPECT_EQ(version.at("abi").at("gemm"), int{family_of(Op::gemm).abi});
  EXPECT_GE(version.at("c_abi").get<int>(), 1);
  const Json& models = version.at("models");
  EXPECT_EQ(std::count(models.begin(), models.end(), "gemm_avx512_bf16"), 1);
  EXPECT_FALSE(version.at("findings").empty());

  // Whether a compiler is there is not known here: both answers are whole.
  const CliResult doctor = run("doctor --json");
  const Json json = Json::parse(doctor.out);
  EXPECT_EQ(doctor.status, json.at("healthy").get<bool>() ? 0 : 1);
  std::vector<std::string> found;
  for (const Json& finding : json.at("findings")) {
    found.push_back(finding.at("what"));
    EXPECT_FALSE(finding.at("detail").get<std::string>().empty());
  }
  const std::vector<std::string> expected = {
      "processor",     "C++ compiler",  "kernel cache", "threads",       "peer onednn",
      "peer openblas", "peer cublaslt", "peer cudnn",   "NVIDIA driver", "AMD HIP",
      "GPU targets",   "NVRTC",         "AMD compiler", "llvm-objdump"};
  EXPECT_EQ(found, expected);
  const std::string cache = (folder() / "cache").string();
  EXPECT_EQ(json.at("findings")[2].at("detail"), cache + ", which the first kernel makes");
  EXPECT_FALSE(fs::exists(cache));
}

TEST_F(CliText, EmptyCache) {
  const std::string cache = (folder() / "cache").string();
  EXPECT_EQ(run("cache size").out, "0 B in 0 kernels in " + cache + "\n");
  EXPECT_EQ(run("cache list").out, "0 kernels in " + cache + "\n");
  EXPECT_EQ(run("cache verify").out, "0 entries are sound, 0 were damaged and set aside\n");
  EXPECT_EQ(run("cache clear").out, "0 entries removed from " + cache + "\n");
  EXPECT_FALSE(fs::exists(cache));  // looking makes none
}

TEST_F(CliText, ReceiptsAreListedAndSelectKernels) {
  const Json receipts = run_json("list --receipts")["receipts"];
  EXPECT_EQ(receipts.size(), 17);
  EXPECT_EQ(receipts[4]["name"], "pytorch");
  EXPECT_EQ(receipts[4]["number"], "4");
  const Json all = run_json("list --op fmha --receipt 4 --target avx2")["kernels"];
  EXPECT_EQ(run_json("list --op fmha --receipt pytorch --target avx2")["kernels"], all);
  const Json some =
      run_json("list --op fmha --receipt pytorch --dtype bf16 --where lse=true --target avx2");
  EXPECT_FALSE(some["kernels"].empty());
  EXPECT_LT(some["kernels"].size(), all.size());
  for (const std::string name : some["kernels"]) {
    EXPECT_NE(name.find("_bf16_"), std::string::npos);
    EXPECT_NE(name.find("_lse_"), std::string::npos);
  }
  const Json made = run_json("generate --op fmha --receipt 801 --target avx2 --output-dir r");
  EXPECT_EQ(made["written"], 2);
}

}  // namespace
}  // namespace tessera::cli_test
