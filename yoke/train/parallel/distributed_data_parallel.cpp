#include "yoke/train/parallel/distributed_data_parallel.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <set>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "yoke/base/error.h"
#include "yoke/train/parallel/distributed_data_parallel_impl.h"
#include "yoke/train/parallel/same_on_all_ranks.h"
#include "yoke/train/parallel/sync_batch_norm.h"

namespace yoke::train {
namespace {

constexpr size_t kBroadcastBytes = 250 << 20;  // PyTorch's chunk for parameters and buffers

/// Each tensor once, under its first name: modules may share parameters. Takes the names that are there out of
/// `ignored`.
NamedTensors not_ignored(const NamedTensors& tensors, std::set<std::string>& ignored,
                         const std::vector<std::string>& all_ignored) {
  NamedTensors result;
  std::set<const c10::TensorImpl*> seen;
  for (const auto& [name, tensor] : tensors) {
    const bool is_ignored = std::find(all_ignored.begin(), all_ignored.end(), name) != all_ignored.end();
    ignored.erase(name);
    if (seen.insert(tensor.unsafeGetTensorImpl()).second && !is_ignored) result.emplace_back(name, tensor);
  }
  return result;
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(torch::nn::Module& model, dist::World& world,
                                                 const DistributedDataParallelOptions& options)
    : impl_(new Impl{.world = world,
                     .broadcast_buffers = options.broadcast_buffers,
                     .find_unused_parameters = options.find_unused_parameters,
                     .static_graph = options.static_graph}) {
  std::set<std::string> not_found(options.ignored.begin(), options.ignored.end());
  auto all = not_ignored(model.named_parameters().pairs(), not_found, options.ignored);
  NamedTensors trained;
  for (const auto& item : all) (item.second.requires_grad() ? trained : impl_->frozen).push_back(item);
  const auto buffers = not_ignored(model.named_buffers().pairs(), not_found, options.ignored);
  all.insert(all.end(), buffers.begin(), buffers.end());
  if (!not_found.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "'{}' is to be ignored, and the model has no parameter or buffer of that name", *not_found.begin());
  }
  if (trained.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "the model has no parameter that requires a gradient; it needs no "
                "DistributedDataParallel");
  }
  for (const auto& [name, tensor] : all) {
    if (tensor.device() == world.device()) continue;
    throw Error(ErrorCode::kInvalidArgument, "'{}' is on {} and this rank's device is {}; move the model there first",
                name, tensor.device().str(), world.device().str());
  }
  check_same_on_all_ranks(
      world, all,
      fmt::format("bucket_bytes: {}; first_bucket_bytes: {}; broadcast_buffers: {}; find_unused_parameters: {}; "
                  "static_graph: {}; communication_hook: {}",
                  options.bucket_bytes, options.first_bucket_bytes, options.broadcast_buffers,
                  options.find_unused_parameters, options.static_graph, options.communication_hook ? "set" : "none"));

  for (const auto& [name, tensor] : trained) impl_->names.push_back(name);
  for (const auto& [name, tensor] : all) impl_->values.push_back(tensor);
  for (const auto& [name, tensor] : buffers) impl_->buffers.push_back(tensor);
  impl_->has_sync_batch_norm = has_sync_batch_norm(model);
  impl_->broadcast(impl_->values);
  const auto sparse = expects_sparse(model, trained);
  impl_->has_sparse = std::find(sparse.begin(), sparse.end(), true) != sparse.end();
  impl_->reducer = make_reducer(trained, sparse, group_of(world), options);
  impl_->logger = std::make_shared<c10d::Logger>(impl_->reducer);  // the Reducer asks for it, without checking
  impl_->reducer->set_logger(impl_->logger);
  if (options.communication_hook) {
    auto hook = std::make_unique<HookRunner>(options.communication_hook);
    impl_->hook = hook.get();
    impl_->reducer->register_comm_hook(std::move(hook));
  }
}

DistributedDataParallel::~DistributedDataParallel() = default;

DistributedDataParallel::Step DistributedDataParallel::begin_step() {
  auto& impl = *impl_;
  ++impl.num_steps;
  if (impl.has_missed_graph) {
    impl.fail_step("static_graph is set, and this rank had no data in the first step, from which the graph is learned");
  }
  for (const auto& [name, tensor] : impl.frozen) {
    if (!tensor.requires_grad()) continue;
    impl.fail_step(
        fmt::format("'{}' requires a gradient, which would not be averaged: it did not when this was made; "
                    "make another DistributedDataParallel after a change of what is trained",
                    name));
  }
  try {
    impl.reducer->prepare_for_forward();
    if (impl.join) impl.announce_step();
    impl.reducer->rebuild_buckets();  // once, after the first step; before forward, where memory is lowest
  } catch (...) {
    impl.world.explain(std::current_exception());
  }
  if (impl.broadcast_buffers && !impl.buffers.empty()) {
    impl.broadcast(impl.buffers, impl.join ? impl.highest_rank(true) : 0);
  }
  return Step(*this);
}

void DistributedDataParallel::sync_buffers() { impl_->broadcast(impl_->buffers); }

void DistributedDataParallel::Step::backward(const at::Tensor& loss) {
  if (owner_ == nullptr) {
    throw Error(ErrorCode::kFailedPrecondition, "Step::backward was called a second time; begin another step");
  }
  std::exchange(owner_, nullptr)->impl_->backward(loss);
}

void DistributedDataParallel::Impl::broadcast(const std::vector<at::Tensor>& tensors, int64_t root) {
  if (tensors.empty() || world.size() == 1) return;
  std::vector<at::Tensor> current;  // where they are now: their memory may have been exchanged (ShardedOptimizer does)
  for (const auto& tensor : tensors) current.push_back(tensor.detach());
  try {
    c10d::broadcast_coalesced(group_of(world), current, kBroadcastBytes, static_cast<int>(root));
  } catch (...) {
    world.explain(std::current_exception());
  }
}

void DistributedDataParallel::Impl::backward(const at::Tensor& loss) {
  const bool is_learning_graph = static_graph && !is_graph_learned;
  try {
    reducer->expect_backward(find_unused_parameters && !static_graph ? std::vector<at::Tensor>{loss}
                                                                     : std::vector<at::Tensor>());
    if (is_learning_graph) {
      // The Reducer counts how often each gradient comes, and averages when all are there.
      const auto key = loss.register_hook([this](const at::Tensor&) {
        torch::autograd::Engine::get_default_engine().queue_callback([this] { reducer->delay_all_reduce(); });
      });
      loss.backward();
      loss.remove_hook(key);
      reducer->learn_graph();
      is_graph_learned = true;
    } else {
      loss.backward();
    }
  } catch (...) {
    if (static_graph && !is_learning_graph && !reducer->newly_used().empty()) {
      fail_step(
          fmt::format("static_graph is set, the first step did not use {}, and this one does; leave static_graph off",
                      list(reducer->newly_used())));
    }
    world.explain(std::current_exception());
  }
  if (reducer->is_finished()) return;
  if (static_graph) {
    fail_step(
        fmt::format("static_graph is set, the first step used {}, and this step's loss does not depend on it in the "
                    "same way; leave static_graph off",
                    list(reducer->missing())));
  }
  if (find_unused_parameters) fail_step("the loss depends on no parameter that is averaged; leave no step without any");
  fail_step(
      fmt::format("the loss does not depend on {}; set find_unused_parameters if that is meant, or freeze what is not "
                  "trained (set_requires_grad(false))",
                  list(reducer->missing())));
}

void DistributedDataParallel::Impl::fail_step(const std::string& reason) const {
  const auto text = fmt::format("in step {} of DistributedDataParallel {}", num_steps, reason);
  world.report_failure(text);
  throw Error(ErrorCode::kFailedPrecondition, "rank {}: {}", world.rank(), text);
}

std::string DistributedDataParallel::Impl::list(const std::vector<size_t>& parameters) const {
  constexpr size_t kMaxNamed = 8;
  std::string text;
  for (size_t i = 0; i < std::min(parameters.size(), kMaxNamed); ++i) {
    text += fmt::format("{}'{}'", i == 0 ? "" : ", ", names[parameters[i]]);
  }
  if (parameters.size() > kMaxNamed) text += fmt::format(" and {} more", parameters.size() - kMaxNamed);
  return text;
}

}  // namespace yoke::train
