// The end of a recording: whether the step can be replayed at all, and how long its memory is needed.
#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "yoke/train/detail/describe.h"
#include "yoke/train/record/detail/recorder.h"

namespace yoke::train::detail {
namespace {

constexpr size_t kNever = -1;

const c10::StorageImpl* memory_at(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

}  // namespace

void Recorder::refuse_what_graphs_lack() {
  if (!communications_.empty()) {
    refuse(
        "a step with DistributedDataParallel is recorded on the CPU only: its collectives cannot be a part of a graph");
  }
  for (const auto& memory : plan_.memories) {
    if (memory.kind != MemoryKind::kInput || !memory.is_written) continue;
    refuse(fmt::format("it changes input {} in place, and on a GPU a replay has copies of its inputs", memory.input));
  }
}

void Recorder::finish(const std::vector<at::Tensor>& results) {
  stop();
  if (!device_.is_cpu()) refuse_what_graphs_lack();
  if (why_not_.empty()) note_gradient_changes();
  for (const auto& [owner, communication] : communications_) plan_.communications.push_back(communication);
  std::vector<size_t> num_results(plan_.memories.size());
  for (size_t i = 0; i < results.size() && why_not_.empty(); ++i) {
    const auto& result = results[i];
    if (!result.defined()) {
      plan_.outputs.emplace_back();
      continue;
    }
    if (const auto reason = why_not_recordable(result); !reason.empty())
      refuse(fmt::format("result {} of the step {}", i, reason));
    if (!why_not_.empty()) return;
    const auto id = memory_of(result);
    plan_.outputs.push_back({.memory = id, .tensor = stand_in_for(result)});
    num_results.resize(plan_.memories.size());
    ++num_results[id];
  }
  for (const auto& leaf : leaves_) {
    if (plan_.memories[memory_of(leaf)].kind == MemoryKind::kMade) {
      return refuse(
          fmt::format("it makes a tensor that requires a gradient of its own, {}: multiply by a tensor of ones "
                      "from outside that requires a gradient, and take the gradient of the product by "
                      "torch::autograd::grad()",
                      describe(leaf)));
    }
    plan_.leaves.push_back({.parameter = leaf,
                            .place = leaf.storage().unsafeGetStorageImpl(),
                            .hooks = hooks_of(*leaf.unsafeGetTensorImpl())});
    note_gradient_after(leaf);
    if (!why_not_.empty()) return;
  }
  for (const auto& [parameter, gradient] : gradients_before_) {  // zero_grad() of a module is no operator
    const bool is_known = known_leaves_.contains(parameter.get());
    if (is_known || parameter.is_gone() || parameter.get()->grad().is_same(gradient)) continue;
    note_gradient_after(parameter.tensor());
    if (!why_not_.empty()) return;
  }
  forget_unchanged_gradients();
  move_found_gradients();
  std::erase_if(plan_.watched, [](const auto& watched) { return watched.tensor.use_count() == 0; });
  for (auto& watched : plan_.watched) {
    const auto* tensor = watched.tensor._unsafe_get_target();
    watched.dtype = c10::typeMetaToScalarType(tensor->dtype());
    watched.requires_grad = tensor->requires_grad();
    watched.place = tensor->unsafe_storage().unsafeGetStorageImpl();
    watched.offset = tensor->storage_offset();
    watched.sizes = c10::SmallVector<int64_t, 4>(tensor->sizes());
    watched.strides = c10::SmallVector<int64_t, 4>(tensor->strides());
  }

  const auto last_use = last_uses();
  num_results.resize(plan_.memories.size());
  for (size_t id = 0; id < plan_.memories.size(); ++id) {
    auto& memory = plan_.memories[id];
    if (last_use[id] == kNever && num_results[id] == 0 && memory.kind == MemoryKind::kExternal) {
      memory.kind = MemoryKind::kUnused;
      memory.recorded.reset();
    }
    const bool is_alive = memory.recorded.use_count() > 0;
    if (memory.kind == MemoryKind::kExternal && !is_alive) {
      return refuse(
          "it uses a tensor that is gone when the step ends: one that the program keeps and replaces in each step, "
          "as in sum = sum + loss (return what the step computes, or change the tensor in place), or one that was "
          "made without an operator, as by torch::from_blob()");
    }
    if (memory.kind != MemoryKind::kMade) continue;
    if (memory.recorded.use_count() > num_results[id] && !memory.is_kept) {
      const auto& maker = plan_.calls[memory.maker];
      const std::string_view name = maker.op ? maker.op->schema().name() : maker.host.name;
      keeps_casts_ = plan_.autocast != 0 && name == "aten::_to_copy";
      if (keeps_casts_) {
        return refuse(
            "Autocast is on around the recorded call, and keeps the parameters that it has cast until it ends, "
            "also when an optimizer changes them: open it in the step");
      }
      return refuse(
          fmt::format("the program keeps a tensor of {} bytes that {} has made, and a replay would not give it "
                      "another one: return it from the step, and keep what the call gives",
                      memory.stand_in->nbytes(), name));
    }
    memory.recorded.reset();
  }
  for (const auto& [parameter, gradient] : gradients_before_) {
    const auto found = memory_ids_.find(gradient.defined() ? memory_at(gradient) : nullptr);
    const bool is_used = found != memory_ids_.end() && plan_.memories[found->second].kind == MemoryKind::kExternal;
    GradientBefore before{.parameter = parameter, .is_defined = gradient.defined()};
    if (is_used) {
      before.place = found->first;
      before.memory = found->second;
      before.dtype = gradient.scalar_type();
      before.offset = gradient.storage_offset();
      before.sizes = c10::SmallVector<int64_t, 4>(gradient.sizes());
      before.strides = c10::SmallVector<int64_t, 4>(gradient.strides());
    }
    plan_.gradients_before.push_back(std::move(before));
  }
  for (const auto& call : plan_.calls) {
    if (!call.direct) continue;
    for (const auto& [position, id] : call.makes) {
      auto& memory = plan_.memories[id];
      memory.is_fixed = true;
      memory.stand_in->set_data_ptr_noswap(c10::GetCPUAllocator()->allocate(memory.stand_in->nbytes()));
    }
  }
  for (size_t id = 0; id < plan_.memories.size(); ++id) {
    const auto& memory = plan_.memories[id];
    if (memory.kind == MemoryKind::kMade && !memory.is_kept && !memory.is_fixed && num_results[id] == 0) {
      plan_.calls[last_use[id]].releases.push_back(id);
    }
  }
}

void Recorder::note_gradient_after(const at::Tensor& parameter) {
  auto after = gradient_of(parameter);
  if (!why_not_.empty()) return;
  if (after.gradient.defined()) {
    auto& memory = plan_.memories[memory_of(parameter.grad())];
    memory.is_kept = memory.kind == MemoryKind::kMade;
  }
  plan_.gradients_after.push_back(std::move(after));
}

/// A gradient that is one tensor before, in and after the step stays where it is, and a plan need not hold it.
void Recorder::forget_unchanged_gradients() {
  std::unordered_map<const c10::TensorImpl*, const c10::TensorImpl*> before;
  for (const auto& [parameter, gradient] : gradients_before_) {
    before.emplace(parameter.get(), gradient.unsafeGetTensorImpl());
  }
  const auto visit = [&](const auto& function) {
    for (auto& call : plan_.calls) function(call.gradients);
    function(plan_.gradients_after);
  };
  visit([&](const std::vector<GradientAt>& gradients) {
    for (const auto& [parameter, gradient] : gradients) {
      const auto found = before.find(parameter.get());
      if (found != before.end() && found->second != gradient.unsafeGetTensorImpl()) before.erase(found);
    }
  });
  visit([&](std::vector<GradientAt>& gradients) {
    std::erase_if(gradients, [&](const GradientAt& at) { return before.contains(at.parameter.get()); });
  });
}

/// A gradient that is, at some call or in the end, the tensor that was there before, is a different one in each replay.
void Recorder::move_found_gradients() {
  std::unordered_map<const c10::TensorImpl*, size_t> before;
  for (size_t i = 0; i < gradients_before_.size(); ++i) {
    if (gradients_before_[i].gradient.defined()) before.emplace(gradients_before_[i].parameter.get(), i);
  }
  const auto move = [&](std::vector<GradientAt>& gradients, std::vector<size_t>& found) {
    std::erase_if(gradients, [&](const GradientAt& at) {
      const auto known = before.find(at.parameter.get());
      if (known == before.end() || !at.gradient.is_same(gradients_before_[known->second].gradient)) return false;
      found.push_back(known->second);
      plan_.finds_gradients = true;
      return true;
    });
  };
  for (auto& call : plan_.calls) move(call.gradients, call.found);
  move(plan_.gradients_after, plan_.found_after);
}

/// The last call that uses each memory.
std::vector<size_t> Recorder::last_uses() const {
  std::unordered_map<const c10::StorageImpl*, size_t> ids;
  for (size_t id = 0; id < plan_.memories.size(); ++id) ids.emplace(plan_.memories[id].stand_in.get(), id);
  std::vector<size_t> last_use(plan_.memories.size(), kNever);
  for (size_t i = 0; i < plan_.calls.size(); ++i) {
    const auto use = [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      const auto found = ids.find(tensor.storage().unsafeGetStorageImpl());
      if (found != ids.end()) last_use[found->second] = i;
    };
    const auto& call = plan_.calls[i];
    for (const auto& argument : call.arguments) visit_tensors(argument, use);
    for (const auto& tensor : call.host.tensors) use(tensor);
    for (const auto& [parameter, gradient] : call.gradients) use(gradient);
    for (const auto& [position, id] : call.makes) last_use[id] = i;
  }
  // A gradient stays until its parameter gets another one, for the case that a call before that fails.
  std::unordered_map<const c10::TensorImpl*, size_t> gradients;
  for (const auto& [call, at] : plan_.gradient_changes) {
    const auto* parameter = at.parameter.get();
    const auto former = gradients.find(parameter);
    if (former != gradients.end()) last_use[former->second] = std::max(last_use[former->second], call - 1);
    if (former != gradients.end()) gradients.erase(former);
    if (at.gradient.defined()) gradients.emplace(parameter, ids.at(at.gradient.storage().unsafeGetStorageImpl()));
  }
  return last_use;
}

}  // namespace yoke::train::detail
