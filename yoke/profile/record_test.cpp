#include "yoke/profile/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "tests/support/command.h"
#include "yoke/base/file.h"
#include "yoke/base/line_connection.h"
#include "yoke/base/user_socket.h"
#include "yoke/contract/variables.h"

namespace yoke::profile {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

constexpr const char* kBehaviour = "YOKE_TEST_RECORDED_RANK";

UniqueFd connection_of_rank(const std::string& behaviour) {
  UniqueFd fd;
  if (behaviour.starts_with("listen")) {
    const auto listener = listen_as_user(kProfiledService);
    pollfd news{listener.value(), POLLIN, 0};
    while (!(fd = accept_connection(listener.value()))) poll(&news, 1, -1);
    return fd;
  }
  const auto socket = parse_user_socket(kProfilingService, std::getenv(variable::kProfile));
  if (!socket || connect_to(*socket, fd) != Connected::kYes) _exit(9);
  return fd;
}

/// This program as a rank of one that is recorded. It exits with status 5, unless its behaviour ends with "stay".
[[noreturn]] void be_a_rank(const std::string& behaviour) {
  while (behaviour == "idle") pause();
  LineConnection connection(connection_of_rank(behaviour));
  if (behaviour == "listen, interrupt, silent") kill(getppid(), SIGTERM);
  if (!behaviour.ends_with("silent")) {
    connection.send(to_line(ProfileHello{.pid = getpid(), .start_ticks = start_ticks_of(getpid()).value_or(0)}));
    const auto request = parse_request(connection.next(std::chrono::hours(1)).value_or(""));
    if (!request) _exit(8);
    const auto path = request->folder + "/rank0.json";
    std::ofstream(path) << request->first << ' ' << request->active;
    connection.send(
        to_line(behaviour == "fail" ? ProfileNews{.failure = "the disk is full"} : ProfileNews{.trace = path}));
    if (!behaviour.ends_with("stay")) _exit(5);
  }
  for (;;) pause();
}

const bool is_test = [] {
  if (const char* const behaviour = std::getenv(kBehaviour)) be_a_rank(behaviour);
  return true;
}();

class ProfileRecord : public testing::Test {
 protected:
  void SetUp() override { fs::create_directory(folder_.path("tmp")); }
  void TearDown() override { EXPECT_TRUE(fs::is_empty(folder_.path("tmp"))) << "files are left"; }

  RecordOptions options(const char* behaviour) const {
    return {.environment = {{"TMPDIR", folder_.path("tmp")}, {kBehaviour, behaviour}}};
  }
  ProgramOptions program(std::vector<std::string> argv = {"/proc/self/exe"}) {
    return {.argv = std::move(argv), .on_recorded = [this](const Recorded& recorded) {
              ++num_calls_;
              for (const auto& trace : recorded.traces) texts_.push_back(read_file(trace));
              why_ = recorded.failure ? recorded.failure->what() : "";
              return 3;
            }};
  }
  RunningOptions running(pid_t pid) {
    return {.pids = {pid}, .on_recorded = [this](const Traces& traces) {
              for (const auto& trace : traces) texts_.push_back(read_file(trace));
              return 3;
            }};
  }

  test::TemporaryFolder folder_;
  int num_calls_ = 0;
  std::vector<std::string> texts_;
  std::string why_;
};

TEST_F(ProfileRecord, HandsTracesOverAndReturnsTheProgramsStatus) {
  EXPECT_EQ(record_program(options("end"), program()), 5);
  EXPECT_EQ(num_calls_, 1);
  EXPECT_THAT(texts_, testing::ElementsAre("7 6")) << "5 steps are left out, and 2 are for the profiler";
  EXPECT_EQ(why_, "");
}

TEST_F(ProfileRecord, AProgramThatIsToStopEndsWithTheReportsStatus) {
  auto stopped = program();
  stopped.stops = true;
  EXPECT_EQ(record_program(options("stay"), stopped), 3);
  EXPECT_THAT(texts_, SizeIs(1));
}

TEST_F(ProfileRecord, TracesStayInAFolderOfTheUserThatHasNone) {
  auto kept = options("end");
  kept.out = folder_.path("out/new");
  kept.wait = 1;
  EXPECT_EQ(record_program(kept, program()), 5);
  EXPECT_EQ(read_file(folder_.path("out/new/rank0.json")), "3 6");
  try {
    record_program(kept, program());
    FAIL() << "two recordings would mix";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(StartsWith("--out "), HasSubstr("has rank0.json already")));
  }
  kept.out = folder_.path("out/unused");
  EXPECT_EQ(record_program(kept, program({"true"})), 3);
  EXPECT_FALSE(fs::exists(kept.out));
}

TEST_F(ProfileRecord, TellsWhyThereAreNoTraces) {
  EXPECT_EQ(record_program(options("fail"), program()), 5);
  EXPECT_EQ(why_, "rank 0: the disk is full");
  EXPECT_EQ(record_program(options(""), program({"true"})), 3);
  EXPECT_THAT(why_, StartsWith("no step was seen, because"));
  EXPECT_EQ(record_program(options(""), program({"sh", "-c", "exit 4"})), 4);
  EXPECT_EQ(why_, "the program ended with status 4 before a step was seen");
  EXPECT_EQ(record_program(options(""), program({"/nonexistent/program"})), 127);
  EXPECT_THAT(why_, StartsWith("cannot run /nonexistent/program: "));
  EXPECT_EQ(num_calls_, 4);
}

/// A process that runs before it is asked to record.
class RunningRank {
 public:
  explicit RunningRank(const char* behaviour, const char* profile = "")
      : pid_(spawn({.argv = {"/proc/self/exe"},
                    .environment = std::vector<std::string>{std::string(kBehaviour) + "=" + behaviour,
                                                            std::string(variable::kProfile) + "=" + profile},
                    .death_signal = SIGKILL})) {}
  RunningRank(const RunningRank&) = delete;
  RunningRank& operator=(const RunningRank&) = delete;
  ~RunningRank() {
    kill(pid_, SIGKILL);
    wait_for_child(pid_);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

TEST_F(ProfileRecord, AProgramThatRunsIsAsked) {
  const RunningRank rank("listen, stay");
  EXPECT_EQ(record_running(options(""), running(rank.pid())), 3);
  EXPECT_THAT(texts_, testing::ElementsAre("1 6")) << "no step is left out, one is for the profiler";
}

TEST_F(ProfileRecord, ASignalEndsTheRecording) {
  const RunningRank rank("listen, interrupt, silent");
  EXPECT_EQ(record_running(options(""), running(rank.pid())), 128 + SIGTERM);
}

TEST_F(ProfileRecord, TellsWhyAProgramCannotBeAsked) {
  const auto error_of = [&](const RunningOptions& asked, ErrorCode code) -> std::string {
    try {
      record_running(options(""), asked);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of(running(1 << 22), ErrorCode::kNotFound), HasSubstr("there is no process"));
  const RunningRank closed("idle", "off");
  EXPECT_THAT(error_of(running(closed.pid()), ErrorCode::kFailedPrecondition),
              HasSubstr("was started with YOKE_PROFILE=off"));
  const RunningRank silent("listen, silent");
  auto impatient = running(silent.pid());
  impatient.timeout_s = 1e-3;
  EXPECT_THAT(error_of(impatient, ErrorCode::kTimeout), StartsWith("no step ended in "));
}

}  // namespace
}  // namespace yoke::profile
