#include "yoke/train/checkpoint/tensor_slice.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/dist/group.h"
#include "yoke/train/sharding.h"

namespace yoke::train {
namespace {

using json = nlohmann::json;

/// A tensor's bytes, 1-D. Tensors of every dtype are sent in this form.
at::Tensor bytes_of(const at::Tensor& values) { return values.view({-1}).view(at::kByte); }

using Wanted = std::map<std::string, const TensorSlice*>;

/// Returns the text before `name` if it has a name of `others` after a dot: "module." for "module.fc.weight".
template <class Map>
std::optional<std::string> prefix_before_any(const std::string& name, const Map& others) {
  for (auto dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1)) {
    if (others.contains(name.substr(dot + 1))) return name.substr(0, dot + 1);
  }
  return std::nullopt;
}

/// The prefix that all names of `longer` have before names of `shorter`.
template <class Longer, class Shorter>
std::optional<std::string> common_prefix(const Longer& longer, const Shorter& shorter) {
  if (longer.empty()) return std::nullopt;
  const auto prefix = prefix_before_any(longer.begin()->first, shorter);
  if (!prefix) return std::nullopt;
  const bool have_all = std::ranges::all_of(longer, [&](const auto& item) { return item.first.starts_with(*prefix); });
  return have_all ? prefix : std::nullopt;
}

/// Says what to do if one side's names have a prefix that the other side's lack; empty if that is not so.
std::string describe_prefix(const TensorSource& source, const Wanted& wanted) {
  if (const auto prefix = common_prefix(source.tensors, wanted)) {
    const auto part = prefix->substr(0, prefix->size() - 1);
    const auto* by = part.ends_with("_orig_mod") ? " (torch.compile writes it)"
                     : part == "module"          ? " (Python's DistributedDataParallel writes it)"
                                                 : "";
    return fmt::format(
        "its names begin with '{}'{}, and the model's do not: load part_of(source, \"{}\", '.'), where source is "
        "source_of(read_state_dict(path)) for a file of Python",
        *prefix, by, part);
  }
  if (const auto prefix = common_prefix(wanted, source.tensors)) {
    return fmt::format("the model's names begin with '{}', and its names do not: load it into that part of the model",
                       *prefix);
  }
  return "";
}

/// Names a tensor of the same shape that only the other side has, which was probably meant by a missing name.
template <class Map, class Other, class ShapeOf>
std::string describe_other(const Map& from, const Other& than, const std::vector<int64_t>& shape,
                           const ShapeOf& shape_of) {
  for (const auto& [name, value] : from) {
    if (!than.contains(name) && shape_of(value) == shape) return fmt::format(" (but '{}' has the same shape)", name);
  }
  return "";
}

}  // namespace

at::Tensor TensorSlice::flat() const {
  const auto dense = values.detach().resolve_conj().resolve_neg().contiguous().view({-1});
  return dense.scalar_type() == at::kBool ? dense.view(at::kByte).ne(0)
                                          : dense;  // a bool that is a view of other bytes may be neither 0 nor 1
}

TensorSlice slice_of(std::string name, const at::Tensor& tensor) {
  const auto* sharding = sharding_of(tensor);
  if (sharding == nullptr) return {std::move(name), tensor.sizes().vec(), 0, tensor};
  if (sharding->role == Sharding::Role::kParameter) return slice_of(std::move(name), sharding->part);
  return {std::move(name), sharding->shape, sharding->first, tensor};
}

TensorSlices slices_of(const NamedTensors& tensors) {
  TensorSlices slices;
  for (const auto& [name, tensor] : tensors) slices.push_back(slice_of(name, tensor));
  return slices;
}

std::string describe_slices(const TensorSlices& slices) {
  auto list = json::array();
  for (const auto& slice : slices) {
    list.push_back(
        {slice.name, static_cast<int>(slice.values.scalar_type()), slice.shape, slice.first, slice.values.numel()});
  }
  return list.dump();
}

std::vector<PlannedTensor> plan_slices(const std::vector<std::string>& descriptions_by_rank) {
  std::vector<PlannedTensor> plan;
  std::map<std::string, size_t> places;
  for (size_t rank = 0; rank < descriptions_by_rank.size(); ++rank) {
    for (const auto& item : json::parse(descriptions_by_rank[rank])) {
      const auto name = item[0].get<std::string>();
      const auto dtype = static_cast<at::ScalarType>(item[1].get<int>());
      const auto shape = item[2].get<std::vector<int64_t>>();
      const auto [place, is_new] = places.emplace(name, plan.size());
      if (is_new) plan.push_back({name, dtype, shape, {}});
      auto& tensor = plan[place->second];
      if (tensor.dtype != dtype || tensor.shape != shape) {
        throw Error(ErrorCode::kInvalidArgument, "'{}' is {} on rank {}, and {} on a lower one", name,
                    describe(dtype, shape), rank, describe(tensor.dtype, tensor.shape));
      }
      const PlannedTensor::Part part{static_cast<int64_t>(rank), item[3].get<int64_t>(), item[4].get<int64_t>()};
      if (part.length > 0) tensor.parts.push_back(part);
    }
  }
  for (auto& tensor : plan) {
    std::ranges::stable_sort(tensor.parts, {}, [](const auto& part) { return std::tuple(part.first, part.rank); });
    std::vector<PlannedTensor::Part> parts;
    int64_t next = 0;
    for (const auto& part : tensor.parts) {
      const bool is_copy = !parts.empty() && parts.back().first == part.first && parts.back().length == part.length;
      if (is_copy) continue;
      if (part.first != next) break;
      next += part.length;
      parts.push_back(part);
    }
    if (next != num_elements(tensor.shape)) {
      throw Error(ErrorCode::kInvalidArgument,
                  "'{}' is {}: no rank has its element {}, or two have parts of it that overlap", tensor.name,
                  describe(tensor.dtype, tensor.shape), next);
    }
    tensor.parts = std::move(parts);
  }
  return plan;
}

void gather_tensors(dist::Group& group, const NamedTensors& tensors,
                    const std::function<void(const std::string& name, const at::Tensor& whole)>& sink) {
  const c10::NoGradGuard no_grad;
  const auto slices = slices_of(tensors);
  std::map<std::string, const TensorSlice*> own;
  for (const auto& slice : slices) own.emplace(slice.name, &slice);
  for (const auto& tensor : plan_slices(group.all_gather_text(describe_slices(slices)))) {
    const auto own_part = [&] { return own.at(tensor.name)->flat(); };
    if (group.rank() != 0) {
      for (const auto& part : tensor.parts) {
        if (part.rank == group.rank()) group.send(bytes_of(own_part().to(group.device())), 0);
      }
      continue;
    }
    const auto whole = at::empty({num_elements(tensor.shape)}, at::TensorOptions(tensor.dtype).device(group.device()));
    for (const auto& part : tensor.parts) {
      const auto place = whole.narrow(0, part.first, part.length);
      if (part.rank == 0) {
        place.copy_(own_part());
      } else {
        group.receive(bytes_of(place), part.rank);
      }
    }
    try {
      sink(tensor.name, whole.cpu().view(tensor.shape));
    } catch (...) {
      group.fail(std::current_exception());  // otherwise the other ranks would wait for the next tensor
    }
  }
  group.barrier();  // a message may be sent before anybody receives it, and an error is still to come
}

NamedTensors gather_tensors(dist::Group& group, const NamedTensors& tensors) {
  NamedTensors result;
  gather_tensors(group, tensors,
                 [&](const std::string& name, const at::Tensor& whole) { result.emplace_back(name, whole); });
  return result;
}

std::function<void()> prepare_to_load(const TensorSource& source, const TensorSlices& slices) {
  Wanted wanted;
  for (const auto& slice : slices) wanted.emplace(slice.name, &slice);
  std::set<std::string> names;
  for (const auto& [name, slice] : wanted) names.insert(name);
  for (const auto& [name, whole] : source.tensors) names.insert(name);
  // A state of averages has a tied tensor under its first name only.
  const auto is_tied = [&](const TensorSlice& slice) {
    return std::ranges::any_of(wanted, [&](const auto& other) {
      return other.second->values.is_same(slice.values) && source.tensors.contains(other.first);
    });
  };
  const auto refuse = [&](const std::string& name, const std::string& why) {
    throw Error(ErrorCode::kInvalidArgument, "{} is of another model: the first difference is '{}', {}", source.what,
                name, why);
  };
  const bool are_averages = std::ranges::any_of(wanted, [&](const auto& item) {
    const auto average = "average." + item.first;
    return !source.tensors.contains(item.first) && source.tensors.contains(average) && !wanted.contains(average);
  });
  if (are_averages) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "{} is the state of averages, not of a model: load it with StoredCheckpoint::averages(\"ema\"), with the "
        "name of that part",
        source.what);
  }
  const auto refuse_prefix = [&] {
    const auto prefix = describe_prefix(source, wanted);
    if (prefix.empty()) return;
    throw Error(ErrorCode::kInvalidArgument, "{} is of another model: {}", source.what, prefix);
  };
  constexpr auto kPartly = "; load_matching() loads what both have";
  for (const auto& name : names) {
    const auto stored = source.tensors.find(name);
    const auto want = wanted.find(name);
    if (stored == source.tensors.end() && is_tied(*want->second)) continue;
    if (stored == source.tensors.end() || want == wanted.end()) refuse_prefix();
    if (stored == source.tensors.end()) {
      refuse(name,
             "which it lacks" + describe_other(source.tensors, wanted, want->second->shape, [](const auto& whole) {
               return whole.shape;
             }) + kPartly);
    }
    const auto& [dtype, shape] = stored->second;
    if (want == wanted.end()) {
      refuse(name, "which the model lacks" + describe_other(wanted, source.tensors, shape, [](const auto* slice) {
                     return slice->shape;
                   }) + kPartly);
    }
    const auto own_dtype = want->second->values.scalar_type();
    const auto theirs = describe(dtype, shape), ours = describe(own_dtype, want->second->shape);
    if (theirs == ours) continue;
    refuse(name, fmt::format("{} there and {} in the model{}", theirs, ours,
                             shape != want->second->shape
                                 ? ""
                                 : fmt::format("; convert the values with .to(torch::k{}), or the model with "
                                               "model->to(torch::k{})",
                                               c10::toString(own_dtype), c10::toString(dtype))));
  }
  for (const auto& [name, slice] : std::exchange(wanted, {})) {
    if (source.tensors.contains(name)) wanted.emplace(name, slice);
  }
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // to, from: everything is read before anything changes
  for (const auto& [name, slice] : wanted) {
    if (slice->values.numel() == 0) continue;
    copies.emplace_back(slice->values,
                        source.read(name, slice->first, slice->values.numel()).view(slice->values.sizes()));
  }
  return [copies = std::move(copies)] {
    const c10::NoGradGuard no_grad;
    for (const auto& [to, from] : copies) to.copy_(from);
  };
}

}  // namespace yoke::train
