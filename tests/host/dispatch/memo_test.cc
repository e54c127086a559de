#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "tessera/dispatch/memo_internal.h"

namespace tessera {
namespace {

Problem problem_of(int m) { return gemm_problem(DType::fp32, GemmLayout::rcr, m, 64, 64); }

MemoKey key_of(const Problem& problem, int threads = 1, std::string_view force = {}) {
  return MemoKey{problem, threads, 0, force};
}

const ReadyKernel* find(const Memo& memo, const MemoKey& key) {
  return memo.find(key, hash_of(key));
}

const ReadyKernel& insert(Memo& memo, const MemoKey& key, const std::string& name) {
  ReadyKernel kernel;
  kernel.name = name;
  return memo.insert(key, hash_of(key), std::move(kernel));
}

TEST(Memo, FindsWhatWasInserted) {
  Memo memo;
  const Problem problem = problem_of(1);
  EXPECT_EQ(find(memo, key_of(problem)), nullptr);
  const ReadyKernel& kept = insert(memo, key_of(problem), "first");
  const Problem equal = problem_of(1);
  EXPECT_EQ(find(memo, key_of(equal)), &kept);
}

TEST(Memo, KeepsTheEarlierEntry) {
  Memo memo;
  const Problem problem = problem_of(1);
  const ReadyKernel& first = insert(memo, key_of(problem), "first");
  EXPECT_EQ(&insert(memo, key_of(problem), "second"), &first);
  EXPECT_EQ(first.name, "first");
  EXPECT_EQ(memo.size(), 1U);
}

TEST(Memo, EveryFieldOfTheKeyCounts) {
  Memo memo;
  const Problem problem = problem_of(1);
  insert(memo, key_of(problem), "kernel");
  const Problem other = problem_of(2);
  EXPECT_EQ(find(memo, key_of(other)), nullptr);
  EXPECT_EQ(find(memo, key_of(problem, 2)), nullptr);
  EXPECT_EQ(find(memo, key_of(problem, 1, "forced")), nullptr);
  EXPECT_EQ(find(memo, MemoKey{problem, 1, 1, {}}), nullptr);
}

// Kernels by the thousand, so that the table grows before and after.
TEST(Memo, ForgetsAKernelAndKeepsItsReferences) {
  Memo memo;
  constexpr int kProblems = 3000;
  std::vector<const ReadyKernel*> kept;
  for (int m = 0; m < kProblems; ++m) {
    kept.push_back(&insert(memo, key_of(problem_of(m)), m % 3 == 0 ? "wrong" : "right"));
  }
  const Problem forced = problem_of(3);
  insert(memo, key_of(forced, 1, "wrong"), "wrong");
  memo.forget("wrong");
  for (int m = 0; m < kProblems; ++m) {
    const ReadyKernel* expected = m % 3 == 0 ? nullptr : kept[static_cast<std::size_t>(m)];
    ASSERT_EQ(find(memo, key_of(problem_of(m))), expected) << m;
  }
  EXPECT_NE(find(memo, key_of(forced, 1, "wrong")), nullptr);
  EXPECT_EQ(kept[0]->name, "wrong");
  for (int m = 0; m < 2 * kProblems; ++m) insert(memo, key_of(problem_of(m)), "other");
  for (int m = 0; m < 2 * kProblems; ++m) {
    const char* expected = m < kProblems && m % 3 != 0 ? "right" : "other";
    ASSERT_EQ(find(memo, key_of(problem_of(m)))->name, expected) << m;
  }
}

// Equal hashes must not be taken for equal keys.
TEST(Memo, ComparesAfterHashing) {
  Memo memo;
  const Problem one = problem_of(1);
  const Problem two = problem_of(2);
  memo.insert(key_of(one), 42, ReadyKernel{});
  EXPECT_NE(memo.find(key_of(one), 42), nullptr);
  EXPECT_EQ(memo.find(key_of(two), 42), nullptr);
}

TEST(Memo, ReferencesSurviveGrowth) {
  Memo memo;
  const Problem first = problem_of(0);
  const ReadyKernel& kept = insert(memo, key_of(first), "kernel0");
  for (int m = 1; m < 5000; ++m) {
    const Problem problem = problem_of(m);
    insert(memo, key_of(problem), fmt::format("kernel{}", m));
  }
  EXPECT_EQ(find(memo, key_of(first)), &kept);
  EXPECT_EQ(memo.size(), 5000U);
  for (int m = 0; m < 5000; ++m) {
    const Problem problem = problem_of(m);
    const ReadyKernel* found = find(memo, key_of(problem));
    ASSERT_NE(found, nullptr) << m;
    EXPECT_EQ(found->name, fmt::format("kernel{}", m));
  }
}

TEST(Memo, ReadersAndWritersAtOnce) {
  Memo memo;
  constexpr int kProblems = 2000;
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&memo, &wrong, t] {
      for (int i = 0; i < kProblems; ++i) {
        const Problem problem = problem_of((i * 7 + t * 251) % kProblems);
        const MemoKey key = key_of(problem);
        const std::string name = std::to_string(std::get<GemmProblem>(problem).m);
        if (const ReadyKernel* found = find(memo, key); found != nullptr && found->name != name) {
          ++wrong;
        }
        if (insert(memo, key, name).name != name) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(memo.size(), static_cast<std::size_t>(kProblems));
}

#ifdef NDEBUG
// The best of many batches, so that a busy machine does not decide. Sanitizers slow it tenfold and
// are built without NDEBUG.
TEST(Memo, LooksUpWithin100Nanoseconds) {
  Memo memo;
  std::vector<Problem> problems;
  for (int m = 0; m < 200; ++m) {
    problems.push_back(problem_of(m));
    insert(memo, key_of(problems.back()), "kernel");
  }
  double best = 1;
  std::size_t found = 0;
  for (int batch = 0; batch < 200; ++batch) {
    const auto start = std::chrono::steady_clock::now();
    for (const Problem& problem : problems) found += find(memo, key_of(problem)) != nullptr;
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    best = std::min(best, spent.count() / static_cast<double>(problems.size()));
  }
  EXPECT_EQ(found, 200 * problems.size());
  EXPECT_LE(best, 100e-9);
  RecordProperty("nanoseconds", std::to_string(best * 1e9));
}
#endif

}  // namespace
}  // namespace tessera
