// yoke/dist/world.h -- the job, as seen by one of its ranks: which rank this is, when to stop, and how to end the job.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "yoke/contract/rank_env.h"
#include "yoke/dist/group.h"

namespace c10d {
class Store;
}

namespace yoke::dist {

class StopAgreement;

struct WorldOptions {
  /// Limit on how long a collective, or the start and the end of the job, waits for other ranks.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// Default: the GPU whose number is local_rank if the GPU plug has loaded, else the CPU.
  std::optional<c10::Device> device;
  /// Signals that make should_stop() true. Launchers and schedulers send SIGTERM, and Ctrl-C sends SIGINT. Slurm's
  /// --signal is usually set to send SIGUSR1 some time before SIGTERM.
  std::vector<int> stop_signals = {SIGTERM, SIGINT, SIGUSR1};
};

/// The job, and the group of all its ranks.
class World : public Group {
 public:
  /// Collective. Joins the job that the environment describes (rank_env.h). If the environment describes none, makes a
  /// job of one rank.
  explicit World(const WorldOptions& options = {});
  explicit World(const RankEnv& rank, const WorldOptions& options = {});
  /// Collective. For ranks that share a store already, such as the threads of a test.
  World(const RankEnv& rank, c10::intrusive_ptr<c10d::Store> store, const WorldOptions& options = {});
  World(World&&) noexcept;
  /// Does not wait for other ranks, which is right if an exception ends this rank. In all other cases call shutdown()
  /// first.
  ~World();

  int64_t local_rank() const { return env().local_rank; }
  int64_t local_size() const { return env().local_world_size; }
  const RankEnv& env() const;

  /// Collective. Call it once per step. After any rank has received one of WorldOptions::stop_signals, returns true, on
  /// all ranks at the same call. Ranks exchange their flags about ten times per second, while they compute. So the
  /// result becomes true a few calls (at most 64) after the signal, and stays true. The first call installs signal
  /// handlers for the rest of the process. Without a call, these signals still end the program. A handler that the
  /// program installed before is called too; without one, a second Ctrl-C kills, and rank 0 says so at the first.
  bool should_stop();

  /// Whether a rank that a signal kills is started again alone and can join the others: the job runs under `yoke run
  /// --replace`, and the ranks of each host share memory for CPU tensors. Then a collective that meets the loss throws
  /// RanksLost (ranks_lost.h).
  bool is_replaceable() const;
  /// Collective, of the ranks that are left and of those that take the place of the lost ones. Forms all groups again;
  /// nothing of the state is exchanged (train::KeptStates does). process_group() of each group is another one then.
  /// Errors  kTimeout: the ranks have not met within WorldOptions::timeout; kUnavailable: the job is told to end;
  ///         kFailedPrecondition: !is_replaceable().
  void recover();
  /// With true, collectives that meet a loss end without an error and with values that have no meaning;
  /// needs_recovery() tells of it. For loops that repeat what they did since, as those of train::Run. recover() sets it
  /// to false.
  void forgive_losses(bool forgives);

  /// Collective. Ends the job cleanly: waits until every rank has called shutdown(), then closes the connections of all
  /// groups. In rank 0's process, which serves the store, it returns last.
  void shutdown();

 private:
  void wait_for_all_leaving() const;

  std::vector<int> stop_signals_;
  std::unique_ptr<StopAgreement> stop_;  ///< Made by the first should_stop().
};

}  // namespace yoke::dist
