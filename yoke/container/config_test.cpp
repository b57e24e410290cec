#include "yoke/container/config.h"

#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::container {
namespace {

site::Section section(const std::string& text, site::Owner owner = site::Owner::kSite) {
  return site::ConfigFile::parse("[container]\n" + text, "file", owner).section("container");
}

TEST(ContainerConfig, AUserChoosesDefaultsAndTheSiteTheRules) {
  const auto site = section(
      "default_image = \"lab:1\"\ndefault_engine = \"docker\"\ncontainer_name = \"lab-{user}-{name}\"\n"
      "image_name = \"lab/{user}/{name}\"\n");
  const auto rules = parse_rules(site, section("default_engine = \"podman\"\n", site::Owner::kUser));
  EXPECT_EQ(rules, (SiteRules{"lab:1", EngineKind::kPodman, "lab-{user}-{name}", "lab/{user}/{name}"}));
  EXPECT_EQ(parse_rules({}, {}), SiteRules{});
  EXPECT_THROW(parse_rules({}, section("container_name = \"{name}\"\n", site::Owner::kUser)), Error);
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
