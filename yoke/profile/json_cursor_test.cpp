#include "yoke/profile/json_cursor.h"

#include <gtest/gtest.h>

namespace yoke::profile {
namespace {

TEST(JsonCursor, TimesKeepTheirNanoseconds) {
  EXPECT_EQ(parse_microseconds("4527946418132.927"), 4'527'946'418'132'927);
  EXPECT_EQ(parse_microseconds("10"), 10'000);
  EXPECT_EQ(parse_microseconds("0.0019"), 1);
  EXPECT_EQ(parse_microseconds("-0.5"), -500);
  EXPECT_EQ(parse_microseconds("1.5e3"), 1'500'000);
  for (const auto* text : {"", "x", "NaN", "1e300", "-1e300", "99999999999999999999", "1.2.3", "1 ", "\"1\"", "{}"}) {
    EXPECT_EQ(parse_microseconds(text), std::nullopt) << text;
  }
}

TEST(JsonCursor, ReadsAMemberWithoutAValue) {
  JsonCursor cursor(R"({"a": , "b": [1, {"c": "]"}], "d": })");
  std::vector<std::string> members;
  EXPECT_TRUE(cursor.object([&](std::string_view key) {
    const auto value = cursor.value();
    members.push_back(std::string(key) + "=" + std::string(value.value_or("?")));
    return true;
  }));
  EXPECT_EQ(members, (std::vector<std::string>{"a=", R"(b=[1, {"c": "]"}])", "d="}));
}

TEST(JsonCursor, WantsMoreTextOfAValueThatIsCut) {
  for (const auto* text : {"12", "\"a", "\"a\\\"", "[1, 2", R"({"a": "}")"}) {
    EXPECT_EQ(JsonCursor(text).value(), std::nullopt) << text;
  }
  EXPECT_EQ(JsonCursor(R"("a\\" ,)").value(), R"("a\\")");
}

TEST(JsonCursor, UnescapesWhatIsValid) {
  EXPECT_EQ(unescape(R"(a\n\u00e9\"b)"), "a\n\u00e9\"b");
  EXPECT_EQ(unescape(R"(\x)"), R"(\x)");
}

TEST(JsonCursor, TellsAMistakeFromTextThatEndsTooEarly) {
  const auto is_short = [](std::string_view text) {
    JsonCursor cursor(text);
    const bool is_read = cursor.object([&](std::string_view) { return cursor.value().has_value(); });
    EXPECT_FALSE(is_read) << text;
    return cursor.is_short();
  };
  for (const char* text : {"", "{", "{\"a", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":[1", "{\"a\":\"b", "{\"a\":1,"})
    EXPECT_TRUE(is_short(text)) << text;
  for (const char* text : {"[", "{1}", "{\"a\" 1}", "{\"a\":1 2}", "{\"a\":\"b\"c\"}"})
    EXPECT_FALSE(is_short(text)) << text;
}

}  // namespace
}  // namespace yoke::profile
