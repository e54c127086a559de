#include <sys/stat.h>

#include "host/jit/fixtures.h"
#include "host/spec/expect_error.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/jit/cache.h"
#include "tessera/jit/memory_file_internal.h"

namespace tessera::jit {
namespace {

class CacheFolder : public testing::Test {
 protected:
  CacheFolder() {
    set_log_sink([this](LogLevel, std::string_view line) { log_.emplace_back(line); });
  }
  ~CacheFolder() override { set_log_sink({}); }
  TempFolder temp_;
  std::vector<std::string> log_;
};

// Whatever the trouble with the disk, a build gives a loadable file, and says once where it is.
void expect_memory(Cache& cache, std::vector<std::string>& log, const std::string& warning) {
  const Artifact a = cache.insert("gemm_a", kKeyA, produces("binary a"));
  const Artifact b = cache.insert("gemm_b", kKeyB, produces("binary b"));
  EXPECT_NE(a.keep, nullptr);
  EXPECT_EQ(text_of(a.binary), "binary a");
  EXPECT_EQ(text_of(b.binary), "binary b");
  const std::optional<Artifact> found = cache.find("gemm_a", kKeyA);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->binary, a.binary);
  EXPECT_EQ(log, std::vector<std::string>{warning});
  EXPECT_EQ(cache.list().size(), 2U);
  EXPECT_EQ(cache.size_bytes(), 16 + 2 * kHeaderBytes);
  EXPECT_EQ(cache.verify().good, 2U);
  EXPECT_EQ(cache.clear("gemm_b").removed, 1U);
  EXPECT_FALSE(cache.find("gemm_b", kKeyB));
}

std::string warning_for(const fs::path& folder, const std::string& why) {
  return "the cache folder " + folder.string() + " cannot be written: " + why +
         "; kernels are kept in memory until the process ends";
}

TEST_F(CacheFolder, ComesFromOptionsThenEnvironment) {
  const ScopedVariable own("TESSERA_CACHE_DIR", (temp_ / "own").string());
  const ScopedVariable xdg("XDG_CACHE_HOME", (temp_ / "xdg").string());
  const ScopedVariable home("HOME", (temp_ / "home").string());
  EXPECT_EQ(Cache({.folder = temp_ / "option"}).folder(), temp_ / "option");
  EXPECT_EQ(Cache({}).folder(), temp_ / "own");
  {
    const ScopedVariable none("TESSERA_CACHE_DIR", std::nullopt);
    EXPECT_EQ(Cache({}).folder(), temp_ / "xdg" / "tessera");
    const ScopedVariable relative("XDG_CACHE_HOME", "relative");
    EXPECT_EQ(Cache({}).folder(), temp_ / "home" / ".cache" / "tessera");
  }
  for (const char* name : {"option", "own", "xdg/tessera", "home/.cache/tessera"}) {
    EXPECT_EQ(fs::status(temp_ / name).permissions(), fs::perms::owner_all) << name;
  }
}

TEST_F(CacheFolder, IsMemoryWithoutHome) {
  const ScopedVariable own("TESSERA_CACHE_DIR", std::nullopt);
  const ScopedVariable xdg("XDG_CACHE_HOME", std::nullopt);
  const ScopedVariable home("HOME", std::nullopt);
  Cache cache({});
  EXPECT_TRUE(cache.is_memory_only());
  EXPECT_EQ(cache.folder(), "");
  expect_memory(cache, log_,
                "no folder is named for the kernel cache by TESSERA_CACHE_DIR, XDG_CACHE_HOME or "
                "HOME; kernels are kept in memory until the process ends");
}

TEST_F(CacheFolder, IsMemoryWhereNoneCanBeMade) {
  write_file(temp_ / "file", "x");
  const std::vector<std::pair<fs::path, std::string>> cases = {
      {"/proc/tessera-folder", "No such file or directory"},
      {temp_ / "file", "Not a directory"},
      {temp_ / "file/below", "Not a directory"},
  };
  for (const auto& [folder, why] : cases) {
    SCOPED_TRACE(folder);
    log_.clear();
    Cache cache({.folder = folder});
    EXPECT_TRUE(cache.is_memory_only());
    expect_memory(cache, log_, warning_for(folder, why));
  }
}

TEST_F(CacheFolder, IsMemoryWhenTheDiskFailsLater) {
  Cache cache({.folder = temp_ / "cache"});
  write_file(temp_ / "cache" / "tmp", "in the way");
  EXPECT_FALSE(cache.is_memory_only());
  expect_memory(
      cache, log_,
      warning_for(temp_ / "cache", "cannot create a folder in " + (temp_ / "cache/tmp").string() +
                                       ": Not a directory"));
}

TEST_F(CacheFolder, IsMemoryOnAFullDisk) {
  const SmallDisk disk(temp_ / "disk", "64k");
  if (!disk.is_mounted()) GTEST_SKIP() << "this user may not mount a small disk";
  std::error_code ignored;
  Cache cache({.folder = temp_ / "disk" / "cache"});
  EXPECT_FALSE(cache.is_memory_only());
  const std::string large(200000, 'x');
  const Artifact a = cache.insert("gemm_a", kKeyA, produces(large));
  EXPECT_EQ(text_of(a.binary), large);
  EXPECT_TRUE(cache.find("gemm_a", kKeyA));
  ASSERT_EQ(log_.size(), 1U);
  EXPECT_NE(log_[0].find("No space left on device"), std::string::npos) << log_[0];
  EXPECT_EQ(names_in(temp_ / "disk/cache/tmp"), std::vector<std::string>());
  // What fits is stored.
  const Artifact b = cache.insert("gemm_b", kKeyB, produces("small"));
  EXPECT_EQ(b.keep, nullptr);
}

TEST_F(CacheFolder, RetriesInMemoryWhenTheCompilerMeetsTheFullDisk) {
  const SmallDisk disk(temp_ / "disk", "64k");
  if (!disk.is_mounted()) GTEST_SKIP() << "this user may not mount a small disk";
  Cache cache({.folder = temp_ / "disk" / "cache"});
  const Artifact a = cache.insert("gemm_a", kKeyA, [&](const fs::path& build) {
    if (build.string().starts_with((temp_ / "disk").string())) {
      throw Error(ErrorCode::compile_failed, "the linker says: no space left");
    }
    produces("binary")(build);
  });
  EXPECT_EQ(text_of(a.binary), "binary");
}

TEST_F(CacheFolder, LoadsFromMemoryWhereTheDiskForbidsExecution) {
  const SmallDisk disk(temp_ / "disk", "1m");
  if (!disk.is_mounted()) GTEST_SKIP() << "this user may not mount a small disk";
  ASSERT_TRUE(disk.forbid_execution());
  Cache cache({.folder = temp_ / "disk" / "cache"});
  const Artifact made = cache.insert("gemm_a", kKeyA, produces("binary"));
  const std::optional<Artifact> found = cache.find("gemm_a", kKeyA);
  ASSERT_TRUE(found);
  for (const Artifact& artifact : {made, *found}) {
    EXPECT_TRUE(artifact.binary.string().starts_with("/proc/self/fd/")) << artifact.binary;
    EXPECT_NE(artifact.keep, nullptr);
    EXPECT_EQ(text_of(artifact.binary), "binary");
  }
  EXPECT_FALSE(cache.is_memory_only());
  EXPECT_EQ(cache.list().size(), 1U);
  EXPECT_TRUE(log_.empty());
}

// A kernel in memory holds a descriptor, of which a process may have a thousand.
TEST_F(CacheFolder, KernelsInMemoryLeaveDescriptorsToOthers) {
  const ScopedVariable temporary("TMPDIR", temp_.path().string());
  constexpr rlim_t kLimit = 200;
  const ResourceLimit few(RLIMIT_NOFILE, kLimit);
  std::vector<Artifact> artifacts;
  for (rlim_t i = 0; i < kLimit; ++i) {
    const std::string text = std::to_string(i);
    artifacts.push_back(memory_artifact("gemm_" + text, kKeyA, text));
    EXPECT_EQ(read_file(artifacts.back().binary), text);
  }
  EXPECT_TRUE(artifacts.front().binary.string().starts_with("/proc/self/fd/"));
  EXPECT_TRUE(artifacts.back().binary.string().starts_with(temp_.path().string()));
  artifacts.clear();
  EXPECT_TRUE(fs::is_empty(temp_.path()));
}

// As folders of a container's image cannot: they must be copied and removed.
TEST_F(CacheFolder, RemovesAndSetsAsideWhatCannotBeRenamed) {
  const fs::path elsewhere = make_unique_folder("/tmp", "tessera-elsewhere-");
  const auto disk_of = [](const fs::path& folder) {
    struct stat status {};
    return ::stat(folder.c_str(), &status) == 0 ? status.st_dev : 0;
  };
  const bool is_another_disk = disk_of(elsewhere) != disk_of(temp_.path());
  const fs::path folder = temp_ / "cache";
  Cache cache({.folder = folder});
  const fs::path a = cache.insert("gemm_a", kKeyA, produces("binary a")).binary;
  const fs::path b = cache.insert("gemm_b", kKeyB, produces("binary b")).binary;
  for (const char* name : {"tmp", "damaged"}) {
    fs::remove_all(folder / name);
    fs::create_directory(elsewhere / name);
    fs::create_directory_symlink(elsewhere / name, folder / name);
  }
  write_file(a, "damage");
  EXPECT_FALSE(cache.find("gemm_a", kKeyA));
  EXPECT_FALSE(fs::exists(a.parent_path()));
  EXPECT_EQ(read_file(folder / "damaged" / a.parent_path().filename() / "kernel.so"), "damage");
  EXPECT_EQ(cache.clear("gemm_b").removed, 1U);
  EXPECT_FALSE(fs::exists(b.parent_path()));
  EXPECT_EQ(names_in(elsewhere / "tmp"), std::vector<std::string>());
  remove_tree(elsewhere);
  if (!is_another_disk) GTEST_SKIP() << "/tmp is on the disk of /dev/shm";
}

TEST_F(CacheFolder, IsReadButNotWrittenOnAReadOnlyDisk) {
  const SmallDisk disk(temp_ / "disk", "1m");
  if (!disk.is_mounted()) GTEST_SKIP() << "this user may not mount a small disk";
  const fs::path folder = temp_ / "disk" / "cache";
  Cache({.folder = folder}).insert("gemm_old", kKeyA, produces("old"));
  ASSERT_TRUE(disk.make_read_only());
  Cache cache({.folder = folder});
  EXPECT_TRUE(cache.is_memory_only());
  ASSERT_TRUE(cache.find("gemm_old", kKeyA));
  const Artifact fresh = cache.insert("gemm_new", kKeyA, produces("new"));
  EXPECT_EQ(text_of(fresh.binary), "new");
  EXPECT_EQ(log_, std::vector<std::string>{warning_for(folder, "Read-only file system")});
}

TEST_F(CacheFolder, SaysWhatClearCouldNotRemove) {
  const SmallDisk disk(temp_ / "disk", "1m");
  if (!disk.is_mounted()) GTEST_SKIP() << "this user may not mount a small disk";
  const fs::path folder = temp_ / "disk" / "cache";
  Cache({.folder = folder}).insert("gemm_a", kKeyA, produces("a"));
  Cache({.folder = folder}).insert("gemm_b", kKeyB, produces("b"));
  ASSERT_TRUE(disk.make_read_only());
  const ClearReport report = Cache({.folder = folder}).clear("*_b");
  EXPECT_EQ(report.removed, 0U);
  EXPECT_EQ(report.kept,
            std::vector<std::string>{fmt::format("cannot remove {}: Read-only file system",
                                                 (folder / "gemm_b-").string() + kKeyB)});
  EXPECT_EQ(Cache({.folder = folder}).list().size(), 2U);
}

// An entry that does not load and cannot be moved away is built anew, in memory.
TEST_F(CacheFolder, PassesOverAnUnloadableEntryOfAReadOnlyDisk) {
  const SmallDisk disk(temp_ / "disk", "1m");
  if (!disk.is_mounted()) GTEST_SKIP() << "this user may not mount a small disk";
  const fs::path folder = temp_ / "disk" / "cache";
  Cache({.folder = folder}).insert("gemm_a", kKeyA, produces("old"));
  ASSERT_TRUE(disk.make_read_only());
  Cache cache({.folder = folder});
  EXPECT_TRUE(cache.set_aside(*cache.find("gemm_a", kKeyA), "cannot load it"));
  EXPECT_FALSE(cache.find("gemm_a", kKeyA));
  EXPECT_EQ(text_of(cache.insert("gemm_a", kKeyA, produces("new")).binary), "new");
  EXPECT_EQ(text_of(cache.find("gemm_a", kKeyA)->binary), "new");
}

TEST_F(CacheFolder, NamesBothFoldersWhenNoDiskWorks) {
  const ScopedVariable temporary("TMPDIR", "/proc/nowhere");
  Cache cache({.folder = "/proc/tessera-folder"});
  expect_error(
      ErrorCode::io_error,
      "gemm_a: cannot be built: the cache folder /proc/tessera-folder fails (No such file or "
      "directory), and so does the temporary folder /proc/nowhere (cannot create a folder "
      "in /proc/nowhere: No such file or directory); make room, or name other folders "
      "with TESSERA_CACHE_DIR and TMPDIR",
      [&] { cache.insert("gemm_a", kKeyA, produces("binary")); });
}

// The umask of this process, as long as this lives.
struct Umask {
  explicit Umask(mode_t mask) : before(::umask(mask)) {}
  ~Umask() { ::umask(before); }
  mode_t before;
};

TEST_F(CacheFolder, IsPrivateWhateverTheUmaskIs) {
  const Umask none(0);
  const fs::path folder = temp_ / "above" / "cache";
  Cache cache({.folder = folder});
  const fs::path binary = cache.insert("gemm_a", kKeyA, produces("a")).binary;
  write_file(binary, "damage");
  EXPECT_FALSE(cache.find("gemm_a", kKeyA));
  for (const char* name : {".", "..", "tmp", "locks", "damaged"}) {
    EXPECT_EQ(fs::status(folder / name).permissions(), fs::perms::owner_all) << name;
  }
}

// Earlier versions made the folders inside with the umask's rights.
TEST_F(CacheFolder, NarrowsTheFoldersInside) {
  const fs::path folder = temp_ / "cache";
  Cache({.folder = folder}).insert("gemm_a", kKeyA, produces("a"));
  for (const char* name : {"tmp", "locks", "toolchains", "damaged", "failed"}) {
    fs::create_directory(folder / name);
    ASSERT_EQ(::chmod((folder / name).c_str(), 0775), 0);
  }
  EXPECT_TRUE(Cache({.folder = folder}).find("gemm_a", kKeyA));
  for (const char* name : {"tmp", "locks", "toolchains", "damaged", "failed"}) {
    EXPECT_EQ(fs::status(folder / name).permissions(), fs::perms::owner_all) << name;
  }
  if (::chown((folder / "toolchains").c_str(), 12345, 12345) != 0)
    GTEST_SKIP() << "only root can give a folder away";
  expect_error(ErrorCode::cache_refused,
               fmt::format("the cache folder {} is refused: its folder 'toolchains' belongs to "
                           "user 12345, not to user {}; remove that folder",
                           folder.string(), ::geteuid()),
               [&] { Cache({.folder = folder}); });
}

TEST_F(CacheFolder, SetsAsideAnEntryThatOthersMayHaveWritten) {
  const fs::path folder = temp_ / "cache";
  Cache cache({.folder = folder});
  const fs::path entry = cache.insert("gemm_a", kKeyA, produces("a")).binary.parent_path();
  ASSERT_EQ(::chmod(entry.c_str(), 0775), 0);
  EXPECT_FALSE(cache.find("gemm_a", kKeyA));
  ASSERT_EQ(log_.size(), 1U);
  EXPECT_NE(log_[0].find(" is damaged: its folder has mode 0775, with which others may write to "
                         "it; it was moved to "),
            std::string::npos)
      << log_[0];
}

TEST_F(CacheFolder, IsRefusedWhenOthersMayWrite) {
  const fs::path folder = temp_ / "cache";
  fs::create_directory(folder);
  for (const auto& [mode, text] : std::vector<std::pair<mode_t, std::string>>{
           {0770, "0770"}, {0707, "0707"}, {0777, "0777"}, {01777, "1777"}, {0720, "0720"}}) {
    ASSERT_EQ(::chmod(folder.c_str(), mode), 0);
    expect_error(ErrorCode::cache_refused,
                 "the cache folder " + folder.string() +
                     " is refused: only its owner may write to it, got mode " + text +
                     "; remove it, or run 'chmod go-w " + folder.string() +
                     "' if you trust everybody who could write to it",
                 [&] { Cache({.folder = folder}); });
  }
  ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
  EXPECT_NO_THROW(Cache({.folder = folder}));
}

TEST_F(CacheFolder, IsRefusedWhenItBelongsToAnother) {
  const fs::path folder = temp_ / "cache";
  fs::create_directory(folder);
  if (::chown(folder.c_str(), 12345, 12345) != 0)
    GTEST_SKIP() << "only root can give a folder away";
  expect_error(ErrorCode::cache_refused,
               fmt::format("the cache folder {} is refused: it must belong to user {}, got user "
                           "12345; remove it, or name another folder with TESSERA_CACHE_DIR",
                           folder.string(), ::geteuid()),
               [&] { Cache({.folder = folder}); });
}

TEST_F(CacheFolder, FollowsNoChangeOfTheWorkingFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(temp_.path());
  Cache cache({.folder = "relative"});
  fs::current_path(before);
  EXPECT_EQ(cache.folder(), temp_ / "relative");
  EXPECT_EQ(cache.insert("gemm_a", kKeyA, produces("binary")).keep, nullptr);
}

}  // namespace
}  // namespace tessera::jit
