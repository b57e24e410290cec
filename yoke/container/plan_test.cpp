#include "yoke/container/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::container {
namespace {

using testing::HasSubstr;
using testing::Not;

Request request_of(uid_t uid) {
  return {.image = "image:1",
          .program = {"python", "train.py"},
          .name = "ada_x",
          .user = {.uid = uid, .gid = uid, .groups = {uid, 100}, .name = uid == 0 ? "root" : "ada"},
          .mounts = {{"/data", "/data", true}},
          .folder = "/home/ada/w",
          .init = "/y/container-init",
          .command = "/y/yoke",
          .meeting = "/run/user/7/m",
          .host_memory_bytes = int64_t{64} << 30};
}

std::string planned(const Engine& engine, const Request& request) {
  const auto argv = plan_container(engine, request, grant_devices(engine, {}));
  return fmt::format("{} ", fmt::join(argv, " "));
}

TEST(Plan, TheUserIsTheSameInside) {
  const struct {
    EngineKind kind;
    bool is_rootless;
    uid_t uid;
    const char *has, *has_not;
  } cases[] = {
      {EngineKind::kPodman, true, 1000, "--userns keep-id ", "--user "},
      {EngineKind::kPodman, false, 0, "--rm ", "--userns"},
      {EngineKind::kDocker, false, 1000, "--user 1000:1000 --group-add 100 ", "--userns"},
      {EngineKind::kDocker, false, 0, "--rm ", "--user "},
      {EngineKind::kDocker, true, 1000, "--rm ", "--user "},
  };
  for (const auto& one : cases) {
    const auto line =
        planned({.kind = one.kind, .program = "/e", .version = {29, 0, 0}, .is_rootless = one.is_rootless},
                request_of(one.uid));
    EXPECT_THAT(line, HasSubstr(one.has));
    EXPECT_THAT(line, Not(HasSubstr(one.has_not)));
    EXPECT_THAT(line, HasSubstr("--volume /home/ada/w:/workspace "));
    EXPECT_THAT(line, HasSubstr("--volume /data:/data:ro "));
    EXPECT_THAT(line, HasSubstr("--log-opt max-size=52428800 "));
    EXPECT_TRUE(line.ends_with("--entrypoint /opt/yoke/init image:1 python train.py ")) << line;
    EXPECT_EQ(line.find("--env USER=ada ") != line.npos, one.uid != 0);
  }
}

TEST(Plan, ValuesOfTheEnvironmentAreNotOnTheCommandLine) {
  auto request = request_of(0);
  request.variables = {{"HF_TOKEN", "secret"}, {"MODE", "fast"}};
  request.inherited = {"HF_TOKEN"};
  for (const auto kind : {EngineKind::kPodman, EngineKind::kDocker}) {
    const auto line = planned({.kind = kind, .program = "/e", .version = {29, 0, 0}}, request);
    EXPECT_THAT(line, HasSubstr("--env HF_TOKEN --env MODE=fast "));
  }
}

TEST(Plan, NoLimitIsAboveWhatTheEngineCanGive) {
  Engine engine{.kind = EngineKind::kPodman, .program = "/e", .version = {5, 0, 0}};
  EXPECT_THAT(planned(engine, request_of(0)),
              HasSubstr("--ulimit nofile=1048576:1048576 --ulimit memlock=-1:-1 --ulimit stack=67108864:67108864 --"));
  engine.limits = {20'000, 32'768, 65'536, 1'000'000, false};
  EXPECT_THAT(planned(engine, request_of(0)),
              HasSubstr("--ulimit nofile=20000:20000 --ulimit memlock=65536:65536 --ulimit stack=1000000:1000000 "
                        "--ulimit nproc=32768:32768 "));
}

TEST(Plan, SharedMemoryIsTheHostsOrLarge) {
  Engine engine{.kind = EngineKind::kPodman, .program = "/e", .version = {5, 0, 0}, .is_rootless = true};
  EXPECT_THAT(planned(engine, request_of(7)), HasSubstr("--ipc=host "));
  engine.has_message_queues = false;
  EXPECT_THAT(planned(engine, request_of(7)), HasSubstr("--ipc=private --shm-size=34359738368 "));
  auto request = request_of(7);
  request.shared_bytes = 4096;
  EXPECT_THAT(planned(engine, request), HasSubstr("--ipc=private --shm-size=4096 "));
}

TEST(Plan, StreamsAreThoseOfTheCommand) {
  const Engine engine{.kind = EngineKind::kDocker, .program = "/e", .version = {29, 0, 0}};
  const struct {
    Foreground foreground;
    const char* words;
  } cases[] = {{Foreground::kDetached, " --detach "},
               {Foreground::kPipes, " --interactive --security-opt"},
               {Foreground::kTerminal, " --interactive --tty "},
               {Foreground::kNoInput, " --pull=never --security-opt"}};
  for (const auto& one : cases) {
    auto request = request_of(0);
    request.foreground = one.foreground;
    EXPECT_THAT(planned(engine, request), HasSubstr(one.words));
  }
}

TEST(Plan, ApptainerHidesWhatItWouldShowByItself) {
  Engine engine{.kind = EngineKind::kApptainer, .program = "/e", .version = {1, 4, 5}};
  const auto line = planned(engine, request_of(7));
  EXPECT_TRUE(line.starts_with("env APPTAINERENV_USER=ada ")) << line;
  EXPECT_THAT(line, HasSubstr("APPTAINERENV_NVIDIA_VISIBLE_DEVICES=void APPTAINERENV_CUDA_VISIBLE_DEVICES= "));
  // With --no-home, the home of a user would not exist.
  EXPECT_THAT(line, HasSubstr("/e exec --pid --no-init --cleanenv --contain --no-eval --cwd /workspace "));
  EXPECT_TRUE(line.ends_with("image:1 /opt/yoke/init python train.py ")) << line;
  engine.version = {1, 0, 3};
  EXPECT_THAT(planned(engine, request_of(7)), HasSubstr("--contain --pwd /workspace "));
  EXPECT_THAT(planned(engine, request_of(0)), HasSubstr("--contain --no-home --pwd /workspace "));
}

TEST(Plan, MountsAreParsed) {
  EXPECT_EQ(parse_mount("/a:/b", "/w"), (Mount{"/a", "/b"}));
  EXPECT_EQ(parse_mount("./a:/b:ro", "/w"), (Mount{"/w/a", "/b", true}));
  EXPECT_EQ(parse_mount("../a:/b:rw", "/w/x"), (Mount{"/w/a", "/b"}));
  EXPECT_EQ(parse_mount("volume:/b", "/w"), (Mount{"volume", "/b"}));
  for (const auto* text : {"/a", "/a:b", ":/b", "/a:/b:rx", "/a:/b:ro:x", ""})
    EXPECT_THROW(parse_mount(text, "/w"), Error);
  auto request = request_of(0);
  request.folder = "/with:colon";
  EXPECT_THROW(planned({.kind = EngineKind::kPodman}, request), Error);
}

}  // namespace
}  // namespace yoke::container
