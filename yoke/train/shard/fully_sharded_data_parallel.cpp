#include "yoke/train/shard/fully_sharded_data_parallel.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <deque>
#include <map>
#include <unordered_map>

#include "yoke/base/error.h"
#include "yoke/dist/world.h"
#include "yoke/train/parallel/same_on_all_ranks.h"
#include "yoke/train/shard/clip.h"
#include "yoke/train/shard/flat_parameters.h"

namespace yoke::train {
namespace {

constexpr size_t kMaxReductions = 2;  // each holds the gradients of a unit

struct Unit {
  std::string name;  ///< Empty: the model.
  const torch::nn::Module* module = nullptr;
  std::vector<FlatParameters> flats;  ///< One for each (dtype, trained or frozen).
  std::vector<bool> is_trained, is_reduced;
  size_t position = 0;  ///< In the order of forward.
  int depth = 0;        ///< Calls of forward that have not returned.
  bool is_prefetched = false;
  int num_backward = 0;  ///< Calls whose backward has begun.
  int inputs_left = 0;   ///< Of those, inputs whose gradients are not complete.

  bool is_gathered() const { return !flats.empty() && flats.front().is_gathered(); }
  bool is_sharded() const { return !flats.empty() && !flats.front().is_gathered() && !flats.front().is_gathering(); }
};

class GradientHook : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit GradientHook(std::function<void()> hook) : hook_(std::move(hook)) {}
  void operator()(const at::Tensor&) override { hook_(); }

 private:
  std::function<void()> hook_;
};

}  // namespace

/// One call of a unit's forward. The hooks in its graph hold it, so that a graph which is dropped leaves nothing.
struct FullyShardedDataParallel::Activity {
  std::weak_ptr<Impl> owner;
  size_t unit = 0;
  int inputs_left = 0;
  bool has_begun = false;
};

struct FullyShardedDataParallel::Impl : std::enable_shared_from_this<Impl> {
  Impl(dist::World& all_ranks, bool reshard) : world(all_ranks), reshard_after_forward(reshard) {}

  dist::World& world;
  const bool reshard_after_forward;
  std::vector<Unit> units;  ///< The model first.
  std::unordered_map<const torch::nn::Module*, size_t> unit_of_module;
  std::vector<std::pair<std::string, std::pair<size_t, size_t>>> places;  ///< Name, unit, parameter in unit; in order.
  std::vector<std::pair<std::string, std::string>> tied;                  ///< Further names of parameters.
  NamedTensors buffers;

  std::vector<size_t> order;  ///< Units as the last forward called them: what to gather ahead.
  size_t cursor = 0;
  int depth = 0;
  bool in_backward = false;
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

  /// What was gathered ahead and is not coming: an optimizer may step before it is used.
  void drop_prefetched() {
    for (auto& unit : units) {
      if (unit.is_prefetched) free(unit);
    }
  }

  void begin_forward(size_t index) {
    auto& unit = units[index];
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
      // Kept by an earlier forward that had no backward: the shards may have changed since.
      if (unit.is_gathered() && unit.depth == 0 && !unit.is_prefetched) free(unit);
    }
    gather(unit);
    if (!in_backward && cursor < order.size()) prefetch(cursor);
    ++unit.depth;
    ++depth;
  }

  void end_forward(size_t index) noexcept {
    auto& unit = units[index];
    --unit.depth;
    --depth;
    if (unit.depth > 0 || unit.num_backward > 0) return;
    const bool keep = c10::GradMode::is_enabled() && (in_backward || index == 0 || !reshard_after_forward);
    if (!keep) free(unit);
  }

  void begin_backward(Activity& activity) {
    auto& unit = units[activity.unit];
    if (!in_backward) {
      in_backward = true;
      torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this()] {
        if (const auto impl = weak.lock()) impl->finish_backward();
      });
    }
    if (!activity.has_begun) {
      activity.has_begun = true;
      if (unit.num_backward++ == 0) unit.is_reduced.assign(unit.flats.size(), false);
      unit.inputs_left += activity.inputs_left;
    }
    gather(unit);
    if (unit.position > 0 && unit.position < order.size()) prefetch(unit.position - 1);
  }

  void take_input_gradient(Activity& activity) {
    auto& unit = units[activity.unit];
    --activity.inputs_left;
    if (activity.has_begun) --unit.inputs_left;
    free_if_done(unit);
  }

  void take_gradient(size_t index, size_t flat, size_t parameter) {
    auto& unit = units[index];
    if (!unit.flats[flat].take_gradient(parameter)) return;
    reduce(unit, flat);
    free_if_done(unit);
  }

  void reduce(Unit& unit, size_t flat) {
    reductions.push_back({&unit.flats[flat], unit.flats[flat].start_reduce()});
    if (unit.is_reduced.size() == unit.flats.size()) unit.is_reduced[flat] = true;
    while (reductions.size() > kMaxReductions) finish_reduction();
  }

  void finish_reduction() {
    auto [flat, reduction] = std::move(reductions.front());
    reductions.pop_front();
    flat->finish_reduce(std::move(reduction));
  }

  /// Nothing of the unit's backward is left: all that leads out of it has been computed.
  void free_if_done(Unit& unit) {
    if (unit.num_backward == 0 || unit.inputs_left > 0 || unit.depth > 0) return;
    for (size_t i = 0; i < unit.flats.size(); ++i) {
      if (unit.is_trained[i] && (!unit.is_reduced[i] || unit.flats[i].has_gradient())) return;
    }
    free(unit);
    unit.num_backward = 0;
  }

  /// What a backward did not reach, the same on all ranks in the same order.
  void finish_backward() {
    for (size_t index = 0; index < units.size(); ++index) {
      auto& unit = units[index];
      for (size_t flat = 0; flat < unit.flats.size(); ++flat) {
        if (!unit.is_trained[flat]) continue;
        const bool is_unreached = unit.num_backward > 0 && !unit.is_reduced[flat];
        if (is_unreached || unit.flats[flat].has_gradient()) reduce(unit, flat);
      }
    }
    while (!reductions.empty()) finish_reduction();
    for (auto& unit : units) {
      if (unit.depth == 0) free(unit);
      unit.num_backward = unit.inputs_left = 0;
    }
    cursor = 0;
    in_backward = false;
  }
};

FullyShardedDataParallel::FullyShardedDataParallel(torch::nn::Module& model, dist::World& world,
                                                   const FullyShardedOptions& options)
    : impl_(std::make_shared<Impl>(world, options.reshard_after_forward)) {
  auto& impl = *impl_;
  impl.units.push_back({.name = "", .module = &model});
  const auto modules = model.named_modules("", /*include_self=*/false);
  for (const auto& name : options.units) {
    const auto* module = modules.find(name);
    if (module == nullptr) {
      throw Error(ErrorCode::kInvalidArgument, "the unit '{}' is no submodule of the model", name);
    }
    impl.units.push_back({.name = name, .module = module->get()});
  }
  for (size_t i = 0; i < impl.units.size(); ++i) {
    if (!impl.unit_of_module.emplace(impl.units[i].module, i).second) {
      throw Error(ErrorCode::kInvalidArgument, "the unit '{}' is named twice, or one module is there under two names",
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

  NamedTensors all;
  std::map<const void*, std::string> seen;
  std::vector<std::map<std::pair<at::ScalarType, bool>, NamedTensors>> groups(impl.units.size());
  for (const auto& item : model.named_parameters()) {
    const auto& [name, tensor] = all.emplace_back(item.key(), item.value());
    const size_t unit = unit_of(name);
    const auto [first, is_new] = seen.emplace(tensor.unsafeGetTensorImpl(), name);
    if (is_new) {
      groups[unit][{tensor.scalar_type(), tensor.requires_grad()}].emplace_back(name, tensor);
    } else if (unit_of(first->second) == unit) {
      impl.tied.emplace_back(name, first->second);
    } else {
      throw Error(ErrorCode::kInvalidArgument,
                  "'{}' and '{}' are one parameter in two units: take a unit that contains both, or leave both to the "
                  "model itself",
                  first->second, name);
    }
  }
  for (const auto& item : model.named_buffers()) {
    all.emplace_back(item.key(), item.value());
    impl.buffers.emplace_back(item.key(), item.value());
  }
  check_same_on_all_ranks(world, all);
  all.clear();

  const c10::NoGradGuard no_grad;
  for (const auto& [name, buffer] : impl.buffers) buffer.set_data(buffer.to(world.device()).contiguous());
  sync_buffers();
  for (size_t i = 0; i < impl.units.size(); ++i) {
    auto& unit = impl.units[i];
    for (auto& [key, parameters] : groups[i]) {
      unit.is_trained.push_back(key.second);
      unit.flats.emplace_back(world, std::move(parameters), options.compute_dtype);
    }
  }
  // Where everything is must not move any more: hooks refer to it.
  for (size_t i = 0; i < impl.units.size(); ++i) {
    for (size_t f = 0; f < impl.units[i].flats.size(); ++f) {
      const auto& flat = impl.units[i].flats[f];
      if (!impl.units[i].is_trained[f]) continue;
      for (size_t p = 0; p < flat.size(); ++p) {
        if (torch::autograd::impl::post_acc_grad_hooks(flat.parameter(p)) != nullptr) {
          throw Error(ErrorCode::kFailedPrecondition,
                      "parameter '{}' has a hook on its gradient already: is the model "
                      "sharded twice?",
                      flat.name(p));
        }
        torch::autograd::impl::set_post_acc_grad_hooks(
            flat.parameter(p), std::make_unique<GradientHook>([&impl, i, f, p] { impl.take_gradient(i, f, p); }));
      }
    }
  }
}

FullyShardedDataParallel::~FullyShardedDataParallel() {
  for (const auto& unit : impl_->units) {
    for (size_t f = 0; f < unit.flats.size(); ++f) {
      if (!unit.is_trained[f]) continue;
      for (size_t p = 0; p < unit.flats[f].size(); ++p) {
        torch::autograd::impl::set_post_acc_grad_hooks(unit.flats[f].parameter(p), nullptr);
      }
    }
  }
}

NamedTensors FullyShardedDataParallel::shards() const {
  NamedTensors result;
  for (const auto& unit : impl_->units) {
    for (size_t f = 0; f < unit.flats.size(); ++f) {
      if (!unit.is_trained[f]) continue;
      for (size_t p = 0; p < unit.flats[f].size(); ++p) {
        const auto& shard = unit.flats[f].shard(p);
        if (shard.numel() > 0) result.emplace_back(unit.flats[f].name(p), shard);
      }
    }
  }
  return result;
}

TensorSlices FullyShardedDataParallel::slices() const {
  TensorSlices result;
  std::map<std::string, size_t> places;
  for (const auto& unit : impl_->units) {
    for (const auto& flat : unit.flats) {
      for (size_t p = 0; p < flat.size(); ++p) {
        places.emplace(flat.name(p), result.size());
        result.push_back(flat.slice(p));
      }
    }
  }
  for (const auto& [name, first] : impl_->tied) {
    auto slice = result[places.at(first)];
    slice.name = name;
    result.push_back(std::move(slice));
  }
  for (const auto& [name, buffer] : impl_->buffers) {
    result.push_back({name, buffer.sizes().vec(), 0, buffer.detach().view({-1})});
  }
  return result;
}

at::Tensor FullyShardedDataParallel::clip_grad_norm(double max_norm) {
  std::vector<at::Tensor> gradients;
  for (const auto& [name, shard] : shards()) {
    if (shard.grad().defined()) gradients.push_back(shard.grad());
  }
  return clip_sharded_grad_norm(impl_->world, gradients, max_norm);
}

void FullyShardedDataParallel::sync_buffers() {
  for (const auto& [name, buffer] : impl_->buffers) {
    if (impl_->world.size() > 1 && buffer.numel() > 0) impl_->world.broadcast(buffer.detach());
  }
}

FullyShardedDataParallel::Call::Call(FullyShardedDataParallel& owner, const torch::nn::Module& module) : owner_(owner) {
  const auto& units = owner.impl_->unit_of_module;
  const auto unit = units.find(&module);
  if (unit == units.end()) {
    // Within a unit; or recomputed in the backward of one.
    if (owner.impl_->depth > 0 || owner.impl_->in_backward) return;
    throw Error(ErrorCode::kInvalidArgument,
                "forward was called with a module ({}) that is no unit, and outside of all units: name it in "
                "FullyShardedOptions::units, or call it within the forward of the unit that it belongs to",
                module.name());
  }
  owner.impl_->begin_forward(unit->second);
  activity_ = std::make_shared<Activity>();
  activity_->owner = owner.impl_;
  activity_->unit = unit->second;
}

FullyShardedDataParallel::Call::~Call() {
  if (activity_) owner_.impl_->end_forward(activity_->unit);
}

at::Tensor FullyShardedDataParallel::Call::input(const at::Tensor& tensor) {
  if (!activity_ || !c10::GradMode::is_enabled() || !tensor.defined() || !tensor.requires_grad()) return tensor;
  const auto alias = tensor.view_as(tensor);  // its gradient is what this call gives, not what others add
  ++activity_->inputs_left;
  alias.register_hook([activity = activity_](const at::Tensor&) {
    if (const auto impl = activity->owner.lock()) impl->take_input_gradient(*activity);
  });
  return alias;
}

std::vector<at::Tensor> FullyShardedDataParallel::Call::input(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const auto& tensor : tensors) result.push_back(input(tensor));
  return result;
}

void FullyShardedDataParallel::Call::output(const at::Tensor& tensor) {
  if (!activity_ || !tensor.defined() || !tensor.requires_grad()) return;
  tensor.register_hook([activity = activity_](const at::Tensor&) {
    if (const auto impl = activity->owner.lock()) impl->begin_backward(*activity);
  });
}

}  // namespace yoke::train
