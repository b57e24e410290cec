// `yoke reserve`, between several real users.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <memory>

#include "tests/claim/machine.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class ClaimReserve : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to be several users";
    machine_.write("config.toml", "[claim]\n");
  }
  CommandOptions as(uid_t uid, std::vector<std::string> words) const {
    auto options = machine_.yoke_as(uid, std::move(words));
    options.environment.emplace_back("YOKE_SITE_CONFIG", machine_.path("config.toml"));
    return options;
  }
  /// Reserves, and returns the id.
  std::string reserve(uid_t uid, std::vector<std::string> options) const {
    options.insert(options.begin(), {"reserve", "--json"});
    const auto result = run(as(uid, std::move(options)));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.exit_code == 0 ? Json::parse(result.out).at("id").get<std::string>() : "";
  }
  Json reservations() const { return Json::parse(run(as(kBob, {"claims", "--json"})).out).at("reservations"); }
  /// A file as a user could write it by hand.
  void write_reservation(uid_t owner, uid_t uid_in_name, const Json& text) const {
    const auto name = "yoke-reservation-" + std::to_string(uid_in_name) + "-0badf00d";
    machine_.write("locks/" + name, text.dump());
    ASSERT_EQ(chown((machine_.locks() + "/" + name).c_str(), owner, owner), 0);
  }

  const ClaimMachine machine_;
};

TEST_F(ClaimReserve, DoesNotCostThePlaceOfWhoWaitsForClaims) {
  reserve(kAda, {"--start", "+10h", "--for", "5m", "-n", "1"});
  Command holder(machine_.yoke(ClaimMachine::claim_and_wait({"-n", "4"})));
  ASSERT_TRUE(holder.wait_for_output("started"));
  Command waiter(as(kBob, ClaimMachine::claim_and_wait({"-n", "5", "--wait"})));
  ASSERT_TRUE(wait_until([&] { return machine_.claims().at("queue").size() == 1; }));
  EXPECT_EQ(run(as(kAda, {"claim", "-n", "3", "--", "true"})).exit_code, 75) << "five fit beside the reservation";
  holder.signal(SIGTERM);
  EXPECT_TRUE(waiter.wait_for_output("started"));
}

TEST_F(ClaimReserve, KeepsDevicesForItsUser) {
  const auto now = std::time(nullptr);
  const auto id = reserve(kAda, {"--start", "+1h", "--for", "2h", "-n", "6", "--name", "my demo"});
  const auto shown = reservations();
  ASSERT_THAT(shown, SizeIs(1));
  EXPECT_EQ(shown[0].at("id"), id);
  EXPECT_EQ(shown[0].at("user"), std::to_string(kAda));
  EXPECT_EQ(shown[0].at("num_devices"), 6);
  EXPECT_NEAR(shown[0].at("start").get<double>(), static_cast<double>(now) + 3600, 60);
  EXPECT_EQ(shown[0].at("until").get<int64_t>() - shown[0].at("start").get<int64_t>(), 7200);
  EXPECT_EQ(shown[0].at("purpose"), "my demo");
  EXPECT_THAT(run(as(kBob, {"claims"})).out, AllOf(HasSubstr(id), HasSubstr("my demo")));

  const auto refused = run(as(kBob, {"claim", "-n", "3", "--", "true"}));
  EXPECT_EQ(refused.exit_code, 75);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("6 devices are reserved by 61001"), HasSubstr("which leaves 2"),
                                 HasSubstr("with --for 59m or less")));
  EXPECT_EQ(run(as(kBob, {"claim", "-n", "3", "--for", "90m", "--", "true"})).exit_code, 75);
  EXPECT_EQ(run(as(kBob, {"claim", "-n", "2", "--", "true"})).exit_code, 0) << "enough others are left";
  EXPECT_EQ(run(as(kBob, {"claim", "-n", "8", "--for", "30m", "--", "true"})).exit_code, 0) << "it ends before";
  EXPECT_EQ(run(as(kBob, {"claim", "-d", "0", "--", "true"})).exit_code, 0) << "one of the two others";
  EXPECT_EQ(run(as(kAda, {"claim", "-n", "8", "--", "true"})).exit_code, 0) << "its user";
}

TEST_F(ClaimReserve, ItsUserNeedNotWaitForOthers) {
  reserve(kAda, {"--start", "now", "--for", "2h", "-n", "4"});
  Command holder(as(kBob, ClaimMachine::claim_and_wait({"-n", "4"})));
  ASSERT_TRUE(holder.wait_for_output("started")) << holder.err();
  Command waiter(as(kBob, ClaimMachine::claim_and_wait({"-n", "1", "--wait"})));
  ASSERT_TRUE(waiter.wait_for_output("4 devices are reserved by 61001"));
  Command ada(as(kAda, ClaimMachine::claim_and_wait({"-n", "4"})));
  ASSERT_TRUE(ada.wait_for_output("started")) << ada.err();
  EXPECT_EQ(reservations()[0].at("num_left"), 0);
  EXPECT_EQ(run(as(kAda, {"claim", "-n", "1", "--", "true"})).exit_code, 75) << "more than was reserved";
  EXPECT_EQ(waiter.out(), "");
  holder.signal(SIGTERM);
  EXPECT_TRUE(waiter.wait_for_output("started")) << "what is not reserved";
}

TEST_F(ClaimReserve, ARequestThatMustWaitForItHoldsBackNobody) {
  reserve(kAda, {"--start", "+1h", "--for", "1h", "-n", "8"});
  Command waiter(as(kBob, ClaimMachine::claim_and_wait({"-n", "1", "--wait"})));
  ASSERT_TRUE(waiter.wait_for_output("8 devices are reserved by 61001"));
  ASSERT_TRUE(wait_until([&] { return Json::parse(run(as(kBob, {"claims", "--json"})).out).at("queue").size() == 1; }));
  EXPECT_EQ(run(as(kBob, {"claim", "-n", "8", "--for", "30m", "--", "true"})).exit_code, 0);
  EXPECT_EQ(run(as(kBob, {"claim", "-n", "8", "--for", "30m", "--wait", "60s", "--", "true"})).exit_code, 0);
  EXPECT_EQ(waiter.out(), "");
}

TEST_F(ClaimReserve, DoesNotBringItsUserBeforeOthers) {
  Command holder(machine_.yoke(ClaimMachine::claim_and_wait({"-n", "8", "--for", "30m"})));
  ASSERT_TRUE(holder.wait_for_output("started"));
  reserve(kBob, {"--start", "+1h", "--for", "1m", "-n", "8"});
  Command waiter(as(kAda, ClaimMachine::claim_and_wait({"-n", "8", "--for", "2h", "--wait"})));
  ASSERT_TRUE(wait_until([&] { return machine_.claims().at("queue").size() == 1; }));
  holder.signal(SIGTERM);
  holder.wait();
  EXPECT_EQ(run(as(kBob, {"claim", "-n", "8", "--for", "3h", "--", "true"})).exit_code, 75);
  EXPECT_EQ(run(machine_.yoke({"claim", "-n", "8", "--for", "30m", "--", "true"})).exit_code, 0)
      << "devices are not idle until then";
}

TEST_F(ClaimReserve, DoesNotDelayWhoWaitsAlready) {
  Command first(machine_.yoke(ClaimMachine::claim_and_wait({"-d", "0,1,2,3", "--for", "30m"})));
  ASSERT_TRUE(first.wait_for_output("started"));
  Command second(machine_.yoke(ClaimMachine::claim_and_wait({"-n", "4", "--for", "20h"})));
  ASSERT_TRUE(second.wait_for_output("started"));
  const auto wait = [&](const std::vector<std::string>& options) {
    auto waiter = std::make_unique<Command>(as(kBob, ClaimMachine::claim_and_wait(options)));
    EXPECT_TRUE(waiter->wait_for_output("waiting"));
    EXPECT_EQ(Json::parse(run(as(kBob, {"claims", "--json"})).out).at("queue").size(), 1U);
    return waiter;
  };
  const auto attempt = [&](const std::string& start, std::vector<std::string> options) {
    options.insert(options.begin(), {"reserve", "--start", start, "--for", "1h"});
    const auto result = run(as(kAda, options));
    if (result.exit_code != 0) return result.err;
    const auto begin = result.out.find(' ') + 1;
    EXPECT_EQ(run(as(kAda, {"reserve", "--cancel", result.out.substr(begin, 8)})).exit_code, 0) << result.out;
    return std::string("made");
  };
  {  // He starts in half an hour, and ends an hour later.
    const auto bob = wait({"-n", "4", "--for", "1h", "--wait"});
    const auto refused = attempt("+35m", {"-n", "4"});
    EXPECT_THAT(refused, AllOf(HasSubstr("uid 61002 has been waiting for 4 devices since"),
                               HasSubstr("a reservation could begin at")));
    const auto at = refused.find("could begin at ") + 15;
    EXPECT_EQ(attempt(refused.substr(at, 19), {"-n", "4"}), "made") << "as the message says";
    EXPECT_EQ(attempt("+3h", {"-n", "4"}), "made");
    EXPECT_THAT(attempt("+80m", {"-d", "0"}), HasSubstr("has been waiting"));
    EXPECT_EQ(run(as(0, {"reserve", "--start", "+35m", "--for", "1h", "-n", "4"})).exit_code, 0) << "root may";
    EXPECT_EQ(run(as(0, {"reserve", "--cancel", reservations()[0].at("id")})).exit_code, 0);
  }
  {  // Nobody knows when he ends.
    const auto bob = wait({"-n", "2", "--wait"});
    EXPECT_EQ(attempt("+3h", {"-n", "2"}), "made") << "two others are left";
    EXPECT_THAT(attempt("+3h", {"-n", "3"}), HasSubstr("reserve fewer devices"));
    EXPECT_EQ(attempt("+23h", {"-n", "6"}), "made");
  }
  const auto bob = wait({"-d", "0,1", "--wait"});
  EXPECT_EQ(attempt("+3h", {"-d", "2,3"}), "made");
  EXPECT_THAT(attempt("+3h", {"-d", "1,2"}), HasSubstr("has been waiting"));
}

TEST_F(ClaimReserve, DevicesCanBeNamed) {
  reserve(kAda, {"--start", "+1h", "--for", "1h", "-d", "0,1"});
  const auto result = run(as(kBob, {"claim", "-d", "0", "--", "true"}));
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_THAT(result.err, HasSubstr("device 0 is reserved by 61001 from 20"));
  EXPECT_EQ(run(as(kBob, {"claim", "-d", "0", "--for", "30m", "--", "true"})).exit_code, 0);
  EXPECT_EQ(run(as(kBob, {"claim", "-n", "6", "--", "true"})).exit_code, 0);
  EXPECT_EQ(run(as(kBob, {"claim", "-n", "7", "--", "true"})).exit_code, 75);
  const auto second = run(as(kBob, {"reserve", "--start", "+90m", "--for", "1h", "-d", "1"}));
  EXPECT_EQ(second.exit_code, 69);
  EXPECT_THAT(second.err, HasSubstr("overlaps another one"));
}

TEST_F(ClaimReserve, WhatCannotBeKeptIsNotPromised) {
  Command holder(as(kBob, ClaimMachine::claim_and_wait({"-n", "5"})));
  ASSERT_TRUE(holder.wait_for_output("started"));
  const auto refused = run(as(kAda, {"reserve", "--start", "+1h", "--for", "1h", "-n", "4"}));
  EXPECT_EQ(refused.exit_code, 75);
  EXPECT_THAT(refused.err, HasSubstr("1 of the 4 devices would not be free at"));
  reserve(kAda, {"--start", "+1h", "--for", "1h", "-n", "3"});
  EXPECT_EQ(run(as(kAda, {"reserve", "--start", "+1h", "--for", "1h", "-n", "9"})).exit_code, 69);
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"reserve"},
                                             {"reserve", "--start", "9:00"},
                                             {"reserve", "--start", "9 o'clock", "--for", "1h"},
                                             {"reserve", "--start", "2020-01-01 09:00", "--for", "1h"},
                                             {"reserve", "--list", "-n", "1"}}) {
    EXPECT_EQ(run(as(kAda, words)).exit_code, 64) << words.back();
  }
}

TEST_F(ClaimReserve, ClaimsAreNotExtendedIntoOne) {
  const auto held = run(as(kBob, {"claim", "-n", "8", "--for", "30m", "--json"}));
  ASSERT_EQ(held.exit_code, 0) << held.err;
  const auto pid = std::to_string(Json::parse(held.out).at("pid").get<int64_t>());
  reserve(kAda, {"--start", "+1h", "--for", "1h", "-n", "1"});
  EXPECT_EQ(run(as(kBob, {"extend", pid, "--for", "10m"})).exit_code, 0);
  const auto refused = run(as(kBob, {"extend", pid, "--for", "1h"}));
  EXPECT_EQ(refused.exit_code, 69);
  EXPECT_THAT(refused.err, HasSubstr("1 device is reserved by 61001"));
  EXPECT_EQ(run(as(kBob, {"release", "--mine"})).exit_code, 0);
}

TEST_F(ClaimReserve, ANumberThatSomebodyHasCopiedIsNotCancelledForAnother) {
  const auto id = reserve(kAda, {"--start", "+1h", "--for", "1h"});
  const auto forged = "yoke-reservation-" + std::to_string(kBob) + "-" + id;
  const auto copy = "cat " + machine_.locks() + "/yoke-reservation-" + std::to_string(kAda) + "-" + id + " > " +
                    machine_.locks() + "/" + forged;
  ASSERT_EQ(run(ClaimMachine::as(kBob, {.argv = {"sh", "-c", copy}})).exit_code, 0);
  const auto refused = run(as(0, {"reserve", "--cancel", id}));
  EXPECT_EQ(refused.exit_code, 64);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("2 reservations have the number"), HasSubstr(forged + " of uid 61002")));
  EXPECT_EQ(run(as(0, {"reserve", "--cancel", forged})).exit_code, 0);
  ASSERT_THAT(reservations(), SizeIs(1));
  EXPECT_EQ(reservations()[0].at("user"), std::to_string(kAda));
}

TEST_F(ClaimReserve, OnlyItsUserAndRootCancelIt) {
  const auto first = reserve(kAda, {"--start", "+1h", "--for", "1h"});
  const auto second = reserve(kAda, {"--start", "+2h", "--for", "1h"});
  EXPECT_EQ(run(as(kBob, {"reserve", "--cancel", first})).exit_code, 77);
  EXPECT_EQ(run(as(kBob, {"reserve", "--cancel", "00000000"})).exit_code, 66);
  const auto removed =
      run(ClaimMachine::as(kBob, {.argv = {"sh", "-c", "rm -f " + machine_.locks() + "/yoke-reser*"}}));
  EXPECT_NE(removed.exit_code, 0);
  EXPECT_THAT(reservations(), SizeIs(2));
  EXPECT_EQ(run(as(kAda, {"reserve", "--cancel", first})).exit_code, 0);
  EXPECT_EQ(run(as(0, {"reserve", "--cancel", second})).exit_code, 0) << "root";
  EXPECT_THAT(reservations(), IsEmpty());
  EXPECT_THAT(run(as(kAda, {"reserve", "--list"})).out, HasSubstr("nothing is reserved"));
  EXPECT_THAT(Json::parse(run(as(kAda, {"reserve", "--list", "--json"})).out).at("reservations"), IsEmpty());
}

TEST_F(ClaimReserve, TheSiteLimitsThem) {
  machine_.write("config.toml",
                 "[claim]\ndevices_per_user = 2\nreservations_per_user = 1\nreserve_ahead = '2d'\n"
                 "reserve_longest = '3h'\n");
  const auto complaint = [&](std::vector<std::string> options) {
    options.insert(options.begin(), "reserve");
    const auto result = run(as(kAda, std::move(options)));
    EXPECT_EQ(result.exit_code, 69);
    return result.err;
  };
  EXPECT_THAT(complaint({"--start", "+1h", "--for", "1h", "-n", "3"}), HasSubstr("exceeds the limit of 2 devices"));
  EXPECT_THAT(complaint({"--start", "+3d", "--for", "1h"}), HasSubstr("may begin within 2 d 0 h"));
  EXPECT_THAT(complaint({"--start", "+1h", "--for", "4h"}), HasSubstr("may last for 3:00:00"));
  reserve(kAda, {"--start", "now", "--for", "1h", "-n", "2"});
  EXPECT_THAT(complaint({"--start", "+5h", "--for", "1h"}), HasSubstr("one too many"));
  EXPECT_EQ(run(as(kAda, {"claim", "-n", "2", "--", "true"})).exit_code, 0) << "what is reserved counts once";
  EXPECT_EQ(run(as(kAda, {"claim", "-n", "3", "--", "true"})).exit_code, 69);
}

TEST_F(ClaimReserve, FilesThatAreWrittenByHandHaveTheSameLimits) {
  const auto now = std::time(nullptr);
  const Json huge = {{"num_devices", 8}, {"start", now}, {"until", now + 86'400 * 365}, {"purpose", "\x1b[2J"}};
  write_reservation(kBob, kBob, huge);
  EXPECT_THAT(reservations(), IsEmpty()) << "it is too long";
  EXPECT_EQ(run(as(kAda, {"claim", "-n", "8", "--", "true"})).exit_code, 0);
  const auto list = run(as(kAda, {"reserve", "--list"}));
  EXPECT_THAT(list.out, AllOf(HasSubstr("0badf00d"), HasSubstr("(not"), testing::Not(HasSubstr("\x1b"))));

  // Bob pretends to be ada.
  Json short_one = {{"num_devices", 8}, {"start", now}, {"until", now + 3600}};
  write_reservation(kBob, kAda, short_one);
  EXPECT_THAT(reservations(), IsEmpty());

  // He says more than there is, after ada reserved four: he gets what is left.
  reserve(kAda, {"--start", "now", "--for", "1h", "-n", "4"});
  short_one["num_devices"] = 4096;
  write_reservation(kBob, kBob, short_one);
  const auto shown = reservations();
  ASSERT_THAT(shown, SizeIs(2));
  EXPECT_EQ(shown[0].at("num_devices"), 4);
  EXPECT_EQ(shown[1].at("num_devices"), 4);
  EXPECT_EQ(run(as(kAda, {"claim", "-n", "4", "--", "true"})).exit_code, 0);
  EXPECT_EQ(run(as(kAda, {"claim", "-n", "5", "--", "true"})).exit_code, 75);
}

TEST_F(ClaimReserve, OneThatNobodyUsesEnds) {
  machine_.write("config.toml", "[claim]\nreserve_grace = '1s'\n");
  reserve(kAda, {"--start", "now", "--for", "1h", "-n", "8"});
  Command bob(as(kBob, ClaimMachine::claim_and_wait({"-n", "8", "--wait"})));
  EXPECT_TRUE(bob.wait_for_output("started")) << bob.err();
  EXPECT_THAT(reservations(), IsEmpty());
}

}  // namespace
}  // namespace yoke::test
