#include "yoke/environment/pip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::environment {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

TEST(Pip, SettingsThatChangeTheResultDoNotCount) {
  const Environment user = {{"HOME", "/home/ada"},
                            {"HTTPS_PROXY", "http://proxy:1"},
                            {"PIP_TARGET", "/elsewhere"},
                            {"PIP_INDEX_URL", "https://site/simple"},
                            {"PIP_EXTRA_INDEX_URL", "https://site/cpu"},
                            {"PIP_CONFIG_FILE", "/etc/site.conf"}};
  // As pip merges its variables and configuration files.
  const PipSettings settings = {{"target", "/elsewhere"},
                                {"index-url", "https://site/simple"},
                                {"extra-index-url", "https://site/cpu"},
                                {"config-file", "/etc/site.conf"},
                                {"cert", "/etc/site.pem"}};
  EXPECT_THAT(pip_environment(user, settings, Indices::kAll).to_strings(),
              UnorderedElementsAre("HOME=/home/ada", "HTTPS_PROXY=http://proxy:1", "PIP_CONFIG_FILE=/dev/null",
                                   "PIP_INDEX_URL=https://site/simple", "PIP_EXTRA_INDEX_URL=https://site/cpu",
                                   "PIP_CERT=/etc/site.pem"));
  EXPECT_FALSE(pip_environment(user, settings, Indices::kOnlyGiven).contains("PIP_EXTRA_INDEX_URL"))
      << "another index could have another build of the same version";
  EXPECT_THAT(ignored_settings(settings), ElementsAre("target"));
}

TEST(Pip, AFolderInsteadOfAnIndexCounts) {
  const PipSettings settings = {{"no-index", "1"}, {"find-links", "/wheels"}};
  EXPECT_THAT(pip_environment({}, settings, Indices::kOnlyGiven).to_strings(),
              UnorderedElementsAre("PIP_CONFIG_FILE=/dev/null", "PIP_NO_INDEX=1", "PIP_FIND_LINKS=/wheels"));
  EXPECT_FALSE(pip_environment({}, {{"find-links", "/wheels"}}, Indices::kOnlyGiven).contains("PIP_FIND_LINKS"));
}

TEST(Pip, FactsAreReadFromJson) {
  const auto facts = parse_pip_facts(R"json({
    "settings": {"cert": "/c"}, "has_hashes": true, "torch_minors": [3], "versions": {"torch": "2.3.1"}, "unmet": [],
    "unread": "", "named": [{"package": "torch", "specifier": "==2.3.1", "where": "-r r.txt (line 1)",
                             "decided": "it has a hash", "is_constraint": false}]})json");
  EXPECT_EQ(facts.settings.at("cert"), "/c");
  EXPECT_TRUE(facts.has_hashes);
  EXPECT_THAT(facts.torch_minors.value(), ElementsAre(3));
  EXPECT_EQ(find_decided(facts, "torch")->where, "-r r.txt (line 1)");
  EXPECT_EQ(find_decided(facts, "torchvision"), nullptr);
  EXPECT_THROW(parse_pip_facts("{}"), Error);
  EXPECT_THROW(parse_pip_facts("Traceback"), Error);
}

}  // namespace
}  // namespace yoke::environment
