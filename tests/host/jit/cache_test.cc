#include "tessera/jit/cache.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <thread>

#include "host/jit/fixtures.h"
#include "host/spec/expect_error.h"
#include "tessera/base/error.h"

namespace tessera::jit {
namespace {

using ::testing::Test;

class CacheTest : public Test {
 protected:
  fs::path folder() const { return temp_ / "cache"; }
  CacheOptions options() const { return {.folder = folder()}; }
  fs::path entry(const std::string& name, const std::string& key) const {
    return folder() / (name + "-" + key);
  }
  TempFolder temp_;
};

void never(const fs::path&) { ADD_FAILURE() << "there was no need to build"; }

TEST_F(CacheTest, FindsWhatWasInserted) {
  Cache cache(options());
  EXPECT_EQ(cache.find("gemm_a", kKeyA), std::nullopt);
  const Artifact made = cache.insert("gemm_a", kKeyA, produces("binary"));
  EXPECT_EQ(made.binary, entry("gemm_a", kKeyA) / "kernel.so");
  Cache next_process(options());
  for (Cache* reader : {&cache, &next_process}) {
    const std::optional<Artifact> found = reader->find("gemm_a", kKeyA);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->binary, made.binary);
    EXPECT_EQ(found->name, "gemm_a");
    EXPECT_EQ(found->key, kKeyA);
    EXPECT_EQ(text_of(found->binary), "binary");
  }
  EXPECT_FALSE(next_process.find("gemm_a", kKeyB));
  EXPECT_FALSE(next_process.find("gemm_b", kKeyA));
  next_process.insert("gemm_a", kKeyA, never);
}

TEST_F(CacheTest, LeavesNothingButTheEntry) {
  Cache cache(options());
  cache.insert("gemm_a", kKeyA, produces("binary"));
  EXPECT_EQ(names_in(folder()),
            (std::vector<std::string>{std::string("gemm_a-") + kKeyA, "locks", "tmp"}));
  EXPECT_EQ(names_in(folder() / "tmp"), std::vector<std::string>());
  EXPECT_EQ(names_in(folder() / "locks"), std::vector<std::string>());
  EXPECT_EQ(names_in(entry("gemm_a", kKeyA)),
            (std::vector<std::string>{"kernel.cc", "kernel.so", "meta.json", "tessera"}));
}

TEST_F(CacheTest, RefusesNamesThatAreNoFileNames) {
  Cache cache(options());
  expect_error(ErrorCode::invalid_argument, "a kernel's name must be a C identifier, got '../a'",
               [&] { cache.find("../a", kKeyA); });
  expect_error(ErrorCode::invalid_argument, "a kernel's name must be a C identifier, got ''",
               [&] { cache.insert("", kKeyA, never); });
  expect_error(ErrorCode::invalid_argument,
               "gemm_a: a cache key must be 32 hexadecimal digits, got '12'",
               [&] { cache.insert("gemm_a", "12", never); });
}

TEST_F(CacheTest, TakesNamesLongerThanAFileName) {
  Cache cache(options());
  const std::string a = "gemm_" + std::string(400, 'a');
  cache.insert(a + "b", kKeyA, produces("binary of b"));
  EXPECT_TRUE(cache.find(a + "b", kKeyA));
  ASSERT_EQ(cache.list().size(), 1U);
  EXPECT_EQ(cache.list()[0].name, a + "b");
  EXPECT_EQ(cache.verify().good, 1U);
  EXPECT_EQ(cache.clear(a + "*").removed, 1U);
}

TEST_F(CacheTest, PassesOnWhatTheBuildThrowsAndKeepsNothing) {
  Cache cache(options());
  const auto fails = [](const fs::path& build) {
    write_file(build / "kernel.so", "half");
    throw Error(ErrorCode::compile_failed, "no");
  };
  expect_error(ErrorCode::compile_failed, "no", [&] { cache.insert("gemm_a", kKeyA, fails); });
  EXPECT_FALSE(cache.find("gemm_a", kKeyA));
  EXPECT_EQ(names_in(folder() / "tmp"), std::vector<std::string>());
  EXPECT_TRUE(cache.insert("gemm_a", kKeyA, produces("binary")).keep == nullptr);
}

TEST_F(CacheTest, RefusesAnEntryWithoutBinary) {
  Cache cache(options());
  const auto empty = [](const fs::path& build) { write_file(build / "kernel.so", ""); };
  expect_error(ErrorCode::compile_failed, "gemm_a: kernel.so has 0 bytes, but an ELF header has 64",
               [&] { cache.insert("gemm_a", kKeyA, empty); });
  const auto two = [](const fs::path& build) {
    write_file(build / "kernel.so", library_of("a kernel"));
    write_file(build / "object.o", object_of("an object"));
  };
  for (const auto& produce : {std::function<void(const fs::path&)>(two),
                              std::function<void(const fs::path&)>([](const fs::path&) {})}) {
    expect_error(
        ErrorCode::compile_failed,
        "gemm_a: an entry needs exactly one of kernel.so, kernel.cubin, kernel.hsaco, object.o, "
        "got none "
        "or several",
        [&] { cache.insert("gemm_a", kKeyA, produce); });
  }
}

TEST_F(CacheTest, LosesTheRenameToAGoodEntry) {
  // Another machine on the same disk, whose lock we do not see, is faster.
  Cache winner({.folder = temp_ / "other"});
  winner.insert("gemm_a", kKeyA, produces("the winner's"));
  Cache cache(options());
  const Artifact got = cache.insert("gemm_a", kKeyA, [&](const fs::path& build) {
    produces("the loser's")(build);
    fs::copy(winner.folder() / entry("gemm_a", kKeyA).filename(), entry("gemm_a", kKeyA),
             fs::copy_options::recursive);
  });
  EXPECT_EQ(text_of(got.binary), "the winner's");
  EXPECT_EQ(names_in(folder() / "tmp"), std::vector<std::string>());
}

TEST_F(CacheTest, ReplacesADamagedWinner) {
  Cache cache(options());
  const Artifact got = cache.insert("gemm_a", kKeyA, [&](const fs::path& build) {
    produces("good")(build);
    fs::create_directory(entry("gemm_a", kKeyA));
    write_file(entry("gemm_a", kKeyA) / "kernel.so", "half");
  });
  EXPECT_EQ(got.binary, entry("gemm_a", kKeyA) / "kernel.so");
  EXPECT_EQ(text_of(got.binary), "good");
  EXPECT_EQ(names_in(folder() / "damaged").size(), 1U);
}

TEST_F(CacheTest, BuildsOnceForSixteenThreads) {
  for (const bool in_memory : {false, true}) {
    Cache cache(in_memory ? CacheOptions{.folder = "/proc/nowhere"} : options());
    ASSERT_EQ(cache.is_memory_only(), in_memory);
    constexpr int kThreads = 16;
    std::atomic<int> builds = 0;
    std::barrier start(kThreads);
    std::vector<std::string> got(kThreads);
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] {
          start.arrive_and_wait();
          const Artifact artifact = cache.insert("gemm_a", kKeyA, [&](const fs::path& build) {
            ++builds;
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            produces("binary")(build);
          });
          got[static_cast<std::size_t>(i)] = text_of(artifact.binary);
        });
      }
    }
    EXPECT_EQ(builds, 1);
    EXPECT_EQ(got, std::vector<std::string>(kThreads, "binary"));
  }
}

TEST_F(CacheTest, SharesAFailureAmongThoseWhoWaitAndNobodyElse) {
  Cache cache(options());
  std::atomic<int> builds = 0;
  std::atomic<int> failures = 0;
  std::atomic<int> callers = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        try {
          ++callers;
          cache.insert("gemm_a", kKeyA, [&](const fs::path&) {
            ++builds;
            while (callers < 8) std::this_thread::yield();
            std::this_thread::sleep_for(std::chrono::milliseconds(200));  // all begin to wait
            throw Error(ErrorCode::compile_failed, "no");
          });
        } catch (const Error&) {
          ++failures;
        }
      });
    }
  }
  EXPECT_EQ(failures, 8);
  EXPECT_EQ(builds, 1);
  cache.insert("gemm_a", kKeyA, produces("binary"));
}

TEST_F(CacheTest, ListsClearsAndMeasures) {
  Cache cache(options());
  for (const char* name : {"gemm_a", "gemm_b", "conv_c"}) {
    cache.insert(name, kKeyA, produces(std::string("binary of ") + name));
  }
  const std::vector<EntryInfo> entries = cache.list();
  ASSERT_EQ(entries.size(), 3U);
  std::int64_t bytes = 0;
  for (const EntryInfo& info : entries) {
    bytes += info.bytes;
    EXPECT_EQ(info.key, kKeyA);
    EXPECT_EQ(info.folder, entry(info.name, kKeyA));
    EXPECT_NEAR(static_cast<double>(info.last_used_unix), static_cast<double>(::time(nullptr)), 60);
  }
  EXPECT_EQ(entries[0].name, "conv_c");
  EXPECT_EQ(cache.size_bytes(), bytes);
  EXPECT_EQ(cache.clear("gemm_*").removed, 2U);
  ASSERT_EQ(cache.list().size(), 1U);
  EXPECT_EQ(cache.list()[0].name, "conv_c");
  EXPECT_EQ(cache.clear().removed, 1U);
  EXPECT_EQ(cache.size_bytes(), 0);
}

TEST_F(CacheTest, TouchesNothingThatIsNotItsOwn) {
  // Someone names his home folder as the cache.
  fs::create_directories(folder() / "thesis-2024");
  write_file(folder() / "thesis-2024" / "text", std::string(100000, 'x'));
  fs::create_directories(folder() / "tmp" / "mine");
  const std::vector<std::string> files = {"locks/secret.key", "locks/" + std::string(kKeyB),
                                          "tmp/build-output/result", "damaged/notes",
                                          "my photos-" + std::string(kKeyB) + "/1.jpg"};
  for (const std::string& file : files) {
    fs::create_directories((folder() / file).parent_path());
    write_file(folder() / file, "mine");
  }
  ::chmod(folder().c_str(), 0700);
  Cache cache({.folder = folder(), .max_bytes = 10});
  cache.insert("gemm_a", kKeyA, produces("binary"));
  cache.insert("gemm_b", kKeyA, produces("binary"));
  EXPECT_EQ(cache.clear().removed, 1U);
  EXPECT_TRUE(fs::exists(folder() / "thesis-2024" / "text"));
  EXPECT_TRUE(fs::exists(folder() / "tmp" / "mine"));
  for (const std::string& file : files) EXPECT_EQ(read_file(folder() / file), "mine") << file;
}

// A file of 10000 bytes in each, used `minutes` ago.
void insert_used(Cache& cache, const std::string& name, int minutes) {
  const Artifact artifact =
      cache.insert(name, kKeyA, produces(std::string(10000 - kHeaderBytes, 'x')));
  fs::last_write_time(artifact.binary.parent_path() / "meta.json",
                      fs::file_time_type::clock::now() - std::chrono::minutes(minutes));
}

std::vector<std::string> names_of(const Cache& cache) {
  std::vector<std::string> names;
  for (const EntryInfo& info : cache.list()) names.push_back(info.name);
  return names;
}

TEST_F(CacheTest, EvictsTheLeastRecentlyUsed) {
  Cache cache({.folder = folder(), .max_bytes = 45000});
  insert_used(cache, "gemm_a", 30);
  insert_used(cache, "gemm_b", 40);
  insert_used(cache, "gemm_c", 20);
  insert_used(cache, "gemm_d", 10);
  EXPECT_EQ(names_of(cache), (std::vector<std::string>{"gemm_a", "gemm_b", "gemm_c", "gemm_d"}));
  // A use counts: b, the oldest, becomes the youngest.
  EXPECT_TRUE(cache.find("gemm_b", kKeyA));
  insert_used(cache, "gemm_e", 0);
  EXPECT_EQ(names_of(cache), (std::vector<std::string>{"gemm_b", "gemm_d", "gemm_e"}));
  EXPECT_LE(cache.size_bytes(), 45000);
  insert_used(cache, "gemm_f", 0);
  insert_used(cache, "gemm_g", 0);
  EXPECT_EQ(names_of(cache), (std::vector<std::string>{"gemm_e", "gemm_f", "gemm_g"}));
}

TEST_F(CacheTest, KeepsTheNewestEntryHoweverLarge) {
  Cache cache({.folder = folder(), .max_bytes = 5000});
  insert_used(cache, "gemm_a", 0);
  EXPECT_EQ(names_of(cache), std::vector<std::string>{"gemm_a"});
  insert_used(cache, "gemm_b", 100);
  EXPECT_EQ(names_of(cache), std::vector<std::string>{"gemm_b"});
}

TEST_F(CacheTest, CountsWhatOtherProcessesInserted) {
  for (int i = 0; i < 4; ++i) {
    Cache cache({.folder = folder(), .max_bytes = 45000});
    insert_used(cache, "gemm_" + std::to_string(i), 10 - i);
  }
  Cache cache({.folder = folder(), .max_bytes = 45000});
  insert_used(cache, "gemm_4", 0);
  EXPECT_EQ(names_of(cache), (std::vector<std::string>{"gemm_2", "gemm_3", "gemm_4"}));
}

TEST_F(CacheTest, StampsAUseAtMostOnceAMinute) {
  Cache cache(options());
  insert_used(cache, "gemm_a", 0);
  const fs::path meta = entry("gemm_a", kKeyA) / "meta.json";
  const auto before = fs::last_write_time(meta);
  EXPECT_TRUE(cache.find("gemm_a", kKeyA));
  EXPECT_EQ(fs::last_write_time(meta), before);
  fs::last_write_time(meta, before - std::chrono::seconds(61));
  EXPECT_TRUE(cache.find("gemm_a", kKeyA));
  EXPECT_GE(fs::last_write_time(meta), before);
  // A clock that was wrong, or a file server's: else the entry would look used until that day.
  fs::last_write_time(meta, before + std::chrono::hours(5));
  EXPECT_TRUE(cache.find("gemm_a", kKeyA));
  EXPECT_LT(fs::last_write_time(meta), before + std::chrono::hours(1));
}

}  // namespace
}  // namespace tessera::jit
