#include "yoke/train/record/detail/plan.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/irange.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "yoke/base/error.h"
#include "yoke/train/detail/describe.h"

namespace yoke::train::detail {
namespace {

c10::DataPtr borrowed(void* data, c10::Device device) { return c10::DataPtr(data, device); }
c10::DataPtr nothing(const c10::StorageImpl& memory) { return c10::DataPtr(nullptr, memory.device()); }

/// On the CPU. clone() takes 2 us for a single number.
c10::DataPtr copy_of(const c10::StorageImpl& memory) {
  auto copy = c10::GetCPUAllocator()->allocate(memory.nbytes());
  if (memory.nbytes() > 0) std::memcpy(copy.get(), memory.data(), memory.nbytes());
  return copy;
}

/// The tensor `like` over another memory.
at::Tensor over(c10::Storage storage, const at::Tensor& like, int64_t offset) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), like.key_set(), like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), offset);
  return tensor;
}

void set_gradients(const std::vector<GradientAt>& gradients) {
  for (const auto& [parameter, gradient] : gradients) {
    if (parameter.is_gone()) continue;
    auto& now = parameter.get()->mutable_grad();
    if (!now.is_same(gradient)) now = gradient;
  }
}

}  // namespace

void visit_tensors(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) visit_tensors(element, visit);
  } else if (value.isTuple()) {
    for (const auto& element : value.toTupleRef().elements()) visit_tensors(element, visit);
  }
}

uint8_t autocast_state() {
  return static_cast<uint8_t>((at::autocast::is_autocast_enabled(at::kCPU) ? 1 : 0) |
                              (at::autocast::is_autocast_enabled(at::kCUDA) ? 2 : 0));
}

at::Tensor flat_memory(const at::Tensor& tensor) {
  constexpr int64_t kStride = 1;
  int64_t extent = tensor.numel() == 0 ? 0 : 1;
  for (int64_t i = 0; i < tensor.dim() && extent > 0; ++i) extent += (tensor.size(i) - 1) * tensor.stride(i);
  auto flat =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(tensor.storage()), tensor.key_set(), tensor.dtype());
  flat.unsafeGetTensorImpl()->set_sizes_and_strides(at::IntArrayRef(extent), at::IntArrayRef(kStride),
                                                    tensor.storage_offset());
  return flat;
}

bool GradientBefore::has_layout_of(const at::Tensor& tensor) const {
  return tensor.scalar_type() == dtype && tensor.storage_offset() == offset &&
         tensor.sizes() == at::IntArrayRef(sizes) && tensor.strides() == at::IntArrayRef(strides);
}

bool Plan::fits(at::TensorList given) const {
  if (given.size() != inputs.size() || c10::GradMode::is_enabled() != grad_mode || autocast_state() != autocast ||
      c10::get_default_dtype() != default_dtype) {
    return false;
  }
  for (const auto i : c10::irange(given.size())) {
    const auto& tensor = given[i];
    const auto& spec = inputs[i];
    if (!tensor.defined() || tensor.key_set() != spec.keys || tensor.requires_grad() ||
        tensor.scalar_type() != spec.dtype || tensor.device() != spec.device ||
        tensor.sizes() != at::IntArrayRef(spec.sizes) || tensor.strides() != at::IntArrayRef(spec.strides)) {
      return false;
    }
  }
  return std::ranges::all_of(gradients_before,
                             [](const GradientBefore& before) {
                               return before.parameter.is_gone() ||
                                      before.parameter.get()->grad().defined() == before.is_defined;
                             }) &&
         std::ranges::all_of(communications, [](const auto& communication) { return communication->fits(); });
}

bool Plan::has_lost_parameter() const {
  return std::ranges::any_of(leaves, [](const Leaf& leaf) { return leaf.parameter.is_gone(); });
}

/// Whether the program keeps a gradient of the last replay, which the next one would overwrite.
bool Plan::keeps_gradients() {
  stack_.clear();
  if (!std::exchange(has_counted_uses_, true)) {  // before the first replay nobody else can refer to them
    for (const auto& after : gradients_after) {
      if (!after.gradient.defined()) continue;
      const auto* storage = after.gradient.storage().unsafeGetStorageImpl();
      const auto is_it = [&](const Memory& memory) {
        return memory.kind == MemoryKind::kMade && memory.stand_in.get() == storage;
      };
      if (std::ranges::any_of(memories, is_it)) made_gradients_.push_back({.at = after});
    }
    for (auto& made : made_gradients_) {
      made.num_uses = made.at.gradient.use_count();
      made.num_memory_uses = made.at.gradient.storage().use_count();
    }
    return false;
  }
  return std::ranges::any_of(made_gradients_, [](const MadeGradient& made) {
    const auto& [parameter, gradient] = made.at;
    const auto& now = parameter.get()->grad();
    const bool is_parameters = now.is_same(gradient);
    // zero_grad(false) of a module gives the parameter another tensor over the same memory.
    const bool is_alias = !is_parameters && now.defined() && now.use_count() == 1 && now.is_alias_of(gradient);
    return gradient.use_count() > made.num_uses + (is_parameters ? 1 : 0) ||
           gradient.storage().use_count() > made.num_memory_uses + (is_alias ? 1 : 0);
  });
}

/// Adds to the gradients of now, if other tensors of the same layout have taken the place of those of the recording, as
/// when a step of inputs of another shape has made them.
void Plan::follow_gradients() {
  if (is_captured_) return;  // graphs write to fixed addresses
  for (auto& before : gradients_before) {
    if (before.place == nullptr || before.parameter.is_gone()) continue;
    const auto& now = before.parameter.get()->grad();
    if (!now.defined() || now.layout() != at::kStrided) continue;
    auto* place = now.storage().unsafeGetStorageImpl();
    if (place == before.place) continue;
    if (!before.has_layout_of(now) || place->nbytes() != memories[before.memory].stand_in->nbytes()) continue;
    const auto is_shared = [&](const GradientBefore& other) {
      return &other != &before && other.place == before.place;
    };
    const auto is_in_use = [&](const Memory& memory) {
      const auto* its =
          memory.kind == MemoryKind::kExternal ? memory.recorded._unsafe_get_target() : memory.stand_in.get();
      return its == place;
    };
    // Of a gradient that the step makes another tensor of, the plan has that one.
    const auto is_of_it = [&](const GradientAt& at) {
      return at.gradient.defined() && at.gradient.storage().unsafeGetStorageImpl() == before.place;
    };
    const auto has_it = [&](const RecordedCall& call) { return std::ranges::any_of(call.gradients, is_of_it); };
    if (std::ranges::any_of(gradients_before, is_shared) || std::ranges::any_of(memories, is_in_use) ||
        std::ranges::any_of(gradients_after, is_of_it) || std::ranges::any_of(calls, has_it)) {
      continue;
    }
    memories[before.memory].recorded = now.storage().getWeakStorageImpl();
    before.place = place;
  }
}

void Plan::set_found(const std::vector<size_t>& found) const {
  for (const auto i : found) {
    if (gradients_before[i].parameter.is_gone()) continue;
    auto& now = gradients_before[i].parameter.get()->mutable_grad();
    if (!now.is_same(found_[i])) now = found_[i];
  }
}

/// The message for a tensor that has lost its memory, or whose memory is gone.
Stale Plan::replaced(const c10::StorageImpl* place) const {
  constexpr auto kMessage = "a tensor that the step uses{}, {}, was replaced by another one";
  if (std::ranges::any_of(gradients_before, [&](const auto& before) { return before.place == place; })) {
    return {"a gradient to which the step adds is another tensor than when it was recorded", true};
  }
  for (const auto& then : watched) {
    if (then.place != place) continue;
    return {fmt::format(kMessage, then.name.empty() ? "" : fmt::format(", '{}'", then.name),
                        fmt::format("{} [{}]", c10::toString(then.dtype), fmt::join(then.sizes, ", ")))};
  }
  for (const auto& leaf : leaves) {
    if (leaf.place == place && !leaf.parameter.is_gone()) {
      return {fmt::format(kMessage, "", describe(leaf.parameter.tensor()))};
    }
  }
  for (const auto& memory : memories) {
    if (memory.kind != MemoryKind::kExternal || memory.recorded._unsafe_get_target() != place) continue;
    return {fmt::format(kMessage, "",
                        fmt::format("{} of {} bytes", c10::toString(memory.dtype), memory.stand_in->nbytes()))};
  }
  return {fmt::format(kMessage, "", "whose memory is another one")};
}

Stale Plan::why_stale() {
  follow_gradients();
  for (const auto& communication : communications) {
    if (auto reason = communication->why_stale(); !reason.empty()) return {reason};
  }
  for (const auto& memory : memories) {
    if (memory.kind != MemoryKind::kExternal) continue;
    const auto* place = memory.recorded._unsafe_get_target();
    if (memory.recorded.use_count() == 0) return replaced(place);
    if (is_captured_ && place->data() != memory.stand_in->data()) return replaced(place);
  }
  for (const auto& owner : owners) {
    if (owner.expired()) return {"its optimizer was replaced by another one"};
  }
  for (const auto& leaf : leaves) {
    if (leaf.parameter.is_gone()) return replaced(leaf.place);
    if (leaf.parameter.get()->unsafe_storage().unsafeGetStorageImpl() != leaf.place) return replaced(leaf.place);
    if (hooks_of(*leaf.parameter.get()) != leaf.hooks) {
      return {fmt::format("hooks of a parameter, {}, were added or removed", describe(leaf.parameter.tensor()))};
    }
  }
  for (const auto& then : watched) {
    if (then.tensor.use_count() == 0) continue;  // its memory tells whether it was replaced
    const auto* now = then.tensor._unsafe_get_target();
    if (now->unsafe_storage().unsafeGetStorageImpl() != then.place) return replaced(then.place);
    if (now->requires_grad() != then.requires_grad) return {"requires_grad of a tensor that the step uses has changed"};
    if (now->storage_offset() != then.offset || now->sizes() != at::IntArrayRef(then.sizes) ||
        now->strides() != at::IntArrayRef(then.strides)) {
      return {"the shape of a tensor that the step uses has changed"};
    }
  }
  for (const auto& before : gradients_before) {
    if (before.place == nullptr || before.parameter.is_gone()) continue;
    const auto& now = before.parameter.get()->grad();
    if (!now.defined() || now.layout() != at::kStrided || now.storage().unsafeGetStorageImpl() != before.place ||
        !before.has_layout_of(now)) {
      return replaced(before.place);
    }
  }
  if (keeps_gradients()) {
    return {"the program keeps a gradient of the step before, which a replay would overwrite; keep a clone() of it"};
  }
  return {};
}

void Plan::bind(at::TensorList given) {
  for (auto& memory : memories) {
    if (memory.kind == MemoryKind::kExternal) {
      void* data = memory.recorded._unsafe_get_target()->mutable_data();
      if (memory.stand_in->data() != data)
        memory.stand_in->set_data_ptr_noswap(borrowed(data, memory.stand_in->device()));
    } else if (memory.kind == MemoryKind::kInput) {
      const auto& spec = inputs[memory.input];
      const auto& tensor = given[memory.input];
      auto* first = static_cast<char*>(tensor.mutable_data_ptr());
      memory.stand_in->set_data_ptr_noswap(
          borrowed(first - spec.offset * static_cast<int64_t>(tensor.itemsize()), spec.device));
    }
  }
}

void Plan::run(RecordedCall& call) {
  if (!call.op) {
    set_gradients(call.gradients);
    set_found(call.found);
    call.host.run(call.host.tensors);
    return;
  }
  if (call.direct) {
    call.direct();
    return;
  }
  stack_.clear();
  for (const auto& argument : call.arguments) stack_.push_back(argument);
  call.op->redispatchBoxed(call.keys, &stack_);
  if (call.makes.empty()) return;

  size_t position = 0, next = 0;
  for (const auto& result : stack_) {
    visit_tensors(result, [&](const at::Tensor& tensor) {
      if (next < call.makes.size() && call.makes[next].first == position) {
        auto& stand_in = *memories[call.makes[next].second].stand_in;
        auto* made = tensor.storage().unsafeGetStorageImpl();
        if (made->nbytes() != stand_in.nbytes()) {
          throw Error(
              ErrorCode::kFailedPrecondition,
              "Recorded: {} has made {} bytes, and {} when the step was recorded: its result depends on values, "
              "so it belongs outside of the recorded step",
              call.op->schema().name(), made->nbytes(), stand_in.nbytes());
        }
        stand_in.set_data_ptr_noswap(made->set_data_ptr(nothing(*made)));
        ++next;
      }
      ++position;
    });
  }
}

/// Sets gradients as the step has them before a call that fails. They are copies, because the next replay writes to the
/// memory of this one.
void Plan::leave_gradients(size_t call) const {
  std::vector<c10::TensorImpl*> changed;
  for (const auto& [its_call, at] : gradient_changes) {
    if (its_call > call) break;
    if (at.parameter.is_gone()) continue;
    at.parameter.get()->mutable_grad() = at.gradient;
    changed.push_back(at.parameter.get());
  }
  for (auto* parameter : changed) {
    auto& gradient = parameter->mutable_grad();
    if (!gradient.defined()) continue;
    const auto* place = gradient.storage().unsafeGetStorageImpl();
    const auto is_its = [&](const Memory& memory) { return memory.stand_in.get() == place; };
    if (std::ranges::none_of(memories, is_its)) continue;  // it was copied already
    gradient = place->data() != nullptr ? gradient.clone() : at::Tensor();
  }
}

void Plan::release_after(const RecordedCall& call) {
  for (const size_t i : call.releases) memories[i].stand_in->set_data_ptr_noswap(nothing(*memories[i].stand_in));
}

/// A graph writes to the same memory in each replay. What the program and host calls find there must not be used for
/// anything else between the graphs.
void Plan::keep_what_replays_find() {
  std::unordered_map<const c10::StorageImpl*, Memory*> made;
  for (auto& memory : memories) {
    if (memory.kind == MemoryKind::kMade) made.emplace(memory.stand_in.get(), &memory);
  }
  const auto keep = [&](const at::Tensor& tensor) {
    const auto found = made.find(tensor.defined() ? tensor.storage().unsafeGetStorageImpl() : nullptr);
    if (found != made.end()) found->second->is_kept = true;
  };
  for (const auto& output : outputs) keep(output.tensor);
  for (const auto& change : gradient_changes) keep(change.at.gradient);
  for (const auto& call : calls) {
    for (const auto& tensor : call.host.tensors) keep(tensor);
    for (const auto& at : call.gradients) keep(at.gradient);
  }
  for (auto& call : calls) std::erase_if(call.releases, [&](size_t id) { return memories[id].is_kept; });
}

void Plan::copy_inputs(at::TensorList given) {
  for (const auto i : c10::irange(given.size())) own_inputs_[i].copy_(flat_memory(given[i]), /*non_blocking=*/true);
}

void Plan::capture(dist::GraphMaker& maker, at::TensorList given) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (const auto& input : given) own_inputs_.push_back(at::empty_like(flat_memory(input)));
  copy_inputs(given);
  keep_what_replays_find();
  bind(own_inputs_);
  const c10::AutoGradMode restored(c10::GradMode::is_enabled());
  for (size_t first = 0; first < calls.size();) {
    size_t end = first;
    while (end < calls.size() && calls[end].op) ++end;
    if (end == first) {
      ++first;
      continue;
    }
    calls[first].graph = maker.capture([&] {
      for (size_t i = first; i < end; ++i) {
        c10::GradMode::set_enabled(calls[i].grad_mode);
        run(calls[i]);
        release_after(calls[i]);
      }
    });
    calls[first].num_captured = end - first;
    first = end;
  }
  is_captured_ = true;
}

std::vector<at::Tensor> Plan::replay(at::TensorList given) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (is_captured_) {
    copy_inputs(given);
  } else {
    bind(given);
  }
  if (finds_gradients) {
    for (const auto& before : gradients_before) found_.push_back(before.parameter.get()->grad());
  }
  bool mode = c10::GradMode::is_enabled();
  const c10::AutoGradMode restored(mode);
  size_t next = 0;
  try {
    for (; next < calls.size(); ++next) {
      auto& call = calls[next];
      if (call.graph) {
        call.graph->replay();
        next += call.num_captured - 1;
        continue;
      }
      if (call.grad_mode != mode) c10::GradMode::set_enabled(mode = call.grad_mode);
      run(call);
      release_after(call);
    }
  } catch (...) {
    found_.clear();
    leave_gradients(next);
    throw;
  }
  set_gradients(gradients_after);
  set_found(found_after);
  found_.clear();

  std::vector<at::Tensor> results;
  results.reserve(outputs.size());
  std::vector<std::pair<size_t, c10::Storage>> moved;  // outputs may share memory
  for (const auto& output : outputs) {
    if (!output.tensor.defined()) {
      results.emplace_back();
      continue;
    }
    const auto& memory = memories[output.memory];
    const bool is_written_again = memory.is_fixed || memory.is_kept;  // by the next replay
    if (is_written_again && !memory.stand_in->device().is_cpu()) {
      results.push_back(over(c10::Storage(memory.stand_in), output.tensor, output.tensor.storage_offset()).clone());
      continue;
    }
    const auto is_it = [&](const auto& entry) { return entry.first == output.memory; };
    if (const auto known = std::ranges::find_if(moved, is_it); known != moved.end()) {
      results.push_back(over(known->second, output.tensor, output.tensor.storage_offset()));
      continue;
    }
    c10::Storage storage;
    int64_t offset = output.tensor.storage_offset();
    if (memory.kind == MemoryKind::kInput) {
      storage = given[memory.input].storage();
      offset += given[memory.input].storage_offset() - inputs[memory.input].offset;
    } else if (memory.kind == MemoryKind::kExternal) {
      storage = c10::Storage(memory.recorded.lock());
    } else {
      storage = c10::Storage(
          c10::Storage::use_byte_size_t(), memory.stand_in->nbytes(),
          is_written_again ? copy_of(*memory.stand_in) : memory.stand_in->set_data_ptr(nothing(*memory.stand_in)),
          c10::GetCPUAllocator(), /*resizable=*/true);
    }
    moved.emplace_back(output.memory, storage);
    results.push_back(over(storage, output.tensor, offset));
  }
  return results;
}

}  // namespace yoke::train::detail
