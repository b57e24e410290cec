#include "yoke/container/engine.h"

#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::container {
namespace {

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
  EXPECT_THROW(read_docker_facts(engine, R"({"Client": {"Version": "28.2.2"}, "Server": null})", ""), Error);
  EXPECT_THROW(read_docker_facts(engine, "no JSON", ""), Error);
}

TEST(Engine, LimitsAreTheHardOnes) {
  const auto limits = parse_process_limits(
      "Limit                     Soft Limit           Hard Limit           Units     \n"
      "Max stack size            8388608              unlimited            bytes     \n"
      "Max processes             96365                96366                processes \n"
      "Max open files            1024                 20000                files     \n"
      "Max locked memory         65536                8388608              bytes     \n",
      "Name:\tx\nCapEff:\t000001fffeffffff\n");
  EXPECT_EQ(limits, (ProcessLimits{20'000, 96'366, 8'388'608, kUnlimited, false}));
  EXPECT_TRUE(parse_process_limits("", "CapEff:\t0000000001000000\n").can_raise);
  EXPECT_FALSE(parse_process_limits("", "CapEff:\t0000000000000000\n").can_raise);
}

}  // namespace
}  // namespace yoke::container
