#include "yoke/launch/node/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"

namespace yoke::launch {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using testing::HasSubstr;

class ChannelTest : public testing::Test {
 protected:
  ChannelTest() { begin(); }

  void begin() {
    signal(SIGPIPE, SIG_IGN);
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    other_ = UniqueFd(pair[1]);
    UniqueFd in(pair[0]), out(dup(pair[0]));
    channel_ = std::make_unique<Channel>(std::move(in), std::move(out), milliseconds(300), "hello\n");
  }

  void turn(int wait_ms = 100) {
    const std::array<EventSource*, 1> sources = {channel_.get()};
    loop_.turn(sources, milliseconds(wait_ms));
  }

  void say(std::string_view bytes) {
    ASSERT_EQ(write(other_.value(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }

  static std::string frame(const json& message) {
    std::string text;
    json::to_cbor(message, text);
    std::string result(4, '\0');
    for (size_t i = 0; i < 4; ++i) result[i] = static_cast<char>(text.size() >> (8 * i));
    return result + text;
  }

  UniqueFd other_;
  std::unique_ptr<Channel> channel_;
  EventLoop loop_;
};

TEST_F(ChannelTest, MessagesArriveWholeInWhateverPieces) {
  const json message = {{"text", std::string("\xff\0\n", 3)}, {"number", -5}};
  const auto bytes = "Last login: yesterday\nhello\n" + frame(message) + frame({{"second", 2}});
  for (const char c : bytes) {
    say({&c, 1});
    turn();
  }
  auto received = channel_->receive();
  ASSERT_TRUE(received);
  EXPECT_EQ(*received, message);
  received = channel_->receive();
  ASSERT_TRUE(received);
  EXPECT_EQ(received->at("second"), 2);
  EXPECT_FALSE(channel_->receive());
}

TEST_F(ChannelTest, WhatItSendsIsWhatItReads) {
  channel_->send({{"a", 1}});
  say("Update now? [Y/n] ");
  turn();
  char buffer[64];
  EXPECT_EQ(recv(other_.value(), buffer, sizeof buffer, MSG_DONTWAIT), -1) << "a shell would take it for an answer";
  EXPECT_EQ(channel_->text_before(), "Update now? [Y/n] ");
  say("hello\n");
  turn();
  EXPECT_EQ(channel_->text_before(), "");
  turn();
  const auto count = read(other_.value(), buffer, sizeof buffer);
  EXPECT_EQ(std::string(buffer, static_cast<size_t>(count)), frame({{"a", 1}}));
}

TEST_F(ChannelTest, SilenceEndsIt) {
  say("hello\n" + frame({{"a", 1}}));
  const auto until = std::chrono::steady_clock::now() + milliseconds(60'000);
  while (!channel_->end() && std::chrono::steady_clock::now() < until) turn(20);
  ASSERT_TRUE(channel_->end());
  EXPECT_THAT(*channel_->end(), HasSubstr("it sent nothing for 0.3 s"));
  EXPECT_TRUE(channel_->was_silent());
  EXPECT_TRUE(channel_->receive()) << "what was said before still counts";
}

TEST_F(ChannelTest, WhoeverIsGivenUpIsTold) {
  say("hello\n");
  const auto until = std::chrono::steady_clock::now() + milliseconds(60'000);
  while (!channel_->end() && std::chrono::steady_clock::now() < until) turn(20);
  char buffer[64];
  const auto count = read(other_.value(), buffer, sizeof buffer);
  const auto message = frame({{"given_up", 300}});
  EXPECT_EQ(std::string(buffer, static_cast<size_t>(count)), message);

  begin();
  say("hello\n" + frame({{"a", 1}}) + message);
  turn();
  EXPECT_TRUE(channel_->receive()) << "what was said before still counts";
  EXPECT_FALSE(channel_->receive());
  EXPECT_EQ(channel_->given_up_after(), milliseconds(300));
  ASSERT_TRUE(channel_->end());
  EXPECT_FALSE(channel_->was_silent());
}

TEST_F(ChannelTest, TheOtherSideMayBeSilentForLongerWhileItStarts) {
  const auto turn_for = [&](milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    while (!channel_->end() && std::chrono::steady_clock::now() < until) turn(20);
  };
  say("Last login: yesterday\n");
  turn_for(milliseconds(400));
  EXPECT_FALSE(channel_->end()) << "its login shell has not finished";
  say("hello\n");
  turn_for(milliseconds(60'000));
  EXPECT_TRUE(channel_->end());
}

TEST_F(ChannelTest, AClosedEndIsNoSilence) {
  say("hello\n" + frame({{"a", 1}}));
  other_.reset();
  turn();
  turn();
  ASSERT_TRUE(channel_->end());
  EXPECT_FALSE(channel_->was_silent());
  EXPECT_TRUE(channel_->receive());
  channel_->send({{"too", "late"}});  // must not fail
}

TEST_F(ChannelTest, WhatIsNoMessageIsAnError) {
  for (const auto& bytes :
       {std::string("\xff\xff\xff\xff"), std::string("\x01\0\0\0\xff", 5), frame(json::array({1}))}) {
    begin();
    say("hello\n" + bytes);
    turn();
    EXPECT_THROW(channel_->receive(), Error);
    EXPECT_TRUE(channel_->end());
  }
}

TEST_F(ChannelTest, TheRequestIsTheFirstMessage) {
  say("hello\n" + frame(json::object()) + frame({{"launch", 1}}));
  EXPECT_EQ(receive_request(*channel_), json({{"launch", 1}}));
  other_.reset();
  EXPECT_EQ(test::message_of([&] { receive_request(*channel_); }, ErrorCode::kUnavailable),
            "lost the head node: its connection was closed");
}

}  // namespace
}  // namespace yoke::launch
