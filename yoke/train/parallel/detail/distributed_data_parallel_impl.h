// yoke/train/parallel/detail/distributed_data_parallel_impl.h -- shared by distributed_data_parallel.cpp and join.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <utility>
#include <vector>

#include "yoke/dist/activity.h"
#include "yoke/dist/group.h"
#include "yoke/train/detail/known_parameters.h"
#include "yoke/train/detail/replicated.h"
#include "yoke/train/detail/step_watch.h"
#include "yoke/train/named_tensors.h"
#include "yoke/train/parallel/detail/autograd_node.h"
#include "yoke/train/parallel/detail/reducer.h"
#include "yoke/train/parallel/distributed_data_parallel.h"

namespace yoke::train {

inline c10::intrusive_ptr<c10d::ProcessGroup> process_group_of(const dist::Group& group) {
  return c10::intrusive_ptr<c10d::ProcessGroup>::reclaim_copy(&group.process_group());
}

/// All collectives of a step, also of one in which this rank has no data (see join.cpp), have this name.
inline constexpr auto kStepName = "a step of DistributedDataParallel";

/// The state of a step.
enum class StepState : uint8_t {
  kIdle,         ///< Between steps: a gradient that arrives now is an error, because it would not be averaged.
  kAccumulates,  ///< After a forward under no_sync: gradients are not averaged.
  kExpects,      ///< After a forward: the next backward averages.
  kInBackward,
};

struct DistributedDataParallelBase::Impl : std::enable_shared_from_this<Impl> {
  Impl(torch::nn::Module& network, dist::Group& all_ranks) : model(network), group(all_ranks) {}
  ~Impl();

  torch::nn::Module& model;
  dist::Group& group;
  bool broadcast_buffers = true, find_unused_parameters = false, static_graph = false;
  bool averages_in_step = false;       ///< Then there is no reducer.
  NamedTensors trained;                ///< Trained parameters, in the Reducer's order.
  std::vector<at::ScalarType> dtypes;  ///< Of the trained parameters at construction, which the Reducer relies on.
  NamedTensors frozen;                 ///< Parameters that were frozen at construction.
  NamedTensors trainable;              ///< What an optimizer gets: the trained ones, and frozen ones for later.
  NamedTensors buffers;                ///< Buffers that are kept equal.
  std::vector<at::Tensor> values;      ///< All parameters and buffers that are kept equal.
  bool has_sparse = false, has_sync_batch_norm = false;
  DistributedDataParallelOptions given;  ///< The options that the reducer is made with.
  std::vector<bool> expects_sparse;      ///< For each trained parameter.
  int64_t generation = 0;                ///< That of the group when the reducer was made.
  HookRunner* hook = nullptr;            ///< Owned by the reducer; null without a communication hook.
  std::shared_ptr<Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
  std::vector<std::pair<NodePointer, uintptr_t>> accumulators;  ///< With the keys of this class's hooks.
  std::vector<std::pair<at::Tensor, unsigned>> static_hooks;    ///< For parameters that a static graph does not use.
  std::shared_ptr<int64_t> no_sync_depth = std::make_shared<int64_t>(0);
  std::atomic<StepState> state = StepState::kIdle;
  std::optional<dist::Activity> activity;         ///< From the begin of a backward to the end of its step.
  std::atomic<bool> has_local_gradients = false;  ///< no_sync() has left gradients that no backward has averaged yet.
  uint64_t versions_before = 0;  ///< The sum of the parameters' versions before the first forward of these gradients.
  std::optional<detail::KnownParameters> known_parameters;
  std::vector<uint8_t> has_arrived;        ///< With averages_in_step: the trained parameters that have had a gradient.
  std::atomic<bool> has_diverged = false;  ///< An optimizer of yoke::train has stepped with these gradients.
  std::atomic<bool> is_stepped_by_yoke = false;  ///< An optimizer of yoke::train has stepped some of the parameters.
  bool has_warned = false;
  int64_t num_steps = 0;          ///< Number of steps begun, including those in a join.
  bool is_graph_learned = false;  ///< With static_graph: the first backward has ended.
  bool has_missed_graph = false;  ///< With static_graph: this rank had no data in the first step.
  std::optional<JoinOptions> join;
  std::optional<detail::StepWatch> step_watch;
  std::optional<detail::Replicated> replicated;  ///< All parameters that are kept equal.

  /// Collective. Copies the tensors of rank `root` to all ranks.
  void broadcast(const std::vector<at::Tensor>& tensors, int64_t root = 0);
  void broadcast_all_buffers(int64_t root = 0);

  void check_averages_in_step(const DistributedDataParallelOptions& options) const;
  void set_up_reducer();
  void follow_group();
  void watch_parameters();
  /// Why the ranks' parameters have become different.
  const char* divergence() const;
  uint64_t versions() const;
  void check_local_gradients();
  void check_last_backward() const;
  void begin_forward();
  void take_output(const at::Tensor& output);
  void begin_backward();
  void finish_backward();
  void explain_change(const std::vector<size_t>& missing) const;
  /// Fails the step if a parameter is missing because its module was replaced.
  void check_replaced(const std::vector<uint8_t>& arrived);
  void finish_step();
  /// Reports to every rank why this rank cannot finish its step. Then throws.
  [[noreturn]] void fail_step(const std::string& reason) const;
  std::string list(const std::vector<size_t>& parameters) const;

  /// Collective, in a join. Counts the ranks that still have data. The result, a float [1], is in the future of the
  /// returned Work.
  c10::intrusive_ptr<c10d::Work> count_active(bool is_active) const;
  void announce_step();
  [[noreturn]] void throw_out_of_data(bool is_active) const;
  /// Collective, in a join. Returns the highest rank for which `is_candidate` is true; -1 if there is none.
  int64_t highest_rank(bool is_candidate) const;
  void shadow_step();

  // Recorded steps (recorded_communication.cpp). Functions named `note_` do nothing unless a step is recorded.

  class RecordedCommunication;
  /// Of the step that is being recorded; null if none is, or if it cannot be.
  std::shared_ptr<RecordedCommunication> recorded();
  std::string why_not_recordable() const;
  static void refuse_to_record(const char* reason);
  static void postpone_recording();
  void note_forward(bool averages);
  void note_local_gradients();
  void note_backward();
  void note_wait();
  void replay_forward(bool averages);
  void begin_averaging();
  void end_step();
  void end_step_now();
};

}  // namespace yoke::train
