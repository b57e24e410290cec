#include "yoke/profile/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "yoke/base/user_socket.h"

namespace yoke::profile {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// The end of a program that a Recorder asks. What is sent has arrived when send() returns.
struct AskedEnd {
  AskedEnd(Recorder& recorder, const AskedProgram& program) : line(UniqueFd()) {
    int ends[2] = {};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    recorder.ask(LineConnection(UniqueFd(ends[0])), program);
    line = LineConnection(UniqueFd(ends[1]));
  }
  std::optional<ProfileRequest> request() { return parse_request(line.next().value_or("")); }
  bool is_refused() { return !line.next() && line.is_closed(); }

  LineConnection line;
};

TEST(Recorder, AsksOnlyTheProcessThatWasMeant) {
  Recorder recorder({.folder = "/r", .num_asked = 1});
  AskedEnd end(recorder, {.pid = 7, .start_ticks = 100});
  end.line.send(to_line(ProfileHello{.pid = 7, .start_ticks = 101}));
  end.line.send(to_line(ProfileNews{.trace = "/r/rank0.json"}));
  recorder.handle();
  EXPECT_EQ(recorder.recording().failure(), "process 7 is another one now than when it was asked");
  EXPECT_TRUE(end.is_refused());
  EXPECT_FALSE(recorder.recording().has_rank());
}

TEST(Recorder, AProgramMayEndOrRefuseBeforeItAnswers) {
  Recorder recorder({.folder = "/r", .num_asked = 1});
  AskedEnd end(recorder, {.pid = 7});
  recorder.handle();
  EXPECT_FALSE(recorder.recording().failure()) << "it has time";
  end.line.close();
  recorder.handle();
  EXPECT_EQ(recorder.recording().failure(), "process 7 ended before it answered");

  Recorder second({.folder = "/r", .num_asked = 1});
  AskedEnd refusing(second, {.pid = 8});
  refusing.line.send(to_line(ProfileNews{.failure = "another `yoke profile` records this program"}));
  refusing.line.close();
  second.handle();
  EXPECT_EQ(second.recording().failure(), "another `yoke profile` records this program");
}

TEST(Recorder, WhatIsNoMessageIsSkippedAndASecondHelloToo) {
  Recorder recorder({.folder = "/r", .wait = 0, .warmup = 1, .active = 4, .num_asked = 1});
  AskedEnd end(recorder, {.pid = 7, .start_ticks = 100});
  for (const char* line : {"", "no message", "{}", "[1]", "{\"pid\": \"7\"}"}) end.line.send(line);
  end.line.send(to_line(ProfileNews{.num_steps = 3}));  // before it has said who it is
  const ProfileHello hello{.rank = 2, .world_size = 3, .pid = 7, .start_ticks = 100, .num_steps = 5};
  end.line.send(to_line(hello));
  end.line.send(to_line(hello));
  recorder.handle();
  EXPECT_EQ(end.request(), (ProfileRequest{.folder = "/r", .first = 6, .warmup = 1, .active = 4}));
  EXPECT_FALSE(end.line.next()) << "one request";
  EXPECT_FALSE(end.line.is_closed());
  end.line.send(to_line(ProfileNews{.trace = "/r/rank2.json"}));
  recorder.handle();
  EXPECT_TRUE(recorder.recording().is_complete());
  EXPECT_THAT(recorder.recording().traces(), ElementsAre("/r/rank2.json"));
  std::vector<pollfd> polls;
  recorder.add_to(polls);
  EXPECT_THAT(polls, testing::SizeIs(1));
  end.line.close();
  recorder.handle();
  polls.clear();
  recorder.add_to(polls);
  EXPECT_THAT(polls, IsEmpty()) << "the connection is closed here, too";
}

TEST(Recorder, AProgramThatEndedDoesNotKeepOthersFromTheirAnswer) {
  Recorder recorder({.folder = "/r", .num_asked = 2});
  AskedEnd first(recorder, {.pid = 7}), second(recorder, {.pid = 8});
  first.line.send(to_line(ProfileHello{.rank = 0, .world_size = 2, .pid = 7}));
  first.line.send(to_line(ProfileNews{.trace = "/r/rank0.json"}));  // which nobody has asked for yet
  first.line.close();
  recorder.handle();
  second.line.send(to_line(ProfileHello{.rank = 1, .world_size = 2, .pid = 8}));
  recorder.handle();
  EXPECT_TRUE(second.request());
}

TEST(Recorder, AProgramThatStartsHasNoSecondOneOfItsRank) {
  Recorder recorder({.folder = "/r", .wait = 5, .warmup = 2, .active = 6});
  const auto socket = parse_user_socket(kProfilingService, recorder.listen());
  ASSERT_TRUE(socket);
  const auto connect = [&] {
    UniqueFd fd;
    EXPECT_EQ(connect_to(*socket, fd), Connected::kYes);
    return LineConnection(std::move(fd));
  };
  auto stranger = connect(), first = connect(), second = connect();
  stranger.send(to_line(ProfileNews{.failure = "it has not said who it is"}));
  first.send(to_line(ProfileHello{.rank = 1, .world_size = 2, .local_world_size = 2}));
  second.send(to_line(ProfileHello{.rank = 1, .world_size = 2, .local_world_size = 2}));
  recorder.handle();
  EXPECT_FALSE(recorder.recording().failure());
  const auto request = parse_request(first.next().value_or(""));
  ASSERT_TRUE(request);
  EXPECT_EQ(request->first, 7);
  EXPECT_FALSE(second.next());
  EXPECT_TRUE(second.is_closed());
  first.send(to_line(ProfileNews{.failure = "the disk is full"}));
  recorder.handle();
  EXPECT_EQ(recorder.recording().failure(), "rank 1: the disk is full");
}

}  // namespace
}  // namespace yoke::profile
