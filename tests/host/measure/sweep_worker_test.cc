#include "tessera/measure/sweep_worker.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tessera/base/files.h"
#include "tessera/targets/targets.h"

namespace tessera::measure {
namespace {

class SweepWorkerTest : public testing::Test {
 protected:
  SweepWorkerTest() : folder_(make_unique_folder(fs::temp_directory_path(), "sweep-worker-")) {}
  ~SweepWorkerTest() override { remove_tree(folder_); }

  // What a worker that answers this line is taken to say of two kernels.
  SweepReply reply_to(const std::string& line) {
    const fs::path worker = folder_ / "worker";
    write_file_atomic(worker, fmt::format("#!/bin/sh\nread setup\nwhile read request; do echo "
                                          "'{}'; done\n",
                                          line));
    fs::permissions(worker, fs::perms::owner_all);
    SweepSetup setup;
    setup.target = load_target("generic");
    return SweepWorker(worker, setup, 60, {}).measure({"gemm m=1 n=1 k=1", {0, 1}, ""});
  }

  fs::path folder_;
};

TEST_F(SweepWorkerTest, AnswersForEachKernel) {
  const SweepReply reply =
      reply_to(R"({"rows":[[0,"ok",0.5,0.1,0.4,3,true,""],[1,"wrong",0,0,0,0,false,"one is"]]})");
  EXPECT_TRUE(reply.is_answer()) << reply.note;
  ASSERT_EQ(reply.rows.size(), 2U);
  EXPECT_EQ(reply.rows[0].seconds, 0.5);
  EXPECT_EQ(reply.rows[1].note, "one is");
}

TEST_F(SweepWorkerTest, SaysHowManyKernelsAShortAnswerLacks) {
  const SweepReply reply = reply_to(R"({"rows":[[0,"ok",0.5,0.1,0.4,3,true,""]]})");
  EXPECT_EQ(reply.outcome, Outcome::failed);
  EXPECT_EQ(reply.culprit, -1);
  EXPECT_EQ(reply.note, "the worker answered for 1 kernels, asked about 2");
  EXPECT_TRUE(reply.rows.empty());
}

TEST_F(SweepWorkerTest, SaysWhatABrokenAnswerLacks) {
  EXPECT_TRUE(reply_to("{}").note.starts_with("the worker's answer is broken: "));
  EXPECT_EQ(reply_to(R"({"error":"no such kernel","kernel":1})").note, "no such kernel");
}

}  // namespace
}  // namespace tessera::measure
