#include "yoke/site/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "yoke/base/error.h"

namespace yoke::site {
namespace {

using std::chrono::hours;
using testing::ElementsAre;
using testing::HasSubstr;

ConfigFile parse(const std::string& text, Owner owner = Owner::kSite) {
  return ConfigFile::parse(text, "c.toml", owner);
}

template <typename Function>
std::string complaint(const Function& function) {
  try {
    function();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(SiteConfig, GivesValuesOfEachKind) {
  const auto section =
      parse(
          "[claim]\nname = 'a'\nnumber = 4\nis = true\ntime = '24h'\nsize = '20GiB'\nlist = ['x', 'y']\n"
          "[claim.users]\nada = 8\n")
          .section("claim");
  EXPECT_EQ(section.text("name"), "a");
  EXPECT_EQ(section.count("number"), 4);
  EXPECT_EQ(section.flag("is"), true);
  EXPECT_EQ(section.length("time"), hours(24));
  EXPECT_EQ(section.memory("size"), int64_t{20} << 30);
  EXPECT_THAT(*section.texts("list"), ElementsAre("x", "y"));
  EXPECT_EQ(section.section("users").count("ada"), 8);
  EXPECT_THAT(section.section("users").keys(), ElementsAre("ada"));
}

TEST(SiteConfig, WhatIsNotThereIsEmpty) {
  const auto section = parse("").section("claim");
  EXPECT_EQ(section.text("name"), std::nullopt);
  EXPECT_EQ(section.count("number"), std::nullopt);
  EXPECT_EQ(section.texts("list"), std::nullopt);
  EXPECT_THAT(section.section("users").keys(), ElementsAre());
  EXPECT_EQ(ConfigFile().section("claim").flag("is"), std::nullopt);
}

TEST(SiteConfig, NamesTheLineOfAMistake) {
  const auto in = [](const char* text) { return parse(text).section("claim"); };
  EXPECT_THAT(complaint([&] { in("[claim]\na = 4\n").text("a"); }), HasSubstr("c.toml:2: a takes a text"));
  EXPECT_THAT(complaint([&] { in("[claim]\n\na = -4\n").count("a"); }), HasSubstr("c.toml:3: a takes a whole number"));
  EXPECT_THAT(complaint([&] { in("[claim]\na = 1.5\n").count("a"); }), HasSubstr("whole number"));
  EXPECT_THAT(complaint([&] { in("[claim]\na = 1\n").flag("a"); }), HasSubstr("true or false"));
  EXPECT_THAT(complaint([&] { in("[claim]\na = 24\n").length("a"); }), HasSubstr("\"24h\""));
  EXPECT_THAT(complaint([&] { in("[claim]\na = '24'\n").memory("a"); }), HasSubstr("\"20GiB\""));
  EXPECT_THAT(complaint([&] { in("[claim]\na = ['x', 1]\n").texts("a"); }), HasSubstr("list of texts"));
  EXPECT_THAT(complaint([&] { in("[claim]\na = 'x'\n").texts("a"); }), HasSubstr("list of texts"));
  EXPECT_THAT(complaint([&] { in("[claim]\na = 'x'\n").section("a"); }), HasSubstr("write [claim.a]"));
  EXPECT_THAT(complaint([&] { in("claim = 4\n"); }), HasSubstr("c.toml:1: claim is not a table; write [claim]"));
  EXPECT_THAT(complaint([&] { in("[claim\n"); }), HasSubstr("c.toml:1: "));
  EXPECT_THAT(complaint([&] { in("[claims]\n"); }), HasSubstr("there is no table [claims]"));
  EXPECT_THAT(complaint([&] {
                in("[claim]\na = 4\nc = 1\n").check_keys({"a", "b"});
              }),
              HasSubstr("c.toml:3: [claim] has no key c; it has a, b"));
}

TEST(SiteConfig, GivesListsOfTablesAndTriesTexts) {
  const auto in = [](const char* text) { return parse(text).section("claim"); };
  const auto tables = in("[claim]\n[[claim.gpu]]\nn = 1\n[[claim.gpu]]\nm = 2\n").sections("gpu");
  ASSERT_EQ(tables.size(), 2U);
  EXPECT_EQ(tables[1].count("m"), 2);
  EXPECT_THAT(complaint([&] { tables[1].check_keys({"n"}); }),
              HasSubstr("c.toml:5: [[claim.gpu]] has no key m; it has n"));
  EXPECT_THAT(complaint([&] { tables[1].refuse("", "why"); }), HasSubstr("c.toml:4: why"));
  EXPECT_TRUE(in("[claim]\n").sections("gpu").empty());
  EXPECT_THAT(complaint([&] { in("[claim]\ngpu = 1\n").sections("gpu"); }), HasSubstr("write [[claim.gpu]] for each"));
  EXPECT_THAT(complaint([&] { in("[claim]\na = 9\n").count("a", 8); }),
              HasSubstr("c.toml:2: a takes a whole number up to 8"));
  const TextCheck is_no_x = [](std::string_view key, std::string_view text) {
    return text == "x" ? std::string(key) + " may not be x" : std::string();
  };
  EXPECT_EQ(in("[claim]\na = 'y'\n").text("a", is_no_x), "y");
  EXPECT_THAT(complaint([&] { in("[claim]\na = 'x'\n").text("a", is_no_x); }), HasSubstr("c.toml:2: a may not be x"));
  EXPECT_THAT(complaint([&] { in("[claim]\na = [\n'y',\n'x']\n").texts("a", is_no_x); }),
              HasSubstr("c.toml:4: a may not be x"));
}

TEST(SiteConfig, SomeKeysAreForTheSiteOnly) {
  const std::string text = "[claim]\na = 4\n";
  parse(text).section("claim").for_site_only("a", "all must agree");
  const auto own = parse(text, Owner::kUser).section("claim");
  EXPECT_THAT(complaint([&] { own.for_site_only("a", "all must agree"); }), HasSubstr("since all must agree"));
  own.for_site_only("b", "all must agree");
}

TEST(SiteConfig, TheStricterLimitCounts) {
  EXPECT_EQ(stricter<int>(std::nullopt, std::nullopt), std::nullopt);
  EXPECT_EQ(stricter<int>(4, std::nullopt), 4);
  EXPECT_EQ(stricter<int>(std::nullopt, 4), 4);
  EXPECT_EQ(stricter<int>(4, 8), 4);
  EXPECT_EQ(stricter<int>(4, 2), 2);
}

TEST(SiteConfig, AVariableDoesNotReplaceTheSitesFile) {
  const std::string site = testing::TempDir() + "yoke-site.toml", own = testing::TempDir() + "yoke-own.toml";
  std::ofstream(site) << "[claim]\nnumber = 3\n";
  std::ofstream(own) << "[claim]\nnumber = 9\n";
  for (const auto& path : {site, own}) std::filesystem::permissions(path, std::filesystem::perms{0644});
  const Environment environment{{"YOKE_SITE_CONFIG", own}};
  const auto number = [&](const SitePlace& place) {
    const auto config = read_config(environment, place);
    return config.site.section("claim").count("number");
  };
  constexpr int64_t kUser = 1000;
  EXPECT_THAT(complaint([&] { number({site, kUser}); }), HasSubstr("unset YOKE_SITE_CONFIG"));
  EXPECT_EQ(number({site, 0}), 9) << "root decides anyway";
  EXPECT_EQ(number({testing::TempDir() + "yoke-none.toml", kUser}), 9) << "there is no site's file";
  EXPECT_TRUE(read_config({{"YOKE_SITE_CONFIG", own}}, {own, kUser}).is_decided) << "it is the site's";
  for (const auto& path : {site, own}) std::filesystem::remove(path);
}

TEST(SiteConfig, AFileOfCommentsDecidesNothing) {
  const std::string site = testing::TempDir() + "yoke-comments.toml", own = testing::TempDir() + "yoke-mine.toml";
  std::ofstream(own) << "[claim]\nnumber = 9\n";
  std::filesystem::permissions(own, std::filesystem::perms{0644});
  constexpr int64_t kUser = 1000;
  const auto is_decided = [&](const std::string& text, int mode = 0644) {
    std::ofstream(site) << text;
    std::filesystem::permissions(site, static_cast<std::filesystem::perms>(mode));
    LeftOut left_out;
    const bool decided = read_config({}, {site, kUser}, &left_out).is_decided;
    const Environment chosen{{"YOKE_SITE_CONFIG", own}};
    EXPECT_EQ(complaint([&] { read_config(chosen, {site, kUser}); }).empty(), !decided) << text;
    EXPECT_FALSE(read_config({}, {site, 0}, &left_out).is_decided) << "root decides anyway: " << text;
    return decided;
  };
  const bool is_of_other = geteuid() != 0;  // a file that is not root's could have had its lines removed
  EXPECT_EQ(is_decided(""), is_of_other);
  EXPECT_EQ(is_decided("# [claim]\n\n \t# devices_per_user = 4\r\n\t\n#"), is_of_other);
  EXPECT_TRUE(is_decided("# Rules\n[claim]\n"));
  EXPECT_TRUE(is_decided("# Data\n \t[storage.data]\npath = '/data'\n"));
  EXPECT_TRUE(is_decided("# [claim]\n", 0666)) << "somebody else could have put the lines into comments";
  for (const auto& path : {site, own}) std::filesystem::remove(path);
}

TEST(SiteConfig, LinesAreLeftOutForThoseWhoOnlyLook) {
  const std::string path = testing::TempDir() + "yoke: left out:1: .toml";  // as in a message about a line
  std::ofstream(path) << "[claim]\nnumber = \nother = 3\n";
  std::filesystem::permissions(path, std::filesystem::perms{0644});
  const Environment environment{{"YOKE_SITE_CONFIG", path}};
  LeftOut left_out;
  std::optional<int64_t> other;
  while (!other) {
    try {
      other = read_config(environment, {}, &left_out).site.section("claim").count("other");
    } catch (const LineError& error) {
      ASSERT_TRUE(left_out.add(error)) << error.what();
    }
  }
  EXPECT_EQ(other, 3);
  EXPECT_THAT(left_out.problem, HasSubstr(path + ":2: "));
  EXPECT_FALSE(left_out.add({ErrorCode::kDataLoss, path, 2, "again"})) << "it was left out, and is no help";
  std::filesystem::permissions(path, std::filesystem::perms{0666});
  LeftOut all;
  EXPECT_TRUE(read_config(environment, {}, &all).site.section("claim").keys().empty());
  EXPECT_THAT(all.problem, HasSubstr("could have been written by others"));
  std::filesystem::remove(path);
}

TEST(SiteConfig, AFileThatOthersCanWriteIsRefused) {
  const std::string path = testing::TempDir() + "yoke-site-config.toml";
  std::ofstream(path) << "[claim]\nnumber = 3\n";
  const Environment environment{{"YOKE_SITE_CONFIG", path}};
  std::filesystem::permissions(path, std::filesystem::perms{0644});
  EXPECT_EQ(read_config(environment).site.section("claim").count("number"), 3);
  std::filesystem::permissions(path, std::filesystem::perms{0666});
  EXPECT_THROW(read_config(environment), Error);
  std::filesystem::remove(path);
  EXPECT_THROW(read_config(environment), Error) << "a file that was named must exist";
}

}  // namespace
}  // namespace yoke::site
