// A host whose locale writes 2,5 for two and a half.
#pragma once

#include <gtest/gtest.h>

#include <clocale>
#include <cstdlib>
#include <locale>
#include <string>

#include "tessera/base/files.h"
#include "tessera/base/subprocess.h"

namespace tessera::testing_support {

// Makes such a locale and sets it, in C and in C++, until the end of the block. The C library's own
// localedef compiles it, so that no package of locales is needed.
class CommaLocale {
 public:
  CommaLocale() {
    write_file(folder_ / "source",
               "comment_char %\nescape_char /\nLC_NUMERIC\ndecimal_point \",\"\n"
               "thousands_sep \".\"\ngrouping 3;3\nEND LC_NUMERIC\n");
    const SubprocessResult made =
        run_subprocess({"localedef", "-c", "-i", (folder_ / "source").string(),
                        (folder_ / "comma").string()});  // warns of the categories left out
    setenv("LOCPATH", folder_.c_str(), 1);
    EXPECT_NE(std::setlocale(LC_ALL, "comma"), nullptr) << made.output;
    EXPECT_STREQ(std::localeconv()->decimal_point, ",");
    std::locale::global(std::locale("comma"));
  }
  ~CommaLocale() {
    std::locale::global(std::locale::classic());
    std::setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
    remove_tree(folder_);
  }
  CommaLocale(const CommaLocale&) = delete;
  CommaLocale& operator=(const CommaLocale&) = delete;

 private:
  fs::path folder_ = make_unique_folder(fs::temp_directory_path(), "tessera-locale-");
};

}  // namespace tessera::testing_support
