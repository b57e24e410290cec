#include "yoke/base/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace yoke {
namespace {

TEST(JsonText, IsALineOrAPage) {
  const nlohmann::ordered_json json = {{"b", {1, 2}}, {"a", nullptr}};
  EXPECT_EQ(json_line(json), R"({"b":[1,2],"a":null})");
  EXPECT_EQ(json_page(json), "{\n  \"b\": [\n    1,\n    2\n  ],\n  \"a\": null\n}\n");
}

TEST(JsonText, BytesThatAreNotUtf8AreReplaced) {
  const nlohmann::json json = {{"path", "/a/\xff"}};
  EXPECT_THROW(json.dump(), nlohmann::json::exception) << "this is why";
  EXPECT_EQ(json_line(json), "{\"path\":\"/a/\xef\xbf\xbd\"}");
  EXPECT_EQ(json_page(json), "{\n  \"path\": \"/a/\xef\xbf\xbd\"\n}\n");
  EXPECT_EQ(json_string<nlohmann::json>("\xff\"").dump(), "\"\xef\xbf\xbd\\\"\"");
  EXPECT_EQ(json_string<nlohmann::json>("é"), "é");
}

// A line separator, C1's introducer of escape sequences, marks that turn the line around, and what nobody sees.
TEST(JsonText, CharactersThatHideOthersAreEscaped) {
  const nlohmann::ordered_json json = {{"a", "\u009b2J \u202e\u2066\ufeff\u200b\u200d\u2028\u007f\u00ad \U000e0041"},
                                       {"\u202eb", {"é文\n", "👩"}}};
  const auto line = json_line(json);
  EXPECT_EQ(
      line,
      R"({"a":"\u009b2J \u202e\u2066\ufeff\u200b\u200d\u2028\u007f\u00ad \udb40\udc41","\u202eb":["é文\n","👩"]})");
  EXPECT_EQ(nlohmann::ordered_json::parse(line), json);
  EXPECT_EQ(nlohmann::ordered_json::parse(json_page(json)), json);
  EXPECT_THAT(json_page(json),
              testing::AllOf(testing::HasSubstr("\n  \"a\": \"\\u009b2J"), testing::EndsWith("\n}\n")));
}

}  // namespace
}  // namespace yoke
