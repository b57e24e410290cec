// Tests `yoke run --hosts` on four hosts in network namespaces, with real ssh.
#include <csignal>
#include <fstream>
#include <optional>

#include "tests/nodes/nodes.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Ssh : public Nodes {
 protected:
  void SetUp() override {
    if (const auto why = Network::why_no_sshd(); !why.empty()) GTEST_SKIP() << why;
    Nodes::SetUp();
    if (network_) network_->start_sshd(tag_);
  }

  /// Returns the agent on a host: the process with the tag in the host's network namespace.
  std::optional<pid_t> agent_of(int host) const {
    const auto wanted = namespace_of(run({.argv = network_->on(host, {"sh", "-c", "readlink /proc/self/ns/net"})}).out);
    for (const auto pid : processes_with_tag(tag_)) {
      const auto process = "/proc/" + std::to_string(pid);
      std::error_code error;
      if (namespace_of(std::filesystem::read_symlink(process + "/ns/net", error).string()) != wanted) continue;
      if (std::filesystem::read_symlink(process + "/exe", error) != std::filesystem::canonical(kYoke, error)) continue;
      std::string name;
      std::getline(std::ifstream(process + "/comm"), name);
      if (name != "yoke-guardian" && !children_of(pid).empty()) return pid;
    }
    return std::nullopt;
  }

  /// Whether `yoke jobs` on the outside host, where the job was started, shows `count` ranks.
  bool has_num_ranks(int count) const {
    const auto jobs = run({.argv = network_->on(Network::kOutside, {kYoke, "jobs", "--json"})});
    return jobs.out.find("\"num_ranks\": " + std::to_string(count) + ",") != std::string::npos;
  }

  static std::string namespace_of(const std::string& link) { return link.substr(0, link.find(']') + 1); }
};

TEST_F(Ssh, RanksAreOnAllHostsInTheirOrder) {
  const auto command = over_ssh(shell({"-n", "2", "-q"},  // -q: a slow machine would print that it waits
                                      "echo $RANK/$WORLD_SIZE $LOCAL_RANK $GROUP_RANK/$GROUP_WORLD_SIZE "
                                      "$MASTER_ADDR $(ip -4 -br addr show eth0 | tr -s ' ' | cut -d' ' -f3)"));
  const auto result = command->wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  for (int rank = 0; rank < 8; ++rank) {
    const auto line = fmt("[%d] %d/8 %d %d/4 10.77.0.1 10.77.0.%d/24\n", rank, rank, rank % 2, rank / 2, rank / 2 + 1);
    EXPECT_THAT(result.out, HasSubstr(line));
  }
}

TEST_F(Ssh, TheFirstFailureEndsAllAndNamesItsHost) {
  const auto result = over_ssh(shell({}, "[ $RANK = 2 ] && sleep 0.2 && kill -SEGV $$; sleep 60"))->wait();
  EXPECT_EQ(result.exit_code, 139);
  EXPECT_THAT(result.err, AllOf(HasSubstr("rank 2 (pid "), HasSubstr(" on 10.77.0.3) was killed by SIGSEGV"),
                                HasSubstr("stopped the 3 other ranks")));
}

TEST_F(Ssh, TheReasonOfARankIsShown) {
  const auto result = over_ssh(shell({},
                                     "[ $RANK = 3 ] || exec sleep 60; echo '{\"message\":{\"message\":\"ValueError: "
                                     "sizes differ\",\"extraInfo\":{\"timestamp\":\"1\"}}}' > "
                                     "$TORCHELASTIC_ERROR_FILE; exit 5"))
                          ->wait();
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.err, HasSubstr("rank 3 failed: ValueError: sizes differ"));
}

TEST_F(Ssh, AHostThatIsNotThereIsNamedBeforeAnythingRuns) {
  auto argv = network_->on(Network::kOutside, {kYoke, "run", "--hosts", "10.77.0.1,no.such.host.invalid", "--ssh",
                                               network_->ssh(), "--", "touch", folder_.path("ran")});
  const auto result = run(options(argv));
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_THAT(result.err, HasSubstr("cannot use host no.such.host.invalid: ssh: Could not resolve hostname"));
  EXPECT_FALSE(has_file("ran"));
}

TEST_F(Ssh, WhatTheConfigurationAddsForPeopleIsLeftOut) {
  const TemporaryFolder home;
  // The second of two connections at the same time could not forward the port.
  home.write("config",
             "Host *\n  RemoteCommand tmux attach\n  LocalForward 127.0.0.1:18888 127.0.0.1:8888\n"
             "  ExitOnForwardFailure yes\n" +
                 slurp(network_->ssh_config()));
  const auto result =
      run(options(network_->on(Network::kOutside, {kYoke, "run", "-q", "--hosts", "10.77.0.1,10.77.0.2", "--ssh",
                                                   "ssh -F " + home.path("config"), "--", "echo", "ran"})));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("[0] ran\n"), HasSubstr("[1] ran\n")));
}

TEST_F(Ssh, WhyAHostCannotBeUsedIsInItsWords) {
  const TemporaryFolder home;
  const auto key = slurp(std::filesystem::path(network_->ssh_config()).parent_path() / "user_key.pub");
  home.write("known_hosts", "10.77.0.1 " + key);
  home.write("config", "Host *\n  StrictHostKeyChecking yes\n  UserKnownHostsFile " + home.path("known_hosts") + "\n" +
                           slurp(network_->ssh_config()));
  const auto on = [&](const std::string& ssh, const std::string& yoke) {
    return run(options(network_->on(
        Network::kOutside, {kYoke, "run", "--hosts", "10.77.0.1", "--ssh", ssh, "--remote-yoke", yoke, "--", "true"})));
  };
  const auto changed = on("ssh -F " + home.path("config"), kYoke);
  EXPECT_EQ(changed.exit_code, 75);
  EXPECT_THAT(changed.err,
              AllOf(HasSubstr("cannot use host 10.77.0.1: its host key has changed (Offending ED25519 key"),
                    HasSubstr(home.path("known_hosts") + ":1"), HasSubstr("ssh-keygen ")));
  home.write("known_hosts", "");
  EXPECT_THAT(on("ssh -F " + home.path("config"), kYoke).err, HasSubstr("host key is known for 10.77.0.1"));
  home.write("nologin", "#!/bin/sh\necho This account is currently not available.\nexit 1\n", true);
  EXPECT_THAT(on(network_->ssh(), home.path("nologin")).err, HasSubstr("This account is currently not available."));
}

TEST_F(Ssh, WhatALoginShellSaysDoesNotMatter) {
  const TemporaryFolder bin;
  bin.write("yoke",
            "#!/bin/sh\necho Welcome to the cluster\necho of errors >&2\nexec " + std::string(kYoke) + " \"$@\"\n",
            true);
  auto argv = network_->on(Network::kOutside, {kYoke, "run", "-q", "--hosts", "10.77.0.1", "--ssh", network_->ssh(),
                                               "--remote-yoke", bin.path("yoke"), "--", "echo", "ran"});
  const auto result = run(options(argv));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "ran\n");
  EXPECT_EQ(result.err, "");
}

TEST_F(Ssh, OutputOfAnySizeAndKindArrives) {
  const auto result =
      over_ssh(
          shell({},
                "[ $RANK = 1 ] && { head -c 900000 /dev/zero | tr '\\0' x; echo; }; "
                "[ $RANK = 2 ] && head -c 3000000 /dev/urandom | tr -d '\\r' >&2; [ $RANK = 3 ] && seq 200000; true"))
          ->wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), 'x'), 900'000);
  EXPECT_THAT(result.out, HasSubstr("[3] 200000\n"));
  EXPECT_GE(result.err.size(), 2'900'000U);
}

TEST_F(Ssh, ASlowReaderDoesNotKeepSignalsBack) {
  auto words = shell({}, "yes");
  std::vector<std::string> argv = {kYoke, "run", "--hosts", "10.77.0.1,10.77.0.2", "--ssh", network_->ssh()};
  argv.insert(argv.end(), words.begin(), words.end());
  auto how = options(network_->on(Network::kOutside, argv));
  how.leave_unread = true;
  Command command(how);
  ASSERT_TRUE(wait_until([&] { return processes_with_tag(tag_).size() > 6; }));
  poll(nullptr, 0, 500);  // clock: gives all pipes time to become full; if it is too short, the test finds less
  command.signal(SIGTERM);
  EXPECT_TRUE(wait_until([&] { return processes_with_tag(tag_).empty(); }, kLong));
  const auto result = command.wait();
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_THAT(result.err, Not(HasSubstr("SIGKILL"))) << "the signals were there before the grace was over";
}

TEST_F(Ssh, AKilledAgentEndsTheJob) {
  const auto command = over_ssh(shell({}, script()));
  ASSERT_TRUE(command->wait_until([&] { return runs(0, 4); })) << command->err();
  const auto agent = agent_of(2);
  ASSERT_TRUE(agent);
  kill(*agent, SIGKILL);
  const auto result = command->wait();
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_THAT(result.err, HasSubstr("lost host 10.77.0.3: its connection was closed; stopped the 3 other ranks"));
}

TEST_F(Ssh, WithRestartsAKilledAgentsHostIsReachedAgain) {
  const auto command = over_ssh(shell({"--max-restarts", "1"}, script()));
  ASSERT_TRUE(command->wait_until([&] { return runs(0, 4); })) << command->err();
  const auto agent = agent_of(0);
  ASSERT_TRUE(agent);
  kill(*agent, SIGKILL);
  ASSERT_TRUE(command->wait_until([&] { return runs(1, 4); })) << command->err();
  make_file("done");
  EXPECT_EQ(command->wait().exit_code, 0) << command->err();
  EXPECT_THAT(command->err(), HasSubstr("starting all ranks again, restart 1 of 1"));
}

TEST_F(Ssh, ASpareTakesThePlaceOfALostHost) {
  const auto command = over_ssh(shell({"--spares", "1", "--max-restarts", "3"},
                                      "echo rank $RANK of attempt $TORCHELASTIC_RESTART_COUNT is on node $GROUP_RANK, "
                                      "$(ip -4 -br addr show eth0 | tr -s ' ' | cut -d' ' -f3); " +
                                          script()));
  ASSERT_TRUE(command->wait_until([&] { return runs(0, 3) && agent_of(3).has_value(); }, kLong)) << command->err();
  const auto agent = agent_of(1);
  ASSERT_TRUE(agent);
  kill(*agent, SIGKILL);
  ASSERT_TRUE(command->wait_until([&] { return runs(1, 3); }, kLong)) << command->err();
  make_file("done");
  EXPECT_EQ(command->wait().exit_code, 0) << command->err();
  EXPECT_THAT(command->err(), AllOf(HasSubstr("lost host 10.77.0.2"),
                                    HasSubstr("the spare host 10.77.0.4 takes the place of host 10.77.0.2")));
  EXPECT_THAT(command->out(), AllOf(HasSubstr("rank 1 of attempt 0 is on node 1, 10.77.0.2/24"),
                                    HasSubstr("rank 1 of attempt 1 is on node 1, 10.77.0.4/24"),
                                    HasSubstr("rank 2 of attempt 1 is on node 2, 10.77.0.3/24")));
}

/// The first host has the ranks' store.
TEST_F(Ssh, ASpareTakesThePlaceOfTheFirstHostWhenThatIsCutOff) {
  const auto command = over_ssh(shell({"--spares", "2", "--max-restarts", "3", "--heartbeat-timeout", kSilence},
                                      "echo the store of $RANK/$WORLD_SIZE is at $MASTER_ADDR; bash -c ': < "
                                      "/dev/tcp/$MASTER_ADDR/$MASTER_PORT' || exit 7; " +
                                          script()));
  ASSERT_TRUE(command->wait_until([&] { return runs(0, 2) && agent_of(2) && agent_of(3); }, kLong)) << command->err();
  network_->cut(0);
  ASSERT_TRUE(command->wait_until([&] { return runs(1, 2); }, kLong)) << command->err();
  make_file("done");
  EXPECT_EQ(command->wait().exit_code, 0) << command->err();
  EXPECT_THAT(command->out(), testing::ContainsRegex("the store of 1/2 is at 10.77.0.[34]"));
}

TEST_F(Ssh, ACutHostIsLostInTimeAndEndsItsRanksItself) {
  const auto command = over_ssh(shell({"--heartbeat-timeout", kSilence}, script()));
  ASSERT_TRUE(command->wait_until([&] { return runs(0, 4); }, kLong)) << command->err();
  network_->cut(1);
  const auto result = command->wait(kLong);
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_THAT(result.err, HasSubstr("lost host 10.77.0.2: it sent nothing for "));
  // TearDown checks that no process remains on the host, which is still cut off.
}

TEST_F(Ssh, AnElasticJobGoesOnAndTakesTheHostBack) {
  const auto command =
      over_ssh(shell({"--heartbeat-timeout", kSilence, "--nnodes", "2:4", "--max-restarts", "100"}, script()));
  ASSERT_TRUE(command->wait_until([&] { return runs(0, 4); }, kLong)) << command->err();
  network_->cut(3);
  ASSERT_TRUE(command->wait_until([&] { return runs(1, 3); }, kLong)) << command->err();
  EXPECT_THAT(command->err(), HasSubstr("lost host 10.77.0.4: it sent nothing for "));
  network_->mend(3);
  ASSERT_TRUE(command->wait_until([&] { return agent_of(3).has_value(); }, kLong)) << "while the others run";
  make_file("fail-1");  // makes attempt 1 fail, so that the next one starts
  EXPECT_TRUE(restart_until(*command, 2, 4)) << command->err();
  make_file("done");
  EXPECT_EQ(command->wait().exit_code, 0) << command->err();
}

/// The first node reserves the port of the ranks' TCPStore after the nodes are chosen and before ranks run.
TEST_F(Ssh, ANodeThatIsLostWhileTheJobBeginsIsMissed) {
  std::vector<std::string> argv = {
      kYoke,      "run",          "--hosts",     "10.77.0.1,10.77.0.2,no.such.host.invalid",
      "--nnodes", "2:3",          "--rdzv-conf", "last_call_timeout=5",
      "--ssh",    network_->ssh()};
  for (const auto& word : shell({}, script())) argv.push_back(word);
  Command command(options(network_->on(Network::kOutside, argv)));
  // Two nodes have joined when last_call_timeout is over. The head then waits for the port from the first node.
  const auto is_there = [&](int host) {
    const auto agent = agent_of(host);
    return agent && guardian_of(*agent);
  };
  ASSERT_TRUE(command.wait_until([&] { return is_there(0) && is_there(1); }, kLong)) << command.err();
  const auto first = *agent_of(0);
  // Gives the guardian time to start and to report that it is ready.
  command.wait_until([] { return false; }, milliseconds(500));  // clock: ten times what it needs on a busy machine
  kill(first, SIGSTOP);
  ASSERT_TRUE(command.wait_until([&] { return has_num_ranks(2); }, kLong)) << command.err();
  kill(*agent_of(1), SIGKILL);
  // clock: ten times what the end of a connection needs to be seen
  command.wait_until([] { return false; }, milliseconds(300));
  kill(first, SIGCONT);
  ASSERT_TRUE(command.wait_until([&] { return runs(1, 2); })) << command.err();
  make_file("done");
  EXPECT_EQ(command.wait().exit_code, 0) << command.err();
}

TEST_F(Ssh, NothingIsLeftOfAKilledHead) {
  const auto command = over_ssh(shell({}, script()));
  ASSERT_TRUE(command->wait_until([&] { return runs(0, 4); })) << command->err();
  command->signal(SIGKILL);
  command->wait();
}

TEST_F(Ssh, TwoJobsRunOnTheSameHosts) {
  const auto one = over_ssh(shell({}, script() + "; true"));
  const auto other = over_ssh(shell({}, "echo $MASTER_PORT; exit 7"));
  EXPECT_EQ(other->wait().exit_code, 7) << other->err();
  ASSERT_TRUE(one->wait_until([&] { return runs(0, 4); })) << one->err();
  make_file("done");
  EXPECT_EQ(one->wait().exit_code, 0) << one->err();
}

TEST_F(Ssh, ManyRestartsLeakNothing) {
  const int restarts = std::getenv("YOKE_LONG") != nullptr ? 100 : 10;
  std::vector<std::vector<std::string>> before;
  for (int host = 0; host < kNumHosts; ++host) before.push_back(network_->listening(host));
  const auto result = over_ssh(shell({"--max-restarts", std::to_string(restarts)},
                                     "[ $RANK = $((TORCHELASTIC_RESTART_COUNT % 4)) ] || exec sleep 60; exit 9"))
                          ->wait(milliseconds(120'000));
  EXPECT_EQ(result.exit_code, 9);
  EXPECT_THAT(result.err, HasSubstr(fmt("restart %d of %d", restarts, restarts)));
  EXPECT_TRUE(wait_until([&] { return processes_with_tag(tag_).empty(); }));
  for (int host = 0; host < kNumHosts; ++host) {
    EXPECT_EQ(network_->listening(host), before[static_cast<size_t>(host)]) << "host " << host;
  }
}

}  // namespace
}  // namespace yoke::test
