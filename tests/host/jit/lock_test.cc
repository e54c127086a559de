#include "tessera/jit/lock_internal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "host/jit/fixtures.h"
#include "tessera/base/error.h"

namespace tessera::jit {
namespace {

constexpr double kPatience = 60;

// Whether a stranger would get the lock now.
bool is_free(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return true;
  const bool free = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  ::close(fd);
  return free;
}

TEST(FileLock, KeepsOthersOutUntilItEnds) {
  const TempFolder temp;
  const fs::path file = temp / "lock";
  {
    const FileLock lock(file, kPatience);
    EXPECT_FALSE(is_free(file));
  }
  EXPECT_FALSE(fs::exists(file));
}

// The first holder removes the file that the second one has open: what the second then locks must
// be the file that a third one opens.
TEST(FileLock, PassesToOneWhoWaited) {
  const TempFolder temp;
  const fs::path file = temp / "lock";
  std::optional<FileLock> first;
  first.emplace(file, kPatience);
  std::atomic<bool> has_it = false;
  std::atomic<bool> may_go = false;
  std::jthread second([&] {
    const FileLock lock(file, kPatience);
    has_it = true;
    while (!may_go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(has_it);
  first.reset();
  while (!has_it) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_FALSE(is_free(file));
  may_go = true;
}

TEST(FileLock, GoesOnWithoutTheLockWhenPatienceEnds) {
  const TempFolder temp;
  const FileLock holder(temp / "lock", kPatience);
  const auto start = std::chrono::steady_clock::now();
  { const FileLock impatient(temp / "lock", 0.1); }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_FALSE(is_free(temp / "lock")) << "the impatient one took the holder's lock away";
}

// A user's own file lies where a lock would: it is neither locked nor removed.
TEST(FileLock, LeavesWhatIsNoLockAlone) {
  const TempFolder temp;
  write_file(temp / "file", "a user's");
  write_file(temp / "target", "");
  fs::create_symlink(temp / "target", temp / "link");
  ASSERT_EQ(::mkfifo((temp / "pipe").c_str(), 0600), 0);
  for (const char* name : {"file", "link", "pipe"}) {
    { const FileLock lock(temp / name, kPatience); }
    EXPECT_TRUE(fs::exists(fs::symlink_status(temp / name))) << name;
  }
  EXPECT_EQ(read_file(temp / "file"), "a user's");
  EXPECT_TRUE(fs::exists(temp / "target"));
}

TEST(BuildFolder, GoesAwayUnlessRenamed) {
  const TempFolder temp;
  {
    const BuildFolder folder(temp.path(), "build-");
    write_file(folder.path() / "file", "x");
  }
  EXPECT_EQ(names_in(temp.path()), std::vector<std::string>());
  {
    const BuildFolder folder(temp.path(), "build-");
    fs::rename(folder.path(), temp / "kept");
  }
  EXPECT_EQ(names_in(temp.path()), std::vector<std::string>{"kept"});
}

// In which order a folder lists its files differs between disks: of these folders, some would lose
// the mark first.
TEST(BuildFolder, LosesItsMarkLast) {
  const fs::path parent = make_unique_folder("/tmp", "tessera-test-");
  for (int i = 0; i < 16; ++i) {
    const int events = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    ASSERT_GE(events, 0);
    {
      const BuildFolder folder(parent, "build-");
      write_file_unflushed(folder.path() / "file", "x");
      ASSERT_GE(::inotify_add_watch(events, folder.path().parent_path().c_str(), IN_DELETE), 0);
    }
    std::vector<std::string> removed;
    alignas(inotify_event) std::array<char, 4096> buffer;
    const ssize_t bytes = ::read(events, buffer.data(), buffer.size());
    for (ssize_t at = 0; at < bytes;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
      if (event->len > 0) removed.emplace_back(event->name);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
    ::close(events);
    ASSERT_EQ(removed.size(), 2U);
    EXPECT_EQ(removed.back(), ".tessera-build");
  }
  EXPECT_TRUE(fs::is_empty(parent));
  remove_tree(parent);
}

TEST(BuildFolder, LeavesNothingBehindWithoutDescriptors) {
  if (kSanitizerNeedsDescriptors) GTEST_SKIP() << "the sanitizer needs descriptors itself";
  const TempFolder temp;
  std::string message;
  try {
    const ResourceLimit none(RLIMIT_NOFILE, 0);
    const BuildFolder folder(temp.path(), "build-");
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_TRUE(message.starts_with("cannot open " + (temp / "build-").string())) << message;
  EXPECT_TRUE(message.ends_with(", which was just made: Too many open files")) << message;
  EXPECT_TRUE(fs::is_empty(temp.path()));
}

TEST(BuildFolder, IsRemovedOnlyWhenItsOwnerIsDead) {
  const TempFolder temp;
  const BuildFolder alive(temp.path(), "build-");
  {
    const BuildFolder dead(temp.path(), "build-");
    fs::copy(dead.path().parent_path(), temp / "build-dead", fs::copy_options::recursive);
  }
  fs::create_directory(temp / "build-killed-before-its-mark");
  fs::create_directory(temp / "build-of-a-user");
  write_file(temp / "build-of-a-user" / "thesis", "x");
  fs::create_directory(temp / "other");
  write_file(temp / "build-file", "x");
  remove_dead_build_folders(temp.path(), "build-");
  std::vector<std::string> expected = {alive.path().parent_path().filename().string(), "build-file",
                                       "build-of-a-user", "other"};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(names_in(temp.path()), expected);
}

}  // namespace
}  // namespace tessera::jit
