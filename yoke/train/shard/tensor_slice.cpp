#include "yoke/train/shard/tensor_slice.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "yoke/base/error.h"
#include "yoke/dist/world.h"
#include "yoke/train/sharding.h"

namespace yoke::train {
namespace {

using json = nlohmann::json;

int64_t num_elements(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

std::string describe(at::ScalarType dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{} [{}]", c10::toString(dtype), fmt::join(shape, ", "));
}

/// A tensor's bytes, 1-D. All but one rank add zeros to them: integers, so that every bit stays what it was.
at::Tensor bytes_of(const at::Tensor& values) { return values.view({-1}).view(at::kByte); }

}  // namespace

TensorSlices in_group(const std::string& group, TensorSlices slices) {
  for (auto& slice : slices) slice.name = group + "/" + slice.name;
  return slices;
}

TensorSlices slices_of_state(const TensorMap& state, const TensorSlices& parameters) {
  std::map<std::string, const TensorSlice*> by_name;
  for (const auto& slice : parameters) by_name.emplace(slice.name, &slice);
  TensorSlices result;
  for (const auto& [name, tensor] : state) {
    const auto dot = name.find('.');
    const auto found = dot == name.npos ? by_name.end() : by_name.find(name.substr(dot + 1));
    if (found == by_name.end()) {
      throw Error(ErrorCode::kInvalidArgument, "the optimizer's state '{}' is of no parameter that it was given", name);
    }
    const auto& parameter = *found->second;
    if (tensor.dim() == 0) {
      result.push_back({name, {}, 0, tensor.view({1})});
    } else if (tensor.sizes() == shape_of_part(parameter.shape, parameter.values.numel())) {
      result.push_back({name, parameter.shape, parameter.first, tensor.view({-1})});
    } else {
      throw Error(ErrorCode::kInvalidArgument,
                  "the optimizer's state '{}' is {}: neither a scalar nor one number for "
                  "each of the {} elements that it was given; such an optimizer cannot be sharded",
                  name, describe(tensor.scalar_type(), tensor.sizes().vec()), parameter.values.numel());
    }
  }
  return result;
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

void gather_slices(dist::World& world, const TensorSlices& slices,
                   const std::function<void(const std::string& name, const at::Tensor& whole)>& sink) {
  const c10::NoGradGuard no_grad;
  std::map<std::string, const TensorSlice*> own;
  for (const auto& slice : slices) own.emplace(slice.name, &slice);
  for (const auto& tensor : plan_slices(world.all_gather_text(describe_slices(slices)))) {
    const int64_t count = num_elements(tensor.shape);
    const auto found = own.find(tensor.name);
    at::Tensor whole;
    if (count == 0 || (tensor.parts.size() == 1 && tensor.parts[0].rank == 0)) {  // rank 0 has it already
      if (world.rank() != 0) continue;
      whole = count == 0 ? at::empty(tensor.shape, tensor.dtype) : found->second->values.detach().clone();
    } else {
      whole = at::zeros({count}, at::TensorOptions(tensor.dtype).device(world.device()));
      for (const auto& part : tensor.parts) {
        if (part.rank == world.rank()) whole.narrow(0, part.first, part.length).copy_(found->second->values);
      }
      world.all_reduce(bytes_of(whole));
    }
    if (world.rank() != 0) continue;
    try {
      sink(tensor.name, whole.cpu().view(tensor.shape));
    } catch (const std::exception& error) {
      world.report_failure(error.what());  // the others would wait for the next tensor
      throw;
    }
  }
}

TensorMap gather_slices(dist::World& world, const TensorSlices& slices) {
  TensorMap result;
  gather_slices(world, slices, [&](const std::string& name, const at::Tensor& whole) { result.emplace(name, whole); });
  return result;
}

SliceSource source_of(TensorMap whole) {
  SliceSource source;
  for (const auto& [name, tensor] : whole) {
    source.tensors.emplace(name, SliceSource::Whole{tensor.scalar_type(), tensor.sizes().vec()});
  }
  source.read = [whole = std::move(whole)](const std::string& name, int64_t first, int64_t length) {
    return whole.at(name).detach().contiguous().view({-1}).narrow(0, first, length);
  };
  return source;
}

SliceSource group_of(const SliceSource& source, const std::string& group) {
  SliceSource result{.tensors = {}, .read = {}, .what = fmt::format("'{}' of {}", group, source.what)};
  const auto prefix = group + "/";
  for (const auto& [name, whole] : source.tensors) {
    if (name.starts_with(prefix)) result.tensors.emplace(name.substr(prefix.size()), whole);
  }
  result.read = [read = source.read, prefix](const std::string& name, int64_t first, int64_t length) {
    return read(prefix + name, first, length);
  };
  return result;
}

TensorMap read_whole(const SliceSource& source) {
  TensorMap result;
  for (const auto& [name, whole] : source.tensors) {
    result.emplace(name, source.read(name, 0, num_elements(whole.shape)).cpu().clone().view(whole.shape));
  }
  return result;
}

void load_slices(const SliceSource& source, const TensorSlices& slices) {
  const c10::NoGradGuard no_grad;
  std::map<std::string, const TensorSlice*> wanted;
  for (const auto& slice : slices) wanted.emplace(slice.name, &slice);
  std::set<std::string> names;
  for (const auto& [name, slice] : wanted) names.insert(name);
  for (const auto& [name, whole] : source.tensors) names.insert(name);
  const auto refuse = [&](const std::string& name, const std::string& why) {
    throw Error(ErrorCode::kInvalidArgument, "{} is of another model: the first difference is '{}', {}", source.what,
                name, why);
  };
  for (const auto& name : names) {
    const auto stored = source.tensors.find(name);
    const auto want = wanted.find(name);
    if (stored == source.tensors.end()) refuse(name, "which it lacks");
    if (want == wanted.end()) refuse(name, "which the model lacks");
    const auto theirs = describe(stored->second.dtype, stored->second.shape);
    const auto ours = describe(want->second->values.scalar_type(), want->second->shape);
    if (theirs != ours) refuse(name, fmt::format("{} there and {} in the model", theirs, ours));
  }
  std::vector<at::Tensor> read;  // all of it first: a damaged file changes nothing
  for (const auto& [name, slice] : wanted) {
    read.push_back(slice->values.numel() == 0 ? at::Tensor() : source.read(name, slice->first, slice->values.numel()));
  }
  size_t i = 0;
  for (const auto& [name, slice] : wanted) {
    if (const auto& values = read[i++]; values.defined()) slice->values.copy_(values);
  }
}

TensorMap read_state(const SliceSource& source, const TensorSlices& parameters) {
  std::map<std::string, const TensorSlice*> by_name;
  for (const auto& slice : parameters) by_name.emplace(slice.name, &slice);
  TensorMap state;
  for (const auto& [name, whole] : source.tensors) {
    const auto dot = name.find('.');
    const auto found = dot == name.npos ? by_name.end() : by_name.find(name.substr(dot + 1));
    if (found == by_name.end()) {
      throw Error(ErrorCode::kInvalidArgument, "{} is of another model: it has '{}', which is of no parameter here",
                  source.what, name);
    }
    const auto& parameter = *found->second;
    const int64_t length = parameter.values.numel();
    const bool is_scalar = whole.shape.empty() && (!parameter.shape.empty() || name.starts_with("step."));
    if (!is_scalar && whole.shape != parameter.shape) {
      throw Error(ErrorCode::kInvalidArgument, "{} is of another model: '{}' is {} there, and its parameter is {} here",
                  source.what, name, describe(whole.dtype, whole.shape),
                  describe(parameter.values.scalar_type(), parameter.shape));
    }
    if (length == 0) continue;
    // Copies: an optimizer may keep what it is given, and a mapped file goes away.
    state.emplace(
        name, is_scalar
                  ? source.read(name, 0, 1).clone().view(at::IntArrayRef{})
                  : source.read(name, parameter.first, length).clone().view(shape_of_part(parameter.shape, length)));
  }
  return state;
}

}  // namespace yoke::train
