// Tests `yoke stack` with ranks that wait in functions with known names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/jobs/job.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

bool is_installed(const std::string& tool) { return run({.argv = {"sh", "-c", "command -v " + tool}}).exit_code == 0; }

/// Repeats the command until its output contains `text`, because ranks print "ready" shortly before they wait.
Result stack_until(CommandOptions options, const std::string& text) {
  Result result;
  wait_until([&] { return (result = run(options)).out.find(text) != std::string::npos; }, milliseconds(15'000));
  return result;
}

class StackByEuStack : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_installed("eu-stack")) GTEST_SKIP() << "needs eu-stack (elfutils)";
  }
};

TEST_F(StackByEuStack, ShowsWhoIsMissing) {
  RunningJob job({"-n", "4", "--", kHang, "2"});
  ASSERT_TRUE(job.is_ready(4));
  stack_until(yoke({"stack", job.name()}), "  wait_elsewhere  yoke_test_hang");
  const auto result = stack_until(yoke({"stack", job.name()}), "ranks 0-1,3, alike");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto odd = result.out.find("\nrank 2:\n");
  ASSERT_NE(odd, std::string::npos) << result.out;
  EXPECT_THAT(result.out.substr(0, odd),
              AllOf(StartsWith("ranks 0-1,3, alike (processes "), HasSubstr("  wait_here  yoke_test_hang"),
                    Not(HasSubstr("wait_elsewhere"))));
  EXPECT_THAT(result.out.substr(odd),
              AllOf(HasSubstr("  wait_elsewhere  yoke_test_hang"), Not(HasSubstr("wait_here"))));
  EXPECT_THAT(run(yoke({"stack", job.name(), "--rank", "2"})).out, StartsWith("rank 2:\n"));
  EXPECT_EQ(run(yoke({"stack", job.name(), "--rank", "4"})).exit_code, 66);

  const auto json = Json::parse(run(yoke({"stack", job.name(), "--json", "--rank", "0"})).out);
  const auto& process = json.at("ranks")[0].at("processes")[0];
  EXPECT_EQ(process.at("pid"), find_job(job.pid())->at("ranks")[0].at("pid"));
  EXPECT_THAT(process.at("threads")[0].at("frames").dump(), HasSubstr(R"("function":"wait_here")"));
  EXPECT_EQ(find_job(job.pid())->at("num_up"), 4) << "looking harms nobody";
}

TEST_F(StackByEuStack, OtherThreadsDoNotPartRanksThatWaitForTheSame) {
  RunningJob job({"-n", "4", "--", kHang, "threads", "2"});
  ASSERT_TRUE(job.is_ready(4));
  stack_until(yoke({"stack", job.name()}), "  wait_elsewhere  yoke_test_hang");
  const auto result = stack_until(yoke({"stack", job.name()}), "ranks 0-1,3, alike");
  const auto odd = result.out.find("\nrank 2:\n");
  ASSERT_NE(odd, std::string::npos) << result.out;
  EXPECT_THAT(result.out.substr(0, odd), HasSubstr("  wait_here  yoke_test_hang"));
  EXPECT_THAT(result.out.substr(0, odd),
              AllOf(ContainsRegex("\n    thread [0-9]+ \\(yoke_test_hang\\) in loop_thread: (sleeping|running)"),
                    ContainsRegex("\n    2 threads [0-9,-]+ \\(yoke_test_hang\\) in pool_thread: 1 sleeping.*; 1 ")));
  EXPECT_THAT(result.out.substr(odd), AllOf(HasSubstr("  wait_elsewhere  yoke_test_hang"), HasSubstr("4 threads ")));
  EXPECT_THAT(result.out, Not(HasSubstr("wait_for_work")));
  const auto all = stack_until(yoke({"stack", job.name(), "--all-threads"}), "ranks 0-1,3, alike").out;
  EXPECT_THAT(all, AllOf(HasSubstr("  wait_for_work  "), HasSubstr("  do_work  "), HasSubstr("  pool_thread  ")));
}

TEST_F(StackByEuStack, GoesThroughAShellToTheProgram) {
  auto job = RunningJob::shell(2, fmt::format("{}; true", kHang));
  ASSERT_TRUE(job.is_ready(2));
  const auto result = stack_until(yoke({"stack", job.name()}), "wait_here");
  EXPECT_THAT(result.out,
              ContainsRegex("process [0-9]+: sh -c .*\n    waits for its child\n  process [0-9]+: .*hang\n"));
}

TEST_F(StackByEuStack, OfARankThatMayNotBeLookedIntoOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
  TemporaryFolder folder;
  const auto command = for_everybody(folder, kYoke), hang = for_everybody(folder, kHang);
  Command job(as_somebody_else({command, "run", "-n", "2", "--", hang, "hidden"}));
  ASSERT_TRUE(job.wait_for_output("[1] ready") && job.wait_for_output("[0] ready"));
  const auto name = std::to_string(job.pid());
  const auto refused = run(as_somebody_else({command, "stack", name}));
  EXPECT_EQ(refused.exit_code, 0) << refused.err;
  EXPECT_THAT(refused.out, ContainsRegex("look(ed)? into.*root")) << "and what to do";
  EXPECT_THAT(stack_until(yoke({"stack", name}), "wait_here").out, HasSubstr("wait_here")) << "root may";
}

TEST(Stack, WithoutAnyToolItSaysWhatToInstallAndWhatProcTells) {
  RunningJob job({"-n", "2", "--", kHang});
  ASSERT_TRUE(job.is_ready(2));
  auto options = yoke({"stack", job.name()});
  options.environment = {{"PATH", "/nonexistent"}};
  Result result;
  EXPECT_TRUE(wait_until([&] {  // a rank that has said "ready" still runs for a moment
    result = run(options);
    return result.out.find("(yoke_test_hang): sleeping") != std::string::npos;
  })) << result.out;
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("install the package elfutils (or gdb)"));
}

TEST(Stack, OfWhatHasEndedItSaysHow) {
  auto job = RunningJob::shell(2, "echo ready; [ $RANK = 1 ] || exec sleep 1000");
  ASSERT_TRUE(job.is_ready(2));
  EXPECT_THAT(stack_until(yoke({"stack", job.name()}), "exited").out, HasSubstr("rank 1: exited with code 0\n"));
}

/// Creates a program named `python`, and a folder for tools.
class StackOfPython : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(folder_.path("bin"));
    std::filesystem::copy_file(kHang, folder_.path("python3"));
    folder_.write("bin/eu-stack", "#!/bin/sh\nprintf 'TID %s:\\n#0  0x1 native_wait\\n' \"$3\"\n", true);
    job_.emplace(std::vector<std::string>{"-n", "3", "--", folder_.path("python3")});
    ASSERT_TRUE(job_->is_ready(3));
  }
  Result stack() {
    auto options = yoke({"stack", job_->name()});
    options.environment = {{"PATH", folder_.path("bin") + ":/usr/bin:/bin"}};
    return run(options);
  }
  TemporaryFolder folder_;
  std::optional<RunningJob> job_;
};

TEST_F(StackOfPython, ShowsWhatPySpyFinds) {
  const auto odd = find_job(job_->pid())->at("ranks")[0].at("pid").get<int>();
  folder_.write("bin/py-spy",
                fmt::format("#!/bin/sh\n[ \"$1 $2\" = 'dump --pid' ] || exit 1\n"
                            "echo \"Process $3: python\"\necho\necho \"Thread $3 (idle): \\\"MainThread\\\"\"\n"
                            "[ $3 = {} ] && echo '    load (data.py:7)' || echo '    all_reduce (dist.py:3)'\n",
                            odd),
                true);
  const auto result = stack();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(StartsWith("ranks 1-2, alike"), HasSubstr("          all_reduce (dist.py:3)\n"),
                    HasSubstr("#0  native_wait\n"), HasSubstr("\nrank 0:\n"), HasSubstr("load (data.py:7)\n")));
}

TEST_F(StackOfPython, SaysWhenPySpyIsNotThereOrFails) {
  folder_.write("bin/py-spy", "#!/bin/sh\necho 'Error: Failed to find \033[1mPython' >&2; exit 1\n", true);
  EXPECT_THAT(stack().out,
              AllOf(HasSubstr("py-spy shows nothing: Error: Failed to find ?[1mPython\n"), HasSubstr("native_wait")));
  std::filesystem::remove(folder_.path("bin/py-spy"));
  if (!is_installed("py-spy")) {
    EXPECT_THAT(stack().out, AllOf(HasSubstr("pip install py-spy"), HasSubstr("native_wait")));
  }
}

}  // namespace
}  // namespace yoke::test
