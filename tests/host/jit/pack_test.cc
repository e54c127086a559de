#include <sys/stat.h>

#include "tessera/jit/pack.h"

#include <dlfcn.h>

#include <nlohmann/json.hpp>
#include <random>

#include "host/jit/fixtures.h"
#include "host/spec/expect_error.h"
#include "tessera/base/error.h"
#include "tessera/base/hash.h"
#include "tessera/base/log.h"
#include "tessera/jit/build.h"
#include "tessera/jit/toolchain.h"

namespace tessera::jit {
namespace {

class PackTest : public testing::Test {
 protected:
  PackTest() {
    set_log_sink([this](LogLevel level, std::string_view line) {
      if (level == LogLevel::warning) log_.emplace_back(line);
    });
    add("gemm_b", kKeyB, std::string(5000, 'b'));
    add("gemm_a", kKeyA, "binary a");
    add("gemm_a", kKeyB, "another a");
    write_pack(file_, inputs_);
  }
  ~PackTest() override { set_log_sink({}); }

  void add(const std::string& name, const std::string& key, const std::string& binary) {
    const fs::path path = temp_ / ("binary" + std::to_string(inputs_.size()));
    write_file(path, binary);
    inputs_.push_back(
        {.entry = {.name = name, .source_key = key, .target = "avx2"}, .binary = path});
  }
  // The contents that the pack gives, or the message of the error.
  std::string read_all() const try {
    const Pack pack(file_);
    std::string all;
    for (const PackEntry& entry : pack.entries()) {
      all += read_file(pack.find(entry.name, entry.source_key)->binary) + "|";
    }
    return all;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::parse_error);
    return error.what();
  }

  ScopedVariable no_pack_{"TESSERA_PACK", std::nullopt};
  TempFolder temp_;
  fs::path file_ = temp_ / "some.pack";
  std::vector<PackInput> inputs_;
  std::vector<std::string> log_;
};

TEST_F(PackTest, GivesBackWhatWasPacked) {
  const Pack pack(file_);
  ASSERT_EQ(pack.entries().size(), 3U);
  EXPECT_EQ(pack.entries()[0].name, "gemm_a");
  EXPECT_EQ(pack.entries()[0].source_key, kKeyA);
  EXPECT_EQ(pack.entries()[0].target, "avx2");
  EXPECT_EQ(pack.entries()[0].bytes, 8);
  const std::optional<Artifact> a = pack.find("gemm_a", kKeyA);
  const std::optional<Artifact> b = pack.find("gemm_b", kKeyB);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(read_file(a->binary), "binary a");
  EXPECT_EQ(read_file(b->binary), std::string(5000, 'b'));
  EXPECT_EQ(a->key, kKeyA);
  EXPECT_NE(a->keep, nullptr);
  EXPECT_EQ(pack.find("gemm_b", kKeyA), std::nullopt);
  EXPECT_EQ(pack.find("gemm_c", kKeyA), std::nullopt);
}

TEST_F(PackTest, ListsNamesAndKeys) {
  const Pack pack(file_);
  EXPECT_TRUE(pack.lists("gemm_a"));
  EXPECT_TRUE(pack.lists("gemm_a", kKeyA));
  EXPECT_FALSE(pack.lists("gemm_b", kKeyA));
  EXPECT_FALSE(pack.lists("gemm_"));
  EXPECT_FALSE(pack.lists("gemm_aa"));
  EXPECT_FALSE(pack.lists("hemm"));
}

TEST_F(PackTest, IsTheSameFileWhateverTheOrder) {
  std::reverse(inputs_.begin(), inputs_.end());
  write_pack(temp_ / "other.pack", inputs_);
  EXPECT_EQ(read_file(temp_ / "other.pack"), read_file(file_));
  inputs_.push_back(inputs_[0]);
  write_pack(temp_ / "other.pack", inputs_);
  EXPECT_EQ(read_file(temp_ / "other.pack"), read_file(file_));
}

TEST_F(PackTest, MayBeEmpty) {
  write_pack(file_, {});
  EXPECT_EQ(Pack(file_).entries().size(), 0U);
}

TEST_F(PackTest, KeepsTheOldFileWhenWritingFails) {
  const std::string before = read_file(file_);
  inputs_[1].binary = temp_ / "missing";
  expect_error(ErrorCode::io_error,
               "cannot read " + (temp_ / "missing").string() + ": No such file or directory",
               [&] { write_pack(file_, inputs_); });
  EXPECT_EQ(read_file(file_), before);
}

TEST_F(PackTest, SaysWhatIsWrong) {
  const std::string good = read_file(file_);
  const std::string pack = "the pack " + file_.string() + " ";
  const std::string remedy = "; make it again with 'tessera pack'";
  struct Case {
    std::string content;
    std::string sentence;
  };
  std::string other_version = good;
  other_version[8] = 3;
  const std::vector<Case> cases = {
      {"", "is truncated: a header has 64 bytes, the file has 0"},
      {good.substr(0, 63), "is truncated: a header has 64 bytes, the file has 63"},
      {std::string(100, 'x'), "is not a pack: its first 8 bytes are wrong"},
      {other_version, "is damaged: its header does not have its checksum"},
      {good.substr(0, 64),
       fmt::format("is truncated or extended: its header says {} bytes, the file has 64",
                   good.size())},
      {good + "x",
       fmt::format("is truncated or extended: its header says {} bytes, the file has {}",
                   good.size(), good.size() + 1)},
  };
  for (const Case& c : cases) {
    write_file(file_, c.content);
    EXPECT_EQ(read_all(), pack + c.sentence + remedy);
  }
  expect_error(ErrorCode::io_error, "cannot read the pack /nowhere: No such file or directory",
               [] { Pack("/nowhere"); });
  expect_error(ErrorCode::parse_error,
               "the pack " + temp_.path().string() + " is not a file" + remedy,
               [&] { Pack(temp_.path()); });
}

// The pack with another index and format version.
std::string rewritten(const std::string& pack, std::uint64_t version, const std::string& index) {
  const auto put = [](std::string& bytes, std::size_t word, std::uint64_t value) {
    for (std::size_t i = 0; i < 8; ++i) bytes[8 * word + i] = static_cast<char>(value >> 8 * i);
  };
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    offset |= std::uint64_t{static_cast<unsigned char>(pack[24 + i])} << 8 * i;
  }
  std::string made = pack.substr(0, offset) + index;
  put(made, 1, version);
  put(made, 2, made.size());
  put(made, 4, index.size());
  put(made, 5, hash64(index));
  put(made, 7, hash64(std::string_view(made).substr(0, 56)));
  return made;
}

TEST_F(PackTest, SaysWhoMadeIt) {
  EXPECT_EQ(Pack(file_).maker(), PackMaker{});
  EXPECT_EQ(to_string(PackMaker{}), "Tessera " + std::string(kVersion));
  const PackMaker maker{"0.0.9", 951'827'696, {{"avx2", "g++ 12"}}};
  write_pack(file_, inputs_, maker);
  EXPECT_EQ(Pack(file_).maker(), maker);
  EXPECT_EQ(to_string(maker), "Tessera 0.0.9 on 2000-02-29");
  write_pack(temp_ / "other.pack", inputs_, maker);
  EXPECT_EQ(read_file(temp_ / "other.pack"), read_file(file_));
}

TEST_F(PackTest, OldPacksAreReadAndLaterOnesRefused) {
  const std::string good = read_file(file_);
  const std::string contents = read_all();
  const std::string index = good.substr(good.find("{\"compilers\""));
  const std::string list = nlohmann::json::parse(index).at("kernels").dump();
  write_file(file_, rewritten(good, 1, list));
  EXPECT_EQ(read_all(), contents);
  EXPECT_EQ(Pack(file_).maker().version, "");
  EXPECT_EQ(to_string(Pack(file_).maker()), "a version of Tessera from before packs said theirs");
  write_file(file_, rewritten(good, 3, index));
  EXPECT_EQ(read_all(), "the pack " + file_.string() +
                            " has format version 3, this library reads versions 1 to 2; make it "
                            "again with 'tessera pack'");
  write_file(file_, rewritten(good, 2, list));
  EXPECT_NE(read_all().find(" has a malformed index ("), std::string::npos);
}

TEST_F(PackTest, RefusesAPipeWithoutWaiting) {
  const fs::path pipe = temp_ / "pipe.pack";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_error(ErrorCode::parse_error,
               "the pack " + pipe.string() + " is not a file; make it again with 'tessera pack'",
               [&] { Pack{pipe}; });
}

TEST_F(PackTest, NoTruncationGoesUnseen) {
  const std::string good = read_file(file_);
  for (std::size_t size = 0; size < good.size(); size += size < 200 ? 1 : 97) {
    write_file_unflushed(file_, good.substr(0, size));
    EXPECT_NE(read_all().find("is truncated"), std::string::npos) << size;
  }
}

TEST_F(PackTest, NoFlippedBitGoesUnseen) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::string good = read_file(file_);
  const std::string contents = read_all();
  // The bytes between a kernel and the next page mean nothing.
  const auto is_padding = [&](std::size_t byte) {
    const auto within = [byte](std::size_t from, std::size_t to) {
      return byte >= from && byte < to;
    };
    return within(64, 4096) || within(4096 + 8, 8192) || within(8192 + 9, 12288) ||
           within(12288 + 5000, 20480);
  };
  std::vector<std::size_t> bytes;
  for (std::size_t byte = 0; byte < good.size(); ++byte) {
    const bool is_sampled = byte >= 12288 && byte < 20480 && random() % 50 != 0;
    if (!is_padding(byte) && !is_sampled) bytes.push_back(byte);
  }
  EXPECT_GT(bytes.size(), 400U);
  for (const std::size_t byte : bytes) {
    std::string damaged = good;
    damaged[byte] = static_cast<char>(damaged[byte] ^ 1 << random() % 8);
    write_file_unflushed(file_, damaged);
    EXPECT_NE(read_all().find("the pack "), std::string::npos) << byte;
  }
  write_file(file_, good);
  EXPECT_EQ(read_all(), contents);
}

TEST_F(PackTest, ADamagedKernelIsNamed) {
  std::string damaged = read_file(file_);
  damaged[4096] = 'B';
  write_file(file_, damaged);
  const Pack pack(file_);
  EXPECT_TRUE(pack.find("gemm_b", kKeyB));
  try {
    pack.find("gemm_a", kKeyA);
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(
        std::string(error.what())
            .starts_with("the pack " + file_.string() + " is damaged: gemm_a has checksum "))
        << error.what();
  }
}

// The folder of this program, where a builder looks for packs of its own accord.
fs::path program_folder() { return fs::canonical("/proc/self/exe").parent_path(); }

class PackBuild : public PackTest {
 protected:
  // A pack that holds gemm_x for `target`, saying `content`.
  void write(const fs::path& file, const std::string& content) {
    write_file(temp_ / "x", content);
    const PackInput input{.entry = {.name = "gemm_x",
                                    .source_key = source_key(source_, target_),
                                    .target = "generic"},
                          .binary = temp_ / "x"};
    write_pack(file, std::span(&input, 1));
  }
  std::string build(const BuildOptions& options) const {
    return read_file(Builder(options).build(source_, target_).binary);
  }
  BuildOptions options() const { return make_options(temp_ / "cache", compiler_); }
  FakeCompiler compiler_{temp_.path()};
  Source source_ = make_source("gemm_x");
  Target target_ = make_target();
};

TEST_F(PackBuild, ComesBeforeCacheAndCompiler) {
  const std::string compiled = build(options());
  write(temp_ / "option.pack", "from options");
  write(temp_ / "environment.pack", "from environment");
  BuildOptions named = options();
  named.packs = {(temp_ / "option.pack").string()};
  EXPECT_EQ(build(named), "from options");
  const ScopedVariable variable("TESSERA_PACK",
                                "/nowhere.pack::" + (temp_ / "environment.pack").string());
  EXPECT_EQ(build(options()), "from environment");
  EXPECT_EQ(build(named), "from options");
  source_.text += "int changed;";
  EXPECT_NE(build(named), "from options");
  EXPECT_EQ(compiler_.calls(), 2);
  EXPECT_NE(compiled, "from options");
}

TEST_F(PackBuild, SaysOnceThatAnotherVersionsKernelsServeNobody) {
  for (const std::string& version : {std::string(kVersion), std::string("0.0.9")}) {
    write(temp_ / "x.pack", "packed");
    const Pack whole(temp_ / "x.pack");
    const PackInput input{.entry = whole.entries()[0], .binary = temp_ / "x"};
    write_pack(temp_ / "x.pack", std::span(&input, 1), {.version = version, .compilers = {}});
    BuildOptions named = options();
    named.packs = {(temp_ / "x.pack").string()};
    Source changed = source_;
    changed.text += "int changed;";
    Builder builder(named);
    for (int i = 0; i < 2; ++i) builder.build(changed, target_);
    builder.build(source_, target_);
  }
  ASSERT_EQ(log_.size(), 1U);
  EXPECT_TRUE(log_[0].starts_with("the pack " + (temp_ / "x.pack").string() +
                                  " holds gemm_x of another source, with the key "))
      << log_[0];
  EXPECT_TRUE(log_[0].ends_with(": Tessera 0.0.9 made it, this is Tessera " +
                                std::string(kVersion) + "; make it again with 'tessera pack'"))
      << log_[0];
}

TEST_F(PackBuild, CountsAsCached) {
  write(file_, "packed");
  BuildOptions named = options();
  named.packs = {file_.string()};
  const std::vector<BuildResult> results =
      Builder(named).build_all(std::span(&source_, 1), target_, 1);
  EXPECT_TRUE(results[0].was_cached);
  EXPECT_EQ(results[0].error, "");
}

TEST_F(PackBuild, FindsThePacksBesideTheProgram) {
  const fs::path folder = program_folder() / "tessera";
  const bool was_there = fs::exists(folder);
  fs::create_directory(folder);
  const fs::path shipped = folder / fmt::format("test-{}.pack", ::getpid());
  write(shipped, "shipped");
  BuildOptions with = options();
  with.use_shipped_packs = true;
  EXPECT_EQ(build(with), "shipped");
  EXPECT_EQ(build(options()), library_of("a binary made of:\nint x;\n"));
  fs::remove(shipped);
  if (!was_there) fs::remove(folder);
}

TEST_F(PackBuild, WarnsOfADamagedPackUnlessItWasNamed) {
  write_file(file_, "not a pack");
  const std::string complaint = "the pack " + file_.string() +
                                " is truncated: a header has 64 bytes, the file has 10; make it "
                                "again with 'tessera pack'";
  {
    const ScopedVariable variable("TESSERA_PACK", file_.string());
    Builder builder(options());
    builder.build(source_, target_);
    builder.build(source_, target_);
    EXPECT_EQ(log_, std::vector<std::string>{complaint});
  }
  BuildOptions named = options();
  named.packs = {file_.string()};
  Builder builder(named);
  for (int i = 0; i < 2; ++i) {
    expect_error(ErrorCode::parse_error, complaint, [&] { builder.build(source_, target_); });
  }
}

}  // namespace
}  // namespace tessera::jit
