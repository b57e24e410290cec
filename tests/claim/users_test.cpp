// Several real users claim at once, and some are killed: never two holders of a device, and never a lost one.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <random>

#include "tests/claim/machine.h"

namespace yoke::test {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

constexpr int kNumUsers = 8;

bool is_long() { return std::getenv("YOKE_LONG") != nullptr; }

/// How the users disturb each other.
struct Campaign {
  std::string order = "first";  ///< Of the queue, as in the site's configuration.
  int num_rounds = is_long() ? 125 : 4;
  /// Somebody holds the locks that all share, so that nobody waits for anybody, and some requests are stopped for as
  /// long as it takes until others pass by.
  bool is_disturbed = false;
};

/// Claims again and again as user `number`, and kills or stops some of these commands at a random moment. Returns how
/// many claims ended in a way that they should not.
int claim_again_and_again(const ClaimMachine& machine, int number, const Campaign& campaign) {
  std::mt19937 random(static_cast<unsigned>(number));
  const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); };
  int num_failures = 0;
  for (int round = 0; round < campaign.num_rounds; ++round) {
    const auto num_devices = std::to_string(1 + below(4));
    const auto time = std::to_string(below(4000));
    auto options = machine.yoke(
        {"claim", "-n", num_devices, "--wait", "--", machine.path("claimant"), machine.path("held"), time});
    options.environment.emplace_back("YOKE_SITE_CONFIG", machine.path("config.toml"));
    Command command(options);
    if (below(2) == 0) {
      usleep(static_cast<useconds_t>(below(60'000)));  // clock: any moment will do
      command.signal(SIGKILL);
      command.wait();
      continue;
    }
    if (campaign.is_disturbed) {
      // clock: any moment will do. Those who pass by begin after 1.25 s, as does this one.
      usleep(static_cast<useconds_t>(below(2) == 0 ? below(60'000) : 1'250'000 + below(100'000)));
      command.signal(SIGSTOP);
      usleep(1'500'000);  // clock: others pass by meanwhile; a busy machine tests less
      command.signal(SIGCONT);
    }
    const auto result = command.wait(milliseconds(200'000));
    if (result.exit_code == 0) continue;
    ++num_failures;
    fprintf(stderr, "user %d, round %d: status %d%s\n%s\n", number, round, result.exit_code,
            result.timed_out ? ", after the limit" : "", result.err.c_str());
  }
  return num_failures;
}

void expect_that_devices_are_given_once(const Campaign& campaign) {
  const ClaimMachine machine;
  machine.write("config.toml", "[claim]\norder = '" + campaign.order + "'\n");
  const auto all = run(machine.yoke({"claim", "-n", "8", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"}));
  ASSERT_EQ(all.exit_code, 0) << all.err;
  std::filesystem::create_directory(machine.path("held"));
  machine.write("held/violations", "");
  chmod(machine.path("held/violations").c_str(), 0666);
  for (size_t begin = 0; begin < all.out.size();) {
    const auto end = all.out.find_first_of(",\n", begin);
    machine.write("held/" + all.out.substr(begin, end - begin), "");
    begin = end + 1;
  }
  std::vector<UniqueFd> locks;
  for (const std::string name : {"/yoke-alloc", "/yoke-alloc-2"}) {
    if (!campaign.is_disturbed) break;
    locks.emplace_back(open((machine.locks() + name).c_str(), O_CREAT | O_RDONLY | O_CLOEXEC, 0644));
    ASSERT_EQ(flock(locks.back().value(), LOCK_EX | LOCK_NB), 0) << name;
  }
  std::vector<pid_t> users;
  for (int i = 0; i < kNumUsers; ++i) {
    const pid_t user = fork();
    if (user == 0) {
      const auto uid = kAda + static_cast<uid_t>(i);
      if (setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0) _exit(100);
      _exit(claim_again_and_again(machine, i, campaign));
    }
    users.push_back(user);
  }
  for (const auto user : users) {
    int status = 0;
    ASSERT_EQ(waitpid(user, &status, 0), user);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_EQ(slurp(machine.path("held/violations")), "") << "two programs had these devices";
  EXPECT_TRUE(wait_until([&] { return machine.num_claimed() == 0; })) << "a device is lost";
  EXPECT_EQ(run(machine.yoke({"claim", "-n", "8", "--", "true"})).exit_code, 0);
  EXPECT_TRUE(machine.claims().at("queue").empty());
}

TEST(ClaimUsers, NeverTwoHoldersOfADeviceAndNeverALostOne) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be several users";
  expect_that_devices_are_given_once({});
}

TEST(ClaimUsers, NeitherInTheOrderOfFairShare) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be several users";
  expect_that_devices_are_given_once({.order = "fair"});
}

TEST(ClaimUsers, NeitherWithoutTheLocksThatAllShare) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be several users";
  expect_that_devices_are_given_once({.num_rounds = is_long() ? 40 : 3, .is_disturbed = true});
}

TEST(ClaimUsers, SeeEachOther) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be several users";
  const ClaimMachine machine;
  auto options = machine.yoke_as(kAda, ClaimMachine::claim_and_wait({"-n", "3"}));
  options.environment.emplace_back("USER", "bob");
  options.environment.emplace_back("LOGNAME", "bob");
  Command ada(options);
  ASSERT_TRUE(ada.wait_for_output("started"));
  auto of_root = machine.claims();
  auto of_bob = Json::parse(run(machine.yoke_as(kBob, {"claims", "--json"})).out);
  for (auto* all : {&of_root, &of_bob}) {
    for (auto& claim : all->at("claims")) claim.erase("idle_seconds");  // a second may have passed
  }
  EXPECT_EQ(of_root, of_bob);
  ASSERT_THAT(of_bob.at("claims"), SizeIs(3));
  for (const auto& claim : of_bob.at("claims")) {
    EXPECT_EQ(claim.at("user"), std::to_string(kAda)) << "and not $USER";
    EXPECT_EQ(claim.at("pid"), ada.pid());
  }
  EXPECT_EQ(run(machine.yoke_as(kBob, {"claim", "-n", "5", "--", "true"})).exit_code, 0);
  const auto busy = run(machine.yoke_as(kBob, {"claim", "-n", "6", "--", "true"}));
  EXPECT_EQ(busy.exit_code, 75);
  EXPECT_THAT(busy.err, HasSubstr("claimed by uid " + std::to_string(kAda)));
}

TEST(ClaimUsers, OnlyTheOwnerAndRootEndAClaim) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be several users";
  const ClaimMachine machine;
  const auto held = run(machine.yoke_as(kAda, {"claim", "-n", "2", "--for", "1h", "--json"}));
  ASSERT_EQ(held.exit_code, 0) << held.err;
  const auto pid = std::to_string(Json::parse(held.out).at("pid").get<int64_t>());
  EXPECT_EQ(run(machine.yoke_as(kBob, {"release", pid})).exit_code, 77);
  EXPECT_EQ(run(machine.yoke_as(kBob, {"release", pid, "--force"})).exit_code, 77);
  const auto extended = run(machine.yoke_as(kBob, {"extend", pid, "--for", "1h"}));
  EXPECT_EQ(extended.exit_code, 77);
  EXPECT_THAT(extended.err, HasSubstr("the claim belongs to " + std::to_string(kAda) + "; only"));
  EXPECT_EQ(machine.num_claimed(), 2);
  EXPECT_EQ(run(machine.yoke({"extend", pid, "--for", "1h"})).exit_code, 0) << "root may";
  EXPECT_EQ(run(machine.yoke({"release", pid})).exit_code, 0);
  EXPECT_EQ(machine.num_claimed(), 0);
}

TEST(ClaimUsers, TheProcessOfSomebodyElseIsNotAdopted) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be several users";
  const ClaimMachine machine;
  Command user(ClaimMachine::as(kBob, {.argv = {"sleep", "1000"}, .environment = {{"YOKE_TEST_TAG", machine.tag()}}}));
  machine.set_state({{"devices", 2}, {"overrides", {{"1", {{"processes", {{{"pid", user.pid()}}}}}}}}});
  ASSERT_TRUE(wait_until([&] {
    struct stat status {};
    return stat(("/proc/" + std::to_string(user.pid())).c_str(), &status) == 0 && status.st_uid == kBob;
  }));
  EXPECT_EQ(run(machine.yoke_as(kAda, {"claim", "--adopt", std::to_string(user.pid())})).exit_code, 77);
  EXPECT_EQ(run(machine.yoke_as(kBob, {"claim", "--adopt", std::to_string(user.pid())})).exit_code, 0);
  EXPECT_EQ(machine.num_claimed(), 1);
}

TEST(AdminCheck, TriesTheInstallationAsTwoUsersAndLeavesNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be several users";
  const ClaimMachine machine;
  const auto good = run(machine.yoke({"admin", "check", "--json"}));
  EXPECT_EQ(good.exit_code, 0) << good.out << good.err;
  const auto status_of = [](const Result& result, const std::string& id) {
    const auto json = Json::parse(result.out);
    for (const auto& finding : json.at("findings")) {
      if (finding.at("id") == id) return finding.at("status").get<std::string>();
    }
    return std::string("none");
  };
  EXPECT_EQ(status_of(good, "users"), "ok");
  EXPECT_EQ(status_of(good, "lock-folder"), "ok");
  for (const auto& entry : std::filesystem::directory_iterator(machine.locks())) {
    EXPECT_EQ(entry.path().filename(), "yoke-alloc") << "it is left behind";
  }
  chmod(machine.locks().c_str(), 0777);
  const auto unsafe = run(machine.yoke({"admin", "check", "--json"}));
  EXPECT_EQ(unsafe.exit_code, 1);
  EXPECT_EQ(status_of(unsafe, "lock-folder"), "fail");
  chmod(machine.locks().c_str(), 01777);
  machine.write("config.toml", "[claim]\nlongset = '2h'\n");
  auto options = machine.yoke({"admin", "check", "--json"});
  options.environment.emplace_back("YOKE_SITE_CONFIG", machine.path("config.toml"));
  EXPECT_EQ(status_of(run(options), "config"), "fail");
  machine.write("config.toml", "[container]\ndefault_engin = 'podman'\n");
  EXPECT_EQ(status_of(run(options), "config"), "fail") << "a key of another table";
  for (const auto* text :
       {"[container]\ncontainer_name = '{user} {name}'\n", "[storage.data]\npath = '/data/{usr}'\n"}) {
    machine.write("config.toml", text);
    EXPECT_EQ(run(options).exit_code, 1) << "every start would fail: " << text;
  }
  machine.write("config.toml", "[container]\ndefault_image = '/none/lab.sif'\n");
  EXPECT_THAT(run(options).out, HasSubstr("default_image is /none/lab.sif, which does not exist"));
  std::filesystem::create_directory(machine.path("scratch"));
  machine.write("config.toml",
                "[claim.users]\nno-such-user = 2\n[claim.groups]\nno-such-group = 2\n[storage.scratch]\npath = '" +
                    machine.path("scratch") + "/{user}'\ncreate = true\n");
  auto named = machine.yoke({"admin", "check", "--json", "--user", "daemon", "--user", "nobody"});
  named.environment.emplace_back("YOKE_SITE_CONFIG", machine.path("config.toml"));
  const auto unknown = run(named);
  EXPECT_EQ(unknown.exit_code, 0) << unknown.out << unknown.err;
  EXPECT_THAT(unknown.out, HasSubstr("names users that this machine does not know: no-such-user"));
  EXPECT_THAT(unknown.out, HasSubstr("names groups that this machine does not know: no-such-group"));
  EXPECT_EQ(status_of(unknown, "storage"), "warn") << "daemon may not write there";
  machine.write("engine.toml", "[container]\ndefault_engine = 'podman'\n");
  auto podman = machine.yoke({"admin", "check", "--user", "daemon", "--user", "nobody"});
  podman.environment.emplace_back("YOKE_SITE_CONFIG", machine.path("engine.toml"));
  EXPECT_THAT(run(podman).out, HasSubstr("daemon cannot start containers of podman: /etc/subuid has no line"));
  chmod(machine.path("scratch").c_str(), 01777);
  EXPECT_EQ(status_of(run(named), "storage"), "ok");
  auto claim = machine.yoke_as(kAda, {"claim", "--", "true"});
  claim.environment.emplace_back("YOKE_SITE_CONFIG", machine.path("config.toml"));
  EXPECT_EQ(run(claim).exit_code, 0);
  const auto as_ada = run(machine.yoke_as(kAda, {"admin", "check", "--json"}));
  EXPECT_EQ(as_ada.exit_code, 0) << as_ada.out;
  EXPECT_EQ(status_of(as_ada, "users"), "skip") << "needs root, and says so";
}

TEST(ClaimUsers, AWaitingCommandThatIsKilledLeavesNoTicket) {
  const ClaimMachine machine;
  machine.set_state({{"devices", 8}});
  ASSERT_EQ(run(machine.yoke({"claim", "-n", "8", "--for", "1h"})).exit_code, 0);
  Command waiter(machine.yoke({"claim", "--wait", "--", "true"}));
  const auto has_ticket = [&] {
    for (const auto& entry : std::filesystem::directory_iterator(machine.locks())) {
      if (entry.path().filename().string().starts_with("yoke-ticket-")) return true;
    }
    return false;
  };
  ASSERT_TRUE(wait_until([&] { return has_ticket() && !children_of(waiter.pid()).empty(); })) << "it has a reader";
  waiter.signal(SIGKILL);
  waiter.wait();
  EXPECT_TRUE(wait_until([&] { return !has_ticket(); }));
}

}  // namespace
}  // namespace yoke::test
