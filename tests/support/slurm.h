// tests/support/slurm.h -- a real Slurm for tests: munged, slurmctld and a slurmd for each node (slurm-cluster).
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/command.h"

namespace yoke::test {

/// A cluster in namespaces of its own, which end with this process, even by SIGKILL. Needs root.
///
///     if (const auto reason = SlurmCluster::why_not(); !reason.empty()) GTEST_SKIP() << reason;
///     SlurmCluster cluster({"--network", "--gpus", "4", "--cpus", "8", "3"});
///     const auto result = cluster.run({"srun", "-N2", "hostname"});
class SlurmCluster {
 public:
  /// `words`: options of slurm-cluster, and the number of nodes. Throws std::runtime_error if it does not start.
  explicit SlurmCluster(const std::vector<std::string>& words);
  ~SlurmCluster();

  /// Returns why this machine cannot have such a cluster; empty if it can. It can be one without sacct where
  /// slurmdbd or mariadb are missing: give with_accounting for tests that need it.
  static std::string why_not(bool with_accounting = false);

  /// Returns the command line that runs `argv` on the host of slurmctld, as root or as "ada" or "bob". Processes have
  /// other PIDs in the cluster than outside.
  std::vector<std::string> in(const std::vector<std::string>& argv, const std::string& user = "root") const;
  /// The same on node nK, K from 1. REQUIRES: --network.
  std::vector<std::string> on(int node, const std::vector<std::string>& argv, const std::string& user = "root") const;
  /// Runs `argv` on the host of slurmctld and waits for its end. RANK, WORLD_SIZE, and variables of an outer Slurm are
  /// removed.
  Result run(const std::vector<std::string>& argv, const std::string& user = "root") const;
  /// Runs a script of sh. Useful for pipes and redirections.
  Result shell(const std::string& script, const std::string& user = "root") const;

  /// SLURM_TEST_DIR: daemons' PID files in run/, logs in log/, device nodes in dev/, homes in home/ada and home/bob.
  const std::string& folder() const { return folder_; }
  /// Sends SIGKILL to a daemon: "slurmd.n2", "slurmctld", "munged".
  void kill_daemon(const std::string& name) const;
  /// Drops all packets from and to a node, or connects it again. REQUIRES: --network.
  void cut(int node) const;
  void mend(int node) const;
  /// The state of a job as squeue says it ("RUNNING"), or as scontrol says after its end.
  std::string state_of(const std::string& job_id) const;
  /// What Slurm knows about the job, and the ends of its daemons' logs; for messages of tests that fail.
  std::string story_of(const std::string& job_id) const;
  /// Waits until state_of() is `state`. Returns false if `limit` passes before.
  bool wait_for_state(const std::string& job_id, const std::string& state, milliseconds limit = milliseconds(90'000));

 private:
  UniqueFd keep_alive_;
  std::unique_ptr<Command> script_;
  std::string folder_;
  pid_t inside_ = -1;  ///< A process in the namespaces.
};

}  // namespace yoke::test
