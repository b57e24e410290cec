#include "yoke/train/parallel/detail/reducer.h"

#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "yoke/dist/activity.h"

namespace yoke::train {

void Reducer::expect_backward() {
  std::fill(backward_stats_.begin(), backward_stats_.end(), -1);  // set to a time when the parameter is ready
  if (static_graph_) {
    for (auto& [index, count] : numGradHooksTriggeredMap_) count = learned_.empty() ? 0 : learned_.at(index);
  }
  prepare_for_backward({});
  // The Reducer has not searched the graph. Unused parameters are known only at the end of backward.
  if (find_unused_parameters_ && !static_graph_) unused_parameters_.clear();
}

bool Reducer::has_begun() const {
  const auto is_ready = [](int64_t time) { return time != -1; };
  if (std::any_of(backward_stats_.begin(), backward_stats_.end(), is_ready)) return true;
  const auto has_come = [](const auto& counted) { return counted.second > 0; };
  return static_graph_ && learned_.empty() &&
         std::any_of(numGradHooksTriggeredMap_.begin(), numGradHooksTriggeredMap_.end(), has_come);
}

void Reducer::take_missing_for_unused() {
  const std::lock_guard lock(mutex_);
  for (const size_t index : missing()) mark_variable_ready(index);
}

bool Reducer::has_bucket(const at::Tensor& tensor) const {
  return std::ranges::any_of(buckets_, [&](const Bucket& bucket) {
    return bucket.gradients.defined() && bucket.gradients.is_alias_of(tensor) &&
           bucket.gradients.numel() == tensor.numel();
  });
}

void Reducer::share_buckets() {
  const auto backend = process_group_->getBackend(c10::DeviceType::CPU);
  if (!backend->supportsTensorAlloc(0)) return;
  for (auto& bucket : buckets_) {
    const auto& gradients = bucket.gradients;
    if (bucket.expect_sparse_gradient || !gradients.defined() || !gradients.is_cpu() || gradients.numel() == 0) {
      continue;
    }
    const auto shared = backend->allocateTensor(gradients.numel(), gradients.options());
    shared.copy_(gradients);
    // Views of the bucket, which gradients may be, have the same storage.
    gradients.storage().set_data_ptr_noswap(shared.storage().set_data_ptr(at::DataPtr()));
  }
}

void Reducer::wait(const dist::Group& group) {
  for (auto& bucket : buckets_) {
    if (bucket.future_work) dist::wait_for(group, *bucket.future_work);
  }
  if (local_used_work_) local_used_work_->wait();
}

std::vector<size_t> Reducer::missing() const {
  std::vector<size_t> indices;
  for (size_t i = 0; i < backward_stats_.size(); ++i) {
    if (backward_stats_[i] == -1) indices.push_back(i);
  }
  return indices;
}

std::vector<size_t> Reducer::never_used() const {
  std::vector<size_t> indices;
  for (const auto& [index, count] : learned_) {
    if (count == 0) indices.push_back(index);
  }
  return indices;
}

c10::intrusive_ptr<c10::ivalue::Future> HookRunner::runHook(c10d::GradBucket& bucket) {
  pending_.push_back(hook_(GradientBucket(bucket)));
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  future->markCompleted(c10::IValue(static_cast<int64_t>(0)));
  return future;
}

at::Tensor HookRunner::parseHookResult(const c10::IValue&) {
  const auto finish = std::move(pending_.front());
  pending_.pop_front();
  return finish();
}

std::vector<bool> expects_sparse(const torch::nn::Module& model, const NamedTensors& parameters) {
  std::set<const c10::TensorImpl*> sparse;
  const auto note = [&](const torch::nn::Module& module) {
    if (const auto* one = dynamic_cast<const torch::nn::EmbeddingImpl*>(&module); one && one->options.sparse()) {
      sparse.insert(one->weight.unsafeGetTensorImpl());
    }
    if (const auto* bag = dynamic_cast<const torch::nn::EmbeddingBagImpl*>(&module); bag && bag->options.sparse()) {
      sparse.insert(bag->weight.unsafeGetTensorImpl());
    }
  };
  note(model);  // needed because modules() includes the model only if a shared_ptr owns it
  for (const auto& module : model.modules(/*include_self=*/false)) note(*module);
  std::vector<bool> result;
  for (const auto& [name, tensor] : parameters) result.push_back(sparse.count(tensor.unsafeGetTensorImpl()) > 0);
  return result;
}

std::shared_ptr<Reducer> make_reducer(const NamedTensors& parameters, std::vector<bool> expect_sparse,
                                      c10::intrusive_ptr<c10d::ProcessGroup> group,
                                      const DistributedDataParallelOptions& options) {
  std::vector<at::Tensor> tensors;
  std::unordered_map<size_t, std::string> names;
  for (const auto& [name, tensor] : parameters) {
    names[tensors.size()] = name;
    tensors.push_back(tensor);
  }
  // Until the first backward has shown the order in which gradients become ready, there is one bucket. With several
  // buckets, ranks could reduce different buckets with each other. The Reducer rebuilds the buckets after the first
  // step, as in PyTorch's DDP. With unused parameters it never rebuilds them, so the gradients are divided into buckets
  // here, in the model's order.
  std::vector<size_t> sizes = {std::numeric_limits<size_t>::max()};
  if (options.find_unused_parameters && !options.static_graph) {
    sizes = {static_cast<size_t>(options.first_bucket_bytes), static_cast<size_t>(options.bucket_bytes)};
  }
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(tensors, sizes, expect_sparse);
  std::reverse(buckets.begin(), buckets.end());
  auto reducer = std::make_shared<Reducer>(
      std::move(tensors), std::move(buckets), std::move(group), std::move(expect_sparse), options.bucket_bytes,
      options.find_unused_parameters, options.gradient_as_bucket_view, std::move(names), options.first_bucket_bytes,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
      /*bucket_bytes_cap_list=*/std::vector<int64_t>{});
  reducer->share_buckets();
  if (options.static_graph) reducer->set_static_graph();
  return reducer;
}

}  // namespace yoke::train
