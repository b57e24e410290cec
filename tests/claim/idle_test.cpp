// Tests how claims that nobody uses are seen, warned about and ended.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "tests/claim/machine.h"
#include "yoke/base/file.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr uid_t kUser = 61'007;

/// A terminal of the user who is warned.
class Pty {
 public:
  explicit Pty(mode_t mode) : master_(posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC)) {
    char name[100] = "";
    if (grantpt(master_.value()) != 0 || unlockpt(master_.value()) != 0) return;
    if (ptsname_r(master_.value(), name, sizeof name) != 0) return;
    slave_ = UniqueFd(open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
    is_ready_ = (geteuid() != 0 || fchown(slave_.value(), kUser, gid_t(-1)) == 0) && fchmod(slave_.value(), mode) == 0;
  }
  bool is_ready() const { return is_ready_; }
  std::string text() const {
    char buffer[4096];
    const auto count = read(master_.value(), buffer, sizeof buffer);
    return count > 0 ? std::string(buffer, static_cast<size_t>(count)) : "";
  }

 private:
  UniqueFd master_, slave_;
  bool is_ready_ = false;
};

class ClaimIdleness : public testing::Test {
 protected:
  ClaimIdleness() {
    std::filesystem::create_directory(machine_.path("looks"));
    chmod(machine_.path("looks").c_str(), 01777);
    use_device_0(std::nullopt);
  }
  /// A command for which the site has these lines in [claim].
  CommandOptions with_site(const std::string& lines, std::vector<std::string> words) const {
    machine_.write("config.toml", "[claim]\n" + lines);
    // A user of their own, because warnings go to all terminals of a user.
    auto options = geteuid() == 0 ? machine_.yoke_as(kUser, std::move(words)) : machine_.yoke(std::move(words));
    options.environment.emplace_back("YOKE_SITE_CONFIG", machine_.path("config.toml"));
    return options;
  }
  /// A process is on device 0, and computes with this utilisation. nullopt: there is none.
  void use_device_0(std::optional<int> percent) const {
    Json device = {{"touched_when_listed", machine_.path("looks/last")}};
    if (percent) {
      device["processes"] = {{{"pid", getpid()}}};
      device["utilization_percent"] = {{"gpu", *percent}};
    }
    machine_.set_state({{"devices", 8}, {"overrides", {{"0", device}}}});
  }
  /// Waits until the keeper of the one claim has taken in `count` looks at the devices that began after this call. One
  /// may have begun before, and what the last one read is taken in when the next one begins.
  void wait_for_looks(int count) const {
    for (int i = 0; i < count + 2; ++i) {
      std::filesystem::remove(machine_.path("looks/last"));
      ASSERT_TRUE(wait_until([&] { return std::filesystem::exists(machine_.path("looks/last")); }));
    }
  }
  static bool waits_for_error(Command& program, const std::string& text) {
    return program.wait_until([&] { return program.err().find(text) != std::string::npos; });
  }
  Json idle_seconds(size_t claim = 0) const { return machine_.claims().at("claims").at(claim).at("idle_seconds"); }

  const ClaimMachine machine_;
};

TEST_F(ClaimIdleness, TimeCountsSinceTheLastUse) {
  Command program(with_site("idle_warn = '1s'\n", ClaimMachine::claim_and_wait({"-n", "2"})));
  ASSERT_TRUE(program.wait_for_output("started"));
  use_device_0(50);
  EXPECT_TRUE(wait_until([&] { return idle_seconds(1).is_number() && idle_seconds(1) >= 2; }));
  EXPECT_EQ(idle_seconds(0), 0) << "it is in use now";
  wait_for_looks(1);
  use_device_0(0);
  const auto claims = machine_.claims().at("claims");
  EXPECT_LT(claims.at(0).at("idle_seconds"), claims.at(1).at("idle_seconds")) << "it was in use until now";
  EXPECT_TRUE(wait_until([&] { return idle_seconds(0) >= 3; })) << "a process is there, and computes nothing";
  EXPECT_GE(idle_seconds(1), idle_seconds(0));
}

TEST_F(ClaimIdleness, ALockOfSomethingElseHasNoIdleTime) {
  ASSERT_EQ(run(machine_.yoke({"claim", "-n", "1", "--", "true"})).exit_code, 0);
  const auto path = (*std::filesystem::directory_iterator(machine_.locks())).path().parent_path();
  std::string device;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().filename().string().starts_with("yoke-dev-")) device = entry.path();
  }
  Command locker({.argv = {"flock", "-x", device, "sh", "-c", "echo locked; exec sleep 1000"},
                  .environment = {{"YOKE_TEST_TAG", machine_.tag()}}});
  ASSERT_TRUE(locker.wait_for_output("locked"));
  EXPECT_EQ(idle_seconds(), nullptr);
}

TEST_F(ClaimIdleness, TheUserIsWarnedOnceAndTheClaimGoesOn) {
  Command program(with_site("idle_warn = '1s'\n", {"claim", "-n", "2", "--name", "a\x1b[31mb", "--", "sleep", "1000"}));
  ASSERT_TRUE(waits_for_error(program, "have not been used for"));
  wait_for_looks(4);
  EXPECT_EQ(machine_.num_claimed(), 2);
  program.signal(SIGTERM);
  const auto result = program.wait();
  EXPECT_THAT(result.err, AllOf(ContainsRegex("devices 0, 1 have not been used for [0-9]+ s \\(a"),
                                HasSubstr("--force"), Not(HasSubstr("\x1b")), Not(HasSubstr("ends the claim"))));
  EXPECT_EQ(result.err.find("have not been used"), result.err.rfind("have not been used")) << "once";
}

TEST_F(ClaimIdleness, TheWarningReachesTheUsersTerminals) {
  const Pty open_one(0620), closed_one(0600);
  ASSERT_TRUE(open_one.is_ready() && closed_one.is_ready());
  const auto held = run(with_site("idle_warn = '1s'\n", {"claim", "--for", "1h", "--name", "a\x1b[31mb"}));
  ASSERT_EQ(held.exit_code, 0) << held.err;
  std::string text;
  EXPECT_TRUE(wait_until([&] { return (text += open_one.text()).find("gives it to others") != text.npos; })) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("yoke claim: device 0 has not been used for"), Not(HasSubstr("\x1b"))));
  EXPECT_EQ(closed_one.text(), "") << "mesg n";
}

TEST_F(ClaimIdleness, TheEndOfAHolderReachesTheUsersTerminals) {
  const Pty terminal(0620);
  ASSERT_TRUE(terminal.is_ready());
  const auto held = run(with_site("", {"claim", "--for", "1s", "--name", "work"}));
  ASSERT_EQ(held.exit_code, 0) << held.err;
  std::string text;
  // Claims of other tests, of the same user, tell this terminal of their end, too.
  const std::string end = "yoke claim: the time of the claim is over (work); others may have device 0";
  EXPECT_TRUE(wait_until([&] { return (text += terminal.text()).find(end) != text.npos; })) << text;
  if (geteuid() != 0) return;
  const auto again = run(with_site("", {"claim", "--for", "1h", "--json"}));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  const auto pid = std::to_string(Json::parse(again.out).at("pid").get<int64_t>());
  ASSERT_EQ(run(machine_.yoke({"release", pid})).exit_code, 0);
  text.clear();
  EXPECT_TRUE(wait_until([&] { return (text += terminal.text()).find("was released by root") != text.npos; })) << text;
}

TEST_F(ClaimIdleness, AProgramThatComputesIsNotWarned) {
  // The end is late, because a busy machine may need more than the time of the warning until the device is in use.
  Command program(with_site("idle_warn = '1s'\nidle_end = '60s'\n", ClaimMachine::claim_and_wait({"-n", "2"})));
  ASSERT_TRUE(program.wait_for_output("started"));
  use_device_0(50);
  wait_for_looks(1);
  program.wait_until([] { return false; }, milliseconds(1));  // reads what it has said
  const auto num_before = program.err().size();
  wait_for_looks(8);  // the time of two warnings, because looks are 250 ms apart at least
  EXPECT_EQ(machine_.num_claimed(), 2) << "one of two devices is enough";
  program.signal(SIGTERM);
  EXPECT_THAT(program.wait().err.substr(num_before), Not(HasSubstr("not been used")));
}

TEST_F(ClaimIdleness, TheSiteEndsIdlePrograms) {
  // On a busy machine there must be a look between the two.
  const auto result = run(with_site("idle_warn = '1s'\nidle_end = '8s'\n", {"claim", "--", "sleep", "1000"}));
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_THAT(result.err, AllOf(ContainsRegex("this site ends the claim in [1-7] s unless"),
                                HasSubstr("so this site ends the claim; the program gets SIGTERM")));
  EXPECT_EQ(machine_.num_claimed(), 0);
}

TEST_F(ClaimIdleness, TheSiteReleasesIdleHolders) {
  EXPECT_EQ(run(with_site("idle_end = '2s'\n", {"claim", "-n", "3", "--for", "1h"})).exit_code, 0);
  EXPECT_TRUE(wait_until([&] { return machine_.num_claimed() == 0; }));
  EXPECT_TRUE(wait_until([&] { return processes_with_tag(machine_.tag()).empty(); })) << "the reader has ended, too";
}

TEST_F(ClaimIdleness, AUserMakesLimitsStricterOnly) {
  std::filesystem::create_directories(machine_.path("home/.config/yoke"));
  machine_.write("home/.config/yoke/config.toml", "[claim]\nidle_end = '1h'\n");
  EXPECT_EQ(run(with_site("idle_end = '2s'\n", {"claim", "--", "sleep", "1000"})).exit_code, 143);
  machine_.write("home/.config/yoke/config.toml", "[claim]\nidle_end = '2s'\n");
  EXPECT_EQ(run(with_site("idle_end = '1h'\n", {"claim", "--", "sleep", "1000"})).exit_code, 143);
}

TEST_F(ClaimIdleness, ADriverThatHangsEndsNoClaimAndKeepsNone) {
  Command program(with_site("idle_end = '3s'\n", ClaimMachine::claim_and_wait({"-n", "1"})));
  ASSERT_TRUE(program.wait_for_output("started"));
  machine_.set_state({{"devices", 8}, {"overrides", {{"0", {{"hang_s", 1000}}}}}});
  // Nothing tells that the keeper has let the time of the end pass. If this is too short, the test finds less.
  program.wait_until([] { return false; }, milliseconds(5000));  // clock: a wait that is too short finds less
  program.signal(SIGTERM);
  const auto result = program.wait();
  EXPECT_EQ(result.exit_code, 143) << (result.timed_out ? "releasing waits for the driver" : result.err);
  EXPECT_THAT(result.err, Not(HasSubstr("not been used")));
  machine_.set_state({{"devices", 8}});
  EXPECT_EQ(run(machine_.yoke({"claim", "-n", "8", "--", "true"})).exit_code, 0) << "no lock is left";
}

TEST_F(ClaimIdleness, KillingTheKeeperLeavesNoReader) {
  Command program(with_site("idle_warn = '1s'\n", {"claim", "--", "sleep", "1000"}));
  ASSERT_TRUE(waits_for_error(program, "not been used"));
  program.signal(SIGKILL);
  program.wait();
  EXPECT_TRUE(wait_until([&] { return processes_with_tag(machine_.tag()).empty(); }));
  EXPECT_EQ(machine_.num_claimed(), 0);
}

TEST_F(ClaimIdleness, ExtendingAClaimWhileItIsLookedAtLosesNothing) {
  const auto held = run(with_site("idle_warn = '1s'\n", {"claim", "--for", "1h", "--json"}));
  ASSERT_EQ(held.exit_code, 0) << held.err;
  const auto pid = std::to_string(Json::parse(held.out).at("pid").get<int64_t>());
  const auto until = [&] { return machine_.claims().at("claims")[0].at("until").get<int64_t>(); };
  const auto before = until();
  for (int i = 0; i < 20; ++i) ASSERT_EQ(run(machine_.yoke({"extend", pid, "--for", "1m"})).exit_code, 0);
  wait_for_looks(2);
  EXPECT_EQ(until(), before + 20 * 60);
  EXPECT_EQ(run(machine_.yoke({"release", pid})).exit_code, 0);
}

TEST(ClaimsEverywhere, TopMetricsAndDoctorShowThem) {
  const ClaimMachine machine;
  Command program(machine.yoke(ClaimMachine::claim_and_wait({"-n", "1", "--name", "my run"})));
  ASSERT_TRUE(program.wait_for_output("started"));
  machine.set_state({{"devices", 8}, {"overrides", {{"5", {{"processes", {{{"pid", getpid()}}}}}}}}});
  const auto uuid = machine.claims().at("claims")[0].at("device_uuid").get<std::string>();
  const auto pid = std::to_string(program.pid());
  const auto metrics = run(machine.yoke({"metrics", "--deadline", "60"}));
  EXPECT_THAT(metrics.out, AllOf(HasSubstr("yoke_claim_info{uuid=\"" + uuid + "\",device=\"0\",user="),
                                 HasSubstr("pid=\"" + pid + "\",purpose=\"my run\"} 1\n"),
                                 HasSubstr("yoke_claim_queue_requests 0\n")));
  const auto top = run(machine.yoke({"top", "--deadline", "60", "--once"}));
  EXPECT_THAT(top.out, HasSubstr("CLAIM"));
  const auto doctor = run(machine.yoke({"doctor", "--deadline", "60"}));
  EXPECT_THAT(doctor.out, AllOf(HasSubstr("claim-folder"), HasSubstr("devices are claimed in " + machine.locks()),
                                HasSubstr("device 5: in use without a claim by")));
  machine.write("config.toml", "[claim]\nidle_wran = '1h'\n");
  auto options = machine.yoke({"doctor", "--deadline", "60"});
  options.environment.emplace_back("YOKE_SITE_CONFIG", machine.path("config.toml"));
  const auto wrong = run(options);
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.out, AllOf(HasSubstr("fail  claim-config"), HasSubstr("config.toml:2")));
}

}  // namespace
}  // namespace yoke::test
