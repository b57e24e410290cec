// Tests allocations that are held: yoke alloc, run --in, exec, shell and stop, on a real Slurm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/support/slurm.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A cluster with a copy of yoke that every user can run.
class Alloc : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = SlurmCluster::why_not(); !reason.empty()) GTEST_SKIP() << reason;
    cluster_ = std::make_unique<SlurmCluster>(std::vector<std::string>{"--network", "--cpus", "8", "--gpus", "4", "3"});
    yoke_ = cluster_->folder() + "/bin/yoke";
    const auto copied = run({.argv = {"sh", "-c", "mkdir -p \"$0\" && cp \"$1\" \"$0/yoke\" && chmod -R a+rx \"$0\"",
                                      cluster_->folder() + "/bin", YOKE_COMMAND}});
    ASSERT_EQ(copied.exit_code, 0) << copied.err;
  }

  /// Runs a script of bash in the home of ada, or of another user, with yoke in PATH.
  Result shell(const std::string& script, const std::string& user = "ada") const {
    return cluster_->run({"bash", "-c", "cd; PATH=" + cluster_->folder() + "/bin:$PATH; " + script}, user);
  }
  std::string alloc(const std::string& options) const {
    const auto result = shell("yoke alloc --json --time 10m " + options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    if (result.exit_code != 0) return "";
    return nlohmann::json::parse(result.out).at("job");
  }
  bool wait_for(const std::string& script, const std::string& text, milliseconds limit = milliseconds(30'000)) const {
    return wait_until([&] { return shell(script).out.find(text) != std::string::npos; }, limit);
  }

  std::unique_ptr<SlurmCluster> cluster_;
  std::string yoke_;
};

TEST_F(Alloc, RunsOneJobAfterAnother) {
  const auto held = shell("yoke alloc -N 2 --gpus-per-node 2 -c 4 --time 10m --name debug --json");
  ASSERT_EQ(held.exit_code, 0) << held.err;
  const auto json = nlohmann::json::parse(held.out);
  const std::string job = json.at("job");
  EXPECT_EQ(json.at("nodes"), nlohmann::json::parse(R"([{"name": "n1", "gpus": 2, "cpus": 4},
                                                       {"name": "n2", "gpus": 2, "cpus": 4}])"));

  // The secret is in a file of the user alone, and on no command line; nor do ranks have it.
  const auto secret =
      shell("cd .local/state/yoke/alloc && sed -n 's/.*\"secret\": \"\\(..*\\)\".*/\\1/p' *.json | sort -u");
  ASSERT_EQ(secret.out.size(), 65u) << secret.out;
  EXPECT_EQ(shell("cat /proc/[0-9]*/cmdline | tr '\\0' ' '", "root").out.find(secret.out.substr(0, 64)),
            std::string::npos);
  EXPECT_EQ(
      cluster_->shell("stat -c %a " + cluster_->folder() + "/home/ada/.local/state/yoke/alloc/*.json | sort -u").out,
      "600\n");

  // A rank for each device, with the environment and the folder of the caller.
  const auto ranks = shell(
      "mkdir -p work; cd work; MINE='a b' CUDA_VISIBLE_DEVICES=7 yoke run --in debug -- sh -c "
      "'echo \"at $RANK/$WORLD_SIZE $LOCAL_RANK $(hostname) $CUDA_VISIBLE_DEVICES $MASTER_ADDR $MINE $(basename $PWD)"
      " $YOKE_ALLOC_SECRET.\"'");
  EXPECT_EQ(ranks.exit_code, 0) << ranks.err;
  EXPECT_THAT(ranks.out, AllOf(HasSubstr("[0] at 0/4 0 n1 0,1 10.77.0.11 a b work .\n"),
                               HasSubstr("[3] at 3/4 1 n2 0,1 10.77.0.11 a b work .\n")))
      << ranks.err;
  EXPECT_EQ(shell("yoke run --in " + job + " -n 1 sh -c 'exit $((RANK * 7))'").exit_code, 7);
  const auto restarted =
      shell("yoke run --in last -n 1 --max-restarts 1 sh -c 'test $TORCHELASTIC_RESTART_COUNT = 1 && echo again'");
  EXPECT_THAT(restarted.out, AllOf(HasSubstr("[0] again\n"), HasSubstr("[1] again\n"))) << restarted.err;
  EXPECT_EQ(shell("yoke run --in debug --nnodes 1 -n 1 hostname").out, "n1\n");

  // A command on each node; the highest status counts.
  const auto commands = shell("yoke exec --in debug -- sh -c 'hostname; echo bad >&2; exit $((3 * SLURM_NODEID))'");
  EXPECT_THAT(commands.out, AllOf(HasSubstr("[n1] n1\n"), HasSubstr("[n2] n2\n")));
  EXPECT_THAT(commands.err, AllOf(HasSubstr("[n1] bad\n"), HasSubstr("[n2] bad\n")));
  EXPECT_EQ(commands.exit_code, 3);
  EXPECT_EQ(shell("yoke exec --node n2 -- hostname").out, "n2\n");
  // A node whose name has several addresses is reached by the one that answers.
  const auto change = [&](const std::string& key, const std::string& from, const std::string& to) {
    const auto start = "\"" + key + "\": \"";
    shell("sed -i 's/" + start + from + "\"/" + start + to + "\"/' .local/state/yoke/alloc/*.json");
  };
  cluster_->shell("printf '127.0.0.9 both\\n10.77.0.11 both\\n' >> /etc/hosts");
  change("address", "10.77.0.11", "both");
  EXPECT_EQ(shell("yoke exec --node n1 -- hostname").out, "n1\n");
  change("address", "both", "10.77.0.11");
  EXPECT_EQ(shell("yoke exec --node n1 -- seq 400000 | (sleep 1; sha1sum)").out, shell("seq 400000 | sha1sum").out);
  // All output comes at once, with the end of the command, and its reader waits.
  EXPECT_EQ(
      // clock: the output is the same at any speed
      shell("burst() { (yoke exec --node n1 -- sh -c \"sleep 0.3; seq $1\" & sleep 0.2; kill -STOP $!; sleep 0.6; "
            "kill -CONT $!; wait $!) | (sleep 1; sha1sum >sum.$1); }; burst 40000 & burst 150000 & wait;"
            "for n in 40000 150000; do seq $n | sha1sum | cmp - sum.$n && echo same; done")
          .out,
      "same\nsame\n");
  // When the reader leaves, the command ends as in a pipe of one machine, and one that prints nothing more goes on.
  // Bytes of one node arrive as they are.
  EXPECT_EQ(shell("head -c 300000 /dev/urandom > bytes; yoke exec --node n1 -- cat bytes | cmp bytes -").exit_code, 0);
  EXPECT_EQ(shell("yoke exec --node n1 -- printf 'a\\rb\\r\\nc'").out, "a\rb\r\nc");
  EXPECT_EQ(shell("yoke exec --node n1 -- yes | head -n 1; echo ${PIPESTATUS[0]}").out, "y\n141\n");
  EXPECT_EQ(shell("yoke exec --node n1 -- sh -c 'echo a; echo b; sleep 1; touch done' | head -n 1; ls done").out,
            "a\ndone\n");
  const auto missing = shell("PATH=/usr/bin:/bin " + yoke_ + " exec -- no-such-program");
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_THAT(missing.err, HasSubstr("yoke exec: n2: no-such-program: No such file or directory"));
  EXPECT_THAT(shell("yoke exec --node n9 -- true").err, HasSubstr("n9 is no node of allocation"));
  EXPECT_EQ(shell("yoke exec --in -1 -- true").exit_code, 64);
  EXPECT_EQ(shell("echo 'hostname; echo $CUDA_VISIBLE_DEVICES' | yoke shell --in debug n2").out, "n2\n0,1\n");

  // All this took the one step of the agents, and the shell.
  std::string steps;
  EXPECT_TRUE(wait_until([&] {  // slurmctld lists the step of the shell until it knows of its end
    steps = shell("squeue -h -s -j " + job + " -o %i | grep -v batch").out;
    return steps == job + ".0\n";
  })) << steps;
  EXPECT_THAT(shell("yoke alloc --list").out, AllOf(HasSubstr("debug  held"), HasSubstr("n1, n2")));
  EXPECT_THAT(shell("yoke jobs").out, HasSubstr("allocation " + job + " (debug): n1, n2"));
  const auto allocations = nlohmann::json::parse(shell("yoke jobs --json").out).at("allocations");
  ASSERT_EQ(allocations.size(), 1u);
  EXPECT_EQ(allocations[0].at("job"), job);
  EXPECT_EQ(allocations[0].at("nodes"), json.at("nodes"));

  // Other users have nothing of it.
  const auto other = shell("yoke run --in " + job + " hostname", "bob");
  EXPECT_EQ(other.exit_code, 77);
  EXPECT_THAT(other.err, HasSubstr("job " + job + " belongs to ada"));
  EXPECT_EQ(shell("yoke alloc --list", "bob").out, "you hold no allocation\n");
  EXPECT_EQ(shell("yoke stop " + job, "bob").exit_code, 66);

  // Requests that do not start.
  const auto bounded = shell("yoke alloc -N 3 --wait 3s -- --exclusive");
  EXPECT_EQ(bounded.exit_code, 124) << bounded.err;
  EXPECT_THAT(bounded.err, AllOf(HasSubstr("waits until enough nodes or devices are free (Resources)"),
                                 HasSubstr("the request is cancelled")));
  const auto interrupted = shell(
      "set -m; yoke alloc -N 3 -- --exclusive 2>err & until grep -q waits err; do sleep 0.05; done; kill -INT $!; wait "
      "$!;"
      "echo $?; cat err");
  EXPECT_THAT(interrupted.out, AllOf(testing::StartsWith("130\n"), HasSubstr("is cancelled\n")));
  EXPECT_EQ(shell("squeue -h -o %i").out, job + "\n");
  const auto impossible = shell("yoke alloc -N 9");
  EXPECT_EQ(impossible.exit_code, 69);
  EXPECT_THAT(impossible.err, HasSubstr("sbatch refused the job: "));
  EXPECT_THAT(shell("yoke alloc --name debug").err, HasSubstr("you hold an allocation debug already"));
  // What nobody is told of is not held.
  const auto full = shell("yoke alloc -c 1 > /dev/full");
  EXPECT_EQ(full.exit_code, 75);
  EXPECT_THAT(full.err, HasSubstr("No space left on device; allocation"));
  EXPECT_THAT(shell("yoke alloc -c 1 | true; sleep 0.5; exit ${PIPESTATUS[0]}").err, HasSubstr("is given back"));
  EXPECT_TRUE(wait_until([&] { return shell("squeue -h -o %i").out == job + "\n"; }, milliseconds(60'000)));
  EXPECT_THAT(shell("yoke stop debag").err, HasSubstr("you hold no allocation debag either"));
  EXPECT_THAT(shell("yoke alloc --time 60").err, HasSubstr("give a time with its unit"));
  EXPECT_EQ(shell("yoke alloc --time=-5m").exit_code, 64);
  const auto unwritable = shell("ulimit -f 0; yoke alloc");
  EXPECT_EQ(unwritable.exit_code, 75);
  EXPECT_THAT(unwritable.err, HasSubstr("File too large"));
  EXPECT_EQ(shell("squeue -h -o %i; ls .local/state/yoke/alloc | grep -c request").out, job + "\n1\n");
  const auto absent = shell("yoke alloc --remote-yoke /no/yoke");
  EXPECT_THAT(absent.err, HasSubstr("not found on the node"));

  // Clusters may share a home. What belongs to another one is left alone, and its number means another job there.
  change("cluster", "yoke", "other");
  EXPECT_THAT(shell("yoke alloc --list").out, HasSubstr("elsewhere: of cluster other"));
  const auto foreign = shell("yoke stop debug");
  EXPECT_EQ(foreign.exit_code, 69);
  EXPECT_THAT(foreign.err, HasSubstr("is of cluster other, and the Slurm of this host is that of yoke"));
  EXPECT_EQ(shell("yoke run --in debug --nnodes 1 -n 1 hostname").out, "n1\n") << "its agents can be reached";
  change("cluster", "other", "yoke");
  EXPECT_THAT(shell("yoke alloc -- -M other").err, HasSubstr("-M cannot be used"));
  EXPECT_THAT(shell("yoke alloc -- --image x -a0-3").err, HasSubstr("-a cannot be used"));
  EXPECT_THAT(shell("yoke alloc -- --arr=0-3").err, HasSubstr("--arr cannot be used"));
  EXPECT_EQ(shell("PATH=/none " + yoke_ + " alloc").exit_code, 66);
  EXPECT_EQ(shell("yoke run --in debug --ssh ssh true").exit_code, 64);
  EXPECT_EQ(shell("yoke run --in debug --remote-yoke /x true").exit_code, 64);
  EXPECT_THAT(shell("yoke stop --now debug").err, HasSubstr("--now is for a job"));

  // A record of another cluster, and one that outlived its job, do not keep the user from naming this allocation.
  const auto copy_as = [&](const std::string& name, const std::string& edit) {
    shell("cd .local/state/yoke/alloc; umask 077; cat $(ls *.json | grep -v request | head -1) | sed '" + edit +
          "' > " + name + ".json");
  };
  copy_as("foreign", "s/\"cluster\": \"yoke\"/\"cluster\": \"other\"/");
  copy_as("stale", "s/\"job\": \"" + job + "\"/\"job\": \"99999\"/");
  EXPECT_THAT(shell("yoke run --in last --nnodes 1 -n 1 hostname").out, "n1\n");
  EXPECT_EQ(shell("ls .local/state/yoke/alloc/stale.json").out, "") << "Slurm does not know its job";

  const auto stopped = shell("yoke stop " + job);
  EXPECT_EQ(stopped.out, "allocation " + job + " is given back\n") << stopped.err;
  EXPECT_EQ(shell("squeue -h; cd .local/state/yoke/alloc; rm foreign.json; ls").out, "");
  EXPECT_THAT(shell("yoke run --in debug true").err, HasSubstr("you hold no allocation debug"));
  EXPECT_TRUE(
      wait_until([&] { return cluster_->shell("ps -eo args | grep '[a]gent --'").out.empty(); }, milliseconds(90'000)));
}

TEST_F(Alloc, RefusesStrangers) {
  const auto job = alloc("-N 2 --name a");
  const auto port = shell("sed -n 's/.*\"port\": \\(.*\\),.*/\\1/p' .local/state/yoke/alloc/*.json | head -1").out;
  const std::string python =
      "import socket, sys, time\n"
      "held = [socket.create_connection(('10.77.0.11', int(sys.argv[1]))) for _ in range(200)]\n"
      "for text in (b'GET / HTTP/1.0\\r\\n\\r\\n', b'\\0' * 4096, b'yoke/1 agent\\n' + b'x' * 64):\n"
      "    one = socket.create_connection(('10.77.0.11', int(sys.argv[1])))\n"
      "    one.sendall(text)\n"
      "    one.settimeout(20)\n"
      "    said = b''\n"
      "    try:\n"
      "        while more := one.recv(4096): said += more\n"
      "    except ConnectionError: pass\n"
      "    print('refused' if said in (b'', ) or said.startswith(b'yoke/1 head\\n') and len(said) <= 45 else said, "
      "flush=True)\n"
      "time.sleep(60)\n";
  Command stranger({.argv = cluster_->in({"python3", "-c", python, port.substr(0, port.find('\n'))}, "bob")});
  ASSERT_TRUE(stranger.wait_for_output("refused\nrefused\nrefused\n")) << stranger.out() << stranger.err();
  // 200 connections are held open, and the owner still comes in.
  const auto owners = shell("yoke run --in a -n 1 hostname");
  EXPECT_THAT(owners.out, AllOf(HasSubstr("[0] n1\n"), HasSubstr("[1] n2\n"))) << owners.err;

  // A file that others may read, or with another secret, is not used.
  const std::string file = "$(ls .local/state/yoke/alloc/*.json | grep -v request)";
  EXPECT_EQ(shell("sed -i 's/\"secret\": \"..../\"secret\": \"zzzz/' " + file).exit_code, 0);
  const auto wrong = shell("yoke run --in a -n 1 hostname");
  EXPECT_THAT(wrong.err, HasSubstr("does not know the secret of the allocation")) << wrong.out;
  EXPECT_THAT(wrong.out, HasSubstr("[1] n2\n")) << "by srun";
  // Another job: srun starts the ranks, which find each other.
  EXPECT_EQ(shell("yoke stop last").out, "allocation " + job + " is given back\n");
  const auto batch = shell("sbatch --parsable -N 2 -o /dev/null --wrap 'sleep 100'").out;
  const auto other = batch.substr(0, batch.find('\n'));
  EXPECT_TRUE(wait_for("squeue -h -t R -o %i", other));
  const auto by_srun = shell("yoke run --in " + other + " -n 1 sh -c 'echo $MASTER_ADDR'");
  EXPECT_THAT(by_srun.out, AllOf(HasSubstr("[0] n1\n"), HasSubstr("[1] n1\n"))) << by_srun.err;
}

TEST_F(Alloc, SaysHowItEnded) {
  // Cancelled while a job is in it.
  auto job = alloc("-N 2 --name a");
  Command running(
      {.argv = cluster_->in({"bash", "-c", yoke_ + " run --in a -n 1 sh -c 'echo up; sleep 1000'"}, "ada")});
  ASSERT_TRUE(running.wait_for_output("[1] up\n")) << running.err();
  shell("scancel " + job);
  const auto cancelled = running.wait();
  EXPECT_NE(cancelled.exit_code, 0);
  EXPECT_THAT(cancelled.err, HasSubstr("allocation " + job + " has ended: it was released or cancelled"));

  // Its keeper is killed: Slurm ends the job, no agent stays, and the name is free although files are left.
  job = alloc("-N 1 --name b");
  Command kept({.argv = cluster_->in({"bash", "-c", yoke_ + " run --in b -n 1 sh -c 'echo up; sleep 1000'"}, "ada")});
  ASSERT_TRUE(kept.wait_for_output("up\n")) << kept.err();
  cluster_->shell("kill -9 $(pgrep -xf '[^ ]*yoke agent --keep')");
  const auto unkept = kept.wait();
  EXPECT_NE(unkept.exit_code, 0);
  EXPECT_THAT(unkept.err, HasSubstr("allocation " + job + " has ended: signal 9 ended the program that holds it"));
  EXPECT_TRUE(wait_until([&] { return shell("squeue -h").out.empty(); }, milliseconds(90'000)));
  EXPECT_TRUE(
      wait_until([&] { return cluster_->shell("ps -eo args | grep '[a]gent --'").out.empty(); }, milliseconds(90'000)));
  job = alloc("-N 1 --name b");
  EXPECT_THAT(shell("yoke alloc --name b").err, HasSubstr("(job " + job + ": held)"));

  // The time limit comes while the rest of this test goes on, because slurmctld looks at limits every 30 s.
  const auto timed = job;
  Command limited(
      {.argv = cluster_->in({"bash", "-c", yoke_ + " run --in b -n 1 sh -c 'echo up; sleep 1000'"}, "ada")});
  ASSERT_TRUE(limited.wait_for_output("up\n")) << limited.err();
  const auto limit = shell("scontrol update jobid=" + timed + " endtime=$(date -d '+1 second' +%FT%T)", "root");
  EXPECT_EQ(limit.exit_code, 0) << limit.err;

  // Of several requests at once with one name, one is held.
  const auto same = shell("for i in 1 2 3; do yoke alloc -c 1 --time 10m --name same >/dev/null & done; wait");
  EXPECT_THAT(same.err, HasSubstr("you hold an allocation same already"));
  EXPECT_EQ(shell("yoke stop same").exit_code, 0) << "it is the only one";

  // A resident agent is killed: jobs end with the reason, and the keeper starts all agents again.
  job = alloc("-N 2 --name c");
  Command command({.argv = cluster_->in({"bash", "-c", yoke_ + " exec --in c -- sh -c 'echo up; sleep 1000'"}, "ada")});
  ASSERT_TRUE(command.wait_for_output("[n2] up\n")) << command.err();
  // The newest, by its start: the allocation b has one, too, and numbers of processes begin again at 1.
  cluster_->shell("kill -9 $(pgrep -n -xf '[^ ]*yoke agent --resident')");
  const auto lost_agent = command.wait();
  EXPECT_EQ(lost_agent.exit_code, 75);
  EXPECT_THAT(lost_agent.err, HasSubstr("received SIGTERM, as when Slurm ends the step"));
  EXPECT_TRUE(wait_for("yoke run --in c -n 1 hostname 2>&1", "[1] n2\n"));
  // The step's srun is killed: the agents of that step do not stay beside the new ones.
  const auto steps = "squeue -h -s -j " + job + " -o '%i|%j' | grep yoke-agents";
  const auto before = shell(steps).out;
  cluster_->shell("kill -9 $(pgrep -f '^srun --jobid=" + job + " ')");
  EXPECT_TRUE(wait_until([&] {
    const auto now = shell(steps).out;
    return now != before && std::ranges::count(now, '\n') == 1;
  })) << before
      << shell(steps).out;
  EXPECT_TRUE(wait_for("yoke run --in c -n 1 hostname 2>&1", "[1] n2\n"));

  // Without slurmctld, jobs still start, and the rest says what is wrong.
  cluster_->kill_daemon("slurmctld");
  EXPECT_THAT(shell("yoke run --in c -n 1 hostname").out, HasSubstr("[1] n2\n"));
  EXPECT_THAT(shell("yoke alloc --list").out, HasSubstr("unknown: scontrol cannot reach slurmctld"));
  const auto refused = shell("yoke stop c");
  EXPECT_EQ(refused.exit_code, 75);
  EXPECT_THAT(refused.err, HasSubstr("slurmctld"));
  cluster_->shell("slurmctld");
  EXPECT_TRUE(wait_for("yoke stop c 2>&1", "is given back"));
  // Nodes are down for the new slurmctld until they register.
  ASSERT_TRUE(wait_for("sinfo -h -N -o %T | grep -qE 'down|unk|[*]' || echo all are up", "all are up"))
      << shell("sinfo -N -l").out;

  // A node is cut off: the job says which one, and later Slurm ends the allocation.
  // On a busy machine, a slurmctld that has just started has cancelled one, so it is asked for again.
  ASSERT_TRUE(wait_until([&] {
    const auto result = shell("yoke alloc --json --time 10m -N 2 --name d");
    if (result.exit_code == 0) job = nlohmann::json::parse(result.out).at("job");
    return result.exit_code == 0;
  }));
  Command lost(
      {.argv = cluster_->in(
           {"bash", "-c", yoke_ + " run --in d -n 1 --heartbeat-timeout 2 sh -c 'echo up; sleep 1000'"}, "ada")});
  ASSERT_TRUE(lost.wait_for_output("[1] up\n")) << lost.err();
  cluster_->cut(2);
  const auto after = lost.wait();
  EXPECT_NE(after.exit_code, 0);
  EXPECT_THAT(after.err, HasSubstr("n2"));
  EXPECT_TRUE(wait_for("yoke run --in d -n 1 true 2>&1", "a node of it has failed", milliseconds(150'000)));

  const auto at_limit = limited.wait();
  EXPECT_NE(at_limit.exit_code, 0);
  EXPECT_THAT(at_limit.err, HasSubstr("allocation " + timed + " has ended: its time limit was reached"));
  EXPECT_THAT(shell("yoke run --in b true").err, HasSubstr("allocation"));
  // What was said stays when slurmctld has forgotten the job.
  const auto log = ".local/state/yoke/alloc/" + timed + ".yoke.log";
  EXPECT_THAT(shell("cat " + log).out, HasSubstr("the allocation ends: its time limit was reached"));
  EXPECT_THAT(at_limit.err + shell("yoke run --in " + timed + " true").err, HasSubstr(log));
}

}  // namespace
}  // namespace yoke::test
