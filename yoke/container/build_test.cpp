#include "yoke/container/build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"

namespace yoke::container {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

const SiteRules kDefaultRules;

TEST(ImageNames, FollowTheRule) {
  SiteRules registry, dash;
  registry.image_name = "registry.lab:5000/{user}/{name}";
  dash.image_name = "{user}-{name}";
  const struct {
    const SiteRules& rules;
    std::string user, chosen, name;
  } rows[] = {{kDefaultRules, "ada", "train", "ada/train"},
              {kDefaultRules, "ada", "train:2", "ada/train:2"},
              {kDefaultRules, "ada", "ada/train", "ada/train"},
              {kDefaultRules, "ada", "ada/vision/train:V2", "ada/vision/train:V2"},
              {kDefaultRules, "Ada Byron", "train", "ada-byron/train"},
              {registry, "ada", "train:2", "registry.lab:5000/ada/train:2"},
              {registry, "ada", "registry.lab:5000/ada/train", "registry.lab:5000/ada/train"},
              {dash, "ada", "train", "ada-train"},
              {dash, "ada", "ada-train", "ada-train"}};
  for (const auto& row : rows) EXPECT_EQ(built_image_name(row.rules, row.user, row.chosen), row.name) << row.chosen;
}

TEST(ImageNames, OthersAreRefusedWithTheRule) {
  for (const auto* chosen : {"bob/train", "docker.io/ada/train", "registry:5000/train", "adam/train"}) {
    const auto message = test::message_of([&] { built_image_name(kDefaultRules, "ada", chosen); });
    EXPECT_THAT(message, HasSubstr("rule for names of images, which is {user}/{name};")) << chosen;
    EXPECT_THAT(message, HasSubstr("call it ada/train")) << chosen;
  }
  for (const auto* chosen :
       {"", "Train", "a b", "train:", "train:-x", "-t", "a//b", "ada/", "train\n", "train@sha256:0"}) {
    const auto message = test::message_of([&] { built_image_name(kDefaultRules, "ada", chosen); });
    EXPECT_THAT(message, HasSubstr("is no name of an image")) << chosen;
  }
}

TEST(ImageNames, AFolderGivesOne) {
  EXPECT_EQ(image_name_of_folder("/home/ada/Train"), "train");
  EXPECT_EQ(image_name_of_folder("/home/ada/my model.v2/"), "my-model.v2");
  EXPECT_EQ(image_name_of_folder("/home/ada/_x_/."), "x");
  EXPECT_EQ(image_name_of_folder("/"), "x");
}

TEST(BuildPlans, AreTheEnginesOwn) {
  const Engine podman{.kind = EngineKind::kPodman, .program = "/usr/bin/podman"};
  const Engine apptainer{.kind = EngineKind::kApptainer, .program = "/usr/bin/apptainer"};
  EXPECT_EQ(plan_build(podman, {.folder = "/src", .name = "ada/x"}),
            (Words{"/usr/bin/podman", "build", "--tag", "ada/x", "/src"}));
  EXPECT_EQ(plan_build(podman, {.folder = "/src", .name = "ada/x", .recipe = "/src/C", .arguments = {"A=1 2"}}),
            (Words{"/usr/bin/podman", "build", "--build-arg", "A=1 2", "--tag", "ada/x", "--file", "/src/C", "/src"}));
  EXPECT_EQ(plan_build(apptainer, {.name = "x.sif", .recipe = "x.def"}),
            (Words{"/usr/bin/apptainer", "build", "x.sif", "x.def"}));
  EXPECT_THROW(plan_build(apptainer, {.name = "x.sif"}), Error);
  // Apptainer would copy the files of the folder in which it is started.
  const auto here = std::filesystem::current_path();
  EXPECT_EQ(plan_build(apptainer, {.folder = "src", .name = "x.sif", .recipe = "src/x.def"}),
            (Words{"env", "--chdir", "src", "/usr/bin/apptainer", "build", here / "x.sif", here / "src/x.def"}));
}

TEST(BuildPlans, NameAContainerfileForDockerAlone) {
  EXPECT_TRUE(needs_name(EngineKind::kDocker, false, true));
  EXPECT_FALSE(needs_name(EngineKind::kDocker, true, true));
  EXPECT_FALSE(needs_name(EngineKind::kDocker, false, false)) << "the engine says what is missing";
  EXPECT_FALSE(needs_name(EngineKind::kPodman, false, true));
}

}  // namespace
}  // namespace yoke::container
