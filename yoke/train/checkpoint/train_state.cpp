#include "yoke/train/checkpoint/train_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <mutex>
#include <optional>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/dist/world.h"
#include "yoke/train/describe.h"
#include "yoke/train/sharding.h"

namespace yoke::train {
namespace {

constexpr auto kGeneratorGroup = "generator";
constexpr auto kNumThreads = "num_threads";

std::string key_of(const std::string& group, const std::string& name) { return group + "/" + name; }

/// The first of a list and how many more: "model/fc.weight (and 3 more)".
std::string first_of(const std::vector<std::string>& list) {
  return list.size() == 1 ? list[0] : fmt::format("{} (and {} more)", list[0], list.size() - 1);
}

bool is_rank_0(const dist::World& world) { return world.rank() == 0; }

/// This rank's row of a per-rank tensor; none, with a warning, when the checkpoint has none for it.
std::optional<at::Tensor> row_of_rank(const CheckpointState& state, const dist::World& world, const std::string& key,
                                      const Warn& warn) {
  const auto found = state.tensors.find(key);
  if (found == state.tensors.end()) {
    if (is_rank_0(world)) warn(fmt::format("the checkpoint has no {}; it stays as it is", key));
    return std::nullopt;
  }
  const auto& rows = found->second;
  if (rows.dim() == 0) throw Error(ErrorCode::kDataLoss, "the checkpoint's {} is {}", key, describe(rows));
  if (rows.size(0) != world.size() && is_rank_0(world)) {
    warn(fmt::format("the checkpoint's {} is that of {} ranks, and these are {}: the run goes on, not bit for bit", key,
                     rows.size(0), world.size()));
  }
  if (world.rank() >= rows.size(0)) return std::nullopt;
  return rows[world.rank()];
}

const at::Generator& cuda_generator(const dist::World& world) {
  return at::detail::getCUDAHooks().getDefaultGenerator(world.device().index());
}

}  // namespace

void add_tensors(CheckpointState& state, const std::string& group, const TensorMap& tensors) {
  for (const auto& [name, tensor] : tensors) {
    const auto key = key_of(group, name);
    require_whole("the checkpoint", key, tensor);
    if (!state.tensors.emplace(key, tensor.detach()).second) {
      throw Error(ErrorCode::kInvalidArgument, "the checkpoint has a tensor {} already", key);
    }
  }
}

TensorMap tensors_in(const CheckpointState& state, const std::string& group) {
  const auto prefix = key_of(group, "");
  TensorMap tensors;
  for (auto it = state.tensors.lower_bound(prefix); it != state.tensors.end() && it->first.starts_with(prefix); ++it) {
    tensors.emplace(it->first.substr(prefix.size()), it->second);
  }
  return tensors;
}

TensorMap named_tensors(const torch::nn::Module& module) {
  TensorMap tensors;
  for (const auto& list : {module.named_parameters(), module.named_buffers()}) {
    for (const auto& item : list) {
      require_whole("the module's tensors", item.key(), item.value());
      if (item.value().defined()) tensors.emplace(item.key(), item.value());
    }
  }
  return tensors;
}

void add_module(CheckpointState& state, const std::string& group, const torch::nn::Module& module) {
  add_tensors(state, group, named_tensors(module));
}

void load_tensors(const CheckpointState& state, const std::string& group, const TensorMap& into) {
  const auto from = tensors_in(state, group);
  std::vector<std::string> missing, unexpected, different;
  for (const auto& [name, tensor] : into) {
    const auto found = from.find(name);
    if (found == from.end()) {
      missing.push_back(key_of(group, name));
    } else if (found->second.sizes() != tensor.sizes() || found->second.scalar_type() != tensor.scalar_type()) {
      different.push_back(
          fmt::format("{} is {}, here {}", key_of(group, name), describe(found->second), describe(tensor)));
    }
  }
  for (const auto& [name, tensor] : from) {
    if (!into.contains(name)) unexpected.push_back(key_of(group, name));
  }
  std::vector<std::string> problems;
  if (!missing.empty()) problems.push_back("it lacks " + first_of(missing));
  if (!unexpected.empty()) problems.push_back("it has the unknown " + first_of(unexpected));
  if (!different.empty()) problems.push_back("its " + first_of(different));
  if (!problems.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "the checkpoint does not fit: {}", fmt::join(problems, "; "));
  }
  const c10::NoGradGuard no_grad;
  for (const auto& [name, tensor] : into) tensor.copy_(from.at(name));
}

void load_module(const CheckpointState& state, const std::string& group, torch::nn::Module& module) {
  load_tensors(state, group, named_tensors(module));
}

Unmatched load_matching(const CheckpointState& state, const std::string& group, torch::nn::Module& module) {
  const auto into = named_tensors(module), from = tensors_in(state, group);
  Unmatched unmatched;
  CheckpointState both;
  TensorMap found;
  for (const auto& [name, tensor] : into) {
    if (from.contains(name)) {
      found.emplace(name, tensor);
    } else {
      unmatched.missing.push_back(name);
    }
  }
  for (const auto& [name, tensor] : from) {
    if (into.contains(name)) {
      both.tensors.emplace(key_of(group, name), tensor);
    } else {
      unmatched.unexpected.push_back(name);
    }
  }
  load_tensors(both, group, found);
  return unmatched;
}

int64_t metadata_int(const CheckpointState& state, const std::string& name) {
  const auto found = state.metadata.find(name);
  if (found == state.metadata.end()) throw Error(ErrorCode::kDataLoss, "the checkpoint's metadata has no {}", name);
  const auto value = parse_int(found->second);
  if (!value) throw Error(ErrorCode::kDataLoss, "the checkpoint's {} is '{}', no number", name, found->second);
  return *value;
}

void add_generator(CheckpointState& state, dist::World& world, const std::string& name, at::Generator generator) {
  at::Tensor own;  // uint8 [bytes]
  {
    const std::lock_guard lock(generator.mutex());
    own = generator.get_state();
  }
  add_tensors(state, kGeneratorGroup, {{name, world.all_gather(own.to(world.device())).cpu()}});
}

void add_generators(CheckpointState& state, dist::World& world) {
  add_generator(state, world, "cpu", at::detail::getDefaultCPUGenerator());
  if (world.device().is_cuda()) add_generator(state, world, "cuda", cuda_generator(world));
}

void restore_generator(const CheckpointState& state, const dist::World& world, const std::string& name,
                       at::Generator generator, const Warn& warn) {
  const auto key = key_of(kGeneratorGroup, name);
  const auto row = row_of_rank(state, world, key, warn);
  if (!row) return;
  const std::lock_guard lock(generator.mutex());
  try {
    // A copy: libtorch 2.11 adds a view's storage offset twice here, and reads past the end.
    generator.set_state(row->clone());
  } catch (const c10::Error& error) {
    throw Error(ErrorCode::kDataLoss, "the checkpoint's {} is no state of this generator: {}", key,
                error.what_without_backtrace());
  }
}

void restore_generators(const CheckpointState& state, const dist::World& world, const Warn& warn) {
  restore_generator(state, world, "cpu", at::detail::getDefaultCPUGenerator(), warn);
  if (world.device().is_cuda()) {
    restore_generator(state, world, "cuda", cuda_generator(world), warn);
  } else if (is_rank_0(world) && state.tensors.contains(key_of(kGeneratorGroup, "cuda"))) {
    warn("the checkpoint was saved on a GPU and this is a CPU: the run goes on, not bit for bit");
  }
}

void add_num_threads(CheckpointState& state, dist::World& world) {
  const auto own = at::full({}, at::get_num_threads(), at::TensorOptions(at::kLong).device(world.device()));
  if (!state.tensors.emplace(kNumThreads, world.all_gather(own).cpu()).second) {
    throw Error(ErrorCode::kInvalidArgument, "the checkpoint has a tensor {} already", kNumThreads);
  }
}

void restore_num_threads(const CheckpointState& state, const dist::World& world, ThreadRule rule, const Warn& warn) {
  const auto row = row_of_rank(state, world, kNumThreads, warn);
  if (!row) return;
  constexpr int64_t kMost = 4096;  // a hostile file must not start a million threads
  if (row->scalar_type() != at::kLong || row->dim() != 0 || row->item<int64_t>() < 1 || row->item<int64_t>() > kMost) {
    throw Error(ErrorCode::kDataLoss, "the checkpoint's {} is no number of threads", kNumThreads);
  }
  const auto recorded = static_cast<int>(row->item<int64_t>());
  const int own = at::get_num_threads();
  if (recorded == own) return;
  if (rule == ThreadRule::kAdopt) {
    at::set_num_threads(recorded);
  } else if (is_rank_0(world)) {
    warn(fmt::format(
        "the checkpoint was made with {} threads a rank and this run has {}: the run goes on, not bit for bit",
        recorded, own));
  }
}

}  // namespace yoke::train
