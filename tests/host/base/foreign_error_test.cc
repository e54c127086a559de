#include "tessera/base/foreign_error.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <new>
#include <system_error>

namespace tessera {
namespace {

std::string words_of(const std::exception& error) { return error_of(error).what(); }

TEST(ForeignError, BecomesASentence) {
  namespace fs = std::filesystem;
  const auto code = std::make_error_code(std::errc::filename_too_long);
  const fs::filesystem_error one("status", "a.txt", code);
  EXPECT_EQ(words_of(one), "the file system refused 'a.txt': File name too long");
  EXPECT_EQ(error_of(one).code(), ErrorCode::io_error);
  EXPECT_EQ(words_of(fs::filesystem_error("cannot rename", "a", "b", code)),
            "the file system refused 'a' and 'b': File name too long");
  EXPECT_EQ(words_of(std::system_error(code, "thread")),
            "the system refused a call: File name too long");
  EXPECT_EQ(error_of(std::bad_alloc()).code(), ErrorCode::out_of_memory);
  EXPECT_EQ(words_of(std::runtime_error("[json.exception.type_error.302] type must be number")),
            "type must be number");
  const Error own(ErrorCode::crashed, "it crashed", "why");
  EXPECT_EQ(error_of(own).code(), ErrorCode::crashed);
  EXPECT_EQ(error_of(own).context(), "why");
}

}  // namespace
}  // namespace tessera
