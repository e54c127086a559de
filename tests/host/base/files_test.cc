#include "tessera/base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <random>

#include "host/base/no_threads.h"
#include "host/spec/expect_error.h"
#include "resource_limit.h"

namespace tessera {
namespace {

class Files : public testing::Test {
 protected:
  Files() : folder_(make_unique_folder("/tmp", "tessera-files-")) {}
  ~Files() override { remove_tree(folder_); }
  fs::path folder_;
};

std::size_t count_in(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST_F(Files, ReadBackWhatWasWritten) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (const std::size_t size : {0, 1, 4095, 4096, 4097, 1 << 20}) {
    std::string content(size, '\0');
    for (char& c : content) c = static_cast<char>(random());
    write_file(folder_ / "a", content);
    EXPECT_EQ(read_file(folder_ / "a"), content);
    write_file_atomic(folder_ / "a", content + "x");
    EXPECT_EQ(read_file(folder_ / "a"), content + "x");
    write_file_unflushed(folder_ / "a", content);
    EXPECT_EQ(try_read_file(folder_ / "a"), content);
  }
}

TEST_F(Files, ReadsFilesThatDoNotKnowTheirSize) {
  EXPECT_NE(read_file("/proc/self/status").find("Name:"), std::string::npos);
}

TEST_F(Files, ADeviceWithoutEndIsRefused) {
  expect_error(ErrorCode::io_error,
               "cannot read /dev/zero: it is no regular file and does not end within 268435456 "
               "bytes; copy it to a file first",
               [] { read_file("/dev/zero"); });
  EXPECT_EQ(try_read_file("/dev/zero"), std::nullopt);
  EXPECT_EQ(read_file("/dev/null"), "");
}

TEST_F(Files, SayWhatFailed) {
  const std::string missing = (folder_ / "missing").string();
  const std::string below = (folder_ / "missing" / "file").string();
  const ErrorCode io = ErrorCode::io_error;
  expect_error(io, "cannot read " + missing + ": No such file or directory",
               [&] { read_file(missing); });
  expect_error(io, "cannot read " + folder_.string() + ": Is a directory",
               [&] { read_file(folder_); });
  expect_error(io, "cannot write " + below + ": No such file or directory",
               [&] { write_file(below, "x"); });
  expect_error(io, "cannot write " + below + ": No such file or directory",
               [&] { write_file_unflushed(below, "x"); });
  expect_error(io, "cannot write " + below + ": No such file or directory",
               [&] { write_file_atomic(below, "x"); });
  expect_error(io, "cannot write /dev/full: No space left on device",
               [&] { write_file("/dev/full", "x"); });
  expect_error(io, "cannot flush " + missing + ": No such file or directory", [&] {
    fsync_files({folder_, missing});
  });
  expect_error(io, "cannot flush folder " + missing + ": No such file or directory",
               [&] { fsync_folder(missing); });
  expect_error(io, "cannot create a folder in " + missing + ": No such file or directory",
               [&] { make_unique_folder(missing, "x"); });
  EXPECT_EQ(try_read_file(missing), std::nullopt);
}

TEST_F(Files, AtomicWriteLeavesNothingBehindWhenItFails) {
  fs::create_directory(folder_ / "a");
  EXPECT_THROW(write_file_atomic(folder_ / "a", "x"), Error);
  EXPECT_EQ(count_in(folder_), 1U);
  EXPECT_EQ(count_in(folder_ / "a"), 0U);
}

TEST_F(Files, AtomicWriteKeepsLinksAndModes) {
  write_file(folder_ / "real", "old");
  fs::permissions(folder_ / "real", fs::perms::owner_all);
  fs::create_symlink("real", folder_ / "link");
  write_file_atomic(folder_ / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(read_file(folder_ / "real"), "new");
  EXPECT_EQ(fs::status(folder_ / "real").permissions(), fs::perms::owner_all);
  EXPECT_EQ(count_in(folder_), 2U);
}

TEST_F(Files, AtomicWriteMakesTheTargetOfADanglingLink) {
  fs::create_directory(folder_ / "below");
  fs::create_symlink("below/second", folder_ / "link");
  fs::create_symlink(folder_ / "real", folder_ / "below" / "second");
  write_file_atomic(folder_ / "link", "new");
  EXPECT_EQ(fs::read_symlink(folder_ / "link"), "below/second");
  EXPECT_EQ(fs::read_symlink(folder_ / "below" / "second"), folder_ / "real");
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(folder_ / "real")));
  EXPECT_EQ(read_file(folder_ / "real"), "new");
  EXPECT_EQ(count_in(folder_), 3U);
}

TEST_F(Files, AtomicWriteRefusesLinksInACircle) {
  fs::create_symlink("b", folder_ / "a");
  fs::create_symlink("a", folder_ / "b");
  expect_error(ErrorCode::io_error,
               "cannot write " + (folder_ / "a").string() + ": Too many levels of symbolic links",
               [&] { write_file_atomic(folder_ / "a", "x"); });
  EXPECT_EQ(count_in(folder_), 2U);
}

// In a folder that everybody writes to, the system follows no link of another user's.
TEST_F(Files, AtomicWriteRefusesLinksThatTheSystemRefuses) {
  const bool guarded = try_read_file("/proc/sys/fs/protected_symlinks").value_or("0")[0] == '1';
  constexpr uid_t kSomebody = 12345;
  const fs::path link = folder_ / "shared" / "link";
  fs::create_directory(folder_ / "shared");
  fs::create_symlink(folder_ / "victim", link);
  if (!guarded || ::chmod(link.parent_path().c_str(), 01777) != 0 ||
      ::lchown(link.c_str(), kSomebody, kSomebody) != 0) {
    GTEST_SKIP() << "this system guards no links, or this user cannot make another's";
  }
  for (const bool exists : {false, true}) {
    if (exists) write_file(folder_ / "victim", "kept");
    expect_error(ErrorCode::io_error, "cannot write " + link.string() + ": Permission denied",
                 [&] { write_file_atomic(link, "x"); });
    EXPECT_EQ(try_read_file(folder_ / "victim").value_or("none"), exists ? "kept" : "none");
  }
}

// Every name that a temporary file had before could be told in advance.
TEST_F(Files, AtomicWriteDoesNotFollowLinksWithGuessedNames) {
  write_file(folder_ / "victim", "kept");
  for (int i = 0; i < 1000; ++i) {
    fs::create_symlink("victim", folder_ / fmt::format(".out.{}.{}.tmp", ::getpid(), i));
  }
  write_file_atomic(folder_ / "out", "new");
  EXPECT_EQ(read_file(folder_ / "victim"), "kept");
  EXPECT_EQ(read_file(folder_ / "out"), "new");
  EXPECT_EQ(count_in(folder_), 1002U);
}

// The name of a temporary file, as a reader of the folder sees it during a long write; empty when
// the writer fails.
std::string name_during_write(const fs::path& folder) {
  const pid_t writer = ::fork();
  if (writer == 0) {
    try {
      const std::string content(std::size_t{1} << 24, 'x');
      for (;;) write_file_atomic(folder / "out", content);
    } catch (const Error&) {
      ::_exit(1);
    }
  }
  std::string name;
  while (name.empty() && ::waitpid(writer, nullptr, WNOHANG) == 0) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const std::string found = entry.path().filename().string();
      if (found != "out") name = found;
    }
  }
  ::kill(writer, SIGKILL);
  ::waitpid(writer, nullptr, 0);
  return name;
}

TEST_F(Files, AtomicWriteDrawsItsTemporaryNames) {
  std::vector<std::string> names;
  for (const char* below : {"first", "second"}) {
    fs::create_directory(folder_ / below);
    names.push_back(name_during_write(folder_ / below));
    EXPECT_TRUE(names.back().starts_with(".tessera-")) << names.back();
    EXPECT_EQ(names.back().size(), std::string(".tessera-0123456789abcdef").size());
  }
  EXPECT_NE(names[0], names[1]);
}

TEST_F(Files, AtomicWriteTakesTheLongestNames) {
  const std::string longest(255, 'n');
  for (const char* content : {"new", "replaced"}) {
    write_file_atomic(folder_ / longest, content);
    EXPECT_EQ(read_file(folder_ / longest), content);
  }
  expect_error(ErrorCode::io_error,
               "cannot write " + (folder_ / (longest + "n")).string() + ": File name too long",
               [&] { write_file_atomic(folder_ / (longest + "n"), "x"); });
  EXPECT_EQ(count_in(folder_), 1U);
}

TEST_F(Files, AtomicWriteGivesNewFilesTheModeOfTheUmask) {
  for (const mode_t mask : {0022U, 0077U, 0000U, 0027U}) {
    const mode_t before = ::umask(mask);
    write_file_atomic(folder_ / "new", "x");
    ::umask(before);
    EXPECT_EQ(static_cast<mode_t>(fs::status(folder_ / "new").permissions()), 0666U & ~mask);
    fs::permissions(folder_ / "new", fs::perms::owner_all | fs::perms::others_write);
    write_file_atomic(folder_ / "new", "y");
    EXPECT_EQ(static_cast<mode_t>(fs::status(folder_ / "new").permissions()), 0702U);
    fs::remove(folder_ / "new");
  }
}

// As /dev/stdout is where a shell has sent it to a file that is removed since.
TEST_F(Files, AtomicWriteWritesIntoFilesWithoutAName) {
  const int fd = ::open((folder_ / "gone").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  fs::remove(folder_ / "gone");
  write_file_atomic(fmt::format("/proc/self/fd/{}", fd), "through");
  char buffer[16];
  const ssize_t got = ::pread(fd, buffer, sizeof buffer, 0);
  ::close(fd);
  ASSERT_GT(got, 0);
  EXPECT_EQ(std::string(buffer, static_cast<std::size_t>(got)), "through");
  EXPECT_EQ(count_in(folder_), 0U);
}

// The signal of a limit on file sizes is held back in the thread that writes, and ends nothing.
TEST_F(Files, AFileSizeLimitIsASentence) {
  const std::string content(2000, 'x');
  const std::string path = (folder_ / "f").string();
  {
    const ResourceLimit small(RLIMIT_FSIZE, 1000);
    for (const auto write : {write_file, write_file_unflushed, write_file_atomic}) {
      expect_error(ErrorCode::io_error, "cannot write " + path + ": File too large",
                   [&] { write(path, content); });
    }
  }
  sigset_t pending, blocked;
  sigpending(&pending);
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&pending, SIGXFSZ), 0);
  EXPECT_EQ(sigismember(&blocked, SIGXFSZ), 0);
  write_file_atomic(path, content);
  EXPECT_EQ(read_file(path), content);
}

TEST_F(Files, AreFlushedWithoutThreads) {
  std::vector<fs::path> files;
  for (int i = 0; i < 20; ++i) {
    files.push_back(folder_ / std::to_string(i));
    write_file_unflushed(files.back(), "x");
  }
  const NoThreads none;
  fsync_files(files);
  expect_error(ErrorCode::io_error,
               "cannot flush " + (folder_ / "missing").string() + ": No such file or directory",
               [&] {
                 fsync_files({folder_ / "1", folder_ / "missing", folder_ / "2"});
               });
}

TEST_F(Files, AtomicWriteDoesNotReplaceDevices) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::string got;
  {
    // The reader is opened without waiting, and reads once the writer is gone.
    const int fd = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
    write_file_atomic(pipe, "through");
    char buffer[16];
    got.assign(buffer, static_cast<std::size_t>(::read(fd, buffer, sizeof buffer)));
    ::close(fd);
  }
  EXPECT_EQ(got, "through");
  EXPECT_TRUE(fs::is_fifo(pipe));
}

TEST_F(Files, ReadRegularFileWaitsForNobodyAndFollowsNoLink) {
  std::string why;
  write_file(folder_ / "file", "content");
  EXPECT_EQ(read_regular_file(folder_ / "file", why), "content");
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  ASSERT_EQ(::mknod((folder_ / "socket").c_str(), S_IFSOCK | 0600, 0), 0);
  fs::create_symlink("file", folder_ / "link");
  for (const fs::path& path :
       {folder_ / "pipe", folder_ / "socket", folder_ / "link", folder_, fs::path("/dev/zero")}) {
    EXPECT_EQ(read_regular_file(path, why), std::nullopt);
    EXPECT_EQ(why, "is not a regular file") << path;
  }
  for (const fs::path& path : {folder_ / "none", folder_ / "file" / "below"}) {
    EXPECT_EQ(read_regular_file(path, why), std::nullopt);
    EXPECT_EQ(why, "is missing") << path;
  }
}

TEST_F(Files, UniqueFoldersArePrivateAndDistinct) {
  const fs::path a = make_unique_folder(folder_, "build-");
  const fs::path b = make_unique_folder(folder_, "build-");
  EXPECT_NE(a, b);
  EXPECT_TRUE(a.filename().string().starts_with("build-"));
  EXPECT_EQ(fs::status(a).permissions(), fs::perms::owner_all);
}

TEST_F(Files, RemoveTreeIgnoresWhatIsGone) {
  fs::create_directories(folder_ / "a" / "b");
  write_file(folder_ / "a" / "b" / "c", "x");
  remove_tree(folder_ / "a");
  EXPECT_FALSE(fs::exists(folder_ / "a"));
  remove_tree(folder_ / "a");
}

TEST_F(Files, EnvironmentIsEmptyWhenUnset) {
  ::setenv("TESSERA_FILES_TEST", "value", 1);
  EXPECT_EQ(environment("TESSERA_FILES_TEST"), "value");
  ::unsetenv("TESSERA_FILES_TEST");
  EXPECT_EQ(environment("TESSERA_FILES_TEST"), "");
}

}  // namespace
}  // namespace tessera
