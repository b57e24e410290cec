// Parts of a TrainState that are equal on all ranks or divided between them: modules, state_dicts, tensors, texts.
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <map>
#include <string_view>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/dist/group.h"
#include "yoke/train/checkpoint/detail/state_part.h"
#include "yoke/train/checkpoint/module_state.h"
#include "yoke/train/detail/describe.h"
#include "yoke/train/detail/replicated.h"
#include "yoke/train/sharding.h"

namespace yoke::train {
namespace {

std::string joined(const std::string& part, const std::string& name) { return name.empty() ? part : part + "/" + name; }

void append(const std::string& part, TensorSlices slices, TensorSlices& all) {
  for (auto& slice : slices) {
    slice.name = joined(part, slice.name);
    all.push_back(std::move(slice));
  }
}

bool is_joined(const std::string& joined, const std::string& part, const std::string& name) {
  return name.empty()
             ? joined == part
             : joined.size() == part.size() + 1 + name.size() && joined.ends_with(name) && joined.starts_with(part);
}

/// As slices_of(named_tensors(module)) would, without making names.
bool renew_tensors(const torch::nn::Module& module, TensorSlices& slices, size_t& place) {
  for (const auto& list : {module.named_parameters(/*recurse=*/false), module.named_buffers(/*recurse=*/false)}) {
    for (const auto& item : list) {
      if (!item.value().defined()) continue;
      if (place == slices.size()) return false;
      auto& slice = slices[place++];
      const auto* sharding = sharding_of(item.value());
      const bool is_whole = sharding == nullptr || sharding->role != Sharding::Role::kParameter;
      const auto& values = is_whole ? item.value() : sharding->part;
      const auto* part = is_whole ? sharding : sharding_of(values);
      const bool has_shape = part == nullptr ? values.sizes() == slice.shape && slice.first == 0
                                             : part->shape == slice.shape && part->first == slice.first;
      if (!has_shape || !slice.name.ends_with(item.key())) return false;
      if (!slice.values.is_same(values)) slice.values = values;
    }
  }
  for (const auto& child : module.children()) {
    if (child && !renew_tensors(*child, slices, place)) return false;
  }
  return true;
}

/// The parameter to which a state "KIND.NAME" belongs; null if there is no such parameter.
const TensorSlice* parameter_of(const std::string& state, const std::map<std::string, TensorSlice>& layout) {
  const auto dot = state.find('.');
  const auto found = dot == state.npos ? layout.end() : layout.find(state.substr(dot + 1));
  return found == layout.end() ? nullptr : &found->second;
}

std::map<std::string, TensorSlice> slices_by_name(const NamedTensors& tensors) {
  std::map<std::string, TensorSlice> result;
  for (const auto& [name, tensor] : tensors) result.emplace(name, slice_of(name, tensor));
  return result;
}

void add_replica(detail::Replica replica, std::vector<detail::Replica>& all) {
  if (!replica.ranks.empty() && replica.values.defined() && replica.values.numel() > 0 &&
      replica.values.layout() == at::kStrided) {
    all.push_back(std::move(replica));
  }
}

/// The ranks that must give an optimizer of these tensors the same options; empty if one of the tensors is this rank's
/// own.
std::vector<int64_t> ranks_of_options(const NamedTensors& layout) {
  std::vector<int64_t> result;
  for (const auto& [_, tensor] : layout) {
    const auto* sharding = sharding_of(tensor);
    result = sharding != nullptr && sharding->group != nullptr ? sharding->group->ranks()
                                                               : detail::Replicated::ranks_of(tensor);
    if (result.empty()) return {};
  }
  return result;
}

bool is_divided(const NamedTensors& tensors) {
  for (const auto& named : tensors) {
    if (sharding_of(named.second) != nullptr) return true;
  }
  return false;
}

}  // namespace

TrainState& TrainState::add_module(const std::string& name, torch::nn::Module& module) {
  struct ModulePart : Part {
    torch::nn::Module& module;
    explicit ModulePart(torch::nn::Module& of) : module(of) {}
    void save(const std::string& name, Snapshot& snapshot, std::vector<RankRow>&) override {
      append(name, slices_of(named_tensors(module)), snapshot.slices);
    }
    bool renew_own(const std::string&, OwnState& own, OwnPlace& place) override {
      return renew_tensors(module, own.slices, place.slice);
    }
    PreparedPart prepare(const PartSource& source) override {
      return {prepare_to_load(source.tensors, slices_of(named_tensors(module))), {}};
    }
    void add_replicas(const std::string& name, std::vector<detail::Replica>& all) const override {
      for (const auto& [key, tensor] : distinct(named_tensors(module))) {
        const auto* sharding = sharding_of(tensor);
        const auto& values = sharding == nullptr ? tensor : sharding->part;
        if (!values.defined()) continue;
        const auto* part = sharding_of(values);
        add_replica({.name = joined(name, key),
                     .values = values,
                     .ranks = detail::Replicated::ranks_of(values),
                     .first = part == nullptr ? 0 : part->first},
                    all);
      }
    }
    void load_own(PartSource source, const TensorMap& rows) override {
      Part::load_own(std::move(source), rows);
      for (auto& [_, tensor] : named_tensors(module)) {
        tensor.mutable_grad().reset();
        if (const auto* sharding = sharding_of(tensor)) sharding->part.mutable_grad().reset();
      }
    }
  };
  return add_part(name, std::make_unique<ModulePart>(module));
}

TrainState& TrainState::add_tensor(const std::string& name, at::Tensor& tensor) {
  struct TensorPart : Part {
    at::Tensor& tensor;
    explicit TensorPart(at::Tensor& of) : tensor(of) {}
    void save(const std::string& name, Snapshot& snapshot, std::vector<RankRow>&) override {
      if (!tensor.defined()) throw Error(ErrorCode::kInvalidArgument, "the tensor '{}' is undefined", name);
      append(name, {slice_of("", tensor)}, snapshot.slices);
    }
    PreparedPart prepare(const PartSource& source) override {
      if (!tensor.defined()) throw Error(ErrorCode::kInvalidArgument, "the tensor '{}' is undefined", source.name);
      return {prepare_to_load(source.tensors, {slice_of("", tensor)}), {}};
    }
  };
  return add_part(name, std::make_unique<TensorPart>(tensor));
}

TrainState& TrainState::add_state_dict(const std::string& name, StateDict access) {
  struct StateDictPart : Part {
    StateDict access;
    explicit StateDictPart(StateDict of) : access(std::move(of)) {}
    void add_optimized(std::vector<at::Tensor>& all) const override {
      if (!access.parameters) return;
      for (auto& [_, tensor] : access.parameters()) all.push_back(std::move(tensor));
    }

    void save(const std::string& name, Snapshot& snapshot, std::vector<RankRow>&) override {
      const auto layout = slices_by_name(access.layout ? access.layout() : NamedTensors());
      TensorSlices slices;
      for (const auto& [key, tensor] : access.save()) {
        const auto* parameter = parameter_of(key, layout);
        if (parameter != nullptr && tensor.sizes() == parameter->values.sizes()) {
          slices.push_back({key, parameter->shape, parameter->first, tensor});
        } else if (parameter == nullptr || tensor.dim() == 0 || parameter->shape == parameter->values.sizes()) {
          slices.push_back({key, tensor.sizes().vec(), 0, tensor});
        } else {
          throw Error(ErrorCode::kInvalidArgument,
                      "'{}': the state '{}' is {}: neither a scalar nor one number for each of the {} elements that "
                      "this rank has of its parameter; such a state cannot be sharded",
                      name, key, yoke::train::describe(tensor), parameter->values.numel());
        }
      }
      append(name, std::move(slices), snapshot.slices);
    }

    void add_replicas(const std::string& name, std::vector<detail::Replica>& all) const override {
      if (!access.is_optimizer || !access.layout) return;  // averages may be those of rank 0 alone
      const auto layout = access.layout();
      std::map<std::string_view, const at::Tensor*> tensors;
      for (const auto& [key, tensor] : layout) tensors.emplace(key, &tensor);
      for (const auto& [key, state] : access.save()) {
        const auto dot = key.find('.');
        const auto found = dot == key.npos ? tensors.end() : tensors.find(std::string_view(key).substr(dot + 1));
        if (found != tensors.end()) {
          const auto* sharding = sharding_of(*found->second);
          add_replica({.name = joined(name, key),
                       .values = state,
                       .ranks = detail::Replicated::ranks_of(*found->second),
                       .first = sharding == nullptr ? 0 : sharding->first},
                      all);
        } else if (dot == key.npos && state.dim() == 1 && state.scalar_type() == at::kDouble) {
          add_replica(
              {.name = joined(name, key), .values = state, .ranks = ranks_of_options(layout), .is_option = true}, all);
        }
      }
    }

    void save_own(const std::string& name, OwnState& own) override {
      if (!access.save_own) return Part::save_own(name, own);
      for (auto& [key, tensor] : access.save_own()) own.rows.emplace_back(joined(name, key), tensor);
    }

    bool renew_own(const std::string& name, OwnState& own, OwnPlace& place) override {
      if (access.save_own) return Part::renew_own(name, own, place);
      const auto begin = place;
      for (const auto& [key, tensor] : access.save()) {
        if (place.slice == own.slices.size()) return false;
        auto& slice = own.slices[place.slice++];
        if (!is_joined(slice.name, name, key)) return false;
        if (slice.values.is_same(tensor)) continue;
        const bool may_be_divided = access.layout && key.find('.') != key.npos;
        if (may_be_divided || tensor.sizes() != slice.shape) {
          place = begin;
          return Part::renew_own(name, own, place);
        }
        slice.values = tensor;
      }
      return true;
    }

    void load_own(PartSource source, const TensorMap& rows) override {
      if (!access.load_own) return Part::load_own(std::move(source), rows);
      TensorMap state;
      for (const auto& [key, tensor] : rows) {
        if (key.starts_with(source.name + "/")) state.emplace(key.substr(source.name.size() + 1), tensor);
      }
      access.load_own(state);
    }

    PreparedPart prepare(const PartSource& source) override {
      const auto parameters = access.layout ? access.layout() : NamedTensors();
      const auto layout = slices_by_name(parameters);
      // This rank may hold nothing of a parameter of which other ranks hold parts.
      const bool some_elsewhere = access.layout && (parameters.empty() || is_divided(parameters));
      PreparedPart prepared;
      TensorMap state;
      for (const auto& [key, whole] : source.tensors.tensors) {
        const auto* parameter = parameter_of(key, layout);
        if (parameter == nullptr && some_elsewhere && key.find('.') != key.npos) {
          prepared.unknown.push_back(key);
        } else if (parameter != nullptr && parameter->shape == whole.shape) {
          const auto& values = parameter->values;
          state.emplace(key, values.numel() == 0
                                 ? at::empty(values.sizes(), whole.dtype)
                                 : source.tensors.read(key, parameter->first, values.numel()).view(values.sizes()));
        } else if (parameter == nullptr || whole.shape.empty() || parameter->shape == parameter->values.sizes()) {
          state.emplace(key, read_whole(source.tensors, key));
        } else {
          throw Error(ErrorCode::kInvalidArgument,
                      "{} is of another model: '{}' is {} there, and its parameter is {} here", source.tensors.what,
                      key, yoke::train::describe(whole.dtype, whole.shape),
                      yoke::train::describe(parameter->values.scalar_type(), parameter->shape));
        }
      }
      prepared.commit = [this, state = std::move(state)] { access.load(state); };
      return prepared;
    }
  };
  return add_part(name, std::make_unique<StateDictPart>(std::move(access)));
}

TrainState& TrainState::add_text(const std::string& name, Value access) {
  struct TextPart : Part {
    Value access;
    explicit TextPart(Value of) : access(std::move(of)) {}
    void save(const std::string& name, Snapshot& snapshot, std::vector<RankRow>&) override {
      snapshot.values[name] = access.save();
    }
    PreparedPart prepare(const PartSource& source) override {
      if (source.text == nullptr) {
        throw Error(ErrorCode::kInvalidArgument, "{}: it is not a number or text in the checkpoint",
                    source.tensors.what);
      }
      return {access.prepare(*source.text), {}};
    }
  };
  return add_part(name, std::make_unique<TextPart>(std::move(access)));
}

}  // namespace yoke::train
