// Real containers of podman, docker and Apptainer, as root and as ada: what is in them, and how long a claim lasts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/container/machine.h"
#include "tests/support/lines.h"
#include "tests/support/terminal.h"

namespace yoke::test {

void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.engine << " as " << setting.uid; }

namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

using Words = std::vector<std::string>;

/// Only stops a hang: an engine of a very busy machine has taken 20 s to start a container.
constexpr milliseconds kLongStart(90'000);

/// Whether a process has ended; its parent may not have noticed yet.
bool has_ended(pid_t pid) { return state_of(pid) == 'X' || state_of(pid) == 'Z'; }

class Containers : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to make device nodes and to be several users";
    const auto& engine = GetParam().engine;
    const bool is_named = engine == "apptainer" && std::getenv("YOKE_APPTAINER") != nullptr;
    const auto program = engine == "docker" ? "dockerd" : engine;
    if (!is_named && !has_program(program)) GTEST_SKIP() << "needs " << program;
    machine_ = std::make_unique<ContainerMachine>(GetParam());
  }
  const ContainerMachine& machine() const { return *machine_; }
  bool is(const char* engine) const { return GetParam().engine == engine; }
  std::string user() const { return GetParam().uid == 0 ? "root" : "ada"; }

  std::unique_ptr<ContainerMachine> machine_;
};

TEST_P(Containers, AProgramHasItsUserItsFoldersAndItsDevices) {
  const auto result =
      run(machine().shell({"--gpu", "2", "-v", "../data:/data:ro", "-e", "GREETING=a b, c"},
                          "id -u; id -g; pwd; cat /data/given; touch /data/x || echo no-write; echo in > made; ls -l "
                          "/proc/self/ns/ipc | grep -o 'ipc:.*' > ipc; ls -d /dev/nvidia[0-9]; "
                          "echo \"$CUDA_VISIBLE_DEVICES\" | grep -o GPU- ; echo \"$GREETING\"; exit 7"));
  EXPECT_EQ(result.exit_code, 7) << result.err;
  const auto id = std::to_string(GetParam().uid);
  const auto is_all = is("apptainer");  // --nv binds the nodes of all GPUs, and CUDA_VISIBLE_DEVICES chooses
  EXPECT_EQ(result.out,
            id + "\n" + id + "\n/workspace\ngiven\nno-write\n/dev/nvidia0\n/dev/nvidia1\n" +
                (is_all ? "/dev/nvidia2\n/dev/nvidia3\n/dev/nvidia4\n/dev/nvidia5\n/dev/nvidia6\n/dev/nvidia7\n" : "") +
                "GPU-\nGPU-\na b, c\n")
      << result.err;
  EXPECT_EQ(slurp(machine().path("work/made")), "in\n");
  EXPECT_EQ(slurp(machine().path("work/ipc")), std::filesystem::read_symlink("/proc/self/ns/ipc").native() + "\n");
  EXPECT_EQ(owner_of(machine().path("work/made")), GetParam().uid);
  EXPECT_EQ(machine().num_claimed(), 0);
  EXPECT_THAT(machine().containers(), SizeIs(0));
}

TEST_P(Containers, NoDeviceMeansNoDevice) {
  for (const auto* word : {"none", ""}) {
    const auto result =
        run(machine().shell({"--gpu", word},
                            "ls /dev | grep nvidia[0-9]; echo home=$HOME; touch $HOME/file && echo writable; env | "
                            "grep VISIBLE_DEVICES"));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("writable\n"));
    if (GetParam().uid != 0) {
      EXPECT_THAT(result.out, HasSubstr("home=/"));
    }
    EXPECT_THAT(result.out, HasSubstr("CUDA_VISIBLE_DEVICES=\n"));
    EXPECT_THAT(result.out, HasSubstr("NVIDIA_VISIBLE_DEVICES=void\n"));
    EXPECT_THAT(result.out, Not(HasSubstr("nvidia0")));
  }
}

TEST_P(Containers, OptionsAreTheSameUnderAllEngines) {
  const std::string folder = "work/2021-03-10_06:10,\"x\"";
  machine().write(folder + "/vars", "A=1\r\n# C=3\n\n  B=\"b\" # c \nPASSED\nABSENT\nEMPTY=\nMINE=file\nHOME=/file\n");
  machine().write("work/a,b/given", "given\n");
  ASSERT_EQ(chown(machine().path(folder).c_str(), GetParam().uid, GetParam().uid), 0);
  auto options = machine().shell(
      {"--gpu", "none", "--env-file", "vars", "-e", "MINE=option", "-e", "HOME=/workspace", "-v", "../a,b:/c,d:ro"},
      "pwd; cat /c,d/given; echo \"$A;$B;$PASSED;${ABSENT-none};${EMPTY-none};$C;$MINE;$HOME\"; "
      "touch /c,d/x || echo no-write; touch made");
  options.environment.emplace_back("PASSED", "on");
  options.folder = machine().path(folder);
  const auto result = run(options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "/workspace\ngiven\n1;\"b\" # c ;on;none;;;option;/workspace\nno-write\n");
  EXPECT_EQ(owner_of(machine().path(folder + "/made")), GetParam().uid);
  EXPECT_EQ(std::filesystem::status(machine().path("work/a")).type(), std::filesystem::file_type::not_found);

  // More than a message between two processes can have.
  std::string text;
  for (const char* const name : {"X1=", "X2=", "X3="}) text += name + std::string(100'000, 'x') + "\n";
  machine().write("work/long", text);
  const auto many = run(machine().shell({"--gpu", "none", "--env-file", "long"}, "echo ${#X1} ${#X2} ${#X3}"));
  EXPECT_EQ(many.out, "100000 100000 100000\n") << many.err;
  machine().write("work/long", "TOO_LONG=" + std::string(200'000, 'x') + "\n");
  const auto over = run(machine().shell({"--gpu", "1", "--env-file", "long"}, "true"));
  EXPECT_EQ(over.exit_code, 64);
  EXPECT_THAT(over.err, HasSubstr("too long: Linux takes at most 128 KiB for each"));
  EXPECT_TRUE(wait_until([&] { return machine().num_claimed() == 0; }));
  const auto changed = run(machine().shell({"--gpu", "none", "-e", "A=caf\xe9"}, "true"));
  EXPECT_EQ(changed.exit_code, 64);
  EXPECT_THAT(changed.err, HasSubstr("-e A: engines of containers change values that are not UTF-8 text"));

  const auto limited =
      run(machine().shell({"--gpu", "none", "-m", "100m", "--cpus", "1.5"},
                          "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; true"));
  if (is("docker") || (is("podman") && GetParam().uid == 0)) {
    EXPECT_EQ(limited.exit_code, 0) << limited.err;
    EXPECT_EQ(limited.out, "104857600\n");
  } else if (limited.exit_code != 0) {  // whether a user may limit groups depends on the machine
    EXPECT_THAT(limited.exit_code, testing::AnyOf(69, 125)) << limited.err;
    EXPECT_THAT(limited.err, testing::AnyOf(HasSubstr("--memory did not take effect"), HasSubstr("cgroup")))
        << limited.err;
    EXPECT_EQ(limited.out, "");
  }

  const auto with = [&](Words before) {
    auto command = machine().shell({"--gpu", "none", "-v", machine().path("closed/folder") + ":/x"}, "true");
    command.argv.insert(command.argv.begin() + 2, before.begin(), before.end());
    return run(command);
  };
  std::filesystem::create_directories(machine().path("closed/folder"));
  chmod(machine().path("closed").c_str(), 0700);
  if (GetParam().uid != 0) {
    EXPECT_THAT(with({}).err, HasSubstr("closed/folder cannot be used: Permission denied\n"));
  }
  if (!std::filesystem::exists("/dev/fuse")) return;
  // A file system whose program has ended, as when the server of sshfs is gone.
  const auto lost = with(
      {"bash", "-c",
       "exec 9<> /dev/fuse && mount -i -t fuse -o fd=9,rootmode=40000,user_id=0,group_id=0,allow_other lost \"$0\" && "
       "exec 9>&- && chmod 755 \"${0%/*}\" && exec \"$@\"",
       machine().path("closed/folder")});
  EXPECT_THAT(lost.err,
              HasSubstr("closed/folder cannot be used: Transport endpoint is not connected; its server is lost"));
}

TEST_P(Containers, AClaimLastsAsLongAsTheContainerAlsoIfTheClientIsKilled) {
  auto options = machine().shell({"--gpu", "2"},
                                 "touch began; trap 'exit 3' TERM; while true; do sleep 0.1; "
                                 "[ ! -e asked ] || touch answered; done");
  Command command(options);
  ASSERT_TRUE(wait_until([&] { return std::filesystem::exists(machine().path("work/began")); }, kLongStart));
  ASSERT_EQ(machine().num_claimed(), 2);
  const auto before = machine().containers();
  ASSERT_THAT(before, SizeIs(1));
  EXPECT_EQ(before[0].at("devices"), Json({"0", "1"}));
  EXPECT_EQ(before[0].at("state"), "running");
  EXPECT_TRUE(before[0].at("name").get<std::string>().starts_with(user() + "_")) << "and not $USER: " << before;
  const auto init = before[0].at("pid").get<pid_t>();
  const auto clients = children_of(command.pid());
  for (const auto client : clients) {
    if (client != before[0].at("keeper").get<pid_t>()) kill(client, SIGKILL);
  }
  command.signal(SIGKILL);
  command.wait();
  if (is("apptainer")) {  // its client is the container's parent, and takes it along
    EXPECT_TRUE(wait_until([&] { return machine().num_claimed() == 0; }));
    EXPECT_TRUE(has_ended(init));
    return;
  }
  machine().write("work/asked", "");
  EXPECT_TRUE(wait_until([&] { return std::filesystem::exists(machine().path("work/answered")); }, kLongStart));
  EXPECT_EQ(machine().num_claimed(), 2);
  EXPECT_FALSE(has_ended(init));
  const auto stopped = run(machine().yoke({"container", "stop", before[0].at("name")}));
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_TRUE(has_ended(init));
  EXPECT_EQ(machine().num_claimed(), 0);
}

TEST_P(Containers, SigtermEndsAllProcessesAndGivesTheDevicesBack) {
  Command command(machine().shell({"--gpu", "1"}, "sleep 1000 & sleep 1000 & touch began; wait"));
  ASSERT_TRUE(wait_until([&] { return std::filesystem::exists(machine().path("work/began")); }, kLongStart))
      << command.err();
  ASSERT_THAT(machine().containers(), SizeIs(1));
  const auto init = machine().containers()[0].at("pid").get<pid_t>();
  command.signal(SIGTERM);
  EXPECT_EQ(command.wait().exit_code, 128 + SIGTERM);
  EXPECT_TRUE(has_ended(init));
  EXPECT_EQ(machine().num_claimed(), 0);
}

TEST_P(Containers, CtrlCEndsTheContainer) {
  auto options = machine().container({"--gpu", "1"}, {"sh", "-c", "sleep 1000 & touch began; sleep 1000"});
  ShellOnTerminal shell(options.environment);
  std::string line = "cd '" + options.folder + "' && ";
  for (const auto& word : options.argv) line += "'" + word + "' ";
  shell.run(line + "; echo status=$?");
  ASSERT_TRUE(shell.wait_until([&] { return std::filesystem::exists(machine().path("work/began")); }, kLongStart))
      << shell.out();
  shell.type(kCtrlC);
  EXPECT_TRUE(shell.shows("status=130")) << shell.out();
  EXPECT_EQ(machine().num_claimed(), 0);
}

TEST_P(Containers, PrintShowsTheCommandLine) {
  const auto lines = run(machine().shell({"--gpu", "2", "--print", "--name", "mine"}, "true"));
  ASSERT_EQ(lines.exit_code, 0) << lines.err;
  std::string joined;
  for (const auto& word :
       Json::parse(run(machine().shell({"--gpu", "2", "--print", "--json", "--name", "mine"}, "true")).out)) {
    joined += word.get<std::string>() + "\n";
  }
  EXPECT_EQ(lines.out, joined);
  EXPECT_EQ(machine().num_claimed(), 0);
  if (!is("apptainer")) {
    EXPECT_THAT(lines.out, HasSubstr("--name\n" + user() + "_mine\n"));
  }
}

TEST_P(Containers, WaitsForDevices) {
  Command all(machine().shell({"--gpu", "all"}, "echo started; until [ -e end ]; do sleep 0.1; done"));
  ASSERT_TRUE(all.wait_for_output("started")) << all.err();
  Command waiting(machine().shell({"--gpu", "2", "--wait", "60s"}, "echo $CUDA_VISIBLE_DEVICES"));
  ASSERT_TRUE(waiting.wait_for_output("waiting: ")) << waiting.err();
  machine().write("work/end", "");
  const auto result = waiting.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(",GPU-"));
}

TEST_P(Containers, TheTimeOfAClaimEndsTheContainer) {
  const auto result =
      run(machine().shell({"--gpu", "1", "--for", "6s"}, "trap 'exit 9' TERM; while true; do sleep 0.1; done"));
  EXPECT_EQ(result.exit_code, 9) << result.err;
  EXPECT_EQ(machine().num_claimed(), 0);
}

/// An engine that ignores its options for devices without a word, as podman did with --gpus before 5.0.
TEST_P(Containers, AnOptionThatTheEngineIgnoresIsSeenInTheContainer) {
  const auto& engine = GetParam().engine;
  std::filesystem::rename(machine().path("bin/" + engine), machine().path("bin/real"));
  machine().write(
      "bin/" + engine,
      "#!/bin/bash\nargs=()\nwhile [ $# -gt 0 ]; do\n  case $1 in --device | --gpus) shift 2 ;; --nv) shift ;; "
      "*) args+=(\"$1\"); shift ;; esac\ndone\nexec " +
          machine().path("bin/real") + " \"${args[@]}\"\n",
      true);
  const auto result = run(machine().shell({"--gpu", "1"}, "echo has started"));
  EXPECT_EQ(result.exit_code, 69);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("did not take effect: in the container, /dev/nvidia0 is missing"));
  EXPECT_THAT(result.err, HasSubstr(is("docker")   ? "docker's --gpus"
                                    : is("podman") ? "--device nvidia.com/gpu=0"
                                                   : "--nv"));
  EXPECT_EQ(machine().num_claimed(), 0);
}

TEST_P(Containers, RanksRunInAnImageWithTheCLibrary) {
  const auto without =
      run(machine().container({"--gpu", "2"}, {"yoke", "run", "-n", "2", "--", "sh", "-c", "echo $RANK"}));
  EXPECT_EQ(without.exit_code, 69) << without.err;
  EXPECT_THAT(without.err, HasSubstr("the image has no C library of GNU"));
  const auto copied =
      run({.argv = {"sh", "-c",
                    "cd \"$1\"; for file in $(ldd bin/yoke | grep -o '/[^ ]*'); do mkdir -p rootfs$(dirname "
                    "$file); cp $file rootfs$file; done",
                    "sh", machine().path("")}});
  ASSERT_EQ(copied.exit_code, 0) << copied.err;
  machine().import();
  const auto result = run(machine().container(
      {"--gpu", "2"},
      {"yoke", "run", "-n", "2", "--", "sh", "-c",
       "touch $RANK-of-$WORLD_SIZE; until [ -e 0-of-2 ] && [ -e 1-of-2 ]; do sleep 0.1; done; exit 5"}));
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_TRUE(std::filesystem::exists(machine().path("work/0-of-2")));
  EXPECT_TRUE(std::filesystem::exists(machine().path("work/1-of-2")));
  if (is("docker")) return;  // the flag has no place for --network
  const auto by_flag = run(machine().yoke({"run", "--engine", GetParam().engine, "--container", machine().image(),
                                           "-v../data:/data", "--volume", "../data:/given", "-n", "2", "--", "sh", "-c",
                                           "cat /data/given /given/given; touch $RANK-by-flag"}));
  EXPECT_EQ(by_flag.exit_code, 0) << by_flag.err;
  EXPECT_TRUE(std::filesystem::exists(machine().path("work/1-by-flag")));
}

TEST_P(Containers, InTheBackgroundTheyHaveALogOfLimitedSize) {
  const auto script = "echo printed; trap 'echo last; exit' TERM; while true; do sleep 0.1; done";
  const auto started = run(machine().shell({"--gpu", "1", "--detach", "--name", machine().tag()}, script));
  ASSERT_EQ(started.exit_code, 0) << started.err;
  const auto name = user() + "_" + machine().tag();
  EXPECT_EQ(started.out, name + "\n");
  EXPECT_EQ(machine().num_claimed(), 1);
  EXPECT_TRUE(wait_until([&] { return run(machine().yoke({"container", "logs", name})).out == "printed\n"; }));
  auto inside = machine().yoke({"container", "exec", "-it", "-e", "GOGC", "-w", "/tmp", name, "--", "sh", "-c",
                                "pwd; echo \"$GOGC\"; id -u; env | grep -c '^CUDA_VISIBLE_DEVICES=GPU-'; cat; exit 4"});
  inside.input = "typed\n";
  inside.environment.emplace_back("GOGC", "a b");  // clients of engines read it, too
  const auto second = run(inside);
  EXPECT_EQ(second.exit_code, 4) << second.err;
  EXPECT_EQ(second.out, "/tmp\na b\n" + std::to_string(GetParam().uid) + "\n1\ntyped\n") << second.err;
  const auto missing = run(machine().yoke({"container", "exec", name, "no-such-program"}));
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_THAT(missing.err, HasSubstr("yoke container exec: cannot start no-such-program in the container"));
  if (is("apptainer")) {
    Command follower(machine().yoke({"container", "logs", "-f", name}));
    ASSERT_TRUE(follower.wait_for_output("printed\n")) << follower.err();
    EXPECT_EQ(run(machine().yoke({"container", "stop", name})).exit_code, 0);
    const auto followed = follower.wait();
    // The shell may say in between that its sleep got the signal, too.
    EXPECT_THAT(followed.out, AllOf(StartsWith("printed\n"), EndsWith("last\n"))) << followed.err;
    EXPECT_EQ(machine().num_claimed(), 0);

    std::filesystem::create_directory(machine().path("small"));
    const auto with_disk_of = [&](const char* size, const std::string& printing) {
      auto options = machine().shell({"--gpu", "none", "--detach", "--name", machine().tag()}, printing);
      options.environment.emplace_back("TMPDIR", machine().path("small"));
      options.argv.insert(options.argv.begin() + 2,
                          {"sh", "-c", "mount -t tmpfs -o size=$0 small \"$1\" && shift && exec \"$@\"", size,
                           machine().path("small")});
      return run(options);
    };
    const auto refused = with_disk_of("64k", "true");
    EXPECT_EQ(refused.exit_code, 75);
    EXPECT_THAT(refused.err, HasSubstr("small is full, and the output of a container in the background is kept there"));
    const auto full = with_disk_of("2m", "busybox seq 1000000; echo last; exec sleep 1000");
    ASSERT_EQ(full.exit_code, 0) << full.err;
    EXPECT_TRUE(wait_until([&] {
      const auto log = run(machine().yoke({"container", "logs", name})).out;
      return log.starts_with("[yoke] the disk was full, so older output is lost\n") &&
             log.ends_with("\n1000000\nlast\n");
    }));
    EXPECT_EQ(run(machine().yoke({"container", "stop", name})).exit_code, 0);
    return;
  }
  const auto inspected = Json::parse(run(machine().engine_command({"inspect", name})).out)[0];
  const auto& log = inspected.at("HostConfig").at("LogConfig");
  EXPECT_THAT(log.dump(), testing::AnyOf(HasSubstr("52428800"), HasSubstr("52.43MB"), HasSubstr("50MB"))) << log;
  const auto stopped = run(machine().yoke({"container", "stop", name}));
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_EQ(machine().num_claimed(), 0);
  EXPECT_TRUE(wait_until([&] { return run(machine().engine_command({"inspect", name})).exit_code != 0; })) << "--rm";
}

TEST_P(Containers, StatusesOfProgramsThatDoNotStart) {
  const auto detached = run(machine().container({"--gpu", "none", "--detach"}, {"no-such-program"}));
  EXPECT_EQ(detached.exit_code, 127);
  EXPECT_EQ(detached.out, "");
  EXPECT_THAT(detached.err, HasSubstr("cannot start no-such-program in the container"));
  machine().write("work/windows.sh", "#!/bin/sh\r\ntrue\r\n", true);
  machine().write("work/foreign.py", "#!/no/python -u\n", true);
  for (const auto& [script, why] :
       {std::pair("./windows.sh", "its lines end with carriage returns"),
        std::pair("./foreign.py", "the image has no /no/python, which its first line names")}) {
    const auto refused = run(machine().container({"--gpu", "none"}, {script}));
    EXPECT_EQ(refused.exit_code, 127);
    EXPECT_THAT(refused.err, HasSubstr(why));
  }
  machine().write("work/volume", "");
  const auto failed =
      run(machine().shell({"--gpu", "none", "-it", "-v", "volume:/tmp/x", "-w", "/etc/passwd"}, "true"));
  EXPECT_EQ(failed.exit_code, 125) << failed.err;
  EXPECT_THAT(failed.err, HasSubstr("note: leave -i, -t and --rm out"));
  if (!is("apptainer")) {
    EXPECT_THAT(failed.err, HasSubstr("mounts the engine's volume volume"));
  }
  EXPECT_EQ(run(machine().container({"--gpu", "none"}, {"no-such-program"})).exit_code, 127);
  EXPECT_EQ(run(machine().container({"--gpu", "none"}, {"/workspace"})).exit_code, 126);
  const auto too_many = run(machine().shell({"--gpu", "9"}, "true"));
  EXPECT_EQ(too_many.exit_code, 69);
  EXPECT_THAT(too_many.err, HasSubstr("`yoke claim --explain`"));
  EXPECT_EQ(run(machine().shell({"--gpu", "0"}, "true")).exit_code, 64);
}

TEST_P(Containers, AnEndBeforeTheProgramHasBegunLeavesNothing) {
  const auto name = machine().tag();
  const bool is_long = std::getenv("YOKE_LONG") != nullptr;
  const int num_moments = is_long ? 20 : 4, step_ms = is_long ? 30 : 60;
  for (int delay_ms = step_ms; delay_ms <= num_moments * step_ms; delay_ms += step_ms) {
    for (const bool is_detached : {false, true}) {
      Words options = {"--gpu", "1", "--name", name};
      if (is_detached) options.emplace_back("--detach");
      std::filesystem::remove(machine().path("work/begun"));
      Command command(machine().shell(options, "echo > begun; sleep 3"));
      usleep(static_cast<useconds_t>(delay_ms) * 1000);  // clock: any moment will do
      command.signal(SIGTERM);
      const auto result = command.wait();
      EXPECT_FALSE(result.timed_out) << delay_ms;
      if (!is_detached) {
        EXPECT_EQ(result.exit_code, 128 + SIGTERM) << delay_ms << result.err;
      }
      if (result.exit_code == 0) run(machine().yoke({"container", "stop", user() + "_" + name}));
      EXPECT_TRUE(wait_until([&] { return machine().num_claimed() == 0; }));
      if (is("apptainer")) continue;
      EXPECT_TRUE(wait_until([&] {
        return run(machine().engine_command({"ps", "--all", "--quiet"})).out.empty();
      })) << delay_ms
          << run(machine().engine_command({"ps", "--all"})).out;
    }
  }
}

TEST_P(Containers, AnImageWhoseEngineFailsIsNotDownloaded) {
  if (is("apptainer")) return;
  const auto& engine = GetParam().engine;
  std::filesystem::rename(machine().path("bin/" + engine), machine().path("bin/real"));
  machine().write(
      "bin/" + engine,
      "#!/bin/sh\n[ \"$1\" = pull ] && touch " + machine().path("work/pulled") +
          "\n[ \"$1 $2\" = 'image inspect' ] && { echo 'Error: database is locked' >&2; exit 125; }\nexec " +
          machine().path("bin/real") + " \"$@\"\n",
      true);
  const auto result = run(machine().shell({"--gpu", "none"}, "true"));
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_THAT(result.err, HasSubstr("database is locked"));
  EXPECT_FALSE(std::filesystem::exists(machine().path("work/pulled")));
}

TEST_P(Containers, AKeeperThatIsStoppedIsNamed) {
  const auto started = run(machine().shell({"--gpu", "1", "--detach", "--name", machine().tag()}, "exec sleep 1000"));
  ASSERT_EQ(started.exit_code, 0) << started.err;
  const auto name = user() + "_" + machine().tag();
  const auto again = run(machine().shell({"--gpu", "1", "--name", machine().tag()}, "true"));
  EXPECT_NE(again.exit_code, 0) << "two of one name";
  if (is("apptainer")) {
    EXPECT_THAT(again.err, HasSubstr("runs already"));
  }
  const auto keeper = machine().containers()[0].at("keeper").get<pid_t>();
  kill(keeper, SIGSTOP);
  const auto silent = run(machine().yoke({"container", "stop", name}));
  kill(keeper, SIGCONT);
  EXPECT_EQ(silent.exit_code, 75);
  EXPECT_THAT(silent.err, AllOf(HasSubstr("does not answer"), HasSubstr(std::to_string(keeper))));
  const auto stopped = run(machine().yoke({"container", "stop", std::to_string(keeper)}));
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
}

/// Docker's daemon of a user, which a context names.
class RootlessDocker : public Containers {};

TEST_P(RootlessDocker, RunsAsItsUserWithItsOwnLimitsUntilItHangs) {
  const auto result =
      run(machine().shell({"--gpu", "2", "-v", "../data:/data:ro"},
                          "id -u; cat /data/given; echo in > made; ls -d /dev/nvidia[0-9]; ls -d /dev/mqueue; ls -l "
                          "/proc/self/ns/ipc | grep -o 'ipc:.*' > ipc; ulimit -Hn; ulimit -Hl; exit 7"));
  EXPECT_EQ(result.exit_code, 7) << result.err;
  EXPECT_EQ(result.out, "0\ngiven\n/dev/nvidia0\n/dev/nvidia1\n/dev/mqueue\n20000\n64\n") << result.err;
  EXPECT_EQ(owner_of(machine().path("work/made")), kAda);
  EXPECT_EQ(slurp(machine().path("work/ipc")), std::filesystem::read_symlink("/proc/self/ns/ipc").native() + "\n");
  const auto own_memory =
      run(machine().shell({"--gpu", "none", "--shm-size", "16MiB"}, "grep ' /dev/shm ' /proc/mounts"));
  EXPECT_EQ(own_memory.exit_code, 0) << own_memory.err;
  EXPECT_THAT(own_memory.out, HasSubstr("size=16384k"));

  auto far = machine().shell({"--gpu", "none"}, "true");
  far.environment.emplace_back("DOCKER_CONTEXT", "far");
  const auto refused = run(far);
  EXPECT_EQ(refused.exit_code, 69);
  EXPECT_THAT(refused.err,
              HasSubstr("docker's context is for ssh://ada@192.0.2.1: that daemon runs on another machine"));
  far.environment.emplace_back("DOCKER_HOST", machine().docker_host());  // has priority
  const auto near = run(far);
  EXPECT_EQ(near.exit_code, 0) << near.err;

  machine().docker_daemon().signal(SIGSTOP);
  const auto silent = run(machine().shell({"--gpu", "none"}, "true"));
  machine().docker_daemon().signal(SIGCONT);
  EXPECT_EQ(silent.exit_code, 124);
  EXPECT_THAT(silent.err, HasSubstr("docker has not answered `docker "));
  EXPECT_EQ(machine().num_claimed(), 0);
}

INSTANTIATE_TEST_SUITE_P(Engines, RootlessDocker, testing::Values(Setting{"docker", kAda, true}), name_of);

class ContainersUnderAClaim : public Containers {
 protected:
  /// `yoke claim OPTIONS -- sh -c SCRIPT`. In the script, "$@" begins a container, and "$0" is the image.
  CommandOptions under_a_claim(Words words, const std::string& script) const {
    words.insert(words.begin(), "claim");
    for (const auto& word :
         Words{"--deadline", "60", "--", "sh", "-c", script, machine().image(), machine().path("bin/yoke"), "container",
               "run", "--engine", GetParam().engine, "--deadline", "60"}) {
      words.push_back(word);
    }
    if (!is("apptainer")) words.insert(words.end(), {"--network", "none"});
    return machine().yoke(words);
  }
};

TEST_P(ContainersUnderAClaim, HaveItsDevicesAndKeepThemWhenItsProgramEnds) {
  const auto inside = [&](const std::string& script) { return run(under_a_claim({"-n", "2"}, script)); };
  const auto shared = inside("echo $CUDA_VISIBLE_DEVICES; \"$@\" \"$0\" -- sh -c 'echo $CUDA_VISIBLE_DEVICES'");
  EXPECT_EQ(shared.exit_code, 0) << shared.err;
  const auto lines = lines_of(shared.out);
  ASSERT_THAT(lines, SizeIs(2)) << shared.out;
  EXPECT_EQ(lines[0], lines[1]);
  const auto refused = inside("\"$@\" --gpu 3 \"$0\" -- true");
  EXPECT_EQ(refused.exit_code, 69);
  EXPECT_THAT(refused.err, HasSubstr("3 devices are wanted, and the claim under which this runs"));
  EXPECT_EQ(machine().num_claimed(), 0);

  const auto left = inside(
      "\"$@\" --gpu 1 \"$0\" -- sh -c 'touch began; exec sleep 1000' > /dev/null 2>&1 & until [ -e began ]; do sleep "
      "0.1; "
      "done");
  EXPECT_EQ(left.exit_code, 0) << left.err;
  EXPECT_THAT(left.err, HasSubstr("a container of yoke keeps the devices until it ends"));
  EXPECT_EQ(machine().num_claimed(), 2);
  const auto containers = machine().containers();
  ASSERT_THAT(containers, SizeIs(1));
  EXPECT_EQ(containers[0].at("devices"), Json({"0"}));
  const auto stopped = run(machine().yoke({"container", "stop", containers[0].at("name")}));
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_EQ(machine().num_claimed(), 0);
}

TEST_P(ContainersUnderAClaim, SeveralKeepItAndAreAllReleased) {
  const auto claimed = run(under_a_claim({"-n", "2"}, "for i in 1 2 3; do \"$@\" --gpu 1 --detach --name " +
                                                          machine().tag() + "$i \"$0\" -- sleep 1000 || exit 9; done"));
  ASSERT_EQ(claimed.exit_code, 0) << claimed.err;
  ASSERT_THAT(machine().containers(), SizeIs(3));
  EXPECT_EQ(run(machine().yoke({"container", "stop", user() + "_" + machine().tag() + "3"})).exit_code, 0);
  const auto claims = Json::parse(run(machine().yoke({"claims", "--json", "--deadline", "60"})).out).at("claims");
  ASSERT_THAT(claims, SizeIs(2));
  ASSERT_TRUE(claims[0].at("pid").is_number()) << claims;
  const auto released = run(machine().yoke({"release", "-f", claims[0].at("device_uuid")}));
  EXPECT_EQ(released.exit_code, 0) << released.err;
  EXPECT_EQ(machine().num_claimed(), 0);
  EXPECT_THAT(machine().containers(), SizeIs(0));
}

TEST_P(ContainersUnderAClaim, ThatRunsAreEndedWithIt) {
  Command program(under_a_claim(
      {"-n", "2"},
      "\"$@\" --gpu 1 \"$0\" -- sh -c 'trap \"echo > ended; exit 3\" TERM; echo begun; while :; do sleep 0.1; "
      "done'; echo after"));
  ASSERT_TRUE(program.wait_for_output("begun")) << program.err();
  const auto claims = Json::parse(run(machine().yoke({"claims", "--json", "--deadline", "60"})).out).at("claims");
  ASSERT_THAT(claims, SizeIs(2));
  const auto released = run(machine().yoke({"release", "-f", std::to_string(claims[0].at("pid").get<int64_t>())}));
  EXPECT_EQ(released.exit_code, 0) << released.err;
  const auto result = program.wait();
  EXPECT_EQ(result.exit_code, 143) << result.err;
  EXPECT_TRUE(std::filesystem::exists(machine().path("work/ended"))) << "the program got SIGTERM";
  EXPECT_EQ(machine().num_claimed(), 0);
  EXPECT_THAT(machine().containers(), SizeIs(0));
}

TEST_P(ContainersUnderAClaim, HaveTheMemoryOfAShare) {
  const auto result = run(
      under_a_claim({"--share", "--memory", "8GiB"}, "\"$@\" \"$0\" -- sh -c 'echo limit=$YOKE_DEVICE_MEMORY_BYTES'"));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "limit=8589934592\n");
}

INSTANTIATE_TEST_SUITE_P(Engines, ContainersUnderAClaim,
                         testing::Values(Setting{"podman", kAda}, Setting{"apptainer", 0}),
                         [](const auto& one) { return one.param.engine; });

INSTANTIATE_TEST_SUITE_P(Engines, Containers,
                         testing::Values(Setting{"podman", 0}, Setting{"podman", kAda}, Setting{"docker", 0},
                                         Setting{"docker", kAda}, Setting{"apptainer", 0}, Setting{"apptainer", kAda}),
                         name_of);

}  // namespace
}  // namespace yoke::test
