// Tests `yoke kill`: the test starts real processes, and a fake driver reports them as users of its GPUs.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "tests/processes/gpu_user.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const std::string kStubborn = "trap '' TERM; echo ready; while :; do sleep 0.05; done";

std::string text(pid_t pid) { return std::to_string(pid); }

int ended_by(const GpuUser& user) {
  siginfo_t info = {};
  waitid(P_PID, static_cast<id_t>(user.pid()), &info, WEXITED | WNOWAIT);
  return info.si_code == CLD_KILLED ? info.si_status : 0;
}

TEST(Kill, EndsWhatObeys) {
  const GpuUser user, bystander;
  const FakeMachine machine{{user.pid(), bystander.pid()}};
  const auto result = run(machine.yoke({"kill", text(user.pid()), "--yes"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(user.is_running());
  EXPECT_EQ(ended_by(user), SIGTERM);
  EXPECT_THAT(result.out, HasSubstr("sleep 1000")) << "what it ends is shown";
  EXPECT_THAT(result.out, HasSubstr(fmt::format("process {} (", user.pid())));
  EXPECT_THAT(result.out, HasSubstr("sleep) ended\n"));
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_TRUE(bystander.is_running());
}

TEST(Kill, WhatIgnoresItIsNamedAndEndsByForce) {
  GpuUser user(GpuUser::shell(kStubborn)), other;
  ASSERT_TRUE(user.wait_until_ready());
  const FakeMachine machine{{user.pid(), other.pid()}};
  const auto survived = run(machine.yoke({"kill", text(user.pid()), text(other.pid()), "--yes", "--wait", "3"}));
  EXPECT_EQ(survived.exit_code, 124);
  EXPECT_THAT(survived.err, HasSubstr(fmt::format("process {} (", user.pid())));
  EXPECT_THAT(survived.err, HasSubstr("did not end within 3.0 s after SIGTERM; --force sends SIGKILL then"));
  EXPECT_TRUE(user.is_running());
  EXPECT_FALSE(other.is_running());

  const auto killed = run(machine.yoke({"kill", text(user.pid()), "--yes", "--wait", "0.3", "--force", "--json"}));
  EXPECT_EQ(killed.exit_code, 0) << killed.err;
  EXPECT_EQ(ended_by(user), SIGKILL);
  const auto json = Json::parse(killed.out);
  EXPECT_EQ(json.at("signal"), SIGTERM);
  ASSERT_THAT(json.at("processes"), SizeIs(1));
  EXPECT_EQ(json["processes"][0].at("result"), "killed");
  EXPECT_EQ(json["processes"][0].at("devices"), Json({"0"}));
}

TEST(Kill, WhatHasEndedIsDone) {
  const GpuUser user;
  const FakeMachine machine{{user.pid()}};
  kill(user.pid(), SIGKILL);
  ASSERT_TRUE(wait_until([&] { return !user.is_running(); }));
  const auto zombie = run(machine.yoke({"kill", text(user.pid()), "--yes"}));  // ended, but not reaped yet
  EXPECT_EQ(zombie.exit_code, 0) << zombie.err;
  EXPECT_THAT(zombie.out, HasSubstr("ended"));
}

TEST(Kill, AStoppedProcessHearsIt) {
  const GpuUser user;
  const FakeMachine machine{{user.pid()}};
  kill(user.pid(), SIGSTOP);
  const auto result = run(machine.yoke({"kill", text(user.pid()), "--yes", "--wait", "20"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(ended_by(user), SIGTERM);
}

TEST(Kill, WhatIsOnNoDeviceIsLeftAloneUnlessTold) {
  const GpuUser user;
  const FakeMachine machine{{}};
  const auto refused = run(machine.yoke({"kill", text(user.pid()), "--yes"}));
  EXPECT_EQ(refused.exit_code, 69);
  EXPECT_THAT(refused.err, HasSubstr("sleep) is on no device; --any ends it nevertheless"));
  EXPECT_TRUE(user.is_running());
  EXPECT_EQ(run(machine.yoke({"kill", text(user.pid()), "--yes", "--any"})).exit_code, 0);
  EXPECT_EQ(ended_by(user), SIGTERM);
  const auto missing = run(machine.yoke({"kill", "4194300", "--yes", "--any"}));
  EXPECT_EQ(missing.exit_code, 66);
  EXPECT_EQ(missing.err, "yoke kill: process 4194300 is not there\n");
}

TEST(Kill, AnotherNamespacesProcessCannotBeReached) {
  const FakeMachine machine{{4'194'300}};
  for (const auto& words :
       {std::vector<std::string>{"kill", "4194300", "--yes", "--signal", "USR1"}, {"kill", "--device", "0", "--yes"}}) {
    const auto result = run(machine.yoke(words));
    EXPECT_EQ(result.exit_code, 66);
    EXPECT_THAT(result.err, HasSubstr("process 4194300 cannot be reached from here: not in this PID namespace"));
  }
  EXPECT_THAT(run(machine.yoke({"kill", "--mine", "--yes"})).err,
              HasSubstr("left out: 1 process whose user is not known"));
}

TEST(Kill, ByDeviceAndOwner) {
  const GpuUser first, second;
  const FakeMachine machine{{first.pid()}, {second.pid(), 1}, {}};
  const auto none = run(machine.yoke({"kill", "--device", "2", "--yes"}));
  EXPECT_EQ(none.exit_code, 0);
  EXPECT_EQ(none.out, "no process to end\n");
  const auto result = run(machine.yoke({"kill", "--device", "1", "--yes", "--json"}));
  EXPECT_EQ(result.exit_code, 69) << "PID 1 was refused";
  EXPECT_THAT(result.err, HasSubstr("is the first process of this machine or container"));
  EXPECT_FALSE(second.is_running());
  EXPECT_TRUE(first.is_running());
  EXPECT_EQ(run(machine.yoke({"kill", "--mine", "--device", "0", "--yes"})).exit_code, 0);
  EXPECT_FALSE(first.is_running());
}

TEST(Kill, NotItselfNorItsParents) {
  TemporaryFolder folder;
  folder.write("state.json",
               R"({"devices": 1, "overrides": {"0": {"processes": [{"pid": "self"}, {"pid": "parent"}]}}})");
  const auto result = yoke_on(folder.path("state.json"), {"kill", "--device", "0", "--yes"});
  EXPECT_EQ(result.exit_code, 69);
  EXPECT_THAT(result.err, AllOf(HasSubstr("is this command"), HasSubstr("is a parent of this command")));

  // The shell that runs the command must survive if processes are chosen by owner, but not if its PID is given.
  for (const std::string choice : {"--mine", "$$"}) {
    const auto script = fmt::format(
        R"(echo "{{\"devices\": 1, \"overrides\": {{\"0\": {{\"processes\": [{{\"pid\": $$}}]}}}}}}" > "$1"; "$0" kill {} --yes; echo alive)",
        choice);
    auto options = on_machine(folder.path("shell.json"), {});
    options.argv = {"sh", "-c", script, YOKE_COMMAND, folder.path("shell.json")};
    const auto shell = run(options);
    EXPECT_EQ(shell.out.find("alive") != std::string::npos, choice == "--mine") << shell.out << shell.err;
  }
}

TEST(Kill, SendsOtherSignalsWithoutWaiting) {
  GpuUser user(GpuUser::shell("trap 'echo heard' USR1; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(user.wait_until_ready());
  const FakeMachine machine{{user.pid()}};
  const auto result = run(machine.yoke({"kill", text(user.pid()), "--yes", "--signal", "USR1"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("got SIGUSR1"));
  EXPECT_TRUE(user.command().wait_for_output("heard"));
  EXPECT_TRUE(user.is_running());
  EXPECT_EQ(run(machine.yoke({"kill", text(user.pid()), "--yes", "--signal", "9"})).exit_code, 0);
  EXPECT_EQ(ended_by(user), SIGKILL);
}

TEST(Kill, RefusesWhatMakesNoSense) {
  const FakeMachine machine{{}};
  for (const auto& words : {std::vector<std::string>{"kill"},
                            {"kill", "12", "--mine"},
                            {"kill", "12", "--device", "0"},
                            {"kill", "--mine", "--any"},
                            {"kill", "x"},
                            {"kill", "12", "--signal", "NONE"},
                            {"kill", "12", "--signal", "USR1", "--force"},
                            {"kill", "12", "--replay", "x"},
                            {"kill", "12", "--force", "--wait", "0"},
                            {"kill", "--device", "nothing"},
                            {"kill", "12", "--wait", "-1"}}) {
    EXPECT_EQ(run(machine.yoke(words)).exit_code, 64) << testing::PrintToString(words);
  }
  EXPECT_THAT(run(machine.yoke({"kill", "12", "--wait", "-1"})).err,
              testing::StartsWith("yoke kill: --wait -1: give 0 to 86400 seconds"));
}

TEST(Kill, AHungGpuDoesNotKeepItFromWorking) {
  const GpuUser user, unlisted;
  TemporaryFolder folder;
  folder.write("state.json", fmt::format(R"({{"devices": 2, "overrides": {{"0": {{"processes": [{{"pid": {}}}]}},
                                                                         "1": {{"hang_s": 1000}}}}}})",
                                         user.pid()));
  const auto kill = [&](pid_t pid) {
    return yoke_on(folder.path("state.json"), {"kill", text(pid), "--yes", "--deadline", kShortDeadline});
  };
  const auto result = kill(user.pid());
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("device 1: "));
  EXPECT_FALSE(user.is_running());
  const auto unknown = kill(unlisted.pid());
  EXPECT_EQ(unknown.exit_code, 69);
  EXPECT_THAT(unknown.err, HasSubstr("is on no device that answers (device 1 did not)"));
}

TEST(Kill, WhoUsesAGpuThatHangsIsNotKnown) {
  const GpuUser user;
  TemporaryFolder folder;
  folder.write("state.json", fmt::format(R"({{"devices": 2, "overrides": {{"0": {{"processes": [{{"pid": {}}}]}},
                                                                         "1": {{"hang_s": 1000}}}}}})",
                                         user.pid()));
  const auto kill = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"kill", "--yes", "--deadline", kShortDeadline});
    return yoke_on(folder.path("state.json"), words);
  };
  const auto silent = kill({"--device", "1"});
  EXPECT_EQ(silent.exit_code, 75);
  EXPECT_EQ(silent.out, "") << "it does not say that there is none";
  EXPECT_THAT(silent.err, HasSubstr("kill: it is not known who uses device 1, so nothing there was ended: "));
  const auto json = Json::parse(kill({"--device", "1", "--json"}).out);
  EXPECT_EQ(json.at("unanswered").at(0).at("device"), "1");
  EXPECT_TRUE(json.at("processes").empty());
  EXPECT_TRUE(user.is_running());
  const auto both = kill({"--mine"});
  EXPECT_EQ(both.exit_code, 75) << "the other one may hold some of mine";
  EXPECT_FALSE(user.is_running()) << "what is known was ended";
  EXPECT_EQ(kill({"--device", "cpu"}).exit_code, 64);
}

// ---- the confirmation -----------------------------------------------------------------------------------------------

TEST(Kill, NeedsATerminalToAskOn) {
  const GpuUser user;
  const FakeMachine machine{{user.pid()}};
  auto options = machine.yoke({"kill", text(user.pid())});
  options.input = "y\n";
  const auto result = run(options);
  EXPECT_EQ(result.exit_code, 69);
  EXPECT_THAT(result.out, HasSubstr(text(user.pid()))) << "what it would have ended";
  EXPECT_THAT(result.err, HasSubstr("standard input is not a terminal to ask on, and nothing was sent; --yes"));
  EXPECT_TRUE(user.is_running());
}

/// Runs `yoke kill WORDS` on a terminal, by script(1).
class Conversation {
 public:
  Conversation(const FakeMachine& machine, const std::string& words) {
    const auto fifo = machine.folder().path("answers");
    if (!std::filesystem::exists(fifo)) mkfifo(fifo.c_str(), 0600);
    answers_ = UniqueFd(open(fifo.c_str(), O_RDWR | O_CLOEXEC));
    auto options = machine.yoke({});
    options.argv = {
        "sh", "-c", "exec script -qec \"$1\" /dev/null < \"$2\"", "sh", fmt::format("{} kill {}", YOKE_COMMAND, words),
        fifo};
    options.environment.emplace_back("TERM", "xterm");  // independent of the terminal in which the tests run
    command_.emplace(options);
  }
  bool is_asked() { return command_->wait_for_output("[y/N]"); }
  Result answer(const std::string& text) {
    [[maybe_unused]] const auto written = write(answers_.value(), text.data(), text.size());
    return command_->wait();
  }

 private:
  UniqueFd answers_;
  std::optional<Command> command_;
};

TEST(Kill, AsksAndObeysTheAnswer) {
  const GpuUser user;
  const FakeMachine machine{{user.pid()}, {user.pid()}};
  for (const std::string no : {"n\n", "\n", "yellow\n", "\x04"}) {
    Conversation conversation(machine, text(user.pid()));
    ASSERT_TRUE(conversation.is_asked());
    const auto result = conversation.answer(no);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.out, AllOf(HasSubstr("Send SIGTERM to this process? [y/N]"), HasSubstr("nothing was sent")));
    EXPECT_THAT(result.out, HasSubstr("0,1 ")) << "both devices";
    EXPECT_TRUE(user.is_running());
  }
  Conversation conversation(machine, text(user.pid()) + " --force");
  ASSERT_TRUE(conversation.is_asked());
  EXPECT_TRUE(user.is_running());
  const auto result = conversation.answer("y\n");
  EXPECT_THAT(result.out, HasSubstr("Send SIGTERM to this process, and SIGKILL to what is left after 10 s? [y/N]"));
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_EQ(ended_by(user), SIGTERM);
}

TEST(Kill, ShowsThatItWaits) {
  GpuUser user(GpuUser::shell(kStubborn));
  ASSERT_TRUE(user.wait_until_ready());
  const FakeMachine machine{{user.pid()}};
  Conversation conversation(machine, text(user.pid()) + " --wait 1.5");
  ASSERT_TRUE(conversation.is_asked());
  const auto result = conversation.answer("y\n");
  EXPECT_EQ(result.exit_code, 124);
  EXPECT_THAT(result.out, HasSubstr("\rwaiting for 1 process, 1 s left"));
  EXPECT_THAT(result.out, HasSubstr("did not end within 1.5 s"));
}

TEST(Kill, WhatEndsWhileItAsksIsDone) {
  const GpuUser user;
  const FakeMachine machine{{user.pid()}};
  Conversation conversation(machine, text(user.pid()));
  ASSERT_TRUE(conversation.is_asked());
  kill(user.pid(), SIGKILL);
  ASSERT_TRUE(wait_until([&] { return !user.is_running(); }));
  const auto result = conversation.answer("y\n");
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("ended"));
}

// The test has its own PID namespace, where it chooses the next PID. While yoke asks for confirmation, the process
// ends, and a new process gets its PID.
constexpr const char* kReuse = R"sh(
cd "$2"; mkfifo answers
spawn() { sleep 1000 & until [ "$(cat /proc/$!/comm)" = sleep ]; do :; done; }
spawn; victim=$!
echo "{\"devices\": 1, \"overrides\": {\"0\": {\"processes\": [{\"pid\": $victim}]}}}" > state.json
export YOKE_FAKE_NVML=$2/state.json LD_LIBRARY_PATH=$3
script -qec "$1 kill $victim" /dev/null < answers > output 2>&1 &
asking=$!
exec 3> answers
until grep -q 'y/N' output; do sleep 0.05; done
kill -9 $victim; wait $victim 2>/dev/null
for attempt in 1 2 3 4 5; do
  echo $((victim - 1)) > /proc/sys/kernel/ns_last_pid || exit 77
  spawn; [ $! = $victim ] && echo "same number" && break
done
echo y >&3; wait $asking
kill -0 $victim && echo "the other one lives"
cat output; kill -9 $victim
)sh";

TEST(Kill, APidThatIsUsedAgainIsNotTouched) {
  TemporaryFolder folder;
  const auto result = run({.argv = {"unshare", "-rpf", "--mount-proc", "--kill-child", "bash", "-c", kReuse, "bash",
                                    YOKE_COMMAND, folder.path(), YOKE_FAKES_FOLDER},
                           .join_outputs = true});
  if (result.exit_code == 77 || result.out.find("unshare") != std::string::npos) {
    GTEST_SKIP() << "no PID namespaces here: " << result.out;
  }
  EXPECT_THAT(result.out, HasSubstr("same number\n"));
  EXPECT_THAT(result.out, HasSubstr("the other one lives"));
  EXPECT_THAT(result.out, HasSubstr("(root, sleep) ended"));
  EXPECT_THAT(result.out, HasSubstr("make sure that these are the ones you mean")) << "drivers count in the first one";
}

// ---- other users ----------------------------------------------------------------------------------------------------

TEST(Kill, SomebodyElsesProcessIsRefusedByName) {
  std::optional<GpuUser> of_root;
  pid_t pid = 2;  // a kernel thread
  std::vector<std::string> as_user;
  if (geteuid() == 0) {
    of_root.emplace();
    pid = of_root->pid();
    as_user = {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"};
  } else if (!std::filesystem::exists("/proc/2")) {
    GTEST_SKIP() << "not root, and nobody else's process is here";
  }
  const FakeMachine machine{{pid}};
  // Copies the command, because other users may not be able to read the build folder.
  std::filesystem::permissions(machine.folder().path(), std::filesystem::perms{0755});
  std::filesystem::copy_file(YOKE_COMMAND, machine.folder().path("yoke"));
  std::filesystem::copy_file(YOKE_FAKES_FOLDER "/libnvidia-ml.so.1", machine.folder().path("libnvidia-ml.so.1"));
  const auto yoke = [&](const std::vector<std::string>& words) {
    auto options = on_machine(machine.state(), {}, machine.folder().path());
    options.argv = as_user;
    options.argv.push_back(machine.folder().path("yoke"));
    options.argv.insert(options.argv.end(), words.begin(), words.end());
    options.folder = "/";
    return run(options);
  };
  for (const auto& words : {std::vector<std::string>{"kill", text(pid), "--yes", "--force"},
                            {"kill", "--device", "0", "--yes", "--force"}}) {
    const auto result = yoke(words);
    EXPECT_EQ(result.exit_code, 77) << result.err;
    EXPECT_THAT(result.err, HasSubstr(fmt::format("process {} (root, ", pid)));
    EXPECT_THAT(result.err, HasSubstr("belongs to root; only that user or root may end it"));
  }
  const auto mine = yoke({"kill", "--mine", "--yes", "--force"});
  EXPECT_EQ(mine.exit_code, 0);
  EXPECT_EQ(mine.out, "no process to end\n");
  EXPECT_THAT(yoke({"ps"}).out, HasSubstr("root")) << "who it is can be seen";
  EXPECT_TRUE(!of_root || of_root->is_running());
}

TEST(Kill, HostileCommandLinesAreHarmless) {
  GpuUser user({"sh", "-c", "echo ready; while :; do sleep 0.05; done", "\x1b[2J\xff\n"});
  ASSERT_TRUE(user.wait_until_ready());
  const FakeMachine machine{{user.pid()}};
  for (const bool with_json : {false, true}) {
    auto options = machine.yoke({"kill", text(user.pid()), "--yes", "--signal", "CONT"});
    if (with_json) options.argv.emplace_back("--json");
    const auto result = run(options);
    EXPECT_EQ(result.exit_code, 0);
    for (const char c : {'\x1b', '\xff'}) EXPECT_EQ((result.out + result.err).find(c), std::string::npos);
    EXPECT_THAT(result.out, HasSubstr(with_json ? "\"result\": \"signaled\"" : "got SIGCONT"));
  }
}

}  // namespace
}  // namespace yoke::test
