// Files that are missing, damaged, of the wrong kind or in the wrong place.
#include "host/cli/cli.h"

namespace tessera::cli_test {
namespace {

class CliFiles : public CliTest {
 protected:
  CliFiles() {
    write("a.npy", npy_text("<f4", "(2, 3)", false, std::string(24, '\0')));
    write("b.npy", npy_text("<f4", "(3, 4)", false, std::string(48, '\0')));
  }

  // `content` as B: what matmul says, and that it writes nothing.
  void expect_refused(const char* name, const std::string& content,
                      const std::string& sentence) const {
    write(name, content);
    expect_failure({"matmul", "a.npy", name, "--output", "out.npy"}, sentence);
    EXPECT_FALSE(fs::exists(folder() / "out.npy")) << name;
  }
};

TEST_F(CliFiles, NpyOfOtherElementTypes) {
  const std::string rule =
      "' is not supported: it must be float32, float16, int8 or int32 in little-endian order; "
      "convert it with array.astype(numpy.float32)";
  for (const std::string descr : {"<f8", ">f4", "|b1", "<c8", "<U3"}) {
    expect_refused("b2.npy", npy_text(descr, "(3, 4)", false, std::string(96, '\0')),
                   "b2.npy: element type '" + descr + rule);
  }
  write("half.npy", npy_text("<f2", "(3, 4)", false, std::string(24, '\0')));
  expect_failure("matmul a.npy half.npy --output out.npy",
                 "matmul: both files must hold one element type, got fp32 in a.npy and fp16 in "
                 "half.npy");
  write("ia.npy", npy_text("<i4", "(2, 3)", false, std::string(24, '\0')));
  write("ib.npy", npy_text("<i4", "(3, 4)", false, std::string(48, '\0')));
  expect_failure("matmul ia.npy ib.npy --output out.npy",
                 "gemm: a must be fp32, tf32, fp16, bf16, fp8, bf8 or int8, got int32");
}

TEST_F(CliFiles, NpyCutShort) {
  const std::string whole = npy_text("<f4", "(3, 4)", false, std::string(48, '\0'));
  const std::string bad = "cut.npy: not a valid .npy file: ";
  expect_refused("cut.npy", whole.substr(0, whole.size() - 1),
                 "cut.npy: the file is cut short: shape (3, 4) of fp32 needs 48 bytes of data, it "
                 "holds 47");
  expect_refused("cut.npy", whole.substr(0, 128),
                 "cut.npy: the file is cut short: shape (3, 4) of fp32 needs 48 bytes of data, it "
                 "holds 0");
  expect_refused("cut.npy", whole.substr(0, 127),
                 bad + "its header needs 128 bytes, the file has 127");
  expect_refused("cut.npy", whole.substr(0, 9), bad + "its header needs 10 bytes, the file has 9");
  expect_refused("cut.npy", "", bad + "it does not start with \\x93NUMPY");
}

TEST_F(CliFiles, NpyMalformed) {
  const std::string bad = "b2.npy: not a valid .npy file: ";
  expect_refused("b2.npy", "plain text, and long enough",
                 bad + "it does not start with \\x93NUMPY");
  expect_refused("b2.npy", npy_text("<f4", "(-3, 4)", false, ""), bad + "its shape holds '-3'");
  expect_refused("b2.npy", npy_text("<f4", "[3, 4]", false, ""), bad + "its shape is no tuple");
  expect_refused("b2.npy", npy_text("<f4", "(4294967296, 4294967296)", false, ""),
                 bad + "its shape (4294967296, 4294967296) overflows 64 bits");
  std::string version = npy_text("<f4", "(3, 4)", false, std::string(48, '\0'));
  version[6] = 9;
  expect_refused("b2.npy", version, bad + "unknown version 9");
  std::string keyless = npy_text("<f4", "(3, 4)", false, std::string(48, '\0'));
  keyless.replace(keyless.find("shape"), 5, "shade");
  expect_refused("b2.npy", keyless,
                 bad +
                     "its header has the key 'shade', which is none of descr, fortran_order and "
                     "shape");
}

// A .npy file with this header, and as much data as a 4x4 matrix has.
std::string npy_with(std::string header) {
  header += "\n";
  std::string text = "\x93NUMPY";
  text += {'\1', '\0', static_cast<char>(header.size()), '\0'};
  return text + header + std::string(64, '\0');
}

TEST_F(CliFiles, NpyHeadersThatPythonRefuses) {
  const std::string bad = "b2.npy: not a valid .npy file: ";
  struct Row {
    const char* header;
    const char* fault;
  };
  const Row rows[] = {
      {"{}", "its header has no 'descr'"},
      {"{'descr': '<f4', 'shape': (4, 4)}", "its header has no 'fortran_order'"},
      {"{'descr': '<f4', 'fortran_order': False}", "its header has no 'shape'"},
      {"'descr': '<f4'", "its header has no '{' before its dictionary, but '''"},
      {"", "its header has no '{' before its dictionary, but its end"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4, 4)",
       "its header has no ',' after the value of 'shape', but its end"},
      {"{'descr': '<f4' 'fortran_order': False}",
       "its header has no ',' after the value of 'descr', but '''"},
      {"{'descr' '<f4'}", "its header has no ':' after 'descr', but '''"},
      {"{,}", "its header has ',' where a key in quotes is wanted"},
      {"{'descr': '<f4',, }", "its header has ',' where a key in quotes is wanted"},
      {"{descr: '<f4'}", "its header has 'd' where a key in quotes is wanted"},
      {"{'descr': <f4}", "its header has '<' where its descr in quotes is wanted"},
      {"{'descr: '<f4'}", "its header has no ':' after 'descr: ', but '<'"},
      {"{'descr': '<f4}", "its header has no ''' after '<f4}\n', but its end"},
      {"{'fortran_order': true, }", "its fortran_order must be True or False, got true"},
      {"{'fortran_order': 1, }", "its fortran_order must be True or False, got 1"},
      {"{'fortran_order': None}", "its fortran_order must be True or False, got None"},
      {"{'fortran_order': 'True'}", "its fortran_order must be True or False, got 'True'"},
      {"{'fortran_order': Truely, }", "its fortran_order must be True or False, got Truely"},
      {"{'fortran_order': , }", "its fortran_order must be True or False, got nothing"},
      {"{'shape': (,4,4)}", "its shape holds ''"},
      {"{'shape': (4,,4)}", "its shape holds ''"},
      {"{'shape': (,)}", "its shape holds ''"},
      {"{'shape': (+4, 4)}", "its shape holds '+4'"},
      {"{'shape': (-0, 4)}", "its shape holds '-0'"},
      {"{'shape': (04, 4)}", "its shape holds '04'"},
      {"{'shape': (4 4, 4)}", "its shape holds '4 4'"},
      {"{'shape': (4L, 4L)}", "its shape holds '4L'"},
      {"{'shape': (9223372036854775808, 4)}", "its shape holds '9223372036854775808'"},
      {"{'shape': (4)}", "its shape (4) is no tuple: one size is written (4,)"},
      {"{'shape': 4}", "its shape is no tuple"},
      {"{'shape': (4, 4}", "its shape is no tuple"},
      {"{'shape': (2, 2), 'shape': (4, 4)}", "its header has 'shape' twice"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4, 4), } # C order",
       "after its header's dictionary comes '# C order'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4, 4)}}",
       "after its header's dictionary comes '}'"},
      {"{'x': \"'shape': (2, 2)\", 'descr': '<f4', 'fortran_order': False, 'shape': (4, 4), }",
       "its header has the key 'x', which is none of descr, fortran_order and shape"},
  };
  for (const Row& row : rows) expect_refused("b2.npy", npy_with(row.header), bad + row.fault);
  for (const std::string structured : {"[('x', '<f4')]", "('<f4', (2,))"}) {
    expect_refused("b2.npy", npy_with("{'descr': " + structured + "}"),
                   "b2.npy: structured arrays cannot be multiplied");
  }
}

// Shapes tell that they were read: A is 2x3, and a B of 4 rows is refused for its shape alone.
TEST_F(CliFiles, NpyHeadersThatPythonReads) {
  const std::string rule =
      "matmul: A's columns must be as many as B's rows, and stacks equally high, got shapes (2, 3) "
      "and (4, 4)";
  for (const char* header :
       {"{'descr': '<f4', 'fortran_order': False, 'shape': (4, 4), }           ",
        "{\"shape\":(4,4,),\"fortran_order\":True,\"descr\":\"<f4\"}",
        " { 'fortran_order' : False , 'descr' : '<f4' , 'shape' : ( 4 , 4 , ) } "}) {
    expect_refused("b2.npy", npy_with(header), rule);
  }
  const std::string no_matrix = "matmul: b2.npy must hold a matrix or a stack of matrices, got ";
  expect_refused("b2.npy", npy_with("{'descr': '<f4', 'fortran_order': False, 'shape': (4,)}"),
                 no_matrix + "shape (4)");
  expect_refused("b2.npy", npy_with("{'descr': '<f4', 'fortran_order': False, 'shape': ()}"),
                 no_matrix + "shape ()");
}

TEST_F(CliFiles, ShapesThatDoNotFit) {
  const std::string rule =
      "matmul: A's columns must be as many as B's rows, and stacks equally high, got shapes ";
  expect_refused("b2.npy", npy_text("<f4", "(5, 4)", false, std::string(80, '\0')),
                 rule + "(2, 3) and (5, 4)");
  expect_refused("b2.npy", npy_text("<f4", "(3,)", false, std::string(12, '\0')),
                 "matmul: b2.npy must hold a matrix or a stack of matrices, got shape (3)");
  write("stack.npy", npy_text("<f4", "(2, 2, 3)", false, std::string(48, '\0')));
  write("stack3.npy", npy_text("<f4", "(3, 3, 1)", false, std::string(36, '\0')));
  expect_failure("matmul stack.npy stack3.npy --output out.npy", rule + "(2, 2, 3) and (3, 3, 1)");
}

TEST_F(CliFiles, Missing) {
  expect_failure("matmul a.npy nope.npy --output out.npy",
                 "cannot read nope.npy: No such file or directory");
  expect_failure("targets nope.json", "cannot read nope.json: No such file or directory");
  expect_failure("pack --list nope.pack",
                 "cannot read the pack nope.pack: No such file or directory");
  expect_failure("run --shapes .", "cannot read .: Is a directory");
}

TEST_F(CliFiles, ShapeFilesNameTheLine) {
  write("shapes.txt", "# sizes\n\ngemm m=1 n=1 k=1  # fine\ngemm m=1 n=1\n");
  expect_failure("run --shapes shapes.txt",
                 "shapes.txt:4: problem: gemm needs k, as in 'gemm m=128 n=3072 k=768 dtype=bf16'");
  write("empty.txt", "# nothing\n\n");
  expect_failure("explain --shapes empty.txt", "empty.txt holds no problem");
}

TEST_F(CliFiles, ShapeFilesAreLookedAtBeforeTheFirstProblemRuns) {
  write("shapes.txt", "gemm m=1 n=1 k=1\ngemm m=-1 n=1 k=1\n");
  for (const std::string command : {"run", "bench gemm", "explain"}) {
    expect_failure(words_of(command + " --shapes shapes.txt"),
                   "shapes.txt:2: gemm: m must be at least 0, got -1");
  }
  write("shapes.txt", "gemm m=1 n=1 k=1\n\nconv n=1 c=1 k=1 in_size=1x1x1 filter=1x1x1\n");
  const CliResult result = run("explain --shapes shapes.txt");
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err.find("tessera: shapes.txt:3: "), 0U) << result.err;
}

TEST_F(CliFiles, FieldsOfAllLinesOfAShapeFileAreReplaced) {
  write("shapes.txt",
        "conv direction=forward n=32 c=8 k=8 h=9 w=9 y=3 x=3\n"
        "conv direction=forward n=2 c=3 k=4 w=7 layout=nchw epilogue=relu\n");
  const Json json =
      run_json("explain --shapes shapes.txt --target avx2 --dtype bf16 --set n=1 --set stride_w=2");
  std::vector<std::string> problems;
  for (const Json& decision : json.at("decisions")) problems.push_back(decision.at("problem"));
  const std::vector<std::string> expected = {
      "conv direction=forward n=1 c=8 k=8 h=9 w=9 y=3 x=3 stride_w=2 dtype=bf16",
      "conv direction=forward n=1 c=3 k=4 w=7 stride_w=2 dtype=bf16 layout=nchw epilogue=relu"};
  EXPECT_EQ(problems, expected);
  expect_failure("explain --shapes shapes.txt --target avx2 --set direction=backward_data",
                 "shapes.txt:2: conv: backward_data takes no epilogue, got relu");
}

TEST_F(CliFiles, ByteOrderMark) {
  write("shapes.txt", "\xEF\xBB\xBFgemm m=1 n=1 k=1\n");
  EXPECT_EQ(run_json("explain --shapes shapes.txt").at("decisions").size(), 1U);
}

TEST_F(CliFiles, CacheOfAFolderThatIsNone) {
  for (const std::string action : {"list", "verify", "size", "clear"}) {
    expect_failure({"cache", action, "--folder", "typo"}, "cache: there is no folder 'typo'");
  }
  EXPECT_FALSE(fs::exists(folder() / "typo"));
}

TEST_F(CliFiles, TargetRowsNameThePlace) {
  write("row.json", "{\n  \"name\": \"mine\",\n  \"units\": ]\n}\n");
  expect_failure("explain gemm m=1 n=1 k=1 --target row.json",
                 "row.json: target row: line 3, column 12: syntax error while parsing value - "
                 "unexpected ']'; expected '[', '{', or a literal");

  Json row = run_json("targets generic");
  Json wrong = row;
  wrong["vector_bytes"] = "x";
  write("row.json", wrong.dump());
  expect_failure("list --target row.json",
                 "row.json: target row: vector_bytes must be an integer not below 0, got \"x\"");
  wrong = row;
  wrong["unit"] = 3;
  write("row.json", wrong.dump());
  expect_failure("targets row.json",
                 "row.json: target row: unit is not a known field, did you mean 'units'?");
  wrong = row;
  wrong["instructions"][0]["a"] = "fp322";
  write("row.json", wrong.dump());
  expect_failure("targets row.json",
                 "row.json: target row: instructions[0].a must be one of fp32, tf32, fp16, bf16, "
                 "fp8, bf8, int8, int32, got \"fp322\", did you mean 'fp32'?");
}

TEST_F(CliFiles, UnwritablePlaces) {
  expect_failure("generate --preselected fp32_rcr_essential --target avx512 --output-dir a.npy",
                 "generate: cannot make the folder 'a.npy': something else is in the way");
  expect_failure(
      "pack --target avx512 --output nope/x.pack",
      "cannot create a folder in " + (folder() / "nope").string() + ": No such file or directory");
}

TEST_F(CliFiles, DamagedPacks) {
  write("short.pack", "TESSERA");
  expect_failure("pack --list short.pack",
                 "the pack short.pack is truncated: a header has 64 bytes, the file has 7; make it "
                 "again with 'tessera pack'");
}

}  // namespace
}  // namespace tessera::cli_test
