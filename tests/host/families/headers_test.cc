#include "tessera/families/headers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/parallel.h"

namespace tessera {
namespace {

using Files = std::vector<EmbeddedFile>;

// a includes b and c, b includes c, and nobody includes d.
const Files& files() {
  static const Files all = {{"t/d.h", "#include \"t/c.h\"\nint d;\n"},
                            {"t/c.h", "#pragma once\nint c;"},
                            {"t/a.h", "#include \"t/b.h\"\n#include \"t/c.h\"\n"},
                            {"t/b.h", "  #  include\t\"t/c.h\"  // in a condition or not\n"}};
  return all;
}

std::string paths(const Headers& headers) {
  std::string all;
  for (const EmbeddedFile& file : headers.files) all += std::string(file.path) + " ";
  return all;
}

TEST(Headers, AreThoseThatATextIncludesAndTheirs) {
  HeaderMap map(files());
  EXPECT_EQ(paths(*map.of("#include \"t/a.h\"\n")), "t/a.h t/b.h t/c.h ");
  EXPECT_EQ(paths(*map.of("int x;\n#include \"t/b.h\"")), "t/b.h t/c.h ");
  EXPECT_EQ(paths(*map.of("#include \"t/d.h\"\n#include \"t/b.h\"\n")), "t/b.h t/c.h t/d.h ");
  EXPECT_EQ(paths(*map.of("int x;  // #include \"t/a.h\"\n\"#include\"\n")), "");
}

TEST(Headers, OfEqualIncludesAreMadeOnce) {
  HeaderMap map(files());
  const auto first = map.of("#include \"t/a.h\"\n#include \"t/d.h\"\n");
  EXPECT_EQ(map.of("#include \"t/d.h\"\nint y;\n#include \"t/a.h\"\n"), first);
  std::vector<std::shared_ptr<const Headers>> all(64);
  in_parallel(all.size(), 8, [&](std::size_t i) { all[i] = map.of("#include \"t/b.h\"\n"); });
  for (const auto& headers : all) EXPECT_EQ(headers, all.front());
}

TEST(Headers, ThatIncludeEachOtherAreTakenOnce) {
  const Files circle = {{"a.h", "#include \"b.h\"\n"}, {"b.h", "#include \"a.h\"\n"}};
  EXPECT_EQ(paths(*HeaderMap(circle).of("#include \"b.h\"\n")), "a.h b.h ");
}

std::string refusal(const Files& files, std::string_view text) {
  try {
    HeaderMap(files).of(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::internal);
    return error.what();
  }
  return "nothing was refused";
}

TEST(Headers, ThatTheLibraryDoesNotCarryAreRefused) {
  const auto sentence = [](std::string_view who, std::string_view what) {
    return fmt::format(
        "{} includes {}, which is none of the 4 headers that the library carries: a kernel "
        "includes nothing else, by lines such as #include \"tessera/device/cpu/math.h\"",
        who, what);
  };
  const std::string_view text = "the text of a kernel";
  EXPECT_EQ(refusal(files(), "#include \"t/e.h\"\n"), sentence(text, "t/e.h"));
  EXPECT_EQ(refusal(files(), "#include \"a.h\"\n"), sentence(text, "a.h"));
  EXPECT_EQ(refusal(files(), "#include <cstdint>\n"), sentence(text, "<cstdint>"));
  EXPECT_EQ(refusal(files(), "#include MATH\n"), sentence(text, "MATH"));
  Files broken = files();
  broken[3].content = "#include \"t/gone.h\"\n";
  EXPECT_EQ(refusal(broken, "#include \"t/a.h\"\n"), sentence("t/b.h", "t/gone.h"));
  EXPECT_EQ(refusal(broken, "#include \"t/d.h\"\n"), "nothing was refused");
}

// The hash of what the text includes, with one file changed.
std::string hash_with(std::string_view path, std::string_view content) {
  Files changed = files();
  for (EmbeddedFile& file : changed) {
    if (file.path == path) file.content = content;
  }
  return HeaderMap(changed).of("#include \"t/b.h\"\n")->hash;
}

TEST(Headers, HaveAHashOfTheirOwnContent) {
  const std::string before = hash_with("", "");
  EXPECT_EQ(hash_with("t/d.h", "int other;"), before);
  EXPECT_EQ(hash_with("t/a.h", "int other;"), before);
  EXPECT_NE(hash_with("t/c.h", "#pragma once\nint c; // a comment"), before);
  EXPECT_NE(hash_with("t/b.h", "#include \"t/c.h\"\n"), before);
}

TEST(Headers, HaveAHashOfTheirPaths) {
  const std::string before = Headers({{"a.h", "x"}, {"b.h", "y"}}).hash;
  EXPECT_EQ(Headers({{"b.h", "y"}, {"a.h", "x"}}).hash, before);
  EXPECT_NE(Headers({{"a.h", "y"}, {"b.h", "x"}}).hash, before);
  EXPECT_NE(Headers({{"a.h", "x"}, {"c.h", "y"}}).hash, before);
  EXPECT_NE(Headers(Files{{"a.h", "x"}}).hash, before);
}

TEST(Headers, OfTheLibraryIncludeNothingElse) {
  for (const auto some : {cpu_headers(), cuda_headers(), hip_headers()}) {
    for (const EmbeddedFile& file : some) {
      EXPECT_NO_THROW(headers_of(fmt::format("#include \"{}\"\n", file.path)));
    }
  }
}

}  // namespace
}  // namespace tessera
