#include "yoke/base/json_text.h"

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

}  // namespace
}  // namespace yoke
