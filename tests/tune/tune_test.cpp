// Tests `yoke tune batch` on a program that writes step times of a machine which the test chooses (fake_training.cpp).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/command.h"
#include "tests/support/lines.h"

namespace yoke::test {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

/// Runs the command with a folder for its files, and finds what it leaves behind.
class Tune : public testing::Test {
 protected:
  CommandOptions tune(std::vector<std::string> options, std::vector<std::string> program_arguments = {}) const {
    std::vector<std::string> words = {YOKE_COMMAND, "tune", "batch"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--", YOKE_FAKE_TRAINING});
    words.insert(words.end(), program_arguments.begin(), program_arguments.end());
    return {.argv = std::move(words), .environment = {{"TMPDIR", folder_.path("tmp")}, {"YOKE_TEST_TAG", tag_}}};
  }
  Json json(std::vector<std::string> options, std::vector<std::string> program_arguments = {}) const {
    options.insert(options.begin(), {"--json", "--soak", "0"});
    const auto result = run(tune(std::move(options), std::move(program_arguments)));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out);
  }
  void expect_nothing_left() const {
    EXPECT_TRUE(wait_until([&] { return processes_with_tag(tag_).empty(); })) << "processes are left";
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path("tmp"))) << "files are left";
  }
  void SetUp() override { std::filesystem::create_directory(folder_.path("tmp")); }

  TemporaryFolder folder_;
  std::string tag_ = new_tag();
};

TEST_F(Tune, FindsTheKneeAndSaysWhy) {
  const auto result = run(tune({"--dataset-size", "60000"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  // t(B) = 1 ms + 10 us B. Of 8,192, the largest that is measured, 3,072 has 98.03 % of the rate.
  EXPECT_THAT(result.out, AllOf(HasSubstr("Batch size 3072: 96.8 k samples/s."), HasSubstr("are not faster"),
                                HasSubstr("1.00 ms and 10.0 us for each sample"), HasSubstr("<- the answer"),
                                HasSubstr("An epoch of 60000 samples has 20 steps."), HasSubstr("3072/N"),
                                HasSubstr("memory does not grow")));
  EXPECT_THAT(result.err, AllOf(HasSubstr("batch size 32: "), Not(HasSubstr("warning"))));
  expect_nothing_left();
}

TEST_F(Tune, PrintsJson) {
  const auto answer = json({"--dataset-size", "60000"});
  EXPECT_EQ(answer["batch_size"], 3072);
  EXPECT_NEAR(answer["samples_per_second"].get<double>(), 96847, 10);
  EXPECT_EQ(answer["reason"], "no_gain");
  EXPECT_EQ(answer["ranks"], 1);
  EXPECT_EQ(answer["fastest_batch_size"], 8192);
  EXPECT_EQ(answer["samples_per_step"], 3072);
  EXPECT_EQ(answer["steps_per_epoch"], 20);
  EXPECT_NEAR(answer["fixed_seconds"].get<double>(), 1e-3, 1e-5);
  EXPECT_EQ(answer["memory"]["host_peak_bytes"], 600 << 20);
  EXPECT_TRUE(answer["soak"].is_null());
  EXPECT_THAT(answer["warnings"], IsEmpty());
  std::set<int64_t> sizes;
  for (const auto& run : answer["results"]) {
    EXPECT_EQ(run["outcome"], "ok");
    EXPECT_GT(run["steps"], 5);
    sizes.insert(run["batch_size"].get<int64_t>());
  }
  EXPECT_TRUE(sizes.contains(32) && sizes.contains(8192));
}

TEST_F(Tune, PrintsOnlyTheNumberForScripts) {
  EXPECT_EQ(run(tune({"--print", "--max", "256", "--soak", "0"})).out, "256\n");
}

TEST_F(Tune, HandsTheBatchSizeToTheProgram) {
  const auto log = folder_.path("log");
  const auto first_line = [&](std::vector<std::string> options, std::vector<std::string> arguments) {
    std::filesystem::remove(log);
    arguments.push_back("log=" + log);
    options.insert(options.begin(), {"--max", "48", "--min", "48"});
    const auto result = run(tune(options, arguments));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return slurp(log).substr(0, slurp(log).find('\n'));
  };
  EXPECT_THAT(first_line({}, {}), StartsWith("48 log="));
  EXPECT_THAT(first_line({}, {"batch={}"}), StartsWith("48 batch=48 log="));
  EXPECT_THAT(first_line({"--option", "batch"}, {"batch=5"}), StartsWith("48 batch=48 "));
  EXPECT_THAT(first_line({"--option", "--batch-size"}, {}), testing::EndsWith(" --batch-size 48"));
  EXPECT_THAT(first_line({"--variable", "OTHER"}, {}), StartsWith("32 log=")) << "BATCH_SIZE is not set then";
}

TEST_F(Tune, PredictsMemoryAndStaysBelowItsLimit) {
  // Larger is always faster; 300 MiB + 1 MiB B, and 90 % of 2,000 MiB may be used: 1,500 samples.
  const auto answer = json({"--memory", "2000"}, {"fixed_us=1e6", "sample_kib=1024", "limit_mib=2000"});
  EXPECT_EQ(answer["reason"], "memory");
  EXPECT_EQ(answer["batch_size"], 1280);
  EXPECT_EQ(answer["largest_fitting_batch_size"], 1500);
  for (const auto& run : answer["results"]) EXPECT_EQ(run["outcome"], "ok") << "the limit was hit";
}

TEST_F(Tune, SurvivesAProgramThatRunsOutOfMemory) {
  const auto answer = json({}, {"fixed_us=1e6", "sample_kib=1024", "limit_mib=1000"});
  EXPECT_EQ(answer["reason"], "memory");
  EXPECT_EQ(answer["batch_size"], 640);
  EXPECT_TRUE(std::ranges::any_of(answer["results"], [](const Json& run) {
    return run["outcome"] == "out_of_memory" && run["batch_size"] == 1024;
  }));
}

TEST_F(Tune, LeavesRoomForTheLongestSamples) {
  const std::vector<std::string> program = {"fixed_us=1e6", "sample_kib=1024", "longest=4"};
  const auto without = json({"--memory", "2000"}, program), with = json({"--memory", "2000", "--worst-case"}, program);
  EXPECT_EQ(without["batch_size"], 1280);
  EXPECT_EQ(with["batch_size"], 320);
}

TEST_F(Tune, CountsTheSamplesOfAllRanks) {
  const auto patient_run = [](const CommandOptions& command) {  // an instrumented launcher takes seconds to start
    return Command(command).wait(milliseconds(150'000));
  };
  auto options = tune({"--min", "63", "--max", "63", "--json", "--soak", "0"});
  auto& words = options.argv;
  words.insert(words.end() - 1, {YOKE_COMMAND, "run", "-n", "3"});
  const auto per_rank = Json::parse(patient_run(options).out);
  EXPECT_EQ(per_rank["ranks"], 3);
  EXPECT_EQ(per_rank["batch_size"], 63);
  EXPECT_EQ(per_rank["samples_per_step"], 189);
  EXPECT_NEAR(per_rank["samples_per_second"].get<double>(), 3 * 63 / 1.63e-3, 100);

  words.insert(words.begin() + 3, "--global");
  const auto global = Json::parse(patient_run(options).out);
  EXPECT_EQ(global["samples_per_step"], global["batch_size"]);
  EXPECT_EQ(global["batch_size"].get<int64_t>() % 3, 0) << "a batch that the ranks can share";
  expect_nothing_left();
}

TEST_F(Tune, WaitsForARankThatStepsAfterTheOthersHaveEndedTheirSteps) {
  auto options = tune({"--min", "32", "--max", "32", "--json", "--soak", "0"}, {"late_rank=1"});
  auto& words = options.argv;
  words.insert(words.end() - 2, {YOKE_COMMAND, "run", "-n", "2"});
  const auto result = run(options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out)["ranks"], 2);
}

TEST_F(Tune, ShowsTheLastLinesOfAProgramThatFails) {
  const auto result = run(tune({}, {"fails_from=1"}));
  EXPECT_EQ(result.exit_code, 69);
  EXPECT_THAT(result.err, HasSubstr("with batch size 32, the program ended with status 3; the last lines of"));
  EXPECT_THAT(result.err, HasSubstr("\n  ValueError: the loss is nan\n"));
  EXPECT_THAT(result.out, IsEmpty());
  const auto as_json = run(tune({"--json"}, {"fails_from=1"}));
  EXPECT_EQ(as_json.exit_code, 69);
  EXPECT_TRUE(Json::parse(as_json.out)["batch_size"].is_null());
}

TEST_F(Tune, TakesAFailureOfLargeBatchesAsTheirBound) {
  const auto answer = json({}, {"fails_from=500"});
  EXPECT_EQ(answer["reason"], "failure");
  EXPECT_LT(answer["batch_size"], 500);
  EXPECT_GE(answer["batch_size"], 384);
}

TEST_F(Tune, OneCrashIsAWarning) {
  const auto result = run(tune({"--min", "32", "--soak", "0"}, {"fails_once=" + folder_.path("failed")}));
  EXPECT_EQ(result.exit_code, 69) << "at the first size it is taken for the program's fault";
  EXPECT_THAT(result.err, HasSubstr("SIGABRT ended the program"));
  EXPECT_THAT(result.err, HasSubstr("it printed nothing"));
}

TEST_F(Tune, AProgramThatDoesNotStepIsAnError) {
  const auto never = run(tune({}, {"never_steps"}));
  EXPECT_EQ(never.exit_code, 69);
  EXPECT_THAT(never.err, HasSubstr("no optimizer of yoke or torch has stepped before the program ended"));
  const auto sleeping = run({.argv = {YOKE_COMMAND, "tune", "batch", "--timeout", "1", "--", "sleep", "100"},
                             .environment = {{"YOKE_TEST_TAG", tag_}, {"TMPDIR", folder_.path("tmp")}}});
  EXPECT_EQ(sleeping.exit_code, 69);
  EXPECT_THAT(sleeping.err, HasSubstr("no optimizer of yoke or torch has stepped in 1 s (--timeout)"));
  expect_nothing_left();
}

TEST_F(Tune, AProgramOfOneStepIsAnError) {
  const auto result = run(tune({}, {"steps=1"}));
  EXPECT_EQ(result.exit_code, 69);
  EXPECT_THAT(result.err, HasSubstr("the program ended after 1 step, which are too few to measure"));
}

TEST_F(Tune, AProgramMayEndByItselfAfterEnoughSteps) {
  EXPECT_EQ(json({"--max", "64"}, {"steps=40"})["batch_size"], 64);
}

TEST_F(Tune, SaysThatTheVariableIsIgnored) {
  const auto result = run(tune({}, {"batch=32"}));
  EXPECT_EQ(result.exit_code, 69);
  EXPECT_THAT(result.err, HasSubstr("BATCH_SIZE seems to be ignored"));
  const auto as_json = run(tune({"--json"}, {"batch=32"}));
  EXPECT_EQ(Json::parse(as_json.out)["reason"], "ignored");
}

TEST_F(Tune, ChecksTheAnswerForMoreSteps) {
  const auto grows = run(tune({"--max", "32", "--soak", "1000", "--memory", "4000"}, {"grows_kib=200", "steps=2000"}));
  EXPECT_EQ(grows.exit_code, 0) << grows.err;
  EXPECT_THAT(grows.err, AllOf(HasSubstr("warning: memory grows by "), HasSubstr("KiB in each step")));
  EXPECT_THAT(grows.out, Not(HasSubstr("memory does not grow")));
}

TEST_F(Tune, AProgramThatIgnoresSigtermLeavesADaemonAndPrintsMuchLeavesNothing) {
  const auto result =
      run(tune({"--max", "32", "--min", "32", "--soak", "0"}, {"ignores_sigterm", "leaves_daemon", "prints_much"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Batch size 32"));
  expect_nothing_left();
}

TEST_F(Tune, CtrlCLeavesNothingAndPrintsWhatWasMeasured) {
  Command command(tune({"--soak", "0"}, {"leaves_daemon"}));
  ASSERT_TRUE(command.wait_until([&] { return command.err().find("batch size 64: ") != std::string::npos; }));
  command.signal(SIGINT);
  const auto result = command.wait();
  EXPECT_EQ(result.exit_code, 128 + SIGINT) << result.err;
  EXPECT_THAT(result.err, HasSubstr("interrupted; measured until then:"));
  expect_nothing_left();
}

// measured_program_test tests that the second one does not let the time pass that the program has after the first.
TEST_F(Tune, ASecondCtrlCKillsAProgramThatDoesNotEnd) {
  auto options = tune({});
  options.argv.back() = "sh";
  options.argv.insert(options.argv.end(),
                      {"-c", "trap ': > " + folder_.path("told") + "' TERM; while :; do sleep 1; done"});
  Command command(options);
  ASSERT_TRUE(command.wait_until([&] { return processes_with_tag(tag_).size() > 3; }));
  command.signal(SIGINT);
  ASSERT_TRUE(command.wait_until([&] { return std::filesystem::exists(folder_.path("told")); }))
      << "the program may end by itself at first";
  command.signal(SIGINT);
  EXPECT_EQ(command.wait().exit_code, 128 + SIGINT);
  expect_nothing_left();
}

TEST_F(Tune, LeavesNoProcessWhenItIsKilled) {
  Command command(tune({}, {"leaves_daemon", "ignores_sigterm"}));
  ASSERT_TRUE(command.wait_until([&] { return processes_with_tag(tag_).size() > 3; }));
  command.signal(SIGKILL);
  command.wait();
  expect_nothing_left();
}

TEST_F(Tune, TwoAtOnceDoNotDisturbEachOther) {
  Command one(tune({"--print", "--max", "256", "--soak", "0"})), other(tune({"--print", "--soak", "0"}));
  EXPECT_EQ(one.wait().out, "256\n");
  EXPECT_EQ(other.wait().out, "3072\n");
  expect_nothing_left();
}

TEST_F(Tune, MistakesAreFoundBeforeTheProgramRuns) {
  const auto log = folder_.path("log");
  for (const auto& [options, message] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--min", "9", "--max", "8"}, "--min 9 is above --max 8"},
           {{"--min", "9", "--max", "11", "--multiple-of", "8"}, "no multiple of 8 lies between"},
           {{"--global", "--per-rank"}, "exclude each other"},
           {{"--json", "--print"}, "two formats"},
           {{"--variable", "B", "--option", "--batch"}, "three ways to tell the program its batch size"},
           {{"--variable", "B=3"}, "--variable B=3: give the name of a variable"},
           {{"--min", "64", "--dataset-size", "50"}, "--dataset-size 50 is less than --min 64"},
           {{"--max", "0"}, "--max"},
           {{"--margin", "100"}, "--margin"}}) {
    const auto result = run(tune(options, {"log=" + log}));
    EXPECT_EQ(result.exit_code, 64) << message;
    EXPECT_THAT(result.err, AllOf(StartsWith("yoke tune: "), HasSubstr(message)));
  }
  EXPECT_FALSE(std::filesystem::exists(log));
  EXPECT_THAT(run({.argv = {YOKE_COMMAND, "tune", "batch"}}).err, HasSubstr("give a program"));
  EXPECT_THAT(run({.argv = {YOKE_COMMAND, "tune", "./train"}}).err, HasSubstr("say what to tune"));
  const auto missing = run({.argv = {YOKE_COMMAND, "tune", "batch", "--", "no-such-program"}});
  EXPECT_EQ(missing.exit_code, 66);
  EXPECT_THAT(missing.err, HasSubstr("no program no-such-program in PATH"));
  EXPECT_EQ(run({.argv = {YOKE_COMMAND, "tune", "batch", "--", "/no/such"}}).exit_code, 66);
  const auto folder = run({.argv = {YOKE_COMMAND, "tune", "batch", "--", "/etc"}});
  EXPECT_EQ(folder.exit_code, 77);
  EXPECT_THAT(folder.err, HasSubstr("/etc is not a program that this user may execute"));
}

TEST_F(Tune, AFolderThatCannotBeWrittenIsAnError) {
  auto options = tune({});
  options.environment[0].second = "/no/such/folder";
  const auto result = run(options);
  EXPECT_EQ(result.exit_code, 66);
  EXPECT_THAT(result.err, HasSubstr("/no/such/folder"));
}

TEST_F(Tune, CompletionKnowsTheWordBatch) {
  EXPECT_EQ(run({.argv = {YOKE_COMMAND, "complete", "--", "tune", ""}}).out, "words\nbatch\t\n");
  EXPECT_THAT(run({.argv = {YOKE_COMMAND, "complete", "--", "tune", "batch", "--so"}}).out, HasSubstr("--soak"));
  EXPECT_EQ(run({.argv = {YOKE_COMMAND, "complete", "--", "tune", "batch", "--max", "8", "./tr"}}).out, "program 4\n");
}

}  // namespace
}  // namespace yoke::test
