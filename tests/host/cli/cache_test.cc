// The kernel cache as a user weighs and empties it.
#include <sys/mount.h>
#include <sys/stat.h>

#include "host/cli/cli.h"

namespace tessera::cli_test {
namespace {

const std::string kEntry = "gemm_a-000102030405060708090a0b0c0d0e0f";

// A disk in memory in the test's folder, where the tests may mount one.
class CliCache : public CliTest {
 protected:
  ~CliCache() override {
    if (mounted_) ::umount2(disk().c_str(), MNT_DETACH);
  }
  fs::path disk() const { return folder() / "disk"; }
  bool mount(unsigned long flags) {
    fs::create_directory(disk());
    const bool done = ::mount("tmpfs", disk().c_str(), "tmpfs", flags, "mode=0700,size=1m") == 0;
    mounted_ |= done;
    return done;
  }

 private:
  bool mounted_ = false;
};

TEST_F(CliCache, ClearCountsWhatItRemoved) {
  if (!mount(0)) GTEST_SKIP() << "this user may not mount a disk";
  fs::create_directories(disk() / "cache" / kEntry);
  ::chmod((disk() / "cache").c_str(), 0700);
  ASSERT_TRUE(mount(MS_REMOUNT | MS_RDONLY));
  const std::string why =
      "cannot remove " + (disk() / "cache" / kEntry).string() + ": Read-only file system";
  const CliResult text = run("cache clear --folder disk/cache");
  EXPECT_EQ(text.out, "0 entries removed from " + (disk() / "cache").string() + "\n");
  EXPECT_EQ(text.err,
            "tessera: cache: 1 entries could not be removed, the first being: " + why + "\n");
  EXPECT_EQ(text.status, 1);
  const CliResult json = run("cache clear --folder disk/cache --json");
  EXPECT_EQ(Json::parse(json.out), (Json{{"removed", 0}, {"kept", {why}}}));
  EXPECT_EQ(json.status, 1);
  ASSERT_TRUE(mount(MS_REMOUNT));
  const CliResult writable = run("cache clear --folder disk/cache");
  EXPECT_EQ(writable.out, "1 entries removed from " + (disk() / "cache").string() + "\n");
  EXPECT_EQ(writable.status, 0);
}

}  // namespace
}  // namespace tessera::cli_test
