// Several users share a device by memory: who is given a part, who is refused, and what is shown.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <csignal>

#include "tests/claim/attacker.h"
#include "tests/claim/machine.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

constexpr int64_t kGibibyte = int64_t{1} << 30;

std::vector<std::string> share_and_wait(const std::string& memory, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"claim", "--share", "--memory", memory});
  more.insert(more.end(),
              {"--", "sh", "-c", "echo started $CUDA_VISIBLE_DEVICES $YOKE_DEVICE_MEMORY_BYTES; exec sleep 1000"});
  return more;
}

/// Two devices of 80 GiB, of which the first one can have `overrides`.
Json two_devices(const Json& first = nullptr) {
  Json state = {{"devices", 2}};
  if (!first.is_null()) state["overrides"]["0"] = first;
  return state;
}

TEST(ClaimShared, PartsOfADeviceAreGivenWhileTheyFit) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be several users";
  const ClaimMachine machine(two_devices());
  Command ada(machine.yoke_as(kAda, share_and_wait("30GiB")));
  ASSERT_TRUE(ada.wait_for_output("started"));
  EXPECT_THAT(ada.out(), HasSubstr(" " + std::to_string(30 * kGibibyte) + "\n"));
  Command bob(machine.yoke_as(kBob, share_and_wait("30GiB")));
  ASSERT_TRUE(bob.wait_for_output("started"));
  EXPECT_EQ(bob.out(), ada.out()) << "the device that is shared already";
  auto claims = machine.claims().at("claims");
  ASSERT_THAT(claims, SizeIs(2));
  EXPECT_EQ(claims[0].at("shared_bytes"), 30 * kGibibyte);
  EXPECT_EQ(claims[0].at("device"), claims[1].at("device"));
  EXPECT_NE(claims[0].at("user"), claims[1].at("user"));
  for (const auto& claim : claims)
    EXPECT_EQ(claim.at("pid"), claim.at("user") == std::to_string(kAda) ? ada.pid() : bob.pid());
  EXPECT_THAT(run(machine.yoke({"claims"})).out, AllOf(HasSubstr("share"), HasSubstr("30.0 GiB")));
  EXPECT_THAT(run(machine.yoke({"devices"})).out, HasSubstr("30.0 GiB, "));
  EXPECT_THAT(run(machine.yoke({"metrics"})).out,
              AllOf(HasSubstr("yoke_claim_shared_bytes{"), HasSubstr("} 32212254720")));

  const auto device = claims[0].at("device").get<std::string>();
  const auto full = run(machine.yoke({"claim", "-d", device, "--memory", "30GiB", "--share", "--", "true"}));
  EXPECT_EQ(full.exit_code, 75);
  EXPECT_THAT(full.err, AllOf(HasSubstr("shared by uid 6100"), HasSubstr("which leaves 1"), HasSubstr("--wait")));
  EXPECT_EQ(run(machine.yoke({"claim", "-d", device, "--memory", "15GiB", "--share", "--", "true"})).exit_code, 0);
  const auto whole = run(machine.yoke({"claim", "-d", device, "--", "true"}));
  EXPECT_EQ(whole.exit_code, 75) << "it is not given to somebody alone";
  EXPECT_THAT(whole.err, HasSubstr("shared by uid"));
  EXPECT_EQ(run(machine.yoke({"claim", "--", "true"})).exit_code, 0) << "the other one is";

  // Somebody who is killed gives back his part, and a waiting request is given it.
  Command waiter(machine.yoke({"claim", "-d", device, "--memory", "40GiB", "--share", "--wait", "1m", "--", "true"}));
  ASSERT_TRUE(waiter.wait_until([&] { return waiter.err().find("waiting") != std::string::npos; }));
  bob.signal(SIGKILL);
  EXPECT_EQ(waiter.wait().exit_code, 0);
  ASSERT_TRUE(wait_until([&] { return machine.num_claimed() == 1; }));
  EXPECT_EQ(machine.claims().at("claims")[0].at("user"), std::to_string(kAda));
}

TEST(ClaimShared, WholeDevicesAndPartsWaitForEachOther) {
  const ClaimMachine machine(Json{{"devices", 1}});
  Command first(machine.yoke(share_and_wait("10GiB")));
  Command second(machine.yoke(share_and_wait("10GiB")));
  ASSERT_TRUE(first.wait_for_output("started"));
  ASSERT_TRUE(second.wait_for_output("started"));
  Command whole(machine.yoke(ClaimMachine::claim_and_wait({"--wait"})));
  ASSERT_TRUE(whole.wait_until([&] { return whole.err().find("waiting") != std::string::npos; }));
  Command part(machine.yoke(share_and_wait("10GiB", {"--wait"})));
  ASSERT_TRUE(part.wait_until([&] { return part.err().find("waiting") != std::string::npos; }))
      << "it comes after the one who waits for the whole device: " << part.err();
  first.signal(SIGKILL);
  ASSERT_TRUE(wait_until([&] { return machine.num_claimed() == 1; }));
  EXPECT_EQ(whole.out(), "") << "the other part is still held";
  second.signal(SIGKILL);
  ASSERT_TRUE(whole.wait_for_output("started"));
  const auto claims = machine.claims().at("claims");
  ASSERT_THAT(claims, SizeIs(1));
  EXPECT_TRUE(claims[0].at("shared_bytes").is_null());
  EXPECT_EQ(part.out(), "");
  whole.signal(SIGKILL);
  ASSERT_TRUE(part.wait_for_output("started"));
  // A program that has a device for itself does not keep to the limit of the one that started it.
  auto nested = machine.yoke({"claim", "--explain"});
  nested.environment.emplace_back("YOKE_DEVICE_MEMORY_BYTES", "1");
  EXPECT_THAT(run(nested).out, HasSubstr("shared by"));
  part.signal(SIGTERM);
  part.wait();
  nested.argv.insert(nested.argv.end(), {"--", "sh", "-c", "echo limit=$YOKE_DEVICE_MEMORY_BYTES"});
  EXPECT_EQ(run(nested).out, "limit=\n");
}

TEST(ClaimShared, MemoryOfNobodyCountsAsUse) {
  const ClaimMachine machine(two_devices({{"memory_mib", {{"used", 38 * 1024}}}}));
  EXPECT_THAT(run(machine.yoke({"claim", "--memory", "4GiB", "--share", "--explain"})).out,
              HasSubstr("a part of device 1 is given"));
}

TEST(ClaimShared, WaitingForAPartOfUnknownSizeIsRefused) {
  const ClaimMachine machine({{"devices", 1}, {"overrides", {{"0", {{"memory_mib", "no_permission"}}}}}});
  const auto result = run(machine.yoke({"claim", "--memory", "4GiB", "--share", "--wait", "--", "true"}));
  EXPECT_EQ(result.exit_code, 69) << result.err;
}

TEST(ClaimShared, WhatOthersUseCounts) {
  const ClaimMachine machine(two_devices());
  Command user({.argv = {"sleep", "1000"}, .environment = {{"YOKE_TEST_TAG", machine.tag()}}});
  const Json process = {{"pid", user.pid()}, {"memory_mib", 60 * 1024}};
  machine.set_state(two_devices({{"processes", {process}}, {"memory_mib", {{"used", 60 * 1024 + 4}}}}));
  EXPECT_EQ(run(machine.yoke({"claim", "-d", "0", "--memory", "15GiB", "--share", "--", "true"})).exit_code, 0);
  const auto full = run(machine.yoke({"claim", "-d", "0", "--memory", "25GiB", "--share", "--", "true"}));
  EXPECT_EQ(full.exit_code, 75);
  EXPECT_THAT(full.err, AllOf(HasSubstr("in use without a claim by "),
                              HasSubstr("(pid " + std::to_string(user.pid()) + "), which leaves 19.")));
  const auto plan = run(machine.yoke({"claim", "--memory", "15GiB", "--share", "--explain"}));
  EXPECT_THAT(plan.out, HasSubstr("a part of device 1 is given")) << "nobody uses it without a claim";
  EXPECT_EQ(run(machine.yoke({"claim", "--memory", "100GiB", "--share", "--", "true"})).exit_code, 69);
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"claim", "--share", "--", "true"}, {"claim", "--share", "--memory", "8GiB", "--adopt", "1"}}) {
    EXPECT_EQ(run(machine.yoke(words)).exit_code, 64) << words.back();
  }
}

TEST(ClaimShared, AForgedNoteTakesNoMemory) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be several users";
  const ClaimMachine machine(Json{{"devices", 1}});
  Command ada(machine.yoke_as(kAda, share_and_wait("30GiB")));
  ASSERT_TRUE(ada.wait_for_output("started"));
  const auto uuid = machine.claims().at("claims")[0].at("device_uuid").get<std::string>();
  const Attacker bob(kBob, [&] {
    const auto path = machine.locks() + "/yoke-claim-" + std::to_string(kBob) + "-1-00";
    const int fd = open(path.c_str(), O_CREAT | O_EXCL | O_RDWR, 0644);
    const auto text =
        Json{{"keys", {uuid}}, {"pid", ada.pid()}, {"since", 1}, {"share_bytes", 70 * kGibibyte}, {"purpose", "forged"}}
            .dump();
    if (fd < 0 || flock(fd, LOCK_EX) != 0 || write(fd, text.data(), text.size()) < 0) _exit(1);
  });
  const auto claims = machine.claims().at("claims");
  ASSERT_THAT(claims, SizeIs(1)) << "its process holds no lock of the device";
  EXPECT_EQ(claims[0].at("user"), std::to_string(kAda));
  EXPECT_EQ(run(machine.yoke({"claim", "--memory", "40GiB", "--share", "--", "true"})).exit_code, 0);
  // A lock without a note keeps the device from everybody else, as it does without shares, and is shown.
  const Attacker eve(kBob, [&] {
    const int fd = open((machine.locks() + "/yoke-dev-" + uuid).c_str(), O_RDONLY);
    if (fd < 0 || flock(fd, LOCK_SH) != 0) _exit(1);
  });
  const auto refused = run(machine.yoke({"claim", "--memory", "1GiB", "--share", "--", "true"}));
  EXPECT_EQ(refused.exit_code, 75);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("(pid " + std::to_string(eve.pid()) + "), not by yoke"), Not(HasSubstr("forged"))));
}

TEST(ClaimShared, AProgramKeepsItsPartWhenItsLauncherIsKilled) {
  const ClaimMachine machine(Json{{"devices", 1}});
  Command first(machine.yoke({"claim", "--memory", "50GiB", "--share", "--", "sh", "-c",
                              "trap '' TERM; echo started; while :; do sleep 0.1; done"}));
  ASSERT_TRUE(first.wait_for_output("started"));
  first.signal(SIGKILL);
  EXPECT_EQ(run(machine.yoke({"claim", "--memory", "40GiB", "--share", "--", "true"})).exit_code, 75);
  const auto claims = machine.claims().at("claims");
  ASSERT_THAT(claims, SizeIs(1));
  EXPECT_EQ(claims[0].at("shared_bytes"), 50 * kGibibyte);
  EXPECT_NE(claims[0].at("pid"), first.pid()) << "the program has it now";
}

}  // namespace
}  // namespace yoke::test
