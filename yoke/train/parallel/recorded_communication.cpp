// DistributedDataParallel in recorded steps (yoke/train/record).
//
// While a step is recorded, the Reducer works as always. Its operators, which copy gradients into buckets and back, are
// recorded like all others. What is no operator, or must not be done again by the Reducer, is recorded as calls:
//   forward    counts the step, and checks what each forward checks
//   backward   names the collectives that follow
//   bucket     starts the all-reduce of a bucket, where the Reducer has started it
//   wait       waits for all of them
//   end        broadcasts buffers
// So a replay has the collectives of the step, and the Reducer does not know of it. In a rehearsal, the replay takes
// what the step has received.
#include <fmt/format.h>

#include <exception>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/dist/error_text.h"
#include "yoke/train/detail/recording.h"
#include "yoke/train/detail/rehearsal.h"
#include "yoke/train/detail/step_phases.h"
#include "yoke/train/parallel/detail/distributed_data_parallel_impl.h"

namespace yoke::train {
namespace {

bool is_replay_of_rehearsal() {
  const auto* rehearsal = detail::rehearsal_on_this_thread();
  return rehearsal != nullptr && rehearsal->is_replay();
}

}  // namespace

/// A DistributedDataParallel in one recorded step.
class DistributedDataParallelBase::Impl::RecordedCommunication final : public detail::StepCommunication {
 public:
  explicit RecordedCommunication(const std::shared_ptr<Impl>& impl)
      : impl_(impl),
        reducer_(impl->reducer),
        generation_(impl->group.generation()),
        is_under_no_sync_(*impl->no_sync_depth > 0) {}

  bool fits() const override {
    const auto impl = impl_.lock();
    return !impl || (*impl->no_sync_depth > 0) == is_under_no_sync_;
  }

  std::string why_stale() const override {
    const auto impl = impl_.lock();
    if (!impl) return "its DistributedDataParallel was replaced by another one";
    if (impl->group.generation() != generation_ || impl->reducer != reducer_.lock()) {
      return "ranks were lost and replaced";
    }
    return impl->join ? "its DistributedDataParallel has begun a join" : "";
  }

  std::optional<detail::HostCall> all_reduce(const at::Tensor& tensor) override {
    const auto impl = impl_.lock();
    if (!impl || !impl->reducer->has_bucket(tensor)) return std::nullopt;
    detail::HostCall call{.name = "the all-reduce of a bucket of DistributedDataParallel",
                          .tensors = {tensor},
                          .parameters = {}};
    call.run = [this](const std::vector<at::Tensor>& bucket) { start(bucket[0]); };
    return call;
  }

  void report(const std::exception& error) const noexcept override {
    try {
      const auto impl = impl_.lock();
      const auto* known = dynamic_cast<const Error*>(&error);
      // What other ranks have done is no news to them.
      if (!impl || (known != nullptr && (known->code() == ErrorCode::kTimeout ||
                                         known->code() == ErrorCode::kUnavailable))) {
        return;
      }
      impl->group.report_failure(
          fmt::format("in step {} of DistributedDataParallel: {}", impl->num_steps, dist::error_text(error)));
    } catch (const std::exception&) {  // there is no memory for the text
    }
  }

  void begin() { pending_.clear(); }  // an error has ended the replay before

  void start(const at::Tensor& bucket) {
    if (auto* rehearsal = detail::rehearsal_on_this_thread()) return rehearsal->sent(bucket);
    pending_.push_back(impl_.lock()->group.start_all_reduce(bucket));
  }

  void wait() {
    if (auto* rehearsal = detail::rehearsal_on_this_thread()) return rehearsal->received();
    detail::enter(detail::Phase::kWait);
    for (auto& pending : std::exchange(pending_, {})) pending.wait();
  }

  /// Whether the hooks of this forward's parameters have noted that gradients are not averaged.
  bool has_noted_local_gradients = false;

 private:
  const std::weak_ptr<Impl> impl_;
  const std::weak_ptr<Reducer> reducer_;
  const int64_t generation_;
  const bool is_under_no_sync_;
  std::vector<dist::PendingCollective> pending_;
};

std::string DistributedDataParallelBase::Impl::why_not_recordable() const {
  if (averages_in_step) return "average_in_step, with which the step of the optimizer communicates";
  if (given.communication_hook) return "a communication_hook, which may have a state of its own";
  if (find_unused_parameters && !static_graph) {
    return "find_unused_parameters, with which each step asks the other ranks what they use";
  }
  if (has_sparse) return "sparse gradients";
  if (has_sync_batch_norm) return "a SyncBatchNorm, which communicates in forward and backward";
  return join ? "a join, in which each step asks how many ranks have data" : "";
}

std::shared_ptr<DistributedDataParallelBase::Impl::RecordedCommunication>
DistributedDataParallelBase::Impl::recorded() {
  auto* recording = detail::recording_on_this_thread();
  if (recording == nullptr) return nullptr;
  if (auto known = std::static_pointer_cast<RecordedCommunication>(recording->communication_of(this))) return known;
  if (const auto reason = why_not_recordable(); !reason.empty()) {
    recording->refuse("communication of a DistributedDataParallel with " + reason);
    return nullptr;
  }
  auto communication = std::make_shared<RecordedCommunication>(shared_from_this());
  recording->set_communication(this, communication);
  return communication;
}

void DistributedDataParallelBase::Impl::note_forward(bool averages) {
  const auto communication = recorded();
  if (!communication) return;
  auto& recording = *detail::recording_on_this_thread();
  if (!reducer->has_its_buckets() || (static_graph && !is_graph_learned)) recording.postpone();
  communication->has_noted_local_gradients = false;
  recording.add({.name = "a forward of DistributedDataParallel",
                 .tensors = {},
                 .parameters = {},
                 .run = [this, averages](const auto&) { forward_again(averages); },
                 .written = {}});
}

/// What is left of begin_forward when neither the program nor the Reducer takes part.
void DistributedDataParallelBase::Impl::forward_again(bool averages) {
  if (is_replay_of_rehearsal()) return;
  check_local_gradients();
  if (state == StepState::kInBackward) {
    fail_step("the last backward ended with an error while gradients were averaged; make another");
  }
  if (averages) {
    if (state != StepState::kExpects) ++num_steps;
    state = StepState::kExpects;
    return;
  }
  if (!has_local_gradients) versions_before = versions();
  if (state == StepState::kIdle) state = StepState::kAccumulates;
}

void DistributedDataParallelBase::Impl::note_local_gradients() {
  const auto communication = recorded();
  if (!communication || std::exchange(communication->has_noted_local_gradients, true)) return;
  detail::recording_on_this_thread()->add({.name = "a backward under no_sync()",
                                           .tensors = {},
                                           .parameters = {},
                                           .run =
                                               [this](const auto&) {
                                                 if (!is_replay_of_rehearsal()) has_local_gradients = true;
                                               },
                                           .written = {}});
}

/// REQUIRES: `state` is kInBackward, or this is a replay.
void DistributedDataParallelBase::Impl::begin_averaging() {
  detail::enter(detail::Phase::kBackward);
  activity.emplace(group, kStepName);
}

void DistributedDataParallelBase::Impl::note_backward() {
  const auto communication = recorded();
  if (!communication) return;
  detail::recording_on_this_thread()->add({.name = "a backward of DistributedDataParallel",
                                           .tensors = {},
                                           .parameters = {},
                                           .run =
                                               [this, one = communication.get()](const auto&) {
                                                 if (is_replay_of_rehearsal()) return;
                                                 one->begin();
                                                 state = StepState::kInBackward;
                                                 begin_averaging();
                                               },
                                           .written = {}});
}

/// Called when all all-reduces of the step are done.
void DistributedDataParallelBase::Impl::note_wait() {
  const auto communication = recorded();
  if (!communication) return;
  if (auto* rehearsal = detail::rehearsal_on_this_thread()) rehearsal->received();
  detail::recording_on_this_thread()->add({.name = "the wait for the means of DistributedDataParallel",
                                           .tensors = {},
                                           .parameters = {},
                                           .run = [one = communication.get()](const auto&) { one->wait(); },
                                           .written = {}});
}

void DistributedDataParallelBase::Impl::end_step() {
  if (broadcast_buffers && !buffers.empty()) {
    auto* rehearsal = detail::rehearsal_on_this_thread();
    for (const auto& [name, tensor] : buffers) {
      if (rehearsal != nullptr) rehearsal->sent(tensor);
    }
    if (!is_replay_of_rehearsal()) broadcast_all_buffers(join ? highest_rank(true) : 0);
    if (rehearsal != nullptr) rehearsal->received();
  }
  if (is_replay_of_rehearsal()) return;
  detail::enter(detail::Phase::kOptimizer);
  activity.reset();
  if (!averages_in_step) has_local_gradients = false;
  state = StepState::kIdle;
}

}  // namespace yoke::train
