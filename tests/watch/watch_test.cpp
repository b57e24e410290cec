// Tests `yoke watch`: the program is not affected, and the report describes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>

#include "tests/support/fake_machine.h"
#include "yoke/base/file.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// A machine of four GPUs whose state a shell program changes. `use PID PERCENT` puts that process on device 1. `seen`
/// waits until yoke has listed the processes of device 1 twice, which means that a whole sample has the new state.
struct Machine : FakeMachine {
  Machine() : FakeMachine(Json{{"devices", 4}}) {}

  std::string use() const {
    return "use() { echo \"{\\\"devices\\\": 4, \\\"overrides\\\": {\\\"1\\\": {\\\"utilization_percent\\\": "
           "{\\\"gpu\\\": $2}, \\\"memory_mib\\\": {\\\"used\\\": 4096}, \\\"power_mw\\\": 200000, "
           "\\\"processes\\\": [{\\\"pid\\\": $1, \\\"memory_mib\\\": 4000, \\\"sm\\\": $2}], "
           "\\\"touched_when_listed\\\": \\\"" +
           path("listed") + "\\\"}}}\" > " + path("new.json") + "; mv " + path("new.json") + " " + path("state.json") +
           "; }; seen() { for i in 1 2 3; do rm -f " + path("listed") + "; until [ -e " + path("listed") +
           " ]; do sleep 0.05; done; done; }; ";
  }

  CommandOptions watch(std::vector<std::string> words) const {
    words.insert(words.begin(), {"watch", "--interval", "0.05"});
    return yoke(std::move(words));
  }
  CommandOptions watch_shell(const std::string& script, std::vector<std::string> options = {}) const {
    options.insert(options.end(), {"--", "sh", "-c", script});
    return watch(std::move(options));
  }
  Json report_of(const std::string& script) const {
    const auto result = run(watch_shell(script, {"--json", "-o", path("report.json")}));
    EXPECT_THAT(result.err, IsEmpty());
    return Json::parse(slurp(path("report.json")));
  }
};

TEST(Watch, TheProgramIsAsItWouldBeWithoutIt) {
  const Machine machine;
  auto options = machine.watch_shell("cat; echo to-error >&2; exit 3");
  options.input = "from input\n";
  const auto result = run(options);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.out, "from input\n");
  EXPECT_THAT(result.err, StartsWith("to-error\n\nyoke watch: sh -c cat"));
  EXPECT_EQ(run(machine.watch_shell("kill -USR1 $$")).exit_code, 128 + SIGUSR1);
  EXPECT_EQ(run(machine.watch({"--", "true"})).exit_code, 0);
  EXPECT_EQ(run(machine.watch({"echo", "--pid", "--json"})).out, "--pid --json\n") << "its words are its own";
}

TEST(Watch, AProgramThatCannotRunSaysSo) {
  const Machine machine;
  const auto missing = run(machine.watch({"--", "no-such-program"}));
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_EQ(missing.err, "yoke watch: cannot run no-such-program: No such file or directory\n");
  EXPECT_EQ(run(machine.watch({"--", "/"})).exit_code, 126);
  EXPECT_EQ(run(machine.watch({})).exit_code, 64);
  EXPECT_EQ(run(machine.watch({"--pid", "1", "--", "true"})).exit_code, 64);
}

TEST(Watch, MistakesAreFoundBeforeTheProgramRuns) {
  const Machine machine;
  for (const auto& [option, value] : {std::pair{"-o", "/no/such/folder/x"},
                                      {"--svg", "/no/such/folder/x"},
                                      {"--vendor", "intel"},
                                      {"--interval", "0"},
                                      {"--goal", "101"},
                                      {"--deadline", "-1"}}) {
    const auto result = run(machine.watch_shell("touch " + machine.path("ran"), {option, value}));
    EXPECT_NE(result.exit_code, 0) << option;
    EXPECT_THAT(result.err, StartsWith("yoke watch: ")) << option;
    EXPECT_FALSE(std::filesystem::exists(machine.path("ran"))) << option;
  }
}

TEST(Watch, ReportsTheDeviceThatTheProgramUsed) {
  const Machine machine;
  const auto json = machine.report_of(machine.use() + "use $$ 96; seen; sleep 1.2; use $$ 20; seen; sleep 0.3");
  ASSERT_EQ(json["devices"].size(), 1U) << json;
  const auto& device = json["devices"][0];
  EXPECT_EQ(device["id"], "1");
  EXPECT_TRUE(device["was_used"]);
  // How long each utilisation lasts depends on the machine. usage_report_test tests exact figures.
  EXPECT_THAT(device["mean_utilization_percent"].get<double>(), AllOf(testing::Gt(20), testing::Lt(96)));
  EXPECT_THAT(device["under_goal_percent"].get<double>(), AllOf(testing::Gt(0), testing::Lt(100)));
  EXPECT_EQ(device["memory_peak_bytes"], int64_t{4096} << 20);
  EXPECT_EQ(device["program_memory_peak_bytes"], int64_t{4000} << 20);
  EXPECT_EQ(device["peak_power_mw"], 200'000);
  EXPECT_GT(device["energy_mj"].get<int64_t>(), 0);
  EXPECT_GE(device["timeline_utilization_percent"].size(), 4U);
  EXPECT_GE(json["duration_seconds"].get<double>(), 1.5);
}

TEST(Watch, GrandchildrenAndWhatWasAbandonedAreTheProgramsToo) {
  const Machine machine;
  const auto grandchild =
      machine.report_of(machine.use() + "sh -c 'until [ -e " + machine.path("end") +
                        " ]; do sleep 0.05; done' & use $! 50; seen; touch " + machine.path("end") + "; wait");
  EXPECT_EQ(grandchild["devices"].size(), 1U) << grandchild;
  // The process has its own session, and its parent ends at once.
  const auto orphan =
      machine.report_of(machine.use() + "(setsid sleep 1000 & echo $! >" + machine.path("pid") + "); use $(cat " +
                        machine.path("pid") + ") 50; seen; kill $(cat " + machine.path("pid") + ")");
  EXPECT_EQ(orphan["devices"].size(), 1U) << orphan;
}

TEST(Watch, SaysThatNoDeviceWasUsed) {
  const Machine machine;
  // clock: a program that is short at any speed below ten times this
  const auto idle = run(machine.watch_shell("sleep 0.3"));
  EXPECT_THAT(idle.err, HasSubstr("the program was seen on no GPU; the numbers are of those visible to it"));
  EXPECT_THAT(idle.err, HasSubstr("a run this short says little"));
  const auto other = machine.report_of(machine.use() + "use 1 90; seen");
  EXPECT_EQ(other["devices"].size(), 4U) << "somebody else's process is not the program's";
  EXPECT_FALSE(other["devices"][1]["was_used"]);

  auto hidden = machine.watch_shell("sleep 0.2", {"--json"});
  hidden.environment.emplace_back("CUDA_VISIBLE_DEVICES", "2,3");
  EXPECT_EQ(Json::parse(run(hidden).err)["devices"].size(), 2U);
  EXPECT_THAT(run(on_machine("", {"watch", "--", "true"})).err, HasSubstr("no GPU here"));
}

TEST(Watch, SignalsOfOtherProcessesArePassedOn) {
  const Machine machine;
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    Command command(
        machine.watch_shell("trap 'echo caught; exit 5' TERM INT USR1; echo ready; while :; do sleep 0.05; done"));
    ASSERT_TRUE(command.wait_for_output("ready\n"));
    command.signal(signal);
    const auto result = command.wait();
    EXPECT_EQ(result.exit_code, 5) << signal;
    EXPECT_EQ(result.out, "ready\ncaught\n") << signal;
    EXPECT_THAT(result.err, HasSubstr("yoke watch: sh")) << "the report comes all the same";
  }
}

TEST(Watch, AHungDriverDelaysNeitherSignalsNorTheProgram) {
  Command command(on_machine("hung", {"watch", "--", "sh", "-c",
                                      "trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.05; done"}));
  ASSERT_TRUE(command.wait_for_output("ready\n"));
  command.signal(SIGTERM);
  EXPECT_EQ(command.wait().exit_code, 5);
}

// Ctrl-C signals all processes in the terminal's foreground. The program must get one, and the report must appear.
TEST(Watch, CtrlCIsTheProgramsOnce) {
  const Machine machine;
  constexpr auto kProgram =
      "import signal as s\n"
      "s.pthread_sigmask(s.SIG_BLOCK, [s.SIGINT])\n"
      "print('ready', flush=True)\n"
      "s.sigwaitinfo([s.SIGINT])\n"
      "print('first', flush=True)\n"
      "print('interrupted', 'twice' if s.sigtimedwait([s.SIGINT], 0.5) else 'once')\n";
  auto options = machine.watch({"--", "python3", "-c", kProgram});
  // Stops the process that would forward the signal, because two signals at the same time would count as one.
  constexpr auto kTerminal =
      "import os, pty, signal, sys\n"
      "pid, fd = pty.fork()\n"
      "if pid == 0: os.execvp(sys.argv[1], sys.argv[1:])\n"
      "text = b''\n"
      "def read_until(word):\n"
      "    global text\n"
      "    while word not in text:\n"
      "        try: part = os.read(fd, 4096)\n"
      "        except OSError: return\n"
      "        text += part\n"
      "read_until(b'ready')\n"
      "worker = int(open(f'/proc/{pid}/task/{pid}/children').read())\n"
      "os.kill(worker, signal.SIGSTOP)\n"
      "os.write(fd, b'\x03')\n"
      "read_until(b'first')\n"
      "os.kill(worker, signal.SIGCONT)\n"
      "read_until(b'no such text')\n"
      "print(text.decode()); sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n";
  options.argv.insert(options.argv.begin(), {"python3", "-c", kTerminal});
  const auto result = run(options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("interrupted once"), HasSubstr("yoke watch: python3")));
}

// When the terminal hangs up, the kernel signals only the session's leader.
TEST(Watch, AHangupOfItsTerminalReachesTheProgram) {
  const Machine machine;
  constexpr auto kProgram = "trap 'echo told > \"$0\"; exit' HUP; echo ready; while :; do sleep 0.05; done";
  const TemporaryFolder folder;
  auto options = machine.watch({"--", "sh", "-c", kProgram, folder.path("told")});
  constexpr auto kTerminal =
      "import os, pty, sys, time\n"
      "pid, fd = pty.fork()\n"
      "if pid == 0: os.execvp(sys.argv[1], sys.argv[1:])\n"
      "text = b''\n"
      "while b'ready' not in text: text += os.read(fd, 4096)\n"
      "os.close(fd)\n"
      "os.waitpid(pid, 0)\n";
  options.argv.insert(options.argv.begin(), {"python3", "-c", kTerminal});
  const auto result = run(options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(read_file(folder.path("told")), "told\n");
}

TEST(Watch, KillingItLeavesTheProgramAlone) {
  const Machine machine;
  const auto tag = new_tag();
  auto options = machine.watch_shell("trap 'echo hurt' TERM HUP; echo ready; sleep 1; echo finished; touch " +
                                     machine.path("done"));
  options.environment.emplace_back("YOKE_TEST_TAG", tag);
  {
    Command command(options);
    ASSERT_TRUE(command.wait_for_output("ready\n"));
    command.signal(SIGKILL);
    EXPECT_TRUE(wait_until([&] { return std::filesystem::exists(machine.path("done")); }));
    command.wait_until([&] { return command.out().find("finished") != std::string::npos; });
    EXPECT_EQ(command.out(), "ready\nfinished\n");
  }
  EXPECT_TRUE(wait_until([&] { return processes_with_tag(tag).empty(); })) << "and nothing of it stays";
}

TEST(Watch, AProcessThatRunsAlready) {
  const Machine machine;
  Command program({.argv = {"sh", "-c",
                            machine.use() + "use $$ 70; echo ready; until [ -e " + machine.path("end") +
                                " ]; do sleep 0.05; done"}});
  ASSERT_TRUE(program.wait_for_output("ready"));
  Command watched(machine.watch({"--pid", std::to_string(program.pid()), "--json"}));
  run({.argv = {"sh", "-c", machine.use() + "seen"}});
  machine.folder().write("end", "");
  EXPECT_EQ(program.wait().exit_code, 0);
  const auto result = watched.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto json = Json::parse(result.err);
  EXPECT_THAT(json["program"].get<std::string>(), StartsWith("process " + std::to_string(program.pid())));
  ASSERT_EQ(json["devices"].size(), 1U);
  EXPECT_EQ(json["devices"][0]["id"], "1");

  Command endless({.argv = {"sleep", "60"}});
  Command watching(machine.watch({"--pid", std::to_string(endless.pid())}));
  run({.argv = {"sh", "-c", machine.use() + "seen"}});  // the command takes samples, so it handles signals by now
  EXPECT_EQ(watching.err(), "");
  watching.signal(SIGINT);
  const auto stopped = watching.wait();
  EXPECT_EQ(stopped.exit_code, 0);
  EXPECT_THAT(stopped.err, HasSubstr("yoke watch: process "));
  EXPECT_EQ(run(machine.watch({"--pid", "4194304"})).exit_code, 66);
}

TEST(Watch, AReportThatCannotBeWrittenCounts) {
  const auto exit_code = [](const std::vector<std::string>& words, const std::string& redirection) {
    auto options = on_machine("", {"watch"});
    options.argv.insert(options.argv.end(), words.begin(), words.end());
    options.argv.insert(options.argv.begin(), {"sh", "-c", "exec \"$@\" " + redirection, "sh"});
    return run(options).exit_code;
  };
  EXPECT_EQ(exit_code({"--", "true"}, "2> /dev/full"), 75);
  EXPECT_EQ(exit_code({"--json", "--", "true"}, "2> /dev/full"), 75);
  EXPECT_EQ(exit_code({"-o", "/dev/full", "--", "true"}, ""), 75);
  EXPECT_EQ(exit_code({"--", "sh", "-c", "exit 3"}, "2> /dev/full"), 3) << "the program's counts first";
  EXPECT_EQ(exit_code({"--", "true"}, "2>&-"), 0) << "nobody wants it";
}

TEST(Watch, OneFileCannotHaveReportAndPicture) {
  const TemporaryFolder folder;
  std::filesystem::create_directory_symlink(folder.path(), folder.path("link"));
  const auto both = [](const std::string& report, const std::string& picture) {
    return run(on_machine("", {"watch", "-o", report, "--json", "--svg", picture, "--", "true"}));
  };
  for (const auto& picture : {folder.path("file"), folder.path("link/file"), folder.path("./file")}) {
    const auto result = both(folder.path("file"), picture);
    EXPECT_EQ(result.exit_code, 64) << picture;
    EXPECT_THAT(result.err, HasSubstr("-o and --svg both name ")) << picture;
    EXPECT_FALSE(std::filesystem::exists(folder.path("file"))) << "nothing is begun";
  }
  EXPECT_EQ(both(folder.path("file"), folder.path("other")).exit_code, 0);
  EXPECT_EQ(both("/dev/null", "/dev/null").exit_code, 0);
}

TEST(Watch, DrawsThePicture) {
  const Machine machine;
  run(machine.watch_shell(machine.use() + "use $$ 96; seen", {"--svg", machine.path("use.svg")}));
  const auto svg = slurp(machine.path("use.svg"));
  EXPECT_THAT(svg, AllOf(StartsWith("<svg "), HasSubstr("Device 1: NVIDIA A100"), testing::EndsWith("</svg>\n")));
  const auto parsed = run(
      {.argv = {"python3", "-c", "import sys, xml.dom.minidom as x; x.parse(sys.argv[1])", machine.path("use.svg")}});
  EXPECT_EQ(parsed.exit_code, 0) << parsed.err;
}

}  // namespace
}  // namespace yoke::test
