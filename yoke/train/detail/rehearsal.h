// yoke/train/detail/rehearsal.h -- a step that this rank does twice to compare a replay with it, and other ranks once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

namespace yoke::train::detail {

/// Whether both are undefined, or have the same shape, dtype and bytes, where any NaN is as good as any other.
bool same_bytes(const at::Tensor& a, const at::Tensor& b);

/// During its lifetime, the step itself and then its replay run on this thread. Only the step communicates. What it
/// sends and receives is kept: the replay must send the same, and gets what the step has received.
class Rehearsal {
 public:
  Rehearsal();
  ~Rehearsal();
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

  void begin_replay();
  bool is_replay() const { return is_replay_; }

  /// Called before a collective, which changes the tensor in place. `owner` is whoever will wait for it.
  void sent(const void* owner, const at::Tensor& tensor);
  /// Called when all collectives of `owner` so far are done; in the replay, instead of them.
  void received(const void* owner);

  /// What differs in the communication of the replay, which has ended; empty if nothing does.
  std::string difference() const;

 private:
  struct Collective {
    at::Tensor sent, received;
  };

  struct Pending {
    const void* owner;
    size_t index;  ///< Among all collectives.
    at::Tensor tensor;
  };

  Rehearsal* outer_;
  bool is_replay_ = false;
  std::vector<Collective> collectives_;  ///< Of the step.
  std::vector<Pending> pending_;         ///< Collectives that are not done.
  size_t num_sent_ = 0;                  ///< Of the replay.
  std::string differs_;
};

/// Null if there is none.
Rehearsal* rehearsal_on_this_thread();

}  // namespace yoke::train::detail
