// yoke/train/record/detail/plan.h -- a recorded step: a flat list of operator calls over tensors that stay the same.
//
// Each memory (StorageImpl) that the step has touched has a stand-in of the plan's own, and each call of an operator
// has arguments that were made once and refer to stand-ins. A replay gives the stand-ins their memory: that of the
// inputs and of the program's tensors before the first call, that of a result when its operator has run.
//
// On a GPU, each run of operators without a host call between them is captured as one graph, which a replay starts.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "yoke/dist/plug.h"
#include "yoke/train/detail/recording.h"

namespace yoke::train::detail {

enum class MemoryKind : uint8_t {
  kUnused,    ///< No call reads or writes it, as that of a gradient of which only a view was made.
  kInput,     ///< Given with each call.
  kExternal,  ///< The program's, such as a parameter.
  kMade,      ///< Made by an operator of the step.
};

struct Memory {
  MemoryKind kind = MemoryKind::kExternal;
  c10::intrusive_ptr<c10::StorageImpl> stand_in;
  c10::weak_intrusive_ptr<c10::StorageImpl> recorded;  ///< That of the recording. If external, it must stay alive.
  size_t input = 0;                                    ///< Only of kInput.
  bool is_kept = false;  ///< Made and kept after the step: it belongs to an output or to a gradient.
  bool is_written = false;
  c10::ScalarType dtype = c10::ScalarType::Byte;  ///< Of the first tensor that the step had in it.
  size_t maker = 0;                               ///< The index of the call that makes it.
  bool is_fixed = false;                          ///< Made and never released, for direct calls.
};

/// A parameter that the program may replace by another one. What refers to it so does not keep it.
class Parameter {
 public:
  Parameter(const at::Tensor& tensor) : tensor_(tensor.getIntrusivePtr()) {}  // NOLINT: as what it is
  bool is_gone() const { return tensor_.use_count() == 0; }
  /// Also one that is gone, which has no gradient then.
  c10::TensorImpl* get() const { return tensor_._unsafe_get_target(); }
  /// REQUIRES: !is_gone()
  at::Tensor tensor() const { return at::Tensor(tensor_.lock()); }

 private:
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor_;
};

/// A gradient at one moment of the step.
struct GradientAt {
  Parameter parameter;
  at::Tensor gradient;  ///< A tensor of the plan, or of the program if its memory is external. May be undefined.
};

struct RecordedCall {
  std::optional<c10::OperatorHandle> op;  ///< Not set for a host call.
  c10::DispatchKeySet keys;
  std::vector<c10::IValue> arguments;
  std::vector<std::pair<size_t, size_t>> makes;  ///< The position among all tensors of the results, and the memory.
  bool grad_mode = false;
  HostCall host;
  std::vector<GradientAt> gradients;  ///< Those that a host call finds.
  std::vector<size_t> found;          ///< Those of gradients_before that a host call finds as the step has found them.
  // Found when the recording is complete.
  std::vector<size_t> releases;  ///< Memories that no later call reads.
  std::function<void()> direct;  ///< If set, it takes the place of the operator (kernels.h).
  /// If set, this and the following calls, together so many.
  std::shared_ptr<dist::DeviceGraph> graph;
  size_t num_captured = 0;
};

/// A gradient as the step finds it.
struct GradientBefore {
  Parameter parameter;
  bool is_defined = false;
  const c10::StorageImpl* place = nullptr;  ///< Its memory, if the plan reads it or writes to it.
  // Set with `place`.
  size_t memory = 0;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  int64_t offset = 0;
  c10::SmallVector<int64_t, 4> sizes, strides;

  bool has_layout_of(const at::Tensor& tensor) const;
};

/// A gradient that the step sets or drops before this call.
struct GradientChange {
  size_t call = 0;
  GradientAt at;
};

/// A tensor of the program that the step uses, as it was when the step was recorded.
struct Watched {
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
  std::string name;  ///< In its module, if that is known.
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  bool requires_grad = false;
  const c10::StorageImpl* place = nullptr;
  int64_t offset = 0;
  c10::SmallVector<int64_t, 4> sizes, strides;
};

/// A parameter, where it was, and its hooks (hooks_of()).
struct Leaf {
  Parameter parameter;
  const c10::StorageImpl* place = nullptr;
  size_t hooks = 0;
};

/// A gradient that the plan makes, and how often the plan itself refers to its tensor and to its memory.
struct MadeGradient {
  GradientAt at;
  size_t num_uses = 0, num_memory_uses = 0;
};

struct InputSpec {
  c10::SmallVector<int64_t, 4> sizes, strides;
  c10::DispatchKeySet keys;  ///< Also says whether the tensor is dense, and whether it is lazily negated or conjugated.
  c10::ScalarType dtype;
  c10::Device device;
  int64_t offset = 0;
};

struct OutputSpec {
  size_t memory = 0;
  at::Tensor tensor;  ///< Of the plan; undefined if the step returned an undefined tensor.
};

/// Why a replay would be wrong.
struct Stale {
  std::string reason;
  bool is_gradient = false;  ///< Only because of the tensor in which the gradients are now.
};

/// A step for inputs of one shape. Move-only.
class Plan {
 public:
  Plan() = default;
  Plan(Plan&&) = default;
  Plan& operator=(Plan&&) = default;

  bool fits(at::TensorList inputs) const;

  /// Captures all operators, which do not run, for replays on a GPU. Throws if that is not possible. `inputs` fit.
  void capture(dist::GraphMaker& maker, at::TensorList inputs);
  bool is_captured() const { return is_captured_; }

  /// Whether a parameter of the step has ended, as with its network. Then there is a reason of why_stale().
  bool has_lost_parameter() const;

  /// Why a replay would be wrong, because the program has replaced something; the reason is empty if it has not.
  Stale why_stale();

  /// Does the step. REQUIRES: fits(inputs) and no reason of why_stale().
  std::vector<at::Tensor> replay(at::TensorList inputs);

  std::vector<InputSpec> inputs;
  std::vector<Memory> memories;
  std::vector<RecordedCall> calls;
  std::vector<OutputSpec> outputs;
  std::vector<GradientBefore> gradients_before;
  std::vector<GradientAt> gradients_after;       ///< Those that differ from the ones before.
  std::vector<size_t> found_after;               ///< Those of gradients_before that are there again after the step.
  bool finds_gradients = false;                  ///< Whether there is one of these, or one that a host call finds.
  std::vector<GradientChange> gradient_changes;  ///< In the order of calls.
  std::vector<at::Generator> generators;         ///< Those from which the step draws.
  std::vector<Leaf> leaves;
  std::vector<Watched> watched;
  std::vector<std::weak_ptr<const void>> owners;  ///< Of functions that host calls run.
  std::vector<std::shared_ptr<StepCommunication>> communications;
  bool grad_mode = true;
  uint8_t autocast = 0;  ///< autocast_state()
  caffe2::TypeMeta default_dtype = caffe2::TypeMeta::Make<float>();

 private:
  void follow_gradients();
  void set_found(const std::vector<size_t>& found) const;
  bool keeps_gradients();
  Stale replaced(const c10::StorageImpl* place) const;
  void bind(at::TensorList inputs);
  void run(RecordedCall& call);
  void leave_gradients(size_t call) const;
  void release_after(const RecordedCall& call);
  void keep_what_replays_find();
  void copy_inputs(at::TensorList inputs);

  torch::jit::Stack stack_;
  std::vector<MadeGradient> made_gradients_;
  std::vector<at::Tensor> found_;  ///< While a replay runs, the gradients that were there when it began.
  bool has_counted_uses_ = false, is_captured_ = false;
  std::vector<at::Tensor> own_inputs_;  ///< Of a plan with graphs: the memory of each input, as one dimension.
};

/// Which kinds of devices have autocast, as bits.
uint8_t autocast_state();

/// The elements from a tensor's first to its last one in memory, with those between them, as one dimension.
at::Tensor flat_memory(const at::Tensor& tensor);

/// A number that differs after hooks of a tensor were added, removed or replaced.
size_t hooks_of(const c10::TensorImpl& tensor);

/// All tensors in a value, also those in lists.
void visit_tensors(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit);

}  // namespace yoke::train::detail
