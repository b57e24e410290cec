#include "yoke/train/watch/profiler.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/line_connection.h"
#include "yoke/base/user_socket.h"
#include "yoke/contract/profile_protocol.h"
#include "yoke/contract/variables.h"
#include "yoke/train/data/loader.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/watch/detail/profile_agent.h"

namespace yoke::train {
namespace {

using detail::make_profile_agent;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

void work() { at::mm(at::ones({16, 16}), at::ones({16, 16})); }

json trace_in(const std::filesystem::path& path) { return json::parse(read_file(path)); }

std::vector<std::string> names_with(const json& trace, const std::string& prefix) {
  std::vector<std::string> names;
  for (const auto& event : trace["traceEvents"]) {
    const auto name = event.value("name", "");
    if (name.starts_with(prefix) && event.value("cat", "") != "Trace") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

class ProfilerTest : public testing::Test {
 protected:
  /// Turns off the agent of the test process itself, so that tests talk to the agent that they make.
  ProfilerTest() { setenv(variable::kProfile, "off", 1); }

  ProfilerOptions options() const { return {.folder = folder_.path("traces"), .wait = 1, .warmup = 1, .active = 2}; }
  ProfilerOptions by_hand() const {
    auto result = options();
    result.steps_by_hand = true;
    return result;
  }

  const test::TemporaryFolder folder_;
};

TEST_F(ProfilerTest, RecordsTheStepsOfItsWindowWithoutACallOfTheProgram) {
  auto weight = at::ones({4}).requires_grad_();
  weight.mutable_grad() = at::ones({4});
  Sgd optimizer(NamedTensors{{"weight", weight}}, {.lr = 0.1});
  Loader loader(Samples{at::ones({64, 4}), at::ones({64}, at::kLong)}, {.batch_size = 8, .num_workers = 0});
  Profiler profiler(3, 8, options());
  for ([[maybe_unused]] auto& batch : loader.epoch(0)) {
    EXPECT_EQ(files_in(folder_.path("traces")).size(), profiler.is_done() ? 1u : 0u);
    work();
    optimizer.step();
  }
  ASSERT_TRUE(profiler.is_done());
  EXPECT_EQ(profiler.trace(), folder_.path("traces/rank3.json"));
  EXPECT_THAT(files_in(folder_.path("traces")), ElementsAre("rank3.json")) << "no temporary file stays";

  const auto trace = trace_in(profiler.trace());
  EXPECT_EQ(trace["distributedInfo"]["rank"], 3);
  EXPECT_EQ(trace["distributedInfo"]["world_size"], 8);
  EXPECT_GE(trace["host"]["num_threads"], 1);
  EXPECT_GE(trace["host"]["num_cpus"], 1);
  EXPECT_GE(trace["host"]["memory_stall_us"], 0);
  EXPECT_THAT(names_with(trace, "ProfilerStep#"), ElementsAre("ProfilerStep#2", "ProfilerStep#3"));
  EXPECT_THAT(names_with(trace, "Optimizer.step#"), ElementsAre("Optimizer.step#SGD", "Optimizer.step#SGD"));
  EXPECT_THAT(names_with(trace, "data_loading"), ElementsAre("data_loading", "data_loading"));
  EXPECT_EQ(names_with(trace, "aten::mm").size(), 2u);
}

TEST_F(ProfilerTest, AnnotationsAloneLeaveOperationsOut) {
  auto light = by_hand();
  light.light = true;
  Profiler profiler(0, 1, light);
  for (int i = 0; i < 5; ++i) {
    work();
    profiler.step();
  }
  const auto trace = trace_in(profiler.trace());
  EXPECT_EQ(names_with(trace, "ProfilerStep#").size(), 2u);
  EXPECT_THAT(names_with(trace, "aten::"), IsEmpty());
  EXPECT_EQ(trace["host"]["has_operations"], 0);
}

TEST_F(ProfilerTest, ATrainingThatEndsEarlyHasNoTraceAndSaysSo) {
  testing::internal::CaptureStderr();
  {
    Profiler profiler(0, 1, by_hand());
    for (int i = 0; i < 3; ++i) profiler.step();
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("ended after 3 of the 4 steps"));
  EXPECT_THAT(files_in(options().folder), IsEmpty());
}

TEST_F(ProfilerTest, RefusesWhatCannotWork) {
  auto wrong = by_hand();
  wrong.active = 0;
  EXPECT_THROW(Profiler(0, 1, wrong), Error);
  wrong = by_hand();
  wrong.wait = -1;
  wrong.warmup = 0;
  EXPECT_THROW(Profiler(0, 1, wrong), Error);
  wrong.folder = "";
  EXPECT_THROW(Profiler(0, 1, wrong), Error);
  wrong.folder = "/proc/traces";
  EXPECT_THAT(test::message_of([&] { Profiler(0, 1, wrong); }, ErrorCode::kNotFound), HasSubstr("/proc/traces"));
  Profiler profiler(0, 1, options());
  EXPECT_THAT(test::message_of([&] { profiler.step(); }, ErrorCode::kFailedPrecondition), HasSubstr("steps_by_hand"));
}

TEST_F(ProfilerTest, AProcessHasOneProfiler) {
  Profiler first(0, 2, by_hand());
  for (int i = 0; i < 3; ++i) first.step();  // steps that are recorded
  auto other = by_hand();
  other.wait = other.warmup = 0;
  EXPECT_THAT(test::message_of([&] { Profiler(1, 2, other); }, ErrorCode::kFailedPrecondition),
              HasSubstr("can have only one"));
  first.step();
  EXPECT_TRUE(first.is_done()) << "the first one is not disturbed";
  Profiler next(1, 2, other);
  for (int i = 0; i < 2; ++i) next.step();
  EXPECT_TRUE(next.is_done());
}

TEST_F(ProfilerTest, AFolderThatDisappearsIsAnErrorAndNoTrace) {
  Profiler profiler(0, 1, by_hand());
  for (int i = 0; i < 3; ++i) profiler.step();
  std::filesystem::remove_all(options().folder);
  EXPECT_THAT(test::message_of([&] { profiler.step(); }, ErrorCode::kUnavailable), HasSubstr("rank0.json"));
  profiler.step();
  EXPECT_FALSE(profiler.is_done());
}

TEST_F(ProfilerTest, StepsOnAnotherThreadAreAnErrorAndTheFirstThreadCanGoOn) {
  Profiler profiler(0, 1, by_hand());
  for (int i = 0; i < 3; ++i) profiler.step();
  std::string message;
  std::thread([&] {
    try {
      profiler.step();
    } catch (const Error& error) {
      message = error.what();
    }
  }).join();
  EXPECT_THAT(message, HasSubstr("another thread"));
  profiler.step();
  EXPECT_FALSE(profiler.is_done());
}

// The tests below send requests to this process, like `yoke profile --pid`.

class ProfileAgentTest : public ProfilerTest {
 protected:
  ProfileAgentTest() {
    unsetenv(variable::kProfile);
    agent_ = make_profile_agent();
    setenv(variable::kProfile, "off", 1);
    mkdir(folder_.path("traces").c_str(), 0700);
  }

  LineConnection connect() {
    for (const auto& socket : list_user_sockets(kProfiledService, geteuid())) {
      UniqueFd fd;
      if (socket.pid == getpid() && connect_to(socket, fd) == Connected::kYes) return LineConnection(std::move(fd));
    }
    throw std::runtime_error("the agent does not listen");
  }

  std::string request(int64_t first) const {
    return to_line(ProfileRequest{.folder = folder_.path("traces"), .first = first, .active = 2});
  }

  static std::string failure_of(LineConnection& client) {
    const auto news = parse_news(client.next().value_or(""));
    return news ? news->failure.value_or("") : "no news";
  }

  void end_step() {
    usleep(6000);  // clock: the agent checks for requests at most every 5 ms
    agent_->on_step(num_steps_++);
  }

  std::unique_ptr<StepObserver> agent_;
  int64_t num_steps_ = 0;
};

TEST_F(ProfileAgentTest, RecordsTheStepsThatItIsAskedFor) {
  end_step();
  auto client = connect();
  client.send(request(3));
  end_step();
  const auto hello = parse_hello(client.next().value_or(""));
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->pid, getpid());
  EXPECT_EQ(hello->start_ticks, start_ticks_of(getpid()));
  EXPECT_EQ(hello->num_steps, 2);
  for (int i = 0; i < 3; ++i) end_step();
  for (int64_t step = 2; step <= 5; ++step) {
    EXPECT_EQ(parse_news(client.next().value_or("")), (ProfileNews{.num_steps = step}));
  }
  const auto news = parse_news(client.next().value_or(""));
  ASSERT_TRUE(news && news->trace);
  EXPECT_THAT(names_with(trace_in(*news->trace), "ProfilerStep#"), ElementsAre("ProfilerStep#3", "ProfilerStep#4"));
  EXPECT_FALSE(client.next());
  EXPECT_TRUE(client.is_closed());
}

TEST_F(ProfileAgentTest, OneClientAtATimeAndTheNextAfterIt) {
  auto first = connect();
  first.send(request(1));
  end_step();  // this step is recorded
  auto second = connect();
  end_step();
  EXPECT_THAT(failure_of(second), HasSubstr("another `yoke profile`"));
  first.close();  // as after Ctrl-C
  end_step();
  EXPECT_THAT(files_in(folder_.path("traces")), IsEmpty());
  auto third = connect();
  third.send(request(num_steps_ + 1));
  for (int i = 0; i < 4; ++i) end_step();
  EXPECT_THAT(files_in(folder_.path("traces")), ElementsAre("rank0.json"));
}

TEST_F(ProfileAgentTest, AFailureIsToldAndNotThrown) {
  auto client = connect();
  client.send(to_line(ProfileRequest{.folder = folder_.path("nowhere"), .active = 1}));
  end_step();
  client.next();  // reads the hello
  EXPECT_THAT(failure_of(client), HasSubstr("nowhere"));
  auto garbage = connect();
  garbage.send("{}");
  end_step();
  garbage.next();
  EXPECT_FALSE(garbage.next());
  EXPECT_TRUE(garbage.is_closed());
}

TEST_F(ProfileAgentTest, AChildDoesNotAnswerForItsParent) {
  auto client = connect();
  client.send(request(1));
  end_step();
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 4; ++i) end_step();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(files_in(folder_.path("traces")), IsEmpty());
  for (int i = 0; i < 2; ++i) end_step();
  EXPECT_THAT(files_in(folder_.path("traces")), ElementsAre("rank0.json"));
}

TEST_F(ProfileAgentTest, CanBeSwitchedOff) { EXPECT_EQ(make_profile_agent(), nullptr) << "see the constructor"; }

}  // namespace
}  // namespace yoke::train
