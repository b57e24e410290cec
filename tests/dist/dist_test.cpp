// Tests World with real processes, under every launcher that yoke supports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <optional>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "tests/support/command.h"
#include "yoke/base/error.h"

namespace yoke {
namespace {

using test::Command;
using test::milliseconds;
using test::run;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> under_yoke(std::initializer_list<std::string> rest, int num_ranks = 2) {
  std::vector<std::string> argv = {YOKE_COMMAND, "run", "-n", std::to_string(num_ranks), "--", YOKE_RANK_PROGRAM};
  argv.insert(argv.end(), rest);
  return argv;
}

int num_matches(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = 0; (at = text.find(word, at)) != text.npos; at += word.size()) ++count;
  return count;
}

TEST(Dist, RanksOfYokeRunMeet) {
  const auto result = run({.argv = under_yoke({"sum"}, 3)});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const int rank : {0, 1, 2}) {
    EXPECT_THAT(result.out, HasSubstr(fmt::format("rank {} of 3 local {} sum 6\n", rank, rank)));
  }
}

TEST(Dist, AloneItIsAWorldOfOne) {
  const auto result = run({.argv = {YOKE_RANK_PROGRAM, "sum"}, .without = {"RANK", "WORLD_SIZE"}});
  EXPECT_EQ(result.out, "rank 0 of 1 local 0 sum 1\n") << result.err;
}

TEST(Dist, TwoJobsAtOnceDoNotMeet) {
  Command first({.argv = under_yoke({"sum"})}), second({.argv = under_yoke({"sum"}, 3)});
  const auto results = {first.wait(), second.wait()};
  for (const auto& result : results) EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(results.begin()->out, HasSubstr("sum 3\n"));
  EXPECT_THAT((results.begin() + 1)->out, HasSubstr("sum 6\n"));
}

/// Serves a store in this process, as torchrun's agent does, and runs ranks as its clients, `per_node` on each node.
std::vector<test::Result> under_an_agent(int num_ranks, int per_node, const std::string& mode) {
  const auto store = c10::make_intrusive<c10d::TCPStore>(
      "127.0.0.1", c10d::TCPStoreOptions{.port = 0, .isServer = true, .waitWorkers = false});
  std::vector<std::unique_ptr<Command>> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    ranks.push_back(std::make_unique<Command>(
        test::CommandOptions{.argv = {YOKE_RANK_PROGRAM, mode},
                             .environment = {{"RANK", std::to_string(rank)},
                                             {"LOCAL_RANK", std::to_string(rank % per_node)},
                                             {"WORLD_SIZE", std::to_string(num_ranks)},
                                             {"LOCAL_WORLD_SIZE", std::to_string(per_node)},
                                             {"GROUP_RANK", std::to_string(rank / per_node)},
                                             {"GROUP_WORLD_SIZE", std::to_string(num_ranks / per_node)},
                                             {"MASTER_ADDR", "127.0.0.1"},
                                             {"MASTER_PORT", std::to_string(store->getPort())},
                                             {"TORCHELASTIC_USE_AGENT_STORE", "True"}}}));
  }
  std::vector<test::Result> results;
  for (const auto& rank : ranks) results.push_back(rank->wait());
  for (const auto& result : results) EXPECT_EQ(result.exit_code, 0) << result.err;
  return results;
}

// torchrun's agent serves the store, so rank 0 must not try to serve it.
TEST(Dist, RanksAreClientsOfAnAgentsStore) {
  for (const auto& result : under_an_agent(2, 2, "sum")) EXPECT_THAT(result.out, HasSubstr("sum 3\n"));
}

TEST(Dist, GroupsOfRanksMeet) {
  const auto result = run({.argv = under_yoke({"groups"}, 4)});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const auto* line : {"rank 0: shard 3 replicate 4 host 10", "rank 1: shard 3 replicate 6 host 10",
                           "rank 2: shard 7 replicate 4 host 10", "rank 3: shard 7 replicate 6 host 10"}) {
    EXPECT_THAT(result.out, HasSubstr(line));
  }
}

TEST(Dist, TheRanksOfAHostAreThoseOfItsNode) {
  const auto results = under_an_agent(4, 2, "groups");
  for (const size_t rank : {0, 1}) EXPECT_THAT(results[rank].out, HasSubstr("host 3\n"));
  for (const size_t rank : {2, 3}) EXPECT_THAT(results[rank].out, HasSubstr("host 7\n"));
}

TEST(Dist, ARankThatThrowsEndsTheJob) {
  const auto result = run({.argv = under_yoke({"throw", "1"})});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("no more rice"));
  EXPECT_THAT(result.err, HasSubstr("rank 1"));
}

TEST(Dist, ARankThatIsKilledEndsTheJob) {
  const auto result = run({.argv = under_yoke({"kill", "1"})});
  EXPECT_EQ(result.exit_code, 137);
  EXPECT_THAT(result.err, HasSubstr("rank 1"));
  EXPECT_THAT(result.err, HasSubstr("SIGKILL"));
}

// The others know that they wait for nothing as soon as the launcher tells them to end, and need not be killed.
TEST(Dist, RanksThatHeedSignalsDoNotOutlastTheEndOfAnother) {
  auto argv = under_yoke({"heeds", "2"}, 3);
  argv.insert(argv.begin() + 2, {"--grace", "2"});
  const auto result = run({.argv = argv});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("no more rice"), Not(HasSubstr("SIGKILL"))));
}

// The others would wait ten minutes for it.
TEST(Dist, ARankThatLeavesAfterTheLastCollectiveKeepsNobodyWaiting) {
  for (const auto* const memory : {"1", "0"}) {
    const auto result =
        run({.argv = under_yoke({"returns", "2", "600000"}, 3), .environment = {{"YOKE_SHARED_MEMORY", memory}}});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(num_matches(result.out, "has shut down"), 2) << result.err;
    EXPECT_EQ(num_matches(result.err, "rank 2 has ended without World::shutdown(), after the last collective"), 1)
        << result.err;
  }
  const auto result = run({.argv = under_yoke({"exits0", "0", "600000"}, 3)});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(num_matches(result.out, "has shut down"), 2) << result.err;
  EXPECT_EQ(num_matches(result.err, "rank 0 has ended without World::shutdown(), after the last collective"), 1)
      << result.err;
}

TEST(Dist, ARankThatFailsAfterTheLastCollectiveFailsTheJobAtOnce) {
  const auto result = run({.argv = under_yoke({"exits5", "1", "600000"}, 3)});
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("rank 1 (pid "), HasSubstr(") exited with code 5"), Not(HasSubstr("SIGKILL"))));
}

// It has the rank's connections and memory, but not the threads for which destructors would wait.
TEST(Dist, AProcessForkedFromARankMayEndAndTheRankGoesOn) {
  for (const auto* const memory : {"1", "0"}) {
    const auto result = run({.argv = under_yoke({"forks", "0"}, 3), .environment = {{"YOKE_SHARED_MEMORY", memory}}});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(num_matches(result.out, "child: this process was forked from a rank"), 1) << result.out;
    EXPECT_EQ(num_matches(result.out, "the child has ended with 0"), 1) << result.out << result.err;
    EXPECT_EQ(num_matches(result.out, "goes on: 6"), 3) << result.out << result.err;
    EXPECT_EQ(num_matches(result.err, "rank [0-9]+:"), 0) << result.err;
  }
}

// Rank 0 serves the store. When rank 0 ends, the other ranks fail too, because their connections break. The reported
// cause must be the failure of rank 0.
TEST(Dist, RankZerosFailureIsNotDrownedByItsEcho) {
  for (int i = 0; i < 3; ++i) {
    const auto result = run({.argv = under_yoke({"throw", "0"})});
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr("rank 0 (pid")) << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("frame #"))) << "libtorch's warning that the store is gone";
  }
}

TEST(Dist, CollectivesOfOtherSizesAreSaidToDiffer) {
  const auto result = run({.argv = under_yoke({"mismatch"})});
  EXPECT_EQ(result.exit_code, exit_status(ErrorCode::kFailedPrecondition)) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("rank 0 is at all_reduce of 4000 Float (collective 3), rank 1 is at all_reduce of 1 "));
}

// Gloo throws on its own thread, where yoke cannot catch the exception. The process must end with a message anyway.
TEST(Dist, GlooSaysItToo) {
  const auto result = run({.argv = under_yoke({"mismatch"}), .environment = {{"YOKE_SHARED_MEMORY", "0"}}});
  EXPECT_EQ(result.exit_code, exit_status(ErrorCode::kFailedPrecondition)) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("rank 0 is at all_reduce of 4000 Float (collective 3), rank 1 is at all_reduce of 1 "));
  EXPECT_THAT(result.err, Not(HasSubstr("terminate called")));
}

// The ranks end although their collectives, and so Gloo's threads, would wait for the whole timeout.
TEST(Dist, ACollectiveOfOneRankAloneEndsTheJobEarly) {
  const auto result = run({.argv = under_yoke({"alone", "600000"}, 3)});
  EXPECT_EQ(result.exit_code, exit_status(ErrorCode::kFailedPrecondition)) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rank 0 is at an exchange of texts (collective 2), ranks 1 and 2 are at all_reduce "
                                    "of 1 "));
  EXPECT_THAT(result.err, HasSubstr("`yoke stack`"));
}

// Nothing but the launcher's last line says then that the training was cut short.
TEST(Dist, AnErrorThatAllRanksHaveCaughtIsSaid) {
  const auto result = run({.argv = under_yoke({"caught"}, 3)});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("yoke run: ranks 0-2 ended with status 0, but their programs have caught an error, "
                                    "so the training may be incomplete; rank "));
  EXPECT_THAT(result.err, HasSubstr(": the ranks wait in different collectives: rank 0 is at an exchange of texts"));
  EXPECT_THAT(run({.argv = under_yoke({"sum"}, 2)}).err, Not(HasSubstr("ended with status 0")));
}

TEST(Dist, ARankThatHangsBeforeACollectiveIsNamed) {
  const auto result = run({.argv = under_yoke({"hang", "2", "15000"}, 3)});
  EXPECT_EQ(result.exit_code, exit_status(ErrorCode::kTimeout)) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rank 2 has not arrived (it is at collective 1)"));
  EXPECT_THAT(result.err, Not(HasSubstr("unexpected")));
}

// One rank gets the signal at an arbitrary moment. All ranks must stop at the same step.
TEST(Dist, RanksStopTogetherWhenOneIsTold) {
  for (const int number : {SIGTERM, SIGUSR1, SIGTERM, SIGUSR1}) {
    Command command({.argv = under_yoke({"steps"}, 3)});
    ASSERT_TRUE(command.wait_until([&] { return num_matches(command.out(), "stepping") == 3; })) << command.err();
    auto ranks = test::children_of(test::guardian_of(command.pid()).value());
    std::erase_if(ranks, [](pid_t pid) { return test::slurp(fmt::format("/proc/{}/comm", pid)) == "yoke-store\n"; });
    ASSERT_EQ(ranks.size(), 3U);
    kill(ranks[1], number);
    const auto result = command.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto at = result.out.find(" stopped at step ");
    ASSERT_NE(at, result.out.npos) << result.out;
    EXPECT_EQ(num_matches(result.out, result.out.substr(at, result.out.find('\n', at) + 1 - at)), 3) << result.out;
  }
}

TEST(Dist, AJobThatIsToldHasItsGrace) {
  Command command({.argv = under_yoke({"steps"})});
  ASSERT_TRUE(command.wait_until([&] { return num_matches(command.out(), "stepping") == 2; })) << command.err();
  command.signal(SIGTERM);
  const auto result = command.wait();
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_EQ(num_matches(result.out, " stopped at step "), 2) << result.out << result.err;
}

TEST(Dist, ARankThatHangsIsNamedByThoseWhoAskWhetherToStop) {
  const auto result = run({.argv = under_yoke({"no-step", "2", "15000"}, 3)});
  EXPECT_EQ(result.exit_code, exit_status(ErrorCode::kTimeout)) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rank 2 has not arrived"));
}

TEST(Dist, ARankThatNeverStartsIsNamed) {
  const auto result =
      run({.argv = {YOKE_RANK_PROGRAM, "sum", "700"},
           .environment = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "0"}}});
  EXPECT_EQ(result.exit_code, exit_status(ErrorCode::kInvalidArgument));
  EXPECT_THAT(result.err, HasSubstr("MASTER_PORT=0 is not a port"));
}

TEST(Dist, RanksOfMpirunMeet) {
  if (!std::filesystem::exists("/usr/bin/mpirun")) GTEST_SKIP() << "no mpirun (package openmpi-bin)";
  const auto result =
      run({.argv = {"/usr/bin/mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", YOKE_RANK_PROGRAM, "sum"},
           .without = {"RANK", "WORLD_SIZE"}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("rank 0 of 2 local 0 sum 3\n"));
  EXPECT_THAT(result.out, HasSubstr("rank 1 of 2 local 1 sum 3\n"));
}

// Two nodes of a real Slurm run on this host. Their names do not resolve here, so the test sets MASTER_ADDR, as a user
// would.
TEST(Dist, RanksOfSrunMeet) {
  for (const bool several_nodes : {false, true}) {
    test::CommandOptions options{.argv = {YOKE_SLURM_CLUSTER, "2", "srun", several_nodes ? "-N2" : "-N1", "-n2",
                                          "--overcommit", YOKE_RANK_PROGRAM, "sum"},
                                 .without = {"RANK", "WORLD_SIZE"}};
    if (several_nodes) options.environment = {{"MASTER_ADDR", "127.0.0.1"}};
    const auto result = run(options);
    if (result.exit_code == 125) GTEST_SKIP() << result.err;
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("rank 0 of 2 local 0 sum 3\n"));
    EXPECT_THAT(result.out, HasSubstr(several_nodes ? "rank 1 of 2 local 0 sum 3\n" : "rank 1 of 2 local 1 sum 3\n"));
  }
}

TEST(Dist, ThePlugComesBeforeLibtorchIsAsked) {
  const std::vector<std::pair<std::string, std::string>> fakes = {
      {"LD_LIBRARY_PATH", YOKE_FAKES_DIR},
      {"YOKE_FAKE_GPUS", "1"},
      {"YOKE_PLUG", YOKE_FAKES_DIR "/libyoke_fake_plug.so"}};
  const auto early = run({.argv = {YOKE_PLUG_PROGRAM}, .environment = fakes});
  EXPECT_EQ(early.out, "libtorch sees 1\nset_device 0\ndevice cuda:0\n") << early.err;

  // Loading the plug after the first backward is too late, because libtorch has already cached that there is no GPU.
  auto without_plug = fakes;
  without_plug.emplace_back("YOKE_DEVICE", "cpu");
  const auto late =
      run({.argv = {YOKE_PLUG_PROGRAM, "--late", YOKE_FAKES_DIR "/libyoke_fake_plug.so"}, .environment = without_plug});
  EXPECT_THAT(late.out, HasSubstr("libtorch sees 0\n")) << late.err;
}

/// Two ranks on the fake GPU, whose engines are those of the expressions.
test::Result run_with_engines(const std::string& of_rank_0, const std::string& of_rank_1) {
  const auto script = "export YOKE_FAKE_ENGINE; if [ $RANK = 0 ]; then YOKE_FAKE_ENGINE=" + of_rank_0 +
                      "; else YOKE_FAKE_ENGINE=" + of_rank_1 + "; fi; exec " YOKE_PLUG_PROGRAM;
  return run({.argv = {YOKE_COMMAND, "run", "-n", "2", "--no-prefix", "--", "sh", "-c", script},
              .environment = {{"LD_LIBRARY_PATH", YOKE_FAKES_DIR},
                              {"YOKE_FAKE_GPUS", "1"},
                              {"YOKE_PLUG", YOKE_FAKES_DIR "/libyoke_fake_plug.so"}}});
}

TEST(Dist, RanksWithDifferentEnginesOfNcclAreRefused) {
  const auto mixed = run_with_engines("nccl2", "nccl-legacy");
  for (const std::string rank : {"0", "1"}) {
    EXPECT_THAT(mixed.out, HasSubstr("error: rank " + rank +
                                     ": the ranks' collectives on GPUs have different engines, which do not understand "
                                     "each other: nccl-legacy on rank 1, nccl2 on rank 0; "))
        << mixed.err;
  }
  EXPECT_THAT(mixed.out, HasSubstr("TORCH_DIST_USE_NCCL2"));
}

TEST(Dist, TheEngineOfNcclIsSaidWhereTorchHasTwo) {
  const auto two = run_with_engines("nccl2", "nccl2");
  EXPECT_THAT(two.out, AllOf(HasSubstr("device cuda:0\n"), Not(HasSubstr("error"))));
  EXPECT_THAT(two.err, HasSubstr("rank 0: collectives on GPUs use nccl2, "));
  EXPECT_THAT(two.err, Not(HasSubstr("rank 1")));
  const auto one = run_with_engines("nccl", "nccl");
  EXPECT_THAT(one.out, AllOf(HasSubstr("device cuda:0\n"), Not(HasSubstr("error"))));
  EXPECT_THAT(one.err, Not(HasSubstr("collectives on GPUs")));
}

TEST(Dist, WithoutAGpuNoPlugIsLoaded) {
  const auto none = run({.argv = {YOKE_PLUG_PROGRAM},
                         .environment = {{"YOKE_FAKE_GPUS", "0"},
                                         {"LD_LIBRARY_PATH", YOKE_FAKES_DIR},
                                         {"YOKE_PLUG", YOKE_FAKES_DIR "/libyoke_fake_plug.so"}}});
  EXPECT_EQ(none.out, "libtorch sees 0\ndevice cpu\n") << none.err;
}

TEST(Dist, AGpuWithoutAPlugIsNotQuietlyTheCpu) {
  const auto missing =
      run({.argv = {YOKE_PLUG_PROGRAM},
           .environment = {
               {"YOKE_FAKE_GPUS", "1"}, {"LD_LIBRARY_PATH", YOKE_FAKES_DIR}, {"YOKE_PLUG", "/nonexistent/plug.so"}}});
  EXPECT_THAT(missing.out, HasSubstr("error: this machine has a GPU that yoke cannot use: /nonexistent/plug.so"));
  EXPECT_THAT(missing.out, HasSubstr("YOKE_DEVICE=cpu"));
}

/// Runs the program with the /sys of a LUMI-G node and with a /dev/kfd. Returns nullopt if this machine does not allow
/// mount namespaces.
std::optional<test::Result> run_on_lumi(std::vector<std::pair<std::string, std::string>> environment) {
  constexpr auto kMounts =
      "mount --rbind /dev /mnt && mount -t tmpfs none /dev && ln -s /mnt/urandom /dev/urandom && : > /dev/kfd && "
      "mount --bind $0/sys /sys || exit 77; exec $1";
  auto result = run({.argv = {"unshare", "-rm", "sh", "-c", kMounts, YOKE_FAKES_DIR "/sysfs/lumi-g", YOKE_PLUG_PROGRAM},
                     .environment = std::move(environment)});
  if (result.exit_code == 77 || result.err.find("unshare: ") != std::string::npos) return std::nullopt;
  return result;
}

TEST(Dist, AnAmdGpuIsNotQuietlyTheCpu) {
  const auto result = run_on_lumi({});
  if (!result) GTEST_SKIP() << "no mount namespaces";
  EXPECT_THAT(result->out, HasSubstr("error: this machine has a GPU that yoke cannot use: it is AMD's"));
  EXPECT_THAT(result->out, HasSubstr("install torch for ROCm"));
  EXPECT_THAT(result->out, HasSubstr("YOKE_DEVICE=cpu"));
}

TEST(Dist, AnAmdGpuHasItsPlugUnlessItIsHidden) {
  const std::pair<std::string, std::string> plug = {"YOKE_PLUG", YOKE_FAKES_DIR "/libyoke_fake_plug.so"};
  const auto loaded = run_on_lumi({plug});
  if (!loaded) GTEST_SKIP() << "no mount namespaces";
  EXPECT_EQ(loaded->out, "libtorch sees 1\nset_device 0\ndevice cuda:0\n") << loaded->err;
  EXPECT_EQ(run_on_lumi({plug, {"ROCR_VISIBLE_DEVICES", ""}})->out, "libtorch sees 0\ndevice cpu\n");
  EXPECT_EQ(run_on_lumi({plug, {"YOKE_DEVICE", "cpu"}})->out, "libtorch sees 0\ndevice cpu\n");
}

}  // namespace
}  // namespace yoke
