#include "tessera/base/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <random>

#include "host/spec/expect_error.h"

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
