// Does the work of a guardian: starts a program that waits before its main, has ranks forked from that program, kills
// them, and requests new ones.
#include "yoke/launch/process/preload.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/command.h"
#include "yoke/launch/process/descendants.h"

namespace yoke::launch {
namespace {

using Json = nlohmann::json;
using test::milliseconds;
using test::wait_until;
using testing::HasSubstr;
using namespace std::chrono_literals;

RankPlan plan_of(int64_t rank, std::vector<std::string> argv, std::vector<std::string> more = {}) {
  RankPlan plan{.rank = rank, .local_rank = rank, .argv = std::move(argv)};
  plan.environment = Environment::of_process().to_strings();
  std::erase_if(plan.environment, [](const std::string& variable) { return variable.starts_with("RANK="); });
  plan.environment.push_back("RANK=" + std::to_string(rank));
  plan.environment.push_back("YOKE_DEVICE=cpu");
  plan.environment.insert(plan.environment.end(), more.begin(), more.end());
  return plan;
}

std::string read_line(int fd) {
  std::string line;
  pollfd poll_fd{fd, POLLIN, 0};
  for (char byte; poll(&poll_fd, 1, 30'000) == 1 && read(fd, &byte, 1) == 1;) {
    if (byte == '\n') return line;
    line += byte;
  }
  return line;
}

struct Rank {
  pid_t pid = -1;
  UniqueFd out;
};

/// Starts the rank: by a fork in `preload`, or by exec if `preload` is null.
Rank start(Preload* preload, const RankPlan& plan) {
  auto out = make_pipe();
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  const StartOptions options{
      .in_fd = null.value(), .out_fd = out.write_end.value(), .failures = null.value(), .file_limit = {512, 600}};
  if (preload == nullptr) return {launch::start_rank(plan, options), std::move(out.read_end)};
  const auto pid = preload->start_rank(plan, options);
  EXPECT_TRUE(pid) << preload->reason();
  return {pid.value_or(-1), std::move(out.read_end)};
}

Json facts_of(const Rank& rank) {
  const auto line = read_line(rank.out.value());
  EXPECT_TRUE(Json::accept(line)) << line;
  return Json::accept(line) ? Json::parse(line) : Json();
}

/// Waits for the process. Returns its exit code, or 128+signal if a signal ended it.
int end_of(pid_t pid) {
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

class PreloadedRanks : public testing::Test {
 protected:
  PreloadedRanks() { become_subreaper(); }
  ~PreloadedRanks() override { end_descendants({}, 5s); }

  static std::unique_ptr<Preload> ready(const std::vector<RankPlan>& plans) {
    auto preload = std::make_unique<Preload>(plans, PythonLoading{});
    preload->wait(-1, 60s);
    EXPECT_TRUE(preload->is_ready()) << preload->reason();
    return preload;
  }
};

// Oracle: a rank started by exec, whose properties a forked rank must have.
TEST_F(PreloadedRanks, AreWhatExecMakes) {
  const auto shared = make_pipe();
  const int high = fcntl(shared.write_end.value(), F_DUPFD_CLOEXEC, 300);
  for (const int64_t rank : {0, 1}) {
    auto plan =
        plan_of(rank, {YOKE_PRELOAD_PROGRAM, "an argument", ""}, {"OMP_NUM_THREADS=" + std::to_string(rank + 1)});
    for (int i = 0; i < 40; ++i)
      plan.environment.push_back("LONG" + std::to_string(i) + "=" + std::string(20'000, 'x'));
    plan.inherited_fds = {shared.write_end.value(), high};
    plan.cpus = {rank % sysconf(_SC_NPROCESSORS_ONLN)};
    const auto preload = ready({plan, plan_of(7, plan.argv)});
    const auto forked = start(preload.get(), plan), executed = start(nullptr, plan);
    const auto facts = facts_of(forked);
    EXPECT_EQ(facts, facts_of(executed));
    EXPECT_EQ(facts["rank"], std::to_string(rank));
    EXPECT_EQ(facts["death_signal"], SIGKILL);
    EXPECT_EQ(facts["num_threads"], rank + 1);
    EXPECT_EQ(facts["product"], 300.0 * 300 * 300);
    EXPECT_EQ(end_of(forked.pid), 7);
    EXPECT_EQ(end_of(executed.pid), 7);
  }
  close(high);
}

TEST_F(PreloadedRanks, ArriveWithDescriptorsThatCross) {
  // The descriptors are in descending order. Moving one to its number in the rank could therefore close another one.
  auto first = make_pipe(), second = make_pipe();
  auto plan = plan_of(0, {YOKE_PRELOAD_PROGRAM});
  plan.inherited_fds = {second.write_end.value(), first.write_end.value()};
  const auto preload = ready({plan});
  const auto rank = start(preload.get(), plan);
  const auto descriptors = facts_of(rank)["descriptors"].get<std::string>();
  for (const int fd : plan.inherited_fds) EXPECT_THAT(descriptors, HasSubstr(" " + std::to_string(fd) + " "));
  EXPECT_EQ(end_of(rank.pid), 7);
}

TEST_F(PreloadedRanks, CanBeKilledAndForkedAgainForEver) {
  const auto plans = {plan_of(0, {YOKE_PRELOAD_PROGRAM, "wait"}), plan_of(1, {YOKE_PRELOAD_PROGRAM, "wait"})};
  const auto preload = ready(plans);
  const pid_t program = preload->pid();
  for (int attempt = 0; attempt < 20; ++attempt) {
    std::vector<Rank> ranks;
    for (auto plan : plans) {
      plan.environment.push_back("ATTEMPT=" + std::to_string(attempt));
      ranks.push_back(start(preload.get(), plan));
    }
    for (const auto& rank : ranks) {
      EXPECT_EQ(facts_of(rank)["death_signal"], SIGKILL);
      EXPECT_EQ(getpgid(rank.pid), rank.pid);
    }
    kill(-ranks[0].pid, SIGKILL);
    EXPECT_EQ(end_of(ranks[0].pid), 137);
    EXPECT_THAT(end_descendants({program}, 5s), testing::IsEmpty());
    EXPECT_EQ(kill(ranks[1].pid, 0), -1) << "its end is the guardian's to make";
    EXPECT_THAT(test::children_of(getpid()), testing::ElementsAre(program)) << "nothing but the program stays";
    EXPECT_THAT(test::children_of(program), testing::IsEmpty());
  }
}

TEST_F(PreloadedRanks, ASignalBeforeTheRankIsCompleteIsNotLost) {
  const auto plan = plan_of(0, {YOKE_PRELOAD_PROGRAM, "wait"});
  const auto preload = ready({plan});
  for (int i = 0; i < 20; ++i) {
    const auto rank = start(preload.get(), plan);
    if (kill(-rank.pid, SIGTERM) != 0) kill(rank.pid, SIGTERM);
    EXPECT_EQ(end_of(rank.pid), 128 + SIGTERM);
  }
  EXPECT_TRUE(start(preload.get(), plan).pid > 0) << "and the program is still there";
}

TEST_F(PreloadedRanks, EndWithTheirGuardianAndSoDoesTheProgram) {
  const auto tag = test::new_tag();
  auto told = make_pipe();
  const pid_t guardian = fork();
  if (guardian == 0) {
    become_subreaper();
    const std::vector<RankPlan> plans = {plan_of(0, {YOKE_PRELOAD_PROGRAM, "wait"}, {"YOKE_TEST_TAG=" + tag}),
                                         plan_of(1, {YOKE_PRELOAD_PROGRAM, "wait"}, {"YOKE_TEST_TAG=" + tag})};
    const auto preload = ready(plans);
    std::vector<Rank> ranks;
    for (const auto& plan : plans) ranks.push_back(start(preload.get(), plan));
    for (const auto& rank : ranks) facts_of(rank);
    if (write(told.write_end.value(), "\n", 1) != 1) _exit(1);
    while (true) pause();
  }
  told.write_end.reset();
  read_line(told.read_end.value());
  EXPECT_EQ(test::processes_with_tag(tag).size(), 3U);
  kill(guardian, SIGKILL);
  EXPECT_TRUE(wait_until([&] { return test::processes_with_tag(tag).empty(); }));
  EXPECT_EQ(end_of(guardian), 137);
}

TEST_F(PreloadedRanks, TheProgramEndsWithItsOwnerAndItsRanksStay) {
  const auto plan = plan_of(0, {YOKE_PRELOAD_PROGRAM, "wait"});
  auto preload = ready({plan});
  const auto rank = start(preload.get(), plan);
  facts_of(rank);
  preload.reset();
  EXPECT_THAT(test::children_of(getpid()), testing::ElementsAre(rank.pid));
}

TEST_F(PreloadedRanks, AThreadBeforeMainIsSaidAndNothingForked) {
  const auto plan = plan_of(0, {YOKE_EARLY_PROGRAM}, {"EARLY=thread"});
  ASSERT_EQ(Preload::why_not(plan.argv, {}), std::nullopt);
  Preload preload({plan}, {});
  preload.wait(-1, 60s);
  EXPECT_FALSE(preload.is_ready());
  EXPECT_FALSE(preload.is_loading());
  EXPECT_EQ(preload.reason(), "the program has 2 threads before its main");
  EXPECT_EQ(preload.start_rank(plan, {}), std::nullopt);
}

TEST_F(PreloadedRanks, WhatWasPrintedEarlyIsNotPrintedByEachRank) {
  const auto plan = plan_of(0, {YOKE_EARLY_PROGRAM}, {"EARLY=print"});
  const auto preload = ready({plan});
  for (int i = 0; i < 2; ++i) {
    const auto rank = start(preload.get(), plan);
    EXPECT_THAT(read_line(rank.out.value()), testing::StartsWith("3 "));
    EXPECT_EQ(end_of(rank.pid), 7);
  }
}

TEST_F(PreloadedRanks, AProgramThatEndsWhileItLoadsIsSaid) {
  for (const auto& plan : {plan_of(0, {YOKE_EARLY_PROGRAM}, {"EARLY=exit"}), plan_of(0, {"/nonexistent"})}) {
    Preload preload({plan}, {});
    preload.wait(-1, 60s);
    EXPECT_EQ(preload.reason(), "the program ended before its main, or could not be loaded");
  }
}

TEST_F(PreloadedRanks, AProgramThatWasKilledIsNoticed) {
  const auto plan = plan_of(0, {YOKE_PRELOAD_PROGRAM});
  const auto preload = ready({plan});
  kill(preload->pid(), SIGKILL);
  waitpid(preload->pid(), nullptr, 0);  // reaps the program, as a guardian does with every process that ends
  EXPECT_EQ(preload->start_rank(plan, {}), std::nullopt);
  EXPECT_EQ(preload->reason(), "the preloaded program has ended");
}

TEST_F(PreloadedRanks, AnotherCommandLineIsNotForkedFromIt) {
  const auto preload = ready({plan_of(0, {YOKE_PRELOAD_PROGRAM})});
  EXPECT_EQ(preload->start_rank(plan_of(0, {YOKE_PRELOAD_PROGRAM, "--other"}), {}), std::nullopt);
}

TEST_F(PreloadedRanks, WaitingEndsWhenSomethingElseHappens) {
  const auto interrupt = make_pipe();
  ASSERT_EQ(write(interrupt.write_end.value(), "x", 1), 1);
  Preload preload({plan_of(0, {YOKE_PRELOAD_PROGRAM})}, {});
  preload.wait(interrupt.read_end.value(), 60s);
  EXPECT_TRUE(preload.is_loading());
}

TEST_F(PreloadedRanks, TheVariableOfSomebodyElseMeansNothing) {
  const auto result =
      test::run({.argv = {YOKE_PRELOAD_PROGRAM}, .environment = {{"YOKE_PRELOAD_FD", "0"}, {"RANK", "0"}}});
  EXPECT_EQ(result.exit_code, 7) << result.err;
}

}  // namespace
}  // namespace yoke::launch
