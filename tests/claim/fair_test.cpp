// Quotas, the history of use, and the order of those who wait, between several real users.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <ctime>

#include "tests/claim/machine.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// Two users who have the same group on every Debian system (nogroup), and nothing else.
constexpr uid_t kSync = 4, kNobody = 65'534;

class ClaimFair : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to be several users";
  }
  void configure(const std::string& text) const { machine_.write("config.toml", text); }
  CommandOptions as(uid_t uid, std::vector<std::string> words) const {
    auto options = machine_.yoke_as(uid, std::move(words));
    options.environment.emplace_back("YOKE_SITE_CONFIG", machine_.path("config.toml"));
    return options;
  }
  Json claims() const { return Json::parse(run(as(kAda, {"claims", "--json"})).out); }
  /// The history of a user, as his file says that it was some time ago.
  void write_history(uid_t uid, int64_t num_devices, int64_t begin_ago, int64_t end_ago, int num_claims = 1) const {
    const auto now = std::time(nullptr);
    Json begin = {{"since", now - begin_ago}, {"keys", Json::array()}};
    for (int64_t i = 0; i < num_devices; ++i) begin["keys"].push_back("GPU-" + std::to_string(i));
    Json end = {{"end", now - end_ago}, {"idle_seconds", nullptr}};
    std::string text;
    for (int i = 0; i < num_claims; ++i) {
      begin["claim"] = end["claim"] = "past" + std::to_string(i);
      text += begin.dump() + "\n" + end.dump() + "\n";
    }
    const auto name = "yoke-history-" + std::to_string(uid) + "-0000000001-00000001";
    machine_.write("locks/" + name, text);
    ASSERT_EQ(chown((machine_.locks() + "/" + name).c_str(), uid, uid), 0);
  }
  std::vector<Json> history_of(uid_t uid, const std::string& folder) const {
    std::vector<Json> lines;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (!entry.path().filename().string().starts_with("yoke-history-" + std::to_string(uid))) continue;
      std::istringstream text(slurp(entry.path().string()));
      for (std::string line; std::getline(text, line);) {
        if (!line.empty()) lines.push_back(Json::parse(line));
      }
    }
    return lines;
  }
  std::vector<std::string> order_of_queue() const {
    std::vector<std::string> users;
    const auto queue = claims().at("queue");
    for (const auto& entry : queue) users.push_back(entry.at("user"));
    return users;
  }

  const ClaimMachine machine_;
};

TEST_F(ClaimFair, AUserCanHaveALimitOfHisOwn) {
  configure("[claim]\ndevices_per_user = 2\n[claim.users]\n61001 = 4\n61002 = 1\n");
  EXPECT_EQ(run(as(kAda, {"claim", "-n", "4", "--", "true"})).exit_code, 0);
  EXPECT_EQ(run(as(kAda, {"claim", "-n", "5", "--", "true"})).exit_code, 69);
  const auto bob = run(as(kBob, {"claim", "-n", "2", "--", "true"}));
  EXPECT_EQ(bob.exit_code, 69);
  EXPECT_THAT(bob.err, HasSubstr("this site lets a user have 1 device at a time, and 2 are wanted"));
  EXPECT_EQ(run(as(kNobody, {"claim", "-n", "2", "--", "true"})).exit_code, 0) << "the limit of everybody";
}

TEST_F(ClaimFair, AGroupSharesItsLimit) {
  configure("[claim]\n[claim.groups]\nnogroup = 3\n");
  Command sync(as(kSync, ClaimMachine::claim_and_wait({"-n", "2"})));
  ASSERT_TRUE(sync.wait_for_output("started")) << sync.err();
  const auto refused = run(as(kNobody, {"claim", "-n", "2", "--", "true"}));
  EXPECT_EQ(refused.exit_code, 75);
  EXPECT_THAT(refused.err, HasSubstr("lets the group nogroup have 3 devices, and its members hold 2"));
  EXPECT_EQ(run(as(kNobody, {"claim", "-n", "1", "--", "true"})).exit_code, 0);
  EXPECT_EQ(run(as(kNobody, {"claim", "-n", "4", "--wait", "--", "true"})).exit_code, 69);
  EXPECT_EQ(run(as(kAda, {"claim", "-n", "6", "--", "true"})).exit_code, 0) << "not a member";
}

TEST_F(ClaimFair, OnesOwnFileHasNoEffectOnOthers) {
  configure("[claim]\ndevices_per_user = 8\n");
  std::filesystem::create_directories(machine_.path("home/.config/yoke"));
  Command holder(as(kBob, ClaimMachine::claim_and_wait({"-n", "7"})));
  ASSERT_TRUE(holder.wait_for_output("started"));
  Command waiter(as(kNobody, ClaimMachine::claim_and_wait({"-n", "2", "--wait"})));
  ASSERT_TRUE(wait_until([&] { return claims().at("queue").size() == 1; }));
  machine_.write("home/.config/yoke/config.toml", "[claim]\ndevices_per_user = 1\n");
  EXPECT_EQ(run(as(kAda, {"claim", "-n", "1", "--", "true"})).exit_code, 75) << "somebody else waits for 2";
  const auto own = run(as(kAda, {"claim", "-n", "2", "--", "true"}));
  EXPECT_EQ(own.exit_code, 69) << "more than one's own limit";
  EXPECT_THAT(own.err, HasSubstr("your own configuration (~/.config/yoke/config.toml) lets you have 1 device"));
  machine_.write("home/.config/yoke/config.toml", "[claim]\nlongest = '1h'\n");
  EXPECT_THAT(run(as(kAda, {"claim", "--for", "2h"})).err,
              HasSubstr("your own configuration (~/.config/yoke/config.toml) limits claims to 1 h"));
  EXPECT_THAT(run(as(kAda, {"claim", "-n", "9", "--for", "1h"})).err, HasSubstr("this site lets a user have 8"));
}

TEST_F(ClaimFair, WhoeverHasUsedLessComesFirst) {
  configure("[claim]\norder = 'fair'\n");
  write_history(kAda, 4, 7200, 3600);
  Command holder(as(kNobody, ClaimMachine::claim_and_wait({"-n", "8"})));
  ASSERT_TRUE(holder.wait_for_output("started"));
  Command ada(as(kAda, ClaimMachine::claim_and_wait({"-n", "8", "--wait"})));
  ASSERT_TRUE(wait_until([&] { return claims().at("queue").size() == 1; }));
  Command bob(as(kBob, ClaimMachine::claim_and_wait({"-n", "8", "--wait"})));
  ASSERT_TRUE(wait_until([&] { return claims().at("queue").size() == 2; }));
  EXPECT_EQ(order_of_queue(), (std::vector<std::string>{"61002", "61001"}));
  EXPECT_TRUE(ada.wait_for_output("position 2 in the queue"));
  holder.signal(SIGTERM);
  ASSERT_TRUE(bob.wait_for_output("started"));
  const auto passing = run(as(kAda, {"claim", "--", "true"}));
  EXPECT_EQ(passing.exit_code, 75);
  EXPECT_EQ(ada.out(), "");
  bob.signal(SIGTERM);
  EXPECT_TRUE(ada.wait_for_output("started"));
}

TEST_F(ClaimFair, FirstComeFirstServedUnlessTheSiteSaysOtherwise) {
  configure("[claim]\n");
  write_history(kAda, 4, 7200, 3600);
  Command holder(as(kNobody, ClaimMachine::claim_and_wait({"-n", "8"})));
  ASSERT_TRUE(holder.wait_for_output("started"));
  Command ada(as(kAda, ClaimMachine::claim_and_wait({"-n", "8", "--wait"})));
  ASSERT_TRUE(wait_until([&] { return claims().at("queue").size() == 1; }));
  Command again(as(kAda, ClaimMachine::claim_and_wait({"-n", "8", "--wait"})));
  ASSERT_TRUE(wait_until([&] { return claims().at("queue").size() == 2; }));
  Command bob(as(kBob, ClaimMachine::claim_and_wait({"-n", "8", "--wait"})));
  ASSERT_TRUE(wait_until([&] { return claims().at("queue").size() == 3; }));
  EXPECT_EQ(order_of_queue(), (std::vector<std::string>{"61001", "61001", "61002"}));
}

TEST_F(ClaimFair, NobodyCanForgeTheHistoryOfSomebodyElse) {
  configure("[claim]\norder = 'fair'\n");
  write_history(kBob, 1, 7200, 3600);
  // Bob writes about ada what would make her the last, and would keep her from having a history.
  const auto text = Json{{"claim", "x"}, {"since", 1}, {"keys", {"GPU-0", "GPU-1"}}}.dump() + "\n";
  machine_.write("forged", text);
  const auto name = machine_.locks() + "/yoke-history-61001-0000000000-00000000";
  const auto forge = "cp " + machine_.path("forged") + " " + name + "; ln -s /etc/passwd " + machine_.locks() +
                     "/yoke-history-61001-ffffffffff-00000000; true";
  ASSERT_EQ(run(ClaimMachine::as(kBob, {.argv = {"sh", "-c", forge}})).exit_code, 0);
  struct stat status {};
  ASSERT_EQ(stat(name.c_str(), &status), 0);
  ASSERT_EQ(status.st_uid, kBob);
  Command holder(as(kNobody, ClaimMachine::claim_and_wait({"-n", "8"})));
  ASSERT_TRUE(holder.wait_for_output("started"));
  Command bob(as(kBob, ClaimMachine::claim_and_wait({"--wait"})));
  ASSERT_TRUE(wait_until([&] { return claims().at("queue").size() == 1; }));
  Command ada(as(kAda, ClaimMachine::claim_and_wait({"--wait"})));
  ASSERT_TRUE(wait_until([&] { return claims().at("queue").size() == 2; }));
  EXPECT_EQ(order_of_queue(), (std::vector<std::string>{"61001", "61002"}));
  holder.signal(SIGTERM);
  ASSERT_TRUE(ada.wait_for_output("started"));
  EXPECT_THAT(ada.err(), testing::Not(HasSubstr("history"))) << "her claim was recorded";
}

TEST_F(ClaimFair, TheHistoryHasBeginAndEndOfEachClaim) {
  std::filesystem::create_directory(machine_.path("history"));
  chmod(machine_.path("history").c_str(), 01777);
  configure("[claim]\nhistory_directory = '" + machine_.path("history") + "'\n");
  ASSERT_EQ(run(as(kAda, {"claim", "-n", "2", "--", "true"})).exit_code, 0);
  auto lines = history_of(kAda, machine_.path("history"));
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_THAT(lines[0].at("keys"), SizeIs(2));
  EXPECT_EQ(lines[1].at("claim"), lines[0].at("claim"));
  EXPECT_GE(lines[1].at("end"), lines[0].at("since"));
  EXPECT_THAT(history_of(kAda, machine_.locks()), IsEmpty());

  // A claim that is killed has no end. The next one of the same user writes it.
  Command killed(as(kAda, ClaimMachine::claim_and_wait({})));
  ASSERT_TRUE(killed.wait_for_output("started"));
  killed.signal(SIGKILL);
  killed.wait();
  ASSERT_TRUE(wait_until([&] { return machine_.num_claimed() == 0; }));
  EXPECT_THAT(history_of(kAda, machine_.path("history")), SizeIs(3));
  ASSERT_EQ(run(as(kAda, {"claim", "--", "true"})).exit_code, 0);
  lines = history_of(kAda, machine_.path("history"));
  ASSERT_THAT(lines, SizeIs(6));
  EXPECT_EQ(lines[3].at("claim"), lines[2].at("claim"));
  EXPECT_GE(lines[3].at("end"), lines[2].at("since"));
}

TEST_F(ClaimFair, HoursAreReported) {
  configure("[claim]\n");
  write_history(kAda, 2, 7200, 3600);
  write_history(kBob, 1, 90'000, 90'000 - 1800);
  Command holder(as(kNobody, ClaimMachine::claim_and_wait({"-d", "7"})));
  ASSERT_TRUE(holder.wait_for_output("started"));
  const auto result = run(as(kAda, {"claims", "--report", "30d", "--json"}));
  EXPECT_THAT(result.err, HasSubstr("set history_directory"));
  const auto use = Json::parse(result.out).at("use");
  ASSERT_THAT(use, SizeIs(4));
  EXPECT_EQ(use[0].at("user"), "61001");
  EXPECT_EQ(use[0].at("device_uuid"), "GPU-0");
  EXPECT_EQ(use[0].at("hours"), 1.0);
  EXPECT_EQ(use[0].at("idle_unknown_hours"), 1.0);
  EXPECT_EQ(use[2].at("hours"), 0.5);
  EXPECT_EQ(use[3].at("user"), "nobody");
  EXPECT_EQ(use[3].at("device"), "7");
  EXPECT_THAT(Json::parse(run(as(kAda, {"claims", "--report", "1d", "--json"})).out).at("use"), SizeIs(3));
  EXPECT_THAT(run(as(kAda, {"claims", "--report", "30d"})).out, HasSubstr("61001   all          2    2.0"));
  const auto csv = run(as(kAda, {"claims", "--report", "30d", "--csv"})).out;
  EXPECT_THAT(csv,
              AllOf(testing::StartsWith("user,device,claims,hours,idle hours\n"), HasSubstr("61002,GPU-0,1,0.5,")));
  EXPECT_EQ(run(as(kAda, {"claims", "--csv"})).exit_code, 64);
}

// Shares of a device may overlap, and a user can write anything about himself.
TEST_F(ClaimFair, MoreHoursThanTheTimeHasAreNoted) {
  configure("[claim]\n");
  write_history(kAda, 2, 7200, 3600, 2);
  write_history(kBob, 1, 7200, 3600, 30);
  const auto result = run(as(kAda, {"claims", "--report", "1d", "--json"}));
  EXPECT_EQ(Json::parse(result.out).at("use")[2].at("hours"), 30.0);
  EXPECT_THAT(result.err, HasSubstr("note: claims of 61002 overlap on a device, as shares may; they are added as they "
                                    "were written\n"));
}

TEST_F(ClaimFair, AWrongFolderOfTheHistoryIsAnError) {
  configure("[claim]\nhistory_directory = '" + machine_.path("nowhere") + "'\n");
  const auto result = run(as(kAda, {"claim", "--", "true"}));
  EXPECT_EQ(result.exit_code, 66);
  EXPECT_THAT(result.err, AllOf(HasSubstr("history_directory"), HasSubstr("install -d -m 1777")));
}

TEST_F(ClaimFair, TheExpectedWaitIsShown) {
  configure("[claim]\n");
  Command holder(as(kNobody, ClaimMachine::claim_and_wait({"-n", "8", "--for", "1h"})));
  ASSERT_TRUE(holder.wait_for_output("started"));
  Command ada(as(kAda, ClaimMachine::claim_and_wait({"-n", "8", "--for", "30m", "--wait"})));
  EXPECT_TRUE(ada.wait_for_output("position 1 in the queue, expected in ")) << ada.err();
  EXPECT_TRUE(ada.wait_for_output("; claimed by nobody (pid " + std::to_string(holder.pid()))) << ada.err();
  Command bob(as(kBob, ClaimMachine::claim_and_wait({"--wait"})));
  ASSERT_TRUE(wait_until([&] { return claims().at("queue").size() == 2; }));
  Command eve(as(kBob, ClaimMachine::claim_and_wait({"-n", "8", "--wait"})));
  ASSERT_TRUE(wait_until([&] { return claims().at("queue").size() == 3; }));
  const auto queue = claims().at("queue");
  EXPECT_NEAR(queue[0].at("expected_wait_seconds").get<double>(), 3600, 100);
  EXPECT_NEAR(queue[1].at("expected_wait_seconds").get<double>(), 5400, 100);
  EXPECT_TRUE(queue[2].at("expected_wait_seconds").is_null()) << "bob's claim has no end";
  EXPECT_THAT(run(as(kAda, {"claims"})).out, HasSubstr("expected in"));
}

}  // namespace
}  // namespace yoke::test
