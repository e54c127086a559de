#include "tessera/jit/toolchain.h"

#include <sys/wait.h>

#include <functional>
#include <set>

#include "host/jit/fixtures.h"
#include "host/spec/expect_error.h"
#include "tessera/base/error.h"
#include "tessera/families/headers.h"

namespace tessera::jit {
namespace {

using Words = std::vector<std::string>;

// A compiler that writes down every question.
void write_compiler(const fs::path& path, const std::string& more = "") {
  write_file(path, "#!/bin/sh\necho \"$1\" >> " + path.string() +
                       ".asked\ncase \"$*\" in *--version) echo 'c++ 1.0'; exit 0;; esac\n" + more);
  fs::permissions(path, fs::perms::owner_all);
}

std::string questions(const fs::path& path) {
  return try_read_file(path.string() + ".asked").value_or("");
}

// Whether another process asks the compiler, and does not take what is remembered.
bool is_asked(const fs::path& path, const fs::path& memo) {
  const pid_t child = ::fork();
  if (child == 0) {
    find_toolchain(path.string(), memo);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  const std::string asked = questions(path);
  fs::remove(path.string() + ".asked");
  return !asked.empty();
}

class ToolchainTest : public testing::Test {
 protected:
  TempFolder temp_;
  ScopedVariable own_{"TESSERA_CXX", std::nullopt};
  ScopedVariable hint_{"CXX", std::nullopt};
  ScopedVariable path_{"PATH", temp_.path().string() + ":/usr/bin:/bin"};
};

TEST_F(ToolchainTest, LooksAtTheArgumentThenTheEnvironmentThenPath) {
  for (const char* name : {"one", "two", "three", "g++"}) write_compiler(temp_ / name);
  EXPECT_EQ(find_toolchain("").path, temp_ / "g++");
  const ScopedVariable hint("CXX", "three");
  EXPECT_EQ(find_toolchain("").path, temp_ / "three");
  const ScopedVariable own("TESSERA_CXX", (temp_ / "two").string());
  EXPECT_EQ(find_toolchain("").path, temp_ / "two");
  EXPECT_EQ(find_toolchain("one").path, temp_ / "one");
  EXPECT_EQ(find_toolchain("one").version, "c++ 1.0");
}

TEST_F(ToolchainTest, LooksForTheUsualNamesInOrder) {
  const ScopedVariable path("PATH", temp_.path().string() + ":/tessera-no-such-folder");
  // The script needs nothing but its shell.
  for (const char* name : {"clang++", "c++", "g++"}) {
    write_compiler(temp_ / name);
    EXPECT_EQ(find_toolchain("").path, temp_ / name);
  }
}

TEST_F(ToolchainTest, TakesFurtherWords) {
  write_compiler(temp_ / "wrapper");
  write_compiler(temp_ / "two words");
  EXPECT_EQ(find_toolchain("two words").path, temp_ / "two words");
  EXPECT_EQ(find_toolchain("two words").arguments, Words{});
  const ScopedVariable own("TESSERA_CXX", "wrapper  real-c++ -m64");
  const Toolchain toolchain = find_toolchain("");
  EXPECT_EQ(toolchain.path, temp_ / "wrapper");
  EXPECT_EQ(toolchain.arguments, (Words{"real-c++", "-m64"}));
  EXPECT_TRUE(questions(temp_ / "wrapper").starts_with("real-c++\n"));
}

TEST_F(ToolchainTest, SaysWhereItLooked) {
  const ScopedVariable path("PATH", "/nowhere");
  const ErrorCode code = ErrorCode::compile_failed;
  expect_error(code,
               "no C++ compiler was found: looked at TESSERA_CXX (not set), CXX (not set), and for "
               "g++, c++ and clang++ on PATH '/nowhere'; install one ('apt install g++') or name "
               "one with TESSERA_CXX",
               [] { find_toolchain(""); });
  expect_error(code,
               "the C++ compiler 'my-c++' is not an executable file (PATH is '/nowhere'); install "
               "one ('apt install g++') or name one with TESSERA_CXX",
               [] { find_toolchain("my-c++"); });
  const ScopedVariable hint("CXX", "icpc");
  expect_error(code,
               "no C++ compiler was found: looked at TESSERA_CXX (not set), CXX ('icpc'), and for "
               "g++, c++ and clang++ on PATH '/nowhere'; install one ('apt install g++') or name "
               "one with TESSERA_CXX",
               [] { find_toolchain(""); });
  const ScopedVariable own("TESSERA_CXX", "/opt/c++");
  expect_error(code,
               "the C++ compiler '/opt/c++', named by TESSERA_CXX, is not an executable file (PATH "
               "is '/nowhere'); install one ('apt install g++') or name one with TESSERA_CXX",
               [] { find_toolchain(""); });
}

TEST_F(ToolchainTest, SaysWhatABrokenCompilerSaid) {
  const fs::path path = temp_ / "broken";
  write_file(path, "#!/bin/sh\necho 'libfoo.so: not found'\nexit 127\n");
  fs::permissions(path, fs::perms::owner_all);
  expect_error(ErrorCode::compile_failed,
               "the C++ compiler " + path.string() +
                   " does not answer '--version' (exit code 127, signal 0): libfoo.so: not found; "
                   "name another one with TESSERA_CXX",
               [&] { find_toolchain(path.string()); });
}

TEST_F(ToolchainTest, KnowsACompilerByItsContent) {
  const fs::path path = temp_ / "c++";
  write_compiler(path);
  const Toolchain before = find_toolchain(path.string());
  EXPECT_EQ(find_toolchain(path.string()).build_id, before.build_id);
  write_compiler(path, "# an upgrade\n");
  const Toolchain after = find_toolchain(path.string());
  EXPECT_EQ(after.version, before.version);
  EXPECT_NE(after.build_id, before.build_id);
}

TEST_F(ToolchainTest, KnowsACompilerByTheContentOfItsBackend) {
  const fs::path path = temp_ / "c++";
  const fs::path backend = temp_ / "backend";
  write_compiler(path, "[ \"$1\" = -print-prog-name=cc1plus ] && echo " + backend.string() + "\n");
  const auto id_with = [&](const std::string& content) {
    write_file(backend, content);
    fs::permissions(backend, fs::perms::owner_all);
    return find_toolchain(path.string()).build_id;
  };
  const std::string a = id_with("backend a");
  EXPECT_NE(id_with("backend b"), a);
  EXPECT_EQ(id_with("backend a"), a);
}

TEST_F(ToolchainTest, IsRememberedBetweenProcesses) {
  const fs::path path = temp_ / "c++";
  const fs::path memo = temp_ / "memo";
  write_compiler(path);
  EXPECT_TRUE(is_asked(path, memo));
  EXPECT_FALSE(is_asked(path, memo));
  const std::vector<std::string> files = names_in(memo);
  ASSERT_EQ(files.size(), 1U);

  // A pipe in place of the memory is neither read nor written.
  fs::rename(memo / files[0], temp_ / "aside");
  ASSERT_EQ(::mkfifo((memo / files[0]).c_str(), 0600), 0);
  EXPECT_TRUE(is_asked(path, memo));
  fs::rename(temp_ / "aside", memo / files[0]);

  // A changed compiler and a damaged memory are asked again.
  write_compiler(path, "# an upgrade\n");
  EXPECT_TRUE(is_asked(path, memo));
  EXPECT_FALSE(is_asked(path, memo));
  const std::string good = read_file(memo / files[0]);
  std::string wrong = good;
  wrong[good.find("c++ 1.0")] = 'C';
  for (const std::string& damaged : {good.substr(0, good.size() / 2), std::string(), wrong}) {
    write_file(memo / files[0], damaged);
    EXPECT_TRUE(is_asked(path, memo));
    EXPECT_FALSE(is_asked(path, memo));
  }
}

// What is remembered names the program that the next build runs.
TEST_F(ToolchainTest, ForgetsWhatOthersMayHaveWritten) {
  const fs::path path = temp_ / "c++";
  const fs::path memo = temp_ / "memo";
  write_compiler(path);
  EXPECT_TRUE(is_asked(path, memo));
  const fs::path file = memo / names_in(memo).at(0);
  EXPECT_EQ(fs::status(memo).permissions(), fs::perms::owner_all);
  ASSERT_EQ(::chmod(file.c_str(), 0664), 0);
  EXPECT_TRUE(is_asked(path, memo));
  EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_FALSE(is_asked(path, memo));
  if (::chown(file.c_str(), 12345, 12345) != 0) GTEST_SKIP() << "only root can give a file away";
  EXPECT_TRUE(is_asked(path, memo));
}

// JSON, which holds what is remembered, is UTF-8; the error was JSON's own.
TEST_F(ToolchainTest, NeedsNoUtf8InItsPathOrItsAnswers) {
  const fs::path folder = temp_ / "caf\xe9";
  fs::create_directory(folder);
  for (const fs::path& path : {folder / "c++", temp_ / "c++"}) {
    write_file(path, "#!/bin/sh\nprintf 'c++ \\351 1.0\\n'\n");
    fs::permissions(path, fs::perms::owner_all);
    const Toolchain found = find_toolchain(path.string(), temp_ / "memo");
    EXPECT_EQ(found.path, path);
    EXPECT_EQ(found.version, "c++ \xe9 1.0");
  }
}

// What every source is compiled with: `kind` of output, and `more`.
Words command_with(const std::string& kind, const Words& more) {
  Words words = {"/usr/bin/ccache",
                 "g++",
                 "-mavx2",
                 "-mfma",
                 "-std=c++17",
                 "-O2",
                 "-ffp-contract=fast",
                 "-fno-math-errno",
                 "-fno-trapping-math",
                 "-fPIC",
                 kind,
                 "-fvisibility=hidden",
                 "-fno-exceptions",
                 "-fno-rtti",
                 "-fno-asynchronous-unwind-tables",
                 "-fno-stack-protector",
                 "-nostdlib",
                 "-w",
                 "-pipe",
                 "-I."};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(CompileCommand, IsAVectorOfRelativePaths) {
  const Toolchain toolchain{.path = "/usr/bin/ccache", .arguments = {"g++"}};
  const Target target = make_target({"-mavx2", "-mfma"});
  EXPECT_EQ(compile_command(toolchain, target, make_source("gemm_a")),
            command_with("-shared", {"kernel.cc", "-o", "kernel.so", "-Wl,--as-needed", "-lm"}));
}

TEST(CompileCommand, LinksTheObjectsOfObjects) {
  const Toolchain toolchain{.path = "/usr/bin/ccache", .arguments = {"g++"}};
  const Target target = make_target({"-mavx2", "-mfma"});
  Source source = make_source("gemm_a");
  source.objects = {make_object("object_a"), make_object("object_b")};
  EXPECT_EQ(compile_command(toolchain, target, source),
            command_with("-shared", {"-include", "objects.h", "kernel.cc", "-o", "kernel.so",
                                     "object0.o", "object1.o", "-Wl,--as-needed", "-lm"}));
  EXPECT_EQ(compile_command(toolchain, target, source.objects[0]),
            command_with("-c", {"object.cc", "-o", "object.o"}));
}

// What a key is made of, and one way to change each part.
struct Ingredients {
  std::vector<EmbeddedFile> headers = {{"tessera/a.h", "int a;"}, {"tessera/b.h", "int b;"}};
  Source source = make_source("gemm_a");
  Target target = make_target({"-mavx2"});
  Toolchain toolchain{.path = "/usr/bin/g++", .version = "g++ 12", .build_id = "id"};
};

struct Change {
  const char* name;
  bool is_of_source;
  std::function<void(Ingredients&)> apply;
};

std::vector<Change> changes() {
  return {
      {"name", true, [](Ingredients& i) { i.source.name += "b"; }},
      {"text", true, [](Ingredients& i) { i.source.text += " "; }},
      {"ABI number", true, [](Ingredients& i) { ++i.source.abi; }},
      {"extension", true, [](Ingredients& i) { i.source.extension = ".cpp"; }},
      {"objects", true,
       [](Ingredients& i) { i.source.objects.push_back(make_object("object_a")); }},
      {"another object", true,
       [](Ingredients& i) { i.source.objects.push_back(make_object("object_a", "int b;\n")); }},
      {"an object's header", true,
       [](Ingredients& i) {
         i.source.objects.push_back(make_object("object_a"));
         i.source.objects[0].headers =
             std::make_shared<const Headers>(std::vector{EmbeddedFile{"tessera/a.h", "int a;"}});
       }},
      {"declarations of objects", true,
       [](Ingredients& i) {
         i.source.objects.push_back(make_object("object_a"));
         i.source.declarations = "extern int a;\n";
       }},
      {"an object itself", true, [](Ingredients& i) { i.source.is_object = true; }},
      {"header content", true, [](Ingredients& i) { i.headers[1].content = "int c;"; }},
      {"header path", true, [](Ingredients& i) { i.headers[1].path = "tessera/c.h"; }},
      {"one header less", true, [](Ingredients& i) { i.headers.pop_back(); }},
      {"target", true, [](Ingredients& i) { i.target.name = "avx2"; }},
      {"flag", true, [](Ingredients& i) { i.target.compile_flags[0] = "-mavx512f"; }},
      {"more flags", true, [](Ingredients& i) { i.target.compile_flags.push_back("-mfma"); }},
      {"a flag's blank", true,
       [](Ingredients& i) {
         i.target.compile_flags = {"-mavx2", ""};
       }},
      {"compiler path", false, [](Ingredients& i) { i.toolchain.path = "/opt/bin/g++"; }},
      {"compiler version", false, [](Ingredients& i) { i.toolchain.version = "g++ 13"; }},
      {"compiler content", false, [](Ingredients& i) { i.toolchain.build_id = "other"; }},
      {"compiler arguments", false, [](Ingredients& i) { i.toolchain.arguments = {"-m64"}; }},
  };
}

struct Keys {
  std::string source;
  std::string cache;
};

Keys keys_of(Ingredients ingredients) {
  ingredients.source.headers = std::make_shared<const Headers>(ingredients.headers);
  return {source_key(ingredients.source, ingredients.target),
          cache_key(ingredients.source, ingredients.target, ingredients.toolchain)};
}

TEST(CacheKey, ChangesWithEachIngredient) {
  const Keys original = keys_of({});
  EXPECT_EQ(original.cache.size(), 32U);
  EXPECT_EQ(keys_of({}).cache, original.cache);
  std::set<std::string> seen = {original.cache};
  for (const Change& change : changes()) {
    SCOPED_TRACE(change.name);
    Ingredients changed;
    change.apply(changed);
    const Keys keys = keys_of(changed);
    EXPECT_TRUE(seen.insert(keys.cache).second);
    EXPECT_EQ(keys.source != original.source, change.is_of_source);
  }
}

TEST(CacheKey, IsTheSameInEveryRelease) {
  // A change of what goes into the key, or of how, must raise the ABI number of every family, which
  // changes all keys: then, and only then, replace this value.
  Ingredients ingredients;
  ingredients.source.abi = 4;
  EXPECT_EQ(keys_of(ingredients).source, "d51539ae822def0a33e2a4cf3927c0f4");
}

// One family's number is raised: its kernels are built again, another family's stay.
TEST(CacheKey, HoldsTheNumberOfItsOwnFamily) {
  Ingredients one, other;
  one.source.abi = 7;
  other.source.name = "conv_x";
  other.source.abi = 7;
  const Keys before = keys_of(one), others = keys_of(other);
  one.source.abi = 8;
  EXPECT_NE(keys_of(one).source, before.source);
  EXPECT_NE(keys_of(one).cache, before.cache);
  EXPECT_EQ(keys_of(other).source, others.source);
  EXPECT_EQ(keys_of(other).cache, others.cache);
}

}  // namespace
}  // namespace tessera::jit
