#include "yoke/cli/help/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using List = std::vector<std::string>;

Words split(const List& words) {
  return split_words(
      words, {.takes_value = [](std::string_view name) { return name == "-n" || name == "--grace"; },
              .whole_name = [](std::string_view name) { return name == "--gr" ? "--grace" : std::string(name); }});
}

TEST(Words, EverythingFromTheProgramOnIsItsOwn) {
  const auto words = split({"-n", "2", "./train", "-n", "5", "--", "--grace"});
  EXPECT_THAT(words.own, ElementsAre("-n", "2"));
  EXPECT_THAT(words.rest, ElementsAre("./train", "-n", "5", "--", "--grace"));
}

TEST(Words, TwoDashesEndTheOptions) {
  const auto words = split({"--no-prefix", "--", "--odd-program", "x y"});
  EXPECT_THAT(words.own, ElementsAre("--no-prefix"));
  EXPECT_THAT(words.rest, ElementsAre("--odd-program", "x y"));
  EXPECT_TRUE(words.has_dashes);
  EXPECT_FALSE(split({"-n", "2", "./train", "--"}).has_dashes);
}

TEST(Words, ValuesMayLookLikeAnything) {
  EXPECT_THAT(split({"-n", "-5", "p"}).own, ElementsAre("-n", "-5"));
  EXPECT_THAT(split({"-n4", "p"}).rest, ElementsAre("p"));
  EXPECT_THAT(split({"--grace=3", "p"}).rest, ElementsAre("p"));
  EXPECT_THAT(split({"-n"}).own, ElementsAre("-n"));
  EXPECT_THAT(split({}).rest, IsEmpty());
}

TEST(Words, UnderscoresAreDashesInNamesOnly) {
  EXPECT_THAT(split({"--master_port=a_b", "p"}).own, ElementsAre("--master-port=a_b"));
  EXPECT_THAT(split({"--x", "p_q"}).rest, ElementsAre("p_q"));
}

TEST(Words, AbbreviatedNamesBecomeWhole) {
  EXPECT_THAT(split({"--gr", "3", "p"}).own, ElementsAre("--grace", "3"));
  EXPECT_THAT(split({"--gr=3", "p", "--gr"}).own, ElementsAre("--grace=3"));
  EXPECT_THAT(split({"--gr=", "p"}).own, ElementsAre("--grace", ""));
}

TEST(Words, AnEmptyValueIsAWordOfItsOwn) {
  EXPECT_THAT(split({"--grace=", "-n", "2", "p"}).own, ElementsAre("--grace", "", "-n", "2"));
  EXPECT_THAT(split({"--grace=", "p"}).rest, ElementsAre("p"));
  EXPECT_THAT(split({"-n", "", "p"}).own, ElementsAre("-n", ""));
}

TEST(Words, FindsTheOptionOfAnEmptyValue) {
  const auto find = [](const List& words) {
    return find_empty_value(words, [](std::string_view option) { return option == "--may"; });
  };
  EXPECT_EQ(find({"--hosts", "a", "-n", "2"}), std::nullopt);
  EXPECT_EQ(find({"--hosts", "", "-n", "2"}), "--hosts");
  EXPECT_EQ(find({"-n", "2", "--hosts="}), "--hosts");
  EXPECT_EQ(find({"--hosts=a="}), std::nullopt);
  EXPECT_EQ(find({"--may", "", "--hosts", "a"}), std::nullopt);
  EXPECT_EQ(find({"--may=", "--hosts", "a"}), std::nullopt);
  EXPECT_EQ(find({"--may", "", "-n", ""}), "-n");
  EXPECT_EQ(find({"a", ""}), "argument");
}

TEST(Words, SignalsMayBeWrittenAsForKill) {
  EXPECT_THAT(with_signal_option({"-9", "123"}), ElementsAre("--signal", "9", "123"));
  EXPECT_THAT(with_signal_option({"-KILL", "--yes"}), ElementsAre("--signal", "KILL", "--yes"));
  EXPECT_THAT(with_signal_option({"-SIGUSR1"}), ElementsAre("--signal", "SIGUSR1"));
  EXPECT_THAT(with_signal_option({"-d", "0", "-s", "9", "--mine", "-"}),
              ElementsAre("-d", "0", "-s", "9", "--mine", "-"));
  EXPECT_THAT(with_signal_option({"12", "--wait", "-1", "-9"}), ElementsAre("12", "--wait", "-1", "--signal", "9"));
  EXPECT_THAT(with_signal_option({"--yes", "-9"}), ElementsAre("--yes", "--signal", "9"));
  EXPECT_THAT(with_signal_option({"--", "-9"}), ElementsAre("--", "-9"));
}

TEST(Words, ExtractsOneOptionFromAmongOthers) {
  List words = {"--epochs", "3", "-n", "2", "--nproc_per_node=4", "-no", "--", "-n", "9"};
  EXPECT_EQ(extract_option(words, "-n", "--nproc-per-node"), "4");
  EXPECT_THAT(words, ElementsAre("--epochs", "3", "-no", "--", "-n", "9"));
  EXPECT_EQ(extract_option(words, "-n", "--nproc-per-node"), std::nullopt);
  List short_form = {"-n8"};
  EXPECT_EQ(extract_option(short_form, "-n", "--nproc-per-node"), "8");
  List incomplete = {"-n"};
  EXPECT_THROW(extract_option(incomplete, "-n", "--nproc-per-node"), Error);
}

TEST(Words, AnOptionMayBeTheValueOfOption) {
  EXPECT_EQ(with_joined_option({"--option", "--batch-size", "--max", "8", "--", "--option", "-x"}),
            (List{"--option=--batch-size", "--max", "8", "--", "--option", "-x"}));
  EXPECT_EQ(with_joined_option({"--option", "batch"}), (List{"--option", "batch"}));
  EXPECT_EQ(with_joined_option({"--option", "--", "x"}), (List{"--option", "--", "x"}));
  EXPECT_EQ(with_joined_option({"--option"}), (List{"--option"}));
}

TEST(WaitLimit, IsTheNextWordIfThatIsALengthOfTimeAndTheProgramKeepsItsOwn) {
  const OptionNames names{.takes_value = [](std::string_view name) { return name == "-n"; },
                          .has_optional_time = [](std::string_view name) { return name == "--wait"; }};
  const auto split = [&](const std::vector<std::string>& words) { return split_words(words, names); };
  EXPECT_THAT(split({"-n", "1", "--wait", "python", "x.py", "--wait", "5"}).own,
              ElementsAre("-n", "1", "--wait=forever"));
  EXPECT_THAT(split({"--wait", "5m", "python", "--wait"}).own, ElementsAre("--wait=5m"));
  EXPECT_THAT(split({"--wait", "5m", "python", "--wait"}).rest, ElementsAre("python", "--wait"));
  EXPECT_THAT(split({"-n", "1", "python", "--wait", "5"}).rest, ElementsAre("python", "--wait", "5"));
  EXPECT_THAT(split({"--wait", "-n", "2"}).own, ElementsAre("--wait=forever", "-n", "2"));
  EXPECT_THAT(split({"--wait", "--", "x", "--wait", "5"}).rest, ElementsAre("x", "--wait", "5"));
  EXPECT_THAT(split({"--wait=5m", "--wait"}).own, ElementsAre("--wait=5m", "--wait=forever"));
}

TEST(RepeatedPaths, EachPathIsAValueOfItsOwn) {
  EXPECT_THAT(with_repeated_paths({"--trace", "a", "b", "--json", "--trace", "c"}),
              ElementsAre("--trace", "a", "--trace", "b", "--json", "--trace", "c"));
  EXPECT_THAT(with_repeated_paths({"--compare", "a", "b"}), ElementsAre("--compare", "a", "--compare", "b"));
  EXPECT_THAT(with_repeated_paths({"--compare", "--json", "a", "b"}),
              ElementsAre("--json", "--compare", "a", "--compare", "b"));
  EXPECT_THAT(with_repeated_paths({"--pid", "1"}), ElementsAre("--pid", "1"));
  EXPECT_THAT(with_repeated_paths({"--", "x", "--trace", "a", "b"}), ElementsAre("--", "x", "--trace", "a", "b"))
      << "the program's own words";
}

}  // namespace
}  // namespace yoke::cli
