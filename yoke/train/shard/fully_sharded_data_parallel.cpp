#include "yoke/train/shard/fully_sharded_data_parallel.h"

#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/dist/activity.h"
#include "yoke/dist/on_all_ranks.h"
#include "yoke/dist/same_on_all_ranks.h"
#include "yoke/train/detail/known_parameters.h"
#include "yoke/train/detail/replicated.h"
#include "yoke/train/detail/trainable.h"
#include "yoke/train/shard/detail/clip.h"
#include "yoke/train/shard/detail/flat_parameters.h"
#include "yoke/train/shard/detail/refusals.h"
#include "yoke/train/sharding.h"

namespace yoke::train {
namespace {

// Names of what the collectives of a sharded model belong to, in messages.
constexpr auto kForward = "a forward of FullyShardedDataParallel";
constexpr auto kBackward = "a backward of FullyShardedDataParallel";

constexpr size_t kMaxUnitReductions = 2;  // each reduction in flight keeps the gradients of a unit in memory

struct Unit {
  std::string name;  ///< Empty for the model.
  torch::nn::Module* module = nullptr;
  std::shared_ptr<torch::nn::Module> kept;  ///< The module, unless it is the model itself.
  std::vector<FlatParameters> flats;        ///< One for each pair (dtype, trained or frozen).
  std::vector<bool> is_trained;
  std::set<size_t> outer;  ///< Units whose forward has called this unit.
  size_t position = 0;     ///< Position in the order of forward.
  int depth = 0;           ///< Calls of forward that have not returned.
  bool is_prefetched = false;
  bool is_in_backward = false;  ///< Listed in Impl::in_backward_units.

  bool is_gathered() const { return !flats.empty() && flats.front().is_gathered(); }
  bool is_sharded() const { return !flats.empty() && !flats.front().is_gathered() && !flats.front().is_gathering(); }
};

/// An outermost call of forward, and the calls of units inside it. Its backward visits these calls in reverse order.
struct Pass {
  uint64_t number = 0;
  std::vector<size_t> left;  ///< Units whose backward has not begun, in the order in which their forward calls ended.
};

}  // namespace

/// One call of a unit's forward. Only the hooks in the call's graph own this object, so it is destroyed with the graph.
struct FullyShardedDataParallelBase::Activity {
  std::weak_ptr<Impl> owner;
  size_t unit = 0;
  std::shared_ptr<Pass> pass;
  size_t place = 0;        ///< Position in Pass::left, counted from 1.
  bool is_needed = false;  ///< Whether an output needs a gradient.
};

struct FullyShardedDataParallelBase::Impl : std::enable_shared_from_this<Impl> {
  Impl(dist::Group& shard_ranks, const FullyShardedOptions& options)
      : group(shard_ranks),
        replicas(options.replicas),
        reshard_after_forward(options.reshard_after_forward),
        broadcasts_buffers(options.broadcast_buffers) {}

  dist::Group& group;
  dist::Group* const replicas;  ///< Null if there is only one replica.
  const bool reshard_after_forward;
  const bool broadcasts_buffers;
  int64_t generation = group.generation();
  std::vector<Unit> units;  ///< The first one is the model.
  std::unordered_map<const torch::nn::Module*, size_t> unit_of_module;
  std::optional<detail::Replicated> replicated;  ///< The parts, if there are replicas.
  NamedTensors buffers;
  std::optional<detail::KnownParameters> known;
  std::vector<uint8_t> has_arrived;  ///< The trained parameters that have had a gradient in this backward.

  std::vector<size_t> order;  ///< The units in the order of the last forward, for prefetching.
  size_t cursor = 0;
  int depth = 0;
  bool in_backward = false;
  std::shared_ptr<Pass> pass;                        ///< The last pass.
  std::map<uint64_t, std::shared_ptr<Pass>> passes;  ///< Passes in the current backward.
  uint64_t num_passes = 0;
  /// Units in the order in which their backward began. When a unit is removed, its gradients are reduced and the unit
  /// is freed. Both are collective, so they depend only on which units began, which is equal on all ranks. The steps do
  /// not depend on which gradients arrived, because this may differ between ranks.
  std::vector<size_t> in_backward_units;
  struct Underway {
    FlatParameters* flat;
    Reduction reduction;
  };
  std::deque<Underway> reductions;

  void start_gather(Unit& unit) {
    for (auto& flat : unit.flats) flat.start_gather();
  }

  void gather(Unit& unit) {
    if (unit.is_sharded()) start_gather(unit);
    for (auto& flat : unit.flats) flat.finish_gather();
    unit.is_prefetched = false;
  }

  void free(Unit& unit) {
    for (auto& flat : unit.flats) flat.free();
    unit.is_prefetched = false;
  }

  void prefetch(size_t position) {
    auto& unit = units[order[position]];
    if (!unit.is_sharded()) return;
    start_gather(unit);
    unit.is_prefetched = true;
  }

  /// Frees units that were prefetched and not used. Their values would be out of date after the next optimizer step.
  void drop_prefetched() {
    for (auto& unit : units) {
      if (unit.is_prefetched) free(unit);
    }
  }

  /// When the group was formed again, the order of the units becomes unknown, as it is to a new rank, and nothing is
  /// left of the step that was lost.
  void follow_group() {
    if (std::exchange(generation, group.generation()) == group.generation()) return;
    reductions.clear();
    in_backward_units.clear();
    passes.clear();
    pass.reset();
    order.clear();
    cursor = 0;
    depth = 0;
    in_backward = false;
    for (auto& unit : units) {
      unit.depth = 0;
      unit.position = 0;
      unit.is_prefetched = unit.is_in_backward = false;
      unit.outer.clear();
      for (auto& flat : unit.flats) flat.forget_step();
    }
    std::ranges::fill(has_arrived, 0);
  }

  void begin_forward(size_t index) {
    follow_group();
    const dist::Activity of_forward(group, kForward);
    auto& unit = units[index];
    if (depth == 0) pass = std::make_shared<Pass>(Pass{.number = ++num_passes, .left = {}});
    check_parameters(unit);
    for (size_t other = 0; other < units.size(); ++other) {
      if (units[other].depth > 0 && other != index) unit.outer.insert(other);
    }
    if (!in_backward) {
      if (cursor >= order.size() || order[cursor] != index) {
        drop_prefetched();
        const bool starts_anew = depth == 0 && !order.empty() && order.front() == index;
        if (!starts_anew) {
          order.resize(cursor);
          order.push_back(index);
        } else {
          cursor = 0;
        }
      }
      unit.position = cursor++;
      // If an earlier forward had no backward, the unit is still gathered, and the shards may have changed since then.
      if (unit.is_gathered() && unit.depth == 0 && !unit.is_prefetched) free(unit);
    }
    gather(unit);
    if (!in_backward && cursor < order.size()) prefetch(cursor);
    ++unit.depth;
    ++depth;
  }

  void end_forward(Activity& activity) noexcept {
    auto& unit = units[activity.unit];
    if (c10::GradMode::is_enabled() &&
        (activity.is_needed || std::ranges::find(unit.is_trained, true) != unit.is_trained.end())) {
      activity.pass = pass;
      pass->left.push_back(activity.unit);
      activity.place = pass->left.size();
    }
    --unit.depth;
    --depth;
    if (unit.depth > 0 || unit.is_in_backward) return;
    const bool keep = c10::GradMode::is_enabled() && (in_backward || activity.unit == 0 || !reshard_after_forward);
    if (!keep) free(unit);
  }

  /// Autograd visits nodes in the reverse order of their creation. So if a later call's backward has not begun yet,
  /// that call does not contribute to the loss on this rank. The call may contribute on other ranks, whose backward of
  /// that call communicates. So this rank begins the backward of that call too.
  void begin_backward(const Activity& activity) {
    const dist::Activity of_backward(group, kBackward);
    watch_backward();
    passes.emplace(activity.pass->number, activity.pass);
    for (auto later = passes.rbegin(); later->first > activity.pass->number; ++later) begin_calls(*later->second, 1);
    begin_calls(*activity.pass, activity.place);
    // If several backwards go through the unit's graph, the unit is in backward already.
    if (!units[activity.unit].is_in_backward) begin_unit(activity.unit);
  }

  /// Begins the backward of all remaining calls whose place is at least `place`.
  void begin_calls(Pass& calls, size_t place) {
    while (calls.left.size() >= place) {
      const size_t index = calls.left.back();
      calls.left.pop_back();
      begin_unit(index);
    }
  }

  void begin_unit(size_t index) {
    auto& unit = units[index];
    // Backward has left all units that do not contain this one, so these units are ended. A unit that was called
    // several times may begin several times.
    std::erase_if(in_backward_units, [&](size_t other) {
      if (unit.outer.contains(other) || other == index) return other == index;
      end_backward(units[other]);
      return true;
    });
    in_backward_units.push_back(index);
    unit.is_in_backward = true;
    gather(unit);
    if (unit.position > 0 && unit.position < order.size()) prefetch(unit.position - 1);
  }

  void watch_backward() {
    if (std::exchange(in_backward, true)) return;
    torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this()] {
      if (const auto impl = weak.lock()) impl->finish_backward();
    });
  }

  void end_backward(Unit& unit) {
    for (size_t flat = 0; flat < unit.flats.size(); ++flat) {
      if (!unit.is_trained[flat]) continue;
      // While this gradient is reduced, the shards of the previous one are averaged over the replicas.
      if (!reductions.empty()) reductions.back().flat->start_average(reductions.back().reduction);
      reductions.push_back({&unit.flats[flat], unit.flats[flat].start_reduce()});
      while (reductions.size() > kMaxUnitReductions) finish_reduction();
    }
    if (unit.depth == 0) free(unit);
    unit.is_in_backward = false;
  }

  void take_gradient(size_t index, size_t flat, size_t parameter) {
    auto& unit = units[index];
    const auto& name = unit.flats[flat].name(parameter);
    watch_backward();
    if (unit.flats[flat].parameter(parameter).grad().layout() != at::kStrided) {
      fail(ErrorCode::kInvalidArgument,
           "parameter '{}' has a sparse gradient, and sharded parameters take dense ones only: make its embedding with "
           "sparse(false)",
           name);
    }
    unit.flats[flat].take_gradient(parameter);
  }

  void check_parameters(const Unit& unit) const {
    for (size_t flat = 0; flat < unit.flats.size(); ++flat) {
      for (size_t i = 0; i < unit.flats[flat].size(); ++i) {
        if (unit.flats[flat].is_replaced(i)) {
          fail(
              ErrorCode::kFailedPrecondition,
              "parameter '{}' has other memory than when the model was sharded (torch::load and to() change it), which "
              "would be dropped: shard the model after them, or use load_module",
              unit.flats[flat].name(i));
        }
        if (unit.flats[flat].parameter(i).requires_grad() == unit.is_trained[flat]) continue;
        fail(ErrorCode::kFailedPrecondition,
             "parameter '{}' was {} when the model was sharded, and requires_grad has been changed since: shard the "
             "model again, and make its optimizer again",
             unit.flats[flat].name(i), unit.is_trained[flat] ? "trained" : "frozen");
      }
    }
  }

  /// Reports an error of this rank to the other ranks, which would otherwise wait for this rank. Then throws.
  template <typename... Args>
  [[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) const {
    group.fail(Error(code, format, std::forward<Args>(args)...));
  }

  void finish_reduction() {
    auto [flat, reduction] = std::move(reductions.front());
    reductions.pop_front();
    flat->finish_reduce(std::move(reduction));
  }

  void finish_backward() {
    const dist::Activity of_backward(group, kBackward);
    for (auto last = passes.rbegin(); last != passes.rend(); ++last) begin_calls(*last->second, 1);
    passes.clear();
    for (const size_t index : std::exchange(in_backward_units, {})) end_backward(units[index]);
    while (!reductions.empty()) finish_reduction();
    for (auto& unit : units) {
      for (const auto& flat : unit.flats) {
        if (!flat.has_gradient()) continue;
        fail(ErrorCode::kFailedPrecondition,
             "parameter '{}' has a gradient from outside of the backward of its unit '{}': what leads from a unit to "
             "the loss is what its forward returns",
             flat.name(flat.arrived()), unit.name);
      }
      if (unit.depth == 0) free(unit);
    }
    if (const auto change = known->change(has_arrived); !change.empty()) {
      fail(ErrorCode::kFailedPrecondition,
           "{}: make another FullyShardedDataParallel, and its optimizer, after such a change", change);
    }
    std::ranges::fill(has_arrived, 0);
    cursor = 0;
    in_backward = false;
    if (broadcasts_buffers) broadcast_buffers();
  }

  /// Collective. All ranks, also those of other replicas, get the first rank's buffers, those of a dtype together.
  void broadcast_buffers() const {
    const c10::NoGradGuard no_grad;
    std::map<at::ScalarType, std::vector<at::Tensor>> by_dtype;
    for (const auto& [name, buffer] : buffers) {
      // Not detach(): another graph, whose backward is still to come, may have kept the buffer.
      if (buffer.numel() > 0) by_dtype[buffer.scalar_type()].push_back(buffer.variable_data());
    }
    for (auto& [dtype, values] : by_dtype) {
      std::vector<at::Tensor> flat;
      for (const auto& value : values) flat.push_back(value.reshape({-1}));
      const auto all = values.size() == 1 ? values.front() : at::cat(flat);
      if (group.size() > 1) group.broadcast(all);
      if (replicas != nullptr) replicas->broadcast(all);
      if (values.size() == 1) continue;
      int64_t first = 0;
      for (auto& value : values) {
        value.copy_(all.narrow(0, first, value.numel()).view(value.sizes()));
        first += value.numel();
      }
    }
  }
};

FullyShardedDataParallelBase::FullyShardedDataParallelBase(torch::nn::Module& model, dist::Group& group,
                                                           const FullyShardedOptions& options)
    : impl_(std::make_shared<Impl>(group, options)) {
  const dist::Activity activity(group, "the construction of a FullyShardedDataParallel");
  auto& impl = *impl_;
  auto all = model.named_parameters().pairs();
  for (const auto& item : model.named_buffers()) {
    all.emplace_back(item.key(), item.value());
    impl.buffers.emplace_back(item.key(), item.value());
  }
  const auto described =
      fmt::format("units: {}; reshard_after_forward: {}; compute_dtype: {}; broadcast_buffers: {}; replicas: {}",
                  fmt::join(options.units, ", "), options.reshard_after_forward,
                  options.compute_dtype ? c10::toString(*options.compute_dtype) : "none", options.broadcast_buffers,
                  options.replicas == nullptr ? 1 : options.replicas->size());
  const auto check = [&] { check_same_on_all_ranks(group, all, described); };
  if (options.replicas == nullptr) {
    check();
  } else {  // on_all_ranks also reports a difference within one replica to the other replicas
    on_all_ranks(*options.replicas, "a replica's ranks differ", check);
    check_same_on_all_ranks(*options.replicas, all, described);
  }
  all.clear();  // all ranks have agreed, so an error below occurs on all of them

  impl.units.push_back({.name = "", .module = &model});
  const auto modules = model.named_modules("", /*include_self=*/false);
  for (const auto& name : options.units) {
    const auto* module = modules.find(name);
    if (module == nullptr) {
      throw Error(ErrorCode::kInvalidArgument, "the unit '{}' is not a submodule of the model", name);
    }
    impl.units.push_back({.name = name, .module = module->get(), .kept = *module});
  }
  for (size_t i = 0; i < impl.units.size(); ++i) {
    if (!impl.unit_of_module.emplace(impl.units[i].module, i).second) {
      throw Error(ErrorCode::kInvalidArgument, "the unit '{}' is named twice, or one module is named by two names",
                  impl.units[i].name);
    }
  }
  const auto unit_of = [&](const std::string& parameter) {
    size_t best = 0;
    for (size_t i = 1; i < impl.units.size(); ++i) {
      const auto& name = impl.units[i].name;
      if (parameter.starts_with(name + ".") && name.size() > impl.units[best].name.size()) best = i;
    }
    return best;
  };

  std::map<const void*, std::string> seen;
  std::vector<std::map<std::pair<at::ScalarType, bool>, NamedTensors>> groups(impl.units.size());
  for (const auto& item : model.named_parameters()) {
    const auto& name = item.key();
    const auto& tensor = item.value();
    if (tensor.unsafeGetTensorImpl()->autograd_meta() != nullptr &&
        torch::autograd::impl::post_acc_grad_hooks(tensor) != nullptr) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "parameter '{}' has a hook on its gradient already: is the model sharded twice?", name);
    }
    const size_t unit = unit_of(name);
    const auto [first, is_new] = seen.emplace(tensor.unsafeGetTensorImpl(), name);
    if (is_new) {
      groups[unit][{tensor.scalar_type(), tensor.requires_grad()}].emplace_back(name, tensor);
    } else if (unit_of(first->second) != unit) {
      throw Error(ErrorCode::kInvalidArgument,
                  "'{}' and '{}' are one parameter in two units: take a unit that contains both, or leave both to the "
                  "model itself",
                  first->second, name);
    }
  }

  const c10::NoGradGuard no_grad;
  for (const auto& [name, buffer] : impl.buffers) buffer.set_data(buffer.to(group.device()).contiguous());
  sync_buffers();
  for (size_t i = 0; i < impl.units.size(); ++i) {
    auto& unit = impl.units[i];
    for (auto& [key, parameters] : groups[i]) {
      unit.is_trained.push_back(key.second);
      unit.flats.emplace_back(group, options.replicas, std::move(parameters), options.compute_dtype);
    }
  }
  impl.known.emplace(model);
  for (auto& unit : impl.units) unit.module->register_module(kSaveGuard, save_guard());
  // From here on, units must not be moved in memory, because hooks refer to them.
  NamedTensors parts;
  for (size_t i = 0; i < impl.units.size(); ++i) {
    for (size_t f = 0; f < impl.units[i].flats.size(); ++f) {
      const auto& flat = impl.units[i].flats[f];
      for (size_t p = 0; p < flat.size(); ++p) {
        const Sharding sharding{.role = Sharding::Role::kParameter,
                                .shape = whole_shape(flat.shard(p)),
                                .group = &group,
                                .part = flat.shard(p),
                                .owner = this};
        std::function<void()> on_gradient;
        if (impl.units[i].is_trained[f]) {
          on_gradient = [&impl, i, f, p, index = impl.has_arrived.size()] {
            impl.has_arrived[index] = 1;
            impl.take_gradient(i, f, p);
          };
          impl.has_arrived.push_back(0);
        }
        mark_sharded(flat.parameter(p), sharding, std::move(on_gradient));
        parts.emplace_back(flat.name(p), flat.shard(p));
      }
    }
  }
  if (options.replicas != nullptr) impl.replicated.emplace(*options.replicas, parts);
}

FullyShardedDataParallelBase* sharded_by(const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    const auto* sharding = sharding_of(item.value());
    return sharding == nullptr ? nullptr : sharding->owner;
  }
  for (const auto& child : module.children()) {
    if (!child->parameters().empty()) return sharded_by(*child);
  }
  return nullptr;
}

FullyShardedDataParallelBase::~FullyShardedDataParallelBase() {
  for (const auto& unit : impl_->units) {
    if (unit.module->named_children().contains(kSaveGuard)) unit.module->unregister_module(kSaveGuard);
    for (const auto& flat : unit.flats) {
      for (size_t p = 0; p < flat.size(); ++p) unmark_sharded(flat.parameter(p));
    }
  }
}

NamedTensors FullyShardedDataParallelBase::buffers() const { return impl_->buffers; }
dist::Group& FullyShardedDataParallelBase::group() const { return impl_->group; }

NamedTensors FullyShardedDataParallelBase::parameters() const {
  NamedTensors result;
  for (const auto& unit : impl_->units) {
    for (size_t f = 0; f < unit.flats.size(); ++f) {
      for (size_t p = 0; p < unit.flats[f].size(); ++p) {
        const auto& shard = unit.flats[f].shard(p);
        if (detail::is_trainable(shard)) result.emplace_back(unit.flats[f].name(p), shard);
      }
    }
  }
  return result;
}

at::Tensor FullyShardedDataParallelBase::clip_grad_norm(double max_norm) {
  std::vector<at::Tensor> gradients;
  for (const auto& [name, shard] : parameters()) {
    if (shard.grad().defined()) gradients.push_back(shard.grad());
  }
  const dist::Activity activity(impl_->group, "clipping gradients");
  return clip_sharded_grad_norm(impl_->group, gradients, max_norm);
}

void FullyShardedDataParallelBase::sync_buffers() { impl_->broadcast_buffers(); }

FullyShardedDataParallelBase::Call::Call(FullyShardedDataParallelBase& owner, const torch::nn::Module& module)
    : owner_(owner) {
  const auto& units = owner.impl_->unit_of_module;
  const auto unit = units.find(&module);
  if (unit == units.end()) {
    // Allowed if the module is called within a unit's forward, or recomputed in a unit's backward.
    if (owner.impl_->depth > 0 || owner.impl_->in_backward) return;
    throw Error(ErrorCode::kInvalidArgument,
                "forward was called with a module ({}) that is not a unit, and outside of all units: name it in "
                "FullyShardedOptions::units, or call it within the forward of the unit that it belongs to",
                module.name());
  }
  owner.impl_->begin_forward(unit->second);
  activity_ = std::make_shared<Activity>();
  activity_->owner = owner.impl_;
  activity_->unit = unit->second;
}

FullyShardedDataParallelBase::Call::~Call() {
  if (activity_) owner_.impl_->end_forward(*activity_);
}

at::Tensor FullyShardedDataParallelBase::Call::input(const at::Tensor& tensor) {
  if (!activity_ || !c10::GradMode::is_enabled() || !tensor.defined() || !tensor.requires_grad()) return tensor;
  return tensor.view_as(tensor);  // gives even an unchanged input a node in this call's graph
}

std::vector<at::Tensor> FullyShardedDataParallelBase::Call::input(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const auto& tensor : tensors) result.push_back(input(tensor));
  return result;
}

void FullyShardedDataParallelBase::Call::output(const at::Tensor& tensor) {
  if (!activity_ || !tensor.defined() || !tensor.requires_grad()) return;
  activity_->is_needed = true;
  tensor.register_hook([activity = activity_](const at::Tensor&) {
    if (const auto impl = activity->owner.lock()) impl->begin_backward(*activity);
  });
}

}  // namespace yoke::train
