// yoke/dist/group.h -- ranks that communicate: all of a job (world.h), or some of them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace c10::ivalue {
struct Future;
}
namespace c10d {
class ProcessGroup;
class Work;
}  // namespace c10d

namespace yoke {
class Error;
}

namespace yoke::dist {

/// For float16, kMean divides before it adds, like DistributedDataParallel, because a sum may exceed 65504.
enum class ReduceOp { kSum, kMean, kMin, kMax };

class Activity;
class Group;

/// A collective in flight. Do not read or write its tensors before wait(). Do not move the Group before wait().
/// Move-only.
class PendingCollective {
 public:
  PendingCollective();  ///< Has no collective; wait() does nothing.
  PendingCollective(PendingCollective&&) noexcept;
  PendingCollective& operator=(PendingCollective&&) noexcept;
  ~PendingCollective();  ///< Does not wait.

  /// On the CPU, waits until the collective is done. On CUDA, only the current stream waits, not the caller. A second
  /// call has no effect.
  /// Errors  those of the collective.
  void wait();

 private:
  friend class Group;
  const Group* group_ = nullptr;
  c10::intrusive_ptr<c10d::Work> work_;
  std::vector<at::Tensor> tensors_;  ///< Kept alive until wait().
  std::function<void()> finish_;     ///< What wait() does in the end; may be empty.
  int64_t peer_ = -1;                ///< For a message, the other rank's number in the Group; -1 for a collective.
};

/// How all_to_all divides the first dimension, in rows for each rank of the group.
struct Splits {
  std::vector<int64_t> input;   ///< Rows to each rank; empty for equal parts.
  std::vector<int64_t> output;  ///< Rows from each rank; empty for equal parts.
};

/// One rank's view of a group of ranks that communicate. On the CPU the ranks of each host share memory, and
/// hosts are connected; on CUDA they use NCCL.
///
///     auto group = world.split(world.rank() % 2);   // the ranks that passed the same number
///     group.all_reduce(tensor);                     // over these ranks alone
///
/// Ranks    all ranks of the group must call the members marked "collective" in the same order. Each group has its own
/// connections and its own order, so collectives of two groups may
///          overlap in time; ranks that are in both groups must begin them in the same order.
/// Threads  one thread at a time.
/// Backward does not pass through these members. So, unless gradients are disabled, a tensor that needs a gradient is
///          refused, as torch refuses to change a parameter in place; gradient.h has collectives through which it
///          passes. A tensor that is changed in place counts as changed for autograd: backward then refuses the value
///          that it has saved of it.
/// Complex  numbers are sent as pairs of real ones; they have no kMin and kMax.
/// Errors   kInvalidArgument: a tensor needs a gradient, or is conjugated or negated lazily. kTimeout names the ranks
/// that have not arrived at the collective, by their rank in the World; kUnavailable:
///          a peer has ended. kFailedPrecondition names ranks that wait in different collectives. On the CPU this is
///          thrown within about ten seconds. On a GPU it is printed, and the timeout ends the ranks.
/// Lifetime the World must outlive it. The group's connections stay open until the World ends, because other ranks may
/// still need them.
class Group {
 public:
  Group(Group&&) noexcept;
  Group& operator=(Group&&) noexcept;
  ~Group();

  /// This rank's number in this group. Arguments `root`, `to` and `from` are numbers in this group too.
  int64_t rank() const;
  int64_t size() const;
  /// The members as ranks of the World, indexed by their rank in this group.
  const std::vector<int64_t>& ranks() const;
  c10::Device device() const;

  /// Collective. Like MPI_Comm_split: ranks with the same `color` form a new group. A group's ranks are ordered by
  /// `key`; if keys are equal, by their rank in this group.
  Group split(int64_t color, int64_t key = 0);
  /// Collective. Returns a group of this group's ranks on this node, according to the launcher and the host name.
  Group of_this_host();

  void barrier();  ///< Collective.
  void all_reduce(const at::Tensor& tensor,
                  ReduceOp op = ReduceOp::kSum);               ///< Collective, in place; any shape, same on all.
  void broadcast(const at::Tensor& tensor, int64_t root = 0);  ///< Collective, in place; any shape, same on all.
  at::Tensor all_gather(const at::Tensor& tensor);  ///< Collective. Any shape [...], same on all; gives [size, ...].
  /// Collective. `tensor` has any shape [...], the same on all ranks. Returns [size, ...] on `root`, and an undefined
  /// tensor on other ranks.
  at::Tensor gather(const at::Tensor& tensor, int64_t root = 0);
  /// Collective. Fills `output` [...] with this rank's row of `input` [size, ...] on `root`. On other ranks `input` is
  /// ignored and may be undefined.
  void scatter(const at::Tensor& output, const at::Tensor& input, int64_t root = 0);
  /// Collective. Sends rows of `input` to each rank, and fills `output` with the rows from each rank, in rank order.
  /// Both tensors are [rows, ...], contiguous, and have the same dtype. Without `splits`, each rank sends the same
  /// number of rows to each rank.
  void all_to_all(const at::Tensor& output, const at::Tensor& input, const Splits& splits = {});

  /// Collective. Fills `output` [size * n] with the `input` [n] of all ranks, in rank order. Both tensors are
  /// contiguous and have the same dtype. `input` may be this rank's part of `output`.
  void all_gather_into(const at::Tensor& output, const at::Tensor& input) { start_all_gather(output, input).wait(); }
  /// Collective. Reduces the `input` [size * n] of all ranks, and fills `output` [n] with this rank's part of the
  /// result. `op` is kSum or kMean. Gloo lacks this operation: there a whole copy of `input` is reduced, and one part
  /// is kept.
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op = ReduceOp::kSum) {
    start_reduce_scatter(output, input, op).wait();
  }
  /// Start the operations of the functions above, so that the caller can do other work until wait(). start_all_reduce
  /// takes a contiguous tensor.
  PendingCollective start_all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  PendingCollective start_all_gather(const at::Tensor& output, const at::Tensor& input);
  PendingCollective start_reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                         ReduceOp op = ReduceOp::kSum);

  /// Collective. Returns every rank's text, by rank.
  /// Errors  kFailedPrecondition: another rank has called another collective at the same time.
  std::vector<std::string> all_gather_text(const std::string& text);

  /// Not collective, and does not wait. The n-th calls with `key` on all ranks belong together: the first of them
  /// stores its text. Returns "rank 0 has TEXT" if that text is another one than this rank's.
  std::optional<std::string> differs_from_first(const std::string& key, const std::string& text) const;

  /// Messages from one rank to another. The tensors are contiguous and have the same shape and dtype on both sides.
  /// Messages between two ranks arrive in order. send() may wait for the receiver. So if two ranks exchange tensors,
  /// each rank must use start_send or start_receive for one of its two calls.
  void send(const at::Tensor& tensor, int64_t to) { start_send(tensor, to).wait(); }
  void receive(const at::Tensor& tensor, int64_t from) { start_receive(tensor, from).wait(); }
  PendingCollective start_send(const at::Tensor& tensor, int64_t to);
  PendingCollective start_receive(const at::Tensor& tensor, int64_t from);

  /// c10d's process group, for operations that Group does not wrap. Its errors do not name ranks; `explain` adds the
  /// ranks.
  c10d::ProcessGroup& process_group() const;
  /// 0, and another number after each World::recover(). What was made of process_group() before must then be made anew.
  int64_t generation() const;
  /// Whether ranks of the job have been lost, or this process has taken the place of one, and World::recover() has not
  /// been called since. Then collectives may end although others have not entered them (World::forgive_losses), so
  /// nothing may be written into memory of others. The collectives of a process that has taken another one's place end
  /// at once, as if all ranks had given the same as it: it constructs what its program needs, and then calls recover().
  bool needs_recovery() const;

  /// Rethrows the exception of a collective. A timeout or a lost peer becomes a yoke::Error. Its message names the
  /// ranks that have not arrived (according to the sequence numbers in the store) and includes the failure that another
  /// rank has reported. Any other exception is reported to the other ranks and rethrown unchanged.
  [[noreturn]] void explain(std::exception_ptr error) const;

  /// Call this for a failure that only this rank detects. Reports the error to the other ranks, which would otherwise
  /// only see that this rank does not arrive. Then throws the error with "rank N: " before its message. Takes up to
  /// three seconds.
  [[noreturn]] void fail(const Error& error) const;
  /// Reports a caught exception to the other ranks. Rethrows it unchanged.
  [[noreturn]] void fail(std::exception_ptr error) const;
  /// Reports `text` to all ranks of the job. If a rank's wait for other ranks later ends with an error, that error
  /// includes `text`. Only the first report is kept. Takes up to three seconds. Never throws.
  void report_failure(const std::string& text) const noexcept;

 protected:
  struct Job;   ///< Shared by all groups of a World; see group_impl.h.
  struct Impl;  ///< This group's own state.
  Group(std::shared_ptr<Job> job, std::shared_ptr<Impl> impl);
  /// Also ends when ranks are found to wait in different collectives. REQUIRES: a collective of CPU tensors.
  void wait(c10d::Work& work) const;

  std::shared_ptr<Job> job_;
  std::shared_ptr<Impl> impl_;

 private:
  friend class Activity;
  friend class GroupReference;
  friend class PendingCollective;
  friend void wait_for(const Group& group, c10::ivalue::Future& future);
  using Start = std::function<c10::intrusive_ptr<c10d::Work>(std::vector<at::Tensor>& tensors)>;
  /// `name` is that of the collective, in messages. Unless `sizes_differ`, its tensors have the same size on all ranks.
  struct Collective {
    const char* name;
    int64_t peer = -1;  ///< For a message.
    bool sizes_differ = false;
    bool writes_first = false;  ///< Whether it changes the first of its tensors.
  };
  enum class Caller { kWaits, kGoesOn };  ///< Whether the caller waits at once.
  PendingCollective start_all_reduce(const at::Tensor& tensor, ReduceOp op, Caller caller);
  PendingCollective start(const Collective& collective, std::vector<at::Tensor> tensors, const Start& start);
  void check_same_calls() const;  ///< Throws if ranks are known to wait in different collectives.
  [[noreturn]] void explain(std::exception_ptr error, int64_t peer) const;
  void check_peer(const char* what, int64_t peer) const;
};

}  // namespace yoke::dist
