#include "yoke/container/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tests/support/packaged_config.h"
#include "yoke/base/error.h"

namespace yoke::container {
namespace {

using yoke::test::message_of;

site::Section section(const std::string& text, site::Owner owner = site::Owner::kSite) {
  return site::ConfigFile::parse("[container]\n" + text, "file", owner).section("container");
}

TEST(ContainerConfig, ThePackagesFileHasEachKeyAndTheDefaults) {
  const auto rules = [](test::Settings which) {
    const auto file = site::ConfigFile::parse(test::packaged_config(which), "file", site::Owner::kSite);
    return parse_rules(file.section("container"), {});
  };
  EXPECT_EQ(rules(test::Settings::kDefaults), SiteRules{});
  const SiteRules all{"ngc/pytorch:25.05-py3", EngineKind::kPodman};
  EXPECT_EQ(rules(test::Settings::kAll), all);
  for (const auto* key : {"default_image", "default_engine", "container_name", "image_name"}) {
    EXPECT_THAT(test::packaged_config(test::Settings::kAll), testing::HasSubstr(std::string(key) + " = "));
  }
}

TEST(ContainerConfig, AUserChoosesDefaultsAndTheSiteTheRules) {
  const auto site = section(
      "default_image = \"lab:1\"\ndefault_engine = \"docker\"\ncontainer_name = \"lab-{user}-{name}\"\n"
      "image_name = \"lab/{user}/{name}\"\n");
  const auto rules = parse_rules(site, section("default_engine = \"podman\"\n", site::Owner::kUser));
  EXPECT_EQ(rules, (SiteRules{"lab:1", EngineKind::kPodman, "lab-{user}-{name}", "lab/{user}/{name}"}));
  EXPECT_EQ(parse_rules({}, {}), SiteRules{});
  EXPECT_THROW(parse_rules({}, section("container_name = \"{name}\"\n", site::Owner::kUser)), Error);
  // Each of these passed, and then no container or image could be made.
  const struct {
    const char *text, *reason;
  } wrong[] = {
      {"container_name = '{user} {name}'\n", "file:2: container_name would make the name \"ada train\""},
      {"container_name = '{User}-{name}'\n", "file:2: container_name has {User}, which is no field"},
      {"container_name = '{user}/{name}'\n", "would make the name \"ada/train\""},
      {"container_name = '_{name}'\n", "would make the name \"_train\""},
      {"container_name = '{name}-{name}'\n", "must have {name} in it once"},
      {"container_name = '{name}}'\n", "container_name has }, which"},
      {"image_name = '{User}/{name}'\n", "image_name has {User}, which"},
      {"image_name = 'LAB/{user}/{name}'\n", "would make the name \"LAB/ada/train\""},
      {"image_name = '{user}//{name}'\n", "engines take only lower-case"},
      {"image_name = '{user}/{name}:lab'\n", "engines take only lower-case"},
  };
  for (const auto& [text, reason] : wrong) {
    EXPECT_THAT(message_of([&, &text = text] { parse_rules(section(text), {}); }, ErrorCode::kDataLoss),
                testing::HasSubstr(reason));
  }
  EXPECT_EQ(parse_rules(section("image_name = 'registry.lab:5000/{user}/{name}-x'\n"), {}).image_name,
            "registry.lab:5000/{user}/{name}-x");
  for (const auto* text : {"default_engine = \"lxc\"\n", "container_name = \"{user}\"\n", "defualt_image = \"a\"\n"}) {
    EXPECT_THROW(parse_rules(section(text), {}), Error) << text;
  }
}

TEST(ContainerConfig, NamesFollowTheRule) {
  EXPECT_EQ(named("{user}_{name}", "ada", "train"), "ada_train");
  EXPECT_EQ(named("{user}_{name}", "ada", "ada_train"), "ada_train");
  EXPECT_EQ(named("lab-{user}-{name}-x", "ada", "train"), "lab-ada-train-x");
  EXPECT_TRUE(follows("{user}/{name}", "ada", "ada/train"));
  for (const auto* name : {"train", "bob/train", "ada/", "ada"})
    EXPECT_FALSE(follows("{user}/{name}", "ada", name)) << name;
  EXPECT_EQ(name_part("pytorch"), "pytorch");
  EXPECT_EQ(name_part("LAB\\ada"), "LAB-ada");
  EXPECT_EQ(name_part("_a/b  c"), "a-b-c");
  EXPECT_EQ(name_part("\x1b["), "x");
}

}  // namespace
}  // namespace yoke::container
