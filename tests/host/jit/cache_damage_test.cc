#include <sys/stat.h>

#include <random>

#include "host/jit/fixtures.h"
#include "tessera/base/hash.h"
#include "tessera/base/log.h"
#include "tessera/jit/cache.h"

namespace tessera::jit {
namespace {

class CacheDamage : public testing::Test {
 protected:
  CacheDamage() : cache_({.folder = temp_ / "cache"}) {
    set_log_sink([this](LogLevel, std::string_view line) { log_.emplace_back(line); });
    insert();
  }
  ~CacheDamage() override { set_log_sink({}); }

  void insert() { cache_.insert("gemm_a", kKeyA, produces("the right binary")); }
  fs::path entry() const { return cache_.folder() / (std::string("gemm_a-") + kKeyA); }

  // The entry reads as a miss, is kept for inspection, and the next build replaces it.
  void expect_miss() {
    EXPECT_FALSE(cache_.find("gemm_a", kKeyA));
    EXPECT_FALSE(fs::exists(entry()));
    EXPECT_TRUE(fs::exists(cache_.folder() / "damaged" / entry().filename()));
    insert();
    EXPECT_EQ(text_of(cache_.find("gemm_a", kKeyA)->binary), "the right binary");
  }

  TempFolder temp_;
  Cache cache_;
  std::vector<std::string> log_;
};

void flip_bit(const fs::path& file, std::size_t bit) {
  std::string content = read_file(file);
  content[bit / 8] = static_cast<char>(content[bit / 8] ^ 1 << bit % 8);
  write_file(file, content);
}

TEST_F(CacheDamage, EveryFlippedBitOfTheBinaryIsAMiss) {
  const std::size_t first = 8 * kHeaderBytes;
  for (std::size_t bit = first; bit < 8 * library_of("the right binary").size(); ++bit) {
    flip_bit(entry() / "kernel.so", bit);
    expect_miss();
  }
}

TEST_F(CacheDamage, EveryTruncationIsAMiss) {
  for (const char* file : {"kernel.so", "meta.json"}) {
    const std::string content = read_file(entry() / file);
    // The last byte of meta.json is a newline.
    for (std::size_t size = 0; size + 1 < content.size(); size += 1 + content.size() / 40) {
      SCOPED_TRACE(testing::Message() << file << " cut to " << size);
      fs::resize_file(entry() / file, size);
      expect_miss();
    }
    fs::remove(entry() / file);
    expect_miss();
  }
}

TEST_F(CacheDamage, NoFlippedBitOfMetaGoesUnseenByVerify) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::string meta = read_file(entry() / "meta.json");
  const auto without_blanks = [](std::string text) {
    std::erase_if(text, [](unsigned char c) { return c <= ' '; });
    return text;
  };
  for (int i = 0; i < 200; ++i) {
    const std::size_t bit = random() % (8 * meta.size());
    flip_bit(entry() / "meta.json", bit);
    // A blank that became another blank means the same.
    if (without_blanks(read_file(entry() / "meta.json")) == without_blanks(meta)) {
      write_file(entry() / "meta.json", meta);
      continue;
    }
    EXPECT_EQ(cache_.verify().damaged.size(), 1U) << "bit " << bit;
    insert();
  }
}

TEST_F(CacheDamage, AnEntryUnderAnothersNameIsAMiss) {
  cache_.insert("gemm_b", kKeyB, produces("another binary"));
  const fs::path other = cache_.folder() / (std::string("gemm_b-") + kKeyB);
  fs::rename(entry(), temp_ / "aside");
  fs::rename(other, entry());
  fs::rename(temp_ / "aside", other);
  EXPECT_FALSE(cache_.find("gemm_a", kKeyA));
  EXPECT_FALSE(cache_.find("gemm_b", kKeyB));
  ASSERT_EQ(log_.size(), 2U);
  EXPECT_EQ(log_[0], "the cache entry " + entry().string() +
                         " is damaged: meta.json is that of gemm_b-" + kKeyB +
                         "; it was moved to " +
                         (cache_.folder() / "damaged" / entry().filename()).string());
}

TEST_F(CacheDamage, SwappedBinariesAreMisses) {
  cache_.insert("gemm_b", kKeyB, produces("that is a binary"));  // of the same size
  const fs::path other = cache_.folder() / (std::string("gemm_b-") + kKeyB);
  const std::string binary = read_file(other / "kernel.so");
  ASSERT_EQ(binary.size(), read_file(entry() / "kernel.so").size());
  write_file(other / "kernel.so", read_file(entry() / "kernel.so"));
  write_file(entry() / "kernel.so", binary);
  EXPECT_FALSE(cache_.find("gemm_b", kKeyB));
  expect_miss();
}

TEST_F(CacheDamage, AFileInPlaceOfAnEntryIsAMiss) {
  remove_tree(entry());
  write_file(entry(), "not a folder");
  expect_miss();
}

// What this process cannot read, others can: the entry is a miss here, and stays.
TEST_F(CacheDamage, IsNotWhatAProcessWithoutDescriptorsCannotRead) {
  if (kSanitizerNeedsDescriptors) GTEST_SKIP() << "the sanitizer needs descriptors itself";
  {
    const ResourceLimit none(RLIMIT_NOFILE, 0);
    EXPECT_FALSE(cache_.find("gemm_a", kKeyA));
  }
  ASSERT_EQ(log_.size(), 1U);
  EXPECT_EQ(log_[0], "the cache entry of gemm_a is passed over: cannot read " +
                         (entry() / "meta.json").string() + ": Too many open files");
  EXPECT_TRUE(cache_.find("gemm_a", kKeyA));
  EXPECT_FALSE(fs::exists(cache_.folder() / "damaged"));
}

// An earlier version sealed half a library, and its checksum is right for that half.
TEST_F(CacheDamage, ASealedHalfOfALibraryIsAMiss) {
  const std::string half = read_file(entry() / "kernel.so").substr(0, kHeaderBytes - 1);
  const std::string damage = "kernel.so has 247 bytes, but its segment 0 has 248 at byte 0";
  write_file(entry() / "kernel.so", half);
  reseal(entry());
  expect_miss();
  EXPECT_NE(log_.at(0).find(" is damaged: " + damage + "; it was moved to "), std::string::npos);
  write_file(entry() / "kernel.so", half);
  reseal(entry());
  EXPECT_EQ(cache_.verify().damaged,
            std::vector<std::string>{entry().filename().string() + ": " + damage});
}

TEST_F(CacheDamage, APipeALinkOrASocketInAnEntryIsAMiss) {
  for (const char* file : {"kernel.so", "meta.json"}) {
    const std::string damage = fmt::format(" is damaged: {} is not a regular file;", file);
    const auto expect_damage = [&] {
      log_.clear();
      expect_miss();
      EXPECT_NE(log_.at(0).find(damage), std::string::npos) << log_.at(0);
    };
    fs::remove(entry() / file);
    ASSERT_EQ(::mkfifo((entry() / file).c_str(), 0600), 0);
    expect_damage();
    fs::rename(entry() / file, temp_ / file);
    fs::create_symlink(temp_ / file, entry() / file);
    expect_damage();
    fs::remove(entry() / file);
    ASSERT_EQ(::mknod((entry() / file).c_str(), S_IFSOCK | 0600, 0), 0);
    expect_damage();
  }
}

// Reading all of it would take more memory than there is.
TEST_F(CacheDamage, AFileWithEndlessHolesIsAMiss) {
  static constexpr std::uintmax_t kBytes = std::uintmax_t{1} << 36;
  const auto damage = [](const char* file) {
    return fmt::format("{} has {} bytes, which is more than 268435456", file, kBytes);
  };
  for (const char* file : {"kernel.so", "meta.json"}) {
    fs::resize_file(entry() / file, kBytes);
    log_.clear();
    expect_miss();
    EXPECT_NE(log_.at(0).find(" is damaged: " + damage(file) + ";"), std::string::npos) << log_[0];
  }
  fs::resize_file(entry() / "kernel.cc", kBytes);
  EXPECT_EQ(cache_.verify().damaged,
            std::vector<std::string>{entry().filename().string() + ": " + damage("kernel.cc")});
}

TEST_F(CacheDamage, VerifyAndListWaitForNoPipe) {
  fs::remove(entry() / "kernel.cc");
  ASSERT_EQ(::mkfifo((entry() / "kernel.cc").c_str(), 0600), 0);
  EXPECT_EQ(cache_.verify().damaged, std::vector<std::string>{entry().filename().string() +
                                                              ": kernel.cc is not a regular file"});
  insert();
  fs::remove(entry() / "meta.json");
  ASSERT_EQ(::mkfifo((entry() / "meta.json").c_str(), 0600), 0);
  EXPECT_EQ(cache_.list().size(), 0U);
}

TEST_F(CacheDamage, FilesThatNobodyListedDoNotMatter) {
  const auto object = [](const fs::path& folder) {
    write_file(folder / "object.o", object_of("the right object"));
  };
  cache_.insert("object_a", kKeyB, object);
  const fs::path folder = cache_.folder() / (std::string("object_a-") + kKeyB);
  write_file(folder / "kernel.so", "laid beside it");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(cache_.find("object_a", kKeyB)->binary, folder / "object.o");
  EXPECT_EQ(cache_.verify().good, 2U);
}

TEST_F(CacheDamage, AnUnloadableEntryIsSetAside) {
  const Artifact artifact = *cache_.find("gemm_a", kKeyA);
  EXPECT_TRUE(cache_.set_aside(artifact, "cannot load it"));
  EXPECT_FALSE(cache_.set_aside(Artifact{.name = "gemm_a", .key = kKeyA, .binary = "/elsewhere"},
                                "cannot load it"));
  expect_miss();
  EXPECT_EQ(log_,
            std::vector<std::string>{"the cache entry " + entry().string() +
                                     " is damaged: cannot load it; it was moved to " +
                                     (cache_.folder() / "damaged" / entry().filename()).string()});
}

TEST_F(CacheDamage, VerifyReadsEveryFileOfEveryEntry) {
  const auto good = [&] { return cache_.verify().good; };
  EXPECT_EQ(good(), 1U);
  const std::string folder = entry().filename().string();
  struct Case {
    std::string file;
    std::string content;
    std::string sentence;
  };
  const std::vector<Case> cases = {
      {"kernel.cc", "", ": kernel.cc has 0 bytes, meta.json says 10"},
      {"tessera/device/a.h", "headex",
       ": tessera/device/a.h has checksum " + hash_hex("headex") + ", meta.json says " +
           hash_hex("header")},
      {"meta.json", "{}", ": meta.json is damaged"},
      {"meta.json", "[1, 2", ": meta.json is damaged"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.file);
    write_file(entry() / c.file, c.content);
    const VerifyReport report = cache_.verify();
    ASSERT_EQ(report.damaged.size(), 1U);
    EXPECT_EQ(report.damaged[0], folder + c.sentence);
    EXPECT_EQ(report.good, 0U);
    insert();
    EXPECT_EQ(good(), 1U);
  }
}

}  // namespace
}  // namespace tessera::jit
