// Tests `yoke claim`, `claims`, `release` and `extend` on eight fake GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <ctime>
#include <set>

#include "tests/claim/machine.h"
#include "tests/support/lines.h"
#include "yoke/base/text.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

std::vector<std::string> devices_in(const std::string& line) {
  std::vector<std::string> result;
  for (const auto part : split(line, ',')) result.emplace_back(part);
  return result;
}

TEST(ClaimCommand, GivesAProgramDevicesOfItsOwn) {
  const ClaimMachine machine;
  const auto result = run(machine.yoke({"claim", "-n", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exit 7"}));
  EXPECT_EQ(result.exit_code, 7) << result.err;
  const auto uuids = devices_in(result.out.substr(0, result.out.find('\n')));
  EXPECT_THAT(uuids, SizeIs(2));
  for (const auto& uuid : uuids) EXPECT_THAT(uuid, StartsWith("GPU-"));
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(machine.num_claimed(), 0);
}

TEST(ClaimCommand, GivesNoDeviceThatNobodyCanUseOrMayBeInUse) {
  const Json failing = {{"errors", {{"nvmlDeviceGetComputeRunningProcesses", "unknown"}}}};
  const ClaimMachine machine({{"devices", 4},
                              {"overrides",
                               {{"0", failing},
                                {"1", {{"compute_mode", 2}}},
                                {"2", {{"utilization_percent", {{"gpu", 100}}}, {"power_mw", 100'000}}}}}});
  const auto given = [&](const char* num_devices) {
    return run(machine.yoke({"claim", "-n", num_devices, "--explain", "--", "true"}));
  };
  EXPECT_THAT(given("1").err, AllOf(HasSubstr("device 2 is given last"), HasSubstr("3 is given")));
  EXPECT_THAT(given("2").err, HasSubstr("2, 3 are all that can be given"));
  const auto three = given("3");
  EXPECT_EQ(three.exit_code, 69);
  EXPECT_THAT(three.err, AllOf(HasSubstr("device 0 is not given: unknown"), HasSubstr("compute mode is prohibited")));
}

TEST(ClaimCommand, GivesDevicesThatAProgramSeesTogether) {
  const auto instance = [](const char* profile, int64_t gpu_instance) {
    return Json{{"profile", profile}, {"gpu_instance", gpu_instance}};
  };
  const Json instances = {instance("3g.40gb", 1), instance("2g.20gb", 3), instance("1g.10gb", 9)};
  const ClaimMachine machine(
      {{"driver_version", "580.65.06"}, {"devices", 2}, {"overrides", {{"0", {{"mig", {{"instances", instances}}}}}}}});
  const auto seen = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "claim");
    for (const char* word : {"--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"}) words.emplace_back(word);
    return run(machine.yoke(std::move(words)));
  };
  EXPECT_THAT(seen({"-n", "2"}).out, MatchesRegex("MIG-[^,]*,MIG-[^,]*\n")) << "only one GPU is whole";
  EXPECT_THAT(seen({"-n", "3"}).out, MatchesRegex("MIG-[^,]*,MIG-[^,]*,MIG-[^,]*\n"));
  const auto four = seen({"-n", "4"});
  EXPECT_EQ(four.exit_code, 69);
  EXPECT_THAT(four.err, HasSubstr("4 devices are wanted, and only 3 of 4 can be claimed together"));
  EXPECT_THAT(seen({"-n", "2", "-d", "1,0:0"}).err, HasSubstr("only 1 of 2 can be claimed together"));
  Command holder(machine.yoke(ClaimMachine::claim_and_wait({"-d", "0:1"})));
  ASSERT_TRUE(holder.wait_for_output("started"));
  const auto num_claims = [&](const char* id) {
    return Json::parse(run(machine.yoke({"devices", "-i", id, "--json"})).out)["devices"][0].at("claims").size();
  };
  EXPECT_EQ(num_claims("0:1"), 1U);
  EXPECT_EQ(num_claims("1"), 0U);
}

TEST(ClaimCommand, WaitsForGpusThatWakeSlowly) {
  // Longer than the usual deadline of 1 s, and far less than the longer one.
  const ClaimMachine machine({{"devices", 2}, {"defaults", {{"hang_s", 1.3}, {"persistence_mode", 0}}}});
  auto options = machine.yoke({"claim", "-n", "2", "--", "true"});
  options.argv.erase(options.argv.begin() + 2, options.argv.begin() + 4);  // --deadline
  const auto result = run(options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("devices 0, 1 did not answer within 1 s; waiting for up to 10 s"));
  options.argv.insert(options.argv.begin() + 2, {"--deadline", "0.5"});
  EXPECT_EQ(run(options).exit_code, 69) << "those who say a deadline mean it";
}

TEST(ClaimCommand, EndsAsItsProgramDoes) {
  const ClaimMachine machine;
  EXPECT_EQ(run(machine.yoke({"claim", "--", "sh", "-c", "kill -KILL $$"})).exit_code, 137);
  EXPECT_EQ(run(machine.yoke({"claim", "--", "no-such-program"})).exit_code, 127);
  EXPECT_EQ(run(machine.yoke({"claim", "--", "/no/such/program"})).exit_code, 127);
  EXPECT_EQ(run(machine.yoke({"claim", "--", "/etc/passwd"})).exit_code, 126);
  Command program(machine.yoke(ClaimMachine::claim_and_wait({})));
  ASSERT_TRUE(program.wait_for_output("started"));
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait().exit_code, 143) << "the signal is passed on";
  EXPECT_EQ(machine.num_claimed(), 0);
}

TEST(ClaimCommand, RefusesWhatMakesNoSense) {
  const ClaimMachine machine;
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"claim"},
                                             {"claim", "-n", "0", "--", "true"},
                                             {"claim", "--memory", "20", "--", "true"},
                                             {"claim", "--for", "4x", "--", "true"},
                                             {"claim", "--wait", "5y", "--", "true"},
                                             {"claim", "--json", "--", "true"},
                                             {"claim", "--adopt", "1", "--", "true"},
                                             {"release"},
                                             {"extend", "1"}}) {
    EXPECT_EQ(run(machine.yoke(words)).exit_code, 64) << words.back();
  }
  const auto result = run(machine.yoke({"claim", "-n", "9", "--wait", "--", "true"}));
  EXPECT_EQ(result.exit_code, 69) << "waiting would not help";
  EXPECT_THAT(result.err, HasSubstr("only 8 of 8 can be claimed"));
  EXPECT_EQ(run(machine.yoke({"release", "4194303"})).exit_code, 66);
  const auto missing = run(machine.yoke({"claim", "-d", "9", "--", "true"}));
  EXPECT_EQ(missing.exit_code, 66);
  EXPECT_THAT(missing.err, HasSubstr("this machine has no device 9"));
  EXPECT_EQ(run(machine.yoke({"claim", "-d", "1,1", "--", "true"})).exit_code, 0) << "one device, named twice";
}

TEST(ClaimCommand, TheLimitOfAWaitHoldsAlsoForTheLockThatAllShare) {
  const ClaimMachine machine;
  ASSERT_EQ(run(machine.yoke({"claim", "--", "true"})).exit_code, 0) << "makes the file";
  Command locker({.argv = {"flock", "-x", machine.locks() + "/yoke-alloc", "sh", "-c", "echo locked; exec sleep 1000"},
                  .environment = {{"YOKE_TEST_TAG", machine.tag()}}});
  ASSERT_TRUE(locker.wait_for_output("locked"));
  const auto result = run(machine.yoke({"claim", "--wait", "1s", "--", "true"}));
  EXPECT_EQ(result.exit_code, 124);
  EXPECT_THAT(result.err, HasSubstr("yoke-alloc for longer than the few milliseconds"));
}

TEST(ClaimCommand, ABusyMachineIs75AndAnEndedWait124) {
  const ClaimMachine machine;
  Command holder(machine.yoke(ClaimMachine::claim_and_wait({"-n", "8"})));
  ASSERT_TRUE(holder.wait_for_output("started"));
  auto result = run(machine.yoke({"claim", "--", "true"}));
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_THAT(result.err, AllOf(HasSubstr("1 device is wanted, and 0 are free"),
                                HasSubstr("pid " + std::to_string(holder.pid())), HasSubstr("--wait")));
  result = run(machine.yoke({"claim", "--wait", "1s", "--", "true"}));
  EXPECT_EQ(result.exit_code, 124);
  EXPECT_THAT(result.err, HasSubstr("waiting: 1 device is wanted"));
  EXPECT_THAT(machine.claims().at("queue"), IsEmpty());
}

TEST(ClaimCommand, ClaimsAreListed) {
  const ClaimMachine machine;
  const auto begin = std::time(nullptr);
  Command holder(machine.yoke(ClaimMachine::claim_and_wait({"-n", "2", "--for", "4h", "--name", "my run"})));
  ASSERT_TRUE(holder.wait_for_output("started"));
  const auto json = machine.claims();
  const auto most_idle = std::time(nullptr) + 1 - begin;  // both are rounded
  EXPECT_TRUE(json.at("reservations").empty());
  ASSERT_THAT(json.at("claims"), SizeIs(2));
  std::string visible;
  for (const auto& claim : json.at("claims")) {
    visible += (visible.empty() ? "started " : ",") + claim.at("device_uuid").get<std::string>();
    EXPECT_EQ(claim.at("pid"), holder.pid());
    EXPECT_EQ(claim.at("purpose"), "my run");
    EXPECT_GE(claim.at("since"), begin);
    EXPECT_EQ(claim.at("until").get<int64_t>() - claim.at("since").get<int64_t>(), 4 * 3600);
    EXPECT_LE(claim.at("idle_seconds"), most_idle) << "since the claim began";
    EXPECT_FALSE(claim.at("user").is_null());
  }
  EXPECT_EQ(holder.out(), visible + "\n");
  const auto table = run(machine.yoke({"claims"}));
  EXPECT_THAT(lines_of(table.out)[0], StartsWith("#  user"));
  EXPECT_THAT(table.out, HasSubstr("my run"));
  EXPECT_THAT(run(machine.yoke({"devices"})).out, HasSubstr("claim"));
}

TEST(ClaimCommand, NothingIsCutOnAPipe) {
  const ClaimMachine machine;
  const std::string purpose(150, 'x');
  Command holder(machine.yoke(ClaimMachine::claim_and_wait({"--name", purpose})));
  ASSERT_TRUE(holder.wait_for_output("started"));
  EXPECT_THAT(run(machine.yoke({"claims"})).out, HasSubstr(purpose));
}

TEST(ClaimCommand, AWaiterStartsWhenTheHolderIsKilled) {
  const ClaimMachine machine;
  Command holder(machine.yoke(ClaimMachine::claim_and_wait({"-n", "8"})));
  ASSERT_TRUE(holder.wait_for_output("started"));
  Command waiter(machine.yoke(ClaimMachine::claim_and_wait({"-n", "8", "--wait"})));
  ASSERT_TRUE(waiter.wait_for_output("waiting: "));
  ASSERT_TRUE(wait_until([&] { return machine.claims().at("queue").size() == 1; }));
  holder.signal(SIGKILL);
  EXPECT_TRUE(waiter.wait_for_output("started"));
}

TEST(ClaimCommand, TheQueueIsFirstComeFirstServed) {
  const ClaimMachine machine;
  Command holder(machine.yoke(ClaimMachine::claim_and_wait({"-n", "7"})));
  ASSERT_TRUE(holder.wait_for_output("started"));
  Command first(machine.yoke(ClaimMachine::claim_and_wait({"-n", "8", "--wait"})));
  ASSERT_TRUE(wait_until([&] { return machine.claims().at("queue").size() == 1; }));
  Command second(machine.yoke(ClaimMachine::claim_and_wait({"-n", "1", "--wait"})));
  ASSERT_TRUE(wait_until([&] { return machine.claims().at("queue").size() == 2; }));
  const auto queue = machine.claims().at("queue");
  EXPECT_EQ(queue[0].at("pid"), first.pid());
  EXPECT_EQ(queue[0].at("num_devices"), 8);
  EXPECT_EQ(queue[1].at("pid"), second.pid());
  EXPECT_EQ(queue[1].at("position"), 2);
  const auto passing = run(machine.yoke({"claim", "--", "true"}));
  EXPECT_EQ(passing.exit_code, 75) << "a device is free, and two others have waited for longer";
  EXPECT_THAT(passing.err, HasSubstr("2 requests have been waiting"));
  holder.signal(SIGTERM);
  ASSERT_TRUE(first.wait_for_output("started"));
  EXPECT_EQ(second.out(), "");
  first.signal(SIGTERM);
  EXPECT_TRUE(second.wait_for_output("started"));
}

TEST(ClaimCommand, AShortClaimMayFillAGapInTheQueue) {
  const ClaimMachine machine;
  Command holder(machine.yoke(ClaimMachine::claim_and_wait({"-n", "7", "--for", "1h"})));
  ASSERT_TRUE(holder.wait_for_output("started"));
  Command first(machine.yoke(ClaimMachine::claim_and_wait({"-n", "8", "--wait"})));
  ASSERT_TRUE(wait_until([&] { return machine.claims().at("queue").size() == 1; }));
  EXPECT_EQ(run(machine.yoke({"claim", "--for", "30m", "--", "true"})).exit_code, 75);
  EXPECT_EQ(run(machine.yoke({"claim", "--backfill", "--for", "30m", "--", "true"})).exit_code, 0);
  EXPECT_EQ(run(machine.yoke({"claim", "--backfill", "--for", "2h", "--", "true"})).exit_code, 75);
  EXPECT_EQ(run(machine.yoke({"claim", "--backfill", "--", "true"})).exit_code, 64);
}

TEST(ClaimCommand, AShortClaimMayPassOneThatWaitsForADeviceByName) {
  const ClaimMachine machine;
  Command holder(machine.yoke(ClaimMachine::claim_and_wait({"-d", "0"})));
  ASSERT_TRUE(holder.wait_for_output("started"));
  Command first(machine.yoke(ClaimMachine::claim_and_wait({"-d", "0,1", "-n", "2", "--wait"})));
  ASSERT_TRUE(wait_until([&] { return machine.claims().at("queue").size() == 1; }));
  const auto plan = run(machine.yoke({"claim", "-n", "6", "--explain"}));
  EXPECT_EQ(plan.exit_code, 75);
  EXPECT_THAT(plan.out, AllOf(HasSubstr("nothing is given: 1 request has been waiting"), Not(HasSubstr(" are given:")),
                              Not(HasSubstr("all that can be given"))));
  EXPECT_EQ(run(machine.yoke({"claim", "-n", "6", "--backfill", "--for", "30m", "--", "true"})).exit_code, 0);
  EXPECT_EQ(run(machine.yoke({"claim", "-n", "7", "--backfill", "--for", "30m", "--", "true"})).exit_code, 75)
      << "it would take one that the first request waits for";
  EXPECT_EQ(run(machine.yoke({"claim", "-d", "1", "--backfill", "--for", "30m", "--", "true"})).exit_code, 75);
}

TEST(ClaimCommand, ALimitOfFileSizesIsReported) {
  const ClaimMachine machine;
  auto options = machine.yoke({"claim", "--", "true"});
  options.argv.insert(options.argv.begin(), {"sh", "-c", "ulimit -f 0; exec \"$@\"", "sh"});
  const auto result = run(options);
  EXPECT_EQ(result.exit_code, 75) << "and no signal ends it";
  EXPECT_THAT(result.err, HasSubstr("yoke claim: "));
  EXPECT_EQ(machine.num_claimed(), 0);
  // The program keeps the usual effect of the signal.
  EXPECT_EQ(run(machine.yoke({"claim", "--", "sh", "-c", "kill -XFSZ $$"})).exit_code, 128 + SIGXFSZ);
}

TEST(ClaimCommand, ADeviceThatNobodyHasUsedYetIsNotCalledUsed) {
  const ClaimMachine machine;
  Command program(machine.yoke(ClaimMachine::claim_and_wait({})));
  ASSERT_TRUE(program.wait_for_output("started"));
  EXPECT_THAT(run(machine.yoke({"claims"})).out, HasSubstr("not now"));
  EXPECT_GE(machine.claims().at("claims")[0].at("idle_seconds"), 1);
}

TEST(ClaimCommand, AnInterruptedWaitLeavesTheQueue) {
  const ClaimMachine machine;
  Command holder(machine.yoke(ClaimMachine::claim_and_wait({"-n", "8"})));
  ASSERT_TRUE(holder.wait_for_output("started"));
  for (const int signal : {SIGINT, SIGKILL}) {
    Command waiter(machine.yoke(ClaimMachine::claim_and_wait({"--wait"})));
    ASSERT_TRUE(wait_until([&] { return machine.claims().at("queue").size() == 1; }));
    waiter.signal(signal);
    EXPECT_EQ(waiter.wait().exit_code, 128 + signal);
    EXPECT_THAT(machine.claims().at("queue"), IsEmpty());
  }
}

TEST(ClaimCommand, AProgramThatOutlivesItsParentKeepsItsDevices) {
  const ClaimMachine machine;
  Command holder(machine.yoke(
      {"claim", "-n", "8", "--", "sh", "-c", "trap '' TERM; echo started $$; while :; do sleep 0.05; done"}));
  ASSERT_TRUE(holder.wait_for_output("started"));
  ASSERT_TRUE(holder.wait_until([&] { return holder.out().find('\n') != std::string::npos; }));
  const auto program = std::stoi(holder.out().substr(8));
  holder.signal(SIGKILL);
  EXPECT_EQ(holder.wait().exit_code, 137);
  ASSERT_EQ(machine.num_claimed(), 8);
  for (const auto& claim : machine.claims().at("claims")) {
    EXPECT_EQ(claim.at("pid"), program) << "not the process that has ended";
    EXPECT_FALSE(claim.at("user").is_null());
  }
  EXPECT_EQ(run(machine.yoke({"claim", "--", "true"})).exit_code, 75);
  kill(program, SIGKILL);
  EXPECT_TRUE(wait_until([&] { return machine.num_claimed() == 0; }));
}

TEST(ClaimCommand, AProcessLeftBehindDoesNotKeepTheDevices) {
  const ClaimMachine machine;
  const auto result = run(machine.yoke({"claim", "-n", "8", "--", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & :"}));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(processes_with_tag(machine.tag()), SizeIs(1));
  EXPECT_EQ(machine.num_claimed(), 0);
  EXPECT_EQ(run(machine.yoke({"claim", "-n", "8", "--", "true"})).exit_code, 0);
}

TEST(ClaimCommand, DevicesInUseWithoutAClaimAreNotGiven) {
  const ClaimMachine machine;
  Command user({.argv = {"sleep", "1000"}, .environment = {{"YOKE_TEST_TAG", machine.tag()}}});
  machine.set_state({{"devices", 4},
                     {"overrides",
                      {{"0", {{"processes", {{{"pid", user.pid()}, {"memory_mib", 100}}}}}},
                       {"1", {{"memory_mib", {{"used", 4096}}}}},
                       {"2", {{"error", "lost"}}}}}});
  const auto plan = run(machine.yoke({"claim", "--explain"}));
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.out, AllOf(HasSubstr("device 0 is not given: in use without a claim by"),
                              HasSubstr("(pid " + std::to_string(user.pid()) + ")"),
                              HasSubstr("device 1 is not given: 4.0 GiB of memory are held by no process"),
                              HasSubstr("device 2 is not given: lost"), HasSubstr("3 is all that can be given")));
  EXPECT_EQ(machine.num_claimed(), 0) << "--explain alone takes nothing";
  EXPECT_EQ(run(machine.yoke({"claim", "-n", "2", "--", "true"})).exit_code, 75);
  EXPECT_EQ(run(machine.yoke({"claim", "-d", "0", "--", "true"})).exit_code, 75);
  EXPECT_EQ(run(machine.yoke({"claim", "--memory", "100GiB", "--", "true"})).exit_code, 69);
  EXPECT_EQ(run(machine.yoke({"claim", "--memory", "20GiB", "--", "true"})).exit_code, 0);
}

TEST(ClaimCommand, AHolderKeepsDevicesForATime) {
  const ClaimMachine machine;
  const auto result = run(machine.yoke({"claim", "-d", "2,3", "--for", "1h"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("export CUDA_VISIBLE_DEVICES='GPU-"));
  EXPECT_THAT(result.err, AllOf(HasSubstr("holds devices 2, 3 until 20"), HasSubstr("`yoke release ")));
  const auto before = machine.claims().at("claims");
  ASSERT_THAT(before, SizeIs(2));
  const auto pid = std::to_string(before[0].at("pid").get<int64_t>());
  EXPECT_EQ(run(machine.yoke({"extend", pid, "--for", "30m"})).exit_code, 0);
  const auto after = machine.claims().at("claims");
  EXPECT_EQ(after[0].at("until").get<int64_t>() - before[0].at("until").get<int64_t>(), 1800);
  const auto released = run(machine.yoke({"release", pid}));
  EXPECT_EQ(released.exit_code, 0) << released.err;
  EXPECT_EQ(machine.num_claimed(), 0);
  EXPECT_THAT(processes_with_tag(machine.tag()), IsEmpty());
}

TEST(ClaimCommand, AShellThatEvaluatesAFailureSeesNoDevice) {
  const ClaimMachine machine;
  const struct {
    const char* options;
    int status;
  } rows[] = {{"-n 99 --for 5m", 69},
              {"-n 0 --for 5m", 64},
              {"--for 5x", 64},
              {"-d 99 --for 5m", 66},
              {"--for 5m --nonsense", 64},
              {"--fro 5m", 64},
              {"-n 1", 64},
              {"-n 1 --backfill", 64},
              {"-n 1 --name '' --for 5m", 64},
              {"--adopt 999999999 --for 5m", 66}};
  for (const auto& row : rows) {
    for (const std::string shell : {"sh", "bash"}) {
      auto options = machine.yoke({"claims"});
      const auto line = "eval \"$(\"$0\" claim --deadline 60 " + std::string(row.options) +
                        ")\"; echo $? \"[${CUDA_VISIBLE_DEVICES-all}]\"";
      options.argv = {shell, "-c", line, machine.path("yoke")};
      const auto result = run(options);
      EXPECT_EQ(result.out, std::to_string(row.status) + " []\n") << shell << " " << row.options;
      options.argv = {shell, "-e", "-c", line, machine.path("yoke")};
      EXPECT_EQ(run(options).out, "") << shell << " -e ends: " << row.options;
    }
  }
  EXPECT_EQ(run(machine.yoke({"claim", "-n", "99", "--for", "5m", "--json"})).out, "");
  EXPECT_EQ(run(machine.yoke({"claim", "-n", "99", "--for", "5m", "--", "true"})).out, "");
  EXPECT_EQ(machine.num_claimed(), 0);
}

TEST(ClaimCommand, TheTimeOfAClaimEnds) {
  const ClaimMachine machine;
  const auto result = run(machine.yoke({"claim", "--for", "1s", "--", "sleep", "1000"}));
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_THAT(result.err, HasSubstr("the time of the claim is over"));
  EXPECT_EQ(run(machine.yoke({"claim", "--for", "1s"})).exit_code, 0);
  EXPECT_TRUE(wait_until([&] { return machine.num_claimed() == 0; }));
  EXPECT_TRUE(wait_until([&] { return processes_with_tag(machine.tag()).empty(); }));
}

TEST(ClaimCommand, ARunningProgramIsReleasedByForceAlone) {
  const ClaimMachine machine;
  Command program(machine.yoke(ClaimMachine::claim_and_wait({})));
  ASSERT_TRUE(program.wait_for_output("started"));
  const auto pid = std::to_string(program.pid());
  const auto refused = run(machine.yoke({"release", pid}));
  EXPECT_EQ(refused.exit_code, 69);
  EXPECT_THAT(refused.err, HasSubstr("--force"));
  Command release(machine.yoke({"release", pid, "--force"}));
  EXPECT_EQ(program.wait().exit_code, 143);
  EXPECT_EQ(release.wait().exit_code, 0);
  EXPECT_EQ(machine.num_claimed(), 0);
}

TEST(ClaimCommand, ReleasingAllOfOnesOwnKeepsWhatProgramsUse) {
  const ClaimMachine machine;
  Command holder(machine.yoke(ClaimMachine::claim_and_wait({"-n", "2"})));
  ASSERT_TRUE(holder.wait_for_output("started"));
  ASSERT_EQ(run(machine.yoke({"claim", "-n", "3", "--for", "1h"})).exit_code, 0);
  EXPECT_EQ(machine.num_claimed(), 5);
  const auto result = run(machine.yoke({"release", "--mine"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(std::to_string(holder.pid()) + " keeps its devices until its program ends"));
  EXPECT_EQ(machine.num_claimed(), 2);
  EXPECT_EQ(run(machine.yoke({"release", "--mine"})).exit_code, 69) << "nothing was released";
}

TEST(ClaimCommand, ValuesOfOptionsAreNotShownToEverybody) {
  const ClaimMachine machine;
  Command holder(machine.yoke({"claim", "--", "sh", "-c", "echo started; sleep 1000", "secret"}));
  ASSERT_TRUE(holder.wait_for_output("started"));
  EXPECT_EQ(machine.claims().at("claims")[0].at("purpose"), "sh");
}

TEST(ClaimCommand, AdoptsWhatAProcessUses) {
  const ClaimMachine machine;
  Command user({.argv = {"sleep", "1000"}, .environment = {{"YOKE_TEST_TAG", machine.tag()}}});
  ASSERT_TRUE(wait_until([&] { return slurp(fmt::format("/proc/{}/cmdline", user.pid())).starts_with("sleep"); }))
      << "the program of the process, which may still be that of the test";
  const Json process = {{{"pid", user.pid()}, {"memory_mib", 100}}};
  machine.set_state(
      {{"devices", 4}, {"overrides", {{"1", {{"processes", process}}}, {"3", {{"processes", process}}}}}});
  const auto begin = std::time(nullptr);
  const auto result = run(machine.yoke({"claim", "--adopt", std::to_string(user.pid()), "--json"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out).at("devices"), Json({"1", "3"}));
  const auto claims = machine.claims().at("claims");
  ASSERT_THAT(claims, SizeIs(2));
  EXPECT_EQ(claims[0].at("purpose"), "sleep 1000");
  const auto most_idle = std::time(nullptr) + 1 - begin;  // both are rounded
  EXPECT_LE(claims[0].at("idle_seconds"), most_idle) << "since the claim began";
  EXPECT_EQ(run(machine.yoke({"claim", "--adopt", std::to_string(user.pid())})).exit_code, 75) << "a second time";
  user.signal(SIGKILL);
  EXPECT_TRUE(wait_until([&] { return machine.num_claimed() == 0; })) << "it lasts as long as the process";
  EXPECT_EQ(run(machine.yoke({"claim", "--adopt", std::to_string(getpid())})).exit_code, 66);
}

TEST(ClaimCommand, AllMeansAllThatCanBeClaimed) {
  const ClaimMachine machine;
  const auto result = run(machine.yoke({"claim", "-d", "all", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), ','), 7);
}

TEST(ClaimCommand, AClaimWhoseWordsAreLostEnds) {
  const ClaimMachine machine;
  auto options = machine.yoke({"claim", "--for", "1h"});
  options.argv = {"sh", "-c", "\"$@\" > /dev/full", "sh", options.argv[0], "claim", "--for", "1h"};
  EXPECT_NE(run(options).exit_code, 0);
  EXPECT_TRUE(wait_until([&] { return machine.num_claimed() == 0; }));
}

TEST(ClaimCommand, RunClaimsADeviceForEachRank) {
  const ClaimMachine machine;
  const auto result = run(
      machine.yoke({"run", "-n", "2", "--claim", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exit 3", "--claim"}));
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_THAT(result.out, HasSubstr(",GPU-"));
  EXPECT_EQ(run(machine.yoke({"run", "-n", "gpu", "--claim", "--", "true"})).exit_code, 64);
  EXPECT_EQ(run(machine.yoke({"run", "-n", "2", "--for", "1h", "--", "true"})).exit_code, 64) << "no --claim";
  Command timed(machine.yoke({"run", "-n", "1", "--claim", "--for", "1h", "--", "sh", "-c", "echo started; sleep 60"}));
  ASSERT_TRUE(timed.wait_for_output("started"));
  const auto claims = machine.claims().at("claims");
  ASSERT_THAT(claims, SizeIs(1));
  EXPECT_EQ(claims[0].at("purpose"), "yoke run sh");
  EXPECT_EQ(claims[0].at("until").get<int64_t>() - claims[0].at("since").get<int64_t>(), 3600);
  timed.signal(SIGTERM);
  EXPECT_EQ(run(machine.yoke({"run", "-n", "9", "--claim", "--", "true"})).exit_code, 69);
  const auto shared =
      run(machine.yoke({"run", "-n", "1", "--claim", "--memory", "8GiB", "--share", "--wait", "1h", "--no-python", "sh",
                        "-c", "echo $YOKE_DEVICE_MEMORY_BYTES $*", "sh", "--wait"}));
  EXPECT_EQ(shared.exit_code, 0) << shared.err;
  EXPECT_THAT(shared.out, HasSubstr("8589934592 --wait"));
  Command all(machine.yoke(ClaimMachine::claim_and_wait({"-n", "8", "--wait"})));
  ASSERT_TRUE(all.wait_for_output("started"));
  const auto waited = run(machine.yoke({"run", "-n", "1", "--claim", "--wait=1s", "--", "true"}));
  EXPECT_EQ(waited.exit_code, 124) << waited.err;
  EXPECT_EQ(run(machine.yoke({"run", "-n", "1", "--wait", "--", "true"})).exit_code, 64) << "no --claim";
  EXPECT_EQ(run(machine.yoke({"run", "-n", "1", "--share", "--", "true"})).exit_code, 64) << "no --claim";
}

TEST(ClaimCommand, TheCommandLineOfAContainerNeedsNoEngine) {
  const ClaimMachine machine;
  auto options = machine.yoke({"container", "run", "--print", "--engine", "docker", "--gpu", "2", "--deadline", "60",
                               "my/image", "--", "true"});
  options.environment.emplace_back("PATH", "/none");
  const auto printed = run(options);
  EXPECT_EQ(printed.exit_code, 0) << printed.err;
  EXPECT_THAT(printed.out, AllOf(StartsWith("docker\nrun\n"), HasSubstr("CUDA_VISIBLE_DEVICES=GPU-")));
  EXPECT_THAT(printed.err, HasSubstr("docker is not installed"));
  EXPECT_EQ(machine.num_claimed(), 0);
}

TEST(ClaimCommand, LimitsOfTheSite) {
  const ClaimMachine machine;
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
  machine.write("config.toml", "[claim]\ndevices_per_user = 3\nlongest = '2h'\n");
  const auto as_ada = [&](std::vector<std::string> words) {
    auto options = machine.yoke_as(kAda, std::move(words));
    options.environment.emplace_back("YOKE_SITE_CONFIG", machine.path("config.toml"));
    return options;
  };
  EXPECT_EQ(run(as_ada({"claim", "-n", "1", "--", "true"})).exit_code, 64) << "--for is required";
  EXPECT_EQ(run(as_ada({"claim", "-n", "1", "--for", "3h", "--", "true"})).exit_code, 64);
  EXPECT_EQ(run(as_ada({"claim", "-n", "1", "--explain"})).exit_code, 0) << "to ask takes nothing";
  EXPECT_EQ(machine.num_claimed(), 0);
  const auto held = run(as_ada({"claim", "-n", "2", "--for", "1h", "--json"}));
  ASSERT_EQ(held.exit_code, 0) << held.err;
  const auto more = run(as_ada({"claim", "-n", "2", "--for", "1h", "--", "true"}));
  EXPECT_EQ(more.exit_code, 75);
  EXPECT_THAT(more.err, HasSubstr("lets a user have 3 devices, and you hold 2"));
  const auto never = run(as_ada({"claim", "-n", "4", "--for", "1h", "--wait", "--", "true"}));
  EXPECT_EQ(never.exit_code, 69) << "waiting does not help";
  EXPECT_THAT(never.err, HasSubstr("lets a user have 3 devices at a time, and 4 are wanted"));
  const auto pid = std::to_string(Json::parse(held.out).at("pid").get<int64_t>());
  EXPECT_EQ(run(as_ada({"extend", pid, "--for", "2h"})).exit_code, 69);
  EXPECT_EQ(run(as_ada({"release", "--mine"})).exit_code, 0);
  const auto kernel = run(as_ada({"jupyter", "install", "--name", "work", "--claim", "1"}));
  EXPECT_EQ(kernel.exit_code, 64) << "the kernel could never start";
  EXPECT_THAT(kernel.err, HasSubstr("this site limits claims to 2 h; give --for"));
  // A file of ada's own has no limits for the folder that all share.
  machine.write("own.toml", "[claim]\n");
  ASSERT_EQ(chown(machine.path("own.toml").c_str(), kAda, kAda), 0);
  auto lifted = machine.yoke_as(kAda, {"claim", "-n", "8", "--", "true"});
  lifted.environment.emplace_back("YOKE_SITE_CONFIG", machine.path("own.toml"));
  const auto refused = run(lifted);
  EXPECT_EQ(refused.exit_code, 77);
  EXPECT_THAT(refused.err, HasSubstr("only root decides on limits; unset YOKE_SITE_CONFIG"));
}

}  // namespace
}  // namespace yoke::test
