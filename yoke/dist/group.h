// yoke/dist/group.h -- ranks that communicate: all of a job (world.h), or some of them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace c10d {
class ProcessGroup;
class Work;
}  // namespace c10d

namespace yoke {
class Error;
}

namespace yoke::dist {

/// kMean of float16 divides before it adds, as DistributedDataParallel does: a sum may be over 65504.
enum class ReduceOp { kSum, kMean, kMin, kMax };

class Group;

/// A collective under way. Until wait() its tensors belong to it. Move-only; the Group stays where it is meanwhile.
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
  friend class Group;
  const Group* group_ = nullptr;
  c10::intrusive_ptr<c10d::Work> work_;
  std::vector<at::Tensor> tensors_;  ///< Kept alive.
  at::Tensor sum_;                   ///< To be divided by the number of ranks; undefined: nothing to do.
  int64_t peer_ = -1;                ///< Of a message: the other rank of the Group. -1: a collective.
};

/// How all_to_all divides the first dimension, in rows for each rank of the group.
struct Splits {
  std::vector<int64_t> input;   ///< What goes to each rank; empty: equal parts.
  std::vector<int64_t> output;  ///< What comes from each rank; empty: equal parts.
};

/// Ranks that communicate, as one of them sees it: Gloo on the CPU, NCCL on CUDA.
///
///     auto group = world.split(world.rank() % 2);   // of the ranks that gave the same number
///     group.all_reduce(tensor);                     // over these alone
///
/// Ranks    every member marked "collective" is called by all ranks of the group in the same order, or the others
///          wait. Each group has connections and an order of its own, so collectives of two groups may overlap in time;
///          ranks that are in both begin them in the same order.
/// Threads  one thread at a time.
/// Errors   kTimeout names the ranks that have not arrived at the collective, by their rank in the World; kUnavailable
///          when a peer is gone.
/// Lifetime the World outlives it; its connections stay open until the World ends, since another rank may still need
///          them.
class Group {
 public:
  Group(Group&&) noexcept;
  Group& operator=(Group&&) noexcept;
  ~Group();

  int64_t rank() const;  ///< In this group, as roots and peers are counted.
  int64_t size() const;
  /// The members by their rank in the group; each is a rank of the World.
  const std::vector<int64_t>& ranks() const;
  c10::Device device() const;

  /// Collective. As MPI_Comm_split: the ranks that give the same `color` become a group, ordered by `key`, and by their
  /// rank here where keys are equal.
  Group split(int64_t color, int64_t key = 0);
  /// Collective. The ranks of this group that are on the same node, as its launcher and its host name say.
  Group of_this_host();

  void barrier();  ///< Collective.
  void all_reduce(const at::Tensor& tensor,
                  ReduceOp op = ReduceOp::kSum);               ///< Collective, in place; any shape, same on all.
  void broadcast(const at::Tensor& tensor, int64_t root = 0);  ///< Collective, in place; any shape, same on all.
  at::Tensor all_gather(const at::Tensor& tensor);  ///< Collective. Any shape [...], same on all; gives [size, ...].
  /// Collective. Any shape [...], same on all; gives [size, ...] on `root`, and an undefined tensor elsewhere.
  at::Tensor gather(const at::Tensor& tensor, int64_t root = 0);
  /// Collective. Fills `output`, [...], with this rank's row of the `input` of `root`, [size, ...]. Elsewhere `input`
  /// is not looked at, and may be undefined.
  void scatter(const at::Tensor& output, const at::Tensor& input, int64_t root = 0);
  /// Collective. Sends rows of `input` to each rank, and fills `output` with what each has sent, by rank. Both are
  /// [rows, ...], contiguous, of one dtype; without `splits` both have as many rows for each rank.
  void all_to_all(const at::Tensor& output, const at::Tensor& input, const Splits& splits = {});

  /// Collective. Fills `output`, [size * n], with all ranks' `input`, [n], by rank; both contiguous and of one dtype.
  /// `input` may be this rank's part of `output`.
  void all_gather_into(const at::Tensor& output, const at::Tensor& input) { start_all_gather(output, input).wait(); }
  /// Collective. `output`, [n], becomes this rank's part of the reduction of all `input`, [size * n]; kSum or kMean.
  /// Gloo has no such operation: libtorch reduces all of a copy of `input` there and keeps a part.
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op = ReduceOp::kSum) {
    start_reduce_scatter(output, input, op).wait();
  }
  /// The same, to go on with other work until wait(). start_all_reduce takes a contiguous tensor.
  PendingCollective start_all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  PendingCollective start_all_gather(const at::Tensor& output, const at::Tensor& input);
  PendingCollective start_reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                         ReduceOp op = ReduceOp::kSum);

  std::vector<std::string> all_gather_text(const std::string& text);  ///< Collective. Every rank's text, by rank.

  /// From one rank to one other; contiguous, of the same shape and dtype on both sides. Messages between two ranks
  /// arrive in order. send() may wait for the receiver, so two ranks that exchange tensors start one of the two.
  void send(const at::Tensor& tensor, int64_t to) { start_send(tensor, to).wait(); }
  void receive(const at::Tensor& tensor, int64_t from) { start_receive(tensor, from).wait(); }
  PendingCollective start_send(const at::Tensor& tensor, int64_t to);
  PendingCollective start_receive(const at::Tensor& tensor, int64_t from);

  /// c10d's own, for what Group does not wrap. Its failures carry no names: pass them to `explain`.
  c10d::ProcessGroup& process_group() const;

  /// Rethrows what a collective threw: a timeout or a lost peer becomes a yoke::Error that names the ranks which have
  /// not arrived, by the sequence number that each rank keeps in the store, and says what another has reported;
  /// anything else is reported to the others and rethrown as it is.
  [[noreturn]] void explain(std::exception_ptr error) const;

  /// For a failure that this rank finds alone, where the others would see only that it stays away: tells them, then
  /// throws the error with "rank N: " before its message. Takes up to three seconds.
  [[noreturn]] void fail(const Error& error) const;
  /// The same for an exception that has been caught, which is rethrown as it is.
  [[noreturn]] void fail(std::exception_ptr error) const;
  /// Tells all ranks of the job without throwing: what their waiting ends with will say `text` too. Of several reports
  /// the first counts. Takes up to three seconds, and never throws.
  void report_failure(const std::string& text) const noexcept;

 protected:
  struct Job;   ///< What all groups of a World share; group_impl.h.
  struct Impl;  ///< What is this group's own.
  Group(std::shared_ptr<Job> job, std::shared_ptr<Impl> impl);

  std::shared_ptr<Job> job_;
  std::shared_ptr<Impl> impl_;

 private:
  friend class PendingCollective;
  using Start = std::function<c10::intrusive_ptr<c10d::Work>(std::vector<at::Tensor>& tensors)>;
  PendingCollective start(std::vector<at::Tensor> tensors, const Start& start, int64_t peer = -1);
  [[noreturn]] void explain(std::exception_ptr error, int64_t peer) const;
  void check_peer(const char* what, int64_t peer) const;
};

}  // namespace yoke::dist
