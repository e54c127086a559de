#include "host/spec/expect_error.h"
#include "tessera/spec/json_internal.h"

namespace tessera {
namespace {

TEST(Json, NamesLineAndColumn) {
  const std::pair<std::string, std::string> rows[] = {
      {"{\n  \"a\": 1,\n  \"b\": x\n}",
       "line 3, column 8: syntax error while parsing value - invalid literal; last read: '\"b\": "
       "x'"},
      {"{\"a\": 1",
       "line 1, column 8: syntax error while parsing object - unexpected end of input; "
       "expected '}'"},
      {"{} {}",
       "line 1, column 4: syntax error while parsing value - unexpected '{'; expected end "
       "of input"},
      {"\n\n\n",
       "line 4, column 1: syntax error while parsing value - unexpected end of input; "
       "expected '[', '{', or a literal"},
      {"{\"a\": {\"b\": 1, \"b\": 2}}", "the key \"b\" is given twice in one object"},
  };
  for (const auto& [text, message] : rows) {
    expect_error(ErrorCode::parse_error, "file: " + message,
                 [json = text] { parse_json(json, "file"); });
  }
}

TEST(Json, SameKeyInTwoObjectsIsFine) {
  EXPECT_EQ(parse_json(R"([{"a": 1}, {"a": {"a": 2}}])", "file").size(), 2U);
}

TEST(Json, SurvivesDeepNesting) {
  const std::string deep(200000, '[');
  EXPECT_THROW(parse_json(deep, "file"), Error);
}

TEST(Json, DeepNestingIsRefused) {
  const auto nested = [](std::size_t deep) {
    return std::string(deep, '[') + std::string(deep, ']');
  };
  expect_error(ErrorCode::parse_error,
               "file: lists and objects may lie at most 64 deep in one another, got 200000",
               [&] { parse_json(nested(200000), "file"); });
  EXPECT_EQ(parse_json(nested(64), "file").size(), 1U);
  const std::string text = "\"\\\"" + std::string(100, '{') + "\"";
  EXPECT_EQ(parse_json(text, "file"), "\"" + std::string(100, '{'));
}

TEST(Json, NumbersKeepTheirShortestText) {
  EXPECT_EQ(json_number(0.1F).dump(), "0.1");
  EXPECT_EQ(json_number(1.0F).dump(), "1");
  EXPECT_EQ(json_number(3e38F).dump(), "3e+38");
  EXPECT_EQ(json_number(std::numeric_limits<float>::infinity()).dump(), "\"inf\"");
}

TEST(Json, BytesThatAreNotTextDoNotThrow) { EXPECT_EQ(dump_json("a\xff"), "\"a\xef\xbf\xbd\""); }

}  // namespace
}  // namespace tessera
