#include "yoke/container/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/container/exec.h"

namespace yoke::container {
namespace {

using testing::AllOf;
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
  const auto client = plan_container(engine, request, grant_devices(engine, {}));
  return fmt::format("{} ", fmt::join(client.words({}), " "));
}

TEST(Plan, TheUserIsTheSameInside) {
  const struct {
    EngineKind kind;
    bool is_rootless;
    uid_t uid;
    const char *has, *has_not;
  } cases[] = {
      // Named for each, because an image may have another one.
      {EngineKind::kPodman, true, 1000, "--user 1000:1000 --userns keep-id ", "--group-add 100"},
      {EngineKind::kPodman, false, 0, "--user 0:0 --userns host ", "keep-id"},
      {EngineKind::kDocker, false, 1000, "--user 1000:1000 --group-add 100 ", "--userns"},
      {EngineKind::kDocker, false, 0, "--user 0:0 ", "--userns"},
      {EngineKind::kDocker, true, 1000, "--user 0:0 ", "--group-add"},
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

TEST(Plan, ValuesOfTheUserAreOnNoCommandLine) {
  auto request = request_of(7);
  request.variables = {
      {"HF_TOKEN", "first"}, {"HTTP_PROXY", "http://ada:secret@proxy"}, {"USER", "secret"}, {"HF_TOKEN", "secret"}};
  for (const auto kind : {EngineKind::kPodman, EngineKind::kDocker, EngineKind::kApptainer}) {
    const Engine engine{.kind = kind, .program = "/e", .version = {29, 0, 0}};
    const auto client = plan_container(engine, request, grant_devices(engine, {}));
    EXPECT_THAT(client.argv, testing::Each(Not(HasSubstr("secret"))));
    if (kind == EngineKind::kApptainer) {
      EXPECT_THAT(client.variables, testing::Contains(testing::Pair("APPTAINERENV_HTTP_PROXY", testing::_)));
      continue;
    }
    EXPECT_THAT(fmt::format("{}", fmt::join(client.argv, " ")),
                HasSubstr("--env YOKE_CONTAINER_SET_HTTP_PROXY --env YOKE_CONTAINER_SET_USER --env HF_TOKEN "))
        << "the client would use a proxy, and takes the user's name from USER";
    const auto environment = client.environment({{"USER", "ada"}});
    EXPECT_EQ(environment.find("USER"), "ada");
    EXPECT_EQ(environment.find("HF_TOKEN"), "secret");
    EXPECT_EQ(client.words(environment), client.argv) << "what is in the environment need not be shown";
  }
}

TEST(Plan, ClientsReadSomeVariablesThemselves) {
  for (const auto* name : {"HF_TOKEN", "GOOGLE_API_KEY", "PATHS", "NVIDIA_DRIVER_CAPABILITIES", "CUDA_VISIBLE_DEVICES"})
    EXPECT_FALSE(is_read_by_clients(name)) << name;
  for (const auto* name : {"PATH", "LD_PRELOAD", "DOCKER_HOST", "CONTAINERS_CONF", "https_proxy", "_CONTAINERS_X"})
    EXPECT_TRUE(is_read_by_clients(name)) << name;
}

TEST(Plan, PortsAreOpenOnThisMachineAloneUnlessAsked) {
  const std::pair<const char*, const char*> rows[] = {{"8888:8888", "127.0.0.1:8888:8888"},
                                                      {"8888", "127.0.0.1::8888"},
                                                      {"7000-7003:7000-7003/udp", "127.0.0.1:7000-7003:7000-7003/udp"},
                                                      {"0.0.0.0:80:8080", "0.0.0.0:80:8080"},
                                                      {"10.0.0.7::80", "10.0.0.7::80"},
                                                      {"[::1]:80:80", "[::1]:80:80"}};
  for (const auto& [given, published] : rows) {
    EXPECT_EQ(published_port(given), published);
    EXPECT_EQ(note_on_port(given).empty(), std::string(given) == published) << given;
  }
  EXPECT_EQ(note_on_port("8888:80/tcp"),
            "only programs on this machine reach port 8888; -p 0.0.0.0:8888:80/tcp opens it to all hosts");
  EXPECT_EQ(note_on_port("80/tcp"),
            "only programs on this machine reach port 80; -p 0.0.0.0::80/tcp opens it to all hosts");
  auto request = request_of(7);
  request.ports = {"8888:8888"};
  EXPECT_THAT(planned({.kind = EngineKind::kDocker, .program = "/e"}, request),
              HasSubstr(" --publish 127.0.0.1:8888:8888 "));
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
  Engine docker{.kind = EngineKind::kDocker, .program = "/e", .version = {20, 10, 0}, .is_rootless = true};
  EXPECT_THAT(planned(docker, request_of(7)), HasSubstr("--ipc=host --volume /dev/mqueue:/dev/mqueue "));
  EXPECT_THAT(planned(docker, request), AllOf(HasSubstr("--ipc=private "), Not(HasSubstr("mqueue"))));
  docker.has_message_queues = false;
  EXPECT_THAT(planned(docker, request_of(7)), AllOf(HasSubstr("--ipc=private "), Not(HasSubstr("mqueue"))));
  docker.is_rootless = false;
  EXPECT_THAT(planned(docker, request_of(7)), AllOf(HasSubstr("--ipc=host "), Not(HasSubstr("mqueue"))));
}

TEST(Plan, IdsAreThoseOfTheHost) {
  const Engine engine{.kind = EngineKind::kDocker, .program = "/e", .version = {20, 10, 0}, .remaps_ids = true};
  EXPECT_THAT(planned(engine, request_of(7)), HasSubstr("--userns host --user 7:7 "));
}

TEST(Plan, AnOldEngineIsNotTold) {
  const Engine engine{.kind = EngineKind::kDocker, .program = "/e", .version = {19, 3, 0}, .knows_pull = false};
  EXPECT_THAT(planned(engine, request_of(7)), Not(HasSubstr("--pull")));
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
  EXPECT_THAT(line, HasSubstr(" /e exec "));
  // With --no-home, the home would not exist. --bind would split paths at colons and commas.
  EXPECT_THAT(line, HasSubstr("/e exec --pid --no-init --cleanenv --contain --no-eval --cwd /workspace "));
  EXPECT_TRUE(line.ends_with("image:1 /opt/yoke/init python train.py ")) << line;
  engine.version = {1, 0, 3};
  EXPECT_THAT(planned(engine, request_of(7)), HasSubstr("--contain --pwd /workspace "));
  EXPECT_THAT(planned(engine, request_of(0)), HasSubstr("--contain --pwd /workspace "));
  EXPECT_THAT(line, HasSubstr("--mount type=bind,source=/data,destination=/data,ro "));
  EXPECT_THAT(line, Not(HasSubstr("HOME=")));
  auto request = request_of(7);
  request.variables = {{"HOME", "/home"}, {"HOME", "/workspace"}};
  EXPECT_THAT(planned(engine, request), HasSubstr(" APPTAINERENV_YOKE_CONTAINER_SET_HOME=/workspace "));
}

TEST(Plan, MountsAreParsed) {
  EXPECT_EQ(parse_mount("/a:/b", "/w"), (Mount{"/a", "/b"}));
  EXPECT_EQ(parse_mount("./a:/b:ro", "/w"), (Mount{"/w/a", "/b", true}));
  EXPECT_EQ(parse_mount("../a:/b:rw", "/w/x"), (Mount{"/w/a", "/b"}));
  EXPECT_EQ(parse_mount("volume:/b", "/w"), (Mount{"volume", "/b"}));
  for (const auto* text : {"/a", "/a:b", ":/b", "/a:/b:rx", "/a:/b:ro:x", ""})
    EXPECT_THROW(parse_mount(text, "/w"), Error);
}

TEST(Plan, PathsHaveAnyCharacters) {
  auto request = request_of(0);
  request.folder = "/runs/2021-03-10_06:10,\"x\"";
  request.mounts = {{"/data", "/a,b", true}, {"volume", "/c"}};
  const auto* const folder = "--mount type=bind,\"source=/runs/2021-03-10_06:10,\"\"x\"\"\",destination=/workspace ";
  const auto podman = planned({.kind = EngineKind::kPodman, .program = "/e"}, request);
  EXPECT_THAT(podman, AllOf(HasSubstr(folder), HasSubstr("--volume /data:/a,b:ro --volume volume:/c ")));
  const auto apptainer = planned({.kind = EngineKind::kApptainer, .program = "/e"}, request);
  EXPECT_THAT(apptainer,
              AllOf(HasSubstr(folder), HasSubstr("--mount type=bind,source=/data,\"destination=/a,b\",ro ")));
}

TEST(Plan, AnEngineSaysWhatItCannotDo) {
  const Engine apptainer{.kind = EngineKind::kApptainer, .version = {1, 0, 3}};
  const std::pair<std::function<void(Request&)>, const char*> rows[] = {
      {[](Request& request) { request.shared_bytes = 1; }, "--shm-size: apptainer has no such option"},
      {[](Request& request) { request.ports = {"80:80"}; },
       "-p 80:80: apptainer's containers are in the host's network"},
      {[](Request& request) { request.num_cpus = 1; }, "need apptainer 1.1 or later, and this is 1.0.3"}};
  for (const auto& [change, words] : rows) {
    auto request = request_of(7);
    check_request(apptainer, request);
    change(request);
    EXPECT_THAT(test::message_of([&] { check_request(apptainer, request); }), HasSubstr(words));
    check_request({.kind = EngineKind::kPodman}, request);
  }
}

TEST(Plan, LimitsArePassedOnAndLookedAt) {
  auto request = request_of(7);
  request.memory_bytes = int64_t{8} << 30;
  request.num_cpus = 1.5;
  for (const auto kind : {EngineKind::kPodman, EngineKind::kDocker, EngineKind::kApptainer}) {
    const Engine engine{.kind = kind, .program = "/e", .version = {29, 0, 0}};
    EXPECT_THAT(planned(engine, request), HasSubstr(" --memory 8589934592 --cpus 1.5 "));
  }
  const Engine engine{.kind = EngineKind::kPodman};
  EXPECT_EQ(missed_limit(engine, request, {.cpus = 1.5, .memory_bytes = int64_t{8} << 30}), std::nullopt);
  EXPECT_EQ(missed_limit(engine, request, {.cpus = 1, .memory_bytes = 4096}), std::nullopt) << "a site may give less";
  EXPECT_EQ(missed_limit(engine, request_of(7), {}), std::nullopt);
  EXPECT_THAT(missed_limit(engine, request, {.cpus = 1.5}).value_or(""),
              HasSubstr("podman's --memory did not take effect: the container may use all memory"));
  EXPECT_THAT(missed_limit(engine, request, {.memory_bytes = int64_t{9} << 30}).value_or(""),
              HasSubstr("--memory did not take effect: the container may use 9.0 GiB"));
  EXPECT_THAT(missed_limit(engine, request, {.cpus = 8, .memory_bytes = 4096}).value_or(""),
              HasSubstr("--cpus did not take effect: the container may use 8 CPUs"));
}

TEST(Plan, FilesOfVariablesAreReadAsDockerDoes) {
  const Environment environment({{"PASSED", "on"}});
  // Source  github.com/docker/cli, pkg/kvfile: the value is the rest of the line as it is.
  EXPECT_EQ(parse_variable_file("A=1\r\n\n# B=2\n  C=\"x\" #=y \nPASSED\nABSENT\nEMPTY=\n", "f", environment),
            (Variables{{"A", "1"}, {"C", "\"x\" #=y "}, {"PASSED", "on"}, {"EMPTY", ""}}));
  for (const auto* text : {"=1", "export A=1", "A =1"}) {
    EXPECT_THAT(test::message_of([&] { parse_variable_file(std::string("\n") + text, "f", environment); }),
                HasSubstr("--env-file f, line 2: give NAME=VALUE"))
        << text;
  }
  EXPECT_EQ(parse_variable_file("\xef\xbb\xbf"
                                "A=1\n",
                                "f", environment),
            (Variables{{"A", "1"}}));
}

TEST(Plan, AClientReachesAnotherProcessUnchanged) {
  const Client client{.argv = {"/e", "", "a\xff\nb", "c=\"d\""},
                      .variables = {{"A", "\xff\x01\n"}, {"EMPTY", ""}, {"LONG", std::string(300'000, 'x')}}};
  EXPECT_EQ(Client::from_bytes(client.to_bytes()), client);
  EXPECT_EQ(Client::from_bytes(Client{.argv = {"/e"}}.to_bytes()), (Client{.argv = {"/e"}}));
  for (const auto* const text : {"", "x", "5"}) {
    EXPECT_THROW(Client::from_bytes(std::string(text) + '\0' + "/e" + '\0'), Error) << text;
  }
}

TEST(Plan, ValuesThatEnginesWouldChangeAreRefused) {
  const Environment environment({{"PASSED", "caf\xe9"}});
  for (const auto& text : {std::string("A=caf\xe9"), std::string("PASSED"), std::string("A=b\0c", 5)}) {
    EXPECT_THAT(test::message_of([&] { parse_variable_file("OK=caf\xc3\xa9\n" + text, "f", environment); }),
                HasSubstr("--env-file f, line 2: engines of containers change values that are not UTF-8 text"));
  }
}

TEST(Plan, AnotherProgramInAContainer) {
  ExecRequest request{.name = "ada_x", .pid = 4711, .program = {"sh", "-c", "id"}, .foreground = Foreground::kPipes};
  const auto line = [&](EngineKind engine) {
    return fmt::format("{}", fmt::join(plan_exec(engine, "/e", request).argv, " "));
  };
  EXPECT_EQ(line(EngineKind::kPodman), "/e exec --interactive ada_x /opt/yoke/init --exec sh -c id");
  EXPECT_EQ(line(EngineKind::kApptainer),
            "/e --target 4711 --mount --pid --root --wd -- /opt/yoke/init --exec sh -c id");
  request.foreground = Foreground::kTerminal;
  request.working_folder = "/tmp";
  request.variables = {{"A", "b c"}};
  request.has_own_users = true;
  EXPECT_EQ(
      line(EngineKind::kDocker),
      "/e exec --interactive --tty --workdir /tmp --env YOKE_CONTAINER_SET_A ada_x /opt/yoke/init --exec sh -c id");
  EXPECT_EQ(line(EngineKind::kApptainer),
            "/e --target 4711 --mount --pid --root --user --preserve-credentials --wd=/proc/4711/root/tmp -- "
            "/opt/yoke/init --exec sh -c id");
  EXPECT_EQ(plan_exec(EngineKind::kApptainer, "/e", request).variables, (Variables{{"YOKE_CONTAINER_SET_A", "b c"}}));
}

}  // namespace
}  // namespace yoke::container
