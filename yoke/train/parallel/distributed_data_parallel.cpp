#include "yoke/train/parallel/distributed_data_parallel.h"

#include <torch/nn/module.h>
#include <torch/version.h>

#include <limits>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "yoke/base/error.h"
#include "yoke/dist/world.h"
#include "yoke/train/parallel/same_on_all_ranks.h"

namespace yoke::train {
namespace {

constexpr size_t kBroadcastBytes = 250 << 20;  // PyTorch's chunk for parameters and buffers

c10::intrusive_ptr<c10d::ProcessGroup> group_of(const dist::World& world) {
  return c10::intrusive_ptr<c10d::ProcessGroup>::reclaim_copy(&world.process_group());
}

/// The constructor's arguments have changed between libtorch versions; this is the one place that knows them.
std::shared_ptr<c10d::Reducer> make_reducer(const NamedTensors& parameters, const dist::World& world,
                                            const DistributedDataParallelOptions& options) {
  std::vector<at::Tensor> tensors;
  std::unordered_map<size_t, std::string> names;
  for (const auto& [name, tensor] : parameters) {
    names[tensors.size()] = name;
    tensors.push_back(tensor);
  }
  const std::vector<bool> expect_sparse(tensors.size(), false);
  // Until the first backward has shown the order in which gradients become ready, one bucket: a bucket in the wrong
  // order could be reduced against another rank's. The Reducer rebuilds them after the first step, as PyTorch's DDP.
  auto [buckets, limits] =
      c10d::compute_bucket_assignment_by_size(tensors, {std::numeric_limits<size_t>::max()}, expect_sparse);
  std::reverse(buckets.begin(), buckets.end());
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11
  return std::make_shared<c10d::Reducer>(
      std::move(tensors), std::move(buckets), group_of(world), expect_sparse, options.bucket_bytes,
      /*find_unused_parameters=*/false, options.gradient_as_bucket_view, std::move(names), options.first_bucket_bytes,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
      /*bucket_bytes_cap_list=*/std::vector<int64_t>{});
#else
  return std::make_shared<c10d::Reducer>(std::move(tensors), std::move(buckets), group_of(world), expect_sparse,
                                         options.bucket_bytes, /*find_unused_parameters=*/false,
                                         options.gradient_as_bucket_view, std::move(names), options.first_bucket_bytes,
                                         /*skip_all_reduce_unused_params=*/false,
                                         /*use_python_reducer=*/false);
#endif
}

}  // namespace

struct DistributedDataParallel::Impl {
  dist::World& world;
  bool broadcast_buffers;
  std::vector<at::Tensor> buffers;
  std::shared_ptr<c10d::Reducer> reducer;

  void broadcast(const std::vector<at::Tensor>& tensors) {
    if (tensors.empty() || world.size() == 1) return;
    try {
      c10d::broadcast_coalesced(group_of(world), tensors, kBroadcastBytes, 0);
    } catch (...) {
      world.explain(std::current_exception());
    }
  }
};

DistributedDataParallel::DistributedDataParallel(torch::nn::Module& model, dist::World& world,
                                                 const DistributedDataParallelOptions& options)
    : impl_(std::make_unique<Impl>(Impl{world, options.broadcast_buffers, {}, {}})) {
  NamedTensors trained, all;
  for (const auto& item : model.named_parameters()) {
    all.emplace_back(item.key(), item.value());
    if (item.value().requires_grad()) trained.emplace_back(item.key(), item.value());
  }
  for (const auto& item : model.named_buffers()) {
    all.emplace_back(item.key(), item.value());
    impl_->buffers.push_back(item.value());
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
  check_same_on_all_ranks(world, all);
  std::vector<at::Tensor> values;
  for (const auto& [name, tensor] : all) values.push_back(tensor.detach());
  impl_->broadcast(values);
  impl_->reducer = make_reducer(trained, world, options);
}

DistributedDataParallel::~DistributedDataParallel() = default;

DistributedDataParallel::Step DistributedDataParallel::begin_step() {
  try {
    impl_->reducer->prepare_for_forward();
    impl_->reducer->rebuild_buckets();  // once, after the first step; before forward, where memory is lowest
  } catch (...) {
    impl_->world.explain(std::current_exception());
  }
  if (impl_->broadcast_buffers) sync_buffers();
  return Step(*this);
}

void DistributedDataParallel::sync_buffers() { impl_->broadcast(impl_->buffers); }

void DistributedDataParallel::Step::backward(const at::Tensor& loss) {
  if (owner_ == nullptr) {
    throw Error(ErrorCode::kFailedPrecondition, "Step::backward was called a second time; begin another step");
  }
  auto& impl = *std::exchange(owner_, nullptr)->impl_;
  try {
    impl.reducer->prepare_for_backward({});
    loss.backward();
  } catch (...) {
    impl.world.explain(std::current_exception());
  }
}

}  // namespace yoke::train
