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
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

detail::HostCall host_call(const char* name, std::function<void()> run) {
  return {.name = name,
          .tensors = {},
          .parameters = {},
          .run = [run = std::move(run)](const auto&) { run(); },
          .written = {}};
}

}  // namespace

/// A DistributedDataParallel in one recorded step.
class DistributedDataParallelBase::Impl::RecordedCommunication final : public detail::StepCommunication {
 public:
  explicit RecordedCommunication(const std::shared_ptr<Impl>& impl)
      : impl_(impl),
        owner_(impl.get()),
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
    auto call = host_call("the all-reduce of a bucket of DistributedDataParallel", nullptr);
    call.tensors = {tensor};
    call.run = [this](const std::vector<at::Tensor>& bucket) { start(bucket[0]); };
    return call;
  }

  void report(const std::exception& error) const noexcept override {
    try {
      const auto impl = impl_.lock();
      const auto* known = dynamic_cast<const Error*>(&error);
      // What other ranks have done is no news to them.
      if (!impl ||
          (known != nullptr && (known->code() == ErrorCode::kTimeout || known->code() == ErrorCode::kUnavailable))) {
        return;
      }
      impl->group.report_failure(
          fmt::format("in step {} of DistributedDataParallel: {}", impl->num_steps, dist::error_text(error)));
    } catch (const std::exception&) {  // there is no memory for the text
    }
  }

  void forget_pending() { pending_.clear(); }  ///< Of a replay that an error has ended.

  void start(const at::Tensor& bucket) {
    if (auto* rehearsal = detail::rehearsal_on_this_thread()) return rehearsal->sent(owner_, bucket);
    pending_.push_back(impl_.lock()->group.start_all_reduce(bucket));
  }

  void wait() {
    if (auto* rehearsal = detail::rehearsal_on_this_thread()) return rehearsal->received(owner_);
    detail::enter(detail::Phase::kWait);
    for (auto& pending : std::exchange(pending_, {})) pending.wait();
  }

  /// Whether the hooks of this forward's parameters have noted that gradients are not averaged.
  bool has_noted_local_gradients = false;

 private:
  const std::weak_ptr<Impl> impl_;
  const void* const owner_;
  const std::weak_ptr<Reducer> reducer_;
  const int64_t generation_;
  const bool is_under_no_sync_;
  std::vector<dist::PendingCollective> pending_;
};

std::string DistributedDataParallelBase::Impl::why_not_recordable() const {
  if (averages_in_step) return "average_in_step, with which the step of the optimizer communicates";
  if (given.communication_hook) return "a communication_hook, which may have a state of its own";
  if (static_graph) return "static_graph, with which each step reads what the first one has used";
  if (find_unused_parameters) return "find_unused_parameters, with which each step asks the other ranks what they use";
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

void DistributedDataParallelBase::Impl::refuse_to_record(const char* reason) {
  if (auto* recording = detail::recording_on_this_thread()) recording->refuse(reason);
}

void DistributedDataParallelBase::Impl::postpone_recording() {
  if (auto* recording = detail::recording_on_this_thread()) recording->postpone();
}

void DistributedDataParallelBase::Impl::note_forward(bool averages) {
  const auto communication = recorded();
  if (!communication) return;
  if (!reducer->has_its_buckets()) postpone_recording();
  communication->has_noted_local_gradients = false;
  detail::recording_on_this_thread()->add(
      host_call("a forward of DistributedDataParallel", [this, averages] { replay_forward(averages); }));
}

/// What is left of begin_forward without the Reducer.
void DistributedDataParallelBase::Impl::replay_forward(bool averages) {
  if (is_replay_of_rehearsal()) return;
  check_local_gradients();
  check_last_backward();
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
  detail::recording_on_this_thread()->add(host_call("a backward under no_sync()", [this] {
    if (!is_replay_of_rehearsal()) has_local_gradients = true;
  }));
}

void DistributedDataParallelBase::Impl::begin_averaging() {
  detail::enter(detail::Phase::kBackward);
  activity.emplace(group, kStepName);
}

void DistributedDataParallelBase::Impl::note_backward() {
  const auto communication = recorded();
  if (!communication) return;
  const auto replay = [this, one = communication.get()] {
    if (is_replay_of_rehearsal()) return;
    one->forget_pending();
    state = StepState::kInBackward;
    begin_averaging();
  };
  detail::recording_on_this_thread()->add(host_call("a backward of DistributedDataParallel", replay));
}

/// Called when the all-reduces of the step are done, and their results are still in the buckets.
void DistributedDataParallelBase::Impl::note_wait() {
  const auto communication = recorded();
  if (!communication) return;
  if (auto* rehearsal = detail::rehearsal_on_this_thread()) rehearsal->received(this);
  detail::recording_on_this_thread()->add(
      host_call("the wait for the means of DistributedDataParallel", [one = communication.get()] { one->wait(); }));
}

void DistributedDataParallelBase::Impl::end_step() {
  auto* recording = detail::recording_on_this_thread();
  if (recording == nullptr) return end_step_now();
  auto call = host_call("the end of a step of DistributedDataParallel", [this] { end_step_now(); });
  call.written = [this] {
    std::vector<at::Tensor> tensors;
    for (const auto& [name, tensor] : buffers) tensors.push_back(tensor);
    return tensors;
  };
  recording->call(std::move(call));
}

void DistributedDataParallelBase::Impl::end_step_now() {
  auto* rehearsal = detail::rehearsal_on_this_thread();
  const bool is_replay = is_replay_of_rehearsal();
  if (broadcast_buffers && !buffers.empty()) {
    for (const auto& [name, tensor] : buffers) {
      if (rehearsal != nullptr) rehearsal->sent(this, tensor);
    }
    if (!is_replay) broadcast_all_buffers(join ? highest_rank(true) : 0);
    if (rehearsal != nullptr) rehearsal->received(this);
  }
  if (is_replay) return;
  detail::enter(detail::Phase::kOptimizer);
  activity.reset();
  if (!averages_in_step) has_local_gradients = false;
  state = StepState::kIdle;
}

}  // namespace yoke::train
