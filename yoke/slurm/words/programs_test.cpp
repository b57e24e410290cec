#include "yoke/slurm/words/programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/command.h"

namespace yoke::slurm {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

Error failure(const std::string& err, int status = 1, bool timed_out = false) {
  return failure_of("squeue", {.status = status, .timed_out = timed_out, .out = "", .err = err}, seconds(15));
}

// The texts are what Slurm 22.05 printed with a daemon stopped.
TEST(SlurmPrograms, SayWhichDaemonIsMissing) {
  const auto controller = failure("slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n");
  EXPECT_EQ(controller.code(), ErrorCode::kUnavailable);
  EXPECT_THAT(controller.what(), HasSubstr("squeue cannot reach slurmctld"));
  for (const auto* text : {"Unexpected missing socket error", "Message receive failure", "Message send failure",
                           "Communication connection failure", "Unable to contact slurm controller (receive failure)",
                           "Zero Bytes were transmitted or received", "Connection reset by peer",
                           "Rate limit exceeded, please retry momentarily"}) {
    EXPECT_EQ(failure(std::string("slurm_load_jobs error: ") + text + "\n").code(), ErrorCode::kUnavailable) << text;
  }
  const auto munge = failure(
      "squeue: error: If munged is up, restart with --num-threads=10\nsqueue: error: Munge encode "
      "failed: Failed to access \"/run/munge/munge.socket.2\": No such file or directory\n");
  EXPECT_EQ(munge.code(), ErrorCode::kUnavailable);
  EXPECT_THAT(munge.what(), HasSubstr("munge does not run on this host"));
  EXPECT_EQ(failure("Slurm accounting storage is disabled\n").code(), ErrorCode::kFailedPrecondition);
  const auto database = failure(
      "squeue: error: Sending PersistInit msg: Connection refused\nsqueue: error: There is a problem talking to the "
      "database: Connection refused.  Only local cluster communication is available, remove SLURM_CLUSTERS from your "
      "environment or contact your admin to resolve the problem.\n");
  EXPECT_EQ(database.code(), ErrorCode::kUnavailable);
  EXPECT_THAT(database.what(), HasSubstr("unset SLURM_CLUSTERS"));
  EXPECT_THAT(failure("scontrol: fatal: Could not establish a configuration source\n").what(),
              HasSubstr("this host belongs to no cluster"));
  EXPECT_EQ(failure("", 137, true).code(), ErrorCode::kTimeout);
  EXPECT_EQ(failure("", 127).code(), ErrorCode::kNotFound);
  EXPECT_THAT(failure("squeue: error: Invalid user: x\n").what(), HasSubstr("squeue failed: squeue: error: Invalid"));
}

TEST(SlurmPrograms, SayWhoGaveNoAnswer) {
  const auto timeout = [](const char* program, const std::string& err) -> std::string {
    return failure_of(program, {.status = 143, .timed_out = true, .out = "", .err = err}, seconds(15)).what();
  };
  EXPECT_THAT(timeout("sacct", ""), HasSubstr("slurmdbd, which keeps the accounts of jobs, does not answer"));
  EXPECT_THAT(timeout("sbatch", ""), HasSubstr("`squeue --me` shows it"));
  EXPECT_THAT(timeout("srun", "srun: a\nsrun: Step creation temporarily disabled, retrying\n"),
              HasSubstr("the step did not start, or hangs; `squeue --steps --me` lists steps. It said: srun: Step "
                        "creation temporarily disabled, retrying"));
  // slurmctld may have taken the job.
  const auto code_of_submission = [](const std::string& text) {
    return failure_of("sbatch",
                      {.status = 1, .out = "", .err = "sbatch: error: Batch job submission failed: " + text + "\n"},
                      seconds(60))
        .code();
  };
  EXPECT_EQ(code_of_submission("Socket timed out on send/recv operation"), ErrorCode::kTimeout);
  EXPECT_EQ(code_of_submission("Unable to contact slurm controller (receive failure)"), ErrorCode::kTimeout);
  EXPECT_EQ(code_of_submission("Unexpected missing socket error"), ErrorCode::kTimeout);
  EXPECT_EQ(code_of_submission("Unable to contact slurm controller (connect failure)"), ErrorCode::kUnavailable);
  EXPECT_EQ(code_of_submission("Unable to contact slurm controller (send failure)"), ErrorCode::kUnavailable);
}

TEST(SlurmPrograms, HintsAboutHelpAreNotTheReason) {
  const auto error = failure("srun: unrecognized option '--x'\nTry \"srun --help\" for more information\n");
  EXPECT_THAT(error.what(), HasSubstr("unrecognized option '--x'"));
}

TEST(SlurmPrograms, TheControllerIsAskedBeforeAStepStarts) {
  test::TemporaryFolder folder;
  auto environment = Environment::of_process();
  environment.set("PATH", folder.path() + ":/usr/bin:/bin");
  const auto ask = [&](const std::string& script, int limit_ms = 60'000) -> std::string {
    folder.write("scontrol", "#!/bin/sh\n" + script, true);
    try {
      check_controller(environment, std::chrono::milliseconds(limit_ms));
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(ask("echo 'Slurmctld(primary) at a is UP'"), "");
  EXPECT_EQ(ask("echo 'Slurmctld(primary) at a is DOWN'; echo 'Slurmctld(backup) at b is UP'; exit 1"), "");
  EXPECT_THAT(ask("echo 'Slurmctld(primary) at a is DOWN'; echo '** RESTORE **'; exit 1"),
              HasSubstr("slurmctld is down, so no step can start: Slurmctld(primary) at a is DOWN"));
  EXPECT_THAT(ask("exec sleep 100", 100), HasSubstr("munge does not run on this host"));
}

TEST(SlurmPrograms, AreAskedWithoutVariablesThatChangeTheirAnswer) {
  test::TemporaryFolder folder;
  folder.write("squeue", "#!/bin/sh\nenv\n", true);
  auto environment = Environment::of_process();
  for (const auto* name : {"SQUEUE_STATES", "SINFO_PARTITION", "SACCT_FORMAT", "SCONTROL_ALL", "SCANCEL_INTERACTIVE"}) {
    environment.set(name, "changed");
  }
  EXPECT_THAT(ask({folder.path("squeue")}, environment), testing::Not(HasSubstr("changed")));
}

TEST(SlurmPrograms, AreAskedUnderADeadline) {
  test::TemporaryFolder folder;
  folder.write("sbatch", "#!/bin/sh\necho slurm 23.11.4\n", true);
  folder.write("squeue", "#!/bin/sh\nsleep 100\n", true);
  auto environment = Environment::of_process();
  environment.set("PATH", folder.path());
  EXPECT_EQ(installed_version(environment), (Version{23, 11, 4}));
  environment.set("PATH", folder.path() + ":/usr/bin:/bin");
  try {
    ask({folder.path("squeue")}, environment, std::chrono::milliseconds(100));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  }
  environment.set("PATH", "/no/such/folder");
  EXPECT_EQ(installed_version(environment), std::nullopt);
}

}  // namespace
}  // namespace yoke::slurm
