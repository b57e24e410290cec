// yoke/dist/world.h -- a job, as one of its ranks sees it: who it is, when to stop, the end.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "yoke/base/rank_env.h"
#include "yoke/dist/group.h"

namespace c10d {
class Store;
}

namespace yoke::dist {

class StopAgreement;

struct WorldOptions {
  /// How long a collective, or the meeting of all ranks, may wait for the others.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// Default: the GPU of this rank's local_rank when the GPU plug has loaded, else the CPU.
  std::optional<c10::Device> device;
  /// What should_stop() heeds: SIGTERM comes from launchers and schedulers, SIGUSR1 is what Slurm's --signal is mostly
  /// told to send ahead of it.
  std::vector<int> stop_signals = {SIGTERM, SIGUSR1};
};

/// The job, and the group of all its ranks.
class World : public Group {
 public:
  /// Collective. Joins the job that the environment describes (rank_env.h); one rank when there is none.
  explicit World(const WorldOptions& options = {});
  explicit World(const RankEnv& rank, const WorldOptions& options = {});
  /// Collective. For ranks that already share a store, as the threads of a test do.
  World(const RankEnv& rank, c10::intrusive_ptr<c10d::Store> store, const WorldOptions& options = {});
  World(World&&) noexcept;
  /// Leaves without waiting for anybody: what is right when an exception ends this rank. Call shutdown() otherwise.
  ~World();

  int64_t local_rank() const { return env().local_rank; }
  int64_t local_size() const { return env().local_world_size; }
  const RankEnv& env() const;

  /// Collective, once per step: true, on all ranks at the same call, once any rank has got one of
  /// WorldOptions::stop_signals. Ranks agree about ten times a second while they compute, so it comes a few calls (at
  /// most 64) after the signal, and stays true. The first call installs the handlers, for the rest of the process: a
  /// program that never asks dies of its signals as ever. A handler that the program installed before is called too.
  bool should_stop();

  /// Collective. The orderly end: waits until every rank has come here, then closes the connections of all groups;
  /// rank 0's process, which serves the store, returns last.
  void shutdown();

 private:
  void wait_for_all_leaving() const;

  std::vector<int> stop_signals_;
  std::unique_ptr<StopAgreement> stop_;  ///< From the first should_stop() on.
};

}  // namespace yoke::dist
