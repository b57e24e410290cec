#include "yoke/launch/job/stop.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/launch/job/job_server.h"

namespace yoke::launch {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// A process that answers as a launcher does. If it obeys, it ends when it is asked to stop.
class Launcher {
 public:
  explicit Launcher(bool obeys) {
    auto ready = make_pipe();
    pid_ = fork();
    if (pid_ == 0) serve(obeys, ready);
    ready.write_end.reset();
    char byte = 0;
    EXPECT_EQ(read(ready.read_end.value(), &byte, 1), 1);
    for (auto& found : find_jobs()) {
      if (found.address.pid == pid_) found_ = found;
    }
  }
  ~Launcher() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  const FoundJob& found() const { return found_; }

 private:
  [[noreturn]] static void serve(bool obeys, Pipe& ready) {
    Job job{.pid = getpid(), .name = "yoke run", .argv = {"./train"}, .num_ranks = 1};
    job.begin_attempt({{.rank = 0}}, 1);
    job.on_started(0, getpid());
    RecentLines lines;
    bool is_over = false;
    EventLoop loop;
    JobServer server{job, lines, [&](StopHow) { is_over = obeys; }};
    const std::array<EventSource*, 1> sources = {&server};
    if (write(ready.write_end.value(), "x", 1) != 1) _exit(1);
    ready.write_end.reset();
    while (!is_over) loop.turn(sources, std::chrono::milliseconds(20));
    loop.turn(sources, std::chrono::milliseconds(0));  // the answer leaves
    _exit(0);
  }
  pid_t pid_ = -1;
  FoundJob found_;
};

TEST(StopJob, WaitsForTheLauncherAndReturnsAtOnceIfItHasEnded) {
  const Launcher launcher(true);
  ASSERT_TRUE(launcher.found().job);
  stop(launcher.found(), {});
  EXPECT_FALSE(JobConnection::open(launcher.found().address, JobTime::min())) << "nobody listens";
  stop(launcher.found(), {});
}

TEST(StopJob, TellsWhomItWaitsFor) {
  const Launcher launcher(false);
  ASSERT_TRUE(launcher.found().job);
  const auto pid = static_cast<pid_t>(launcher.found().address.pid);
  std::vector<std::string> told;
  stop(launcher.found(), {.tell = [&](Told, const std::string& text) {
         told.push_back(text);
         kill(pid, SIGKILL);  // so the wait ends
       }});
  EXPECT_THAT(told, ElementsAre(fmt::format("job {0}: waiting for rank 0 (pid {0})", pid)));
}

TEST(StopJob, SaysAfterTheTimeoutWhatKills) {
  const Launcher launcher(false);
  ASSERT_TRUE(launcher.found().job);
  const StopOptions options{.timeout = std::chrono::milliseconds(1)};
  EXPECT_THAT(test::message_of([&] { stop(launcher.found(), options); }, ErrorCode::kTimeout),
              AllOf(HasSubstr("the job still waits for"), HasSubstr("; --now kills")));
}

}  // namespace
}  // namespace yoke::launch
