// Tests the launcher's half of `yoke run --replace` on four hosts, with ranks that are shells.
#include <csignal>
#include <fstream>
#include <set>

#include "tests/nodes/nodes.h"
#include "tests/support/kept_state.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Defines a function of the shell that waits until all ranks have come to the place $1.
const std::string kMeet =
    "meet() { : > $F/$1-$RANK; until [ $(ls $F | grep -c ^$1-) = $WORLD_SIZE ]; do sleep 0.05; done; }; ";

/// The agent that is the parent of the guardian whose pid is this text.
pid_t agent_of(const std::string& guardian) {
  const auto stat = slurp("/proc/" + std::to_string(std::stoi(guardian)) + "/stat");
  return std::stoi(stat.substr(stat.find(") ") + 4));
}

class ReplaceOnHosts : public Nodes {
 protected:
  void SetUp() override {
    if (const auto why = Network::why_no_sshd(); !why.empty()) GTEST_SKIP() << why;
    Nodes::SetUp();
    if (!network_) return;
    network_->start_sshd(tag_);
    std::filesystem::create_directories(folder_.path("tmp"));
    environment_ = {{"TMPDIR", folder_.path("tmp")}, {"F", folder_.path()}};
  }

  void TearDown() override {
    Nodes::TearDown();
    if (!network_) return;
    EXPECT_TRUE(wait_until([&] { return std::filesystem::is_empty(folder_.path("tmp")); })) << "TMPDIR is not empty";
  }

  static std::vector<std::string> shell(std::vector<std::string> options, const std::string& script) {
    return test::shell(std::move(options), kKeepsState + kMeet + script);
  }

  std::string file(const std::string& name) const { return slurp(folder_.path(name)); }
};

TEST_F(ReplaceOnHosts, AKilledRankStartsAgainAloneOnItsHost) {
  const auto command = over_ssh(shell({"-n", "2", "--replace", "4"},
                                      "echo $$ >> $F/pids-$RANK; made 5; env | sort > $F/env-$RANK-$YOKE_REPLACEMENT; "
                                      "[ $LOCAL_RANK = 0 ] || [ $YOKE_REPLACEMENT != 0 ] || kill -KILL $$; "
                                      "echo $RANK is there; meet end"));
  const auto result = command->wait(kLong);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::set<std::string> numbers;
  for (int rank = 0; rank < 8; ++rank) {
    const bool is_killed = rank % 2 == 1;
    EXPECT_THAT(result.out, HasSubstr(fmt("[%d] %d is there\n", rank, rank)));
    const auto pids = file(fmt("pids-%d", rank));
    EXPECT_EQ(std::count(pids.begin(), pids.end(), '\n'), is_killed ? 2 : 1) << "rank " << rank;
    if (!is_killed) continue;
    const auto number = [&] {
      for (int i = 1; i <= 4; ++i) {
        if (has_file(fmt("env-%d-%d", rank, i))) return std::to_string(i);
      }
      return std::string("none");
    }();
    EXPECT_TRUE(numbers.insert(number).second) << number << " comes twice";
    const auto first_pid = pids.substr(0, pids.find('\n'));
    EXPECT_THAT(result.err, HasSubstr("yoke run: rank " + std::to_string(rank) + " (pid " + first_pid + " on " +
                                      Network::address(rank / 2) + ") was killed by SIGKILL; starting it again, " +
                                      "replacement " + number + " of 4\n"));
    auto before = file(fmt("env-%d-0", rank)), after = file(fmt("env-%d-", rank) + number);
    const std::string variable = "YOKE_REPLACEMENT=";
    const auto at = before.find(variable + "0");
    ASSERT_NE(at, before.npos);
    before.replace(at, variable.size() + 1, variable + number);
    EXPECT_EQ(before, after) << "all else is the same";
  }
}

/// A node whose only rank is lost waits for it. The process that serves the ranks' store goes on, too.
TEST_F(ReplaceOnHosts, EachHostMayLoseAllItsRanks) {
  const auto command = over_ssh(shell(
      {"--replace", "9"},
      "made 5; meet begin; for victim in 2 0 3 1; do if [ $RANK = $victim ] && ! [ -e $F/killed-$RANK ]; then : > "
      "$F/killed-$RANK; "
      "kill -KILL $$; fi; until [ -e $F/killed-$victim ]; do sleep 0.05; done; "
      "[ $RANK != $victim ] || bash -c 'exec 3<> /dev/tcp/$MASTER_ADDR/$MASTER_PORT' || exit 7; meet after-$victim; "
      "done"));
  const auto result = command->wait(kLong);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("replacement 4 of 9"));
}

TEST_F(ReplaceOnHosts, AllEndWhenNoReplacementIsLeft) {
  const auto result = over_ssh(shell({"--replace", "1", "--grace", "1000"},
                                     "made 5; [ $YOKE_REPLACEMENT != 0 ] || meet begin; [ $RANK != 2 ] || kill -KILL "
                                     "$$; exec sleep 1000"))
                          ->wait(kLong);
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  EXPECT_THAT(result.err, AllOf(HasSubstr("replacement 1 of 1"),
                                HasSubstr(" on 10.77.0.3) was killed by SIGKILL, and is not replaced, because 1 "
                                          "replacement was made already; stopped the 3 other ranks")));
}

/// What an agent sends of the end of its rank decides, as on one host.
TEST_F(ReplaceOnHosts, ARankThatFailsRepeatedlyOrHasKeptNoStateIsNotReplaced) {
  const auto early =
      over_ssh(shell({"--replace", "9"}, "meet begin; [ $RANK != 3 ] || kill -KILL $$; exec sleep 1000"));
  EXPECT_THAT(early->wait(kLong).err, HasSubstr("because it kept no state of a training then"));
  const auto same = over_ssh(shell({"--replace", "9"}, "made 4; [ $RANK != 3 ] || kill -SEGV $$; exec sleep 1000"));
  EXPECT_THAT(same->wait(kLong).err, HasSubstr("because it ended in the same way after step 4 before"));
  const auto failed =
      over_ssh(shell({"--replace", "9"}, "made 4; [ $RANK != 3 ] || exit 3; exec sleep 1000"))->wait(kLong);
  EXPECT_EQ(failed.exit_code, 3);
  EXPECT_THAT(failed.err, Not(HasSubstr("replace")));
}

TEST_F(ReplaceOnHosts, ALostHostEndsAllRanks) {
  const auto command = over_ssh(shell({"--replace", "9"},
                                      "made 4; [ $RANK != 3 ] || echo $PPID > $F/guardian; meet begin; "
                                      "exec sleep 1000"));
  ASSERT_TRUE(command->wait_until([&] { return !file("guardian").empty() && has_file("begin-0"); }, kLong))
      << command->err();
  kill(agent_of(file("guardian")), SIGKILL);
  const auto result = command->wait(kLong);
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_THAT(result.err, HasSubstr("lost host 10.77.0.4: its connection was closed; its ranks are not replaced, "
                                    "because what they have kept is on that host; stopped the 3 other ranks"));
}

TEST_F(ReplaceOnHosts, ASpareStartsTheRanksOfALostHostWhileTheOthersRun) {
  const auto command =
      over_ssh(shell({"-n", "2", "--spares", "1", "--replace", "2"},
                     "made 4; echo $$ >> $F/pids-$RANK; [ $RANK != 3 ] || echo $PPID >> $F/guardian; echo from "
                     "$RANK.$YOKE_REPLACEMENT on node $GROUP_RANK, attempt $TORCHELASTIC_RESTART_COUNT, store "
                     "$MASTER_ADDR, copies $YOKE_STATE_COPIES; until [ -e $F/done ]; do sleep 0.05; done"));
  const auto has_all = [&] {
    for (int rank = 0; rank < 6; ++rank) {
      if (file(fmt("pids-%d", rank)).empty()) return false;
    }
    return !file("guardian").empty();
  };
  ASSERT_TRUE(command->wait_until(has_all, kLong)) << command->err();
  // clock: an agent looks once a second which ranks keep a state, and the spare's agent is there by then
  command->wait_until([] { return false; }, milliseconds(4000));
  kill(agent_of(file("guardian")), SIGKILL);
  ASSERT_TRUE(command->wait_until([&] { return command->out().find("from 3.2") != std::string::npos; }, kLong))
      << command->err();
  make_file("done");
  const auto result = command->wait(kLong);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("lost host 10.77.0.2: its connection was closed; the spare host 10.77.0.4 takes its "
                        "place, and starts ranks 2-3 again, replacements 1 to 2 of 2\n"));
  for (const auto& [text, copies] :
       {std::pair("[2] from 2.0", "1"), {"[3] from 3.0", "1"}, {"[2] from 2.1", "spare"}, {"[3] from 3.2", "spare"}}) {
    EXPECT_THAT(result.out, HasSubstr(std::string(text) + " on node 1, attempt 0, store 10.77.0.1, copies " + copies));
  }
  for (const int rank : {0, 1, 4, 5}) {
    const auto pids = file(fmt("pids-%d", rank));
    EXPECT_EQ(std::count(pids.begin(), pids.end(), '\n'), 1) << "rank " << rank << " has kept its process";
  }
}

/// As the reason says, also with a spare.
TEST_F(ReplaceOnHosts, ALostHostEndsAllRanksIfTheyCannotStartOnTheSpare) {
  struct Case {
    std::string options, script;
    int victim;
    std::string reason;
  };
  for (const auto& [replacements, script, victim, reason] :
       std::vector<Case>{{"1", "made 4; ", 3, "its ranks are not replaced, because only 1 of 1 replacements are left"},
                         {"9", "made 4; ", 0, "its ranks are not replaced, because the ranks' store was there, too"},
                         {"9", "", 3, "its ranks are not replaced, because they kept no state of a training then"}}) {
    std::filesystem::remove(folder_.path("guardian"));
    const auto command =
        over_ssh(shell({"-n", "2", "--spares", "1", "--replace", replacements},
                       script + fmt("[ $RANK != %d ] || echo $PPID > $F/guardian; meet '%s'; exec sleep 1000", victim,
                                    (script.substr(0, 4) + replacements + std::to_string(victim)).c_str())));
    ASSERT_TRUE(command->wait_until([&] { return !file("guardian").empty(); }, kLong)) << command->err();
    // clock: an agent looks once a second which ranks keep a state, and the spare's agent is there by then
    command->wait_until([] { return false; }, milliseconds(4000));
    kill(agent_of(file("guardian")), SIGKILL);
    const auto result = command->wait(kLong);
    EXPECT_EQ(result.exit_code, 75);
    EXPECT_THAT(result.err, HasSubstr(reason));
  }
}

TEST_F(ReplaceOnHosts, ALauncherThatWasStartedByHandStartsItsRankAgain) {
  std::vector<std::unique_ptr<Command>> nodes;
  for (int host = 0; host < kNumHosts; ++host) {
    nodes.push_back(join(host, shell({"--replace", "9", "--tee", "3", "--log-dir", folder_.path(fmt("logs-%d", host))},
                                     "made 4; echo from $RANK.$YOKE_REPLACEMENT; [ $YOKE_REPLACEMENT != 0 ] || { meet "
                                     "begin; [ $RANK != 2 ] || kill -KILL $$; }; meet end")));
  }
  for (const auto& node : nodes) EXPECT_EQ(node->wait(kLong).exit_code, 0) << node->err();
  EXPECT_THAT(nodes[0]->err(), HasSubstr(" was killed by SIGKILL; starting it again, replacement 1 of 9"))
      << "the head";
  EXPECT_EQ(nodes[2]->out(), "[2] from 2.0\n[2] from 2.1\n");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path("logs-2"))) {
    if (entry.path().filename() != "stdout.log") continue;
    EXPECT_EQ(slurp(entry.path()), "from 2.0\nfrom 2.1\n");
  }
}

/// Only the loss of a whole node changes the number of ranks.
TEST_F(ReplaceOnHosts, AnElasticJobReplacesRanksAndStartsAgainWithoutALostNode) {
  std::vector<std::unique_ptr<Command>> nodes;
  for (int host = 0; host < 3; ++host) {
    nodes.push_back(
        join(host,
             shell({"-n", "2", "--replace", "9", "--rdzv-conf", "last_call_timeout=60"},
                   "made 4; [ $YOKE_REPLACEMENT != 0 ] || meet $TORCHELASTIC_RESTART_COUNT; "
                   "echo rank $RANK.$YOKE_REPLACEMENT of $WORLD_SIZE, attempt $TORCHELASTIC_RESTART_COUNT; case "
                   "$YOKE_REPLACEMENT$RANK$TORCHELASTIC_RESTART_COUNT in 020 | 031) kill -KILL $$ ;; esac; "
                   "until [ -e $F/done ]; do sleep 0.05; done"),
             "1:3"));
  }
  const auto says = [](const std::unique_ptr<Command>& node, const char* text) {
    return node->wait_until([&] { return node->out().find(text) != std::string::npos; }, kLong);
  };
  ASSERT_TRUE(says(nodes[1], "rank 2.1 of 6, attempt 0")) << nodes[0]->err();
  nodes[2]->signal(SIGKILL);
  ASSERT_TRUE(says(nodes[1], "rank 3.2 of 4, attempt 1")) << nodes[0]->err();
  make_file("done");
  for (const int host : {0, 1}) EXPECT_EQ(nodes[static_cast<size_t>(host)]->wait(kLong).exit_code, 0);
  const auto log = nodes[0]->err();
  EXPECT_THAT(log, AllOf(HasSubstr("starting it again, replacement 1 of 9\n"),
                         HasSubstr("starting it again, replacement 2 of 9\n")));
  EXPECT_THAT(log, HasSubstr(": its connection was closed; its ranks are not replaced, because what they have kept is "
                             "on that host; stopped the 4 other ranks; starting all ranks again\n"));
}

/// It could take no place.
TEST_F(ReplaceOnHosts, ASpareWithAnotherNumberOfRanksIsRefused) {
  std::vector<std::unique_ptr<Command>> nodes;
  for (const int host : {0, 1, 3}) {
    nodes.push_back(join(host,
                         shell({"-n", host == 3 ? "3" : "2", "--spares", "1", "--replace", "9"},
                               "made 4; meet begin; until [ -e $F/done ]; do sleep 0.05; done"),
                         "3"));
  }
  // clock: in either order, the spare is refused when all hosts with ranks are there
  nodes[0]->wait_until([] { return false; }, milliseconds(500));
  nodes.push_back(join(2, shell({"-n", "2", "--spares", "1", "--replace", "9"}, "made 4; meet begin"), "3"));
  const auto refused = nodes[2]->wait(kLong);
  EXPECT_EQ(refused.exit_code, 77);
  const std::string why =
      "it has 3 ranks (-n), and a spare takes the place of a host with as many: the job's hosts have 2 each\n";
  EXPECT_THAT(refused.err, HasSubstr("the head node refuses this node: " + why));
  const auto late =
      join(3, shell({"-n", "1", "--spares", "1", "--replace", "9"}, "made 4; meet begin"), "3")->wait(kLong);
  EXPECT_EQ(late.exit_code, 77);
  EXPECT_THAT(late.err, HasSubstr("the head node refuses this node: it has 1 rank (-n), "));
  make_file("done");
  EXPECT_EQ(nodes[0]->wait(kLong).exit_code, 0) << nodes[0]->err();
  EXPECT_THAT(nodes[0]->err(), AllOf(HasSubstr(": " + why), HasSubstr(": it has 1 rank (-n), ")));
}

/// A new rank keeps its state in $TMPDIR.
TEST_F(ReplaceOnHosts, ASpareWithoutRoomIsPassedOver) {
  std::vector<std::unique_ptr<Command>> nodes;
  const auto full = folder_.path("full");
  std::filesystem::create_directory(full);
  for (int host = 0; host < kNumHosts; ++host) {
    const auto place = host == 2 ? full : folder_.path("tmp");
    std::vector<std::string> argv = {
        "sh", "-c", host == 2 ? "mount -t tmpfs -o size=64k none \"$TMPDIR\" && exec \"$@\"" : "exec \"$@\"", "sh"};
    const auto words = shell({"-n", "2", "--spares", "2", "--replace", "2"},
                             "made 4; echo from $RANK.$YOKE_REPLACEMENT in $TMPDIR; [ $YOKE_REPLACEMENT != 0 ] || "
                             "meet begin; until [ -e $F/done ]; do sleep 0.05; done");
    argv.insert(argv.end(), {kYoke, "run", "--nnodes", "2", "--rdzv-endpoint", Network::address(0) + ":29400",
                             "--node-rank", std::to_string(host)});
    argv.insert(argv.end(), words.begin(), words.end());
    auto how = options(network_->on(host, argv));
    how.environment.emplace_back("TMPDIR", place);
    nodes.push_back(std::make_unique<Command>(how));
    // The spare that came first is taken first.
    ASSERT_TRUE(nodes[0]->wait_until([&] { return host == 0 || num_connections(host) == 1; }, kLong));
  }
  // What the spare sees, whose mount no other process has.
  const auto seen = "/proc/" + std::to_string(nodes[2]->pid()) + "/root" + full;
  const auto is_ready = [&] { return has_file("begin-3") && !std::filesystem::is_empty(seen); };
  ASSERT_TRUE(nodes[0]->wait_until(is_ready, kLong)) << nodes[0]->err();
  // clock: a node looks once a second which ranks keep a state
  nodes[0]->wait_until([] { return false; }, milliseconds(4000));
  std::ofstream(seen + "/all", std::ios::binary) << std::string(65'536, 'x');
  nodes[1]->signal(SIGKILL);
  const auto on_the_other = [&] {
    return nodes[3]->out().find("from 3.2 in") != std::string::npos &&
           nodes[3]->out().find("from 2.1 in") != std::string::npos;
  };
  EXPECT_TRUE(nodes[3]->wait_until(on_the_other, kLong)) << nodes[0]->err();
  make_file("done");
  const auto result = nodes[0]->wait(kLong);
  EXPECT_EQ(result.exit_code, 0);
  const std::string why = "nothing can be written to " + full;
  EXPECT_THAT(result.err, AllOf(HasSubstr("replacements 1 to 2 of 2\nyoke run: the spare host "),
                                HasSubstr(" cannot start the ranks: " + why),
                                HasSubstr(" takes its place, and starts ranks 2-3 again, replacements 1 to 2 of 2\n")));
  const auto passed_over = nodes[2]->wait(kLong);
  EXPECT_EQ(passed_over.exit_code, 75);
  EXPECT_THAT(passed_over.err, HasSubstr(why));
  EXPECT_EQ(nodes[3]->wait(kLong).exit_code, 0);
}

TEST_F(ReplaceOnHosts, AListedSpareWithAnotherNumberOfRanksIsRefused) {
  const auto listed = [&](const std::string& hosts, const std::string& ranks) {
    return run(options({kYoke, "run", "--hosts", hosts, "-n", ranks, "--spares", "1", "--replace", "9", "--", "true"}));
  };
  const auto result = listed("a,b,c:4", "2");
  EXPECT_EQ(result.exit_code, 64);
  EXPECT_THAT(result.err,
              HasSubstr("--spares 1: the spare host c has 4 ranks (-n), and a spare takes the place of a host "
                        "with as many: the job's hosts have 2 each"));
  EXPECT_THAT(listed("a:2,b:4,c:3,d", "8").err,
              HasSubstr("the spare host d has 8 ranks (-n), and a spare takes the place of a "
                        "host with as many: the job's hosts have 2, 3 or 4"));
}

/// All ranks but one kill themselves at random moments. In the end all meet.
TEST_F(ReplaceOnHosts, ManyRandomKillsLeaveNothing) {
  const int kills = std::getenv("YOKE_LONG") != nullptr ? 300 : 40;
  const auto result =
      over_ssh(shell({"-n", "2", "--replace", std::to_string(kills + 100)},
                     "made $(($YOKE_REPLACEMENT % 200)); [ $YOKE_REPLACEMENT -lt " + std::to_string(kills) +
                         " ] || : > $F/calm; until [ -e $F/calm ]; do sleep 0.0$(shuf -i 0-9 -n 1); "
                         "[ $RANK = 5 ] || [ $(shuf -i 0-3 -n 1) != 0 ] || kill -KILL $$; done; meet end"))
          ->wait(kLong);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr(fmt("replacement %d of", kills)));
}

}  // namespace
}  // namespace yoke::test
