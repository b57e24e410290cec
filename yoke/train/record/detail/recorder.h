// yoke/train/record/detail/recorder.h -- records which operators a step calls below autograd, and makes a plan of them.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "yoke/train/record/detail/plan.h"

namespace yoke::train::detail {

/// Records all operators that this thread calls during its lifetime, until the first that cannot be recorded. The
/// operators run as they would without it.
class Recorder final : public StepRecording {
 public:
  /// All tensors of the step must be on `device`, the CPU or one with graphs.
  explicit Recorder(c10::Device device);
  ~Recorder() override;
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Returns another tensor for each input, with the same elements in the same place, by which the step must be called.
  std::vector<at::Tensor> add_inputs(at::TensorList inputs);

  /// Parameters whose gradients may change, as far as another recording of the same step has found them.
  void note_gradients(const std::vector<at::Tensor>& parameters);

  /// Ends the recording. `results` of the step must be the only references to them and have no graph.
  void finish(const std::vector<at::Tensor>& results);

  void call(HostCall call) override;
  void add(HostCall call) override;
  void refuse(const std::string& reason) override;
  void postpone() override { is_postponed_ = true; }
  void use_gradient(const at::Tensor& parameter) override { add_leaf(parameter); }
  void communicate(const std::string& op, const at::Tensor& tensor) override;
  void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

  const std::string& why_not() const { return why_not_; }  ///< Empty if all could be recorded.
  bool is_postponed() const { return is_postponed_; }
  bool ran_backward() const { return ran_backward_; }
  bool keeps_casts() const { return keeps_casts_; }  ///< Those of an Autocast around the step.
  void note_backward() { ran_backward_ = true; }
  std::vector<at::Tensor> parameters() const { return leaves_; }
  Plan take_plan() { return std::move(plan_); }

 private:
  void add_leaf(const at::Tensor& leaf);
  void follow_gradient(const at::Tensor& parameter);
  void note_gradient_changes();
  void note_gradient_after(const at::Tensor& parameter);
  void push(RecordedCall call, HostCall host);
  size_t memory_of(const at::Tensor& tensor);
  at::Tensor stand_in_for(const at::Tensor& tensor);
  c10::IValue stand_in_for(const c10::IValue& value);
  std::string why_not_recordable(const at::Tensor& tensor) const;
  c10::Allocator* allocator() const;
  void refuse_what_graphs_lack();
  void note_seed(const std::string& op, const at::Tensor& result);
  void refuse_operator(const c10::OperatorHandle& op, const std::string& reason);
  GradientAt gradient_of(const at::Tensor& parameter);
  void watch(const at::Tensor& tensor);
  void draw_from(const at::Generator& generator);
  void forget_unchanged_gradients();
  void move_found_gradients();
  std::vector<size_t> last_uses() const;
  void stop();

  const c10::Device device_;
  Plan plan_;
  std::string why_not_;
  bool is_postponed_ = false, ran_backward_ = false, keeps_casts_ = false;
  std::unordered_map<const c10::StorageImpl*, size_t> memory_ids_;
  std::vector<bool> is_undefined_;  ///< Memories that were made without values, and that no operator has written yet.
  std::vector<std::vector<at::Tensor>> stand_ins_;  ///< Tensors over each memory.
  std::vector<at::Tensor> leaves_;
  std::unordered_set<const c10::TensorImpl*> known_leaves_, watched_;
  std::vector<GradientAt> gradients_before_;
  /// Parameters whose gradients are followed, and the gradients that they had at the last call.
  std::vector<std::pair<at::Tensor, const c10::TensorImpl*>> followed_;
  std::unordered_set<const c10::TensorImpl*> known_followed_;
  std::unordered_set<const c10::StorageImpl*> seeds_;  ///< On the CPU, although the step is on a GPU: note_seed().
  StepRecording* outer_ = nullptr;
  bool was_on_ = false, was_multithreaded_ = false;
  uint64_t readers_ = 0;  ///< The callback that sees operators which are made of others.
};

/// During its lifetime, the recording on this thread is told of operators that communicate, although it does not
/// record.
class CommunicationWatch {
 public:
  CommunicationWatch();
  ~CommunicationWatch();
  CommunicationWatch(const CommunicationWatch&) = delete;
  CommunicationWatch& operator=(const CommunicationWatch&) = delete;

 private:
  const bool was_on_;
};

}  // namespace yoke::train::detail
