// Tests `yoke ps` with real processes on the GPUs of a fake driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "tests/processes/gpu_user.h"
#include "tests/support/lines.h"
#include "yoke/base/text.h"

namespace yoke::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

Json processes_of(const Result& result) { return Json::parse(result.out).at("processes"); }

std::vector<std::pair<std::string, int64_t>> uses_of(const Json& processes) {
  std::vector<std::pair<std::string, int64_t>> uses;
  for (const auto& process : processes) uses.emplace_back(process.at("device"), process.at("pid"));
  return uses;
}

TEST(Ps, ShowsWhoAndWhatIsBehindEachPid) {
  const GpuUser user(CommandOptions{.argv = {"sleep", "1000"},
                                    .environment = {{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"SLURM_JOB_ID", "4121"}},
                                    .without = {"TMUX", "SLURM_STEP_ID"}});
  const FakeMachine machine{{user.pid()}, {}};
  const auto table = run(machine.yoke({"ps"}));
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_EQ(table.err, "");
  const auto lines = lines_of(table.out);
  ASSERT_THAT(lines, SizeIs(2)) << table.out;
  EXPECT_THAT(lines[0], StartsWith("#  user"));
  EXPECT_THAT(lines[1], HasSubstr("1.0 GiB   90%"));
  EXPECT_THAT(lines[1], HasSubstr("slurm 4121, rank 3/8"));
  EXPECT_THAT(lines[1], HasSubstr("sleep 1000"));

  const auto processes = processes_of(run(machine.yoke({"ps", "--json"})));
  ASSERT_THAT(processes, SizeIs(1));
  const auto& process = processes[0];
  EXPECT_EQ(process.at("device"), "0");
  EXPECT_EQ(process.at("pid"), user.pid());
  EXPECT_EQ(process.at("uid"), geteuid());
  EXPECT_EQ(process.at("parent_pid"), getpid());
  EXPECT_EQ(process.at("command"), "sleep 1000");
  EXPECT_EQ(process.at("memory_bytes"), int64_t{1} << 30);
  EXPECT_EQ(process.at("utilization_percent"), 90);
  EXPECT_EQ(process.at("is_visible"), true);
  EXPECT_EQ(process.at("origin").at("slurm").at("job_id"), 4121);
  EXPECT_EQ(process.at("origin").at("torch_rank").at("rank"), 3);
  EXPECT_GE(process.at("age_seconds"), 0.0);
  // clock: ten times what a test on a busy machine takes
  EXPECT_LT(process.at("age_seconds"), 300.0) << "no process of a test is older";
}

TEST(Ps, SortsByDeviceThenMemory) {
  const GpuUser one, two;
  const FakeMachine machine{{one.pid(), two.pid()}, {one.pid()}};
  const auto uses = uses_of(processes_of(run(machine.yoke({"ps", "--json"}))));
  using Use = std::pair<std::string, int64_t>;
  EXPECT_THAT(uses, ElementsAre(Use{"0", two.pid()}, Use{"0", one.pid()}, Use{"1", one.pid()}));
}

TEST(Ps, ChoosesByDeviceAndUser) {
  const GpuUser mine;
  const FakeMachine machine{{mine.pid()}, {1}};
  const auto pids = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"ps", "--json"});
    std::vector<int64_t> result;
    for (const auto& process : processes_of(run(machine.yoke(words)))) result.push_back(process.at("pid"));
    return result;
  };
  EXPECT_THAT(pids({"--device", "0"}), ElementsAre(mine.pid()));
  EXPECT_THAT(pids({"-d", "1"}), ElementsAre(1));
  EXPECT_THAT(pids({"-d", "1", "0"}), ElementsAre(mine.pid(), 1));
  const auto uid = std::to_string(geteuid());
  EXPECT_THAT(pids({"--user", uid, "-d", "0"}), ElementsAre(mine.pid()));
  EXPECT_THAT(pids({"--mine", "-d", "0"}), ElementsAre(mine.pid()));
  EXPECT_THAT(pids({"-u", "daemon"}), IsEmpty());
  EXPECT_EQ(run(machine.yoke({"ps", "-u", "daemon"})).out, "no process of this user on any device\n");
  const auto nobody = run(machine.yoke({"ps", "-u", "nobody-of-that-name"}));
  EXPECT_EQ(nobody.exit_code, 66);
  EXPECT_EQ(nobody.err, "yoke ps: there is no user `nobody-of-that-name` here\n");
  const auto missing = run(machine.yoke({"ps", "-d", "7"}));
  EXPECT_EQ(missing.exit_code, 66);
  EXPECT_THAT(missing.err, HasSubstr("there is no device `7`"));
  EXPECT_EQ(run(machine.yoke({"ps", "--json", "--csv"})).exit_code, 64);
}

TEST(Ps, NobodyIsAnAnswer) {
  const FakeMachine idle{{}, {}};
  const auto none = run(idle.yoke({"ps"}));
  EXPECT_EQ(none.exit_code, 0);
  EXPECT_EQ(none.out, "no process on any device\n");
  EXPECT_EQ(run(idle.yoke({"ps", "-d", "1"})).out, "no process on the chosen devices\n");
  EXPECT_THAT(processes_of(run(idle.yoke({"ps", "--json"}))), IsEmpty());
  EXPECT_THAT(lines_of(run(idle.yoke({"ps", "--csv"})).out), SizeIs(1));
  const auto no_gpu = yoke_on("", {"ps"});
  EXPECT_EQ(no_gpu.exit_code, 0);
  EXPECT_EQ(no_gpu.out, "no process on any device\n");
  EXPECT_THAT(no_gpu.err, HasSubstr("no GPU"));
}

TEST(Ps, AnUnknownPidIsShownAsSuch) {
  const FakeMachine machine{{4'194'300}};
  const auto table = run(machine.yoke({"ps"}));
  EXPECT_THAT(table.out, HasSubstr("0  ?     4194300  C     1.0 GiB"));
  EXPECT_THAT(table.out, HasSubstr("(not in this PID namespace"));
  const auto process = processes_of(run(machine.yoke({"ps", "--json"}))).at(0);
  EXPECT_EQ(process.at("is_visible"), false);
  EXPECT_TRUE(process.at("user").is_null());
  EXPECT_TRUE(process.at("command").is_null());
  EXPECT_TRUE(process.at("age_seconds").is_null());
  EXPECT_THAT(std::string(process.at("reason")), HasSubstr("PID namespace"));
}

TEST(Ps, AZombieIsShownByItsName) {
  GpuUser user;
  const FakeMachine machine{{user.pid()}};
  user.command().signal(SIGKILL);
  ASSERT_TRUE(wait_until([&] { return !user.is_running(); }));
  const auto process = processes_of(run(machine.yoke({"ps", "--json"}))).at(0);
  EXPECT_EQ(process.at("state"), "Z");
  EXPECT_EQ(process.at("command"), "[sleep]");
}

TEST(Ps, HostileCommandLinesAreHarmless) {
  const std::string nasty =
      "\x1b]0;owned\x07\x1b[2J\xff\xfe\xc0\n0  root  1  C\u202e\x9b"
      "31m";
  GpuUser user(CommandOptions{.argv = {"sh", "-c", "echo ready; sleep 1000", nasty, std::string(100'000, 'x')}});
  ASSERT_TRUE(user.wait_until_ready());
  const FakeMachine machine{{user.pid()}};
  for (const auto& words : {std::vector<std::string>{"ps"}, {"ps", "--wide"}, {"ps", "--csv"}, {"ps", "--json"}}) {
    const auto result = run(machine.yoke(words));
    EXPECT_EQ(result.exit_code, 0);
    const bool is_json = words.back() == "--json";
    EXPECT_EQ(lines_of(result.out).size() == 2, !is_json) << words.back();
    for (const char c : {'\x1b', '\x07', '\xff', '\xfe', '\xc0', '\x9b'}) {
      EXPECT_EQ(result.out.find(c), std::string::npos) << words.back();
    }
    EXPECT_LT(result.out.size(), 80'000U);
  }
  EXPECT_THAT(std::string(processes_of(run(machine.yoke({"ps", "--json"}))).at(0).at("command")), HasSubstr("\x1b[2J"))
      << "JSON keeps what can be written in it";
}

TEST(Ps, AHundredProcessesFitEightyColumns) {
  const auto result = yoke_on("many_processes", {"ps"});
  const auto lines = lines_of(result.out);
  EXPECT_THAT(lines, SizeIs(101));
  for (const auto& line : lines) EXPECT_LE(display_width(line), 80) << line;
  auto narrow = on_machine("many_processes", {"ps"});
  narrow.environment.emplace_back("COLUMNS", "50");
  for (const auto& line : lines_of(run(narrow).out)) EXPECT_LE(display_width(line), 50) << line;
  EXPECT_THAT(processes_of(yoke_on("many_processes", {"ps", "--json"})), SizeIs(100));
}

TEST(Ps, AGpuThatDoesNotAnswerIsNotOneWithoutProcesses) {
  const auto result = run(on_machine("hung", {"ps"}));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "no process is known; not known are those of device 5 (no answer)\n");
  EXPECT_THAT(result.err, HasSubstr("\nyoke ps: the processes of device 5 are not known\n"));
  const auto json = Json::parse(run(on_machine("hung", {"ps", "--json"})).out);
  EXPECT_THAT(json.at("processes"), IsEmpty());
  ASSERT_THAT(json.at("unanswered"), SizeIs(1));
  EXPECT_EQ(json.at("unanswered")[0].at("device"), "5");
  EXPECT_EQ(json.at("unanswered")[0].at("state"), "no answer");
  EXPECT_THAT(std::string(json.at("unanswered")[0].at("reason")), HasSubstr("has not answered"));

  const FakeMachine idle{{}, {}};
  EXPECT_THAT(Json::parse(run(idle.yoke({"ps", "--json"})).out).at("unanswered"), IsEmpty());
  // After an update of the driver's libraries NVML fails, but running programs still use the GPUs.
  const auto mismatch = Json::parse(run(on_machine("version_mismatch", {"ps", "--json"})).out).at("unanswered");
  ASSERT_THAT(mismatch, SizeIs(1));
  EXPECT_THAT(std::string(mismatch[0].at("reason")), HasSubstr("different versions"));
  EXPECT_EQ(run(on_machine("version_mismatch", {"kill", "--mine", "--yes"})).exit_code, 75);
  const auto first = run(on_machine("version_mismatch", {"ps", "-d", "0"}));
  EXPECT_EQ(first.exit_code, 69);
  EXPECT_THAT(first.err, HasSubstr("different versions"));
}

TEST(Ps, ADriverThatTellsNoProcessesSaysSo) {
  const TemporaryFolder folder;
  folder.write("state.json", R"({"devices": 2, "overrides": {"1": {"processes": null}}})");
  const auto result = yoke_on(folder.path("state.json"), {"ps"});
  EXPECT_EQ(result.out, "no process is known; not known are those of device 1 (its driver does not list processes)\n");
}

TEST(Ps, WhatWasNotAskedForIsNotWaitedFor) {
  // The deadline is longer than this test may run, so the test passes only if the command ends without the hanging GPU.
  const TemporaryFolder folder;
  folder.write("state.json", R"({"devices": 3, "overrides": {"1": {"hang_s": 1000}}})");
  for (const std::string word : {"0", "2-2", "nvidia:0", "cpu", "0,2"}) {
    const auto result = yoke_on(folder.path("state.json"), {"ps", "-d", word, "--deadline", "1000"});
    EXPECT_FALSE(result.timed_out) << word;
    EXPECT_EQ(result.exit_code, 0) << word << result.err;
    EXPECT_EQ(result.out, "no process on the chosen devices\n");
    EXPECT_EQ(result.err, "");
  }
}

TEST(Ps, EverySpellingOfTheChoiceIsTheSame) {
  const GpuUser user;
  const FakeMachine machine{{1}, {user.pid()}, {user.pid()}};
  for (const auto* option : {"-d", "--device", "--devices", "-i", "--id"}) {
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"1", "2"}, {"1,2"}, {"1-2"}, {"nvidia:1-2"}}) {
      std::vector<std::string> all = {"ps", "--json", option};
      all.insert(all.end(), words.begin(), words.end());
      const auto result = run(machine.yoke(all));
      ASSERT_EQ(result.exit_code, 0) << option << result.err;
      EXPECT_THAT(uses_of(processes_of(result)), ElementsAre(std::pair<std::string, int64_t>("1", user.pid()),
                                                             std::pair<std::string, int64_t>("2", user.pid())))
          << option << words.front();
    }
  }
  const auto help = run(machine.yoke({"ps", "--help"})).out;
  EXPECT_THAT(help, HasSubstr("-d,--device ID..."));
  EXPECT_THAT(help, testing::Not(HasSubstr("--devices")));
}

TEST(Ps, ProcessesWithoutAKnownUserAreCountedWhenLeftOut) {
  const FakeMachine machine{{4'194'300}};
  const auto result = run(machine.yoke({"ps", "--mine"}));
  EXPECT_EQ(result.out, "no process of this user on any device\n");
  EXPECT_THAT(result.err, HasSubstr("left out: 1 process whose user is not known"));
}

TEST(Ps, WatchingRepeatsIt) {
  const GpuUser user;
  const FakeMachine machine{{user.pid()}};
  Command json(machine.yoke({"ps", "--watch", "0.05", "--json"}));
  ASSERT_TRUE(json.wait_until([&] { return lines_of(json.out()).size() > 3; }));
  json.signal(SIGTERM);
  const auto result = json.wait();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  EXPECT_EQ(Json::parse(lines_of(result.out)[2]).at("processes")[0].at("pid"), user.pid());

  Command csv(machine.yoke({"ps", "--watch", "0.05", "--csv"}));
  ASSERT_TRUE(csv.wait_until([&] { return lines_of(csv.out()).size() > 3; }));
  csv.signal(SIGTERM);
  const auto lines = lines_of(csv.wait().out);
  EXPECT_THAT(lines[0], StartsWith("time_seconds,device,"));
  EXPECT_THAT(lines[1], HasSubstr(",0,"));
  EXPECT_THAT(lines[2], testing::Not(HasSubstr("time_seconds"))) << "titles come once";

  auto options = machine.yoke({"ps", "--watch", "0.05"});
  options.on_terminal = true;
  Command screen(options);
  EXPECT_TRUE(
      screen.wait_until([&] { return screen.out().find("\x1b[H", screen.out().find("sleep")) != std::string::npos; }));
  EXPECT_THAT(screen.out(), HasSubstr(", every 0.05 s"));
  screen.signal(SIGINT);
  EXPECT_EQ(screen.wait().exit_code, 128 + SIGINT);
  EXPECT_EQ(run(machine.yoke({"ps", "--watch", "0"})).exit_code, 64);
}

TEST(Ps, ReadsARecording) {
  const GpuUser user;
  const FakeMachine machine{{user.pid(), 4'194'300}};
  const auto file = machine.folder().path("machine.jsonl");
  ASSERT_EQ(run(machine.yoke({"devices", "--record", file})).exit_code, 0);
  const auto once = run({.argv = {YOKE_COMMAND, "ps", "--replay", file}});
  EXPECT_EQ(once.exit_code, 0);
  EXPECT_THAT(once.out, HasSubstr("sleep 1000"));
  EXPECT_THAT(once.out, HasSubstr("4194300"));
  EXPECT_EQ(run({.argv = {YOKE_COMMAND, "ps", "--replay", file}}).out, once.out) << "ages are of the time of recording";
}

}  // namespace
}  // namespace yoke::test
