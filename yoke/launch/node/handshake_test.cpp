#include "yoke/launch/node/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::launch {
namespace {

using testing::HasSubstr;
using testing::Not;
using Side = Handshake::Side;
using State = Handshake::State;

/// Passes messages between both sides. Returns all bytes that they sent.
std::string talk(Handshake& head, Handshake& agent) {
  std::string to_head, to_agent, all;
  for (int turn = 0; turn < 5; ++turn) {
    std::string from_head, from_agent;
    head.feed(to_head, from_head);
    to_agent += from_head;
    agent.feed(to_agent, from_agent);
    to_head += from_agent;
    all += from_head + from_agent;
  }
  return all;
}

TEST(Handshake, ThoseWhoShareATokenAgree) {
  Handshake head(Side::kHead, "a secret", "job"), agent(Side::kAgent, "a secret", "job");
  const auto wire = talk(head, agent);
  EXPECT_EQ(head.state(), State::kDone);
  EXPECT_EQ(agent.state(), State::kDone);
  EXPECT_THAT(wire, Not(HasSubstr("secret")));
}

TEST(Handshake, AnotherTokenOrJobIsRefusedByBoth) {
  for (const auto& [token, id] :
       {std::pair("another", "job"), {"a secret", "job2"}, {"", "job"}, {"a secretj", "ob"}}) {
    Handshake head(Side::kHead, "a secret", "job"), agent(Side::kAgent, token, id);
    talk(head, agent);
    EXPECT_EQ(head.state(), State::kRefused);
    EXPECT_EQ(agent.state(), State::kRefused);
    EXPECT_THAT(agent.reason(), HasSubstr("its --rdzv-id or its token differs"));
  }
}

/// The peer is a different program that has taken the port, and accepts every node.
TEST(Handshake, AHeadWithoutTheTokenIsRefused) {
  Handshake agent(Side::kAgent, "a secret", "job");
  std::string received = "yoke/1 head\n" + std::string(32, 'x'), sent;
  agent.feed(received, sent);
  EXPECT_EQ(agent.state(), State::kTalking);
  received += 'y' + std::string(32, 'x');
  agent.feed(received, sent);
  EXPECT_EQ(agent.state(), State::kRefused);
  EXPECT_THAT(agent.reason(), HasSubstr("it is not yoke, or it is another user's yoke"));
}

/// An agent must refuse its own proof when it is sent back, and a proof from an earlier handshake.
TEST(Handshake, ProofsCannotBeReflectedOrRepeated) {
  Handshake agent(Side::kAgent, "a secret", "job");
  std::string received = "yoke/1 head\n" + std::string(32, 'x'), sent;
  agent.feed(received, sent);
  received += 'y' + sent.substr(sent.size() - 32);
  agent.feed(received, sent);
  EXPECT_EQ(agent.state(), State::kRefused);

  Handshake first(Side::kHead, "a secret", "job"), node(Side::kAgent, "a secret", "job");
  std::string to_first, from_first, from_node;
  first.feed(to_first, from_first);
  node.feed(from_first, from_node);
  Handshake second(Side::kHead, "a secret", "job");
  std::string ignored;
  second.feed(from_node, ignored);
  EXPECT_EQ(second.state(), State::kRefused);
}

TEST(Handshake, WhatIsNoYokeIsNamed) {
  Handshake agent(Side::kAgent, "a secret", "job");
  std::string received = "SSH-2.0-OpenSSH\x1b[2J", sent;
  agent.feed(received, sent);
  EXPECT_EQ(agent.state(), State::kRefused);
  EXPECT_THAT(agent.reason(), HasSubstr("a program that is not yoke sent 'SSH-2.0-OpenSSH"));
  EXPECT_THAT(agent.reason(), Not(HasSubstr("\x1b")));
}

/// A head of any version accepts an early greeting, because the bytes are the same.
TEST(Handshake, AnAgentMayGreetFirst) {
  Handshake head(Side::kHead, "a secret", "job"), agent(Side::kAgent, "a secret", "job");
  std::string to_head, from_head;
  agent.greet_first(to_head);
  EXPECT_THAT(to_head, testing::StartsWith("yoke/1 agent\n"));
  head.feed(to_head, from_head);
  agent.feed(from_head, to_head);
  head.feed(to_head, from_head);
  agent.feed(from_head, to_head);
  EXPECT_EQ(head.state(), State::kDone);
  EXPECT_EQ(agent.state(), State::kDone);
}

TEST(Handshake, WhatFollowsIsLeft) {
  Handshake head(Side::kHead, "a secret", "job"), agent(Side::kAgent, "a secret", "job");
  std::string to_head, from_head, to_agent, from_agent;
  head.feed(to_head, from_head);
  agent.feed(from_head, from_agent);
  to_head = from_agent + "first message";
  head.feed(to_head, to_agent);
  EXPECT_EQ(head.state(), State::kDone);
  EXPECT_EQ(to_head, "first message");
}

}  // namespace
}  // namespace yoke::launch
