#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/runtime/memory_internal.h"

// Read by AddressSanitizer, which otherwise ends the program on a request that is too large.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

namespace tessera::runtime {
namespace {

constexpr std::size_t kMb = std::size_t{1} << 20;

bool is_aligned(const void* pointer, std::size_t to) {
  return reinterpret_cast<std::uintptr_t>(pointer) % to == 0;
}

TEST(AlignedBuffer, IsAlignedAndWritable) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{65},
                                  kMb, 4 * kMb, 5 * kMb + 1}) {
    AlignedBuffer buffer(bytes);
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_TRUE(is_aligned(buffer.data(), bytes >= 4 * kMb ? 2 * kMb : 64)) << bytes;
    std::memset(buffer.data(), 1, bytes);
  }
}

TEST(AlignedBuffer, EmptyHoldsNothing) { EXPECT_EQ(AlignedBuffer(0).data(), nullptr); }

TEST(AlignedBuffer, MovesItsMemory) {
  AlignedBuffer a(100);
  void* const data = a.data();
  AlignedBuffer b(std::move(a));
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(b.size(), 100u);
  AlignedBuffer c(10);
  c = std::move(b);
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(c.size(), 100u);
}

TEST(AlignedBuffer, OutOfMemoryNamesTheBytes) {
  for (const std::size_t bytes : {std::size_t{1} << 62, SIZE_MAX - 5}) {
    try {
      AlignedBuffer buffer(bytes);
      FAIL() << "allocated " << bytes;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
      EXPECT_EQ(std::string(error.what()),
                "out of memory: cannot allocate a buffer of " + std::to_string(bytes) + " bytes");
    }
  }
}

// Each case runs on a thread of its own, and so starts with an empty workspace.
void on_new_thread(void (*body)()) { std::thread(body).join(); }

TEST(Workspace, IsKeptBetweenRequests) {
  on_new_thread([] {
    EXPECT_EQ(thread_workspace_bytes(), 0u);
    void* const first = thread_workspace(1000);
    EXPECT_TRUE(is_aligned(first, 64));
    EXPECT_EQ(thread_workspace(1000), first);
    EXPECT_EQ(thread_workspace(10), first);
    thread_workspace(2000);
    EXPECT_EQ(thread_workspace_bytes(), 2000u);
  });
}

TEST(Workspace, BelongsToOneThread) {
  void* const mine = thread_workspace(1000);
  void* theirs = nullptr;
  std::thread([&] { theirs = thread_workspace(1000); }).join();
  EXPECT_NE(mine, theirs);
}

TEST(Workspace, LargeOneIsLetGoAfterManySmallRequests) {
  on_new_thread([] {
    thread_workspace(64 * kMb);
    for (int i = 0; i < 63; ++i) thread_workspace(kMb);
    EXPECT_EQ(thread_workspace_bytes(), 64 * kMb);
    thread_workspace(kMb);
    EXPECT_EQ(thread_workspace_bytes(), kMb);
  });
}

TEST(Workspace, LargeOneIsKeptWhileItIsUsedNowAndThen) {
  on_new_thread([] {
    void* const first = thread_workspace(64 * kMb);
    for (int i = 0; i < 500; ++i) {
      EXPECT_EQ(thread_workspace(i % 50 == 0 ? 64 * kMb : kMb), first);
    }
  });
}

TEST(Workspace, SmallOneIsNeverLetGo) {
  on_new_thread([] {
    thread_workspace(32 * kMb);
    for (int i = 0; i < 500; ++i) thread_workspace(64);
    EXPECT_EQ(thread_workspace_bytes(), 32 * kMb);
  });
}

TEST(Workspace, SurvivesARefusedRequest) {
  on_new_thread([] {
    thread_workspace(1000);
    EXPECT_THROW(thread_workspace(std::size_t{1} << 62), Error);
    std::memset(thread_workspace(1000), 1, 1000);
  });
}

}  // namespace
}  // namespace tessera::runtime
