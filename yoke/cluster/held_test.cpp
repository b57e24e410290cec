// Tests held.h, open.h and request.h. Programs with fixed answers stand in for Slurm's: a real one cannot be told when
// to let a job wait, start or end. tests/slurm/alloc_test.cpp has a real one.
#include "yoke/cluster/held.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tests/support/command.h"
#include "tests/support/forked_process.h"
#include "tests/support/message_of.h"
#include "yoke/base/file.h"
#include "yoke/base/process.h"
#include "yoke/cluster/reach.h"
#include "yoke/cluster/request.h"
#include "yoke/device/process/info.h"

namespace yoke::cluster {
namespace {

using test::message_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class HeldAllocations : public testing::Test {
 protected:
  HeldAllocations() {
    setenv("PATH", environment_.value_or("PATH", "").c_str(), 1);  // where this process finds programs
    // What scontrol 22.05 says.
    make("scontrol", R"([ "$1" != ping ] || exit 0
if [ "$2" = config ]; then echo "ClusterName             = here"; exit 0; fi
cat ")" + folder_.path() +
                         R"(/job.$3" 2>/dev/null && exit 0
echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1)");
    make("scancel", "exit 0");
    make("squeue", "echo '7|10'; echo '8|20'");
    make("sbatch", "echo 7");
  }

  ~HeldAllocations() override { setenv("PATH", path_before_.c_str(), 1); }

  /// Makes a program that notes its words in calls, and runs `script`.
  void make(const std::string& program, const std::string& script) const {
    folder_.write("bin/" + program, "#!/bin/sh\necho \"${0##*/} $*\" >>" + folder_.path("calls") + "\n" + script + "\n",
                  true);
  }
  void set_job(const std::string& id, const std::string& state, const std::string& more = "") const {
    folder_.write("job." + id, "JobId=" + id + " JobName=held\n   JobState=" + state +
                                   " Dependency=(null)\n   Partition=main\n   NodeList=n[1-2]\n" + more);
  }
  Allocation add(const std::string& job, const std::string& name = "", const std::string& cluster = "here") const {
    Allocation allocation{.job = job, .name = name, .secret = "", .yoke = "yoke", .nodes = {}, .cluster = cluster};
    allocation.file = new_allocation_file(environment_);
    write_allocation(allocation);
    return allocation;
  }
  /// Nothing listens at port 1.
  void add_with_agents(const std::string& job) const {
    auto allocation = add(job);
    allocation.nodes = {{"n1", "127.0.0.1", 1, 1, 8}};
    write_allocation(allocation);
  }
  std::vector<std::string> states() const {
    std::vector<std::string> result;
    for (const auto& [allocation, state, reason] : held_allocations(environment_)) {
      result.push_back(allocation.job + " " + state + (reason.empty() ? "" : ": " + reason));
    }
    return result;
  }
  bool is_cancelled(const std::string& job) const {
    return read_file(folder_.path("calls")).find("scancel " + job + "\n") != std::string::npos;
  }
  size_t num_files() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(allocation_folder(environment_)))
      ++count;
    return count;
  }

  const std::string path_before_ = std::getenv("PATH");
  test::TemporaryFolder folder_;
  const Environment environment_ = {{"PATH", folder_.path("bin") + ":/usr/bin:/bin"},
                                    {"HOME", folder_.path()},
                                    {"XDG_STATE_HOME", folder_.path("state")}};
};

TEST_F(HeldAllocations, AreListedWithWhatSlurmSays) {
  for (const auto* job : {"7", "8", "9", "10"}) add(job);
  add("11", "", "other");
  set_job("7", "RUNNING Reason=None");
  set_job("8", "PENDING Reason=BeginTime");
  set_job("9", "COMPLETING Reason=None");
  EXPECT_THAT(states(), ElementsAre("7 held", StartsWith("8 waiting: "), "9 ending", "11 elsewhere: of cluster other"));
  EXPECT_EQ(list_allocations(environment_).size(), 4U) << "job 10 has ended";
}

TEST_F(HeldAllocations, ASilentSlurmIsAskedOnce) {
  add("7");
  add("8");
  make("scontrol", "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1");
  EXPECT_THAT(states(), ElementsAre(StartsWith("7 unknown: "), StartsWith("8 unknown: ")));
  EXPECT_EQ(read_file(folder_.path("calls")), "scontrol show config\n");
}

TEST_F(HeldAllocations, AreChosenByNameAmongThoseThatLive) {
  add("7", "debug");
  add("8", "debug");
  set_job("8", "RUNNING Reason=None");
  EXPECT_EQ(choose_held("debug", environment_).job, "8");
  EXPECT_THAT(message_of([&] { find_allocation("-x", "yoke", environment_); }), StartsWith("--in -x: give a job's id"));
  set_job("8", "PENDING Reason=BeginTime");
  EXPECT_THAT(message_of([&] { find_allocation("8", "yoke", environment_); }, ErrorCode::kUnavailable),
              StartsWith("allocation 8 has not started: "));
  EXPECT_THAT(message_of([&] { find_allocation("12", "yoke", environment_); }, ErrorCode::kNotFound),
              StartsWith("you hold no allocation 12, and Slurm knows no such job"));
}

TEST_F(HeldAllocations, WithoutAgentsAreUsedBySrun) {
  add("7");
  set_job("7", "RUNNING Reason=None");
  auto open = open_allocation("last", "yoke", environment_);
  EXPECT_EQ(open.transport, Transport::kSrun);
  EXPECT_EQ(open.note, "") << "there are no agents that could be missed";
  const auto hosts = open.take_hosts({"n2"});
  ASSERT_EQ(hosts.size(), 1U);
  EXPECT_EQ(hosts[0].name, "n2");
}

TEST_F(HeldAllocations, WhoseAgentsDoNotAnswerAreUsedBySrun) {
  add_with_agents("7");
  set_job("7", "RUNNING Reason=None");
  make("srun", "echo \"label ${SLURM_LABELIO:-none}\"");
  auto open = open_allocation("7", "yoke", environment_);
  EXPECT_EQ(open.transport, Transport::kSrun);
  EXPECT_THAT(open.note, StartsWith("the agents in allocation 7 cannot be reached from here (Connection refused)"));
  const auto hosts = open.take_hosts();
  ASSERT_EQ(hosts.size(), 2U) << "Slurm says which nodes there are";
  setenv("SLURM_LABELIO", "1", 1);
  const auto agent = hosts[1].start_agent();
  unsetenv("SLURM_LABELIO");
  EXPECT_EQ(test::read_to_end(agent.out.value()), "label none\n") << "labels would change what agents say";
  EXPECT_EQ(wait_for_child(agent.pid), 0);
  EXPECT_THAT(read_file(folder_.path("calls")), HasSubstr("srun --jobid=7 --overlap --nodes=1 --ntasks=1 --quiet "
                                                          "--nodelist=n2 "));
}

TEST_F(HeldAllocations, WhoseAgentsDoNotAnswerMayHaveEnded) {
  add_with_agents("7");
  set_job("7", "CANCELLED Reason=None");
  EXPECT_THAT(message_of([&] { open_allocation("7", "yoke", environment_); }, ErrorCode::kNotFound),
              StartsWith("allocation 7 has ended: it was released or cancelled"));
  EXPECT_EQ(num_files(), 0U);
  add_with_agents("8");
  make("scontrol", "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1");
  EXPECT_THAT(
      message_of([&] { open_allocation("8", "yoke", environment_); }, ErrorCode::kUnavailable),
      StartsWith("the nodes of allocation 8 do not answer (Connection refused), and scontrol cannot reach slurmctld"));
  EXPECT_EQ(num_files(), 1U) << "it may still be held";
}

TEST_F(HeldAllocations, JobsThatYokeDidNotMakeAreUsedIfTheyAreTheUsers) {
  set_job("20", "RUNNING Reason=None", "   UserId=nobody-else(7002)\n");
  EXPECT_EQ(message_of([&] { find_allocation("20", "yoke", environment_); }, ErrorCode::kPermissionDenied),
            "job 20 belongs to nobody-else; only that user can start programs in it");
  set_job("20", "RUNNING Reason=None", "   UserId=" + device::user_name(geteuid()) + "(7001)\n");
  const auto found = find_allocation("20", "/opt/yoke", environment_);
  EXPECT_EQ(found.yoke, "/opt/yoke");
  ASSERT_EQ(found.nodes.size(), 2U);
  EXPECT_EQ(found.nodes[1].name, "n2");
}

TEST_F(HeldAllocations, OfOtherClustersAreNotMeant) {
  add("7", "debug");
  add("8", "debug", "other");
  set_job("7", "RUNNING Reason=None");
  set_job("8", "RUNNING Reason=None");  // a job of this cluster that has the same number
  EXPECT_EQ(choose_held("debug", environment_).job, "7");
  EXPECT_THAT(message_of([&] { find_allocation("8", "yoke", environment_); }, ErrorCode::kFailedPrecondition),
              AllOf(StartsWith("allocation 8 is of cluster other"), HasSubstr("that of here")));
  EXPECT_EQ(num_files(), 2U);
}

TEST_F(HeldAllocations, AreCancelledUnlessTheyHaveEnded) {
  make("scancel", "echo 'scancel: error: Kill job error on job id 7: Invalid job id specified' >&2; exit 1");
  EXPECT_NO_THROW(cancel_job("7", environment_));
  make("scancel", "echo 'scancel: error: Kill job error on job id 7: Access/permission denied' >&2; exit 1");
  const auto held = add("7");
  EXPECT_THAT(test::error_of([&] { release_allocation(held, {}, environment_); }).what(),
              HasSubstr("Access/permission denied"));
  EXPECT_EQ(num_files(), 1U) << "it is still held";
}

TEST_F(HeldAllocations, AreJsonWithNullForWhatIsUnknown) {
  EXPECT_EQ(to_json(Allocation{.job = "7"}).dump(), R"({"job":"7","name":null,"until":null,"nodes":[]})");
  EXPECT_EQ(
      to_json(Allocation{.job = "7", .name = "a", .secret = "s", .nodes = {{"n1", "a", 1, 2, 8}}, .until = 9}).dump(),
      R"({"job":"7","name":"a","until":9,"nodes":[{"name":"n1","gpus":2,"cpus":8}]})");
}

TEST_F(HeldAllocations, AreReleasedWhenSlurmHasEndedThem) {
  const auto held = add("7");
  set_job("7", "COMPLETING Reason=None");
  EXPECT_THAT(message_of([&] { release_allocation(held, {}, environment_); }, ErrorCode::kTimeout),
              HasSubstr("Slurm still waits for processes on its nodes (COMPLETING)"));
  EXPECT_EQ(num_files(), 1U);
  set_job("7", "COMPLETED Reason=None");
  release_allocation(held, {}, environment_);
  EXPECT_TRUE(is_cancelled("7"));
  EXPECT_EQ(num_files(), 0U);
  EXPECT_THAT(
      message_of([&] { release_allocation(add("8", "", "other"), {}, environment_); }, ErrorCode::kFailedPrecondition),
      StartsWith("allocation 8 is of cluster other"));
}

TEST_F(HeldAllocations, TellWhyTheyHaveEnded) {
  set_job("7", "RUNNING Reason=None");
  EXPECT_EQ(end_of_allocation("7", false, environment_), std::nullopt);
  EXPECT_EQ(end_of_allocation("8", false, environment_), "Slurm does not know it any more");
  set_job("7", "TIMEOUT Reason=TimeLimit");
  EXPECT_THAT(end_of_allocation("7", false, environment_).value_or(""), HasSubstr("(TIMEOUT)"));
  const auto held = add("7");
  folder_.write("state/yoke/alloc/" + log_file(held.file).filename().string(), "srun: error: n2\n");
  end_allocation(held);
  EXPECT_THAT(end_of_allocation("7", false, environment_).value_or(""),
              AllOf(HasSubstr("; what its keeper and srun said is in "), EndsWith("/7.here.log")));
  make("scontrol", "echo 'Slurmctld(primary) at here is DOWN'; exit 1");
  EXPECT_EQ(end_of_allocation("7", true, environment_), std::nullopt);
}

TEST_F(HeldAllocations, WhoseNodesAreLostAreAskedForUntilSlurmKnows) {
  make("scontrol", "[ \"$1\" != ping ] || exit 0\ncd '" + folder_.path() +
                       "'; cat job.7; mv job.then job.7 2>&-; mv job.later job.then 2>&-; exit 0");
  set_job("7", "FAILED ExitCode=0:9 Reason=None");
  std::filesystem::rename(folder_.path("job.7"), folder_.path("job.later"));
  set_job("7", "COMPLETING Reason=None");
  std::filesystem::rename(folder_.path("job.7"), folder_.path("job.then"));
  set_job("7", "RUNNING Reason=None");
  EXPECT_EQ(end_of_allocation("7", true, environment_), "signal 9 ended the program that holds it (FAILED)");
}

class RequestedAllocations : public HeldAllocations {
 protected:
  RequestOptions request(const std::string& name = "") {
    RequestOptions options{.yoke = "/opt/yoke",
                           .tell = [this](Told /*what*/, const std::string& text) { news_.push_back(text); }};
    options.request.name = name;
    return options;
  }

  std::vector<std::string> news_;
};

TEST_F(RequestedAllocations, AreHeldWhenTheirKeeperTellsTheNodes) {
  const Allocation held{
      .job = "7", .name = "", .secret = "s", .yoke = "/opt/yoke", .nodes = {{"n1", "n1", 4711, 1, 8}}};
  folder_.write("held", to_text(held));
  make("sbatch", "umask 077; cat " + folder_.path("held") + " >\"$YOKE_ALLOC_FILE\"; echo 7");
  RequestedAllocation requested(request(), environment_);
  const auto allocation = requested.wait();
  ASSERT_TRUE(allocation);
  EXPECT_EQ(allocation->job, "7");
  EXPECT_EQ(allocation->nodes, held.nodes);
  EXPECT_THAT(news_, IsEmpty());
  EXPECT_THAT(read_file(folder_.path("calls")), HasSubstr("--wrap=exec '/opt/yoke' 'agent' '--keep'"));
  EXPECT_FALSE(is_cancelled("7"));
}

TEST_F(RequestedAllocations, ASignalCancelsThem) {
  RequestedAllocation requested(request(), environment_);
  raise(SIGTERM);
  EXPECT_FALSE(requested.wait());
  EXPECT_EQ(requested.signal(), SIGTERM);
  EXPECT_THAT(news_, ElementsAre("request 7 is cancelled"));
  EXPECT_TRUE(is_cancelled("7"));
  EXPECT_EQ(num_files(), 0U);
}

TEST_F(RequestedAllocations, TellWhyTheyWait) {
  set_job("7", "PENDING Reason=Priority", "   StartTime=4000000000 EndTime=4000003600\n");
  auto options = request();
  options.tell = [this](Told /*what*/, const std::string& text) {
    news_.push_back(text);
    raise(SIGTERM);
  };
  RequestedAllocation requested(options, environment_);
  EXPECT_FALSE(requested.wait());
  EXPECT_EQ(requested.signal(), SIGTERM);
  ASSERT_FALSE(news_.empty());
  EXPECT_THAT(news_[0], AllOf(StartsWith("allocation 7 waits: "), HasSubstr("; 1 job with a higher priority waits in "),
                              HasSubstr("; Slurm expects its start at ")));
}

TEST_F(RequestedAllocations, LeaveNothingIfTheyDoNotStart) {
  auto impatient = request();
  impatient.limit = std::chrono::seconds(0);
  EXPECT_THAT(message_of([&] { RequestedAllocation(impatient, environment_).wait(); }, ErrorCode::kTimeout),
              AllOf(StartsWith("allocation 7 did not start within "), HasSubstr("the request is cancelled")));
  EXPECT_TRUE(is_cancelled("7"));
  make("sbatch", "for i in 1 2 3 4 5 6 7; do echo \"line $i\"; done >\"${YOKE_ALLOC_FILE%.json}.log\"; echo 7");
  EXPECT_THAT(
      message_of([&] { RequestedAllocation(request(), environment_).wait(); }, ErrorCode::kFailedPrecondition),
      AllOf(StartsWith("allocation 7 has ended before it could be used: Slurm does not know it any more; what "),
            EndsWith("/7.here.log\n  line 3\n  line 4\n  line 5\n  line 6\n  line 7")));
  EXPECT_EQ(num_files(), 1U) << "the log";
}

TEST_F(RequestedAllocations, WhoseKeeperTellsNonsenseAreCancelled) {
  for (const auto& [umask, text, why] :
       {std::tuple("077", "{\"format\": 2}", "it is of another version of yoke; request 7 is cancelled"),
        std::tuple("077", "[", "it does not describe an allocation"),
        std::tuple("022", "{}", "it must be yours and readable by nobody else")}) {
    make("sbatch", std::string("umask ") + umask + "; echo '" + text + "' >\"$YOKE_ALLOC_FILE\"; echo 7");
    EXPECT_THAT(test::error_of([&] { RequestedAllocation(request(), environment_).wait(); }).what(), HasSubstr(why));
    EXPECT_TRUE(is_cancelled("7"));
    EXPECT_EQ(num_files(), 0U);
    std::filesystem::remove(folder_.path("calls"));
  }
}

TEST_F(RequestedAllocations, ThatCannotBeCancelledStay) {
  auto impatient = request();
  impatient.limit = std::chrono::seconds(0);
  make("scancel", "echo 'scancel: error: Unable to contact slurm controller (connect failure)' >&2; exit 1");
  EXPECT_THAT(message_of([&] { RequestedAllocation(impatient, environment_).wait(); }, ErrorCode::kUnavailable),
              HasSubstr("so request 7 is still there: run `scancel 7` when Slurm answers"));
  EXPECT_EQ(num_files(), 1U) << "`yoke stop` finds it later";
}

TEST_F(RequestedAllocations, AreNotChangedByTheVariablesOfAnotherJob) {
  auto environment = environment_;
  for (const auto* name : {"SBATCH_ARRAY_INX", "SBATCH_WAIT", "SBATCH_REQUEUE", "SBATCH_CLUSTERS", "SLURM_JOB_ID",
                           "SLURM_NTASKS", "SLURM_CONF"}) {
    environment.set(name, "1");
  }
  make("sbatch", "env >" + folder_.path("variables") + "; echo 7");
  RequestedAllocation requested(request(), environment);
  EXPECT_THAT(read_file(folder_.path("variables")),
              AllOf(testing::Not(testing::ContainsRegex("(SBATCH_[A-Z_]*|SLURM_JOB_ID|SLURM_NTASKS)=")),
                    HasSubstr("SLURM_CONF=1\n"), HasSubstr("YOKE_ALLOC_FILE=" + folder_.path("state"))));
}

TEST(LeftText, IsEmptyIfTheEndIsUnknown) {
  EXPECT_EQ(left_text(0), "");
  EXPECT_EQ(left_text(1), "over");
  EXPECT_THAT(left_text(4'000'000'000), testing::Not(testing::AnyOf("", "over")));
}

TEST_F(RequestedAllocations, AreNotMadeIfSlurmRefusesOrTheNameIsTaken) {
  make("sbatch", "echo 'sbatch: error: invalid partition specified: x' >&2; exit 1");
  EXPECT_THAT(message_of([&] { RequestedAllocation(request(), environment_); }, ErrorCode::kFailedPrecondition),
              HasSubstr("invalid partition specified: x"));
  make("sbatch", "exit 0");
  EXPECT_THAT(message_of([&] { RequestedAllocation(request(), environment_); }, ErrorCode::kUnavailable),
              AllOf(StartsWith("sbatch printed no job's id"), HasSubstr("squeue --me --name=yoke-alloc")));
  EXPECT_EQ(num_files(), 0U);
  add("9", "debug");
  set_job("9", "RUNNING Reason=None");
  EXPECT_THAT(message_of([&] { RequestedAllocation(request("debug"), environment_); }, ErrorCode::kFailedPrecondition),
              StartsWith("you hold an allocation debug already (job 9: held)"));
}

}  // namespace
}  // namespace yoke::cluster
