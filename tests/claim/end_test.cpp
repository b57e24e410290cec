// Tests what happens to the processes of a program when its claim is ended: no device is given to somebody else before
// the last of them has ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <random>

#include "tests/claim/machine.h"
#include "tests/support/terminal.h"

namespace yoke::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class ClaimEnds : public testing::Test {
 protected:
  ClaimEnds() {
    // Like a training: it takes a while to end. It waits for the next claim, which may be slower than its time is long.
    machine_.write("train.sh",
                   "echo $$ > pid\n"
                   "trap 'until [ -e next-waits ]; do sleep 0.05; done; sleep 0.7; touch saved; exit 0' TERM\n"
                   "echo begun\n"
                   "while :; do sleep 0.05; done\n");
    machine_.write("deaf.sh", "echo $$ > pid; trap '' TERM; echo begun; while :; do sleep 0.05; done\n");
    machine_.write("job.sh", "bash \"$1\"\necho done\n");
    machine_.write("daemon.sh", "setsid bash \"$1\" &\nuntil [ -s pid ]; do sleep 0.05; done\nexec sleep 1000\n");
    // Fails if the process before is there.
    machine_.write("next.sh", "if kill -0 \"$(cat pid)\" 2>/dev/null; then echo shared; else echo alone; fi\n");
  }
  CommandOptions command(std::vector<std::string> words, const std::string& site = "") const {
    machine_.write("config.toml", "[claim]\n" + site);
    auto options = machine_.yoke(std::move(words));
    options.environment.emplace_back("YOKE_SITE_CONFIG", machine_.path("config.toml"));
    options.folder = machine_.path("");
    return options;
  }
  /// Claims all devices for this job, ends the claim by `end`, and returns what the next one saw.
  void expect_alone(std::vector<std::string> options, const std::string& job, const std::string& training,
                    const std::function<void(Command&)>& end, const std::string& site = "") {
    options.insert(options.begin(), {"claim", "-n", "8"});
    options.insert(options.end(), {"--", "bash", job, training});
    Command program(command(std::move(options), site));
    ASSERT_TRUE(program.wait_for_output("begun")) << program.err();
    Command next(command({"claim", "-n", "8", "--wait", "60s", "--", "bash", "next.sh"}));
    ASSERT_TRUE(next.wait_until([&] { return next.err().find("waiting") != std::string::npos; }));
    machine_.write("next-waits", "");
    end(program);
    EXPECT_EQ(next.wait().out, "alone\n");
    program.wait();
    // A process whose parent has ended is there until init has reaped it; one that was left would run for ever.
    wait_until([&] { return processes_with_tag(machine_.tag()).empty(); });
    EXPECT_THAT(processes_with_tag(machine_.tag()), IsEmpty());
  }
  static void release(const ClaimMachine& machine, Command& program) {
    const auto released = run(machine.yoke({"release", "-f", std::to_string(program.pid())}));
    EXPECT_EQ(released.exit_code, 0) << released.err;
  }
  /// What the only claim says of itself.
  Json note() const {
    for (const auto& entry : std::filesystem::directory_iterator(machine_.locks())) {
      auto note = Json::parse(slurp(entry.path().string()), nullptr, false);
      if (note.is_object() && note.contains("program_pid")) return note;
    }
    return {{"program_pid", 0}};
  }
  bool has_saved() const { return std::filesystem::exists(machine_.path("saved")); }

  const ClaimMachine machine_;
};

TEST_F(ClaimEnds, AfterItsTimeWithTheProcessesOfAScript) {
  expect_alone({"--for", "2s"}, "job.sh", "train.sh", [](Command&) {});
  EXPECT_TRUE(has_saved()) << "the training was told, and not its shell alone";
}

TEST_F(ClaimEnds, AfterItsTimeWithADaemon) {
  expect_alone({"--for", "2s"}, "daemon.sh", "train.sh", [](Command&) {});
  EXPECT_TRUE(has_saved());
}

TEST_F(ClaimEnds, ByForceWithTheProcessesOfAScript) {
  expect_alone({}, "job.sh", "train.sh", [&](Command& program) { release(machine_, program); });
  EXPECT_TRUE(has_saved());
}

TEST_F(ClaimEnds, ByForceWithADaemonThatIgnoresTheSignal) {
  expect_alone({}, "daemon.sh", "deaf.sh", [&](Command& program) { release(machine_, program); });
}

TEST_F(ClaimEnds, ForBeingIdleWithTheProcessesOfAScript) {
  expect_alone(
      {}, "job.sh", "train.sh", [](Command&) {}, "idle_end = '3s'\n");
  EXPECT_TRUE(has_saved());
}

TEST_F(ClaimEnds, AfterSigtermWithTheProcessesOfAScript) {
  expect_alone({}, "job.sh", "train.sh", [](Command& program) { program.signal(SIGTERM); });
  EXPECT_TRUE(has_saved());
}

TEST_F(ClaimEnds, AProgramThatCatchesSigtermHasTheTimeThatItNeeds) {
  Command program(command({"claim", "--", "bash", "-c",
                           "trap 'echo caught' TERM; echo begun; for i in 1 2 3 4 5; do sleep 0.2; done; exit 4"}));
  ASSERT_TRUE(program.wait_for_output("begun"));
  program.signal(SIGTERM);
  const auto result = program.wait();
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.out, HasSubstr("caught"));
}

TEST_F(ClaimEnds, OrphansOfARunningProgramAreReaped) {
  Command program(command({"claim", "--", "bash", "-c", "(sleep 0.1 &) ; sleep 0.5; echo begun; exec sleep 1000"}));
  ASSERT_TRUE(program.wait_for_output("begun"));
  EXPECT_TRUE(wait_until([&] { return children_of(program.pid()).size() == 1; }));
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait().exit_code, 143);
}

TEST_F(ClaimEnds, AShellKeepsItsTerminalAndItsJobs) {
  const auto options = command({"claim", "--", "bash", "--norc", "--noprofile", "-i"});
  ShellOnTerminal shell(options.environment);
  std::string line = "cd '" + options.folder + "' && ";
  for (const auto& word : options.argv) line += "'" + word + "' ";
  shell.run(line + "; echo status=$?");
  // What is typed is seen on the terminal, too, so the words that the program prints are not in it.
  shell.run(
      R"(PS1=; sh -c 'trap "printf con%s tinued" CONT; printf be%s gun; while :; do sleep 0.1; done'; echo stopped=$?)");
  ASSERT_TRUE(shell.shows("begun")) << shell.out();
  EXPECT_EQ(machine_.num_claimed(), 1);
  shell.type(kCtrlZ);
  EXPECT_TRUE(shell.shows("stopped=148")) << shell.out();
  shell.run("fg");
  ASSERT_TRUE(shell.shows("continued")) << shell.out();
  shell.type(kCtrlC);
  shell.run("echo back=$?");
  EXPECT_TRUE(shell.shows("back=130")) << shell.out();
  shell.run("exit 7");
  EXPECT_TRUE(shell.shows("status=7")) << shell.out();
  EXPECT_EQ(machine_.num_claimed(), 0);
}

TEST_F(ClaimEnds, WhenItIsReleasedAlthoughItIsStopped) {
  Command program(command({"claim", "--", "bash", "deaf.sh"}));
  ASSERT_TRUE(program.wait_for_output("begun")) << program.err();
  program.signal(SIGSTOP);
  release(machine_, program);
}

TEST_F(ClaimEnds, WhenItIsReleasedAfterItsProgramAlone) {
  Command program(command({"claim", "--", "bash", "deaf.sh"}));
  ASSERT_TRUE(program.wait_for_output("begun")) << program.err();
  // The claim names its program just after it has started it.
  ASSERT_TRUE(program.wait_until([&] { return note().at("program_pid") != 0; }));
  program.signal(SIGKILL);
  program.wait();
  const auto pid = machine_.claims().at("claims").at(0).at("pid").get<int64_t>();
  const auto released = run(machine_.yoke({"release", "-f", std::to_string(pid)}));
  EXPECT_EQ(released.exit_code, 0) << released.err;
  EXPECT_EQ(machine_.num_claimed(), 0);
}

TEST_F(ClaimEnds, ASignalEndsItAtAnyMoment) {
  std::mt19937 random(7);
  std::uniform_int_distribution<useconds_t> moment(0, 60'000);
  for (const std::vector<std::string>& options : {std::vector<std::string>{}, {"--wait"}}) {
    for (int i = 0; i < 30; ++i) {
      std::vector<std::string> words{"claim", "-n", "1"};
      words.insert(words.end(), options.begin(), options.end());
      words.insert(words.end(), {"--", "sleep", "1237"});
      Command program(machine_.yoke(std::move(words)));
      usleep(moment(random));  // clock: the signal ends it at every moment
      const int signal = i % 2 == 0 ? SIGTERM : SIGHUP;
      kill(program.pid(), signal);
      EXPECT_EQ(program.wait().exit_code, 128 + signal);  // of the command, or of the program under it
    }
  }
  EXPECT_EQ(machine_.num_claimed(), 0);
}

}  // namespace
}  // namespace yoke::test
