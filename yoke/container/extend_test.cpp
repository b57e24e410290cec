#include "yoke/container/extend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

namespace yoke::container {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

const Engine kPodman{.kind = EngineKind::kPodman, .program = "podman", .version = {5, 0, 0}};
const Engine kDocker{.kind = EngineKind::kDocker, .program = "docker", .version = {28, 2, 0}};
const Engine kApptainer{.kind = EngineKind::kApptainer, .program = "apptainer", .version = {1, 4, 0}};

std::string after(const Words& words, const std::string& option) {
  const auto at = std::find(words.begin(), words.end(), option);
  return at == words.end() || at + 1 == words.end() ? "" : *(at + 1);
}

TEST(Helpers, HaveTheUserWhoWillOwnTheFiles) {
  const HelperRequest request{.image = "x", .program = {"/p", "a b"}, .uid = 1000, .gid = 100};
  auto rootless_docker = kDocker;
  rootless_docker.is_rootless = true;
  auto old_docker = kDocker;
  old_docker.knows_pull = false;
  EXPECT_THAT(plan_helper(kDocker, request).argv, Contains("--pull=never"));
  EXPECT_THAT(plan_helper(old_docker, request).argv, Not(Contains("--pull=never")));
  EXPECT_EQ(after(plan_helper(kPodman, request).argv, "--user"), "0:0");
  EXPECT_EQ(after(plan_helper(kDocker, request).argv, "--user"), "1000:100");
  EXPECT_EQ(after(plan_helper(rootless_docker, request).argv, "--user"), "0:0");
  EXPECT_THAT(plan_helper(kApptainer, request).argv,
              ElementsAre("apptainer", "exec", "--cleanenv", "--contain", "--no-home", "--no-eval", "--cwd", "/", "x",
                          "/p", "a b"));
}

TEST(Helpers, ThatOnlyReadCanDoNothingElse) {
  const HelperRequest request{
      .image = "x", .program = {"/p"}, .mounts = {{"/a", "/p", true}}, .network = "none", .only_reads = true};
  EXPECT_THAT(plan_helper(kDocker, request).argv,
              AllOf(Contains("--read-only"), Contains("--cap-drop=all"), Contains("/a:/p:ro")));
  EXPECT_EQ(after(plan_helper(kDocker, request).argv, "--network"), "none");
  EXPECT_THAT(plan_helper(kDocker, {.image = "x", .program = {"/p"}, .mounts = {{"/a:b", "/p"}}}).argv,
              Contains("type=bind,source=/a:b,destination=/p"));
}

TEST(Extensions, ArgumentsOfPipStayWords) {
  const Environment environment({{"https_proxy", "http://proxy:3128"}, {"SECRET", "x"}});
  ExtendRequest request{.image = "ada/x",
                        .packages = {"rich>=13; python_version > '3'"},
                        .folder = "/f",
                        .temporary = "/t",
                        .inside = "/in"};
  request.requirements = "/r.txt";
  const auto client = plan_extension(kPodman, request, environment);
  const auto& online = client.argv;
  EXPECT_EQ(client.environment({}).find("https_proxy"), "http://proxy:3128");
  EXPECT_THAT(online,
              AllOf(Contains("https_proxy"), Not(Contains(HasSubstr("proxy:3128"))), Not(Contains(HasSubstr("SECRET"))),
                    Contains("/r.txt:/opt/yoke/requirements.txt:ro"), Not(Contains("--network"))));
  EXPECT_EQ(online.back(), "rich>=13; python_version > '3'");
  request.wheels = "/w";
  const auto offline = plan_extension(kPodman, request, environment).argv;
  EXPECT_THAT(offline,
              AllOf(Contains("--no-index"), Contains("/w:/opt/yoke/wheels:ro"), Not(Contains(HasSubstr("proxy")))));
  EXPECT_EQ(after(offline, "--network"), "none");
}

TEST(Extensions, AreMountedByApptainer) {
  Request request{.image = "lab.sif", .program = {"true"}};
  request.folder = request.init = request.command = request.meeting = "/x";
  EXPECT_THAT(plan_container(kApptainer, request, {}).words({}), Not(Contains(HasSubstr("extension"))));
  request.extension = "/lab/x.sqsh";
  EXPECT_THAT(plan_container(kApptainer, request, {}).words({}),
              AllOf(Contains("type=bind,source=/lab/x.sqsh,destination=/opt/yoke/extension,image-src=/"),
                    Contains("APPTAINERENV_PREPEND_PATH=/opt/yoke/extension/bin"),
                    Contains("APPTAINERENV_VIRTUAL_ENV=/opt/yoke/extension")));
  request.extension = "/lab/a,b.sqsh";
  EXPECT_THAT(plan_container(kApptainer, request, {}).words({}),
              Contains("type=bind,\"source=/lab/a,b.sqsh\",destination=/opt/yoke/extension,image-src=/"));
}

TEST(Extensions, DerivedImagesFindTheirProgramsFirst) {
  ImageFacts facts;
  EXPECT_EQ(containerfile_of("ada/x", facts, "/e"),
            "FROM ada/x\nCOPY venv /e\nENV VIRTUAL_ENV=/e "
            "PATH=\"/e/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"\n");
  facts.variables = {"A=1", "PATH=/opt/$x:\"/b"};
  EXPECT_THAT(containerfile_of("ada/x", facts, "/e"), HasSubstr("PATH=\"/e/bin:/opt/\\$x:\\\"/b\"\n"));
  EXPECT_THAT(test::message_of([&] { containerfile_of("x\nRUN y", facts, "/e"); }), HasSubstr("no name of an image"));
}

}  // namespace
}  // namespace yoke::container
