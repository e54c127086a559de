#include <chrono>
#include <csignal>
#include <thread>

#include "host/jit/fixtures.h"
#include "host/spec/expect_error.h"
#include "tessera/base/error.h"
#include "tessera/families/headers.h"
#include "tessera/jit/build.h"
#include "tessera/jit/pack.h"
#include "tessera/jit/toolchain.h"

namespace tessera::jit {
namespace {

class BuilderTest : public testing::Test {
 protected:
  BuildOptions options() const { return make_options(cache_, compiler_); }
  fs::path failed(const std::string& name) const {
    for (const std::string& folder : names_in(cache_ / "failed")) {
      if (folder.starts_with(name + "-")) return cache_ / "failed" / folder;
    }
    return {};
  }
  ScopedVariable no_jit_{"TESSERA_NO_JIT", std::nullopt};
  ScopedVariable no_pack_{"TESSERA_PACK", std::nullopt};
  TempFolder temp_;
  fs::path cache_ = temp_ / "cache";
  FakeCompiler compiler_{temp_.path()};
};

TEST_F(BuilderTest, CompilesOnceAndFindsItAgain) {
  Builder builder(options());
  const Artifact artifact = builder.build(make_source("gemm_a"), make_target());
  EXPECT_EQ(text_of(artifact.binary), "a binary made of:\nint x;\n");
  EXPECT_EQ(builder.build(make_source("gemm_a"), make_target()).binary, artifact.binary);
  EXPECT_EQ(Builder(options()).build(make_source("gemm_a"), make_target()).key, artifact.key);
  EXPECT_EQ(compiler_.calls(), 1);
  builder.build(make_source("gemm_a", "int y;\n"), make_target());
  builder.build(make_source("gemm_a"), make_target({"-mavx2"}));
  EXPECT_EQ(compiler_.calls(), 3);
  compiler_.write("", "fake-c++ 2.0");
  builder.build(make_source("gemm_a"), make_target());
  EXPECT_EQ(compiler_.calls(), 4);
}

TEST_F(BuilderTest, KeepsAllThatIsNeededToRepeatTheBuild) {
  const std::vector<EmbeddedFile> headers = {{"tessera/device/cpu/a.h", "int a;"}};
  Source source = make_source("gemm_a", "int gemm;\n");
  source.headers = std::make_shared<const Headers>(headers);
  compiler_.write("echo a remark; ls tessera/device/cpu");
  Builder builder(options());
  const fs::path entry = builder.build(source, make_target({"-DX=a b"})).binary.parent_path();
  EXPECT_EQ(names_in(entry), (std::vector<std::string>{"command.txt", "kernel.cc", "kernel.so",
                                                       "log.txt", "meta.json", "tessera"}));
  EXPECT_EQ(read_file(entry / "kernel.cc"), "int gemm;\n");
  EXPECT_EQ(read_file(entry / "tessera/device/cpu/a.h"), "int a;");
  EXPECT_EQ(read_file(entry / "log.txt"), "a remark\na.h\n");
  EXPECT_TRUE(read_file(entry / "command.txt")
                  .starts_with(compiler_.path() + " '-DX=a b' -std=c++17 -O2 "));
  EXPECT_EQ(builder.cache().verify().good, 1U);
}

// Two kernels with an object in common and one of its own each.
std::vector<Source> sources_with_objects() {
  std::vector<Source> sources = {make_source("gemm_a"), make_source("gemm_b")};
  sources[0].objects = {make_object("object_common"), make_object("object_a", "int only_a;\n")};
  sources[1].objects = {make_object("object_common"), make_object("object_b", "int only_b;\n")};
  for (Source& source : sources) source.declarations = "extern int a;\n";
  return sources;
}

TEST_F(BuilderTest, CompilesAnObjectOnceForAllKernels) {
  const std::vector<Source> sources = sources_with_objects();
  Builder builder(options());
  const fs::path entry = builder.build(sources[0], make_target()).binary.parent_path();
  EXPECT_EQ(compiler_.calls(), 3);
  EXPECT_EQ(names_in(entry),
            (std::vector<std::string>{"command.txt", "kernel.cc", "kernel.so", "log.txt",
                                      "meta.json", "object0.o", "object1.o", "objects.h"}));
  EXPECT_EQ(text_of(entry / "kernel.so"),
            "a binary made of:\nextern int a;\nint x;\na binary made of:\nint a;\n"
            "a binary made of:\nint only_a;\n");
  builder.build(sources[1], make_target());
  EXPECT_EQ(compiler_.calls(), 5);
  EXPECT_TRUE(Builder(options()).build_all(sources, make_target(), 1)[1].was_cached);
  EXPECT_EQ(compiler_.calls(), 5);
  EXPECT_EQ(builder.cache().verify().good, 5U);
}

TEST_F(BuilderTest, BuildsAllObjectsOnceInParallel) {
  for (const int jobs : {1, 2, 16}) {
    Builder builder(make_options(temp_ / fmt::format("cache{}", jobs), compiler_));
    const std::ptrdiff_t before = compiler_.calls();
    for (const BuildResult& result :
         builder.build_all(sources_with_objects(), make_target(), jobs)) {
      EXPECT_EQ(result.error, "");
    }
    EXPECT_EQ(compiler_.calls() - before, 5) << jobs << " jobs";
  }
}

TEST_F(BuilderTest, CompilesADamagedObjectAgain) {
  const std::vector<Source> sources = sources_with_objects();
  Builder(options()).build(sources[0], make_target());
  for (const std::string& folder : names_in(cache_)) {
    if (folder.starts_with("object_common-")) write_file(cache_ / folder / "object.o", "garbage");
  }
  const Artifact artifact = Builder(options()).build(sources[1], make_target());
  EXPECT_EQ(compiler_.calls(), 6);
  EXPECT_EQ(text_of(artifact.binary).find("garbage"), std::string::npos);
  EXPECT_EQ(names_in(cache_ / "damaged").size(), 1U);
}

TEST_F(BuilderTest, BuildsObjectsInMemoryWhereNoDiskTakesThem) {
  BuildOptions homeless = options();
  homeless.cache.folder = "/proc/tessera";
  Builder builder(homeless);
  const Artifact artifact = builder.build(sources_with_objects()[0], make_target());
  EXPECT_NE(text_of(artifact.binary).find("int only_a;"), std::string::npos);
  EXPECT_EQ(compiler_.calls(), 3);
}

TEST_F(BuilderTest, SaysWhichObjectFailed) {
  compiler_.write("grep -q only_b object.cc 2> /dev/null && exit 1");
  Builder builder(options());
  const std::vector<BuildResult> results =
      builder.build_all(sources_with_objects(), make_target(), 2);
  EXPECT_EQ(results[0].error, "");
  EXPECT_TRUE(results[1].error.starts_with("gemm_b: object_b: " + compiler_.path() +
                                           " failed with exit code 1: it said nothing"))
      << results[1].error;
}

TEST_F(BuilderTest, TakesAPackedKernelWithoutItsObjects) {
  const Source source = sources_with_objects()[0];
  const Artifact built = Builder(options()).build(source, make_target());
  const PackInput input{.entry = {.name = source.name,
                                  .source_key = source_key(source, make_target()),
                                  .target = "generic"},
                        .binary = built.binary};
  write_pack(temp_ / "test.pack", std::span(&input, 1));
  BuildOptions packed = make_options(temp_ / "other", compiler_);
  packed.packs = {(temp_ / "test.pack").string()};
  EXPECT_EQ(Builder(packed).build_all(std::span(&source, 1), make_target(), 1)[0].error, "");
  EXPECT_EQ(compiler_.calls(), 3);
}

TEST_F(BuilderTest, GivesTheCompilerNothingThatChangesItsOutput) {
  const ScopedVariable path("CPATH", "/somewhere");
  const ScopedVariable epoch("SOURCE_DATE_EPOCH", "1");
  compiler_.write(
      "echo ${CPATH-none} ${SOURCE_DATE_EPOCH-none} $LC_ALL; [ $TMPDIR = $PWD ] && echo inside");
  const Artifact artifact = Builder(options()).build(make_source("gemm_a"), make_target());
  EXPECT_EQ(read_file(artifact.binary.parent_path() / "log.txt"), "none none C\ninside\n");
}

TEST_F(BuilderTest, ReportsAFailureInTheCompilersWordsAndTriesAgain) {
  compiler_.write(
      "echo 'kernel.cc: In function f:'; echo 'kernel.cc:1:1: error: no int'; "
      "echo 'kernel.cc:2:1: error: no x'; exit 3");
  Builder builder(options());
  try {
    builder.build(make_source("gemm_a"), make_target());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::compile_failed);
    EXPECT_EQ(error.what(), "gemm_a: " + compiler_.path() +
                                " failed with exit code 3: kernel.cc:1:1: error: no int; "
                                "kernel.cc:2:1: error: no x; all it said is in " +
                                (failed("gemm_a") / "log.txt").string());
    EXPECT_EQ(error.context(),
              "kernel.cc: In function f:\nkernel.cc:1:1: error: no int\n"
              "kernel.cc:2:1: error: no x\n");
    EXPECT_EQ(read_file(failed("gemm_a") / "log.txt"), error.context());
  }
  EXPECT_EQ(read_file(failed("gemm_a") / "kernel.cc"), "int x;\n");
  EXPECT_THROW(builder.build(make_source("gemm_a"), make_target()), Error);
  EXPECT_EQ(compiler_.calls(), 2);
  EXPECT_EQ(names_in(cache_ / "failed").size(), 1U);
  EXPECT_EQ(names_in(cache_ / "tmp").size(), 0U);
}

TEST_F(BuilderTest, RetriesAFailedKernelWithTheSameKey) {
  const fs::path mended = temp_ / "mended";
  compiler_.write("[ -e " + mended.string() + " ] || exit 1");
  Builder builder(options());
  EXPECT_THROW(builder.build(make_source("gemm_a"), make_target()), Error);
  write_file(mended, "");
  EXPECT_NO_THROW(builder.build(make_source("gemm_a"), make_target()));
  EXPECT_EQ(names_in(cache_ / "failed").size(), 0U);
}

TEST_F(BuilderTest, ReportsEveryWayToFail) {
  struct Case {
    std::string body;
    std::string outcome;
  };
  const std::string headers = "cat " + (temp_ / "kernel.so.headers").string();
  const std::vector<Case> cases = {
      {"exit 1", "failed with exit code 1: it said nothing"},
      {"echo; echo 'out of luck'; exit 1", "failed with exit code 1: out of luck"},
      {"kill -SEGV $$", "died on signal 11 (Segmentation fault): it said nothing"},
      {"echo fine; exit 0", "reported success but wrote no kernel.so: fine"},
      {": > kernel.so; exit 0", "reported success but wrote no kernel.so: it said nothing"},
      {"echo garbage > kernel.so; exit 0",
       "reported success but its kernel.so has 8 bytes, but an ELF header has 64: it said nothing"},
      {headers + " | head -c 200 > kernel.so; exit 0",
       "reported success but its kernel.so has 200 bytes, but its segment 0 has 248 at byte 0: it "
       "said nothing"},
      {"cp " + (temp_ / "object.o.headers").string() + " kernel.so; exit 0",
       "reported success but its kernel.so must be an ELF file of type 3, got type 1: it said "
       "nothing"},
      {"ln -s " + (temp_ / "kernel.so.headers").string() + " kernel.so; exit 0",
       "reported success but its kernel.so is not a regular file: it said nothing"},
      {"mkfifo kernel.so; exit 0",
       "reported success but its kernel.so is not a regular file: it said nothing"},
  };
  for (const Case& c : cases) {
    compiler_.write(c.body);
    Builder builder(options());
    try {
      builder.build(make_source("gemm_a"), make_target());
      ADD_FAILURE() << c.body;
    } catch (const Error& error) {
      const std::string expected = "gemm_a: " + compiler_.path() + " " + c.outcome +
                                   "; all it said is in " +
                                   (cache_ / "failed" / "gemm_a-").string();
      EXPECT_EQ(std::string(error.what()).substr(0, expected.size()), expected);
      EXPECT_EQ(error.code(), ErrorCode::compile_failed);
    }
  }
}

TEST_F(BuilderTest, StopsACompilerThatHangs) {
  compiler_.write("echo thinking; sleep 60 & echo $! > " + (temp_ / "id").string() + "; wait");
  BuildOptions impatient = options();
  impatient.timeout_seconds = 0.5;
  Builder builder(impatient);
  try {
    builder.build(make_source("gemm_a"), make_target());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_EQ(error.what(), "gemm_a: " + compiler_.path() +
                                " ran longer than 0.5 s and was stopped: thinking; all it said is "
                                "in " +
                                (failed("gemm_a") / "log.txt").string());
  }
  const std::string child = "/proc/" + std::to_string(std::stoi(read_file(temp_ / "id"))) + "/stat";
  std::string state;
  for (int i = 0; i < 200; ++i) {
    state = try_read_file(child).value_or("");
    if (state.empty() || state.find(") Z ") != std::string::npos) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ADD_FAILURE() << "what the compiler started still runs: " << state;
}

TEST_F(BuilderTest, CompilesNothingWhenForbidden) {
  const std::string known = "gemm_known";
  Builder(options()).build(make_source(known), make_target());
  const std::string miss = "gemm_a: is neither in a pack nor in the cache " + cache_.string();
  const auto build = [&](const BuildOptions& o, const std::string& name) {
    return Builder(o).build(make_source(name), make_target());
  };
  {
    const ScopedVariable no_jit("TESSERA_NO_JIT", "1");
    expect_error(ErrorCode::jit_disabled,
                 miss +
                     ", and TESSERA_NO_JIT=1 forbids compiling it; unset it or ship a pack with "
                     "'tessera pack'",
                 [&] { build(options(), "gemm_a"); });
    EXPECT_NO_THROW(build(options(), known));
    // Without any compiler the answer is the same.
    BuildOptions no_compiler = options();
    no_compiler.compiler = "/nowhere/c++";
    expect_error(ErrorCode::jit_disabled,
                 miss +
                     ", and TESSERA_NO_JIT=1 forbids compiling it; unset it or ship a pack with "
                     "'tessera pack'",
                 [&] { build(no_compiler, "gemm_a"); });
  }
  BuildOptions forbidden = options();
  forbidden.allow_compile = false;
  expect_error(ErrorCode::jit_disabled,
               miss +
                   ", and allow_compile = false forbids compiling it; allow it or ship a pack "
                   "with 'tessera pack'",
               [&] { build(forbidden, "gemm_a"); });
  EXPECT_NO_THROW(build(forbidden, known));
  const ScopedVariable off("TESSERA_NO_JIT", "0");
  EXPECT_EQ(compiler_.calls(), 1);
  EXPECT_NO_THROW(build(options(), "gemm_a"));
}

TEST_F(BuilderTest, NeedsACompilerOnlyToCompile) {
  const ScopedVariable path("PATH", "/nowhere");
  BuildOptions none = options();
  none.compiler = "";
  const ScopedVariable own("TESSERA_CXX", std::nullopt);
  const ScopedVariable hint("CXX", std::nullopt);
  expect_error(ErrorCode::compile_failed,
               "no C++ compiler was found: looked at TESSERA_CXX (not set), CXX (not set), and for "
               "g++, c++ and clang++ on PATH '/nowhere'; install one ('apt install g++') or name "
               "one with TESSERA_CXX",
               [&] { Builder(none).build(make_source("gemm_a"), make_target()); });

  write_file(temp_ / "binary", "packed");
  const std::string key = source_key(make_source("gemm_a"), make_target());
  const PackInput input{.entry = {.name = "gemm_a", .source_key = key, .target = "generic"},
                        .binary = temp_ / "binary"};
  write_pack(temp_ / "some.pack", std::span(&input, 1));
  none.packs = {(temp_ / "some.pack").string()};
  const Artifact artifact = Builder(none).build(make_source("gemm_a"), make_target());
  EXPECT_EQ(read_file(artifact.binary), "packed");
}

TEST_F(BuilderTest, RefusesTargetsThatItHasNoCompilerFor) {
  Target target = make_target();
  target.name = "tpu";
  target.backend = "xla";
  expect_error(
      ErrorCode::unsupported,
      "gemm_a: only kernels of cpu, cuda, hip targets can be compiled here, got target tpu of "
      "backend xla; write its source with 'tessera generate'",
      [&] { Builder(options()).build(make_source("gemm_a"), target); });
}

TEST_F(BuilderTest, BuildsManyAndGoesOnPastFailures) {
  compiler_.write("grep -q broken kernel.cc && echo 'error: broken' && exit 1");
  Builder builder(options());
  builder.build(make_source("gemm_3"), make_target());
  std::vector<Source> sources;
  for (int i = 0; i < 12; ++i) {
    sources.push_back(make_source("gemm_" + std::to_string(i), i % 5 == 0 ? "broken" : "int x;\n"));
  }
  std::vector<std::size_t> done;
  std::atomic<int> inside = 0;
  const std::vector<BuildResult> results = builder.build_all(
      sources, make_target(), 4, [&](std::size_t n, std::size_t total, const BuildResult& result) {
        EXPECT_EQ(++inside, 1) << "two calls at once";
        EXPECT_EQ(total, 12U);
        EXPECT_FALSE(result.name.empty());
        done.push_back(n);
        --inside;
      });
  ASSERT_EQ(results.size(), 12U);
  for (std::size_t i = 0; i < results.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(results[i].name, sources[i].name);
    EXPECT_EQ(results[i].error.empty(), i % 5 != 0);
    EXPECT_EQ(results[i].artifact.binary.empty(), i % 5 == 0);
    EXPECT_EQ(results[i].was_cached, i == 3);
    EXPECT_GT(results[i].seconds, 0);
  }
  EXPECT_EQ(results[5].error, "gemm_5: " + compiler_.path() +
                                  " failed with exit code 1: error: broken; all it said is in " +
                                  (failed("gemm_5") / "log.txt").string() + "\nerror: broken\n");
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.size(), 12U);
  EXPECT_EQ(builder.build_all({}, make_target(), 4).size(), 0U);
}

TEST_F(BuilderTest, StopsWhenProgressThrows) {
  std::vector<Source> sources;
  for (int i = 0; i < 50; ++i) sources.push_back(make_source("gemm_" + std::to_string(i)));
  Builder builder(options());
  const auto interrupt = [](std::size_t, std::size_t, const BuildResult&) {
    throw std::runtime_error("interrupted");
  };
  EXPECT_THROW(builder.build_all(sources, make_target(), 2, interrupt), std::runtime_error);
  EXPECT_LT(compiler_.calls(), 10);
}

TEST_F(BuilderTest, CompilesInTheTemporaryFolderWhenThereIsNoCache) {
  BuildOptions homeless = options();
  homeless.cache.folder = "/proc/tessera";
  Builder builder(homeless);
  const Artifact artifact = builder.build(make_source("gemm_a"), make_target());
  EXPECT_EQ(text_of(artifact.binary), "a binary made of:\nint x;\n");
  builder.build(make_source("gemm_a"), make_target());
  EXPECT_EQ(compiler_.calls(), 1);
  compiler_.write("echo 'error: no'; exit 1");
  expect_error(ErrorCode::compile_failed,
               "gemm_b: " + compiler_.path() + " failed with exit code 1: error: no",
               [&] { builder.build(make_source("gemm_b"), make_target()); });
}

}  // namespace
}  // namespace tessera::jit
