// yoke/dist/world.h -- all ranks of a job, as one of them sees it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/rank_env.h"

namespace c10d {
class ProcessGroup;
class Store;
class Work;
}  // namespace c10d

namespace yoke::dist {

struct WorldOptions {
  /// How long a collective, or the meeting of all ranks, may wait for the others.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// Default: the GPU of this rank's local_rank when the GPU plug has loaded, else the CPU.
  std::optional<c10::Device> device;
  /// What should_stop() heeds: SIGTERM comes from launchers and schedulers, SIGUSR1 is what Slurm's --signal is mostly
  /// told to send ahead of it.
  std::vector<int> stop_signals = {SIGTERM, SIGUSR1};
};

/// kMean of float16 divides before it adds, as DistributedDataParallel does: a sum may be over 65504.
enum class ReduceOp { kSum, kMean, kMin, kMax };

class World;

/// A collective under way. Until wait() its tensors belong to it. Move-only; the World stays where it is meanwhile.
class PendingCollective {
 public:
  PendingCollective();  ///< None: wait() does nothing.
  PendingCollective(PendingCollective&&) noexcept;
  PendingCollective& operator=(PendingCollective&&) noexcept;
  ~PendingCollective();  ///< Does not wait.

  /// On the CPU until it is done; on CUDA the current stream waits, not the caller. A second call does nothing.
  /// Errors  as the collective's own.
  void wait();

 private:
  friend class World;
  const World* world_ = nullptr;
  c10::intrusive_ptr<c10d::Work> work_;
  std::vector<at::Tensor> tensors_;  ///< Kept alive.
  at::Tensor sum_;                   ///< To be divided by the number of ranks; undefined: nothing to do.
};

/// A rank's end of the process group: Gloo on the CPU, NCCL on CUDA.
///
/// Ranks    every member marked "collective" is called by all ranks in the same order, or the others wait.
/// Threads  one thread at a time.
/// Errors   kTimeout names the ranks that have not arrived at the collective; kUnavailable when a peer is gone.
class World {
 public:
  /// Collective. Joins the job that the environment describes (rank_env.h); one rank when there is none.
  explicit World(const WorldOptions& options = {});
  explicit World(const RankEnv& rank, const WorldOptions& options = {});
  /// Collective. For ranks that already share a store, as the threads of a test do.
  World(const RankEnv& rank, c10::intrusive_ptr<c10d::Store> store, const WorldOptions& options = {});
  World(World&&) noexcept;
  /// Leaves without waiting for anybody: what is right when an exception ends this rank. Call shutdown() otherwise.
  ~World();

  int64_t rank() const { return env_.rank; }
  int64_t size() const { return env_.world_size; }
  int64_t local_rank() const { return env_.local_rank; }
  int64_t local_size() const { return env_.local_world_size; }
  const RankEnv& env() const { return env_; }
  c10::Device device() const;

  void barrier();  ///< Collective.
  void all_reduce(const at::Tensor& tensor,
                  ReduceOp op = ReduceOp::kSum);               ///< Collective, in place; any shape, same on all.
  void broadcast(const at::Tensor& tensor, int64_t root = 0);  ///< Collective, in place; any shape, same on all.
  at::Tensor all_gather(const at::Tensor& tensor);  ///< Collective. Any shape [...], same on all; gives [size, ...].

  /// Collective. Fills `output`, [size * n], with all ranks' `input`, [n], by rank; both contiguous and of one dtype.
  /// `input` may be this rank's part of `output`.
  void all_gather_into(const at::Tensor& output, const at::Tensor& input) { start_all_gather(output, input).wait(); }
  /// Collective. `output`, [n], becomes this rank's part of the reduction of all `input`, [size * n]; kSum or kMean.
  /// Gloo has no such operation: libtorch reduces all of a copy of `input` there and keeps a part.
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op = ReduceOp::kSum) {
    start_reduce_scatter(output, input, op).wait();
  }
  /// The same, to go on with other work until wait().
  PendingCollective start_all_gather(const at::Tensor& output, const at::Tensor& input);
  PendingCollective start_reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                         ReduceOp op = ReduceOp::kSum);

  std::vector<std::string> all_gather_text(const std::string& text);  ///< Collective. Every rank's text, by rank.

  /// Collective, once per step: true, on all ranks at the same call, once any rank has got one of
  /// WorldOptions::stop_signals. Ranks agree about ten times a second while they compute, so it comes a few calls (at
  /// most 64) after the signal, and stays true. The first call installs the handlers, for the rest of the process: a
  /// program that never asks dies of its signals as ever. A handler that the program installed before is called too.
  bool should_stop();

  /// Collective. The orderly end: waits until every rank has come here, then closes connections; rank 0's process,
  /// which serves the store, returns last.
  void shutdown();

  /// c10d's own, for what World does not wrap. Its failures carry no names: pass them to `explain`.
  c10d::ProcessGroup& process_group() const;

  /// Rethrows what a collective threw: a timeout or a lost peer becomes a yoke::Error that names the ranks which have
  /// not arrived, by the sequence number that each rank keeps in the store, and says what another has reported;
  /// anything else is reported to the others and rethrown as it is.
  [[noreturn]] void explain(std::exception_ptr error) const;

  /// For a failure of this rank alone, of which the others would see only that it stays away: what their waiting ends
  /// with will say `text` too. Of several reports the first counts. Takes up to three seconds, and never throws.
  void report_failure(const std::string& text) const noexcept;

 private:
  void wait_for_all_leaving() const;

  struct Impl;
  RankEnv env_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::dist
