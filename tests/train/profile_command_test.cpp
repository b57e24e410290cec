// `yoke profile` of programs that train: started by it, or running already; in C++ and in Python.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"

namespace yoke::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class ProfileCommandTest : public testing::Test {
 protected:
  std::vector<std::string> words(std::vector<std::string> first, const std::vector<std::string>& program) const {
    first.insert(first.begin(), {YOKE_COMMAND, "profile"});
    first.insert(first.end(), program.begin(), program.end());
    return first;
  }

  CommandOptions command(const std::vector<std::string>& argv) const {
    return {.argv = argv, .environment = {{"TMPDIR", folder_.path()}}, .without = {"YOKE_PROFILE", "PYTHONPATH"}};
  }

  /// Runs `yoke profile OPTIONS -- PROGRAM`.
  Result profile(const std::vector<std::string>& options, std::vector<std::string> program) const {
    program.insert(program.begin(), "--");
    return run(command(words(options, program)));
  }

  static std::vector<std::string> training(const std::string& name, const std::string& steps = "20") {
    return {YOKE_PROFILED, name, "--steps", steps};
  }
  static std::vector<std::string> ranks(std::vector<std::string> program) {
    program.insert(program.begin(), {YOKE_COMMAND, "run", "-n", "2", "--"});
    return program;
  }

  json report_of(const std::vector<std::string>& program) const {
    const auto result = profile({"--json", "--stop"}, program);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out, nullptr, false);
  }

  /// Whether one of five recordings shows what is planted. Other tests on the same processors make steps longer and
  /// ranks late, which can hide it.
  testing::AssertionResult is_soon(const std::vector<std::string>& program,
                                   const std::function<bool(const json&)>& is_as_planted) const {
    json report;
    for (int i = 0; i < 5; ++i) {
      report = report_of(program);
      if (is_as_planted(report)) return testing::AssertionSuccess();
    }
    return testing::AssertionFailure() << report.dump(1);
  }

  std::vector<std::string> left_over() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  const TemporaryFolder folder_;
};

TEST_F(ProfileCommandTest, NamesTheBottleneckThatAProgramWasGiven) {
  std::vector<std::string> bottlenecks{"data_loading", "small_operations", "optimizer"};
  if (sysconf(_SC_NPROCESSORS_ONLN) > 1) bottlenecks.push_back("threads");
  for (const auto& bottleneck : bottlenecks) {
    EXPECT_TRUE(is_soon(training(bottleneck, "1000"), [&](const json& report) {
      const auto& rank = report["ranks"][0];
      return report["bottleneck"] == bottleneck && rank["steps"] == 6 && rank["trace"] == "rank0.json";
    }));
  }
  EXPECT_THAT(left_over(), IsEmpty());
}

TEST_F(ProfileCommandTest, ComparesTheRanksOfAJob) {
  EXPECT_TRUE(is_soon(ranks(training("skew", "1000")), [](const json& report) {
    return report["bottleneck"] == "skew" && report.value(json::json_pointer("/straggler/rank"), -1) == 1 &&
           report["ranks"].size() == 2;
  }));
  EXPECT_TRUE(is_soon(ranks(training("communication", "1000")), [](const json& report) {
    return std::ranges::any_of(report["causes"], [](const json& one) {
      return one["cause"] == "communication" && one["gain_ceiling_percent"] > 20;
    });
  }));
}

TEST_F(ProfileCommandTest, TheProgramGoesOnAndItsStatusAndOutputAreItsOwn) {
  const auto text = profile({}, training("none", "40"));
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_EQ(text.out, "trained 40 steps\n") << "nothing but the program's output";
  EXPECT_THAT(text.err, HasSubstr("yoke profile: "));
  EXPECT_THAT(text.err, HasSubstr("rank0.json"));

  const auto as_json = profile({"--json"}, training("none", "40"));
  EXPECT_TRUE(json::accept(as_json.out)) << as_json.out;
  EXPECT_THAT(as_json.err, HasSubstr("trained 40 steps"));

  EXPECT_EQ(profile({}, {"./no-such-program"}).exit_code, 127);
  EXPECT_EQ(profile({}, training("crash")).exit_code, 128 + SIGABRT);
  EXPECT_EQ(profile({}, training("fail")).exit_code, 70);
}

TEST_F(ProfileCommandTest, SaysWhyThereIsNoReport) {
  const auto early = profile({}, training("none", "9"));
  EXPECT_EQ(early.exit_code, 69);
  EXPECT_THAT(early.err, AllOf(HasSubstr("the program ended before the recording was complete"),
                               HasSubstr("rank 0 has ended 9 of the 13")));
  EXPECT_EQ(early.out, "trained 9 steps\n") << "it ends well within the window";
  const auto none = profile({}, training("no_step"));
  EXPECT_EQ(none.exit_code, 69);
  EXPECT_THAT(none.err, HasSubstr("no step was seen"));
  const auto out = folder_.path("traces");
  const auto failed = profile({"--out", out}, {"sh", "-c", "exit 3"});
  EXPECT_EQ(failed.exit_code, 3);
  EXPECT_THAT(failed.err, HasSubstr("the program ended with status 3 before a step was seen"));
  EXPECT_FALSE(std::filesystem::exists(out)) << "it would be empty";
  const auto own = profile({}, training("own_profiler"));
  EXPECT_EQ(own.exit_code, 69);
  EXPECT_THAT(own.err, HasSubstr("another recording runs in this process"));
  EXPECT_THAT(own.out, HasSubstr("trained"));
  EXPECT_THAT(left_over(), IsEmpty());
}

TEST_F(ProfileCommandTest, KeepsTracesInAFolderOfTheirOwn) {
  const auto out = folder_.path("traces");
  EXPECT_EQ(profile({"--out", out}, training("gan")).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(out + "/rank0.json"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(out), std::filesystem::directory_iterator()), 1);
  const auto trace = json::parse(slurp(out + "/rank0.json"));
  const auto is_step = [](const json& event) { return event.value("name", "").starts_with("ProfilerStep#"); };
  EXPECT_EQ(std::count_if(trace["traceEvents"].begin(), trace["traceEvents"].end(), is_step), 6)
      << "two optimizers, one step each";
  const auto again = profile({"--out", out}, training("none"));
  EXPECT_EQ(again.exit_code, 69);
  EXPECT_THAT(again.err, HasSubstr("has rank0.json already"));
  EXPECT_EQ(again.out, "") << "the program did not start";
  const auto read = run({.argv = {YOKE_COMMAND, "profile", "--trace", out, "--json"}});
  EXPECT_EQ(json::parse(read.out)["ranks"][0]["steps"], 6);
}

TEST_F(ProfileCommandTest, LightRecordingsNameTheLoaderAndNothingThatTheyDoNotSee) {
  const auto loading = profile({"--light", "--stop", "--json"}, training("data_loading", "1000"));
  EXPECT_EQ(json::parse(loading.out)["bottleneck"], "data_loading");
  const auto small = profile({"--light", "--stop", "--json"}, training("small_operations", "1000"));
  const auto report = json::parse(small.out);
  EXPECT_EQ(report["bottleneck"], "none");
  EXPECT_THAT(report["notes"].dump(), HasSubstr("annotations only"));
}

TEST_F(ProfileCommandTest, ARestartedJobIsRecordedInItsNextAttempt) {
  folder_.write("rank",
                "#!/bin/sh\nif [ $TORCHELASTIC_RESTART_COUNT = 0 ] && [ $RANK = 1 ]; then\n  exec " +
                    std::string(YOKE_PROFILED) + " fail\nfi\nexec " + YOKE_PROFILED + " none --steps 20\n",
                true);
  const auto result =
      profile({"--json"}, {YOKE_COMMAND, "run", "-n", "2", "--max-restarts", "1", "--", folder_.path("rank")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(json::parse(result.out)["ranks"].size(), 2u);
}

TEST_F(ProfileCommandTest, CtrlCEndsTheProgramAndLeavesNothing) {
  Command running(command(words({"--wait", "0", "--"}, training("none", "1000000"))));
  ASSERT_TRUE(running.wait_until([&] { return !left_over().empty() && !children_of(running.pid()).empty(); }));
  const auto program = children_of(running.pid()).at(0);
  running.signal(SIGINT);
  EXPECT_EQ(running.wait().exit_code, 128 + SIGINT);
  EXPECT_THAT(state_of(program), AnyOf('X', 'Z'));
  EXPECT_THAT(left_over(), IsEmpty());
}

// Programs that run already.

class RunningTest : public ProfileCommandTest {
 protected:
  /// Starts a training and waits until it answers.
  Command& start(std::vector<std::string> argv) {
    argv.insert(argv.end(), {"--step-ms", "5"});
    auto& program = *programs_.emplace_back(std::make_unique<Command>(command(argv)));
    return program;
  }
  Result ask(pid_t pid, std::vector<std::string> options = {}) const {
    options.insert(options.begin(), {"--pid", std::to_string(pid)});
    return run(command(words(options, {})));
  }

  std::vector<std::unique_ptr<Command>> programs_;
};

TEST_F(RunningTest, AnswersInTimeAndTrainsOn) {
  auto& program = start(training("none", "100000"));
  const auto first = ask(program.pid(), {"--json"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(json::parse(first.out)["ranks"][0]["steps"], 6);
  // The program trains for minutes, which is longer than ask() waits.
  EXPECT_EQ(ask(program.pid(), {"--steps", "3"}).exit_code, 0);
  EXPECT_THAT(state_of(program.pid()), Not(AnyOf('X', 'Z')));
  EXPECT_THAT(left_over(), IsEmpty());
}

TEST_F(RunningTest, OneClientAtATime) {
  auto& program = start(training("none", "100000"));
  ASSERT_EQ(ask(program.pid()).exit_code, 0);
  auto on_terminal = command(words({"--pid", std::to_string(program.pid()), "--steps", "10000"}, {}));
  on_terminal.on_terminal = true;
  Command first(on_terminal);
  ASSERT_TRUE(first.wait_for_output("rank 0 has ended ")) << "its progress line: the program has answered it";
  const auto second = ask(program.pid());
  EXPECT_EQ(second.exit_code, 69);
  EXPECT_THAT(second.err, HasSubstr("another `yoke profile`"));
  first.signal(SIGINT);
  EXPECT_EQ(first.wait().exit_code, 128 + SIGINT);
  EXPECT_EQ(ask(program.pid()).exit_code, 0) << "the program has noticed that the client is gone";
  EXPECT_THAT(left_over(), IsEmpty());
}

TEST_F(RunningTest, AProgramThatExitsWhileItIsRecordedDoesNotCrash) {
  auto& program = start(training("none", "100"));
  const auto result = ask(program.pid(), {"--steps", "10000"});
  EXPECT_EQ(result.exit_code, 69);
  EXPECT_THAT(result.err, HasSubstr("ended before its trace was written"));
  EXPECT_EQ(program.wait().exit_code, 0);
}

TEST_F(RunningTest, RefusesWhatItCannotAsk) {
  EXPECT_EQ(ask(getpid()).exit_code, 69) << "this test is no program on yoke";
  Command python(command({"python3", "-c", "import time; time.sleep(60)"}));
  ASSERT_TRUE(wait_until([&] {
    std::error_code error;
    return std::filesystem::read_symlink("/proc/" + std::to_string(python.pid()) + "/exe", error)
        .filename()
        .native()
        .starts_with("python");
  }));
  EXPECT_THAT(ask(python.pid()).err, HasSubstr("runs Python"));
  const pid_t gone = [&] {
    Command ended(command({"true"}));
    const auto pid = ended.pid();
    ended.wait();
    return pid;
  }();
  EXPECT_EQ(ask(gone).exit_code, 66);

  auto options = command(training("none", "100000"));
  options.environment.emplace_back("YOKE_PROFILE", "off");
  options.without = {};
  Command off(options);
  EXPECT_THAT(ask(off.pid()).err, HasSubstr("YOKE_PROFILE=off"));

  auto& stopped = start(training("none", "100000"));
  ASSERT_EQ(ask(stopped.pid()).exit_code, 0);
  stopped.signal(SIGSTOP);
  const auto late = ask(stopped.pid(), {"--timeout", "1"});
  EXPECT_EQ(late.exit_code, 124);
  EXPECT_THAT(late.err, HasSubstr("no step ended in 1 s"));
  stopped.signal(SIGCONT);
  EXPECT_EQ(ask(stopped.pid()).exit_code, 0);
  EXPECT_THAT(left_over(), IsEmpty());
}

TEST_F(RunningTest, AJobIsRecordedInTheSameSteps) {
  auto& job = start(ranks(training("none", "100000")));
  const auto ask_job = [&] { return run(command(words({"--job", std::to_string(job.pid()), "--json"}, {}))); };
  ASSERT_TRUE(wait_until([&] { return ask_job().exit_code == 0; }));
  const auto report = json::parse(ask_job().out);
  ASSERT_EQ(report["ranks"].size(), 2u);
  EXPECT_THAT(report["notes"].dump(), Not(HasSubstr("No step is in the traces of all ranks")));
  EXPECT_THAT(ask(job.pid()).err, HasSubstr("--job " + std::to_string(job.pid())));
}

// Python, where a torchrun is installed.

class PythonTest : public ProfileCommandTest {
 protected:
  void SetUp() override {
    const char* torchrun = getenv("YOKE_PEER_TORCHRUN");
    if (torchrun == nullptr) GTEST_SKIP() << "YOKE_PEER_TORCHRUN is not set";
    python_ = std::filesystem::path(torchrun).replace_filename("python").native();
  }

  std::string python_;
};

TEST_F(PythonTest, IsRecordedWithoutAChangeAndKeepsItsSitecustomize) {
  folder_.write("site/sitecustomize.py", "import os\nos.environ['MARK_OF_SITE'] = 'seen'\n");
  auto options = command(words({"--json", "--"}, {python_, YOKE_PYTHON_PROGRAM, "data_loading", "14"}));
  options.environment.emplace_back("PYTHONPATH", folder_.path("site"));
  const auto result = run(options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(json::parse(result.out)["bottleneck"], "data_loading") << result.out;
  EXPECT_THAT(result.err, HasSubstr("trained 14 steps seen"));
}

TEST_F(PythonTest, AnOptimizerThatStepsWithinBackwardIsRefused) {
  const auto result = profile({}, {python_, YOKE_PYTHON_PROGRAM, "within_backward", "14"});
  EXPECT_EQ(result.exit_code, 69);
  EXPECT_THAT(result.err, HasSubstr("the optimizer steps within backward()"));
  EXPECT_THAT(result.out, HasSubstr("trained 14 steps")) << "the training goes on";
}

}  // namespace
}  // namespace yoke::test
