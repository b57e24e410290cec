// What commands do and show where the site's configuration has a mistake, and what they show of claims and devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/claim/machine.h"
#include "tests/support/lines.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

TEST(ClaimCommand, ASymbolicLinkAsConfigurationIsExplained) {
  const ClaimMachine machine;
  machine.write("real.toml", "");
  std::filesystem::create_symlink(machine.path("real.toml"), machine.path("config.toml"));
  for (const auto& [words, status] :
       {std::pair<std::vector<std::string>, int>{{"claim", "--", "true"}, 77}, {{"claims"}, 0}}) {
    auto options = machine.yoke(words);
    options.environment.emplace_back("YOKE_SITE_CONFIG", machine.path("config.toml"));
    const auto result = run(options);
    EXPECT_EQ(result.exit_code, status) << words[0];
    EXPECT_THAT(result.err, HasSubstr("config.toml is a symbolic link, and links are not followed here")) << words[0];
  }
}

TEST(ClaimCommand, AMistakeInTheConfigurationHidesNoClaimAndEndsNewOnesAlone) {
  const ClaimMachine machine;
  const auto with_site = [&](const std::string& text, std::vector<std::string> words) {
    machine.write("config.toml", text);
    auto options = machine.yoke(std::move(words));
    options.environment.emplace_back("YOKE_SITE_CONFIG", machine.path("config.toml"));
    return run(options);
  };
  for (const std::string mistake :
       {"devices_per_usr = 1", "longest = 24", "order = fair", "[claims]", "patience = '1"}) {
    const auto wrong = "[claim]\ndevices_per_user = 4\n" + mistake + "\n";
    ASSERT_EQ(with_site("[claim]\n", {"claim", "-d", "3", "--for", "1h", "--name", "mine"}).exit_code, 0);
    const auto refused = with_site(wrong, {"claim", "-d", "4", "--", "true"});
    EXPECT_EQ(refused.exit_code, 65) << mistake;
    const auto where = machine.path("config.toml:3: ");
    EXPECT_THAT(refused.err, HasSubstr(where));
    const auto listed = with_site(wrong, {"claims", "--json"});
    EXPECT_EQ(listed.exit_code, 0) << listed.err;
    EXPECT_EQ(Json::parse(listed.out).at("claims").size(), 1U) << mistake;
    EXPECT_THAT(listed.err,
                AllOf(HasSubstr("warning: " + where), HasSubstr("new claims are refused until it is mended")));
    const auto shown = with_site(wrong, {"devices"});
    EXPECT_THAT(shown.out, HasSubstr("claim")) << mistake;
    EXPECT_THAT(shown.err, HasSubstr("warning: " + where));
    EXPECT_EQ(with_site(wrong, {"reserve", "--list"}).exit_code, 0);
    const auto released = with_site(wrong, {"release", "--mine"});
    EXPECT_EQ(released.exit_code, 0) << released.err;
    EXPECT_THAT(released.err, HasSubstr("warning: " + where));
    EXPECT_EQ(machine.num_claimed(), 0) << mistake;
  }
  EXPECT_THAT(with_site("[claim]\norder = fair\n", {"claims"}).err, HasSubstr("texts and lengths of time in quotes"));
  const auto found = with_site("[claim]\nlongset = '1h'\n", {"doctor", "--vendor", "nvidia"});
  EXPECT_THAT(found.out, Not(HasSubstr("claim-config"))) << "it was asked about devices";
  const auto all = with_site("[claim]\nlongset = '1h'\n", {"doctor"});
  EXPECT_THAT(all.out, AllOf(HasSubstr("claim-config"), HasSubstr("config.toml:2: "), HasSubstr("claim-folder")));
  const auto nowhere = with_site("[claim]\nlock_directory = '/run/none'\nhistory_directory = '/none'\n", {"claims"});
  EXPECT_EQ(nowhere.exit_code, 0) << nowhere.err;
  EXPECT_THAT(nowhere.err, HasSubstr("history_directory is /none"));
}

TEST(ClaimCommand, DevicesShowTheirClaims) {
  const ClaimMachine machine;
  Command holder(machine.yoke(ClaimMachine::claim_and_wait({"-d", "1", "--for", "4h", "--name", "my, run"})));
  Command sharer(machine.yoke(ClaimMachine::claim_and_wait({"-d", "2", "--memory", "8GiB", "--share"})));
  ASSERT_TRUE(holder.wait_for_output("started") && sharer.wait_for_output("started"));
  for (const std::string command : {"devices", "top"}) {
    auto options = machine.yoke({command, "--json"});
    const auto devices = Json::parse(run(options).out).at("devices");
    EXPECT_TRUE(devices.at(0).at("claims").empty());
    const auto claim = devices.at(1).at("claims").at(0);
    for (const auto& of_claims : machine.claims().at("claims")) {
      if (of_claims.at("device") != "1") continue;
      for (const char* key : {"user", "pid", "since", "until", "purpose", "shared_bytes", "remark"}) {
        EXPECT_EQ(claim.at(key), of_claims.at(key)) << key;
      }
    }
    EXPECT_EQ(claim.at("purpose"), "my, run");
    EXPECT_EQ(devices.at(2).at("claims").at(0).at("shared_bytes"), int64_t{8} << 30);
  }
  const auto csv = lines_of(run(machine.yoke({"devices", "--csv"})).out);
  EXPECT_THAT(csv[0], HasSubstr(",users,claim_users,claim_since,claim_until,claim_shared_bytes,claim_purposes"));
  EXPECT_THAT(csv[1], EndsWith(",,,,"));
  EXPECT_THAT(csv[2], EndsWith(",,\"\"\"my, run\"\"\""));
  EXPECT_THAT(csv[3], HasSubstr(",8589934592,"));
  const auto page = run(machine.yoke({"devices", "-i", "1"})).out;
  EXPECT_THAT(page, AllOf(HasSubstr("\nClaims\n"), HasSubstr(std::to_string(holder.pid())), HasSubstr(", until "),
                          HasSubstr(", alone, my, run")));
  EXPECT_THAT(run(machine.yoke({"devices", "-i", "2"})).out, HasSubstr("shared, 8.0 GiB of it"));
  EXPECT_THAT(run(machine.yoke({"devices", "-i", "0"})).out, Not(HasSubstr("Claims")));
  ASSERT_EQ(run(machine.yoke({"devices", "--record", machine.path("r.jsonl")})).exit_code, 0);
  auto replay = machine.yoke({"devices", "--json", "--replay", machine.path("r.jsonl")});
  std::erase(replay.argv, "--deadline");
  std::erase(replay.argv, "60");
  EXPECT_TRUE(Json::parse(run(replay).out).at("devices").at(1).at("claims").is_null()) << "not known";
}

TEST(ClaimCommand, GpusWithBadMemoryAreGivenLastOrNotAtAll) {
  const ClaimMachine machine({{"devices", 4},
                              {"overrides",
                               {{"0",
                                 {{"remapped_rows", {{"uncorrected", 2}, {"failure", 1}}},
                                  {"processes", {{{"pid", getpid()}, {"memory_mib", 100}}}}}},
                                {"1", {{"ecc", {{"volatile", {{"uncorrected", 3}}}}}}},
                                {"2", {{"remapped_rows", {{"pending", 1}}}}}}}});
  const auto one = run(machine.yoke({"claim", "--explain", "--", "true"}));
  EXPECT_THAT(one.err, AllOf(HasSubstr("device 0 is not given: defective"), HasSubstr("device 1 is given last"),
                             HasSubstr("device 2 is given last"), HasSubstr("3 is given"), Not(HasSubstr("warning"))));
  const auto three = run(machine.yoke({"claim", "-n", "3", "--", "true"}));
  EXPECT_EQ(three.exit_code, 0);
  EXPECT_THAT(three.err, AllOf(HasSubstr("warning: device 1 is given although it has had 3 memory errors that"),
                               HasSubstr("warning: device 2 is given although bad memory of it")));
  const auto bad = run(machine.yoke({"claim", "-d", "0", "--wait", "--", "true"}));
  EXPECT_EQ(bad.exit_code, 69) << "waiting does not help";
  EXPECT_EQ(run(machine.yoke({"claim", "-d", "0", "--memory", "1GiB", "--share", "--", "true"})).exit_code, 69);
  EXPECT_EQ(run(machine.yoke({"claim", "--adopt", std::to_string(getpid())})).exit_code, 69);
  EXPECT_THAT(run(machine.yoke({"claim", "-d", "2", "--explain"})).out, HasSubstr("given although bad memory"));
}

TEST(ClaimCommand, AProgramKeepsItsOwnOptionsAndANumberAloneIsSeconds) {
  const ClaimMachine machine;
  const auto result = run(machine.yoke({"claim", "--wait", "1h", "echo", "--wait", "5", "--wait"}));
  EXPECT_EQ(result.out, "--wait 5 --wait\n") << result.err;
  EXPECT_EQ(run(machine.yoke({"claim", "--for", "30", "--wait", "30", "true"})).exit_code, 0);
}

}  // namespace
}  // namespace yoke::test
