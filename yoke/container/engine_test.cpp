#include "yoke/container/engine.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"

namespace yoke::container {
namespace {

using testing::HasSubstr;

TEST(Engine, VersionsAreReadFromWhatEnginesPrint) {
  const struct {
    const char* text;
    std::optional<Version> version;
  } cases[] = {
      {"podman version 4.3.1\n", Version{4, 3, 1}},
      {"Docker version 28.2.2, build e6534b4\n", Version{28, 2, 2}},
      {"20.10.24+dfsg1", Version{20, 10, 24}},
      {"apptainer version 1.4.5-1.el9\n", Version{1, 4, 5}},
      {"podman version 6.0.0-dev", Version{6, 0, 0}},
      {"1.5", Version{1, 5, 0}},
      {"", std::nullopt},
      {"version unknown", std::nullopt},
      {"7", std::nullopt},
  };
  for (const auto& one : cases) EXPECT_EQ(parse_version(one.text), one.version) << one.text;
  EXPECT_LT((Version{4, 10, 0}), (Version{5, 0, 0}));
  EXPECT_LT((Version{4, 9, 9}), (Version{4, 10, 0}));
}

TEST(Engine, DockersDaemonCountsAndNotItsClient) {
  Engine engine{.kind = EngineKind::kDocker, .version = {28, 2, 2}};
  read_docker_facts(engine, R"({"Client": {"Version": "28.2.2"}, "Server": {"Version": "20.10.24+dfsg1"}})",
                    R"({"Runtimes": {"runc": {}}, "SecurityOptions": ["name=seccomp,profile=default"]})");
  EXPECT_EQ(engine.version, (Version{20, 10, 24}));
  EXPECT_FALSE(engine.has_cdi);
  EXPECT_FALSE(engine.is_rootless);
  EXPECT_FALSE(engine.has_nvidia_runtime);
  read_docker_facts(engine, R"({"Server": {"Version": "28.3.0"}})",
                    R"({"Runtimes": {"runc": {}, "nvidia": {}}, "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
                        "SecurityOptions": ["name=rootless"]})");
  EXPECT_TRUE(engine.has_cdi);
  EXPECT_TRUE(engine.is_rootless);
  EXPECT_TRUE(engine.has_nvidia_runtime);
  EXPECT_FALSE(engine.remaps_ids);
  read_docker_facts(engine, R"({"Server": {"Version": "20.10.24"}})", R"({"SecurityOptions": ["name=userns"]})");
  EXPECT_TRUE(engine.remaps_ids);
  EXPECT_THROW(read_docker_facts(engine, R"({"Client": {"Version": "28.2.2"}, "Server": null})", ""), Error);
  EXPECT_THROW(read_docker_facts(engine, "no JSON", ""), Error);
}

TEST(Engine, SubordinateIdsAreInAFileUnlessTheMachineHasAnotherSource) {
  const std::pair<const char*, const char*> rows[] = {{"", "files"},
                                                      {"passwd: files sss\n", "files"},
                                                      {"# subid: sss\nsubid:\nsubid:\tfiles # as usual\n", "files"},
                                                      {"passwd: files\nSUBID:   sss\nsubid: files", "sss"},
                                                      {"subid: files sss\n", "files sss"}};
  for (const auto& [text, source] : rows) EXPECT_EQ(source_of_subordinate_ids(text), source) << text;
}

TEST(Engine, AnOldProgramDoesNotKnowPull) {
  // docker/cli#1498 came with docker 20.10, and containers/podman#3617 with podman 1.5.2.
  for (const auto& [client, knows] : {std::pair("19.03.15", false), {"20.10.0", true}, {"28.2.2", true}}) {
    Engine docker{.kind = EngineKind::kDocker};
    read_docker_facts(
        docker, fmt::format(R"({{"Client": {{"Version": "{}"}}, "Server": {{"Version": "28.2.2"}}}})", client), "{}");
    EXPECT_EQ(docker.knows_pull, knows) << client;
  }
  for (const auto& [version, knows] : {std::pair(Version{1, 5, 1}, false), {Version{1, 5, 2}, true}}) {
    Engine podman{.kind = EngineKind::kPodman, .version = version};
    complete_facts(podman);
    EXPECT_EQ(podman.knows_pull, knows) << version.text();
  }
}

TEST(Engine, LimitsAreTheHardOnes) {
  constexpr const char* kHost = "         0          0 4294967295\n";
  const auto limits = parse_process_limits(
      "Limit                     Soft Limit           Hard Limit           Units     \n"
      "Max stack size            8388608              unlimited            bytes     \n"
      "Max processes             96365                96366                processes \n"
      "Max open files            1024                 20000                files     \n"
      "Max locked memory         65536                8388608              bytes     \n",
      "Name:\tx\nCapEff:\t000001fffeffffff\n", kHost);
  EXPECT_EQ(limits, (ProcessLimits{20'000, 96'366, 8'388'608, kUnlimited, false}));
  EXPECT_TRUE(parse_process_limits("", "CapEff:\t0000000001000000\n", kHost).can_raise);
  EXPECT_FALSE(parse_process_limits("", "CapEff:\t0000000000000000\n", kHost).can_raise);
  // A rootless daemon has all capabilities in its user namespace.
  for (const auto* map : {"         0       1000          1\n         1     100000      65536\n", "0 0 65536\n", ""}) {
    EXPECT_FALSE(parse_process_limits("", "CapEff:\t000001ffffffffff\n", map).can_raise) << map;
  }
}

/// Programs with the names of engines, and no other programs.
class FakeEngines : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& script) const {
    folder_.write("bin/" + name, "#!/bin/sh\n" + script, true);
  }
  Environment environment(const std::string& name = "X", const std::string& value = "") const {
    return Environment({{"PATH", folder_.path("bin")}, {name, value}});
  }
  test::TemporaryFolder folder_;
};

/// Ten times what a shell needs on a busy machine to print a line.
constexpr std::chrono::milliseconds kShortTime(2000);

TEST_F(FakeEngines, OneThatHangsIsNamedAndTheOthersAreAsked) {
  write(
      "docker",
      "case $1 in --version) echo Docker version 20.10.24 ;; context) echo unix:///none ;; *) exec /bin/sleep 1000 ;; "
      "esac\n");
  EXPECT_THAT(test::message_of([&] { choose_engine({}, environment(), kShortTime); }, ErrorCode::kUnavailable),
              HasSubstr("docker has not answered `docker version` for 2 s"));
  write("apptainer", "echo apptainer version 1.4.5\n");
  const auto engine = choose_engine({}, environment(), kShortTime);
  EXPECT_EQ(engine.kind, EngineKind::kApptainer);
  EXPECT_THAT(engine.passed_over, HasSubstr("docker has not answered `docker version`"));
}

TEST_F(FakeEngines, ThatRunContainersOnOtherMachinesAreRefused) {
  write("podman", "case $1 in --version) echo podman version 4.3.1 ;; *) echo crun ;; esac\n");
  write("docker",
        "case $1 in --version) echo Docker version 20.10.24 ;; context) echo ssh://gpu7 ;; *) exit 1 ;; esac\n");
  const auto refusal = [&](EngineKind kind, const Environment& environment) {
    return test::message_of([&] { find_engine(kind, environment); }, ErrorCode::kFailedPrecondition);
  };
  // cmd/podman/registry/remote.go
  EXPECT_THAT(
      refusal(EngineKind::kPodman, environment("CONTAINER_HOST", "ssh://gpu7/run/podman.sock")),
      HasSubstr("CONTAINER_HOST is ssh://gpu7/run/podman.sock: that service of podman runs on another machine"));
  EXPECT_THAT(refusal(EngineKind::kPodman, environment("CONTAINER_CONNECTION", "gpu7")),
              HasSubstr("CONTAINER_CONNECTION is gpu7"));
  EXPECT_THAT(refusal(EngineKind::kDocker, environment()),
              HasSubstr("docker's context is for ssh://gpu7: that daemon"));
  EXPECT_THAT(refusal(EngineKind::kDocker, environment("DOCKER_HOST", "ssh://gpu7")),
              HasSubstr("DOCKER_HOST is ssh://gpu7"));
  EXPECT_TRUE(find_engine(EngineKind::kPodman, environment("CONTAINER_HOST", "unix:///run/podman.sock")));
}

TEST_F(FakeEngines, AFileIsForApptainer) {
  write("podman", "case $1 in --version) echo podman version 4.3.1 ;; *) echo crun ;; esac\n");
  write("apptainer", "echo apptainer version 1.4.5\n");
  folder_.write("lab.sif", "");
  const auto chosen = [&](EngineWish wish) { return choose_engine(wish, environment()).kind; };
  EXPECT_EQ(chosen({.image = "debian:12"}), EngineKind::kPodman);
  EXPECT_EQ(chosen({.image = folder_.path("lab.sif")}), EngineKind::kApptainer);
  EXPECT_EQ(chosen({.site = EngineKind::kPodman, .image = folder_.path("lab.sif")}), EngineKind::kApptainer);
  for (const auto site : {std::optional<EngineKind>(), std::optional(EngineKind::kPodman)}) {
    EXPECT_THAT(test::message_of([&] { chosen({.site = site, .image = "lab.sif"}); }, ErrorCode::kNotFound),
                HasSubstr("lab.sif: there is no such image file or folder"));
  }
  EXPECT_THAT(test::message_of([&] { chosen({.chosen = EngineKind::kPodman, .image = folder_.path("lab.sif")}); }),
              HasSubstr("podman takes names of images"));
}

}  // namespace
}  // namespace yoke::container
