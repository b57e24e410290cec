// How it works: the dispatch key Fake, which libtorch has for tensors without memory and which this library does not
// use otherwise, comes after autograd and before all devices. While a step is recorded, the key is included in the
// thread's dispatch state, and its fallback sees each operator that autograd's kernels, backward or the program call.
// It leaves the key out while the operator runs, so operators that are called inside are parts of it.
#include "yoke/train/record/detail/recorder.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/core/AutogradState.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "yoke/train/detail/describe.h"
#include "yoke/train/device/detail/call_site.h"
#include "yoke/train/record/detail/kernels.h"
#include "yoke/train/record/detail/snapshot.h"

namespace yoke::train::detail {
namespace {

using torch::jit::Stack;

const c10::StorageImpl* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

Recorder*& recorder_on_this_thread() {
  thread_local Recorder* current = nullptr;
  return current;
}

void tell_of_communication(const c10::OperatorHandle& op, const Stack& stack) {
  auto* recording = recording_on_this_thread();
  if (recording == nullptr) return;
  at::Tensor first;
  const auto num_arguments = static_cast<int64_t>(op.schema().arguments().size());
  for (const auto& argument : std::span(stack.end() - num_arguments, stack.end())) {
    visit_tensors(argument, [&](const at::Tensor& tensor) {
      if (!first.defined()) first = tensor;
    });
  }
  recording->communicate(op.schema().name(), first);
}

bool has_tag(const c10::OperatorHandle& op, at::Tag tag) {
  const auto tags = op.getTags();
  return std::ranges::find(tags, tag) != tags.end();
}

/// Whether an operator gives memory without values in it.
bool makes_undefined_values(std::string_view name) {
  return name == "aten::empty" || name == "aten::empty_like" || name == "aten::empty_strided" ||
         name == "aten::new_empty" || name == "aten::new_empty_strided";
}

/// Operators that use the shape of a tensor and not its values.
bool reads_shape_only(std::string_view name) { return name.ends_with("_like") || name.starts_with("aten::new_"); }

bool is_mask(const c10::IValue& value) {
  bool found = false;
  visit_tensors(value, [&](const at::Tensor& tensor) {
    found = found || tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte;
  });
  return found;
}

/// Whether the shape of a result depends on values. libtorch does not say so of the packed sequences.
bool has_dynamic_shape(const c10::OperatorHandle& op, const Stack& stack) {
  const std::string_view name = op.schema().name();
  if (name == "aten::_pack_padded_sequence") return true;
  return has_tag(op, at::Tag::dynamic_output_shape) && (name != "aten::index" || is_mask(stack.back()));
}

bool changes_memory(std::string_view name) {
  constexpr std::array kNames = {"aten::resize_",  "aten::resize_as_",        "aten::set_",           "aten::resize",
                                 "aten::set_data", "aten::resize_as_sparse_", "aten::_resize_output_"};
  return std::ranges::find(kNames, name) != kNames.end();
}

/// Operators that autograd or the dispatcher takes apart, so that a recording sees their parts alone, and which read
/// values of a tensor through a pointer before that. The last text is what the program may do instead.
std::string_view instead_of_reading(const c10::OperatorName& op) {
  struct Reader {
    std::string_view name, overload, instead;
  };
  constexpr std::string_view kUnpacked =
      "give the network padded batches, and mask what it computes from the padding, or keep it outside";
  constexpr std::array kReaders = {
      Reader{"aten::tensor_split", "tensor_indices_or_sections", "split at numbers that do not change, or outside"},
      Reader{"aten::ctc_loss", "Tensor", "if the lengths never change, call torch::ctc_loss() with numbers"},
      Reader{"aten::_pad_packed_sequence", "", kUnpacked},
      Reader{"aten::lstm", "data", kUnpacked},
      Reader{"aten::gru", "data", kUnpacked},
      Reader{"aten::rnn_tanh", "data", kUnpacked},
      Reader{"aten::rnn_relu", "data", kUnpacked},
  };
  for (const auto& reader : kReaders) {
    if (op.name == reader.name && op.overload_name == reader.overload) return reader.instead;
  }
  return {};
}

/// Called before each operator, also before those that are made of others.
std::unique_ptr<at::ObserverContext> see_readers(const at::RecordFunction& function) {
  auto* recorder = recorder_on_this_thread();
  const auto op = function.operator_name();
  if (recorder == nullptr || !op || c10::impl::tls_is_dispatch_key_excluded(kRecorderKey)) return nullptr;
  if (const auto instead = instead_of_reading(*op); !instead.empty()) {
    recorder->refuse(
        fmt::format("{} takes numbers from a tensor, which may be other ones in the next step: {}", op->name, instead));
  }
  return nullptr;
}

/// Whether an operator is made of others. Autograd takes it apart, but under InferenceMode it comes here whole.
bool is_composite(const c10::OperatorHandle& op, c10::DispatchKeySet keys) {
  using c10::DispatchKey;
  return op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) &&
         !op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional) &&
         !op.hasKernelForDispatchKey(keys.highestPriorityTypeId());
}

/// Whether an operator writes to an argument. libtorch does not say so of running statistics.
bool may_write(std::string_view op, const c10::Argument& argument) {
  if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) return true;
  return argument.name().starts_with("running_") && !op.ends_with("_backward");
}

/// Whether the arguments are one tensor. libtorch's MultiheadAttention asks for it to find self-attention.
bool are_the_same(const c10::IValue& a, const c10::IValue& b) {
  const auto &x = a.toTensor(), &y = b.toTensor();
  return x.is_same(y) || (x.is_alias_of(y) && x.storage_offset() == y.storage_offset() && x.sizes() == y.sizes() &&
                          x.strides() == y.strides() && x.dtype() == y.dtype());
}

void record_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kRecorderKey);
  auto* recorder = recorder_on_this_thread();
  const bool communicates = op.schema().name().starts_with("c10d::");
  if (recorder != nullptr && torch::autograd::get_current_node()) recorder->note_backward();
  const bool is_recorded = !communicates && recorder != nullptr && recorder->why_not().empty();
  if (is_recorded && is_composite(op, below)) {
    op.redispatchBoxed(below, stack);  // its parts are recorded
    return;
  }
  const c10::impl::ExcludeDispatchKeyGuard inside(kRecorderKey);
  if (communicates) tell_of_communication(op, *stack);
  if (is_recorded) {
    recorder->record(op, below, stack);
  } else {
    op.redispatchBoxed(below, stack);
  }
}

void register_recorder() {
  static const auto kept = c10::Dispatcher::singleton().registerFallback(
      kRecorderKey, c10::KernelFunction::makeFromBoxedFunction<&record_operator>(), "yoke");
}

}  // namespace

Recorder::Recorder(c10::Device device) : device_(device) {
  register_recorder();
  plan_.grad_mode = c10::GradMode::is_enabled();
  plan_.autocast = autocast_state();
  plan_.default_dtype = c10::get_default_dtype();
  // Backward then runs on this thread, and not on that of a GPU, where it would not be seen.
  auto& autograd = c10::AutogradState::get_tls_state();
  was_multithreaded_ = autograd.get_multithreading_enabled();
  if (!device_.is_cpu()) autograd.set_multithreading_enabled(false);
  outer_ = std::exchange(recording_on_this_thread(), this);
  recorder_on_this_thread() = this;
  was_on_ = c10::impl::tls_is_dispatch_key_included(kRecorderKey);
  c10::impl::tls_set_dispatch_key_included(kRecorderKey, true);
  readers_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&see_readers).scopes({at::RecordScope::FUNCTION}));
}

Recorder::~Recorder() { stop(); }

CommunicationWatch::CommunicationWatch() : was_on_(c10::impl::tls_is_dispatch_key_included(kRecorderKey)) {
  register_recorder();
  c10::impl::tls_set_dispatch_key_included(kRecorderKey, true);
}

CommunicationWatch::~CommunicationWatch() { c10::impl::tls_set_dispatch_key_included(kRecorderKey, was_on_); }

std::vector<at::Tensor> Recorder::add_inputs(at::TensorList inputs) {
  std::vector<at::Tensor> result;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& input = inputs[i];
    if (const auto reason = why_not_recordable(input); !reason.empty()) refuse(fmt::format("input {} {}", i, reason));
    if (input.defined() && input.requires_grad()) refuse(fmt::format("input {} requires a gradient", i));
    if (!why_not_.empty()) return {inputs.begin(), inputs.end()};
    // Inputs may share memory now and not at another call, so each has a memory of its own here.
    const auto& storage = input.storage();
    auto memory = c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), storage.nbytes(),
        c10::DataPtr(
            storage.mutable_data(), new c10::Storage(storage),
            [](void* context) { delete static_cast<c10::Storage*>(context); }, device_),
        allocator(), /*resizable=*/false);
    auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(memory), input.key_set(), input.dtype());
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(input.sizes(), input.strides(), input.storage_offset());
    result.push_back(tensor);
    auto& added = plan_.memories[memory_of(tensor)];
    added.kind = MemoryKind::kInput;
    added.input = i;
    plan_.inputs.push_back({.sizes = c10::SmallVector<int64_t, 4>(input.sizes()),
                            .strides = c10::SmallVector<int64_t, 4>(input.strides()),
                            .keys = input.key_set(),
                            .dtype = input.scalar_type(),
                            .device = device_,
                            .offset = input.storage_offset()});
  }
  return result;
}

void Recorder::note_gradients(const std::vector<at::Tensor>& parameters) {
  for (const auto& parameter : parameters) {
    gradients_before_.push_back({parameter, parameter.grad()});
    follow_gradient(parameter);
  }
}

void Recorder::follow_gradient(const at::Tensor& parameter) {
  if (!known_followed_.insert(parameter.unsafeGetTensorImpl()).second) return;
  followed_.emplace_back(parameter, parameter.grad().unsafeGetTensorImpl());
}

/// Notes the gradients that autograd or the program has set or dropped since the last call, which no operator does.
void Recorder::note_gradient_changes() {
  for (auto& [parameter, last] : followed_) {
    const auto& gradient = parameter.grad();
    const auto* now = gradient.unsafeGetTensorImpl();
    if (std::exchange(last, now) == now) continue;
    if (gradient.defined() &&
        (!why_not_recordable(gradient).empty() || plan_.memories[memory_of(gradient)].kind != MemoryKind::kMade)) {
      continue;
    }
    plan_.gradient_changes.push_back({plan_.calls.size(), gradient_of(parameter)});
  }
}

std::string Recorder::why_not_recordable(const at::Tensor& tensor) const {
  if (!tensor.defined()) return "is undefined";
  if (tensor.layout() != at::kStrided || !tensor.has_storage()) return "is not a dense tensor";
  if (tensor.device() != device_ && !seeds_.contains(storage_of(tensor)) &&
      !tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    return fmt::format(
        "is on {}, and the step is recorded on {}, where its first input is: a step and its inputs are on "
        "one device",
        tensor.device().str(), device_.str());
  }
  if (tensor.is_conj() || tensor.is_neg() || tensor._is_zerotensor()) return "is conjugated, negated or a zero tensor";
  return "";
}

/// Attention on a GPU gives the seeds of its dropout, or empty numbers in their place, on the CPU, but on the GPU if it
/// is captured. Its backward takes them from both.
void Recorder::note_seed(const std::string& op, const at::Tensor& result) {
  if (device_.is_cpu() || !result.defined() || !result.is_cpu() || result.numel() > 2) return;
  if (op.starts_with("aten::_scaled_dot_product_") || op.ends_with("_attention_forward")) {
    seeds_.insert(storage_of(result));
  }
}

c10::Allocator* Recorder::allocator() const { return device_.is_cpu() ? c10::GetCPUAllocator() : nullptr; }

void Recorder::refuse(const std::string& reason) {
  if (!why_not_.empty()) return;
  why_not_ = reason;
  const auto node = torch::autograd::get_current_node();
  if (node) why_not_ += fmt::format(", in the backward of {}", node->name());
  const auto site = user_call();
  if (!site.function.empty()) why_not_ += fmt::format(", called by {}", site.function);
  if (!site.file.empty()) why_not_ += fmt::format(" ({}:{})", site.file, site.line);
}

void Recorder::refuse_operator(const c10::OperatorHandle& op, const std::string& reason) {
  refuse(fmt::format("{} {}", op.schema().name(), reason));
}

size_t Recorder::memory_of(const at::Tensor& tensor) {
  const auto& storage = tensor.storage();
  const auto* impl = storage.unsafeGetStorageImpl();
  const auto [found, is_new] = memory_ids_.try_emplace(impl, plan_.memories.size());
  if (is_new) {
    Memory memory{.stand_in = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                                    storage.nbytes(), c10::DataPtr(nullptr, device_),
                                                                    allocator(), /*resizable=*/false),
                  .recorded = storage.getWeakStorageImpl(),
                  .dtype = tensor.scalar_type()};
    plan_.memories.push_back(std::move(memory));
    stand_ins_.emplace_back();
    is_undefined_.push_back(false);
  }
  return found->second;
}

void Recorder::add_leaf(const at::Tensor& leaf) {
  if (known_leaves_.insert(leaf.unsafeGetTensorImpl()).second) leaves_.push_back(leaf);
  follow_gradient(leaf);
}

void Recorder::watch(const at::Tensor& tensor) {
  if (!watched_.insert(tensor.unsafeGetTensorImpl()).second) return;
  plan_.watched.push_back({.tensor = c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr())});
}

void Recorder::draw_from(const at::Generator& generator) {
  const auto end = plan_.generators.end();
  if (std::find(plan_.generators.begin(), end, generator) == end) plan_.generators.push_back(generator);
}

at::Tensor Recorder::stand_in_for(const at::Tensor& tensor) {
  // libtorch makes a tensor of a number in a call, without an operator. It is a constant.
  if (!tensor.defined() || tensor.unsafeGetTensorImpl()->is_wrapped_number()) return tensor;
  const auto id = memory_of(tensor);
  // Temporary tensors of backward may say that they are leaves, but only real ones have an accumulator.
  if (tensor.requires_grad() && tensor.is_leaf() && torch::autograd::impl::try_get_grad_accumulator(tensor)) {
    add_leaf(tensor);
  }
  for (const auto& known : stand_ins_[id]) {
    if (known.dtype() == tensor.dtype() && known.storage_offset() == tensor.storage_offset() &&
        known.sizes() == tensor.sizes() && known.strides() == tensor.strides() &&
        known.requires_grad() == tensor.requires_grad()) {
      return known;
    }
  }
  const auto keys =
      seeds_.contains(storage_of(tensor)) ? c10::DispatchKeySet(c10::DispatchKey::CUDA) : tensor.key_set();
  auto stand_in =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(plan_.memories[id].stand_in), keys, tensor.dtype());
  stand_in.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.requires_grad()) stand_in.unsafeGetTensorImpl()->set_requires_grad(true);  // some kernels ask for it
  stand_ins_[id].push_back(stand_in);
  return stand_in;
}

c10::IValue Recorder::stand_in_for(const c10::IValue& value) {
  if (value.isTensor()) return stand_in_for(value.toTensor());
  if (value.isList()) {
    bool has_tensors = false;
    visit_tensors(value, [&](const at::Tensor&) { has_tensors = true; });
    if (!has_tensors) return value;
    const auto list = value.toList();
    c10::impl::GenericList result(list.elementType());
    for (const c10::IValue& element : value.toListRef()) result.push_back(stand_in_for(element));
    return result;
  }
  return value;
}

void Recorder::record(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const auto& schema = op.schema();
  const std::string_view name = schema.name();
  const auto num_arguments = schema.arguments().size();
  const auto first = stack->size() - num_arguments;

  if (has_tag(op, at::Tag::data_dependent_output) &&
      !(name == "aten::equal" && are_the_same((*stack)[first], (*stack)[first + 1]))) {
    refuse_operator(op,
                    "gives the program a value of a tensor, which may be another one in the next step: return the "
                    "tensor from the step, and read it outside");
  } else if (has_dynamic_shape(op, *stack)) {
    refuse_operator(op, "gives a tensor whose shape depends on values");
  } else if (changes_memory(name)) {
    refuse_operator(op, "gives a tensor other memory");
  }

  if (why_not_.empty()) note_gradient_changes();
  RecordedCall call{.op = op, .keys = keys, .grad_mode = c10::GradMode::is_enabled()};
  bool writes = false;
  bool draws = has_tag(op, at::Tag::nondeterministic_seeded) || !name.starts_with("aten::");
  std::vector<size_t> written;
  std::vector<std::pair<at::Tensor, std::vector<int64_t>>> shapes;
  std::unordered_map<size_t, std::pair<at::Tensor, int64_t>> sums;  // of what the operator should only read
  for (size_t i = 0; i < num_arguments && why_not_.empty(); ++i) {
    const auto& argument = (*stack)[first + i];
    const auto* alias = schema.arguments()[i].alias_info();
    const bool is_write = may_write(name, schema.arguments()[i]);
    visit_tensors(argument, [&](const at::Tensor& tensor) {
      if (!why_not_.empty()) return;
      if (const auto reason = why_not_recordable(tensor); !reason.empty()) {
        return refuse_operator(op, fmt::format("has an argument, '{}', that {}", schema.arguments()[i].name(), reason));
      }
      if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) return;
      const auto id = memory_of(tensor);
      if (plan_.memories[id].kind == MemoryKind::kExternal && tensor.is_leaf()) watch(tensor);
      if (is_write) {
        writes = true;
        written.push_back(id);
        shapes.emplace_back(tensor, tensor.sizes().vec());
      } else if (is_undefined_[id] && tensor.numel() > 0 && alias == nullptr && !reads_shape_only(name)) {
        refuse_operator(op,
                        fmt::format("reads {} that has got its values without an operator, as by torch::tensor() or "
                                    "through a pointer: make it outside of the step, or by torch::full()",
                                    describe(tensor)));
      } else if (plan_.memories[id].kind != MemoryKind::kMade && tensor.numel() > 0 && !sums.contains(id)) {
        sums.emplace(id, std::pair(tensor, checksum(tensor)));
      }
    });
    if (argument.isStorage()) refuse_operator(op, "changes the memory of a tensor");
    if (argument.isGenerator()) {
      draw_from(argument.toGenerator());
      draws = false;
      if (!device_.is_cpu() && argument.toGenerator() != at::globalContext().defaultGenerator(device_)) {
        refuse_operator(op, "draws from a generator that is not the default one of the GPU");
      }
    }
    if (why_not_.empty()) call.arguments.push_back(stand_in_for(argument));
  }
  if (draws) draw_from(at::globalContext().defaultGenerator(device_));
  const auto num_known = plan_.memories.size();
  op.redispatchBoxed(keys, stack);
  if (!why_not_.empty()) return;

  for (const auto& [id, before] : sums) {
    const auto& [tensor, sum] = before;
    if (std::ranges::find(written, id) != written.end() || checksum(tensor) == sum) continue;
    writes = true;
    written.push_back(id);
  }
  for (const auto& [tensor, sizes] : shapes) {
    if (tensor.sizes() != at::IntArrayRef(sizes) && !has_tag(op, at::Tag::inplace_view)) {
      return refuse_operator(op, "changes the shape of a tensor that it writes to");
    }
  }
  for (const size_t id : written) {
    plan_.memories[id].is_written = true;
    is_undefined_[id] = false;
  }
  size_t position = 0;
  std::vector<at::Tensor> made;
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
    visit_tensors((*stack)[i], [&](const at::Tensor& tensor) {
      if (!why_not_.empty()) return;
      note_seed(op.schema().name(), tensor);
      if (const auto reason = why_not_recordable(tensor); !reason.empty()) {
        return refuse_operator(op, fmt::format("gives a tensor that {}", reason));
      }
      const auto id = memory_of(tensor);
      const bool is_whole = tensor.storage_offset() == 0 && tensor.nbytes() == tensor.storage().nbytes();
      if (is_whole) made.push_back(stand_in_for(tensor));
      if (id >= num_known && plan_.memories[id].kind == MemoryKind::kExternal) {  // new
        plan_.memories[id].kind = MemoryKind::kMade;
        plan_.memories[id].maker = plan_.calls.size();
        is_undefined_[id] = makes_undefined_values(name);
        call.makes.emplace_back(position, id);
      }
      ++position;
    });
  }
  // Views need no work in a replay, and neither do questions about shapes. What gives nothing is a check.
  if (!schema.returns().empty() && (!writes || has_tag(op, at::Tag::inplace_view)) && call.makes.empty()) return;
  if (device_.is_cpu()) {
    if (!writes && made.size() == call.makes.size() && made.size() == position) call.direct = direct_kernel(call, made);
    if (writes && call.makes.empty()) call.direct = direct_write(call);
  }
  plan_.calls.push_back(std::move(call));
}

void Recorder::call(HostCall host) {
  const c10::impl::ExcludeDispatchKeyGuard inside(kRecorderKey);
  RecordedCall call{.keys = {}, .grad_mode = c10::GradMode::is_enabled()};
  if (why_not_.empty()) {
    note_gradient_changes();
    if (host.owner) plan_.owners.push_back(*host.owner);
    for (const auto& parameter : host.parameters) {
      add_leaf(parameter);
      watch(parameter);
      call.gradients.push_back(gradient_of(parameter));
    }
  }
  host.run(host.tensors);
  host.parameters.clear();  // the plan must not keep them
  push(std::move(call), std::move(host));
}

size_t hooks_of(const c10::TensorImpl& tensor) {
  const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(tensor.autograd_meta());
  if (meta == nullptr || !meta->cpp_hooks_list_) return 0;
  // A hook that is removed leaves its place, so the number of places tells of one that took the place of another.
  const auto& hooks = *meta->cpp_hooks_list_;
  const auto num_left = std::ranges::count_if(hooks, [](const auto& hook) { return !!hook; });
  return (hooks.size() << 32) + static_cast<size_t>(num_left);
}

void Recorder::add(HostCall host) { push({.keys = {}, .grad_mode = c10::GradMode::is_enabled()}, std::move(host)); }

void Recorder::push(RecordedCall call, HostCall host) {
  if (!why_not_.empty()) return;
  for (auto& tensor : host.tensors) tensor = stand_in_for(tensor);
  call.host = std::move(host);
  plan_.calls.push_back(std::move(call));
}

void Recorder::communicate(const std::string& op, const at::Tensor& tensor) {
  if (!why_not_.empty()) return;
  for (const auto& [owner, communication] : communications_) {
    if (op != "c10d::allreduce_") break;
    if (auto again = communication->all_reduce(tensor)) return add(std::move(*again));
  }
  if (is_postponed_) return;
  refuse(op +
         " communicates with other ranks: only the means of DistributedDataParallel can be recorded. step() and "
         "zero_grad() of a Sharded optimizer belong outside of the recorded step, and FullyShardedDataParallel is not "
         "recorded");
}

/// The gradient that a parameter has now, as a replay will set it.
GradientAt Recorder::gradient_of(const at::Tensor& parameter) {
  const auto& gradient = parameter.grad();
  if (!gradient.defined()) return {parameter, {}};
  if (const auto reason = why_not_recordable(gradient); !reason.empty()) {
    refuse(fmt::format("the gradient of a parameter, {}, {}", describe(parameter), reason));
    return {parameter, {}};
  }
  const auto& memory = plan_.memories[memory_of(gradient)];
  return {parameter, memory.kind == MemoryKind::kMade ? stand_in_for(gradient) : gradient};
}

void Recorder::stop() {
  if (recorder_on_this_thread() != this) return;
  c10::impl::tls_set_dispatch_key_included(kRecorderKey, was_on_);
  at::removeCallback(readers_);
  recorder_on_this_thread() = nullptr;
  recording_on_this_thread() = outer_;
  c10::AutogradState::get_tls_state().set_multithreading_enabled(was_multithreaded_);
}

}  // namespace yoke::train::detail
