// Words that mean nothing: commands, options, names and problems, each answered by one sentence.
#include "host/cli/cli.h"

namespace tessera::cli_test {
namespace {

constexpr int kUsage = 2;

struct Row {
  const char* line;
  std::string sentence;
  int status = 1;
};

class CliWords : public CliTest {
 protected:
  void expect(const std::vector<Row>& rows) const {
    for (const Row& row : rows) expect_failure(row.line, row.sentence, row.status);
  }
};

const std::string kTargets =
    " (known: avx512, avx2, generic, sm90a, gfx1100, gfx1201, gfx90a, gfx942, gfx950; a row of "
    "your own is a file "
    "that ends in .json)";
const std::string kShapes =
    " (known: bert, bert_base, convnext, decode_128k, decode_32k, decode_8k, decode_fp8, "
    "deepseek_v3, demo, efficientnet, experts, experts_scaled, fused, fused_experts, gpt2, "
    "gradients, latent, "
    "llama3_70b, llama3_8b, "
    "middle, mobilenet_v3, odd, odd_gpu, prefill_fp8, prefill_paged, prefill_ragged, qwen3, "
    "resnet50, resnet50_gemm, "
    "resnext101, routers, skinny, square, square_gpu, stable_diffusion, unet_sd15, video_3d, "
    "wavenet; a "
    "file of your own is named by its path)";
const std::string kNoProblem =
    "give a problem, such as 'gemm m=128 n=3072 k=768', or a file after --shapes";

TEST_F(CliWords, UnknownCommandsAndOptions) {
  expect({
      {"explian", "unknown command 'explian', did you mean 'explain'? (tessera --help lists them)",
       kUsage},
      {"frobnicate", "unknown command 'frobnicate' (tessera --help lists them)", kUsage},
      {"run gemm --repaet 3", "run: unexpected argument '--repaet', did you mean '--repeat'?",
       kUsage},
      {"--frob", "tessera: unexpected argument '--frob'", kUsage},
      {"--threads run", "run: '--threads' stands after the command: tessera run --threads", kUsage},
      {"doctor please", "doctor: unexpected argument 'please'", kUsage},
      {"run gemm m=1 n=1 k=1 --repeat 0",
       "run: --repeat: must be a whole number of at least 1, got 0", kUsage},
      {"run gemm m=1 n=1 k=1 --threads -2",
       "run: --threads: must be a whole number of at least 0, got -2", kUsage},
      {"run gemm m=1 n=1 k=1 --set k", "run: --set: must be KEY=VALUE such as n=1, got k", kUsage},
      {"generate --output-dir x --jobs many",
       "generate: --jobs: must be a whole number of at least 0, got many", kUsage},
      {"generate", "generate: --output-dir is required", kUsage},
      {"export --target gfx942", "export: --hipdnn is required", kUsage},
      {"export --target gfx942 --hipdnn x --jobs many",
       "export: --jobs: must be a whole number of at least 0, got many", kUsage},
      {"matmul a.npy b.npy", "matmul: --output is required", kUsage},
      {"problems", "problems: set is required", kUsage},
      {"completion", "completion: shell is required", kUsage},
  });
}

TEST_F(CliWords, NumbersThatAreNone) {
  const std::string seed = "--seed: must be a whole number from 0 to 9223372036854775807, got ";
  const std::string seconds = ": must be a number from 0 to 86400, got ";
  const std::string limit = ": must be a number from 0.001 to 86400, got ";
  expect({
      {"run gemm m=1 n=1 k=1 --seed -1", "run: " + seed + "-1", kUsage},
      {"verify --seed 1.5", "verify: " + seed + "1.5", kUsage},
      {"bench gemm --seed 18446744073709551615", "bench: " + seed + "18446744073709551615", kUsage},
      {"sweep --seed 0x10", "sweep: " + seed + "0x10", kUsage},
      {"tune --seed -1", "tune: " + seed + "-1", kUsage},
      {"train --seed 007", "train: " + seed + "007", kUsage},
      {"search --seed +1", "search: " + seed + "+1", kUsage},
      {"search --seconds nan", "search: --seconds" + seconds + "nan", kUsage},
      {"search --seconds inf", "search: --seconds" + seconds + "inf", kUsage},
      {"search --seconds 1e300", "search: --seconds" + seconds + "1e300", kUsage},
      {"bench gemm --min-seconds -1", "bench: --min-seconds" + seconds + "-1", kUsage},
      {"bench gemm --min-seconds 0x1p3", "bench: --min-seconds" + seconds + "0x1p3", kUsage},
      {"bench gemm --soak nan", "bench: --soak" + seconds + "nan", kUsage},
      {"search --seconds 86401", "search: --seconds" + seconds + "86401", kUsage},
      {"bench gemm --peer-seconds 86401", "bench: --peer-seconds" + seconds + "86401", kUsage},
      {"sweep --timeout 86401", "sweep: --timeout" + limit + "86401", kUsage},
      {"sweep --timeout nan", "sweep: --timeout" + limit + "nan", kUsage},
      {"sweep --timeout 0", "sweep: --timeout" + limit + "0", kUsage},
      {"run --autotune-seconds nan", "run: --autotune-seconds" + limit + "nan", kUsage},
      {"run --repeat 010", "run: --repeat: must be a whole number of at least 1, got 010", kUsage},
      {"run --repeat 99999999999999999999",
       "run: --repeat: must be at most 2147483647, got 99999999999999999999", kUsage},
      {"run --repeat -99999999999999999999",
       "run: --repeat: must be a whole number of at least 1, got -99999999999999999999", kUsage},
      {"run --repeat 2147483648", "run: --repeat: must be at most 2147483647, got 2147483648",
       kUsage},
      {"report --threads -1", "report: --threads: must be a whole number of at least 0, got -1",
       kUsage},
  });
}

// What a script leaves of a variable that is not set.
TEST_F(CliWords, EmptyOnes) {
  for (const std::string line :
       {"train --output", "run --shapes", "run --force", "list --datatype", "explain --target",
        "generate --output-dir", "export --hipdnn", "cache --folder", "pack --list",
        "report --data", "sweep --store", "tune --budget", "bench --peers", "data --prefer",
        "predict --model"}) {
    Words words = words_of(line);
    const std::string sentence = words[0] + ": " + words[1] + ": must not be empty";
    words.emplace_back();
    expect_failure(words, sentence, kUsage);
  }
  expect_failure({"targets", ""}, "targets: target: must not be empty", kUsage);
  expect_failure({"run", "gemm", "m=1", "", "k=1"}, "run: problem: must not be empty", kUsage);
}

TEST_F(CliWords, UnknownNames) {
  expect({
      {"completion bahs",
       "completion: unknown shell 'bahs', did you mean 'bash'? (known: bash, zsh, fish)"},
      {"completion zhs",
       "completion: unknown shell 'zhs', did you mean 'zsh'? (known: bash, zsh, fish)"},
      {"cache listt",
       "cache: unknown action 'listt', did you mean 'list'? (known: list, verify, size, clear)"},
      {"bench gem",
       "bench: unknown bench 'gem', did you mean 'gemm'? (known: gemm, norm, conv, fmha, route, "
       "dispatch, rank, jit, start, peak, peers)"},
      {"bench gemm m=1 n=1 k=1 --peers onedn",
       "unknown peer 'onedn', did you mean 'onednn'? (known: onednn, openblas, cublaslt, cudnn)"},
      {"list --dtype fp322", "unknown dtype 'fp322', did you mean 'fp32'?"},
      {"list --layout rcc", "unknown layout 'rcc', did you mean 'rcr'?"},
      {"list --op gem", "unknown operation 'gem', did you mean 'gemm'?"},
      {"list --pipeline packba", "unknown pipeline 'packba', did you mean 'packab'?"},
      {"list --tile 3x", "tile must be three numbers or '*' such as 128x*x64, got '3x'"},
      {"list --preselected fp32_rcr_essential --variants multid --target avx512",
       "unknown variant 'multid', did you mean 'multi_d'?"},
      {"list --variants multid --target avx512",
       "unknown variant 'multid', did you mean 'multi_d'?"},
      {"list --tile 1* --target avx512",
       "tile must be three numbers or '*' such as 128x*x64, got '1*'"},
      {"list --preselected fp32_rcr_essential --tile 1* --target avx512",
       "tile must be three numbers or '*' such as 128x*x64, got '1*'"},
      {"list --where tiel=1x1x1 --target avx512",
       "unknown gemm field 'tiel', did you mean 'tile'?"},
      {"list --preselected fp32_rcr_esential --target avx512",
       "gemm: avx512 has no preselected set 'fp32_rcr_esential', did you mean "
       "'fp32_rcr_essential'?"},
      {"list --pattern nothing --target avx512",
       "no kernel for avx512 passes these filters; tessera list shows what there is"},
      {"list --receipt flash", "receipt 'flash' is one of --op fmha, got --op gemm"},
      {"pack --preselected fp32_rcr_esential --target avx512 --output x.pack",
       "pack: unknown preselected set 'fp32_rcr_esential', did you mean 'fp32_rcr_essential'? "
       "(tessera list --sets lists them)"},
      {"problems wides --target avx512",
       "unknown problem set 'wides', did you mean 'wide'? (known: wide, edge, models, "
       "experts, block_scaled)"},
      {"show nonsense",
       "kernel name 'nonsense': expected an operation (gemm, norm, conv, fmha, route) as word 1, "
       "got 'nonsense'"},
      {"targets avx521", "unknown target 'avx521', did you mean 'avx512'?" + kTargets},
      {"run gemm m=1 n=1 k=1 --target sm80", "unknown target 'sm80'" + kTargets},
      {"run --shapes bert_bas",
       "unknown shape file 'bert_bas', did you mean 'bert_base'?" + kShapes},
  });
}

TEST_F(CliWords, KernelGetsTheNearestOfItsTarget) {
  // A legal name with one letter too many.
  const Json list = run_json("list --target avx2 --preselected fp32_rcr_essential");
  const std::string name = list.at("kernels").at(0);
  const std::size_t at = name.find("pack");
  const std::string wrong = name.substr(0, at) + "x" + name.substr(at);
  const CliResult result = run({"show", wrong});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err.rfind("tessera: unknown kernel '" + wrong + "', did you mean '" + name +
                                 "'? (kernel name '" + wrong + "': expected a pipeline as word 4",
                             0),
            0U)
      << result.err;
}

TEST_F(CliWords, MalformedProblems) {
  expect({
      {"run", kNoProblem},
      {"bench gemm", kNoProblem},
      {"explain", kNoProblem},
      {"bench fmha --shapes square", "square holds no problem of fmha"},
      {"run gemm m=1 n=1 k=1 --shapes square", kNoProblem},
      {"run gem m=1 n=1 k=1", "problem: unknown operation 'gem', did you mean 'gemm'?"},
      {"run gemm m=1 n=1", "problem: gemm needs k, as in 'gemm m=128 n=3072 k=768 dtype=bf16'"},
      {"run gemm m=1 n=1 k=x", "problem: k must be an integer, got 'x'"},
      {"run gemm m=1 n=1 k=1 k=2", "problem: k is given twice"},
      {"run gemm m=1 n=1 k=1 x", "problem: expected key=value, got 'x'"},
      {"run gemm m=1 n=1 k=1 layuot=rcr",
       "problem: unknown key 'layuot' for gemm, did you mean 'layout'?"},
      {"run gemm m=1 n=1 k=1 dtype=fp322",
       "problem: dtype must be one of fp32, tf32, fp16, bf16, fp8, bf8, int8, int32, got 'fp322', "
       "did you mean 'fp32'?"},
      {"run gemm m=1 n=1 k=1 layout=rcc",
       "problem: layout must be one of rcr, rrr, crr, ccr, got 'rcc', did you mean 'rcr'?"},
      {"run gemm m=1 n=1 k=1 epilogue=bias+geluu",
       "problem: epilogue: unknown epilogue op 'geluu', did you mean 'gelu'?"},
      {"run gemm m=1 n=1 k=1 --set kk=2", "problem: unknown key 'kk' for gemm, did you mean 'k'?"},
      {"run gemm m=1 n=1 k=1 --set k=x", "problem: k must be an integer, got 'x'"},
      {"run gemm m=1 n=1 k=1 --dtype fp322", "unknown dtype 'fp322', did you mean 'fp32'?"},
      {"run gemm m=1 n=1 k=1 --layout rcc", "unknown layout 'rcc', did you mean 'rcr'?"},
  });
}

TEST_F(CliWords, SizesAndStridesOutOfBounds) {
  expect({
      {"run gemm m=-1 n=1 k=1", "gemm: m must be at least 0, got -1"},
      {"run gemm m=99999999999999999999 n=1 k=1",
       "problem: m must be an integer, got '99999999999999999999'"},
      {"run gemm m=3037000500 n=3037000500 k=1",
       "gemm: m x n x k x batch x 4 bytes must be below 2^63, got 3037000500 x 3037000500 x 1 x 1 "
       "x 4"},
      {"explain gemm m=9223372036854775807 n=2 k=1",
       "gemm: m x n x k x batch x 4 bytes must be below 2^63, got 9223372036854775807 x 2 x 1 x 1 "
       "x 4"},
      {"run gemm m=4 n=4 k=4 ld_a=2",
       "gemm: ld_a must be at least 4 (the row length of A for rcr), got 2"},
      {"run gemm m=4 n=4 k=4 ld_b=-4",
       "gemm: ld_b must be at least 4 (the row length of B for rcr), got -4"},
      {"run gemm m=4 n=4 k=4 batch=2 batch_stride_a=-16",
       "gemm: batch_stride_a must be at least 0, got -16"},
      {"run gemm m=4 n=4 k=4 batch=2 batch_stride_out=1",
       "gemm: batch_stride_out must be at least 16 so that batches do not overlap, got 1"},
  });
}

TEST_F(CliWords, SourcesAndWhatTheyLack) {
  expect({
      {"generate --source ck --output-dir x", "unknown source 'ck' (known: native, cktile)"},
      {"generate --source cktile --op norm --target gfx942 --output-dir x",
       "norm: source cktile has instances of gemm, conv, fmha only"},
      {"generate --source cktile --op conv --target gfx1100 --output-dir x",
       "conv: the row of target gfx1100 has no cktile_spaces.conv: CK Tile has no conv there"},
      {"generate --source cktile --op fmha --target gfx942 --dtype fp16 --pattern *none* "
       "--output-dir x",
       "no kernel for gfx942 that passes these filters has a cktile instance"},
      {"generate --source cktile --receipt flash --op fmha --target gfx942 --output-dir x",
       "--receipt takes kernels of our own, got --source cktile"},
  });
}

TEST_F(CliWords, WhatHipdnnCannotBeToldOf) {
  expect({
      {"export --target avx512 --hipdnn x",
       "export: hipDNN runs kernels for AMD's GPUs, and avx512 is a target of the backend cpu"},
      {"export --target gfx942 --hipdnn x "
       "gemm_bf16_rcr_compv4_128x128x64_2x2x1_16x16x32_intrawave_persistent_gfx942",
       "export: none of 1 kernel can be written; "
       "gemm_bf16_rcr_compv4_128x128x64_2x2x1_16x16x32_intrawave_persistent_gfx942: hipDNN cannot "
       "be told of it: it has as many workgroups as the device runs at once, which the driver says "
       "and no expression can compute"},
      {"export --op nom --target gfx942 --hipdnn x",
       "unknown operation 'nom', did you mean 'norm'?"},
      {"export --target gfx942 --datatype bf17 --hipdnn x",
       "unknown dtype 'bf17', did you mean 'bf16'?"},
      {"export --target gfx942 --pattern none --hipdnn x",
       "no kernel for gfx942 passes these filters; tessera list shows what there is"},
  });
  EXPECT_FALSE(fs::exists(folder() / "x"));
}

TEST_F(CliWords, TargetsThatCannotRunHere) {
  expect({
      {"run gemm m=1 n=1 k=1 --target sm90a",
       "target 'sm90a' needs an NVIDIA GPU: NVIDIA's driver /no/libcuda.so.1 cannot be loaded, "
       "which TESSERA_CUDA_DRIVER names: /no/libcuda.so.1: cannot open shared object file: No such "
       "file or directory; install the NVIDIA driver (580 or later for CUDA 13), and in a "
       "container start it with the GPU made visible"},
      {"pack --target avx2 avx2 --output x.pack",
       "pack: each target is named once, got 'avx2' twice"},
      {"pack",
       "pack: give a file to write after --output, or one to look into after --list or --check"},
      {"pack --list a --output b",
       "pack: give a file to write after --output, or one to look into after --list or --check"},
  });
}

TEST_F(CliWords, JsonErrorsAreObjects) {
  struct JsonRow {
    const char* line;
    std::string code;
    std::string message;
    int status;
  };
  const std::vector<JsonRow> rows = {
      {"run gemm m=1 n=1 k=x --json", "parse_error", "problem: k must be an integer, got 'x'", 1},
      {"run gemm m=-1 n=1 k=1 --json", "invalid_argument", "gemm: m must be at least 0, got -1", 1},
      {"explian --json", "not_found",
       "unknown command 'explian', did you mean 'explain'? (tessera --help lists them)", kUsage},
      {"run --repaet 3 --json", "invalid_argument",
       "run: unexpected argument '--repaet', did you mean '--repeat'?", kUsage},
  };
  for (const JsonRow& row : rows) {
    const CliResult result = run(row.line);
    const Json expected = {{"error", {{"code", row.code}, {"message", row.message}}}};
    EXPECT_EQ(result.out, expected.dump() + "\n");
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(result.status, row.status) << row.line;
  }
}

// A terminal would obey them: the title, the clipboard, what was printed before.
TEST_F(CliWords, ControlCharactersReachNoTerminal) {
  const std::string word = "a\033]0;title\007\r\177\302\233b\tc\303\251";
  expect_failure({word},
                 "unknown command 'a\\x1b]0;title\\x07\\x0d\\x7f\\xc2\\x9bb\tc\303\251' "
                 "(tessera --help lists them)",
                 2);
  const CliResult json = run({word, "--json"});
  for (const char c : json.out) EXPECT_TRUE((c >= ' ' && c <= '~') || c == '\n') << json.out;
  EXPECT_EQ(Json::parse(json.out).at("error").at("message"),
            "unknown command '" + word + "' (tessera --help lists them)");
  Json row = Json::parse(run({"targets", "avx2"}).out);
  row["description"] = "one\033[2Jrow";
  write_file(folder() / "row.json", row.dump());
  const CliResult shown = run("doctor", {"TESSERA_TARGET=" + (folder() / "row.json").string()});
  EXPECT_EQ(shown.out.find('\033'), std::string::npos);
}

}  // namespace
}  // namespace tessera::cli_test
